"""What `krylix.scipy_like` adds to `linear_solve`, and what both take beside SciPy, for 10 unknowns and for a grid.

What is added is measured alone, with a `linear_solve` that returns a result at once: a few microseconds would be lost
in those of a solve.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from unittest import mock

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve, scipy_like
from krylix.scipy_like import direct, wrap

from .measure import compare, per_call
from .settings import Settings
from .table import Row

N = 10
ADDED = 10e-6
FUNCTIONS = ("cg", "bicgstab", "gmres", "minres", "spsolve")


def rows(settings: Settings) -> Iterator[Row]:
    A, b = line(N)
    result = linear_solve(A, b)

    def at_once(*_: object, **__: object) -> object:
        return result

    for name in FUNCTIONS:
        ours = getattr(scipy_like, name)
        with mock.patch.object(wrap, "linear_solve", at_once), mock.patch.object(direct, "linear_solve", at_once):
            pair = (per_call(partial(ours, A, b), settings.calls), per_call(at_once, settings.calls))
            yield Row(f"scipy_like.{name} without its solve, n = {N}", "a call", compare(*pair, settings.repeats),
                      budget_seconds=ADDED)  # fmt: skip
    grid, ones = plane(settings.grid // 4)
    for matrix, right, calls in ((A, b, settings.calls), (grid, ones, 1)):
        for name in FUNCTIONS:
            ours, theirs = (partial(getattr(module, name), matrix, right) for module in (scipy_like, spl))
            pair = (per_call(ours, calls), per_call(theirs, calls))
            yield Row(f"scipy_like.{name}, n = {len(right)}", f"scipy {name}", compare(*pair, settings.repeats))


def line(n: int) -> tuple[sp.csr_array, np.ndarray]:
    """A tridiagonal matrix and a right-hand side."""
    A = sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr")
    return A, np.arange(1.0, n + 1)


def plane(n: int) -> tuple[sp.csr_array, np.ndarray]:
    """The same on both axes of a grid of n x n."""
    A = sp.csr_array(sp.kronsum(line(n)[0], line(n)[0]))
    return A, np.ones(A.shape[0])
