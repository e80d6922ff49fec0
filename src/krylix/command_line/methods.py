"""`krylix methods`: names of methods and preconditioners, with their requirements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ..solvers import METHODS, OPTIONAL_METHODS, PRECONDITIONERS
from ..solvers.methods.method import Method

_FAMILIES = "biCG-stab(l), GMRES(m), FGMRES(m) and IDR(s) exist for every number >= 1, mixed-... for most methods"


@dataclass(frozen=True)
class Needs:
    """A method in words.

    Attributes:
        name: for --method.
        matrix: "symmetric" (Hermitian where complex), "grid" (a sum of matrices along its axes), "band" (few
            diagonals), "square" or "any", which is also rectangular.
        numbers: "real" or "any".
        preconditioner: "none", "any" or "symmetric".
        transpose: does it multiply with the transpose of A?
        summary: what it is, in one line.
    """

    name: str
    matrix: str
    numbers: str
    preconditioner: str
    transpose: bool
    summary: str


def all_needs() -> list[Needs]:
    """Of every method with its default settings, auto first."""
    auto = Needs("auto", "square", "any", "any", False, "Looks at the matrix and takes one of these")
    return [auto, *map(_needs, (*METHODS.values(), *OPTIONAL_METHODS.values()))]


def all_kinds() -> list[str]:
    """Of preconditioners, auto first."""
    return ["auto", *PRECONDITIONERS]


def _needs(method: Method) -> Needs:
    special = "grid" if method.needs_grid else "band" if method.needs_band else None
    matrix = special or ("symmetric" if method.needs_symmetry else "any" if method.least_squares else "square")
    kind = "none" if not method.takes_preconditioner else "symmetric" if method.needs_symmetry else "any"
    numbers = "any" if method.takes_complex else "real"
    return Needs(method.name, matrix, numbers, kind, method.needs_transpose, method.summary)


def table() -> Iterator[str]:
    """The lines of `krylix methods`."""
    row = "{:<18} {:<10} {:<8} {:<15} {:<4} {}".format
    yield row("method", "matrix", "numbers", "preconditioner", "A^T", "what it is")
    for m in all_needs():
        yield row(m.name, m.matrix, m.numbers, m.preconditioner, "yes" if m.transpose else "no", m.summary)
    yield f"{_FAMILIES}."
    yield 'matrix: "symmetric" means Hermitian where complex, "any" also rectangular (least squares);'
    yield '"grid" is a sum of matrices along its axes, as a Laplacian is, "band" has few diagonals in some order.'
    yield f"preconditioners: {', '.join(all_kinds())}"


def as_object() -> dict[str, object]:
    """The same as a JSON object."""
    return {"methods": [asdict(m) for m in all_needs()], "preconditioners": all_kinds()}
