"""Messages between the blocks of arrays on eight virtual devices, beside NumPy: prints a line of JSON for each case.

The end tests devices themselves, because a process with several of them takes seconds to begin.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from fast_compilation import virtual_devices

os.environ.update(virtual_devices(8))

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from krylix.backends import get_backend
from several_devices import check_several_devices

SPECS = [(None, "i", "j"), ("i", None, "j"), (None, ("i", "j"), None), (None, None, ("j", "i")), (None, "j", None)]
PERIODIC = (True, False)
GRID = (8, 16)


def last_first(u: Any, axis: int, step: int) -> Any:
    """`u[x + step]` of NumPy's array on the whole grid, for a step of one."""
    moved = np.roll(u, -step, axis)
    if not PERIODIC[axis - 1]:
        moved[(slice(None),) * axis + (-1 if step > 0 else 0,)] = 0
    return moved


def results(bk: Any, cut: Any, x: Any) -> dict[str, Any]:
    axes = cut.axes(PERIODIC)

    def shifted(u: Any, axis: int, step: int) -> Any:
        n, cut_axis = u.shape[axis], axes[axis - 1]
        last = jax.lax.slice_in_dim(u, 0, 1, axis=axis) if step > 0 else jax.lax.slice_in_dim(u, n - 1, n, axis=axis)
        if not isinstance(cut_axis, bool):
            last = bk.from_neighbour(last, cut_axis, step)
        elif not cut_axis:
            last = 0 * last
        kept = jax.lax.slice_in_dim(u, *((1, n) if step > 0 else (0, n - 1)), axis=axis)
        return jnp.concatenate([kept, last] if step > 0 else [last, kept], axis)

    def local(u: Any) -> dict[str, Any]:
        found = {f"shift {axis} {step}": shifted(u, axis, step) for axis in (1, 2) for step in (-1, 1)}
        names = next(n for n in cut.names if n)
        number = bk.part_index(names)
        found["sum"] = bk.sum_over(jnp.sum(u, (1, 2)), cut.all_names)
        found["maximum"] = bk.max_over(jnp.max(u, (1, 2)), cut.all_names)
        last = cut.size_of(names) - 1
        first = bk.permuted(u, names, [(last, 0)])
        found["the last one's"] = jnp.where(number == 0, first, u)
        cut_axis = 1 + cut.names.index(names)
        whole = bk.all_gathered(u, names, cut_axis)
        found["gathered"] = jax.lax.dynamic_slice_in_dim(whole, number * u.shape[cut_axis], u.shape[cut_axis], cut_axis)
        found["ordered"] = bk.ordered_after(u, whole)
        other = 3 - cut_axis
        there = bk.all_to_all(u, names, other, cut_axis) if not cut.names[other - 1] else whole
        found["there and back"] = bk.all_to_all(there, names, cut_axis, other) if there is not whole else u
        return found

    leads = {f"shift {axis} {step}": 1 for axis in (1, 2) for step in (-1, 1)}
    leads |= {"sum": None, "maximum": None, "the last one's": 1, "gathered": 1, "ordered": 1, "there and back": 1}
    return bk.map_parts(local, cut, [x], [1], leads) if not cut.batch else bk.map_parts(
        lambda u: {k: v for k, v in local(u).items() if leads[k]}, cut, [x], [1], {k: 1 for k, v in leads.items() if v}
    )  # fmt: skip


def expected(cut: Any, b: np.ndarray) -> dict[str, np.ndarray]:
    found = {f"shift {axis} {step}": last_first(b, axis, step) for axis in (1, 2) for step in (-1, 1)}
    axis = next(k for k, names in enumerate(cut.names, 1) if names)
    size = b.shape[axis] // cut.parts[axis - 1]
    last = b.copy()
    block = [slice(None)] * 3
    block[axis] = slice(0, size)
    from_last = [slice(None)] * 3
    from_last[axis] = slice(-size, None)
    last[tuple(block)] = b[tuple(from_last)]
    whole = {"the last one's": last, "gathered": b, "ordered": b, "there and back": b}
    return found | whole | {"sum": b.sum((1, 2)), "maximum": b.max((1, 2))}


def main() -> None:
    bk = get_backend("jax")
    b = np.random.default_rng(0).normal(size=(2, *GRID))
    for i, kind in enumerate((AxisType.Auto, AxisType.Explicit)):
        mesh = jax.make_mesh((2, 4), ("i", "j"), axis_types=(kind,) * 2)
        for spec in SPECS if "all" in sys.argv else SPECS[i::2]:
            x = jax.device_put(b, NamedSharding(mesh, PartitionSpec(*spec)))
            cut = bk.cut_of(x, 1)
            found, want = jax.jit(lambda x, cut=cut: results(bk, cut, x))(x), expected(cut, b)
            spread = bk.spread_over(jnp.asarray(b), cut, 1)
            assert spread.sharding.is_equivalent_to(x.sharding, x.ndim)
            rows = bk.on_grid(bk.reshape(jnp.asarray(b), (2, -1)), GRID)
            found["cells"] = bk.cells(rows, GRID)
            found["rows"] = bk.cells(bk.as_rows(bk.cells(rows, GRID), rows), GRID)
            want |= {"cells": b, "rows": b}
            errors = {name: float(np.abs(np.asarray(a) - want[name]).max()) for name, a in found.items()}
            print(json.dumps({"axes": kind.name, "spec": str(spec), "parts": cut.parts, "errors": errors}), flush=True)
    check_several_devices("jax", 8)


if __name__ == "__main__":
    main()
