"""Solves with multigrid on grids that are cut; `expected` by SciPy's factors, `alone` iterations of one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve, preconditioner

from .cases import NAMES, Case, Later, of_program, shifted

Values = dict[tuple[int, ...], np.ndarray]
TOLERANCE = 1e-9


def around(field: np.ndarray, axis: int, step: int, ring: bool) -> np.ndarray:
    """The field at the next point; on an open axis the last value again."""
    there = np.arange(field.shape[axis]) + step
    n = field.shape[axis]
    return field.take(there % n if ring else there.clip(0, n - 1), axis)


def diffusion(field: np.ndarray, rings: tuple[bool, ...], absorbing: float = 0.0) -> Values:
    """Stencil coefficients of -div(field grad u) + absorbing u; zero outside of open axes."""
    axes, values = field.ndim, dict[tuple[int, ...], np.ndarray]()
    diagonal = np.full(field.shape, absorbing)
    for axis in range(axes):
        for step in (-1, 1):
            other = around(field, axis, step, rings[axis])
            face = 2 * field * other / (field + other)
            diagonal = diagonal + face
            coupling = -face
            if not rings[axis]:
                edge: list[Any] = [slice(None)] * axes
                edge[axis] = slice(-1, None) if step > 0 else slice(0, 1)
                coupling[tuple(edge)] = 0
            values[tuple(step if k == axis else 0 for k in range(axes))] = coupling
    return {(0,) * axes: diagonal, **values}


def matrix(values: Values, rings: tuple[bool, ...]) -> sp.csr_array:
    """The matrix, by SciPy."""
    grid = next(iter(values.values())).shape
    points = np.arange(prod(grid)).reshape(grid)
    parts = []
    for shift, a in values.items():
        cols = points
        for axis, step in enumerate(shift):
            cols = np.roll(cols, -step, axis)
        kept = a.ravel() != 0
        parts.append((a.ravel()[kept], points.ravel()[kept], cols.ravel()[kept]))
    data, rows, cols = map(np.concatenate, zip(*parts))
    return sp.csr_array((data, (rows, cols)), (prod(grid),) * 2)


def product(u: Any, values: Any, shifts: Any, rings: tuple[bool, ...]) -> Any:
    """A u on the last axes; `values` along their first axis."""
    total = 0
    for a, shift in zip(values, shifts):
        moved = u
        for axis, step in enumerate(shift):
            if step and rings[axis]:
                moved = jnp.roll(moved, -step, axis - len(shift))
            elif step:
                moved = shifted(moved, tuple(step if k == axis else 0 for k in range(len(shift))))
        total = total + a * moved
    return total


class Problem:
    """A system, and ways to solve it."""

    def __init__(self, values: Values, rings: tuple[bool, ...], b: np.ndarray, method: str = "CG", **settings: Any):
        self.values, self.rings, self.b, self.method, self.settings = values, rings, b, method, settings
        self.shifts = tuple(values)
        self.stacked = np.stack([*values.values()])

    def found(self) -> np.ndarray:
        """By a factorisation; of least norm where A is singular."""
        A, rows = matrix(self.values, self.rings), self.b.reshape(-1, self.stacked[0].size)
        if np.any(np.abs(A.sum(1)) > 1e-12):
            return spl.splu(A.tocsc()).solve(rows.T).T.reshape(self.b.shape)
        ones = np.ones((A.shape[0], 1))  # on a torus: whose sum is zero
        bordered = spl.splu(sp.block_array([[A, ones], [ones.T, None]], format="csc"))
        return bordered.solve(np.pad(rows, [(0, 0), (0, 1)]).T)[:-1].T.reshape(self.b.shape)

    @property
    def alone(self) -> int:
        """Iterations on one device, with the same coarsest grid."""
        A = matrix(self.values, self.rings)
        M = preconditioner(A, "multigrid", grid=self.stacked[0].shape, **{"direct": 256, **self.settings})
        b = self.b.reshape(-1, A.shape[0])
        found = linear_solve(A, b, method=self.method, preconditioner=M, rtol=TOLERANCE)
        return int(np.max(found.iterations))

    def function(self, values: Any) -> Callable[[Any], Any]:
        return partial(product, values=values, shifts=self.shifts, rings=self.rings)

    def solve(self, b: Any, values: Any = None, **more: Any) -> Any:
        """Coefficients are arguments of the program, or known."""
        A = partial(product, shifts=self.shifts, rings=self.rings)
        args = (self.stacked if values is None else values,)
        given: dict[str, Any] = {"method": self.method, "rtol": TOLERANCE, "on_failure": "status", **more}
        if self.settings:
            raise ValueError("settings are for prepared preconditioners")
        batch_ndim = b.ndim - len(self.rings)
        r = linear_solve(A, b, preconditioner="multigrid", args=args, batch_ndim=batch_ndim, **given)
        x = r.x if values is None else self._without_constants(r.x)
        return x, {"iterations": jnp.max(r.iterations), "alone": self.alone}

    def derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the sum of sin(x) by b, and by the coefficients, of the adjoint equation."""
        A, grid = matrix(self.values, self.rings), self.b.shape
        x = self.found()
        y = spl.splu(A.T.tocsc()).solve(np.cos(x).ravel()).reshape(grid)
        axes = tuple(range(len(grid)))
        return y, np.stack([-y * np.roll(x, tuple(-s for s in shift), axes) for shift in self.shifts])

    def gradient(self, b: Any, values: Any, sharding: Any, again: bool = False) -> Any:
        """By b, with the error of that by the coefficients, where these are not zero; or one of second order."""

        def loss(b: Any, values: Any) -> Any:
            A = partial(product, shifts=self.shifts, rings=self.rings)
            settings = {"method": self.method, "rtol": 1e-11, "on_failure": "status", "sharding": sharding}
            return jnp.sum(jnp.sin(linear_solve(A, b, args=(values,), preconditioner="multigrid", **settings).x))

        if again:  # along b itself, of the gradient by b
            return jax.jvp(lambda b: jax.grad(loss)(b, values), (b,), (b,))[1], {}
        by_b, by_values = jax.grad(loss, (0, 1))(b, values)
        error = jnp.max(jnp.abs(jnp.where(self.stacked != 0, by_values - self.derivatives()[1], 0)))
        return by_b, {"coefficients": error / jnp.max(jnp.abs(by_values))}

    def second_derivative(self) -> np.ndarray:
        """Of the sum of sin(x) by b, along b."""
        A, x = matrix(self.values, self.rings), self.found()
        return spl.splu(A.T.tocsc()).solve((-np.sin(x) * x).ravel()).reshape(x.shape)

    def _without_constants(self, x: Any) -> Any:
        """Where A is singular: in a program that gets the values as arguments nobody knows it."""
        return x - jnp.mean(x) if all(self.rings) and not np.any(np.sum(self.stacked, 0) > 1e-12) else x

    def prepared(self, b: Any) -> Any:
        """Set up with known coefficients, and solved with in a program that gets the levels as arguments."""
        A = self.function(self.stacked)
        M = preconditioner(A, "multigrid", like=b, **self.settings)
        settings = {"method": self.method, "rtol": TOLERANCE, "on_failure": "status", "sharding": b.sharding}
        arguments = jax.device_put(self.stacked, _behind(b.sharding))

        def run(b: Any, M: Any, values: Any) -> Any:
            r = linear_solve(self.function(values), b, preconditioner=M, **settings)
            return r.x, r.iterations

        program = jax.jit(run).lower(b, M, arguments).compile()
        x, iterations = program(b, M, arguments)
        numbers = {"iterations": iterations, "alone": self.alone, "note": M.note}
        return self._without_constants(x), numbers | of_program(program)


def _behind(sharding: Any) -> Any:
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(None, *sharding.spec))


def smooth(grid: tuple[int, ...], rings: tuple[bool, ...] | None = None) -> np.ndarray:
    """A coefficient between e^-2 and e^2."""
    x = np.meshgrid(*(np.arange(n) / n for n in grid), indexing="ij")
    phase = 2 * np.pi if rings is not None and any(rings) else 5.0
    return np.exp(2 * np.sin(phase * x[0]) * np.cos(phase * x[-1]))


def blocks(grid: tuple[int, ...], size: int, contrast: float) -> np.ndarray:
    """A coefficient of 1 or `contrast` in blocks."""
    few = tuple(-(-n // size) for n in grid)
    found = np.where(np.random.default_rng(3).random(few) < 0.5, 1.0, contrast)
    for axis in range(len(grid)):
        found = found.repeat(size, axis)
    return found[tuple(map(slice, grid))]


def open_problem(field: np.ndarray, **more: Any) -> Problem:
    """With Dirichlet's conditions on all sides, and a random right-hand side."""
    rings = (False,) * field.ndim
    values = diffusion(field, rings)
    return Problem(values, rings, np.random.default_rng(1).normal(size=field.shape), **more)


def with_obstacles(problem: Problem) -> Problem:
    """Points that are coupled to nothing, some in a block, some alone."""
    grid = problem.stacked[0].shape
    wall = np.random.default_rng(5).random(grid) < 0.2
    wall[grid[0] // 4 : grid[0] // 2, grid[1] // 2 - 2 : grid[1] // 2 + 3] = True
    values = {}
    for shift, a in problem.values.items():
        there = wall
        for axis, step in enumerate(shift):
            there = np.roll(there, -step, axis)
        values[shift] = np.where(wall, 0.0 if any(shift) else 1.0, np.where(there, 0.0 if any(shift) else a, a))
    return Problem(values, problem.rings, problem.b, problem.method)


def windy(grid: tuple[int, int]) -> Problem:
    """Diffusion in a wind from one side: not symmetric."""
    values = diffusion(smooth(grid), (False, False))
    values[-1, 0] = 1.8 * values[-1, 0]
    values[1, 0] = 0.4 * values[1, 0]
    values[0, 0] = 0.01 - sum(a for shift, a in values.items() if any(shift))
    return Problem(values, (False, False), np.random.default_rng(1).normal(size=grid), "biCG-stab(2)")


def cases() -> Iterator[tuple[str, Case]]:
    """Names and cases; most solve with coefficients that are arguments of the program."""

    def case(problem: Problem, mesh: str, spec: tuple[Any, ...] | None = None, how: str = "traced") -> Case:
        spec = NAMES[: len(problem.rings)] if spec is None else spec
        grid = spec[len(spec) - len(problem.rings) :]
        settings = {"mesh": mesh, "spec": spec, "b": problem.b, "expected": Later(problem.found)}
        if how == "prepared":
            return Case(solve=problem.prepared, eager=True, **settings)
        if how == "traced":
            return Case(solve=problem.solve, arrays=[(problem.stacked, (None, *grid))], known=True, **settings)
        return Case(solve=problem.solve, known=how == "known", eager=how == "eager", **settings)

    plain = open_problem(smooth((64, 64)))
    for mesh in ("rows", "columns", "2x2", "4x2"):
        for how in ("traced", "known", "prepared", "eager"):
            yield f"smooth, {mesh}, {how}", case(plain, mesh, how=how)
    yield "smooth, explicit, traced", case(plain, "2x2")._replace(explicit=True, known=False)
    yield "two mesh axes on one", case(plain, "2x2", (("j", "i"), None), "prepared")
    yield "mesh axes swapped", case(plain, "2x2", ("j", "i"), "prepared")
    for how in ("traced", "prepared"):
        yield f"aligned blocks, {how}", case(open_problem(blocks((56, 56), 7, 1e4)), "2x2", how=how)
        yield f"other blocks, {how}", case(open_problem(blocks((64, 64), 5, 1e6)), "2x2", how=how)
        yield f"obstacles, {how}", case(with_obstacles(plain), "2x2", how=how)
        yield f"wind, {how}", case(windy((64, 64)), "2x2", how=how)
        for n in ((56, 100), (52, 72)):
            yield f"{n[0]}x{n[1]}, {how}", case(open_problem(smooth(n)), "2x2", how=how)
        yield f"3-d, {how}", case(open_problem(smooth((16, 24, 16))), "2x2", ("i", None, "j"), how)
        yield f"flat, {how}", case(open_problem(smooth((48, 1, 32))), "rows", ("i", None, None), how)
        yield f"3-d, 8 devices, {how}", case(open_problem(smooth((16, 32, 16))), "2x2x2", how=how)
        yield f"line, {how}", case(open_problem(smooth((1024,))), "line", how=how)
        for name, rings in {"both axes": (True, True), "first axis": (True, False), "last axis": (False, True)}.items():
            values = diffusion(smooth((64, 48), rings), rings, 0.02)
            ring = Problem(values, rings, plain.b[:, :48])
            yield f"ring, {name}, {how}", case(ring, "2x2", how=how)
            yield f"ring, {name}, rows, {how}", case(ring, "rows", how=how)
        b = plain.b[:, :48] - plain.b[:, :48].mean()
        torus = Problem(diffusion(smooth((64, 48), (True, True)), (True, True)), (True, True), b)
        yield f"torus, {how}", case(torus, "2x2", how=how)
        if how == "prepared":
            yield "torus, known", case(torus, "2x2", how="known")
        negative = Problem({s: -a for s, a in plain.values.items()}, plain.rings, plain.b)
        yield f"negative, {how}", case(negative, "2x2", how=how)
    thin = {s: a * (1e-3 if s[1] else 1.0) for s, a in diffusion(smooth((64, 64)), (False, False)).items() if any(s)}
    thin[0, 0] = 1e-4 - sum(thin.values())
    yield "weak axis", case(Problem(thin, plain.rings, plain.b), "2x2", how="prepared")
    for name, settings in {"W": {"cycle": "W"}, "single": {"precision": "single"}, "degree": {"degree": 3}}.items():
        yield f"setting, {name}", case(open_problem(smooth((64, 64)), **settings), "2x2", how="prepared")
    for name, problem in {"symmetric": open_problem(smooth((32, 32))), "wind": windy((32, 32))}.items():
        one = case(problem, "2x2")
        first = Later(lambda problem=problem: problem.derivatives()[0])
        yield f"gradient, {name}", one._replace(solve=problem.gradient, expected=first)
        yield f"gradient, {name}, eager", one._replace(solve=partial(problem.gradient, sharding=None), eager=True,
                                                       known=False, expected=first)  # fmt: skip
        second = Later(problem.second_derivative)
        yield f"second derivative, {name}", one._replace(solve=partial(problem.gradient, again=True), expected=second)
    many = Problem(plain.values, plain.rings, np.random.default_rng(2).normal(size=(4, 64, 64)))
    specs = {"whole": (None, "i", "j"), "spread": ("i", "j", None), "alone": (("i", "j"), None, None)}
    for name, spec in specs.items():
        for how in ("known", "eager"):
            yield f"batch, {name}, {how}", case(many, "2x2", spec, how)
    yield "weak scaling, 4x2", case(open_problem(smooth((128, 64))), "4x2", how="prepared")
    yield "128, 4x2", case(open_problem(smooth((128, 128))), "4x2", how="prepared")
    yield "128, 2x2", case(open_problem(smooth((128, 128))), "2x2", how="prepared")
    yield "112 blocks, 2x2", case(open_problem(blocks((112, 112), 8, 1e4)), "2x2", how="prepared")
    yield "32^3, 2x2x1", case(open_problem(smooth((32, 32, 32))), "2x2x1", how="prepared")
    yield "32^3, 2x2x2", case(open_problem(smooth((32, 32, 32))), "2x2x2", how="prepared")
