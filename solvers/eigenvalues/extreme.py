"""`extreme_eigenvalues`: the eigenvalues of largest and of smallest modulus, by SciPy's ARPACK and solves with A."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse.linalg as spla

from ...backends import without_compilers
from ...sparse import Layout, Operator
from ...sparse.analysis.analysis import analysis_of
from ...sparse.analysis.symmetry import CHOSEN, PRODUCTS
from ..adapters.peers import with_peers_read
from ..judge import SingularMatrixWarning
from ..prepared import PreparedSolver, prepared
from ..read.arguments import Request, vector_for
from ..read.system import read_system
from .copies import with_copies

Which = Literal["both", "smallest", "largest"]
_SMALL = 100  # unknowns up to which all eigenvalues are found at once
_ACCURACY = {"f": 1e-3, "d": 1e-5}  # of vectors, by default
_LOOSE = 10  # times less accurate, by default, are the largest, which often lie close together
_VECTORS = 40  # that ARPACK keeps
_SLACK = 100  # times the accuracy that was asked for may be the residual of a pair
_NOT_FINITE = "extreme_eigenvalues got a matrix with entries that are not finite; expected numbers."


class ExtremeEigenvalues(NamedTuple):
    """What `extreme_eigenvalues` has found, as NumPy arrays.

    Attributes:
        smallest: `(k,)`, those nearest to zero, from there on; empty if they were not asked for. Of a singular matrix
            whose null vectors are found these are left out.
        largest: `(k,)`, those farthest from zero, the farthest first; empty if they were not asked for.
        residuals: `|A v - l v| / |v|` of both, `(2 k,)` or less, in this order.
        hermitian: is A Hermitian, so that they are real?
        singular: is A known to be singular?

    Examples:
        >>> import numpy as np, krylix
        >>> found = krylix.extreme_eigenvalues(np.diag([1.0, -2.0, 4.0, -8.0]), 2)
        >>> found.smallest, found.largest, found.condition
        (array([ 1., -2.]), array([-8.,  4.]), 8.0)
    """

    smallest: np.ndarray
    largest: np.ndarray
    residuals: np.ndarray
    hermitian: bool
    singular: bool

    @property
    def condition(self) -> float:
        """`|largest| / |smallest|`, infinite if A is singular; NaN if only one end was asked for.

        For a Hermitian (or normal) A that is the condition number in the 2-norm, for others a lower bound of it.
        """
        if self.singular:
            return float("inf")
        if not len(self.smallest) or not len(self.largest):
            return float("nan")
        low, high = abs(self.smallest[0]), abs(self.largest[0])
        return float(high / low) if low else float("inf")


def extreme_eigenvalues(
    A: Any,
    k: int = 1,
    *,
    like: Any = None,
    args: Sequence[Any] = (),
    which: Which = "both",
    rtol: float | None = None,
) -> ExtremeEigenvalues:
    """The k eigenvalues nearest to zero and the k farthest from it, with residuals that were looked at.

    Multiple eigenvalues come as often as they have independent vectors, as far as k reaches.

    The largest are found by Lanczos' (or Arnoldi's) method with products, the smallest with solves by what
    `krylix.prepare` chooses: factors, or an iteration with a preconditioner.

    Args:
        A: as for `linear_solve`: one matrix, or a function, in any library.
        k: how many at each end, at most all.
        like: for a function an array of the shape that it takes.
        args: further arguments of a function, `A(x, *args)`.
        which: "smallest", "largest" or both, by their modulus.
        rtol: relative residual of the pairs; if None 1e-5, in single precision 1e-3, and ten times as much for the
            largest. Eigenvalues of a Hermitian A that lie apart have twice as many digits.

    Returns:
        ExtremeEigenvalues: real ones of a Hermitian A, else complex ones.

    Raises:
        ValueError: A is not square, not finite, or a batch of matrices; k or which do not fit.
        TypeError: a function without `like`; inside a compiled function, where A has no values.
        RuntimeError: the iteration has not found them to `rtol`, or the residual of a pair is too large.

    Cost: up to 100 unknowns all eigenvalues, by LAPACK; else 20 to some hundred products for the largest, and as many
    solves for the smallest, which a prepared solver shares. For k > 1 a search from another start vector, beside those
    that were found, says that none is missing: 40 products or solves at least, and as many for each that was.

    Source: Lehoucq, Sorensen and Yang, ARPACK Users' Guide (1998), chapter 3 (shift and invert).

    Examples:
        >>> import numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(500, 500))
        >>> found = krylix.extreme_eigenvalues(A)
        >>> np.allclose(found.smallest, 4 * np.sin(np.pi / 1002) ** 2), round(float(found.largest[0]), 4)
        (True, 4.0)
        >>> round(found.condition / 1e5, 3)
        1.017
    """
    if which not in ("both", "smallest", "largest"):
        raise ValueError(f"which got {which!r}; expected 'both', 'smallest' or 'largest'.")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k got {k!r}; expected an integer from 1 on.")
    if like is None:
        like = without_compilers(vector_for)(A, args, "extreme_eigenvalues")
    request = with_peers_read(Request(A=A, b=like, args=args, preconditioner="auto", on_failure="status"))
    found: ExtremeEigenvalues = without_compilers(_extreme)(request, int(k), which, rtol)
    return found


extreme_eigenvalues._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of linear_solve


def _extreme(request: Request, k: int, which: Which, rtol: float | None) -> ExtremeEigenvalues:
    problem = read_system(request, None)
    A, bk = problem.A, problem.bk
    if A.shape[0] != A.shape[1] or problem.given is not None or not A.shape[0]:
        raise ValueError(f"extreme_eigenvalues got A of the shape {A.shape}; expected a square matrix with some rows.")
    if A.systems is not None:
        raise ValueError(f"extreme_eigenvalues got {A.systems} matrices; expected one. Take one after the other.")
    if problem.compiled or bk.compiled(*bk.flatten(A)[0]):
        raise TypeError("extreme_eigenvalues got a matrix without values; expected one outside of a program.")
    host, k = HostProducts(A, problem.layout, problem.like), min(k, A.shape[0])
    asymmetry = analysis_of(A).asymmetry
    hermitian = host.has_symmetric_products() if asymmetry is None else asymmetry < CHOSEN
    if A.shape[0] <= max(_SMALL, 2 * k + 2):
        return _of_all(np.asarray(bk.to_numpy(A.dense())), k, which, hermitian)
    default = _ACCURACY[np.finfo(A.dtype).dtype.char]
    accuracy = (default, _LOOSE * default) if rtol is None else (float(rtol), float(rtol))
    return _ends(host, k, which, hermitian, accuracy, request)


def _of_all(matrix: np.ndarray, k: int, which: Which, hermitian: bool) -> ExtremeEigenvalues:
    """By LAPACK."""
    if not np.isfinite(matrix).all():
        raise ValueError(_NOT_FINITE)
    values, vectors = np.linalg.eigh((matrix + matrix.conj().T) / 2) if hermitian else np.linalg.eig(matrix)
    order = np.argsort(np.abs(values), kind="stable")
    zeros = len(matrix) - int(np.linalg.matrix_rank(matrix, hermitian=hermitian))
    low = order[zeros : zeros + k] if which != "largest" else order[:0]
    high = order[::-1][:k] if which != "smallest" else order[:0]
    chosen = np.concatenate([low, high])
    residuals = np.linalg.norm(matrix @ vectors[:, chosen] - vectors[:, chosen] * values[chosen], axis=0)
    return ExtremeEigenvalues(values[low], values[high], residuals, hermitian, zeros > 0)


class HostProducts:
    """Products of an operator of any library with vectors of NumPy, and solves."""

    def __init__(self, A: Operator, layout: Layout, like: Any) -> None:
        self.A, self.layout, self.like = A, layout, like
        self.solver: PreparedSolver | None = None
        self.singular = False
        self.failure: str | None = None  # of a solve

    def times(self, v: np.ndarray) -> np.ndarray:
        """A v for `(n,)` or `(n, 1)`."""
        bk = self.A.bk
        if np.iscomplexobj(v) and self.A.dtype.kind != "c":
            found: np.ndarray = self.times(v.real) + 1j * self.times(v.imag)
            return found
        rows = bk.asarray(np.asarray(v, self.A.dtype).reshape(1, -1), self.A.dtype, like=self.like)
        return np.asarray(bk.to_numpy(self.A.apply(rows))).reshape(-1)

    def has_symmetric_products(self) -> bool:
        """Is `<u, A v>` the conjugate of `<v, A u>` for two random vectors?"""
        u, v = np.random.default_rng(1).standard_normal((2, self.A.shape[0])).astype(self.A.dtype)
        Au, Av = self.times(u), self.times(v)
        limit = max(CHOSEN, PRODUCTS * float(np.finfo(self.A.dtype).eps))
        size = np.linalg.norm(Av) * np.linalg.norm(u) + np.linalg.norm(Au) * np.linalg.norm(v)
        return bool(abs(np.vdot(u, Av) - np.conj(np.vdot(v, Au))) <= limit * size)

    def solve(self, v: np.ndarray) -> np.ndarray:
        """A^-1 v; without the part of v in null vectors of a singular A."""
        if self.solver is None:
            raise ValueError("prepare it before it solves")
        bk, dtype = self.A.bk, self.A.dtype
        if np.iscomplexobj(v) and dtype.kind != "c":
            found: np.ndarray = self.solve(v.real) + 1j * self.solve(v.imag)
            return found
        rows = bk.asarray(np.asarray(v, dtype).reshape(1, -1), dtype, like=self.like)
        result = self.solver.solve(self.layout.unflatten(bk, rows))
        self.singular = self.singular or bool(np.any(np.asarray(result.singular)))
        if not self.singular and not bool(np.all(np.asarray(result.converged))):
            self.failure = self.failure or result.message
        return np.asarray(bk.to_numpy(self.layout.flatten(bk, result.x, dtype, "x"))).reshape(-1)

    def as_linear(self, product: Callable[[np.ndarray], np.ndarray]) -> spla.LinearOperator:
        """One of the two for SciPy."""
        return spla.LinearOperator(self.A.shape, matvec=product, dtype=self.A.dtype)


def _ends(
    host: HostProducts, k: int, which: Which, hermitian: bool, accuracy: tuple[float, float], request: Request
) -> ExtremeEigenvalues:
    """By ARPACK."""
    start = np.random.default_rng(0).standard_normal(host.A.shape[0]).astype(host.A.dtype)
    image = host.times(start)
    if not np.isfinite(image).all():
        raise ValueError(_NOT_FINITE)
    if not image.any():
        raise ValueError("extreme_eigenvalues got a matrix of zeros, all of whose eigenvalues are zero.")
    tight, loose = accuracy
    find = spla.eigsh if hermitian else spla.eigs
    settings = {"k": k, "tol": tight, "v0": start, "ncv": min(max(_VECTORS, 2 * k + 1), len(start))}
    none = np.zeros(0, np.float64 if hermitian else np.complex128)
    low, high, residuals = none, none, []
    if which != "largest":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SingularMatrixWarning)
            host.solver = prepared(request)
            low, vectors = _all_of(find, host, host.solve, settings)
            if host.failure is not None:
                raise RuntimeError(f"extreme_eigenvalues could not solve with A: {host.failure}")
            low = 1 / low
            _check("smallest", [host.solve(v) * value for v, value in zip(vectors.T, low)], vectors, tight)
        residuals += _residuals(host, low, vectors)
    if which != "smallest":
        high, vectors = _all_of(find, host, host.times, {**settings, "tol": loose})
        images = [host.times(v) / value for v, value in zip(vectors.T, high)]
        _check("largest", images, vectors, loose)
        residuals += _residuals(host, high, vectors)
    return ExtremeEigenvalues(low, high, np.array(residuals), hermitian, host.singular)


def _all_of(
    find: Any, host: HostProducts, product: Callable[[np.ndarray], np.ndarray], settings: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a product, as often as they are there, and their vectors in columns."""
    found = _found(find, host.as_linear(product), which="LM", **settings)
    if settings["k"] == 1:
        return found
    return with_copies(partial(_found, find), product, found, settings["tol"], _VECTORS)


def _found(find: Any, operator: Any, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, falling in modulus, and their vectors in columns."""
    try:
        values, vectors = find(operator, **settings)
    except spla.ArpackNoConvergence as error:
        raise RuntimeError(
            f"extreme_eigenvalues has found {len(error.eigenvalues)} of {settings['k']} eigenvalues when ARPACK "
            "gave up. Give a larger rtol, or ask for another number of them."
        ) from error
    except spla.ArpackError as error:
        raise RuntimeError(
            f"extreme_eigenvalues has found none of {settings['k']} eigenvalues: {error} Ask for another number of "
            "them, or for one end; matrices that are far from normal may have none that can be told."
        ) from error
    order = np.argsort(-np.abs(values), kind="stable")
    return values[order], vectors[:, order]


def _check(name: str, images: list[np.ndarray], vectors: np.ndarray, accuracy: float) -> None:
    """Raises RuntimeError where `images` are not the vectors again."""
    allowed = _SLACK * accuracy
    for image, v in zip(images, vectors.T, strict=True):
        error = np.linalg.norm(image - v) / np.linalg.norm(v)
        if not error <= allowed:
            raise RuntimeError(
                f"extreme_eigenvalues has found a vector of the {name} eigenvalues with a relative residual of "
                f"{error:.1e}; expected {allowed:.1e}. Give a larger rtol."
            )


def _residuals(host: HostProducts, values: np.ndarray, vectors: np.ndarray) -> list[float]:
    pairs = zip(vectors.T, values, strict=True)
    return [float(np.linalg.norm(host.times(v) - value * v) / np.linalg.norm(v)) for v, value in pairs]
