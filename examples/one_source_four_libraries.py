"""An advection-diffusion step, written once, that runs, compiles and is differentiated on four array libraries.

A pollutant is released at random places, which `scatter` adds to their cells. A wind carries it out of the domain on
the right (`pad`, upwind differences) and around in the periodic direction (`roll`), and it spreads, along that
direction by a Fourier transform (`fft`), along the other by differences. The step takes its library from its arrays.
Each library then says how what is left depends on the viscosity; NumPy, which has no derivatives, by the difference of
two runs.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

import krylix
from krylix import choose_backend

ROWS, COLUMNS, STEPS, TIME_STEP, WIND = 32, 48, 40, 0.2, (0.4, 1.0)
VISCOSITY = 0.3


def released(u: Any, places: Any) -> Any:
    """One unit of pollutant in the cell of each place `(count, 2)`."""
    bk = choose_backend(u)
    cells = bk.astype(bk.floor(places), np.dtype(np.int32))
    return bk.scatter_nd(u, cells, bk.ones(places.shape[:1], dtype=bk.dtype(u)), mode="add")


def step(u: Any, viscosity: Any) -> Any:
    """One step of du/dt + wind . grad u = viscosity * laplace u, periodic along the first axis."""
    bk = choose_backend(u)
    across = u - bk.roll(u, 1, axis=0)
    clean = bk.pad(u, [(0, 0), (1, 0)])  # clean air comes in on the left ...
    free = bk.pad(clean, [(0, 0), (0, 1)], "boundary")  # ... and nothing changes on the way out on the right
    along, spread = free[:, 1:-1] - free[:, :-2], free[:, 2:] - 2 * u + free[:, :-2]
    u = u - TIME_STEP * (WIND[0] * across + WIND[1] * along - viscosity * spread)
    waves = bk.asarray(2 * np.pi * np.fft.fftfreq(ROWS), bk.dtype(u))
    decay = bk.exp(-TIME_STEP * viscosity * waves**2)
    return bk.real(bk.ifft(bk.multiply(bk.fft(u, [0]), decay[:, None]), [0]))  # complex times real


def left_over(viscosity: Any, places: Any) -> tuple[Any, Any]:
    """What is still in the domain at the end, squared and summed, and where it is."""
    bk = choose_backend(viscosity)
    u = released(bk.zeros((ROWS, COLUMNS), bk.dtype(viscosity)), places)
    u = bk.for_loop(STEPS, lambda u: step(u, viscosity), u)
    return bk.sum(u * u), u


def difference(function: Callable[..., Any], viscosity: Any, *args: Any) -> Any:
    """The derivative by the viscosity, to about ten digits."""
    h = 1e-5
    return (function(viscosity + h, *args)[0] - function(viscosity - h, *args)[0]) / (2 * h)


def main() -> None:
    numpy = choose_backend("numpy")
    places = numpy.random_uniform((20, 2), key=numpy.random_key(0)) * np.array([ROWS, COLUMNS / 3])
    expected, _ = left_over(np.asarray(VISCOSITY), places)
    slope = difference(left_over, np.asarray(VISCOSITY), places)
    print(f"numpy       {expected:.12f}  d/d viscosity {slope:.9f} (difference)")
    for name in ("jax", "torch", "tensorflow"):
        if find_spec(name) is None:
            print(f"{name:11} is not installed")
            continue
        with krylix.precision(64):
            bk = choose_backend(name)
            bk.enable_double_precision()
            arguments = bk.asarray(np.asarray(VISCOSITY)), bk.asarray(places)
            value, _ = left_over(*arguments)
            compiled, _, derivative = bk.compile(bk.jacobian(left_over))(*arguments)
        found = [float(bk.to_numpy(x)) for x in (value, compiled, derivative)]
        print(f"{name:11} {found[0]:.12f}  d/d viscosity {found[2]:.9f}  compiled {found[1]:.12f}")
        assert np.allclose(found, [expected, expected, slope], rtol=1e-8), (found, expected, slope)


if __name__ == "__main__":
    main()
