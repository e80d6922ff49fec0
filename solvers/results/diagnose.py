"""Causes of a failed solve: inputs that are not finite, a missing symmetry, a singular matrix, too few iterations.

A cause is looked for when a failure has happened or its message is read, by products with A and the preconditioner as
the solve made them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend, real_dtype
from ...backends.settings import QUIET
from ...sparse import Layout, Matrix, Operator
from ...sparse.analysis.canonical import equilibrated, scales
from ...sparse.analysis.spectrum import lanczos
from ...sparse.analysis.symmetry import CHOSEN, PRODUCTS, REFUSED
from ...sparse.content import fingerprint
from ...sparse.operators.concrete import is_known
from ..cost import estimated_cost
from ..factors.protocol import ExactlySingular
from ..factors.superlu import splu_in_memory
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..read.system import System
from ..run.null_part import NullPart
from ..run.outcome import Outcome, Status, has_failed
from .messages import FACTORISE, FROM_THE_START, LEAST_SQUARES, SINGULAR, Cause, EndState
from .no_solution import SMALL, zeros


@dataclass(frozen=True)
class Case:
    """A failed solve, with vectors in rows `(systems, n)`. None: unknown, as in a compiled function."""

    method: Method  # that failed, or the last one that was tried
    end: EndState  # (systems,)
    A: Operator  # of the equations that were solved; in least squares of the normal equations
    given: Operator  # of the user: A, or that of the least-squares problem
    M: Operator | None = None
    like: Array | None = None  # of the library of A
    b: np.ndarray | None = None  # right-hand sides, solutions and residuals of these equations
    x: np.ndarray | None = None
    r: np.ndarray | None = None
    right: tuple[np.ndarray, Layout] | None = None  # the user's right-hand sides, and their layout
    x0: np.ndarray | None = None
    layout: Layout | None = None  # of x
    null: bool = False  # are null vectors of A known, and projected out of x?
    both: bool = False  # are they null vectors of the transpose too?
    products: int = 0  # made by the solve; a diagnosis makes at most as many, or a few

    @classmethod
    def of(
        cls,
        system: System,
        method: Method,
        M: Operator | None,
        outcome: Outcome,
        later: bool,
        both: bool,
        end: EndState,
    ) -> Case | None:
        """A finished solve; None where its arrays have been written to since, if they may have been (`later`)."""
        bk, given, several = system.bk, system.given, system.several and len(system.limits) > 1
        x, r, products = (a[-1] if several else a for a in (outcome.x, outcome.residual, outcome.products))
        x, r = (bk.to_numpy(bk.flat(a)) for a in (x, r))
        b = bk.to_numpy(NullPart.rest_of(bk, bk.flat(system.b), system.null, both))
        null = system.null is not None
        case = cls(
            method, end, system.A, system.A if given is None else given.A, M, system.b, b, x, r,
            right=(b, system.layout) if given is None else (bk.to_numpy(given.b), given.layout),
            x0=None if system.x0 is None else bk.to_numpy(bk.flat(system.x0)), layout=system.layout, null=null,
            both=null and both, products=int(np.max(bk.to_numpy(products), initial=0)),
        )  # fmt: skip
        if later:  # changed arrays show in the residual
            change, size = norms(b - case.A_image(x) - r), norms(b) + norms(r)
            if np.any(change > np.sqrt(case.eps) * size + end.null_part):  # factors also subtract that part
                return None
        return case

    @cached_property
    def worst(self) -> int:
        """The failed system that is furthest from its tolerance."""
        return self.end.worst(has_failed(self.end.status))

    @property
    def status(self) -> Status:
        return Status(int(self.end.status[self.worst]))

    @property
    def bound(self) -> float:
        return float(self.end.tolerance[self.worst])

    @property
    def least_squares(self) -> bool:
        return self.given is not self.A

    @cached_property
    def eps(self) -> float:
        return float(np.finfo(self.A.dtype).eps)

    @cached_property
    def matrix(self) -> Any:
        """The user's matrix on the host, of the worst system in a batch of matrices; None if unknown."""
        if self.given.offset or not isinstance(self.given.without_offset, Matrix):
            return None
        known: Any = self.given.without_offset.known()
        if isinstance(known, tuple) or (known is not None and known.ndim == 3):
            known = known[min(self.worst, len(known) - 1)]
        return sp.csr_array(known) if sp.issparse(known) else known

    @cached_property
    def of_which(self) -> str:
        """Words that name the worst system's matrix in a batch of matrices."""
        A = self.given.without_offset
        several = isinstance(A, Matrix) and A.systems is not None and self.end.status.size > 1
        return f" of system {self.worst}" if several else ""

    def A_image(self, rows: np.ndarray) -> np.ndarray:
        """A times rows, as the solve computed it."""
        return _image(self.A.bk, self.A, rows, self.like)

    def M_image(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.M is None else _image(self.A.bk, self.M, rows, self.like)

    def random(self, seed: int) -> np.ndarray:
        """Rows of random numbers, the same for each system."""
        generator, n = np.random.default_rng(seed), self.A.shape[1]
        row = generator.standard_normal(n)
        if self.A.dtype.kind == "c":
            row = row + 1j * generator.standard_normal(n)
        return np.broadcast_to(row.astype(self.A.dtype), (self.end.status.size, n))


def _image(bk: Backend, A: Operator, rows: np.ndarray, like: Array | None) -> np.ndarray:
    with bk.errstate():
        # A copy, because a function may use the same memory again.
        return np.array(bk.to_numpy(A.apply(bk.asarray(np.ascontiguousarray(rows), like=like))))


def dots(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`<u, v>` of each row, in double precision."""
    wide = np.result_type(u.dtype, np.float64)
    return np.sum(u.conj().astype(wide) * v.astype(wide), axis=1)


def norms(u: np.ndarray) -> np.ndarray:
    """The 2-norm of each row, in double precision."""
    return np.asarray(np.linalg.norm(u.astype(np.result_type(u.dtype, np.float64)), axis=1))


# --- inputs: NaN and infinity, a preconditioner that is not linear

_LOOK = ("look for the division or the overflow that made NaN or infinity",)
_REPAIR = ("correct it", "leave it out")
Place = Callable[..., str]


def not_finite(case: Case) -> list[Cause]:
    """Cause: inputs that are not finite, or whose products are not."""
    if case.b is None and case.status is Status.DIVERGED and not case.end.iterations[case.worst]:
        return [FROM_THE_START]
    causes = []
    if case.right is not None:
        b, layout = case.right
        causes += _not_finite("b", "numbers", b, partial(_unknown, layout))
    if case.x0 is not None and case.layout is not None:
        causes += _not_finite("x0", "numbers", case.x0, partial(_unknown, case.layout))
    if sp.issparse(case.matrix):
        entries = sp.coo_array(case.matrix)
        name, coords = f"A{case.of_which}", entries.coords
        causes += _not_finite(name, "entries", entries.data, lambda k: str(tuple(int(c[k]) for c in coords)))
    elif case.matrix is not None:
        causes += _not_finite(f"A{case.of_which}", "entries", case.matrix, lambda *index: str(index))
    return causes or _of_product(case) or _of_preconditioner(case)


def _not_finite(name: str, what: str, values: np.ndarray, place: Place) -> list[Cause]:
    count = int((~np.isfinite(values)).sum())
    if not count:
        return []
    seen = f"{name} is not finite: {_first(values, place)}"
    if count > 1:
        seen = f"{count} of the {values.size} {what} of {name} are not finite; the first is {_first(values, place)}"
    return [Cause(seen, _LOOK)]


def _first(values: np.ndarray, place: Place) -> str:
    """The first number that is not finite, and where it is."""
    bad = ~np.isfinite(values)
    index = tuple(map(int, np.unravel_index(int(np.argmax(bad)), bad.shape)))
    return f"{values[index]} at {place(*index)}"


def _unknown(layout: Layout, system: int, index: int) -> str:
    """Index of an unknown in the user's arrays; in a container also the number of the array."""
    batch = tuple(int(i) for i in np.unravel_index(system, layout.batch)) if layout.batch else ()
    for k, shape in enumerate(layout.shapes):
        size = int(np.prod(shape, dtype=np.int64))
        if index < size:
            own = tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()
            at = len(batch) if layout.axis is None else layout.axis % (len(batch) + 1)
            return f"{(*batch[:at], *own, *batch[at:])}" + ("" if layout.structure is None else f" of array {k}")
        index -= size
    return f"unknown {index}"


def _of_product(case: Case) -> list[Cause]:
    image = case.A_image(case.random(11))
    if case.layout is None or np.isfinite(image).all():
        return []
    if case.matrix is None:
        name, first = "A^H A" if case.least_squares else "A", _first(image, partial(_unknown, case.layout))
        return [Cause(f"{name} x is not finite for an x of finite numbers of size 1: {first}", _LOOK)]
    largest = float(np.max(np.abs(case.matrix.data if sp.issparse(case.matrix) else case.matrix)))
    seen = f"products with A overflow in {case.A.dtype}: its largest entry is {largest:.1e}"
    return [Cause(seen, ("divide A and b by that number",))]


def _of_preconditioner(case: Case) -> list[Cause]:
    if case.M is None or case.layout is None:
        return []
    image = case.M_image(case.random(11))
    if np.isfinite(image).all():
        return [] if image.any() else [Cause("the preconditioner maps a random vector to zero", _REPAIR)]
    first = _first(image, partial(_unknown, case.layout))
    return [Cause(f"the preconditioner maps a vector of finite numbers to one with {first}", _REPAIR)]


def affine_preconditioner(case: Case) -> list[Cause]:
    """Cause: the user's products as M do not map zero to zero. Costs one evaluation."""
    M = case.M
    if not isinstance(M, Preconditioner) or not M.kind.startswith("user's") or isinstance(M.inner, Matrix):
        return []
    norm = norms(case.M_image(np.zeros_like(case.random(0))))[case.worst]
    if not (np.isfinite(norm) and norm > 0):
        return []
    seen = f"M is not linear: M(0) != 0, but of norm {norm:.1e}"
    return [Cause(seen, ("subtract the constant: r -> M(r) - M(0), in a layer bias=False",))]


# --- symmetry and definiteness

_LANCZOS_STEPS = 40  # at most, to find a negative eigenvalue of A or M
_HARMLESS = 1e-6  # asymmetry of M, as in single precision
_CLEARLY = 1e-10  # of the largest curvature, or some rounding units: the sign of smaller ones is not clear

_UNSYMMETRIC = ("use biCG-stab(2) or GMRES, which take any matrix",)


Pairs = Sequence[tuple[np.ndarray, np.ndarray]]  # vectors and their products


def _probes(case: Case, image: Callable[[np.ndarray], np.ndarray]) -> Pairs:
    """Two random vectors and their products."""
    u, v = case.random(4), case.random(5)
    return (u, image(u)), (v, image(v))


def wrong_symmetry(case: Case) -> list[Cause]:
    """Cause: a missing property that CG and MINRES need: A^H = A, M^H = M, definiteness."""
    if not case.method.needs_hermitian:
        return []
    probes, n = _probes(case, case.A_image), case.A.shape[1]
    gap, signs, causes = _asymmetry(case, probes), set[int](), []
    if gap is not None:
        causes = [Cause(_not_symmetric(case, "A", gap), _UNSYMMETRIC, settles=gap * np.sqrt(n) > REFUSED)]
    else:
        signs = _signs(case, probes)
    if len(signs) == 2 and case.method.needs_definite:
        seen = f"A{case.of_which} is indefinite: <v, A v> has both signs, and {case.method.name} needs one"
        causes = [Cause(seen, ("use MINRES, which takes such matrices", FACTORISE))]
    return causes if case.M is None else causes + _asymmetric_preconditioner(case, signs)


def _asymmetry(case: Case, probes: Pairs) -> float | None:
    """Largest difference of <u, A v> and <A u, v> in failed systems, relative to |u| |A v|; None if it is rounding."""
    (u, Au), (v, Av) = probes
    size = norms(u) * norms(Av) + norms(Au) * norms(v)
    gap = np.abs(dots(u, Av) - dots(Au, v)) / np.where(size > 0, size, 1)
    largest = float(np.max(np.where(has_failed(case.end.status), gap, 0), initial=0))
    # An asymmetry of CHOSEN in all directions alike makes a gap that is smaller by the root of the unknowns.
    return largest if largest > max(PRODUCTS * case.eps, CHOSEN / np.sqrt(u.shape[1])) else None


def _not_symmetric(case: Case, name: str, gap: float) -> str:
    word = "Hermitian" if case.A.dtype.kind == "c" else "symmetric"
    what = "A" if name == "A" else "the preconditioner"
    return (
        f"{what} is not {word}, and {case.method.name} needs that: <u, {name} v> and <{name} u, v> differ by "
        f"{gap:.1e} (relative) for random u and v"
    )


def _signs(case: Case, probes: Pairs) -> set[int]:
    """Clear signs of <v, A v>, from few vectors: 1, -1, both or none."""
    pairs, start = [*probes], probes[0][0]
    if case.x is not None and case.b is not None and case.r is not None:
        pairs += [(case.x, case.b - case.r), (case.r, case.A_image(case.r))]
        start = case.r if np.isfinite(case.r[case.worst]).all() else start
    signs = {int(s) for s in _curvatures(case, pairs)[:, case.worst] if s}
    if len(signs) < 2 and case.matrix is not None:
        diagonal = np.asarray(case.matrix.diagonal()).real
        signs |= {1, -1} if (diagonal > 0).any() and (diagonal < 0).any() else set()
    return signs if len(signs) == 2 else signs | _signs_by_lanczos(case, start)


def _curvatures(case: Case, pairs: Pairs) -> np.ndarray:
    """The signs of <v, A v> `(pairs, systems)`, 0 where it may be rounding, as for near-null vectors v of A."""
    least = max(_CLEARLY, PRODUCTS * case.eps)
    values = np.array([dots(v, Av).real for v, Av in pairs])
    lengths, images = (np.array([norms(pair[k]) for pair in pairs]) for k in (0, 1))
    size = np.fmax.reduce(images / lengths)  # of A, as far as they show
    allowed = np.maximum(least * lengths * images, PRODUCTS * case.eps * size * lengths**2)
    return np.where(np.isfinite(values) & (np.abs(values) > allowed), np.sign(values), 0).astype(int)


def _signs_by_lanczos(case: Case, start: np.ndarray) -> set[int]:
    """Clear signs of Lanczos' eigenvalue estimates, in at most as many products as the solve has made."""
    system, steps = case.worst, min(_LANCZOS_STEPS, start.shape[1], case.products)
    norm = float(norms(start[[system]])[0])
    if steps < 2 or not 0 < norm < np.inf:
        return set()

    def product(v: np.ndarray) -> np.ndarray:
        rows = np.zeros_like(start)
        rows[system] = v[0]
        return case.A_image(rows)[[system]]

    T = lanczos(get_backend("numpy"), product, start[[system]] / norm, steps)
    alphas, betas = T.alphas[0].astype(np.float64), T.betas[0, 1:].astype(np.float64)
    ends = np.flatnonzero(betas <= 100 * case.eps * np.maximum.accumulate(np.abs(alphas))[:-1])
    size = int(ends[0]) + 1 if len(ends) else steps  # of an invariant subspace, or of all
    alphas, betas = alphas[:size], betas[: size - 1]
    if not np.isfinite(alphas).all() or not np.isfinite(betas).all():
        return set()
    ritz = scipy.linalg.eigvalsh_tridiagonal(alphas, betas)
    clear = max(_CLEARLY, 100 * case.eps) * np.max(np.abs(ritz))
    return {int(np.sign(value)) for value in (ritz[0], ritz[-1]) if abs(value) > clear}


def _asymmetric_preconditioner(case: Case, signs_of_A: set[int]) -> list[Cause]:
    probes, definite = _probes(case, case.M_image), case.method.needs_definite
    declared = isinstance(case.M, Preconditioner) and case.M.hermitian
    gap = None if declared else _asymmetry(case, probes)
    if gap is not None and gap > max(_HARMLESS, REFUSED / np.sqrt(case.A.shape[1])):
        other = "make one that is (preconditioner='ic' or 'amg')", "use biCG-stab(2) or GMRES with this one"
        return [Cause(_not_symmetric(case, "M", gap), other)]
    pairs = [*probes] if case.r is None else [*probes, (case.r, case.M_image(case.r))]
    failed = has_failed(case.end.status)
    signs = {int(s) for s in _curvatures(case, pairs)[:, failed].reshape(-1) if s}
    if len(signs) < 2 if definite else -1 not in signs:
        return []
    seen = (
        f"the preconditioner is not {'' if definite else 'positive '}definite, and {case.method.name} needs that: "
        "<v, M v> is negative for some v"
    )
    if signs == {-1} == signs_of_A:
        return [Cause(seen, ("solve -A x = -b with the preconditioner made of -A, because A is negative definite",))]
    return [Cause(seen, ("make one that is", "leave it out"))]


# --- singular matrices

_ROUNDING = 100  # norm of a product that counts as zero, in rounding units of a product with random numbers
_MEAN = 0.5  # the same for its mean, below the shift by a long time step, see `sparse.analysis.singular`
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
        return zeros(case.matrix, 1), zeros(case.matrix, 0)
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
    if n > SMALL and (estimated_cost(csr).work > _OPERATIONS if sparse else n > _DENSE):
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
    if scaled.shape[0] <= SMALL or not sparse:
        full = scaled.toarray()
        return lambda v: np.linalg.solve(full, v), float(np.linalg.cond(full, 2 if len(full) <= SMALL else 1))
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


# --- progress

_HARDLY = 0.5  # of the residual norm at the start: a smaller reduction shows no rate
_MANY = 1e6  # iterations: more are not worth waiting for


def too_few_iterations(case: Case) -> list[Cause]:
    """Cause: too few iterations, with the reduction of the worst residual and the max_iter that its rate requires."""
    w, bound = case.worst, case.bound
    if case.b is None or case.method.factorises or case.status is not Status.MAX_ITER:
        return []
    r0 = case.b if case.x0 is None else case.b - case.A_image(case.x0)
    start, end, steps = float(norms(r0[w : w + 1])[0]), float(case.end.residual_norm[w]), int(case.end.iterations[w])
    if steps < 2 or not (np.isfinite([start, end]).all() and start > 0 and end > 0):
        return []
    went = f"the {'normal ' * case.least_squares}residual norm went from {start:.1e} to {end:.1e} in {steps} iterations"
    if end > _HARDLY * start:
        return [Cause(f"{went}{' and has hardly fallen' if end < start else ''}", settles=False)]
    if not bound > 0:
        return []
    needed = steps * math.log(bound / start) / math.log(end / start)
    if needed > _MANY:
        return [Cause(f"{went}, too slowly to reach {bound:.1e}", settles=False)]
    digits = 10 ** max(math.floor(math.log10(max(needed, 1))) - 1, 0)
    rounded = math.ceil(needed / digits) * digits
    return [Cause(f"{went}; at that rate {bound:.1e} takes about {rounded}", (f"raise max_iter to {rounded}",), False)]


# --- the diagnosis


_QUESTIONS = (not_finite, affine_preconditioner, wrong_symmetry, singular, too_few_iterations)
"""Causes of a failure, looked for in this order, up to the first that explains it by itself."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Search for the causes of a failed solve; nothing is computed before it is called.

    Attributes:
        case: the solve that ended in a state; None where nothing can be examined.
        known: static data in a compiled function: the method, and functions that make A and M on the host.
        note: a remark of the library that the method calls.
    """

    case: Callable[[EndState], Case | None]
    known: tuple[Any, ...] = ()
    note: str | None = None

    @classmethod
    def of(
        cls, system: System, method: Method, M: Operator | None, outcome: Outcome, both: bool
    ) -> Diagnosis | None:  # fmt: skip
        """Diagnosis of a finished solve, in a compiled function by the data known on the host; None where not needed.

        Args:
            M: its preconditioner or factors, or None.
            both: are known null vectors of A those of the transpose, too?
        """
        later = system.on_failure in QUIET  # the message is read later, when the arrays may have changed
        note = getattr(M, "note", None) if method.holds_external else None
        M = M if isinstance(M, Preconditioner) else None
        if system.bk.communicator is not None:  # each member would decide on its own
            return None
        if not (system.compiled or system.bk.compiled(outcome.status)):
            return cls(lambda end: Case.of(system, method, M, outcome, later, both, end), note=note)
        if later:
            return None
        known_A = None if system.given is not None else _on_host(system.A)
        known_M = None if M is None else _on_host(M)
        return cls(partial(_case_in_program, method, known_A, known_M), (method, known_A, known_M))

    @property
    def name(self) -> str | None:
        """Name of a diagnosis in compiled functions, the same in all processes; None if there is none."""
        method, *makers = self.known
        try:
            return fingerprint(method, *(None if make is None else make() for make in makers))
        except Exception:  # no solve fails because its name cannot be made
            return None

    def __call__(self, end: EndState) -> tuple[Cause, ...] | None:
        """Find the causes for an end state in NumPy; None if nothing could be examined.

        Raises nothing. Cost: at most as many products as the solve has made, or a few; for a known matrix also factors,
        where they take less than a second.
        """
        if np.any(end.status == int(Status.TIME_LIMIT)):  # no time is left for a search
            return None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                case = self.case(EndState(*(a.reshape(-1) for a in end.arrays())))
                if case is None:
                    return None
                causes: list[Cause] = []
                for question in _QUESTIONS:
                    causes += question(case)
                    if any(cause.settles for cause in causes):
                        break
                return tuple(causes if self.note is None else [*causes, Cause(self.note, settles=False)])
            except Exception:  # for example in a user's function: the failure is reported without a cause
                return None


def _case_in_program(
    method: Method, known_A: Callable[[], Operator] | None, known_M: Callable[[], Operator] | None, end: EndState
) -> Case | None:
    if known_A is None:
        return None
    A, M = known_A(), None if known_M is None else known_M()
    if any(operator is not None and operator.systems not in (None, end.status.size) for operator in (A, M)):
        return None  # the function was vectorised later
    return Case(method, end, A, A, M, products=int(np.max(end.iterations, initial=0)))


def _on_host(A: Operator) -> Callable[[], Operator] | None:
    """Function that makes A on NumPy arrays, for values that are known while tracing."""
    if isinstance(A, Preconditioner):
        if A.kind == "user's function":
            return None
    elif not (isinstance(A, Matrix) and is_known(A)):
        return None
    try:
        arrays, make = A.for_host()
        if arrays and A.bk.compiled(*arrays):
            return None
        values = [A.bk.to_numpy(array) for array in arrays]
    except Exception:  # no solve fails because its diagnosis cannot be prepared
        return None
    return lambda: make(values)
