"""Facts of a function whose coefficients are arguments of a compiled program, found for random ones while it is traced.

The program of the function is known, its numbers are not. It is traced again with random positive numbers in their
place, by NumPy, so that nothing is compiled. What is an identity in the coefficients, such as symmetry, then holds for
all of them but special ones that no random number meets; the signs hold for positive coefficients. Both choose a method
and prove nothing: the true residual decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends import Backend
from ..formats import Matrix, SparseMatrix
from ..operators.concrete import as_matrix, concrete, is_known
from ..operators.function import FunctionOperator
from ..tracing.engine.limits import without_open_ended
from .analysis import Analysis, with_declared
from .symmetry import CHOSEN

_SEEDS = (31, 32)  # what holds by chance for one does not for the other
_TRUE = 0.75  # share of elements of a mask that are
_MOST_ENTRIES = 64  # per unknown, of matrices that are looked at


def with_facts(matrix: Matrix, A: FunctionOperator) -> Matrix:
    """The matrix that was traced from A; where its values are traced too, with facts of A.

    These are what A declares, or what holds for random arguments. Cost of the latter: two more traces by NumPy.
    """
    if not isinstance(matrix, SparseMatrix) or is_known(matrix) or matrix.nnz > _MOST_ENTRIES * A.shape[0]:
        return matrix
    return with_declared(matrix, A.declared or facts_for_random_values(A))


def facts_for_random_values(A: FunctionOperator) -> tuple[tuple[str, Any], ...]:
    """Facts of `Analysis` that hold for two random values of all traced arrays that A gets or closes over.

    Facts that do not hold are left open. Empty where the function cannot be followed, or loops until a condition holds,
    solves a system or calls the host inside.
    """
    bk, held = A.bk, list[list[tuple[str, Any]]]()
    try:
        program = A.program()
        if program is None:
            return ()
        function, arrays = program
        for seed in _SEEDS:
            drawn = FunctionOperator(bk, function, A.layout, A.dtype, _drawn(bk, arrays, seed), A.name)
            with np.errstate(all="ignore"), without_open_ended():
                matrix = concrete(as_matrix(drawn))
                held.append(_facts(Analysis(matrix)) if matrix.bk.on_host else [])
    except Exception:  # also of the user's checks, which these numbers need not pass
        return ()
    return tuple(fact for fact in held[0] if fact in held[1])


def _facts(analysis: Analysis) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if analysis.seems_hermitian:
        found += [("asymmetry", 0.0), ("is_hermitian_by_entries", True)]
        if analysis.one_sign and analysis.maybe_definite:
            found += [("one_sign", True), ("maybe_definite", True)]
    elif analysis.asymmetry_without_conjugation is not None and analysis.asymmetry_without_conjugation < CHOSEN:
        found += [("asymmetry_without_conjugation", 0.0)]
    return found


def _drawn(bk: Backend, arrays: Sequence[Any], seed: int) -> list[Any]:
    """Arrays with random numbers between 1/2 and 3/2 in the place of traced ones, masks and numbers of 0 and 1."""
    rng, found = np.random.default_rng(seed), []
    for array in arrays:
        known = bk.constant_folded(array)
        if known is not None:
            found.append(known)
            continue
        shape, dtype = tuple(int(n) for n in array.shape), bk.dtype(array)
        if dtype.kind == "c":
            values = rng.uniform(0.5, 1.5, shape) + 1j * rng.uniform(0.5, 1.5, shape)
        else:
            values = rng.uniform(0.5, 1.5, shape) if dtype.kind == "f" else rng.random(shape) < _TRUE
        found.append(np.asarray(values, dtype))
    return found
