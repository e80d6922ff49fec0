"""Numbers of iterations, as messages say them."""

from __future__ import annotations


def iterations_in_words(least: int, most: int | None = None) -> str:
    """`1 iteration`, `3 iterations`, `3 to 5 iterations`."""
    most = least if most is None else most
    number = f"{most}" if least == most else f"{least} to {most}"
    return f"{number} iteration" if number == "1" else f"{number} iterations"
