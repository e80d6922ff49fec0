"""`spsolve`, `splu`, `factorized` and `spsolve_triangular`, called as SciPy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from scipy.linalg import LinAlgError

from ..solvers import Method, linear_solve, solve_triangular
from ..solvers.factors.superlu import factors_of
from ..solvers.methods.registry import find_method, is_auto
from ..solvers.shortcut import MOST
from .wrap import FLOATING, is_for_krylix, is_of_another_library

ArrayT = TypeVar("ArrayT")
_FORMATS = ("csc", "csr")


def spsolve(
    A: Any,
    b: ArrayT,
    permc_spec: str | None = None,
    use_umfpack: bool = True,
    *,
    method: str | Method = "auto",
    rtol: float | None = None,
) -> ArrayT:
    """Solve `A x = b` for a sparse A, called as `scipy.sparse.linalg.spsolve`.

    "auto" factorises, or iterates where that is known to be quicker; set-up and factors are kept for the next call with
    the same matrix. Up to 64 unknowns A is solved with as a dense matrix. Systems that krylix cannot solve are left to
    SciPy's function: for an exactly singular matrix x is NaN, with a MatrixRankWarning. A singular system that has
    solutions is solved, with a SingularMatrixWarning where factors have shown that it is singular: x is then
    orthogonal to its null vectors. Nothing is subtracted from b (`nullspace=None`).

    Args:
        A: sparse matrix `(n, n)`, csc and csr without a copy.
        b: `(n,)`, `(n, 1)`, columns `(n, k)`, or a sparse matrix of columns, which SciPy's function solves for with
            `splu`.
        permc_spec: SciPy's ordering of the columns; SciPy's own function then solves.
        use_umfpack: has no effect, unless SciPy's own function solves.
        method: another method of krylix.
        rtol: relative tolerance of the residual; 1e-10 in double precision (1e-5 in single) if None. Factors leave far
            less; where "auto" iterates, a smaller one costs more iterations.

    Returns:
        x, `(n,)` for a vector, else `(n, k)`; sparse for sparse columns.

    Raises:
        ValueError: A is not square, or b has another length.

    Cost: see `linear_solve`.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import scipy_like as sla
        >>> A = sp.csc_array([[3.0, 2.0, 0.0], [1.0, -1.0, 0.0], [0.0, 5.0, 1.0]])
        >>> sla.spsolve(A, np.array([5.0, 0.0, 6.0])).round(12).tolist()
        [1.0, 1.0, 1.0]
    """
    if is_for_krylix(A, b) or is_of_another_library(A):
        return linear_solve(A, b, method=method, rtol=rtol, nullspace=None).x
    if not (sp.issparse(A) and A.format in _FORMATS):
        A = sp.csc_array(A)
        warnings.warn("spsolve requires A be CSC or CSR matrix format", sp.SparseEfficiencyWarning, stacklevel=2)
    if permc_spec is None and A.shape[0] == A.shape[1] and A.shape[0] > 0:
        try:
            x = _spsolve(A, b, method, rtol)
        except (ValueError, TypeError):
            if method != "auto":
                raise
            x = None
        if x is not None:
            return x
    return spl.spsolve(A, b, permc_spec, use_umfpack)


def _spsolve(A: Any, b: Any, method: str | Method, rtol: float | None) -> Any:
    """None where SciPy's function has to solve, or to raise."""
    n = A.shape[0]
    if type(b) is not np.ndarray or b.ndim != 1 or b.dtype != A.dtype or b.dtype.char not in FLOATING:
        A, b = _with_one_dtype(A, b)
        if b is None:
            return None
    if b.shape[0] != n:
        return None
    if not b.any(axis=0).all():  # for b = 0 SciPy's function finds out whether A is singular
        if not is_auto(method):
            find_method(method, A)
        return None
    if n <= MOST and method == "auto":
        A = A.toarray()  # LAPACK takes less time for it than the sparse path to start
    result = linear_solve(
        A, b, method=method, rtol=rtol, nullspace=None, on_failure="status", axis=None if b.ndim == 1 else 0
    )
    return result.x if np.all(result.converged & (result.iterations > 0)) else None


def _with_one_dtype(A: Any, b: Any) -> tuple[Any, Any]:
    """b is None where it is sparse or not an array of numbers."""
    if sp.issparse(b):
        if b.shape[1:] not in ((), (1,)):
            return A, None
        b = b.toarray()
    elif getattr(type(b), "__module__", "").startswith("sparse"):
        return A, None
    b = np.asarray(b)
    if b.ndim not in (1, 2) or b.dtype.kind not in "biufc":
        return A, None
    dtype = np.promote_types(A.dtype if A.dtype.char in FLOATING else np.float64, b.dtype)
    if dtype.char not in FLOATING:
        return A, None
    b = b.ravel() if b.shape[1:] == (1,) else b
    return A.astype(dtype, copy=False), b.astype(dtype, copy=False)


def splu(
    A: Any,
    permc_spec: str | None = None,
    diag_pivot_thresh: float | None = None,
    relax: int | None = None,
    panel_size: int | None = None,
    options: dict[str, Any] | None = None,
) -> spl.SuperLU:
    """LU factors of a sparse A, called as `scipy.sparse.linalg.splu`, with less fill where that is safe.

    The object is SciPy's, with `solve(rhs, trans)`, `shape`, `nnz`, `perm_r`, `perm_c`, `L` and `U`. Where no option is
    given, columns are ordered by the minimum degree of `A + A^T` and rows are not exchanged if the diagonal is
    dominant, or the Hermitian part definite and a solve exact to rounding; else as SciPy orders them.

    Args:
        A: sparse matrix `(n, n)`; csc is taken without a copy.
        permc_spec: ordering of the columns: "NATURAL", "MMD_ATA", "MMD_AT_PLUS_A", "COLAMD".
        diag_pivot_thresh: how much smaller than others a pivot on the diagonal may be.
        relax: an option of SuperLU.
        panel_size: an option of SuperLU.
        options: further options of SuperLU.

    Raises:
        ValueError: A is not square.
        RuntimeError: "Factor is exactly singular".

    Cost: the numbers of the factors, with their fill; without options a few passes over A, at most 40 products and one
    solve on top.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import scipy_like as sla
        >>> factors = sla.splu(sp.csc_array([[3.0, 2.0], [1.0, -1.0]]))
        >>> factors.solve(np.array([5.0, 0.0])).round(12).tolist(), factors.shape
        ([1.0, 1.0], (2, 2))
    """
    given = {"diag_pivot_thresh": diag_pivot_thresh, "relax": relax, "panel_size": panel_size, "options": options}
    A = _csc(A, "splu")
    if permc_spec is None and not any(value is not None for value in given.values()) and sp.issparse(A):
        matrix = sp.csc_array(A)
        if matrix.shape[0] == matrix.shape[1] and matrix.dtype.char in FLOATING:
            if not matrix.has_canonical_format:
                matrix = matrix.copy()
                matrix.sum_duplicates()
            return factors_of(matrix)
    return spl.splu(A, permc_spec, **given)


def _csc(A: Any, function: str) -> Any:
    """Convert to CSC with SciPy's warning; arrays of the package sparse stay as they are."""
    if getattr(A, "format", None) == "csc" or getattr(type(A), "__module__", "").startswith("sparse"):
        return A
    warnings.warn(f"{function} converted its input to CSC format", sp.SparseEfficiencyWarning, stacklevel=3)
    return sp.csc_array(A)


def factorized(A: Any) -> Callable[[Any], np.ndarray]:
    """A function that solves `A x = b`, with factors of A, called as `scipy.sparse.linalg.factorized`.

    Args:
        A: sparse matrix `(n, n)`; csc is taken without a copy.

    Returns:
        `solve` of `splu(A)`, of b `(n,)` or `(n, k)`.

    Raises:
        ValueError: A is not square.
        RuntimeError: "Factor is exactly singular".

    Cost: see `splu`.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import scipy_like as sla
        >>> solve = sla.factorized(sp.csc_array([[3.0, 2.0], [1.0, -1.0]]))
        >>> solve(np.array([5.0, 0.0])).round(12).tolist()
        [1.0, 1.0]
    """
    return splu(_csc(A, "splu")).solve


def spsolve_triangular(
    A: Any,
    b: Any,
    lower: bool = True,
    overwrite_A: bool = False,
    overwrite_b: bool = False,
    unit_diagonal: bool = False,
) -> np.ndarray:
    """Solve `A x = b` for a triangular sparse A, called as `scipy.sparse.linalg.spsolve_triangular`.

    Args:
        A: sparse matrix `(n, n)`, of which the other triangle is not read.
        b: `(n,)` or columns `(n, k)`.
        lower: is it the lower triangle, or the upper one?
        overwrite_A: has no effect: A is never written to.
        overwrite_b: has no effect: b is never written to.
        unit_diagonal: use ones as the diagonal, which is not read.

    Returns:
        x, shaped as b.

    Raises:
        LinAlgError: the diagonal has a zero.
        ValueError: A is not square, or b has another length or more than two axes.

    Cost: see `krylix.solve_triangular`.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import scipy_like as sla
        >>> sla.spsolve_triangular(sp.csr_array([[3.0, 0.0], [1.0, -1.0]]), np.array([3.0, 0.0])).tolist()
        [1.0, 1.0]
    """
    if not (sp.issparse(A) and A.format in _FORMATS):
        text = "CSC or CSR matrix format is required. Converting to CSC matrix."
        warnings.warn(text, sp.SparseEfficiencyWarning, stacklevel=2)
        A = sp.csc_array(A)
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"A must be a square matrix but its shape is {A.shape}.")
    b = np.asarray(b)
    if b.ndim not in (1, 2):
        raise ValueError(f"b must have 1 or 2 dims but its shape is {b.shape}.")
    if b.shape[0] != A.shape[0]:
        raise ValueError(
            "The size of the dimensions of A must be equal to the size of the first dimension of b but the shape of A "
            f"is {A.shape} and the shape of b is {b.shape}."
        )
    if not unit_diagonal and not np.all(A.diagonal()):
        raise LinAlgError("A is singular: zero entry on diagonal.")
    # SciPy divides by the diagonal, so integers become floating-point numbers.
    matrix_dtype = A.dtype if unit_diagonal or A.dtype.kind in "fc" else np.dtype(np.float64)
    dtype = np.promote_types(np.promote_types(matrix_dtype, np.float32), b.dtype)
    rows = np.ascontiguousarray(b.T, dtype)[None]  # a batch axis, because a square b would be ambiguous
    x = solve_triangular(A.astype(dtype, copy=False), rows, lower=lower, unit_diagonal=unit_diagonal)
    return np.asfortranarray(x[0].T)  # SciPy's memory order, without a copy
