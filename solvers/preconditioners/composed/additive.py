"""Additive composition: `M1 + M2` and `c * M`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Preconditioner, in_brackets, joint_cost, joint_grid, joint_note
from .pieces import in_one_library
from .sums import ScalarMultiple, Sum


def operator_sum(first: Any, second: Any) -> Preconditioner:
    """Sum of two preconditioners, see `in_one_library`.

    Raises:
        TypeError: a function, or operators of two libraries.
        ValueError: their sizes differ.
    """
    pair = in_one_library([first, second])
    entries = next((M.entries for M in pair if M.entries is not None), None)
    memory, work = joint_cost(pair, "memory"), joint_cost(pair, "work")
    kind = " + ".join(M.kind if ", then " not in M.kind else in_brackets(M.kind) for M in pair)
    inner = Sum(pair[0].inner, pair[1].inner)
    return Preconditioner(inner, kind, _hermitian(pair), memory, work, entries, (), joint_note(pair), joint_grid(pair))


def _hermitian(pair: list[Any]) -> bool | None:
    facts = [M.hermitian for M in pair]
    if None in facts or facts == [False, False]:  # what two lack, their sum may have
        return None
    return all(facts)


def operator_multiple(M: Preconditioner, factor: Any) -> Preconditioner:
    """Scalar multiple.

    Raises:
        TypeError: an array, or a complex number for a real preconditioner.
        ValueError: it is zero or not finite.
    """
    if not isinstance(factor, (int, float, complex, np.number)) or isinstance(factor, bool):
        raise TypeError(f"A preconditioner was multiplied by {factor!r}; expected a number. For products: M @ r.")
    try:
        number = complex(factor)
    except OverflowError as error:
        raise ValueError(f"A preconditioner was multiplied by {factor}, which no {M.dtype} can hold.") from error
    with np.errstate(all="ignore"):
        stored = complex(np.asarray(number).astype(np.result_type(M.dtype, np.complex64)))
    if not np.isfinite(stored) or stored == 0:
        raise ValueError(
            f"A preconditioner was multiplied by {factor}; expected a finite number that is not 0 in {M.dtype}."
        )
    if number.imag != 0 and M.dtype.kind != "c":
        raise TypeError(f"A preconditioner of {M.dtype} was multiplied by {factor}; expected a real number.")
    plain = number.real if number.imag == 0 else number
    hermitian = M.hermitian
    if number.imag != 0:  # none stays Hermitian, and another may become it
        hermitian = False if hermitian else None
    shown = f"({plain:g})" if number.imag else f"{plain:g}"
    kind = f"{shown} * {in_brackets(M.kind)}"
    return replace(M, inner=ScalarMultiple(M.inner, plain), kind=kind, hermitian=hermitian)


Preconditioner.plus, Preconditioner.times = staticmethod(operator_sum), staticmethod(operator_multiple)
