"""Seconds and memory of a solve on a large machine: counts of small compiled programs, by stated rules and assumptions.

`python -m benchmarks scaling --model`. Nothing that it says of large machines is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .scaling import METHODS, Counts, count
from .settings import Settings

DIMENSIONS = 3
BYTES = 8  # of a number
SIZES = ((1e9, 8), (1e9, 1000), (1e10, 1000), (1e11, 1000))  # unknowns, devices


@dataclass(frozen=True)
class Machine:
    """What is assumed of a device and its connections.

    Attributes:
        memory: bytes a second from and to a device's memory.
        link: bytes a second from a neighbour.
        latency: seconds of a message.
        sum_latency: seconds of a sum of a few numbers, for each doubling of the number of devices.
        transpose: bytes a second that each device sends and receives in an all-to-all.
        room: bytes of memory of a device.
    """

    memory: float
    link: float
    latency: float
    sum_latency: float
    transpose: float
    room: float


MACHINES = {
    "GPUs of the class of an H100, NDR InfiniBand": Machine(2.5e12, 40e9, 8e-6, 4e-6, 20e9, 80e9),
    "CPU nodes, HDR InfiniBand, MPI": Machine(2.5e11, 10e9, 2e-6, 2e-6, 5e9, 256e9),
}
# Numbers that a device reads and writes for each unknown: in a step outside of the preconditioner; in a level of a
# cycle, where 4 products read the entries of the stencil, 7 on the finest grid and 27 on others; in three transforms.
STEP, LEVEL, PRODUCTS, FINEST, COARSER, TRANSFORMS = 12, 20, 4, 7, 27, 36
GATHERED = 8  # points along each axis of a device at which levels are gathered

COUNTED = f"""Counted in programs that XLA compiled for 8 virtual devices, 2 along each axis of a cube with 7-point
diffusion at two sizes: sums, messages, bytes, memory. Coefficients are smooth and spread as the right-hand side, for
`fast-direct` constant. Iterations to 1e-8 are run.

Extrapolated: exchanges by as many as doubling the grid added, once for each further doubling of a device's part; their
bytes as its faces; gathered bytes as all unknowns where doubling the grid multiplied them, else as the number of
devices; all-to-all bytes and memory as a device's part; constants of programs by the power of the points along an axis
by which they grew. Iterations of CG with `jacobi` as the points along an axis; others do not grow. Of `fast-direct` all
messages of the program are counted, those of a second solve for the residual too.

Assumed: the numbers of `MACHINES`; nothing overlaps; numbers read and written for each unknown are {STEP} in a step,
{LEVEL} + {PRODUCTS} x {FINEST} in the finest level of multigrid, {LEVEL} + {PRODUCTS} x {COARSER} in coarser ones,
{TRANSFORMS} in a direct solve by transforms; a level of at most {GATHERED}³ points a device is gathered, and every
device computes it."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a solve, by what takes them, and bytes of a device."""

    iterations: float
    memory: float
    exchanges: float
    sums: float
    gathers: float
    bytes: float

    @property
    def seconds(self) -> float:
        return self.memory + self.exchanges + self.sums + self.gathers


def page(settings: Settings) -> str:
    """The counts and the model, as Markdown."""
    points = settings.local_grid
    sizes = [(method, n, (2,) * DIMENSIONS) for method in METHODS for n in (2 * points, 4 * points)]
    counts = list(count(sizes))
    pairs = dict(zip(METHODS, zip(counts[::2], counts[1::2])))
    parts = [COUNTED, _table_of_counts(counts)]
    for name, machine in MACHINES.items():
        parts += [f"{name}: {_in_words(machine)}.", _table_of_estimates(machine, pairs)]
    return "\n\n".join(parts)


def estimate(machine: Machine, few: Counts, many: Counts, unknowns: float, devices: int) -> Estimate:
    """Of a solve of so many unknowns, from counts at two sizes, of which one has twice the points along each axis."""
    local = unknowns / devices
    length, doublings = local / many.local, math.log2(local / many.local) / DIMENSIONS
    grows = few.iterations > 1 and many.iterations > 1.5 * few.iterations
    iterations = many.iterations * ((unknowns ** (1 / DIMENSIONS) / many.points) if grows else 1)
    messages = many.exchanges[0] + doublings * max(many.exchanges[0] - few.exchanges[0], 0)
    faces = many.exchanges[1] * length ** ((DIMENSIONS - 1) / DIMENSIONS)
    whole = many.gathers[1] > 2 * few.gathers[1] > 0  # by 8 where a grid is gathered
    gathered = many.gathers[1] * (unknowns / many.points**DIMENSIONS if whole else devices / many.devices)
    sum_latency = machine.sum_latency * math.log2(devices)
    cut = not whole
    step = Estimate(
        iterations,
        memory=BYTES * _passes(many.method, local, unknowns, devices, cut) / machine.memory,
        exchanges=messages * machine.latency + faces / machine.link,
        sums=many.sums * sum_latency,
        gathers=many.gathers[0] * sum_latency + gathered / machine.link
        + many.transposes[0] * sum_latency + many.transposes[1] * length / machine.transpose,
        bytes=0,
    )  # fmt: skip
    held = many.memory * (unknowns / many.points**DIMENSIONS if whole else length)
    growth = math.log2(many.constants / few.constants) if few.constants < many.constants else 0.0
    held += many.constants * (unknowns ** (1 / DIMENSIONS) / many.points) ** growth
    return Estimate(
        iterations, *(iterations * t for t in (step.memory, step.exchanges, step.sums, step.gathers)),
        bytes=held,
    )  # fmt: skip


def _passes(method: str, local: float, unknowns: float, devices: int, cut: bool) -> float:
    """Numbers that a device reads and writes in a step, or in all of a direct solve."""
    if method == "fast-direct":
        return TRANSFORMS * (local if cut else unknowns)
    if method != "CG + multigrid":
        return STEP * local
    size, entries, found = local if cut else unknowns, FINEST, STEP * local
    while cut and size > GATHERED**DIMENSIONS:
        found += (LEVEL + PRODUCTS * entries) * size
        size, entries = size / 2**DIMENSIONS, COARSER
    below = 2**DIMENSIONS / (2**DIMENSIONS - 1)  # the grids below the one that is gathered
    return found + (LEVEL + PRODUCTS * entries) * size * (devices if cut else 1) * below


def _table_of_counts(counts: list[Counts]) -> str:
    sent = "sums | exchanges | gathers | all-to-all"
    lines = [f"| method | points | iterations | {sent} | memory, parts of x | constants, whole x |", "|---" * 9 + "|"]
    for c in counts:
        sent = " | ".join(f"{n}: {b / 1e3:.3g} KB" if n else "" for n, b in (c.exchanges, c.gathers, c.transposes))
        parts_of_x, whole = c.memory / (BYTES * c.local), c.constants / (BYTES * c.points**DIMENSIONS)
        name = f"| {c.method} | {c.points}³ | {c.iterations} | {c.sums}"
        lines.append(f"{name} | {sent} | {parts_of_x:.0f} | {whole:.1f} |")
    return "\n".join(lines)


def _table_of_estimates(machine: Machine, pairs: dict[str, tuple[Counts, Counts]]) -> str:
    times = "memory | exchanges | sums | gathers, all-to-all | all"
    lines = [f"| unknowns | devices | method | iterations | {times} | GB a device |", "|---" * 10 + "|"]
    for unknowns, devices in SIZES:
        for method, (few, many) in pairs.items():
            e = estimate(machine, few, many, unknowns, devices)
            times = " | ".join(f"{t:.3g} s" for t in (e.memory, e.exchanges, e.sums, e.gathers, e.seconds))
            fits = "" if e.bytes <= machine.room else ", too much"
            name = f"| {unknowns:.0e} | {devices} | {method} | {e.iterations:.0f}"
            lines.append(f"{name} | {times} | {e.bytes / 1e9:.3g}{fits} |")
    return "\n".join(lines)


def _in_words(m: Machine) -> str:
    return (
        f"{m.memory / 1e12:.3g} TB/s of memory, {m.link / 1e9:.0f} GB/s from a neighbour, "
        f"{m.latency * 1e6:.0f} µs a message, {m.sum_latency * 1e6:.0f} µs x log2(devices) a sum, "
        f"{m.transpose / 1e9:.0f} GB/s in an all-to-all, {m.room / 1e9:.0f} GB a device"
    )
