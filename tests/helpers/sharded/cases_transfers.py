"""What every method, preconditioner and `auto` moves on grids that are spread over a mesh, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from krylix import linear_solve
from krylix.solvers import METHODS, PRECONDITIONERS

from .cases import Case, exact, star
from .cases_cut_products import conduction

N = 16
GRID = np.random.default_rng(0).normal(size=(N, N))


def solved(b: Any, *arrays: Any, A: Any = star, **settings: Any) -> Any:
    return linear_solve(A, b, rtol=1e-9, args=arrays, **settings).x


def cases() -> Iterator[tuple[str, Case]]:
    one = Case("2x2", ("i", "j"), GRID, solved, exact(conduction, GRID), known=True)
    for name, method in METHODS.items():
        A = star if method.needs_grid else conduction
        solve = partial(solved, A=A, method=name)
        yield f"method {name}", one._replace(solve=solve, expected=exact(A, GRID))
    for kind in PRECONDITIONERS:
        A = star if kind == "fast" else conduction
        solve = partial(solved, A=A, method="GMRES" if kind == "ilu" else "CG", preconditioner=kind)
        yield f"preconditioner {kind}", one._replace(solve=solve, expected=exact(A, GRID))
