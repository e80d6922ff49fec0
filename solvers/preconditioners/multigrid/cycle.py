"""The multigrid cycle: levels, each with a smoother, above a coarsest solve.

A polynomial smoother is the two-term recurrence d <- alpha_k d + beta_k D⁻¹ r, x <- x + d, r <- r - A d. Its transpose
is the same recurrence with the transpose of A. For a Hermitian A with eigenvalues below 1.4 times the given bound it
reduces the error in the norm of A.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ....backends import Array, Backend
from ....sparse import Composed, Matrix, Operator, UnsupportedOperation, as_symmetric_dia, storable
from ..operators import DiagonallyScaled, Permuted, Recast, recast, suited

VISITS = {"V": 1, "W": 2}
"""Visits to the next coarser level from each level."""
_LOWER, _UPPER = 0.35, 1.05  # interval of Chebyshev's polynomials, relative to the bound of the eigenvalues


def chebyshev_coefficients(rho: Array, degree: int) -> list[tuple[Array, Array]]:
    """Chebyshev coefficients for the upper two thirds of the eigenvalues up to `rho`.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., Algorithm 12.1; Adams, Brezina, Hu and Tuminaro,
    Parallel multigrid smoothing: polynomial versus Gauss-Seidel, J. Comput. Phys. 188 (2003).
    """
    centre, half = (_UPPER + _LOWER) / 2, (_UPPER - _LOWER) / 2
    sigma = centre / half
    ratio, coefficients = 1 / sigma, [(0 * rho, 1 / (centre * rho))]
    for _ in range(degree - 1):
        new = 1 / (2 * sigma - ratio)
        coefficients.append((new * ratio + 0 * rho, 2 * new / (half * rho)))
        ratio = new
    return coefficients


def jacobi_coefficients(rho: Array, degree: int) -> list[tuple[Array, Array]]:
    """Coefficients of Jacobi damped by 4 / (3 rho), which reduces eigenvalues from rho / 2 to rho to a third.

    Source: Saad, section 13.2.2, for the damping.
    """
    return [(0 * rho, 4 / (3 * rho))] * degree


SMOOTHERS: dict[str, Callable[[Array, int], list[tuple[Array, Array]]]] = {
    "chebyshev": chebyshev_coefficients,
    "jacobi": jacobi_coefficients,
}
"""Name -> pairs (alpha_k, beta_k) from a bound of the eigenvalues and the degree."""


def polynomial(bk: Backend, smoother: str, rho: Array, degree: int) -> tuple[Array, Array]:
    """Coefficients alpha and -beta, `(degree, systems or 1)` each, from eigenvalue bounds `(systems or 1,)`."""
    alphas, betas = zip(*SMOOTHERS[smoother](rho, degree), strict=True)
    return bk.stack(alphas), -bk.stack(betas)


class Smoother(Composed):
    """Approximate inverse of A that reduces the part of an error that coarser levels cannot represent.

    Attributes:
        sign: of the vectors b and r that it takes and returns: -1 for -b and -r, to which products with A are added.
        revisits: may the coarser levels be visited again, after `between`?
        matrices: names of the parts whose format depends on the library.
        A: the matrix.
        hermitian: is it known to be?
    """

    sign: ClassVar[int] = 1
    revisits: ClassVar[bool] = False
    matrices: ClassVar[tuple[str, ...]] = ("A",)
    A: Operator
    hermitian: bool = False

    @abstractmethod
    def start(self, b: Array) -> tuple[Array, Array]:
        """x after smoothing from x = 0, and r for the restriction: b - A x, or b where R has the smoothing in it.

        May overwrite b where `sign` is -1.
        """

    def between(self, x: Array, r: Array, P: Operator, v: Array) -> tuple[Array, Array]:
        """x + P v and its residual, before another visit to the coarser levels; may overwrite x and r."""
        raise UnsupportedOperation(f"{type(self).__name__} serves V-cycles only: visits=1.")

    @abstractmethod
    def finish(self, b: Array, x: Array, r: Array, P: Operator, v: Array) -> Array:
        """x after smoothing from x + P v, with r of `start`; may overwrite x and r.

        The adjoint of `start`, but for `CFRelaxation`, which is not symmetric.
        """

    @property
    @abstractmethod
    def work(self) -> int:
        """Multiplications of `start` and `finish`, in all systems."""

    @property
    def like(self) -> Array | None:
        """An array on the device, if it has one of its own."""
        return None

    def apply(self, x: Array) -> Array:
        return self.start(x if self.sign > 0 else negated(self.bk, x))[0]

    def transpose(self) -> Operator:
        return replace(self, A=suited(self.A.T, self.bk, self.like))  # type: ignore[call-arg]  # all have a field A

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        # Formats are chosen before the zeros of a matrix are traced.
        return super(Smoother, with_suited(self, self.matrices, bk, like)).on_backend(bk, like)


@storable("polynomial smoother")
@dataclass(eq=False, repr=False)
class PolynomialSmoother(Smoother):
    """`x + p(D⁻¹ A) D⁻¹ (b - A x)`, with the same polynomial before and after the coarser levels.

    Attributes:
        alphas: factors of the previous direction, `(degree, systems or 1)`.
        weights: `-beta D⁻¹`, `(degree, systems or 1, n)`; of an A scaled to D = I `(degree, systems or 1, 1)`.

    Cost: 2 degree products with A per cycle, and 1 for each visit to the coarser levels but the first.
    """

    parts = ("A", "alphas", "weights")
    sign = -1
    revisits = True

    A: Operator
    alphas: Array
    weights: Array
    hermitian: bool = False

    def __post_init__(self) -> None:
        (degree, *rows), weights = (tuple(map(int, each.shape)) for each in (self.alphas, self.weights))
        if not degree or len(rows) != 1 or len(weights) != 3 or weights[0] != degree:
            raise ValueError(f"Coefficients {(degree, *rows)} and weights {weights} of a smoother do not fit together.")
        if weights[2] not in (1, self.A.shape[0]):
            raise ValueError(f"Weights of the shape {weights} do not fit to a smoother of {self.A!r}.")
        super().__post_init__()

    def start(self, b: Array) -> tuple[Array, Array]:
        e, x, d = b, None, None  # e = A x - b
        for step in self._steps(int(e.shape[0])):
            d = self._direction(step, e, d)
            e = self.bk.materialize(self._products.add_to(e, d))
            x = d if x is None else add_in_place(self.bk, x, d)
        return x, e

    def between(self, x: Array, r: Array, P: Operator, v: Array) -> tuple[Array, Array]:
        change = self.bk.materialize(P.apply(v))
        return add_in_place(self.bk, x, change), self.bk.materialize(self._products.add_to(r, change))

    def finish(self, b: Array, x: Array, r: Array, P: Operator, v: Array) -> Array:
        e, d, before = r, self.bk.materialize(P.apply(v)), None
        for step in self._steps(int(x.shape[0])):
            x, e = add_in_place(self.bk, x, d), self.bk.materialize(self._products.add_to(e, d))
            d = before = self._direction(step, e, before)
        return add_in_place(self.bk, x, d)

    def _steps(self, rows: int) -> list[tuple[Array, Array]]:
        """Pairs alpha `(rows, 1)` and `-beta D⁻¹`, `(rows, 1)` or `(systems or 1, n)`, for vectors of all systems."""
        bk, alphas, weights = self.bk, self.array("alphas"), self.array("weights")
        steps = []
        for k in range(int(alphas.shape[0])):
            weight = bk.broadcast_to(weights[k], (rows, 1)) if int(weights.shape[2]) == 1 else weights[k]
            steps.append((bk.broadcast_to(alphas[k][:, None], (rows, 1)), weight))
        return steps

    def _direction(self, step: tuple[Array, Array], e: Array, before: Array | None) -> Array:
        """A new array `alpha d - beta D⁻¹ e` with the previous direction d, which is 0 at first."""
        bk, (alpha, weight) = self.bk, step
        if int(self.weights.shape[2]) > 1:
            step_along_e = weight * e
            return step_along_e if before is None else bk.axpy(alpha, before, step_along_e)
        return bk.times(weight, e) if before is None else bk.axpy(weight, e, bk.times(alpha, before))

    @cached_property
    def _products(self) -> Operator:
        return as_symmetric_dia(self.A) if self.hermitian else self.A

    @property
    def like(self) -> Array:
        return self.array("weights")

    @property
    def work(self) -> int:
        return 2 * int(self.alphas.shape[0]) * numbers_stored(self.A)


@storable("coarse and fine unknowns smoothed in turns")
@dataclass(eq=False, repr=False)
class CFRelaxation(Smoother):
    """Smoother for non-symmetric matrices, with `I - N = D⁻¹ A`, coarse unknowns first.

    A Jacobi step on the coarse unknowns is followed by two on the fine ones, each with the newest values of the others:
    with two colours this is Gauss-Seidel. Steps before and after the correction are the same, because with an upwind
    matrix information has one direction. The transpose takes the transposed steps in the opposite order.

    Attributes:
        A: the matrix, in the original order of the unknowns.
        C: coarse rows of N, `(coarse, n)`; transposed if `transposed`.
        FC: fine rows, coarse columns; transposed if `transposed`.
        FF: fine rows, fine columns; likewise.

    Cost: 2 products with N and 2 more with FF per cycle.

    Source: Trottenberg, Oosterlee and Schuller, Multigrid (2001), section A.7.1 for C/F relaxation, and 7.8 for upwind
    matrices.
    """

    parts = ("A", "C", "FC", "FF")
    matrices = ("C", "FC", "FF")

    A: Operator
    C: Operator
    FC: Operator
    FF: Operator
    transposed: bool = False

    def __post_init__(self) -> None:
        turn = -1 if self.transposed else 1
        (k, n), fine = self.C.shape[::turn], self.FF.shape[0]
        if (self.FC.shape[::turn], self.FF.shape, self.A.shape) != ((fine, k), (n - k, n - k), (n, n)):
            shapes = self.C.shape, self.FC.shape, self.FF.shape, self.A.shape
            raise ValueError(f"The parts of a smoother of coarse and fine unknowns do not fit each other: {shapes}.")
        super().__post_init__()

    def _split(self, x: Array) -> tuple[Array, Array]:
        k = int(self.FC.shape[0 if self.transposed else 1])
        return x[:, :k], x[:, k:]

    def start(self, b: Array) -> tuple[Array, Array]:
        bk, materialize, (bc, bf) = self.bk, self.bk.materialize, self._split(b)
        if self.transposed:
            step = materialize(self.FF.apply(bf))
            xf = materialize(bf + step)
            xc = materialize(bc + self.FC.apply(xf))
            rc, rf = self._split(self.C.apply(xc))  # without the residual of the fine unknowns
            r = bk.concat([rc, rf + self.FF.apply(step)], axis=1)
            return bk.concat([xc, xf], axis=1), materialize(r)
        xf = materialize(bf + self.FC.apply(bc))  # from x = 0 the first step on the coarse ones is x = b
        rf = materialize(self.FF.apply(xf))
        x = materialize(bk.concat([bc, xf + rf], axis=1))
        return x, materialize(bk.concat([self.C.apply(x), self.FF.apply(rf)], axis=1))

    def finish(self, b: Array, x: Array, r: Array, P: Operator, v: Array) -> Array:
        bk, materialize = self.bk, self.bk.materialize
        x = materialize(x + P.apply(v))
        (xc, xf), (bc, bf) = self._split(x), self._split(b)
        if self.transposed:
            bc, bf = self._split(materialize(b + self.C.apply(xc)))
        else:
            xc = materialize(bc + self.C.apply(x))
            bf = materialize(bf + self.FC.apply(xc))
        for _ in range(2):
            xf = materialize(bf + self.FF.apply(xf))
        return bk.concat([bc + self.FC.apply(xf) if self.transposed else xc, xf], axis=1)

    @property
    def work(self) -> int:
        return 2 * sum(map(numbers_stored, (self.C, self.FC, self.FF, self.FF)))

    def transpose(self) -> Operator:
        parts: dict[str, Any] = {name: getattr(self, name).T for name in self.parts}
        return replace(self, **parts, transposed=not self.transposed)


@storable("elimination of fine unknowns")
@dataclass(eq=False, repr=False)
class Elimination(Smoother):
    """`D_F⁻¹ b`: exact solve for fine unknowns that are coupled to coarse ones only, to be added to `P coarse R`.

    R contains its effect on the coarse unknowns, so that b replaces the residual, and A is for updates only.

    Attributes:
        inverse: `(systems or 1, n)`, `1 / a_ii` of fine unknowns, 0 of coarse ones.
    """

    parts = ("A", "inverse")

    A: Operator
    inverse: Array
    hermitian: bool = False

    def start(self, b: Array) -> tuple[Array, Array]:
        return self.array("inverse") * b, b

    def finish(self, b: Array, x: Array, r: Array, P: Operator, v: Array) -> Array:
        return P.add_to(x, v)

    @property
    def like(self) -> Array:
        return self.array("inverse")

    @property
    def work(self) -> int:
        return 0


@storable("level with a smoother")
@dataclass(eq=False, repr=False)
class Level(Composed):
    """Smooth, correct by the coarser levels, smooth: an approximation of the inverse of A from here on down.

    With R = Pᴴ and a second smoothing that is the adjoint of the first one (all but `CFRelaxation`), the cycle is
    Hermitian where A is, and positive definite with it. The transpose is the same cycle with transposed parts.

    Attributes:
        smoother: smoother, which holds the matrix of this level.
        P: prolongation from the next coarser level.
        R: restriction to the next coarser level.
        coarse: approximate inverse of the next coarser matrix.
        kept: source of P in updates of algebraic levels: the prolongation before smoothing and scaling, or for
            classical levels an `Injection`; else None.
        visits: number of visits to the coarser levels (1: V-cycle, 2: W-cycle).

    Cost: that of the smoother, and one product with P and R each for every visit.
    """

    parts: ClassVar[tuple[str, ...]] = ("smoother", "P", "R", "coarse", "kept")

    smoother: Smoother
    P: Operator
    R: Operator
    coarse: Operator
    kept: Operator | None = None
    visits: int = 1

    def __post_init__(self) -> None:
        n, m = self.P.shape
        shapes = (self.smoother.shape, self.R.shape, self.coarse.shape)
        if shapes != ((n, n), (m, n), (m, m)):
            raise ValueError(f"The parts of a level of multigrid do not fit each other: {shapes}, {(n, m)}.")
        if self.kept is not None and self.kept.shape != (n, m):
            raise ValueError(f"The prolongation {self.P!r} of a level was not made of {self.kept!r}.")
        if self.visits not in (VISITS.values() if self.smoother.revisits else (1,)):
            raise ValueError(
                f"A level of multigrid has visits={self.visits}; expected one of {tuple(VISITS.values())}, and 1 where "
                "smoothing is no polynomial."
            )
        super().__post_init__()

    @property
    def A(self) -> Operator:
        return self.smoother.A

    @property
    def hermitian(self) -> bool:
        return self.smoother.hermitian

    def apply(self, x: Array) -> Array:
        if self.smoother.sign > 0:
            return self._cycle(x)
        return self._cycle(self.bk.materialize(negated(self.bk, x)))

    def _cycle(self, b: Array) -> Array:
        """The cycle for b, or for -b if the smoother has this sign; then b may be overwritten."""
        S, P = self.smoother, self.P
        x, r = S.start(b)
        for _ in range(1, self.visits):
            x, r = S.between(x, r, P, self._coarse_correction(r))
        return S.finish(b, x, r, P, self._coarse_correction(r))

    def _coarse_correction(self, r: Array) -> Array:
        materialize, sign, coarse = self.bk.materialize, self.smoother.sign, self.coarse
        r = self.R.apply(r)
        if isinstance(coarse, Level) and coarse.smoother.sign == sign:
            v = coarse._cycle(materialize(r))
        else:
            v = coarse.apply(materialize(r if sign > 0 else -r))
        return v if self.P.materializes_input else materialize(v)

    @property
    def work(self) -> int:
        """Multiplications of one application, in all systems."""
        around = numbers_stored(self.P) + numbers_stored(self.R) + work_of(self.coarse)
        again = (self.visits - 1) * numbers_stored(self.A)
        return self.smoother.work + again + self.visits * around

    def transpose(self) -> Operator:
        if self.hermitian:
            return self.conj() if self.dtype.kind == "c" else self
        smoother: Any = self.smoother.T
        P, R = (suited(part.T, self.bk, self.smoother.like) for part in (self.R, self.P))
        return replace(self, smoother=smoother, P=P, R=R, coarse=self.coarse.T)

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        return super(Level, with_suited(self, ("P", "R"), bk, like)).on_backend(bk, like)


def with_suited(M: Any, names: Sequence[str], bk: Backend, like: Array | None) -> Any:
    """M with these of its matrices in the formats for a library."""
    return replace(M, **{name: suited(getattr(M, name), bk, like) for name in names})


class LevelParts(NamedTuple):
    """Parts of a `Level` above any coarser one, for `cycle_over`."""

    smoother: Smoother
    P: Operator
    R: Operator
    kept: Operator | None = None


def cycle_over(levels: Sequence[LevelParts], coarsest: Operator, visits: int = 1) -> Operator:
    """Cycle over all levels, finest first, each in the precision of its smoother."""
    M = coarsest
    for S, P, R, kept in reversed(levels):
        M = Level(S, P, R, recast(M, S.dtype), kept, visits if S.revisits else 1)
    return M


def levels_of_cycle(M: Operator) -> list[Level]:
    """Levels, finest first, of a cycle inside scalings, permutations and casts."""
    levels: list[Level] = []
    inner: Any = M
    while isinstance(inner, DiagonallyScaled | Recast | Permuted | Level):
        if isinstance(inner, Level):
            levels.append(inner)
        inner = inner.coarse if isinstance(inner, Level) else inner.inner
    return levels


def numbers_stored(M: Operator) -> int:
    """Numbers stored in all levels and systems, without padding."""
    if isinstance(M, Matrix):
        return M.nnz
    parts = [getattr(M, name) for name in M.parts] if isinstance(M, Composed) else []
    each = [array for part in parts for array in (part if isinstance(part, tuple) else (part,)) if array is not None]
    once = {id(part): part for part in each}.values()  # a shared one is stored once
    return sum(numbers_stored(p) if isinstance(p, Operator) else math.prod(map(int, p.shape)) for p in once)


def work_of(M: Operator) -> int:
    """Multiplications of one application, in all systems."""
    if isinstance(M, DiagonallyScaled):
        return work_of(M.inner) + 2 * M.shape[0] * (M.systems or 1)
    if isinstance(M, Permuted):
        return work_of(M.inner) + numbers_stored(M.left) + numbers_stored(M.right)
    if isinstance(M, Recast):
        return work_of(M.inner)
    return M.work if isinstance(M, Level) else numbers_stored(M)


def negated(bk: Backend, x: Array) -> Array:
    """`-x` as a new array."""
    return bk.times(bk.full_like(x[:, :1], -1), x)


def add_in_place(bk: Backend, x: Array, y: Array) -> Array:
    """`x + y`; may overwrite x."""
    return bk.axpy(bk.full_like(x[:, :1], 1), y, x)
