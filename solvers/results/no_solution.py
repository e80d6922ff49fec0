"""Diagnosis of singular A and of inconsistent systems, in which b has a component outside the range of A.

Explains why a failed solve has no solution, withdraws convergence by attainable accuracy alone where A refutes it, and
reports singularity as a cause of a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from ...backends import Array, Backend, get_backend, real_dtype
from ...sparse import FunctionOperator, Matrix, Operator
from ...sparse.analysis.equilibrate import equilibrated, scales
from ...sparse.analysis.facts import component_labels
from ...sparse.analysis.rounding import ROWS, closed_components, half_units, of_region, rounded_row_sums
from ...sparse.operators.concrete import as_matrix
from ..cost import estimated_cost
from ..factors.protocol import ExactlySingular
from ..factors.singularity import Singularity
from ..factors.superlu import splu_in_memory
from ..read.system import System
from ..run.outcome import Outcome, Status, has_failed
from .diagnose import Case, norms
from .messages import FACTORISE, LEAST_SQUARES, SINGULAR, Cause
from .result import SolveResult

_SMALL = 300  # unknowns up to which all left null vectors are found, by a singular value decomposition
_FAR = 10  # reciprocal condition number relative to n eps, above which a matrix is certainly regular
_SAME = 1e-3  # relative rounding error of norms


def why_no_solution(system: System, b: Array, result: SolveResult) -> str | None:
    """Explain that no x meets the tolerance, if a known matrix shows it; else None.

    Cost: that of `unreachable`, after a failure only.
    """
    bk = system.bk
    if system.compiled or system.several or system.given is not None or system.cut is not None:
        return None  # no process has the whole of a distributed b
    failed = has_failed(bk.to_numpy(result.status).reshape(-1))
    part = unreachable(system.A, bk.to_numpy(b), failed)
    if part is None:
        return None
    reached, bound = (bk.to_numpy(a).reshape(-1) for a in (result.residual_norm, result.tolerance))
    with np.errstate(all="ignore"):
        hopeless = failed & (part > bound) & (part <= (1 + _SAME) * reached)  # part is a lower bound of it
    if not hopeless.any():
        return None
    least = np.minimum(part, reached)[hopeless].max()
    return f"no x leaves a residual norm below {least:.3e}, because b is outside the range of A"


def without_refuted(
    bk: Backend, A: Operator, right_hand_side: Callable[[], Array], rtol: Array, atol: Array, outcome: Outcome
) -> Outcome:
    """Withdraw convergence by attainable accuracy alone, if the matrix shows that the system is inconsistent.

    Such x have large null-space components, which make the attainable residual large. Where the factors revealed null
    vectors, b was already compared with these.

    Cost: for such solves with at most 300 unknowns an LU factorisation, see `unreachable`.
    """
    if A.shape[0] > _SMALL or len(outcome.status.shape) > 2:
        return outcome
    limited = (outcome.status == int(Status.CONVERGED)) & (outcome.attainable > 0)
    limited = limited & (outcome.singular != int(Singularity.SINGULAR))
    if not bk.any(limited):
        return outcome
    b = right_hand_side()
    part = unreachable(A, bk.to_numpy(b), bk.to_numpy(limited).reshape(-1))
    if part is None:
        return outcome
    asked = bk.maximum(rtol * bk.norm(b), atol)
    failed = limited & bk.asarray(part[:, None] > bk.to_numpy(asked), like=b)
    return outcome._replace(
        status=bk.where(failed, int(Status.STAGNATED), outcome.status),
        attainable=bk.where(failed, 0 * outcome.attainable, outcome.attainable),
        bound=bk.where(failed, asked, outcome.bound),
    )


def unreachable(A: Operator, b: np.ndarray, asked: np.ndarray) -> np.ndarray | None:
    """`(batch,)`: norm of the component of b in left null vectors w of A, `A^H w = 0`; None for unknown A.

    Every residual has that component. The vectors are the constants on each connected component of the matrix, of which
    a zero row is one; for small matrices they are all left null vectors.

    Args:
        asked: bool `(batch,)`, the systems to examine; the result is 0 for the others.

    Cost: one pass over the entries, and for matrices of at most 300 unknowns a singular value decomposition each.
    """
    known = _known_matrices(A) if asked.any() and not A.offset else None
    if known is None:
        return None
    wide = b.astype(np.result_type(b.dtype, np.float64))
    part = np.zeros(len(b))
    with np.errstate(all="ignore"):
        if isinstance(known, tuple) or getattr(known, "ndim", 2) == 3:
            for i in np.flatnonzero(asked):
                part[i] = _norms_outside_range(known[i], wide[i : i + 1])[0]
        else:
            part[asked] = _norms_outside_range(known, wide[asked])
    return part


def _known_matrices(A: Operator) -> Any:
    A = A.without_offset
    if A.shape[0] != A.shape[1] or A.bk.communicator is not None:
        return None
    if isinstance(A, FunctionOperator) and A.shape[0] <= _SMALL:
        try:
            A = as_matrix(A)
        except Exception:  # An error of the user's function leaves the solve without a diagnosis.
            return None
    return A.known() if isinstance(A, Matrix) else None


def _norms_outside_range(matrix: Any, b: np.ndarray) -> np.ndarray:
    """`(batch,)`: norm of the component of each row of b in the detected left null space."""
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        return np.zeros(len(b))
    n, matrix = matrix.shape[0], sp.csr_array(matrix)
    if n <= _SMALL and _is_certainly_regular(matrix):
        return np.zeros(len(b))
    if n <= _SMALL:
        rows = _zeros(matrix, 1)  # Rounding would mix these with other null vectors.
        others = np.setdiff1d(np.arange(n), rows)
        parts = b[:, rows], b[:, others] @ _left_null_vectors(matrix[others]).conj()
        return np.linalg.norm(np.concatenate(parts, axis=1), axis=1)
    count, labels = component_labels(matrix)
    closed = closed_components(rounded_row_sums(matrix.T), labels, count, matrix.dtype)
    totals = np.stack([np.bincount(labels, row.real, count) + 1j * np.bincount(labels, row.imag, count) for row in b])
    return np.linalg.norm((np.abs(totals) / np.sqrt(np.bincount(labels)))[:, closed], axis=1)


def _is_certainly_regular(matrix: Any) -> bool:
    # LAPACK's estimate of the condition number is cheaper than singular values.
    n, kind = matrix.shape[0], np.result_type(matrix.dtype, np.float64)
    dense = matrix.toarray().astype(kind)
    factor, estimate = lapack.get_lapack_funcs(("getrf", "gecon"), (dense,))
    factors, _, failed = factor(dense)
    reciprocal, _ = estimate(factors, np.linalg.norm(dense, 1)) if not failed and n else (0.0, 0)
    return bool(reciprocal > _FAR * max(n, 1) * np.finfo(matrix.dtype).eps)


def _left_null_vectors(matrix: Any) -> np.ndarray:
    """`(m, count)`: orthonormal w with `A^H w = 0` up to rounding of the entries.

    Small singular values of A may be due to its units, but those of the equilibrated `R A C` are not. Its left null
    vectors u give `w = R u`.
    """
    n = matrix.shape[1]
    wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
    own = n * np.finfo(wide.dtype).eps  # rounding of this computation
    rows, columns = scales(wide)
    scaled = equilibrated(wide, rows, columns)
    data = half_units(get_backend("numpy"), matrix.data).astype(np.float64)
    allowed = equilibrated(sp.csr_array((data, matrix.indices, matrix.indptr), matrix.shape), rows, columns)
    left, sizes, right = np.linalg.svd(scaled.toarray(), full_matrices=False)
    rounding = np.sum(np.abs(left) * (allowed @ np.abs(right).T), axis=0)
    small = sizes <= of_region(matrix.dtype) * rounding + own * sizes.max(initial=0)
    q, _ = np.linalg.qr(rows[:, None] * left[:, small])
    v = q / rows[:, None]
    v[np.abs(v) <= own * np.abs(v).max(axis=0, initial=0)] = 0  # R would amplify rounding errors
    limit = ROWS * (allowed.T @ np.abs(v)) + 4 * own * (abs(scaled).T @ np.abs(v))
    null = (np.abs(scaled.conj().T @ v) <= limit).all(axis=0)
    w = rows[:, None] * v[:, null]
    return np.asarray(w / np.linalg.norm(w, axis=0))


def _zeros(matrix: Any, axis: int) -> np.ndarray:
    """Indices of the zero rows (axis 1) or columns (axis 0)."""
    size = abs(matrix).sum(axis=axis) if sp.issparse(matrix) else abs(matrix).max(axis=axis)
    return np.flatnonzero(np.asarray(size).reshape(-1) == 0)


# --- singularity as a cause of a failure

_ROUNDING = 100  # norm of a product that counts as zero, in rounding units of a product with random numbers
_MEAN = 0.5  # the same for its mean, below the shift by a long time step, see `sparse.analysis.rounding`
_DENSE = 1500  # unknowns up to which a dense matrix is factorised
_OPERATIONS = 2e8  # most operations for factors of a sparse matrix, some tenths of a second
_SINGLE = float(np.finfo(np.float32).eps)  # rounding unit of single precision
_INVERSE_ITERATIONS = 3  # enough for the order of magnitude of the smallest singular value
_INFINITE = 1e30  # larger condition numbers come from zero pivots
_NEAR = 0.1  # condition number relative to 1 / eps, above which a matrix is singular to working precision

_REMOVE = "remove the empty rows and columns", "put 1 on their diagonal"


def singular(case: Case) -> list[Cause]:
    """Cause: A is singular, exactly or in this precision."""
    return _empty(case) or _ill_conditioned(case) or _by_products(case)


def _empty(case: Case) -> list[Cause]:
    """Cause: zero rows and columns, of a known matrix or from two products with random vectors."""
    if case.least_squares:
        return []  # least squares problems always have a solution
    rows, columns = _zero_rows_and_columns(case)
    if not len(rows) and not len(columns):
        return []
    same, shape = np.array_equal(rows, columns), case.A.in_shape

    def place(index: int) -> str:
        return str(index) if len(shape) < 2 else str(tuple(map(int, np.unravel_index(index, shape))))

    def zero(what: str, indices: np.ndarray) -> str:
        first = place(int(indices[0]))
        if len(indices) == 1:
            return f"{what} {first} {'are' if same else 'is'} zero"
        return f"{len(indices)} {what.replace(' and', 's and')}s are zero, the first is {first}"

    pairs = [("row and column", rows)] if same else [("row", rows), ("column", columns)]
    seen = f"A{case.of_which} is singular: {', and '.join(zero(*pair) for pair in pairs if len(pair[1]))}"
    wrong = rows if case.b is None else [row for row in rows if case.b[case.worst, row]]
    if len(wrong):
        row = int(wrong[0])
        such = f"A[{row}, {row}] = 1" if len(shape) < 2 else "x itself there"
        equation = "give b zeros there", f"give each empty row an equation, such as {such}"
        if case.b is None:
            return [Cause(f"{seen}, so b must be zero there", equation, settles=not same)]
        return [Cause(f"{seen}, while b is {case.b[case.worst, row]:.3g} in row {place(row)}", equation)]
    if same and case.b is not None and not case.method.factorises:
        return []  # Nothing depends on these unknowns, for example in obstacles on a grid.
    return [Cause(seen, _REMOVE, settles=not same)]


def _zero_rows_and_columns(case: Case) -> tuple[np.ndarray, np.ndarray]:
    if case.matrix is not None:
        return _zeros(case.matrix, 1), _zeros(case.matrix, 0)
    images = [case.A_image(case.random(seed))[case.worst] for seed in (4, 5)]
    rows = np.flatnonzero((images[0] == 0) & (images[1] == 0))
    # Without the matrix, the columns of zero rows are assumed to be zero as well where b is zero there.
    return rows, rows if case.b is not None and not case.b[case.worst, rows].any() else rows[:0]


def _ill_conditioned(case: Case) -> list[Cause]:
    """Cause: the condition number of the equilibrated matrix, if that is known and explains the failure."""
    matrix, method = case.matrix, case.method
    if matrix is None or case.least_squares or not 0 < matrix.shape[0] == matrix.shape[1]:
        return []
    condition, largest, left = _estimates(matrix, None if case.b is None else case.b[case.worst], case.eps)
    eps = max(case.eps, _SINGLE) if method.lower_precision else case.eps
    if not condition > _NEAR / eps:
        return []
    if method.lower_precision and case.eps < _SINGLE:
        seen = (
            f"the condition number of A{case.of_which} is about {condition:.1e}, and {method.name} computes in single "
            f"precision inside, which has digits for {1 / _SINGLE:.1e}"
        )
        return [Cause(seen, (f"use {method.name.removeprefix('mixed-')}", FACTORISE))]
    beyond = np.isfinite(left) and left > case.bound
    if not (beyond or method.factorises or case.status is not Status.MAX_ITER):
        return []  # The system may have a solution that takes more iterations.
    seen = f"A{case.of_which} is {'nearly ' * (condition < 1 / case.eps)}singular"
    if condition < _INFINITE:
        seen += f" to working precision: its condition number is about {condition:.1e}, and "
        seen += f"{real_dtype(case.A.dtype)} has digits for {1 / case.eps:.1e}"
    if beyond:
        seen += f"; its solution has entries of {largest:.1e}, and rounding them leaves a residual norm of about "
        seen += f"{left:.1e}"
    single = case.eps >= _SINGLE and condition < _NEAR / np.finfo(np.float64).eps
    advice = ("use double precision, which has enough digits for it",) if single else SINGULAR
    return [Cause(seen, advice, settles=beyond or method.factorises)]


def _estimates(matrix: Any, b: np.ndarray | None, eps: float) -> tuple[float, float, float]:
    """Condition number of the equilibrated matrix, largest entry of x, and the residual due to rounding x.

    They are NaN where singular values or factors would be too expensive.
    """
    n, sparse = matrix.shape[0], sp.issparse(matrix)
    csr = sp.csr_array(matrix, dtype=np.result_type(matrix.dtype, np.float64))
    if n > _SMALL and (estimated_cost(csr).work > _OPERATIONS if sparse else n > _DENSE):
        return np.nan, np.nan, np.nan
    rows, columns = scales(csr)
    solve, condition = _inverse(equilibrated(csr, rows, columns), sparse)
    if b is None or not condition < np.inf:
        return condition, np.nan, np.nan
    x = columns * solve(rows * b.astype(csr.dtype))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], n)
    return condition, float(np.max(np.abs(x))), float(np.linalg.norm(csr @ (x * eps * signs)))


def _inverse(scaled: Any, sparse: bool) -> tuple[Any, float]:
    """A solve function, and the condition number or a lower bound of it."""
    if scaled.shape[0] <= _SMALL or not sparse:
        full = scaled.toarray()
        return lambda v: np.linalg.solve(full, v), float(np.linalg.cond(full, 2 if len(full) <= _SMALL else 1))
    try:
        factors = splu_in_memory(scaled)
    except ExactlySingular:
        return None, np.inf
    v, grown = np.random.default_rng(2).standard_normal(scaled.shape[0]).astype(scaled.dtype), 0.0
    for _ in range(_INVERSE_ITERATIONS):
        w = factors.solve(v / np.linalg.norm(v))
        grown = float(np.linalg.norm(w))
        if not 0 < grown < np.inf:
            return None, np.inf
        v = factors.solve(w / grown, "H")
    return factors.solve, grown * float(abs(scaled).sum(axis=0).max())  # norm(_, 1) of SciPy 1.13 takes no arrays


def _by_products(case: Case) -> list[Cause]:
    """Cause for an unknown matrix: A maps x, or the constants, nearly to zero."""
    if case.x is None or case.b is None or case.r is None or not case.A.shape[1]:
        return []
    w, u = case.worst, case.random(4)
    usual = norms(case.A_image(u)[w : w + 1])[0] / norms(u[w : w + 1])[0]
    causes = [] if case.least_squares or case.matrix is not None else _constants(case, case.b[w], usual)
    size, left = (norms(a[w : w + 1])[0] for a in (case.x, case.b - case.r))
    small = np.isfinite([usual, size, left]).all() and size > 0 and 0 < left < usual * size * case.eps / _NEAR
    if causes or not small:
        return causes
    what = "A has (nearly) dependent columns" if case.least_squares else "A is singular to working precision"
    seen = f"{what}: it maps the x that was reached, of norm {size:.1e}, to a vector of norm {left:.1e}"
    if case.least_squares:
        return [Cause(seen, ("damp it (damp=...)",))]
    wider = ("use double precision, in which A may be regular",) if case.eps >= _SINGLE else ()
    return [Cause(seen, (*wider, *SINGULAR))]


def _constants(case: Case, b: np.ndarray, usual: float) -> list[Cause]:
    """Cause: A maps constants to zero, and b has a mean, which no x reaches if A is symmetric."""
    n, dtype = case.A.shape[1], case.A.dtype
    image = case.A_image(np.ones_like(case.random(0)))[case.worst]
    mean = abs(complex(np.mean(image, dtype=np.result_type(dtype, np.complex128))))
    size = norms(image[None])[0]
    if not (size <= _ROUNDING * case.eps * usual * np.sqrt(n) and mean <= _MEAN * case.eps * usual):
        return []
    of_b = complex(np.mean(b, dtype=np.result_type(dtype, np.float64)))
    symmetric = case.method.needs_hermitian
    if not (symmetric or case.both) or abs(of_b) * np.sqrt(n) <= case.bound:
        return [] if case.null else [Cause("A is singular: it maps constants to zero", SINGULAR, settles=False)]
    shown = f"{of_b:.3g}" if dtype.kind == "c" else f"{of_b.real:.3g}"
    which = "A is symmetric and maps" if symmetric else "A and its transpose map"
    seen = f"{which} the constant vector to zero, but the mean of b is {shown}, so there is no solution"
    return [Cause(seen, ("subtract the mean of b", LEAST_SQUARES))]
