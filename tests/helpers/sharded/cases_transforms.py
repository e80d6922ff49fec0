"""Fast transforms on cut grids: the inverse by itself, `fast-direct`, and `fast` as a preconditioner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from krylix import as_operator, linear_solve, preconditioner
from krylix.backends import get_backend
from krylix.solvers.fast.inverse import fast_inverse
from krylix.sparse import Stencil

from .cases import Array, Case, Later, exact, shifted

ENDS = {"point": 0.0, "value": 1.0, "derivative": -1.0}  # what is added to the diagonal beside couplings of -1
POINTS, SLOPES = ("point", "point"), ("derivative", "derivative")
ALL_KINDS = [(first, last) for first in ENDS for last in ENDS] + ["periodic", "spaced", "layers"]


def along(n: int, kind: Any) -> np.ndarray:
    """The matrix of one axis, `(n, n)`.

    Args:
        kind: what is given at both ends; "periodic"; "spaced", not symmetric, as of a grid with other spacings
            everywhere; "layers", with other coefficients.
    """
    if kind == "periodic":
        return 2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)
    if kind in ("spaced", "layers"):
        h = np.random.default_rng(n).uniform(0.5, 2, n + 1)
        A = np.diag(1 / h[1:] + 1 / h[:-1]) - np.diag(1 / h[1:-1], 1) - np.diag(1 / h[1:-1], -1)
        return A if kind == "layers" else 2 / (h[1:] + h[:-1])[:, None] * A
    A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    A[0, 0] += ENDS[kind[0]]
    A[-1, -1] += ENDS[kind[1]]
    return A


class Sum(NamedTuple):
    """A sum of matrices along the axes of a grid."""

    grid: tuple[int, ...]
    kinds: tuple[Any, ...]
    shift: Any = 0.3

    def matrix(self) -> sp.csc_array:
        total = self.shift * sp.eye_array(prod(self.grid))
        for axis, (n, kind) in enumerate(zip(self.grid, self.kinds)):
            before, after = (sp.eye_array(prod(part)) for part in (self.grid[:axis], self.grid[axis + 1 :]))
            total = total + sp.kron(sp.kron(before, along(n, kind)), after)
        return sp.csc_array(total)

    def solution(self, b: Array) -> Later:
        """By SuperLU, or where A is singular the one of least norm, by LAPACK; of each grid in b."""

        def find() -> np.ndarray:
            right = np.asarray(b)
            dtype = np.result_type(right, np.float64)
            A, columns = self.matrix().astype(dtype), right.reshape(-1, prod(self.grid)).T.astype(dtype)
            singular = not self.shift
            found = np.linalg.lstsq(A.toarray(), columns)[0] if singular else scipy.sparse.linalg.splu(A).solve(columns)
            return found.T.reshape(right.shape)

        return Later(find)

    def __call__(self, u: Any) -> Any:
        """The product, as it is written with shifts of arrays."""
        found, rank = self.shift * u, len(self.grid)
        for axis, (n, kind) in enumerate(zip(self.grid, self.kinds)):
            A = along(n, kind).astype(u.real.dtype)
            on_axis = partial(np.reshape, shape=[-1 if k == axis else 1 for k in range(rank)])
            found = found + on_axis(np.diag(A)) * u
            if kind == "periodic":
                found = found - jnp.roll(u, 1, axis - rank) - jnp.roll(u, -1, axis - rank)
                continue
            step = tuple(int(k == axis) for k in range(rank))
            up, low = np.append(np.diag(A, 1), 0), np.append(0, np.diag(A, -1))
            found = found + on_axis(up) * shifted(u, step) + on_axis(low) * shifted(u, tuple(-s for s in step))
        return found


def solved(b: Any, *, A: Sum, method: str = "fast-direct", rtol: float = 1e-13, **settings: Any) -> Any:
    return linear_solve(A, b, method=method, rtol=rtol, batch_ndim=b.ndim - len(A.grid), **settings).x


def of_stencil(b: Any, **settings: Any) -> Any:
    """A matrix of numbers, and flat vectors."""
    A = Stencil([4.3, -1.0, -1.0, -1.0, -1.0], [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], (16, 24))
    return linear_solve(A, b, **{"method": "fast-direct", "rtol": 1e-13} | settings).x


def near(b: Any, *, precision: str | None, **settings: Any) -> Any:
    """By CG with the inverse of a nearby matrix, and how many iterations that took."""
    M: Any = "fast"
    if precision is not None:
        with jax.ensure_compile_time_eval():
            M = preconditioner(varying, "fast", like=jnp.zeros(b.shape), precision=precision)
    found = linear_solve(varying, b, method="CG", preconditioner=M, rtol=1e-12, **settings)
    return found.x, {"iterations": found.iterations}


def by_coefficient(b: Any, k: Any, *, A: Sum, **known: Any) -> Any:
    """The gradient of half the square of x by a coefficient, with the inverse of A as the preconditioner."""
    with jax.ensure_compile_time_eval():
        M = preconditioner(A, "fast", like=jnp.zeros(A.grid))

    def energy(k: Any) -> Any:
        settings = {"method": "CG", "preconditioner": M, "rtol": 1e-13, "args": (k,)} | known
        return 0.5 * jnp.sum(linear_solve(lambda u, k: A(u) + k * u, b, **settings).x ** 2)

    return jax.grad(energy)(k)


def inverted(b: Any, *, A: Sum, transposed: bool = False, sharding: Any) -> Any:
    """The inverse by itself, which is applied once."""
    bk = get_backend("jax")
    with jax.ensure_compile_time_eval():
        M = fast_inverse(as_operator(A, like=jnp.zeros(A.grid, b.dtype)))
    M = M.transpose() if transposed else M
    return M.on_cells(b[None], bk.cut_of(b, 0, sharding))[0]


def varying(u: Any) -> Any:
    """Points on a square with coefficients that vary smoothly along both axes, and are not separable."""
    n = u.shape[-1]
    k = 1 + 0.5 * np.outer(np.sin(np.linspace(0, 3, n + 1)), np.cos(np.linspace(0, 3, n + 1)))
    first, second = (k[:, 1:] + k[:, :-1]) / 2, (k[1:] + k[:-1]) / 2
    found = (first[1:] + first[:-1] + second[:, 1:] + second[:, :-1]) * u
    for step, face in (((1, 0), first[1:]), ((-1, 0), first[:-1]), ((0, 1), second[:, 1:]), ((0, -1), second[:, :-1])):
        found = found - face * shifted(u, step)
    return found


def numbers(shape: Sequence[int], dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=shape)
    return (found + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else found).astype(dtype)


SLAB, BLOCKS = ("line", ("i",)), ("2x2", ("i", "j"))
PENCILS, CUBE = ("2x2", ("i", "j", None)), ("2x2x2", ("i", "j", "k"))
CUTS: dict[str, tuple[str, tuple[Any, ...], tuple[int, ...]]] = {  # mesh, spec, grid
    "slab": (*SLAB, (64, 64)),
    "columns": ("line", (None, "i"), (16, 24)),
    "blocks": (*BLOCKS, (64, 64)),
    "blocks in other order": ("2x2", ("j", "i"), (16, 24)),
    "both mesh axes on rows": ("2x2", (("j", "i"), None), (16, 24)),
    "eight rows": ("8", ("i",), (16, 6)),
    "pencils": (*PENCILS, (16, 16, 16)),
    "cube": (*CUBE, (16, 16, 16)),
    "cube, uneven pieces": ("2x2x2", ("k", "j", "i"), (6, 10, 14)),
    "blocks, uneven pieces": (*BLOCKS, (14, 10)),
    "slab, fewer columns than devices": (*SLAB, (16, 3)),
    "two of three, others": ("2x2x2", ("k", None, ("j", "i")), (6, 5, 8)),
}


def cases() -> Iterator[tuple[str, Case]]:
    yield from _inverses()
    yield from _solves()


def _inverses() -> Iterator[tuple[str, Case]]:
    for name, (mesh, spec, grid) in CUTS.items():
        A, b = Sum(grid, (POINTS,) * len(grid)), numbers(grid)
        yield name, Case(mesh, spec, b, partial(inverted, A=A), A.solution(b), known=True)
    grid = (12, 10, 14)
    for k in range(0, len(ALL_KINDS), 3):
        kinds = tuple(ALL_KINDS[k : k + 3])
        for mesh, spec in (CUBE, PENCILS):
            A, b = Sum(grid, kinds), numbers(grid)
            one = Case(mesh, spec, b, partial(inverted, A=A), A.solution(b), known=True)
            yield f"kinds {k}, {mesh}", one
    A = Sum((12, 16), ("spaced", "periodic"))
    turned = sp.csc_array(A.matrix().T)
    b = numbers(A.grid)
    x = Later(lambda: scipy.sparse.linalg.splu(turned).solve(b.ravel()).reshape(b.shape))
    yield "transposed", Case(*BLOCKS, b, partial(inverted, A=A, transposed=True), x, known=True)
    for dtype in ("float32", "complex64", "complex128"):
        for shift in (0.3, -1.3, *((0.3 + 0.2j,) if dtype[0] == "c" else ())):
            A = Sum((12, 16), (POINTS, "periodic"), shift)
            b = numbers(A.grid, dtype)
            yield f"{dtype}, shift {shift}", Case(*BLOCKS, b, partial(inverted, A=A), A.solution(b), known=True)


def _solves() -> Iterator[tuple[str, Case]]:
    for method, settings in {"fast-direct": {}, "CG with fast": {"method": "CG", "preconditioner": "fast"}}.items():
        for name in ("slab", "columns", "blocks", "cube"):
            mesh, spec, grid = CUTS[name]
            A, b = Sum(grid, (POINTS,) * len(grid)), numbers(grid)
            one = Case(mesh, spec, b, partial(solved, A=A, **settings), A.solution(b), known=True)
            yield f"{method}, {name}", one
            yield f"{method}, {name}, eager", one._replace(known=False, eager=True)
            yield f"{method}, {name}, Explicit", one._replace(known=False, explicit=True)

            def energy(b: Any, A: Sum = A, settings: Any = settings, **known: Any) -> Any:
                return 0.5 * jnp.sum(solved(b, A=A, **settings, **known) ** 2)

            yield f"{method}, {name}, gradient", one._replace(solve=jax.grad(energy), expected=A.solution(one.expected))
        for named, kind in (("slopes", SLOPES), ("periodic", "periodic")):
            A = Sum((16, 16), (kind, kind), 0.0)
            b = numbers(A.grid)
            b -= b.mean()
            singular = Case(*BLOCKS, b, partial(solved, A=A, **settings), A.solution(b), known=True)
            yield f"{method}, singular, {named}", singular
        A, b = Sum((16, 24), (POINTS, POINTS)), numbers((384,))
        flat = Case("line", ("i",), b, partial(of_stencil, **settings), A.solution(b), known=True)
        yield f"{method}, flat", flat
        A, many = Sum((16, 16), (POINTS, "periodic")), numbers((8, 16, 16))
        batch = Case("2x2", ("i", "j", None), many, partial(solved, A=A, **settings), A.solution(many), known=True)
        yield f"{method}, batch and rows", batch
        yield f"{method}, batch alone", batch._replace(mesh="line", spec=("i", None, None))
    b = numbers((16, 16))
    x = exact(varying, b)
    for precision in (None, "single"):
        solve = partial(near, precision=precision)
        one = Case(*BLOCKS, b, solve, x, known=True)
        yield f"a nearby matrix, precision {precision}", one
        yield f"a nearby matrix, precision {precision}, eager", one._replace(known=False, eager=True)
    A, k = Sum((16, 16), (POINTS, "periodic")), numbers((16, 16)) ** 2
    whole = A.matrix().toarray() + np.diag(k.ravel())
    x = np.linalg.solve(whole, b.ravel())
    expected = -(x * np.linalg.solve(whole.T, x)).reshape(b.shape)
    one = Case(*BLOCKS, b, partial(by_coefficient, A=A), expected, arrays=[(k, ("i", "j"))], known=True)
    yield "gradient by a coefficient", one
    yield "gradient by a coefficient, eager", one._replace(known=False, eager=True)
