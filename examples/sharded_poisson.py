"""Poisson's equation with obstacles and jumps on eight devices: the right-hand side is spread, and the rest follows.

The ground conducts water; blocks of it conduct 10 000 times better than others, and nothing flows through two walls.
The grid is cut into 4 x 2 blocks, one on each device, and the function that krylix gets is written as for one device.
What is chosen is cut like the grid, and the solution is where the right-hand side is. The example counts, in the
program that XLA compiled, what a device receives in a step. `sharded_poisson.png` shows who owns what.

The eight devices are virtual ones, parts of one CPU: messages are real, times mean nothing. On GPUs leave
`jax_num_cpu_devices` out; on several machines call `jax.distributed.initialize()` first.
"""

import os
import re
from collections import defaultdict
from math import prod

os.environ.setdefault("PJRT_NPROC", "64")  # threads in which virtual devices wait for each other, however few cores

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from krylix import prepare

jax.config.update("jax_num_cpu_devices", 8)  # before the first array
jax.config.update("jax_enable_x64", True)

N, RTOL = 128, 1e-8
MESH = jax.make_mesh((4, 2), ("i", "j"))
SPREAD = NamedSharding(MESH, PartitionSpec("i", "j"))


def conductivities():
    """Of the cells, and of the faces across each axis: harmonic means; the rim conducts as the cell inside."""
    blocks = np.random.default_rng(0).integers(0, 2, (8, 8)) * 4.0
    k = 10.0 ** np.kron(blocks, np.ones((N // 8, N // 8)))
    k[N // 3 : N // 3 + 4, : 2 * N // 3] = k[2 * N // 3 : 2 * N // 3 + 4, N // 3 :] = 0  # two walls
    faces = []
    for axis in (0, 1):
        wide = np.pad(k, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        left, right = (wide.take(range(first, first + N + 1), axis) for first in (0, 1))
        faces.append(2 * left * right / np.where(left + right > 0, left + right, 1))
    return k, faces


K, (ACROSS, ALONG) = conductivities()


def minus_div_k_grad(u):
    """With u = 0 around; cells in a wall get a row of the identity."""
    across = ACROSS * jnp.diff(jnp.pad(u, ((1, 1), (0, 0))), axis=0)
    along = ALONG * jnp.diff(jnp.pad(u, ((0, 0), (1, 1))), axis=1)
    return jnp.where(K == 0, u, -jnp.diff(across, axis=0) - jnp.diff(along, axis=1))


def rain(block):
    """Of one block of the grid: each device makes its own."""
    x, y = np.meshgrid(*(np.arange(N)[part] / N for part in block), indexing="ij")
    return np.where(K[block] == 0, 0.0, 1 + np.sin(9 * x) * np.cos(7 * y))


def received(program):
    """Bytes that a device receives in a step, by kind of message. Steps are a loop in a loop."""
    kinds = {"collective-permute": "exchanges with neighbours", "all-reduce": "sums of numbers"}
    kinds |= {"all-gather": "gathers", "all-to-all": "all-to-all"}
    found = defaultdict(lambda: [0, 0])
    pattern = rf'= f(\d+)\[([\d,]*)\]\S* ({"|".join(kinds)})\(.*op_name="([^"]*)"'
    for bits, shape, kind, place in re.findall(pattern, program.as_text()):
        if place.count("while/body") > 1:
            found[kinds[kind]][0] += 1
            found[kinds[kind]][1] += int(bits) // 8 * prod(int(n) for n in shape.split(",") if n)
    return found


def draw(b, x, sent):
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    for ax, title, values, scale in (
        (left, "conductivity; walls are white", K, "log"),
        (middle, "solution, and the device that owns it", np.asarray(x), "linear"),
    ):
        image = ax.imshow(np.ma.masked_where(K == 0, values), norm=scale, cmap="cividis")
        ax.set(title=title, xticks=[], yticks=[])
        fig.colorbar(image, ax=ax)
    for shard in x.addressable_shards:
        rows, columns = (range(N)[part] for part in shard.index)
        corner, size = (columns[0] - 0.5, rows[0] - 0.5), (len(columns), len(rows))
        for ax in (left, middle):
            ax.add_patch(plt.Rectangle(corner, *size, fill=False, color="w"))
        middle.text(columns[4], rows[8], f"device {shard.device.id}", color="w", bbox={"color": "0.3"})
    bars = {f"{count} {name}": size for name, (count, size) in sent.items()}
    bars |= {"one part of the grid": b.nbytes // len(x.addressable_shards), "the grid": b.nbytes}
    right.barh(list(bars), list(bars.values()), color=["C0"] * len(sent) + ["0.6"] * 2)
    right.set(xscale="log", xlim=(1, None), xlabel="bytes", title="what a device receives in a step (blue)")
    fig.savefig("sharded_poisson.png", dpi=90)


def main():
    b = jax.make_array_from_callback((N, N), SPREAD, rain)
    solver = prepare(minus_div_k_grad, b, rtol=RTOL)
    print(solver.explain())

    @jax.jit
    def solve(b):
        result = solver.solve(b)
        return result.x, result.iterations

    program = solve.lower(b).compile()
    x, iterations = program(b)
    sent = received(program)
    print(
        f"{N} x {N} points on {len(jax.devices())} devices: {iterations} iterations; x is spread as {x.sharding.spec}"
    )
    for name, (count, size) in sent.items():
        print(f"  in a step a device receives {count} {name}, {size} bytes")
    assert x.sharding.is_equivalent_to(b.sharding, 2)
    draw(b, x, sent)
    residual = np.linalg.norm(np.asarray(b) - minus_div_k_grad(np.asarray(x))) / np.linalg.norm(np.asarray(b))
    print(f"relative residual {residual:.1e}")
    if not residual <= 1.1 * RTOL:
        raise SystemExit("the solve left a larger residual than its tolerance allows")


if __name__ == "__main__":
    main()
