"""Helmholtz's equation: shifted Laplacians beside the same iteration without, and beside SuperLU, by wave number.

`-Laplace u - k^2 u = a point source`, on a square and a cube with walls that absorb (complex symmetric) or
reflect (real, indefinite), to a relative residual of 1e-6. kh = 0.6 is ten points per wave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from krylix import linear_solve

from .measure import compare, per_call
from .settings import Settings
from .table import Row

RTOL = 1e-6
_MOST = 5000  # iterations


def rows(settings: Settings) -> Iterator[Row]:
    for axes, n in ((2, settings.grid_to_tolerance), (3, settings.grid_of_waves_3d)):
        for absorbing in (True, False):
            for kh in (0.1, 0.2, 0.4, 0.6):
                yield from _of_one(axes, n, kh, absorbing, settings)


def waves(n: int, axes: int, kh: float, absorbing: bool) -> sp.csr_array:
    """-Laplace - k^2 times h^2; at absorbing walls du/dn = i k u, else u = 0."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).astype(complex if absorbing else float)
    if absorbing:
        ends = np.zeros(n, complex)
        ends[[0, -1]] = 1 / (1 - 1j * kh)
        line = line - sp.diags_array(ends)
    A = sp.csr_array((n**axes, n**axes))
    for axis in range(axes):
        A = A + sp.kron(sp.kron(sp.eye_array(n**axis), line), sp.eye_array(n ** (axes - 1 - axis)))
    return sp.csr_array(A - kh**2 * sp.eye_array(n**axes))


def _of_one(axes: int, n: int, kh: float, absorbing: bool, settings: Settings) -> Iterator[Row]:
    A = waves(n, axes, kh, absorbing)
    b = np.zeros(A.shape[0], A.dtype)
    b[n ** (axes - 1) * (n // 2) + n // 2] = 1
    method = "COCR" if absorbing else "MINRES"

    def solved(kind: str | None) -> Any:
        given = {"rtol": RTOL, "max_iter": _MOST, "on_failure": "status"}
        return linear_solve(A, b, method=method, preconditioner=kind, **given)

    def count(kind: str | None) -> str:
        found = solved(kind)
        return f"{found.iterations} iterations" if found.converged else f"not converged in {found.iterations}"

    what = f"{'absorbing' if absorbing else 'reflecting'} walls, {n}{'²' if axes == 2 else '³'}, kh = {kh}"
    ours = f"{what}: {method} + shifted-laplacian, {count('shifted-laplacian')}"
    mine = per_call(lambda: solved("shifted-laplacian"))
    plain = f"{method} + jacobi, {count('jacobi')}"
    repeats = min(settings.repeats, 3)
    yield Row(ours, plain, compare(mine, per_call(lambda: solved("jacobi")), repeats))
    factors = per_call(lambda: splu(sp.csc_array(A)).solve(b))
    yield Row(what, "SuperLU", compare(mine, factors, 1 if axes == 3 else repeats))
