"""Sparse factorisation by SuperLU, on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Operator, SparseMatrix, storable
from ....sparse.analysis.canonical import row_maxima
from ....sparse.analysis.equilibrate import equilibrated, scales
from ....sparse.files.storable import Fields
from ....sparse.formats.entries.scipy_form import csc_array
from ....sparse.operators.concrete import kept
from ...block_tridiagonal.band_lapack import band_lu
from .dense import factorise
from .factorisation import Factorisation, check_truths
from .refinement import Refinement
from .singular import Singularity, suspicious
from .sparse_factors.analyses import keep_solver, known_pattern, last_solver
from .sparse_factors.ladder import SUPERLU, providers_of, sparse_factors
from .sparse_factors.protocol import Provider
from .sparse_singular import HostSolver, Solve, singular_solver

_BLOWN, _SLACK = 0.1, 10  # growth of a random vector under the inverse of a singular matrix, in inverse rounding units


@dataclass(frozen=True)
class ScipyDirect(Refinement):
    """LU of a sparse matrix by SuperLU, with partial pivoting where it is needed; dense and banded ones by LAPACK.

    For any square matrix, real or complex. One factorisation serves all systems of a batch; a batch of matrices has
    one for each. Of a singular matrix with a solution it finds the one of least norm, with factors that are shifted a
    little and null vectors that these show; others are reported. Works on the host: arrays of other libraries are
    copied there and back, in compiled functions by a callback.

    Cost: the numbers of the factors, with their fill, once per matrix; then per iteration 1 product with A and 2
    triangular solves; mostly 1 iteration.

    Source: Li, ACM TOMS 31 (2005), through scipy.sparse.linalg.splu.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import ScipyDirect
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=ScipyDirect())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    on_host = True

    @property
    def name(self) -> str:
        return "scipy-direct"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return host_factors(bk, A, SUPERLU.name)


def host_factors(bk: Backend, A: Operator, by: str | None) -> Operator:
    """Factors of an operator by NumPy: sparse ones by a library, or the best that is installed if it has no name.

    Raises:
        ValueError: there is no library of this name, or it is not installed.
    """
    offset, inner = A.offset, A.without_offset
    if not isinstance(inner, SparseMatrix):  # a function of NumPy may have a sparse matrix
        arrays, make = inner.for_host()
        inner = make([bk.to_numpy(array) for array in arrays])
    if not isinstance(inner, SparseMatrix):
        return factorise(bk, A)
    own: Any = kept(inner)  # which is factorised again where the factors are read from a file
    return HostFactors(bk, own, offset, A.dtype, by=by)


class HostFactors(Factorisation):
    """Factors of a matrix of NumPy plus an offset, on the host. Files hold the matrix, which is factorised again.

    That takes no longer than two applications would by triangular solves of SciPy with factors read from a file, which
    for a grid of 300 x 300 is 20 times as large as the matrix.
    """

    def __init__(
        self,
        bk: Backend,
        matrix: SparseMatrix,
        offset: complex,
        dtype: np.dtype,
        solver: HostSolver | None = None,
        transposed: bool = False,
        conjugated: bool = False,
        working: np.dtype | None = None,
        by: str | None = SUPERLU.name,
    ) -> None:
        """`solver` solves for NumPy rows in the dtype `working`; None: it is made, in `dtype`, by `by`."""
        self.bk, self.matrix, self.offset = bk, matrix, offset
        self.shape, self.dtype, self.systems = matrix.shape, np.dtype(dtype), matrix.systems
        self.transposed, self.conjugated = transposed, conjugated
        self.working = self.dtype if working is None else np.dtype(working)
        self.by = by
        self.solver = _solver_of(matrix, offset, self.working, by) if solver is None else solver

    def product(self, x: Array) -> Array:
        bk = self.bk
        wanted = np.result_type(self.dtype, bk.dtype(x))
        x = bk.astype(x, wanted)
        if bk.on_host:
            return self._solved(x)
        spec = [(tuple(int(n) for n in x.shape), wanted)]
        return bk.host_call(lambda rows: (self._solved(np.asarray(rows)),), spec, x)[0]

    def _solved(self, rows: np.ndarray) -> np.ndarray:
        """Solve for rows in the operator's dtype; factors may have another precision, or be real for complex rows."""
        if rows.dtype.kind == "c" and self.working.kind == "f":
            return self._solved(rows.real) + np.asarray(1j, rows.dtype) * self._solved(rows.imag)
        found = self.solver.solve(rows.astype(self.working, copy=False), self.transposed)
        return found.astype(rows.dtype, copy=False)

    @property
    def nbytes(self) -> int:
        """Memory of the values of the factors, without indices."""
        return self.solver.numbers * self.working.itemsize

    @property
    def made_by(self) -> str:
        """The libraries that made the factors; for SuperLU in the place of others, why these did not."""
        return self.solver.by

    @property
    def singularity(self) -> np.ndarray | None:
        """`(systems or 1, 1)`, numbers of `Singularity`; None where all are regular."""
        found = self.solver.singularity
        return found if found.any() else None

    def in_range(self, b: np.ndarray) -> np.ndarray:
        """Project NumPy rows onto the range of A."""
        return self._conjugated(self.solver.in_range, b)

    def without_null(self, x: np.ndarray) -> np.ndarray:
        """Project null vectors out of NumPy rows."""
        return self._conjugated(self.solver.without_null, x)

    def _conjugated(self, take_off: Callable[[np.ndarray, bool], np.ndarray], rows: np.ndarray) -> np.ndarray:
        if self.conjugated:
            return take_off(rows.conj(), self.transposed).conj()
        return take_off(rows, self.transposed)

    def turned(self, *, transposed: bool, conjugated: bool) -> HostFactors:
        return self._with(transposed=transposed, conjugated=conjugated)

    def astype(self, dtype: np.dtype) -> HostFactors:
        """The same factors for vectors of another precision; complex ones are refused for real vectors."""
        if self.working.kind == "c" and np.dtype(dtype).kind != "c":
            return self
        return self._with(dtype=np.dtype(dtype))

    def _with(self, **changed: Any) -> HostFactors:
        names = ("bk", "matrix", "offset", "dtype", "solver", "transposed", "conjugated", "working", "by")
        return HostFactors(**{**{name: getattr(self, name) for name in names}, **changed})

    def on_backend(self, bk: Backend, like: Array | None) -> HostFactors:
        return self._with(bk=bk, dtype=bk.stored_dtype(self.dtype))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self.on_backend(get_backend("numpy"), None)

    def __deepcopy__(self, memo: Any) -> HostFactors:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solver": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.solver = _solver_of(self.matrix, self.offset, self.working, self.by)


def provider_note(factors: Operator | None) -> str:
    """What made factors of the best library that is installed, as the end of a sentence."""
    if isinstance(note := getattr(factors, "note", None), str):
        return f"; {note}"
    if not isinstance(factors, HostFactors) or factors.by == SUPERLU.name:
        return ""
    return f"; factors by {factors.made_by}"


def _flatten(F: HostFactors) -> Fields:
    settings = {"offset": F.offset, "transposed": F.transposed, "conjugated": F.conjugated, "by": F.by}
    return {"matrix": F.matrix, "dtype": F.working.name, **settings}


def _unflatten(given: Fields) -> HostFactors:
    matrix, offset, dtype = given["matrix"], given["offset"], np.dtype(given["dtype"])
    if not isinstance(matrix, SparseMatrix) or matrix.shape[0] != matrix.shape[1] or dtype.char not in "fdFD":
        raise ValueError(f"factors of {matrix!r} in {dtype} are given; expected those of a square sparse matrix")
    check_truths(given, "transposed", "conjugated")
    turns = given["transposed"], given["conjugated"]
    by = given.get("by", SUPERLU.name)  # which older files do not tell
    return HostFactors(get_backend("numpy"), matrix, offset, dtype, None, *turns, by=by)


storable("factorised on the host", _flatten, _unflatten)(HostFactors)


def _solver_of(matrix: SparseMatrix, offset: complex, dtype: np.dtype, by: str | None) -> HostSolver:
    """The solver of a matrix or a batch; a solve with the same numbers, as a backward solve, has it again."""
    providers, (data, *places) = providers_of(by), matrix.by_columns(dtype)
    known, asked = known_pattern(*places), (offset, tuple(one.name for one in providers))
    if (found := last_solver(known, data, asked)) is not None:
        return found
    matrices = (csc_array(row, known.pattern.indices, known.pattern.indptr, matrix.shape) for row in data)
    found = _together([_solver(one, offset, providers) for one in matrices])
    keep_solver(known, asked, data, found)
    return found


def _together(solvers: Sequence[HostSolver]) -> HostSolver:
    """Solve each row with the factors of its own matrix, or all with those of one."""
    if len(solvers) == 1:
        return solvers[0]

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        rows = zip(solvers, b, strict=True)
        return np.concatenate(
            [np.zeros((0, b.shape[1]), b.dtype), *(one.solve(row[None], transposed) for one, row in rows)]
        )

    told = [np.zeros((0, 1), np.int32), *(one.singularity for one in solvers)]
    numbers, by = sum(one.numbers for one in solvers), dict.fromkeys(one.by for one in solvers)
    return HostSolver(solve, np.concatenate(told), [one.null[0] for one in solvers], numbers, "; ".join(by))


def _solver(matrix: Any, offset: complex, providers: tuple[Provider, ...]) -> HostSolver:
    n = matrix.shape[0]
    if not np.isfinite(matrix.data).all():
        return HostSolver.of(lambda b, transposed: np.full_like(b, np.nan))
    if offset:
        # A + c 1 1^T has no zeros left: solve for x and y = c 1^T x together; transposed, y is 1^T x.
        row = sp.csc_array(np.full((1, n), offset, matrix.dtype))
        column = sp.csc_array(np.ones((n, 1), matrix.dtype))
        bordered = sp.block_array([[matrix, column], [row, sp.csc_array([[-1.0]])]], format="csc", dtype=matrix.dtype)
        solve, told, _, numbers, by = _factorise(bordered, providers)

        def bordering(b: np.ndarray, transposed: bool) -> np.ndarray:
            return solve(np.concatenate([b, np.zeros((len(b), 1), b.dtype)], axis=1), transposed)[:, :n]

        return HostSolver(bordering, told, [None], numbers, by)
    return _factorise(matrix, providers)


def _factorise(matrix: Any, providers: tuple[Provider, ...]) -> HostSolver:
    """Factors in the precision of the matrix, or SuperLU's of the equilibrated R A C in double if it seems singular.

    R and C are powers of two, as a solution of very different units looks like that of a singular matrix.
    """
    dtype = matrix.dtype
    lu, blown, by = _factors(matrix, providers)
    if blown < _suspicious(dtype, matrix.shape[0]):
        return HostSolver.of(_solve_with(lu, dtype), lu=lu, by=by)
    rows, columns = scales(matrix)
    double = matrix.astype(np.result_type(dtype, np.float64))
    wide = equilibrated(double, rows, columns)
    lu, blown, by = _factors(wide, (SUPERLU,))
    if not blown < _suspicious(dtype, matrix.shape[0]):
        found = singular_solver(double, wide, (rows, columns), dtype, blown == np.inf)
        if found.null[0] is not None or not blown < _BLOWN / np.finfo(wide.dtype).eps:
            return found
    scaled = _solve_with(lu, wide.dtype)

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        first, last = (columns, rows) if transposed else (rows, columns)
        with np.errstate(over="ignore"):  # infinity is seen by the solve
            return (scaled((b * first).astype(wide.dtype), transposed) * last).astype(b.dtype)

    ill = not blown < _suspicious(dtype, matrix.shape[0]) and _condition(wide, lu) * np.finfo(dtype).eps >= 1
    return HostSolver.of(solve, Singularity.ILL_CONDITIONED if ill else Singularity.REGULAR, lu=lu, by=by)


def _suspicious(dtype: np.dtype, n: int) -> float:
    """Growth of a random vector from which a matrix is suspected to be singular; it depends on n.

    The vector may be nearly orthogonal to what the adjoint maps to zero, so this is far below what pivots of rounding
    make of most; a closer look then tells.
    """
    return suspicious(dtype) / float(np.finfo(dtype).eps) / min(n**0.5, _SLACK)


def _solve_with(lu: Any, dtype: np.dtype) -> Solve:
    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        columns = np.ascontiguousarray(b.T, dtype)
        return np.ascontiguousarray(lu.solve(columns, "T" if transposed else "N").T, b.dtype)

    return solve


def _factors(matrix: Any, providers: tuple[Provider, ...]) -> tuple[Any, float, str]:
    """Factors, the growth of a random vector under the inverse, and what made them."""
    try:
        lu, by = band_lu(matrix), "LAPACK"
        if lu is None:
            lu, by = sparse_factors(matrix, providers)
    except RuntimeError:  # "Factor is exactly singular"
        return None, np.inf, SUPERLU.name
    return lu, _blown_up(matrix, lu), by


def _condition(matrix: Any, lu: Any) -> float:
    """Estimate of the condition number of an equilibrated matrix, by two solves."""
    v = np.random.default_rng(2).uniform(-1, 1, matrix.shape[0]).astype(matrix.dtype)
    image = lu.solve(v)
    back = lu.solve((image / np.linalg.norm(image)).conj(), "T")
    return float(np.linalg.norm(back) * abs(matrix).sum(axis=1).max())


def _blown_up(matrix: Any, lu: Any) -> float:
    """Growth of a random vector under the inverse: largest entry of the image."""
    n = matrix.shape[0]
    rows = row_maxima(matrix)
    rng = np.random.default_rng(2)
    # scaled as the rows are; no plain signs, of which a product with one column may consist
    v = rng.choice([-1.0, 1.0], n) * rng.uniform(0.5, 1.5, n) * np.where(rows > 0, rows, 1)
    found = float(np.max(np.abs(lu.solve(v.astype(matrix.dtype))), initial=0))
    return np.inf if np.isnan(found) else found
