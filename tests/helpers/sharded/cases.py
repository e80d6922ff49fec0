"""A solve that is spread over a device mesh, and what its program and its result show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from collectives import Message, constants, messages

NAMES = ("i", "j", "k")
MESHES = {
    "line": (4,), "rows": (4, 1), "columns": (1, 4), "2x2": (2, 2), "2x2x1": (2, 2, 1), "2x2x2": (2, 2, 2),
    "8 rows": (8, 1), "4x2": (4, 2), "8": (8,),
}  # fmt: skip
STAR = {(0, 0): 4.1, (-1, 0): -1.0, (1, 0): -1.0, (0, -1): -1.0, (0, 1): -1.0}


class Later:
    """An array that is computed when it is used: most runs look at few cases."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self.find = cache(find)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.find(), dtype)

    def reshape(self, *shape: int) -> Later:
        return Later(lambda: np.asarray(self).reshape(*shape))


Array = np.ndarray | Later


class Case(NamedTuple):
    """One solve.

    Attributes:
        mesh: a name of `MESHES`; its axes are called i, j, k.
        spec: mesh axes of the axes of b.
        b: the right-hand side.
        solve: of the spread b, the spread `arrays` and, where `known`, `sharding=`; returns x, or x and a dictionary
            of numbers that are to be reported, such as counts of iterations.
        expected: x, found by other means; as b it may be an array that is computed `Later`.
        arrays: what else is an argument of the program, with specs.
        explicit: has the mesh Explicit axes, as those of `jax.make_mesh`?
        known: is the solve told by `sharding=` how b is spread? Not needed eagerly and with Explicit axes.
        eager: is it called as it is, without `jax.jit`? Then there is no program to look at.
    """

    mesh: str
    spec: tuple[Any, ...]
    b: Array
    solve: Callable[..., Any]
    expected: Array
    arrays: Sequence[tuple[np.ndarray, tuple[Any, ...]]] = ()
    explicit: bool = False
    known: bool = False
    eager: bool = False

    @property
    def devices(self) -> int:
        """How many it needs."""
        return prod(MESHES[self.mesh])


def look(case: Case) -> dict[str, Any]:
    """What the solve shows, or under "raised" what it says.

    Returns:
        error: the largest of x, relative to the largest entry of `expected`.
        spread: is x spread as b is?
        step, rest: how many messages of each kind there are in a step, and before and after all steps.
        step_bytes, rest_bytes: how many bytes each device gets by them.
        largest: bytes of the largest gather, reduction or all-to-all anywhere; a vector of one device has `part`.
        constants: bytes of the largest constant of the program, which lies on each device in full.
        temporary, arguments: bytes of memory on each device.
    """
    shape, names = MESHES[case.mesh], NAMES[: len(MESHES[case.mesh])]
    types = (AxisType.Explicit if case.explicit else AxisType.Auto,) * len(shape)
    mesh = Mesh(np.array(jax.devices()[: prod(shape)]).reshape(shape), names, axis_types=types)

    def put(array: np.ndarray, spec: tuple[Any, ...]) -> Any:
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))

    b = put(np.asarray(case.b), case.spec)
    arrays = [put(*one) for one in case.arrays]
    solve = partial(case.solve, sharding=b.sharding) if case.known else case.solve
    try:
        if case.eager:
            return _result(case, b, solve(b, *arrays))
        program = jax.jit(solve).lower(b, *arrays).compile()
        return _result(case, b, program(b, *arrays)) | of_program(program)
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}


def of_program(program: Any) -> dict[str, Any]:
    """What a compiled program of a solve shows, see `look`."""
    text = program.as_text()
    found, memory = messages(text), program.memory_analysis()
    step, rest = ([one for one in found if one.in_step is inside] for inside in (True, False))
    moved = [one.bytes for one in found if one.kind != "collective-permute"]
    return {
        "step": _count(step, lambda one: one.times), "step_bytes": _count(step, lambda one: one.times * one.bytes),
        "rest": _count(rest, lambda one: 1), "rest_bytes": _count(rest, lambda one: one.times * one.bytes),
        "largest": max(moved, default=0), "constants": max(constants(text), default=0),
        "temporary": memory.temp_size_in_bytes, "arguments": memory.argument_size_in_bytes,
    }  # fmt: skip


def _count(found: list[Message], weight: Callable[[Message], int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in found:
        counts[one.kind] = counts.get(one.kind, 0) + weight(one)
    return counts


def _result(case: Case, b: Any, found: Any) -> dict[str, Any]:
    x, numbers = found if isinstance(found, tuple) else (found, {})
    expected = np.asarray(case.expected)
    error = float(np.abs(np.asarray(x) - expected).max() / np.abs(expected).max())
    spread = x.shape == b.shape and x.sharding.is_equivalent_to(b.sharding, b.ndim)
    own = {"error": error, "spread": bool(spread), "part": b.nbytes // case.devices}
    return own | {name: np.asarray(number).tolist() for name, number in numbers.items()}


def shifted(u: Any, shift: tuple[int, ...]) -> Any:
    """u(x - shift) on the last axes, with zeros coming in."""
    widths = [(0, 0)] * (u.ndim - len(shift)) + [(-s, s) for s in shift]
    return lax.pad(u, jnp.zeros((), u.dtype), [(*w, 0) for w in widths])


def star(u: Any, coefficients: Any = STAR) -> Any:
    """Five points, or others."""
    return sum(c * shifted(u, shift) for shift, c in coefficients.items())


def periodic(u: Any) -> Any:
    """Five points on a torus, whose null vectors are constants."""
    return 4 * u - sum(jnp.roll(u, s, axis) for s in (1, -1) for axis in (-1, -2))


def dense(function: Callable[[Any], Any], shape: Sequence[int], dtype: Any = float) -> np.ndarray:
    """The matrix of a linear function on grids of a shape."""
    n = prod(shape)
    return np.asarray(jax.jit(jax.vmap(function))(np.eye(n, dtype=dtype).reshape(n, *shape))).reshape(n, n).T


def exact(function: Callable[[Any], Any], b: Array, axes: int = 2) -> Later:
    """The solution of least norm by NumPy, of each grid in b, whose last axes are those of the grid."""

    def find() -> np.ndarray:
        right = np.asarray(b)
        grid = right.shape[-axes:]
        A = dense(function, grid, right.dtype)
        return np.linalg.lstsq(A, right.reshape(-1, prod(grid)).T)[0].T.reshape(right.shape)

    return Later(find)
