"""Irregular matrices whose rows are cut: every way to give them, methods, preconditioners, derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from irregular_matrices import triangulated
from krylix import linear_solve
from krylix.sparse import row_cut

from .cases import Case

N = 4000
LARGE, POINTS = triangulated(N)
SMALL, _ = triangulated(400, seed=1)
WINDY, _ = triangulated(400, seed=2, wind=0.5)


def right(A: sp.csr_array, b: np.ndarray) -> np.ndarray:
    return spla.splu(sp.csc_array(A)).solve(b.T).T


def solved(b: Any, *, A: Any, method: str = "CG", **settings: Any) -> Any:
    result = linear_solve(A, b, method=method, rtol=1e-10, **settings)
    return result.x, {"iterations": result.iterations}


def cut(b: Any, *, A: Any, way: dict[str, Any] | None = None, sharding: Any = None, **settings: Any) -> Any:
    """With A cut before: the mesh is that of A."""
    matrix = row_cut(A, like=None if sharding is not None else b, sharding=sharding, **(way or {}))
    return solved(b, A=matrix, **settings)


def case(A: sp.csr_array, solve: Any, mesh: str = "line", **settings: Any) -> Case:
    b = np.random.default_rng(0).normal(size=A.shape[0])
    return Case(mesh, ("i",), b, solve, right(A, b), **settings)


def cases() -> Iterator[tuple[str, Case]]:
    yield from _ways()
    yield from _kinds()


def _ways() -> Iterator[tuple[str, Case]]:
    for name, way in {"graph": {}, "coordinates": {"coordinates": POINTS}}.items():
        yield f"CG, by {name}", case(LARGE, partial(cut, A=LARGE, way=way), known=True)
    small = case(SMALL, partial(solved, A=SMALL), known=True)
    yield "SciPy", small
    yield "SciPy, eager", small._replace(known=False, eager=True)
    yield "SciPy, Explicit", small._replace(known=False, explicit=True)
    yield "cut, eager", small._replace(solve=partial(cut, A=SMALL), known=False, eager=True)
    uneven = np.random.default_rng(0).integers(0, 3, 400)
    yield "uneven parts", small._replace(solve=partial(cut, A=SMALL, way={"labels": uneven}))


def _kinds() -> Iterator[tuple[str, Case]]:
    small = case(SMALL, partial(solved, A=SMALL), known=True)
    yield "jacobi", small._replace(solve=partial(solved, A=SMALL, preconditioner="jacobi"))
    windy = case(WINDY, partial(solved, A=WINDY, method="biCG-stab(2)"), known=True)
    yield "biCG-stab(2)", windy
