"""The cause of a failure, looked for when one has happened."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from ...backends import Array, Backend, get_backend, real_dtype
from ...sparse import Layout, Matrix, Operator
from ...sparse.analysis.equilibrate import equilibrated, scales
from ...sparse.analysis.symmetry import CHOSEN, PRODUCTS, REFUSED
from ...sparse.fingerprint import fingerprint
from ...sparse.operators.concrete import is_known
from ..cost import estimated_cost
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..read.system import System
from ..run.null_part import NullPart
from ..run.outcome import Outcome, Status, has_failed
from .words import LEAST_SQUARES, SINGULAR, Cause, from_the_start

Image = Callable[[np.ndarray], np.ndarray]
"""Rows `(systems, n)` -> rows, as the solve computed them."""


@dataclass(frozen=True)
class EndState:
    """How each system ended, `(systems,)`; see `SolveResult`."""

    status: np.ndarray
    steps: np.ndarray
    norm: np.ndarray
    bound: np.ndarray
    attainable: np.ndarray
    null_part: np.ndarray
    consistent: np.ndarray
    singular: np.ndarray
    rung: np.ndarray | None = None

    @cached_property
    def failed(self) -> np.ndarray:
        """Which systems have not converged?"""
        return has_failed(self.status)

    @cached_property
    def worst(self) -> int:
        """The failed system that is furthest from its tolerance."""
        with np.errstate(all="ignore"):
            excess = np.where(np.isfinite(self.norm), self.norm / self.bound, np.inf)
        return int(np.argmax(np.where(self.failed, np.nan_to_num(excess, nan=np.inf), -1)))


@dataclass(frozen=True)
class Case:
    """A failed solve. None: unknown, as in a compiled function.

    Attributes:
        method: the one that failed, or the last one that was tried.
        numbers: how each system ended.
        dtype: the working dtype.
        A: the operator of the equations that were solved; in least squares of the normal equations.
        given: the matrix or function of the user: A, or what least squares are asked for.
        A_image, M_image: products of these equations and of the preconditioner.
        b, x, r: right-hand sides, what was found, and residuals of these equations: rows `(systems, n)`.
        right: the right-hand sides of the user, and their layout.
        x0: the start, or None.
        layout: of x.
        null: are null vectors of A known, and projected out of x?
        both: are they null vectors of the transpose too?
        products: number made by the solve; a diagnosis makes at most that, or a few.
    """

    method: Method
    numbers: EndState
    dtype: np.dtype
    A: Operator | None
    given: Operator | None
    A_image: Image | None = None
    M_image: Image | None = None
    M: Operator | None = None
    b: np.ndarray | None = None
    x: np.ndarray | None = None
    r: np.ndarray | None = None
    right: tuple[np.ndarray, Layout] | None = None
    x0: np.ndarray | None = None
    layout: Layout | None = None
    null: bool = False
    both: bool = False
    products: int = 0

    @property
    def status(self) -> Status:
        """Status of the worst system."""
        return Status(int(self.numbers.status[self.numbers.worst]))

    @property
    def least_squares(self) -> bool:
        """Are the equations those of a problem of least squares?"""
        return self.given is not self.A

    @property
    def name(self) -> str:
        """Name of the matrix of the equations."""
        return "A^H A" if self.least_squares else "A"

    @cached_property
    def eps(self) -> float:
        """The rounding unit."""
        return float(np.finfo(self.dtype).eps)

    @cached_property
    def matrix(self) -> Any:
        """The user's matrix on the host, of the worst system in a batch of matrices; None if unknown."""
        A = self.given
        if A is None or A.offset or not isinstance(A.without_offset, Matrix):
            return None
        found: Any = A.without_offset.known()
        if isinstance(found, tuple) or (found is not None and found.ndim == 3):
            found = found[min(self.numbers.worst, len(found) - 1)]
        return sp.csr_array(found) if sp.issparse(found) else found

    @cached_property
    def of_which(self) -> str:
        """Words that name the worst system's matrix in a batch of matrices."""
        A = self.given
        own = A is not None and isinstance(A.without_offset, Matrix) and A.without_offset.systems is not None
        return f" of system {self.numbers.worst}" if own and self.numbers.status.size > 1 else ""

    def random(self, seed: int, size: int) -> np.ndarray:
        """Rows of random numbers, the same for each system."""
        generator = np.random.default_rng(seed)
        row = generator.standard_normal(size)
        if self.dtype.kind == "c":
            row = row + 1j * generator.standard_normal(size)
        return np.broadcast_to(row.astype(self.dtype), (self.numbers.status.size, size))


def precision_name(case: Case) -> str:
    """ "float32" or "float64": what real numbers of this case have."""
    return str(real_dtype(case.dtype))


def dots(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`<u, v>` of each row, in double precision."""
    wide = np.result_type(u.dtype, np.float64)
    return np.sum(u.conj().astype(wide) * v.astype(wide), axis=1)


def norms(u: np.ndarray) -> np.ndarray:
    """The 2-norm of each row, in double precision."""
    return np.asarray(np.linalg.norm(u.astype(np.result_type(u.dtype, np.float64)), axis=1))


def affine_preconditioner(case: Case) -> list[Cause]:
    """Cause: the user's products as M do not take zero to zero. Costs one evaluation."""
    M = case.M
    if case.M_image is None or case.A is None or not isinstance(M, Preconditioner) or not M.kind.startswith("user's"):
        return []
    if isinstance(M.inner, Matrix):
        return []
    image = case.M_image(np.zeros((case.numbers.status.size, case.A.shape[0]), case.dtype))
    norm = norms(image)[case.numbers.worst]
    if not (np.isfinite(norm) and norm > 0):
        return []
    seen = f"M is not linear: M(0) != 0, but of norm {norm:.1e}"
    return [Cause(seen, ("take the constant part off: r -> M(r) - M(0), of a layer bias=False",))]


_HARDLY = 0.5  # of the residual norm at the start: what is above has not been a rate
_MANY = 1e6  # iterations that nobody would wait for


def too_few_iterations(case: Case) -> list[Cause]:
    """Cause: too few iterations, with the reduction of the worst residual and the max_iter that its rate requires."""
    numbers, w = case.numbers, case.numbers.worst
    if case.b is None or case.method.factorises or case.status is not Status.MAX_ITER:
        return []
    start = float(norms(case.b[w : w + 1])[0])
    if case.x0 is not None and case.A_image is not None:
        start = float(norms((case.b - case.A_image(case.x0))[w : w + 1])[0])
    end, bound, steps = float(numbers.norm[w]), float(numbers.bound[w]), int(numbers.steps[w])
    if steps < 2 or not (np.isfinite([start, end]).all() and start > 0 and end > 0):
        return []
    went = f"the {'normal ' * case.least_squares}residual norm went from {start:.1e} to {end:.1e} in {steps} iterations"
    if end > _HARDLY * start:
        return [Cause(f"{went}{' and has hardly fallen' if end < start else ''}", settles=False)]
    if not bound > 0:
        return []
    needed = steps * math.log(bound / start) / math.log(end / start)
    if needed > _MANY:
        return [Cause(f"{went}, too slowly to come to {bound:.1e}", settles=False)]
    digits = 10 ** max(math.floor(math.log10(max(needed, 1))) - 1, 0)
    rounded = math.ceil(needed / digits) * digits
    return [Cause(f"{went}; at that rate {bound:.1e} takes about {rounded}", (f"raise max_iter to {rounded}",), False)]


_LOOK = ("look for the division or the overflow that made NaN or infinity",)

_MEND = ("mend it", "leave it out")


def not_finite_cause(case: Case) -> list[Cause]:
    """Cause: non-finite inputs, or products that give non-finite numbers."""
    causes = []
    w = case.numbers.worst
    if case.b is None and case.status is Status.DIVERGED and not case.numbers.steps[w]:
        return [from_the_start()]
    if case.right is not None:
        causes += _of_rows("b", *case.right)
    if case.x0 is not None and case.layout is not None:
        causes += _of_rows("x0", case.x0, case.layout)
    causes += _of_matrix(case) or ([] if causes else _of_product(case))
    return causes or _of_preconditioner(case)


def _of_rows(name: str, rows: np.ndarray, layout: Layout) -> list[Cause]:
    bad = ~np.isfinite(rows)
    count = int(bad.sum())
    if not count:
        return []
    system, index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    first = f"{rows[system, index]} at {place(layout, int(system), int(index))}"
    seen = f"{name} is not finite: {first}" if count == 1 else (
        f"{count} of the {bad.size} numbers in {name} are not finite; the first is {first}"
    )  # fmt: skip
    return [Cause(seen, _LOOK)]


def place(layout: Layout, system: int, index: int) -> str:
    """Index of an unknown in the user's arrays; in a container also the number of the array."""
    batch = tuple(int(i) for i in np.unravel_index(system, layout.batch)) if layout.batch else ()
    for number, shape in enumerate(layout.shapes):
        size = int(np.prod(shape, dtype=np.int64))
        if index < size:
            own = tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()
            at = len(batch) if layout.axis is None else layout.axis % (len(batch) + 1)
            return f"{(*batch[:at], *own, *batch[at:])}" + ("" if layout.structure is None else f" of array {number}")
        index -= size
    return f"unknown {index}"


def _of_matrix(case: Case) -> list[Cause]:
    matrix = case.matrix
    if matrix is None:
        return []
    entries = sp.coo_array(matrix) if sp.issparse(matrix) else None
    values = matrix if entries is None else entries.data
    bad = ~np.isfinite(values)
    count = int(bad.sum())
    if not count:
        return []
    first = int(np.argmax(bad))
    where = np.unravel_index(first, bad.shape) if entries is None else [c[first] for c in entries.coords]
    row, column = (int(i) for i in where)
    many = "1 entry" if count == 1 else f"{count} entries"
    verb, which = ("is", "it is") if count == 1 else ("are", "the first is")
    return [
        Cause(f"{many} of A{case.of_which} {verb} not finite: {which} {values.flat[first]} at ({row}, {column})", _LOOK)
    ]


def _of_product(case: Case) -> list[Cause]:
    if case.A_image is None or case.A is None or case.layout is None:
        return []
    image = case.A_image(case.random(11, case.A.shape[1]))
    if np.isfinite(image).all():
        return []
    system, index = np.unravel_index(int(np.argmax(~np.isfinite(image))), image.shape)
    where = place(case.layout, int(system), int(index))
    if case.matrix is None:
        return [
            Cause(
                f"{case.name} x is not finite for an x of finite numbers of size 1: {image[system, index]} at {where}",
                _LOOK,
            )
        ]
    largest = float(np.max(np.abs(case.matrix.data if sp.issparse(case.matrix) else case.matrix)))
    return [
        Cause(
            f"products with A overflow in {case.dtype}: its largest entry is {largest:.1e}",
            ("divide A and b by that number",),
        )
    ]


def _of_preconditioner(case: Case) -> list[Cause]:
    if case.M_image is None or case.A is None or case.layout is None:
        return []
    image = case.M_image(case.random(11, case.A.shape[0]))
    if not np.isfinite(image).all():
        system, index = np.unravel_index(int(np.argmax(~np.isfinite(image))), image.shape)
        return [
            Cause(
                f"the preconditioner makes {image[system, index]} at {place(case.layout, int(system), int(index))} of "
                "a vector of finite numbers",
                _MEND,
            )
        ]
    if not image.any():
        return [Cause("the preconditioner makes zeros of a vector of random numbers", _MEND)]
    return []


_LANCZOS_STEPS = 40  # of Lanczos' method
_HARMLESS = 1e-6  # asymmetry of M, as of one that computes in single precision
_CLEARLY = 1e-10  # of the largest curvature, or some rounding units: what is below has no sign

_UNSYMMETRIC = ("use biCG-stab(2) or GMRES, which take any matrix",)


def wrong_symmetry(case: Case) -> list[Cause]:
    """Cause: a missing property that CG and MINRES need: A^H = A, M^H = M, definiteness."""
    if not case.method.needs_hermitian or case.A_image is None or case.A is None:
        return []
    n = case.A.shape[1]
    u, v = case.random(4, n), case.random(5, n)
    images = _Images(case.A_image, u, v, case.A_image(u), case.A_image(v))
    found = _asymmetry(case, images)
    causes = []
    if found is not None:
        settles = found * np.sqrt(n) > REFUSED
        causes.append(Cause(_not_symmetric(case, "A", found), _UNSYMMETRIC, settles))
    sign = 0 if causes else _sign(case, images)
    if sign is None and case.method.needs_definite:
        seen = f"A{case.of_which} is indefinite: <v, A v> has both signs, and {case.method.name} needs one"
        causes.append(Cause(seen, ("use MINRES, which takes such matrices", "factorise (method='scipy-direct')")))
    return causes + _asymmetry_of_preconditioner(case, u, v, sign)


class _Images(NamedTuple):
    """Two random vectors and their products."""

    image: Image
    u: np.ndarray
    v: np.ndarray
    Au: np.ndarray
    Av: np.ndarray


def _asymmetry(case: Case, images: _Images) -> float | None:
    """By how much <u, A v> and <A u, v> differ, of |u| |A v|, where that is more than rounding; of the worst system."""
    _, u, v, Au, Av = images
    size = norms(u) * norms(Av) + norms(Au) * norms(v)
    gap = np.abs(dots(u, Av) - dots(Au, v)) / np.where(size > 0, size, 1)
    # an asymmetry of CHOSEN, in all directions alike, makes a gap that is smaller by the root of the unknowns
    limit = max(PRODUCTS * case.eps, CHOSEN / np.sqrt(u.shape[1]))
    gap = np.where(case.numbers.failed, gap, 0)
    largest = float(np.max(gap, initial=0))
    return largest if largest > limit else None


def _not_symmetric(case: Case, name: str, gap: float) -> str:
    word = "Hermitian" if case.dtype.kind == "c" else "symmetric"
    what = "A" if name == "A" else "the preconditioner"
    return (
        f"{what} is not {word}, as {case.method.name} needs it: <u, {name} v> and <{name} u, v> differ by a relative "
        f"{gap:.1e} for random u and v"
    )


def _sign(case: Case, images: _Images) -> int | None:
    """Sign of all observed <v, A v>: 1 or -1, None if both occur, 0 if none is clear."""
    system = case.numbers.worst
    pairs = [(images.u, images.Au), (images.v, images.Av)]
    if case.x is not None and case.b is not None and case.r is not None:
        pairs.append((case.x, case.b - case.r))
        pairs.append((case.r, images.image(case.r)))
    signs = {s for u, Au in pairs if (s := _curvature(case, u, Au)[system])}
    if len(signs) < 2:
        start = images.u if case.r is None or not np.isfinite(case.r[system]).all() else case.r
        signs |= _of_diagonal(case) or _by_lanczos(case, start, system)
    return None if len(signs) == 2 else (signs.pop() if signs else 0)


def _curvature(case: Case, v: np.ndarray, Av: np.ndarray) -> np.ndarray:
    """The sign of <v, A v>, 0 if it may be rounding."""
    value, size = dots(v, Av).real, norms(v) * norms(Av)
    clear = np.isfinite(value) & (np.abs(value) > max(_CLEARLY, PRODUCTS * case.eps) * size)
    return np.where(clear, np.sign(value), 0).astype(int)


def _of_diagonal(case: Case) -> set[int]:
    """Both signs, if the diagonal of a known matrix has both; else no sign."""
    if case.matrix is None:
        return set()
    diagonal = np.asarray(case.matrix.diagonal()).real
    return {1, -1} if (diagonal > 0).any() and (diagonal < 0).any() else set()


def _by_lanczos(case: Case, start: np.ndarray, system: int) -> set[int]:
    """Clear signs of Lanczos' eigenvalue estimates, in at most as many products as the solve has made.

    Source: Saad, Numerical Methods for Large Eigenvalue Problems, 2nd ed., algorithm 6.5.
    """
    image = case.A_image
    steps = min(_LANCZOS_STEPS, start.shape[1], case.products)
    norm = norms(start[system : system + 1])[0]
    if image is None or steps < 2 or not 0 < norm < np.inf:
        return set()
    rows = np.zeros_like(start)
    v, old, beta = start[system] / norm, np.zeros_like(start[system]), 0.0
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(steps):
        rows = rows.copy()
        rows[system] = v
        w = image(rows)[system] - beta * old
        alpha = float(dots(v[None], w[None])[0].real)
        w = w - alpha * v
        beta = float(norms(w[None])[0])
        if not np.isfinite([alpha, beta]).all():
            return set()
        alphas.append(alpha)
        if beta <= 100 * case.eps * max(map(abs, alphas)):
            break
        betas.append(beta)
        old, v = v, (w / beta).astype(start.dtype)
    ritz = scipy.linalg.eigvalsh_tridiagonal(np.array(alphas), np.array(betas[: len(alphas) - 1]))
    clear = max(_CLEARLY, 100 * case.eps) * np.max(np.abs(ritz))
    return {int(np.sign(value)) for value in (ritz[0], ritz[-1]) if abs(value) > clear}


def _asymmetry_of_preconditioner(case: Case, u: np.ndarray, v: np.ndarray, sign: int | None) -> list[Cause]:
    image = case.M_image
    if image is None:
        return []
    images = _Images(image, u, v, image(u), image(v))
    declared = isinstance(case.M, Preconditioner) and case.M.hermitian
    gap = None if declared else _asymmetry(case, images)
    if gap is not None and gap > max(_HARMLESS, REFUSED / np.sqrt(u.shape[1])):
        mend = "make one that is (preconditioner='ic' or 'amg')", "use biCG-stab(2) or GMRES with this one"
        return [Cause(_not_symmetric(case, "M", gap), mend)]
    pairs = [(u, images.Au), (v, images.Av)]
    if case.r is not None:
        pairs.append((case.r, image(case.r)))
    signs = {int(s) for w, Mw in pairs for s in _curvature(case, w, Mw)[case.numbers.failed] if s}
    if case.method.needs_definite and len(signs) < 2:
        return []
    if not case.method.needs_definite and -1 not in signs:
        return []
    word = "definite" if case.method.needs_definite else "positive definite"
    seen = f"the preconditioner is not {word}, as {case.method.name} needs it: <v, M v> is negative for some v"
    if signs == {-1} and sign == -1:
        return [Cause(seen, ("solve -A x = -b with the preconditioner made of -A, as A is negative definite",))]
    return [Cause(seen, ("make one that is", "leave it out"))]


_ROUNDING = 100  # rounding units of a product with random numbers, for one that should be zero ...
_MEAN = 0.5  # ... and of its mean: a shift by a long time step is no rounding, see `sparse.analysis.rounding`
_SMALL = 300  # unknowns up to which singular values are computed
_DENSE = 1500  # unknowns up to which a dense matrix is factorised
_OPERATIONS = 2e8  # of factors of a sparse matrix, some tenths of a second
_SINGLE = float(np.finfo(np.float32).eps)
_INVERSE_ITERATIONS = 3  # of inverse iteration
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
    for _ in range(_INVERSE_ITERATIONS):
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


_QUESTIONS: tuple[Callable[[Case], list[Cause]], ...] = (
    not_finite_cause, affine_preconditioner, wrong_symmetry, singular, too_few_iterations,
)  # fmt: skip
"""In this order; the first that has an answer which settles the matter is the last that is asked."""


@dataclass(frozen=True, eq=False)
class Look:
    """Diagnosis of a solve; nothing is computed before it is called.

    Attributes:
        system: what was solved; None in a compiled function, which may keep no arrays.
        method: that solved it.
        M: its preconditioner, or None.
        outcome: what it found, or None.
        A, known_M: functions that make them on the host, if known in a compiled function.
        dtype: their working dtype.
        later: may the arrays have been written to since?
        both: are known null vectors of A those of the transpose, too?
        note: what the library that the method calls has said.
    """

    system: System | None
    method: Method
    M: Operator | None = None
    outcome: Outcome | None = None
    A: Callable[[], Operator] | None = None
    known_M: Callable[[], Operator] | None = None
    dtype: np.dtype | None = None
    later: bool = False
    note: str | None = None
    both: bool = False

    @classmethod
    def at(
        cls,
        system: System,
        method: Method,
        M: Operator | None,
        outcome: Outcome,
        later: bool = False,
        both: bool = False,
    ) -> Look:
        """Diagnosis of a finished solve, or of one in a compiled function."""
        note = getattr(M, "note", None) if method.holds_external else None
        M = M if isinstance(M, Preconditioner) else None  # factors are none
        if not (system.compiled or system.bk.compiled(outcome.status)):
            return cls(system, method, M, outcome, later=later, note=note, both=both)
        A = None if system.given is not None else _on_host(system.A)
        return cls(None, method, A=A, known_M=None if M is None else _on_host(M), dtype=system.A.dtype)

    @property
    def name(self) -> str | None:
        """See `LookForCauses`; of a look in a compiled function."""
        try:
            known = [None if make is None else make() for make in (self.A, self.known_M)]
        except Exception:  # as when it is looked at: no solve fails by that
            return None
        return fingerprint(self.method, self.dtype, *known)

    def __call__(self, *numbers: np.ndarray) -> tuple[Cause, ...] | None:
        """Find the causes for the end states of the systems; None if nothing could be examined.

        Raises nothing. Cost: at most as many products as the solve has made, or a few; of a known matrix also factors,
        where they take less than a second.
        """
        if np.any(numbers[0] == int(Status.TIME_LIMIT)):  # which has taken its time
            return None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                case = self._case(EndState(*(np.asarray(a).reshape(-1) for a in numbers)))
                found = None if case is None else _asked(case)
                return found if found is None or self.note is None else (*found, Cause(self.note, settles=False))
            except Exception:  # of a user's function, or in what is only looked at: the failure itself is told
                return None

    def _case(self, numbers: EndState) -> Case | None:
        if self.system is None or self.outcome is None:
            return self._known_case(numbers)
        system, outcome = self.system, self.outcome
        bk, several = system.bk, system.several and len(system.limits) > 1
        x, r = (bk.to_numpy(bk.flat(a[-1] if several else a)) for a in (outcome.x, outcome.residual))
        made = bk.to_numpy(outcome.products[-1] if several else outcome.products)
        given = system.given
        b = bk.to_numpy(NullPart.rest_of(bk, bk.flat(system.b), system.null, self.both))
        right = (b, system.layout) if given is None else (bk.to_numpy(given.b), given.layout)
        case = Case(
            self.method, numbers, system.A.dtype, system.A, system.A if given is None else given.A,
            A_image=_image(bk, system.A, system.b), M=self.M,
            M_image=None if self.M is None else _image(bk, self.M, system.b),
            b=b, x=x, r=r, right=right, x0=None if system.x0 is None else bk.to_numpy(bk.flat(system.x0)),
            layout=system.layout, null=system.null is not None,
            both=system.null is not None and self.both, products=int(np.max(made, initial=0)),
        )  # fmt: skip
        return None if self.later and _has_changed(case) else case

    def _known_case(self, numbers: EndState) -> Case | None:
        if self.A is None or self.dtype is None:
            return None
        host, A, M = get_backend("numpy"), self.A(), None if self.known_M is None else self.known_M()
        if any(one is not None and one.systems not in (None, numbers.status.size) for one in (A, M)):
            return None  # in a function that was vectorised since
        return Case(
            self.method, numbers, self.dtype, A, A, A_image=_image(host, A, None),
            M_image=None if M is None else _image(host, M, None), M=M, products=int(np.max(numbers.steps, initial=0)),
        )  # fmt: skip


def _asked(case: Case) -> tuple[Cause, ...]:
    found: list[Cause] = []
    for question in _QUESTIONS:
        found += question(case)
        if any(cause.settles for cause in found):
            break
    return tuple(found)


def _on_host(A: Operator) -> Callable[[], Operator] | None:
    """Function that makes A on NumPy arrays, for values that are known while tracing."""
    inner = A.inner if isinstance(A, Preconditioner) else A
    if isinstance(A, Preconditioner) and A.kind == "user's function":
        return None
    if not isinstance(A, Preconditioner) and not (isinstance(inner, Matrix) and is_known(inner)):
        return None
    try:
        arrays, make = A.for_host()
        if arrays and A.bk.compiled(*arrays):
            return None
        values = [A.bk.to_numpy(array) for array in arrays]
    except Exception:  # what is only looked at after a failure fails no solve
        return None
    return lambda: make(values)


def _image(bk: Backend, A: Operator, like: Array | None) -> Image:
    """Products with A as the solve makes them: compiled where it was."""
    made: list[Callable[[Array], Array]] = []

    def image(rows: np.ndarray) -> np.ndarray:
        with bk.errstate():
            if not made:
                made.append(_product(bk, A))
            found = made[0](bk.asarray(np.ascontiguousarray(rows), like=like))
        return np.array(bk.to_numpy(found))  # a function may use the same memory again

    return image


def _product(bk: Backend, A: Operator) -> Callable[[Array], Array]:
    if not bk.compiles_solves:
        return A.apply
    container = A.as_container()
    if not container.is_container:
        return A.apply
    compiled = bk.compile_if_faster(_apply, ())
    return lambda rows: compiled(container, rows)


def _apply(A: Operator, x: Array) -> Array:
    return A.apply(x)


def _has_changed(case: Case) -> bool:
    """Has the residual changed, because the arrays were overwritten?"""
    if case.A_image is None or case.x is None or case.b is None or case.r is None:
        return False
    change, size = norms(case.b - case.A_image(case.x) - case.r), norms(case.b) + norms(case.r)
    taken_off = case.numbers.null_part  # also by factors
    return bool(np.any(change > np.sqrt(case.eps) * size + taken_off))
