"""Diagnosis of singular and ill-conditioned matrices: empty rows and columns, condition estimates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from ....sparse.analysis.equilibrate import equilibrated, scales
from ...cost import estimated_cost
from ...run.outcome import Status
from ..advice import LEAST_SQUARES, SINGULAR, Cause
from .case import Case, norms, precision_name

_ROUNDING = 100  # rounding units of a product with random numbers, for one that should be zero ...
_MEAN = 0.5  # ... and of its mean: a shift by a long time step is no rounding, see `sparse.analysis.rounding`
_SMALL = 300  # unknowns up to which singular values are computed
_DENSE = 1500  # unknowns up to which a dense matrix is factorised
_OPERATIONS = 2e8  # of factors of a sparse matrix, some tenths of a second
_SINGLE = float(np.finfo(np.float32).eps)
_STEPS = 3  # of inverse iteration
_INFINITE = 1e30  # condition numbers beyond come from pivots that are zero
_NEAR = 0.1  # of 1 / eps: condition numbers beyond are those of singular matrices

_TAKE_OUT = "take the empty rows and columns out", "put 1 on their diagonal"


def singular(case: Case) -> list[Cause]:
    """Cause: A is singular, exactly or in this precision."""
    return _empty(case) or _ill_conditioned(case) or _by_products(case)


def _empty(case: Case) -> list[Cause]:
    """Zero rows and columns, of a known matrix or from two products with random vectors."""
    if case.least_squares:
        return []  # which they do not keep from a solution
    rows, columns = _empty_places(case)
    if not len(rows) and not len(columns):
        return []
    same, shape = np.array_equal(rows, columns), () if case.A is None else case.A.in_shape
    if same:
        seen = _some("row and column", rows, shape)
    else:
        named = [_some(what, found, shape) for what, found in (("row", rows), ("column", columns)) if len(found)]
        seen = ", and ".join(named)
    seen = f"A{case.of_which} is singular: {seen}"
    if case.b is None:
        if not len(rows):
            return [Cause(seen, _TAKE_OUT)]
        return [Cause(f"{seen}, so b must be zero there", _equation(int(rows[0]), shape), settles=not same)]
    right = case.b[case.numbers.worst, rows]
    wrong = np.flatnonzero(right)
    if len(wrong):
        at, value = int(rows[wrong[0]]), right[wrong[0]]
        return [Cause(f"{seen}, while b is {value:.3g} in row {_place(at, shape)}", _equation(at, shape))]
    if same and not case.method.factorises:
        return []  # as of obstacles on a grid: nothing depends on these unknowns
    return [Cause(seen, _TAKE_OUT, settles=not same)]


def _equation(row: int, shape: tuple[int, ...]) -> tuple[str, str]:
    such = f"A[{row}, {row}] = 1" if len(shape) < 2 else "x itself there"
    return "give b zeros there", f"give each empty row an equation, such as {such}"


def _place(index: int, shape: tuple[int, ...]) -> str:
    """An unknown, on a grid by its indices along the axes."""
    return str(index) if len(shape) < 2 else str(tuple(map(int, np.unravel_index(index, shape))))


def _empty_places(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Indices of zero rows and columns; of a function rows only."""
    if case.matrix is not None:
        return _zeros(case.matrix, 1), _zeros(case.matrix, 0)
    none = np.zeros(0, np.int64)
    if case.A_image is None or case.A is None:
        return none, none
    images = [case.A_image(case.random(seed, case.A.shape[1]))[case.numbers.worst] for seed in (4, 5)]
    rows = np.flatnonzero((images[0] == 0) & (images[1] == 0))
    # without the matrix, the columns of rows with a zero in b are taken for as empty as these
    return rows, rows if case.b is not None and not case.b[case.numbers.worst, rows].any() else none


def _zeros(matrix: Any, axis: int) -> np.ndarray:
    size = abs(matrix).max(axis=axis) if not sp.issparse(matrix) else abs(matrix).sum(axis=axis)
    return np.flatnonzero(np.asarray(size).reshape(-1) == 0)


def _some(what: str, indices: np.ndarray, shape: tuple[int, ...]) -> str:
    first = _place(int(indices[0]), shape)
    if len(indices) == 1:
        return f"{what} {first} is zero" if " " not in what else f"{what} {first} are zero"
    plural = " and ".join(f"{word}s" for word in what.split(" and "))
    return f"{len(indices)} {plural} are zero, the first is {first}"


class _Inverse(NamedTuple):
    """Estimates: condition number, norm of x, and the residual that rounding of x leaves."""

    condition: float
    largest: float
    left: float


def _ill_conditioned(case: Case) -> list[Cause]:
    """Cause: the condition number of the known equilibrated matrix, if it explains the failure."""
    matrix, w = case.matrix, case.numbers.worst
    if matrix is None or case.least_squares or not 0 < matrix.shape[0] == matrix.shape[1]:
        return []
    found = _looked_at(matrix, None if case.b is None else case.b[w], case)
    eps = max(case.eps, _SINGLE) if case.method.lower_precision else case.eps
    if found is None or not found.condition > _NEAR / eps:
        return []
    if case.method.lower_precision and case.eps < _SINGLE:
        return _beyond_single(case, found.condition)
    beyond = np.isfinite(found.left) and found.left > case.numbers.bound[w]
    if not (beyond or case.method.factorises or case.status is not Status.MAX_ITER):
        return []  # such a system may have a solution, which takes more iterations
    seen = f"A{case.of_which} is {'nearly ' * (found.condition < 1 / case.eps)}singular"
    if found.condition < _INFINITE:
        seen += (
            f" to working precision: its condition number is about {found.condition:.1e}, and "
            f"{precision_name(case)} has digits for {1 / case.eps:.1e}"
        )
    if beyond:
        seen += (
            f"; its solution has entries of {found.largest:.1e}, and rounding them leaves a residual norm of about "
            f"{found.left:.1e}"
        )
    single = case.eps >= _SINGLE and found.condition < _NEAR / np.finfo(np.float64).eps
    advice = ("use double precision, which has enough digits for it",) if single else SINGULAR
    return [Cause(seen, advice, settles=beyond or case.method.factorises)]


def _beyond_single(case: Case, condition: float) -> list[Cause]:
    """Cause for mixed precision: the condition number exceeds single precision."""
    seen = (
        f"the condition number of A{case.of_which} is about {condition:.1e}, and {case.method.name} computes in "
        f"single precision inside, which has digits for {1 / _SINGLE:.1e}"
    )
    return [Cause(seen, (f"use {case.method.name.removeprefix('mixed-')}", "factorise (method='scipy-direct')"))]


def _looked_at(matrix: Any, b: np.ndarray | None, case: Case) -> _Inverse | None:
    n, wide = matrix.shape[0], np.result_type(matrix.dtype, np.float64)
    csr = sp.csr_array(matrix, dtype=wide)
    if n > (_DENSE if not sp.issparse(matrix) else n):
        return None
    if sp.issparse(matrix) and n > _SMALL and estimated_cost(csr).work > _OPERATIONS:
        return None
    rows, columns = scales(csr)
    scaled = equilibrated(csr, rows, columns)
    solve, condition = _inverse(scaled, not sp.issparse(matrix))
    if solve is None or b is None:
        return _Inverse(condition, np.nan, np.nan)
    x = columns * solve(rows * b.astype(wide))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], n)
    left = float(norms((csr @ (x * case.eps * signs))[None])[0])
    return _Inverse(condition, float(np.max(np.abs(x))), left)


def _inverse(scaled: Any, dense: bool) -> tuple[Any, float]:
    """A solve function, None for an exactly singular matrix, and (a lower bound of) the condition number."""
    n = scaled.shape[0]
    if n <= _SMALL:
        full = scaled.toarray()
        sizes = np.linalg.svd(full, compute_uv=False)
        smallest, largest = float(sizes[-1]), float(sizes[0])
        if smallest == 0:
            return None, np.inf
        return lambda v: np.linalg.solve(full, v), largest / smallest
    try:
        if dense:
            lu = scipy.linalg.lu_factor(scaled.toarray(), check_finite=False)
            solvers = [lambda v: scipy.linalg.lu_solve(lu, v), lambda v: scipy.linalg.lu_solve(lu, v, trans=2)]
        else:
            factors = spl.splu(scaled)
            solvers = [factors.solve, lambda v: factors.solve(v, "H")]
    except RuntimeError:  # "Factor is exactly singular"
        return None, np.inf
    v, grown = np.random.default_rng(2).standard_normal(n).astype(scaled.dtype), 0.0
    for _ in range(_STEPS):
        w = solvers[0](v / np.linalg.norm(v))
        grown = float(np.linalg.norm(w))
        if not np.isfinite(grown) or grown == 0:
            return None, np.inf
        v = solvers[1](w / grown)
    return solvers[0], grown * float(abs(scaled).sum(axis=0).max())  # norm(_, 1) of SciPy 1.13 takes no arrays


def _by_products(case: Case) -> list[Cause]:
    """Cause for an unknown matrix: A maps x, or the constants, nearly to zero."""
    if case.A_image is None or case.A is None or case.x is None or case.b is None or case.r is None:
        return []
    w, n, u = case.numbers.worst, case.A.shape[1], case.random(4, case.A.shape[1])
    if not n:
        return []
    usual = norms(case.A_image(u)[w : w + 1])[0] / norms(u[w : w + 1])[0]
    found = [] if case.least_squares or case.matrix is not None else _constants(case, usual)
    if found:
        return found
    x, image = case.x[w : w + 1], (case.b - case.r)[w : w + 1]
    size, left = norms(x)[0], norms(image)[0]
    if not (
        np.isfinite([usual, size, left]).all() and size > 0 and left > 0 and usual * size > _NEAR / case.eps * left
    ):
        return []
    what = "A has (nearly) dependent columns" if case.least_squares else "A is singular to working precision"
    seen = f"{what}: it takes the x that was reached, of norm {size:.1e}, to a vector of norm {left:.1e}"
    if case.least_squares:
        return [Cause(seen, ("damp it (damp=...)",))]
    wider = ("use double precision, in which A may be regular",) if case.eps >= _SINGLE else ()
    return [Cause(seen, (*wider, *SINGULAR))]


def _constants(case: Case, usual: float) -> list[Cause]:
    """Does A take the constant vector to zero, and has b a part that it therefore cannot have if A is symmetric?"""
    if case.A_image is None or case.A is None or case.b is None:
        return []
    w, n = case.numbers.worst, case.A.shape[1]
    image = case.A_image(np.ones((case.numbers.status.size, n), case.dtype))[w : w + 1]
    mean = abs(complex(np.mean(image, dtype=np.result_type(case.dtype, np.complex128))))
    if not (norms(image)[0] <= _ROUNDING * case.eps * usual * np.sqrt(n) and mean <= _MEAN * case.eps * usual):
        return []
    of_b = complex(np.mean(case.b[w], dtype=np.result_type(case.dtype, np.float64)))
    symmetric = case.method.needs_hermitian
    if not (symmetric or case.both) or abs(of_b) * np.sqrt(n) <= case.numbers.bound[w]:
        return [] if case.null else [Cause("A is singular: it takes constants to zero", SINGULAR, settles=False)]
    shown = f"{of_b:.3g}" if case.dtype.kind == "c" else f"{of_b.real:.3g}"
    which = "A is symmetric and takes" if symmetric else "A and its transpose take"
    seen = f"{which} the constant vector to zero, but the mean of b is {shown}, so there is no solution"
    return [Cause(seen, ("take the mean off b", LEAST_SQUARES))]
