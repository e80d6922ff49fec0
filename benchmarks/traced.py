"""Coefficients that are arguments of a compiled JAX function: `auto` beside methods by name, SOLVAX and sparsax.

Each call has coefficients that no call had before, except where a row says "the same values". "Value and gradient" is
that of a weighted sum of x with respect to all arguments. Those of other libraries are compared before they are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import SolveResult, linear_solve, set_global_setup_cache

from .measure import Comparison, Sampler, compare, seconds
from .mesh_problems import roads
from .pressure import operator as closed_box
from .pressure import pillars
from .problems import convection_step, nodal_circuit
from .settings import Settings, missing
from .table import Row

RTOL = 1e-8
NOTE = "In `traced`, CG is to take at most 30 iterations where a mask is an argument."
BY_NAME = {"CG + multigrid": ("CG", "multigrid"), "CG + amg": ("CG", "amg")}
FACTORS = ("sparse-direct", "scipy-direct")

Arguments = Callable[[], tuple[Any, ...]]  # makes coefficients and a right-hand side
Solvers = dict[str, Callable[..., Any] | None]  # of the arguments, `auto` first; None: not installed
Limits = dict[str, float]  # of `auto`: its seconds, and by peer the ratio


class Solved(NamedTuple):
    x: Any


class Program:
    """A compiled function: seconds to trace and compile it, seconds of the first call in all, what that returned."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        import jax

        made: list[Any] = []
        self.compiling = seconds(lambda: made.append(jax.jit(function).lower(*arguments).compile()))
        self.run = lambda *p: jax.block_until_ready(made[0](*p))
        self.first_call = self.compiling + seconds(lambda: made.append(self.run(*arguments)))
        self.found = made[1]

    def sampler(self, new: Arguments) -> Sampler:
        def sample() -> float:
            arguments = new()
            return seconds(lambda: self.run(*arguments))

        return sample


Programs = dict[str, Program | None]


def rows(settings: Settings) -> Iterator[Row]:
    settings = replace(settings, repeats=min(settings.repeats, 5))
    if missing("jax"):
        yield Row("coefficients as arguments", "methods by name", missing="jax is not installed")
        return
    set_global_setup_cache(True)  # as it is by default: values are new, patterns are not
    try:
        for kind, limits in {"smooth": (0.060, 0.130), "rough": (0.100, 0.220)}.items():
            yield from grid_rows(kind, limits, settings)
        yield from mask_rows(settings)
        yield from matrix_rows(settings)
    finally:
        set_global_setup_cache(False)


def compiled(solvers: Solvers, arguments: tuple[Any, ...]) -> Programs:
    return {name: None if solver is None else Program(solver, arguments) for name, solver in solvers.items()}


def with_gradients(solvers: Solvers, arguments: tuple[Any, ...]) -> Programs:
    """Programs of the value and the gradient of a weighted sum of x."""
    import jax
    import jax.numpy as jnp

    w = np.random.default_rng(1).standard_normal(arguments[-1].shape)
    every = tuple(i for i, p in enumerate(arguments) if p.dtype.kind == "f")

    def differentiated(solver: Callable[..., Any]) -> Callable[..., Any]:
        return jax.value_and_grad(lambda *p: jnp.sum(w * solver(*p).x), every)

    return compiled({name: solver and differentiated(solver) for name, solver in solvers.items()}, arguments)


def beside(what: str, programs: Programs, new: Arguments, limits: Limits, settings: Settings) -> Iterator[Row]:
    """`auto` beside each of the others, for new arguments in each call."""
    yield from pairs(what, programs, limits, lambda *both: compare(*(p.sampler(new) for p in both), settings.repeats))


def once(what: str, programs: Programs, limits: Limits, kind: str) -> Iterator[Row]:
    """The same for what was done once: `compiling` or `first_call`."""

    def measured(ours: Program, theirs: Program) -> Comparison:
        return Comparison(getattr(ours, kind), getattr(theirs, kind), getattr(ours, kind) / getattr(theirs, kind))

    yield from pairs(what, programs, limits, measured)


def pairs(
    what: str, programs: Programs, limits: Limits, measured: Callable[[Program, Program], Comparison]
) -> Iterator[Row]:
    """
    Raises:
        RuntimeError: solutions or gradients are not the same.
    """
    ours = programs["auto"]
    assert ours is not None
    for peer, theirs in list(programs.items())[1:]:
        budgets = {"budget": limits.get(peer), "budget_seconds": limits.get("auto")}
        if theirs is None:
            yield Row(f"{what}{method(ours)}", peer, missing="not installed", **budgets)
            continue
        if not isinstance(theirs.found, SolveResult):  # whose residual is checked, and x not unique in a closed box
            agree(f"{what}, auto and {peer}", answers(ours.found), answers(theirs.found))
        yield Row(f"{what}{method(ours)}", f"{peer}{iterations(theirs)}", measured(ours, theirs), **budgets)


def answers(found: Any) -> list[Any]:
    """x, or the gradients beside a value."""
    return [found.x] if hasattr(found, "x") else list(found[1])


def agree(what: str, ours: list[Any], theirs: list[Any]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        difference = float(np.linalg.norm(mine - other) / np.linalg.norm(other))
        if not difference < 1e-4:
            raise RuntimeError(f"{what} differ by {difference:.1e}")


def method(program: Program) -> str:
    """What solved, where the program returns a result."""
    found = program.found
    if not isinstance(found, SolveResult):
        return ""
    kind = "" if found.preconditioner is None else f" + {found.preconditioner}"
    return f": {found.method}{kind}{iterations(program)}"


def iterations(program: Program) -> str:
    return f", {int(program.found.iterations)} iterations" if hasattr(program.found, "iterations") else ""


# ---- functions on grids


def diffusion(u: Any, k: Any) -> Any:
    """-div(k grad u) without 1 / h², u = 0 outside; k has values at the points, and means of them between two."""
    import jax.numpy as jnp

    across, along = edges(k)
    u = jnp.pad(u, 1)
    return -jnp.diff(across * jnp.diff(u[:, 1:-1], axis=0), axis=0) - jnp.diff(
        along * jnp.diff(u[1:-1], axis=1), axis=1
    )


def diagonal(k: Any) -> Any:
    across, along = edges(k)
    return across[1:] + across[:-1] + along[:, 1:] + along[:, :-1]


def edges(k: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    k = jnp.pad(k, 1, mode="edge")
    return (k[1:, 1:-1] + k[:-1, 1:-1]) / 2, (k[1:-1, 1:] + k[1:-1, :-1]) / 2


def grid_rows(kind: str, limits: tuple[float, float], settings: Settings) -> Iterator[Row]:
    import jax.numpy as jnp

    n, rng = settings.grid_of_arguments, np.random.default_rng(0)
    x, y = np.meshgrid(*[np.linspace(0, 1, n)] * 2, indexing="ij")
    log_k = 2.3 * np.sin(6 * x + 1) * np.cos(7 * y) if kind == "smooth" else rng.standard_normal((n, n))
    b = jnp.asarray(rng.standard_normal((n, n)))

    def new() -> tuple[Any, ...]:
        return jnp.exp(rng.uniform(0.95, 1.05) * log_k), b

    def ours(method: str = "auto", kind: str = "auto") -> Callable[..., Any]:
        return lambda k, b: linear_solve(diffusion, b, args=(k,), method=method, preconditioner=kind, rtol=RTOL)

    def solvax(k: Any, b: Any) -> Any:
        from .peers_jax import solvax_multigrid

        return solvax_multigrid(diffusion, diagonal, k, b, RTOL)

    solvers: Solvers = {"auto": ours(), "SOLVAX multigrid": None if missing("solvax") else solvax}
    solvers |= {name: ours(*settings) for name, settings in BY_NAME.items()}
    for what, make, limit in (("solve", compiled, limits[0]), ("value and gradient", with_gradients, limits[1])):
        programs = make(solvers, new())
        name = f"{kind} k, {n}², {what}"
        yield from beside(name, programs, new, {"auto": limit}, settings)
        yield from once(f"{name}, compiling", programs, {"auto": 5.0} if make is compiled else {}, "compiling")


def mask_rows(settings: Settings) -> Iterator[Row]:
    """Obstacles that are an argument: in a closed box, where A is singular, and in a channel with an outlet."""
    import jax.numpy as jnp

    n, rng = settings.grid_of_masks, np.random.default_rng(0)
    free = pillars(n) > 0

    def box(p: Any, free: Any) -> Any:
        return closed_box(free, jnp)(p)

    def channel(p: Any, free: Any) -> Any:
        return jnp.where(free, box(p, free).at[-1].add(2 * p[-1]), p)

    for name, A in {"box": box, "channel": channel}.items():

        def new() -> tuple[Any, ...]:
            mask = np.roll(free, rng.integers(0, n // 8), axis=1)
            b = rng.standard_normal((n, n)) * mask
            return jnp.asarray(mask), jnp.asarray(b - mask * (b.sum() / mask.sum()))

        def ours(method: str = "auto", kind: str = "auto", A: Any = A) -> Callable[..., Any]:
            return lambda free, b: linear_solve(A, b, args=(free,), method=method, preconditioner=kind, rtol=RTOL)

        solvers: Solvers = {"auto": ours()} | {name: ours(*settings) for name, settings in BY_NAME.items()}
        programs = compiled(solvers, new())
        yield from once(f"{name} with obstacles, {n}², first call", programs, {"auto": 3.0}, "first_call")
        yield from beside(f"{name} with obstacles, {n}², solve", programs, new, {}, settings)


# ---- matrices


def matrix_rows(settings: Settings) -> Iterator[Row]:
    grid = settings.grid_of_convection
    yield from factor_rows(
        f"circuit, n = {settings.unknowns}", nodal_circuit(settings.unknowns), settings,
        limits={"sparse-direct": 1.2}, with_gradient={"sparse-direct": 1.2}, same={},
    )  # fmt: skip
    yield from factor_rows(
        f"convection {grid}²", convection_step(grid, 1e3, 1e-2), settings,
        limits={"auto": 0.030}, with_gradient={"auto": 0.040}, same={"auto": 0.004},
    )  # fmt: skip
    yield from beside_splu(roads(4 * settings.unknowns // 5), settings)


class Values:
    """The matrix with a pattern that is known and values that are arguments."""

    def __init__(self, A: sp.csr_array) -> None:
        import jax.numpy as jnp

        A.sum_duplicates()
        entries = A.tocoo()
        self.shape, self.values, self.rng = A.shape, entries.data, np.random.default_rng(0)
        self.row, self.column = entries.row.astype(np.int32), entries.col.astype(np.int32)
        self.index = jnp.asarray(np.stack([self.row, self.column], 1))

    def matrix(self, values: Any) -> Any:
        from jax.experimental.sparse import BCOO

        return BCOO((values, self.index), shape=self.shape, indices_sorted=True, unique_indices=True)

    def new(self) -> tuple[Any, ...]:
        import jax.numpy as jnp

        values = self.values * self.rng.uniform(1, 1.01, len(self.values))
        return jnp.asarray(values), jnp.asarray(self.rng.standard_normal(self.shape[0]))

    def same(self) -> tuple[Any, ...]:
        import jax.numpy as jnp

        return jnp.asarray(self.values), self.new()[1]

    def ours(self, method: str) -> Callable[..., Any]:
        return lambda values, b: linear_solve(self.matrix(values), b, method=method, rtol=RTOL)

    def by_sparsax(self, values: Any, b: Any) -> Solved:
        import sparsax

        return Solved(sparsax.lu_solve(self.row, self.column, values, b))


def factor_rows(
    what: str, A: sp.csr_array, settings: Settings, limits: Limits, with_gradient: Limits, same: Limits
) -> Iterator[Row]:
    A = Values(A)
    solvers: Solvers = {method: A.ours(method) for method in ("auto", *FACTORS)}
    solvers["sparsax"] = None if missing("sparsax") else A.by_sparsax
    programs = compiled(solvers, A.new())
    yield from once(f"{what}, compiling", programs, {}, "compiling")
    yield from beside(f"{what}, solve", programs, A.new, limits, settings)
    yield from beside(f"{what}, solve with the same values", programs, A.same, same, settings)
    yield from beside(f"{what}, value and gradient", with_gradients(solvers, A.new()), A.new, with_gradient, settings)


def beside_splu(A: sp.csr_array, settings: Settings) -> Iterator[Row]:
    host = Values(A)
    program = Program(host.ours("auto"), host.new())

    def splu() -> float:
        values, b = map(np.asarray, host.new())
        matrix = sp.csc_array(sp.csr_array((values, A.indices, A.indptr), A.shape))
        return seconds(lambda: spl.splu(matrix).solve(b))

    what = f"graph of roads, n = {A.shape[0]}, solve{method(program)}"
    yield Row(what, "scipy splu", compare(program.sampler(host.new), splu, settings.repeats), budget=3.0)
