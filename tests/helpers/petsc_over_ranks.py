"""Solves by PETSc whose rows are cut over the ranks; each tells a line of JSON for every case.

`mpirun -n 2 python petsc_over_ranks.py [case ...]`
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from mpi4py import MPI
from petsc4py import PETSc

from krylix import linear_solve, matrix_from_function, prepare
from krylix.solvers import Petsc
from mpi_ranks import tell

COMM = MPI.COMM_WORLD
N = 32
B = np.random.default_rng(0).standard_normal(N * N)
FIRST, LAST = (N * N * rank // COMM.size for rank in (COMM.rank, COMM.rank + 1))
MINE = slice(FIRST, LAST)
HYPRE = Petsc("cg", "hypre")


def star(u: np.ndarray, wind: float = 0.0) -> np.ndarray:
    k = np.exp(np.sin(np.arange(u.shape[-2])))[:, None]
    p = np.pad(u, [(0, 0)] * (u.ndim - 2) + [(1, 1), (1, 1)])
    a, b, c, d = p[..., :-2, 1:-1], p[..., 2:, 1:-1], p[..., 1:-1, :-2], p[..., 1:-1, 2:]
    return k * (2 * u - c - d) + 2 * u - a - b + wind * (d - c)


def blown(u: np.ndarray) -> np.ndarray:
    return star(u, 0.4)


GRID = np.zeros((N, N))
MATRIX, BLOWN = (matrix_from_function(f, GRID)[0] for f in (star, blown))
WHOLE, WHOLE_BLOWN = (sp.csr_array(A.known()) for A in (MATRIX, BLOWN))


def gathered(part: np.ndarray) -> np.ndarray:
    return np.concatenate(COMM.allgather(part), axis=-1)


def distance(part: np.ndarray, A: Any, b: np.ndarray = B) -> float:
    expected = spl.spsolve(sp.csc_array(A), b)
    return float(np.abs(gathered(part) - expected).max() / np.abs(expected).max())


def traced() -> dict[str, Any]:
    r = linear_solve(MATRIX, B[MINE], method=HYPRE, over=COMM, rtol=1e-8)
    true = np.linalg.norm(B - star(gathered(r.x).reshape(N, N)).ravel()) / np.linalg.norm(B)
    return {"error": distance(r.x, WHOLE), "iterations": int(r.iterations), "true": float(true), "why": str(r)}


def given_rows() -> dict[str, Any]:
    r = linear_solve(WHOLE[MINE], B[MINE], method="petsc", over=COMM)
    return {"error": distance(r.x, WHOLE), "iterations": int(r.iterations), "why": str(r)}


def other_cut() -> dict[str, Any]:
    cut = slice(0, 100) if COMM.rank == 0 else slice(100, N * N) if COMM.rank == 1 else slice(N * N, N * N)
    r = linear_solve(WHOLE[cut], B[cut], method="petsc", over=COMM)
    return {"error": distance(r.x, WHOLE)}


def not_symmetric() -> dict[str, Any]:
    r = linear_solve(BLOWN, B[MINE], method="petsc", over=COMM)
    return {"error": distance(r.x, WHOLE_BLOWN), "iterations": int(r.iterations), "why": str(r)}


def adjoint() -> dict[str, Any]:
    r, s = (linear_solve(A, B[MINE], method=m, over=COMM) for A, m in ((BLOWN, "petsc"), (MATRIX, HYPRE)))
    ones = np.ones(LAST - FIRST)
    error = distance(r.vjp(ones).b, WHOLE_BLOWN.T, np.ones(N * N))
    y, x = spl.spsolve(sp.csc_array(WHOLE_BLOWN.T), np.ones(N * N)), spl.spsolve(sp.csc_array(WHOLE_BLOWN), B)
    by_entries = r.vjp(ones).A.tocoo()
    expected = -y[by_entries.row + FIRST] * x[by_entries.col]
    entries = np.abs(by_entries.data - expected).max() / np.abs(expected).max()
    error = max(error, COMM.allreduce(entries, MPI.MAX))
    return {"error": float(max(error, distance(s.vjp(ones).b, WHOLE, np.ones(N * N))))}


def methods() -> dict[str, Any]:
    mumps = Petsc("preonly", "lu", {"pc_factor_mat_solver_type": "mumps"})
    ways = Petsc("cg", "gamg"), Petsc("cg", "jacobi"), mumps
    found = [linear_solve(MATRIX, B[MINE], method=method, over=COMM) for method in ways]
    return {"error": max(distance(r.x, WHOLE) for r in found), "iterations": [int(r.iterations) for r in found]}


def batch() -> dict[str, Any]:
    b = np.stack([B, 1e4 * B[::-1], 0 * B])[:, MINE]
    r = linear_solve(MATRIX, b, method=HYPRE, over=COMM)
    first = distance(r.x[0], WHOLE)
    return {"error": max(first, distance(r.x[1], WHOLE, 1e4 * B[::-1])), "iterations": r.iterations.tolist()}


def single() -> dict[str, Any]:
    r = linear_solve(MATRIX, B[MINE].astype(np.float32), method=HYPRE, over=COMM)
    return {"error": 1e-5 * distance(r.x, WHOLE), "dtype": str(r.x.dtype)}


def negative() -> dict[str, Any]:
    r = linear_solve(-1e6 * WHOLE[MINE], B[MINE], method="petsc", over=COMM)
    return {"error": distance(r.x, -1e6 * WHOLE), "why": str(r)}


def singular() -> dict[str, Any]:
    def closed(u: np.ndarray) -> np.ndarray:
        p = np.pad(u, 1, mode="edge")
        return 4 * u - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    A, b = matrix_from_function(closed, GRID)[0], B - B.mean()
    errors = []
    for method, nullspace in ((HYPRE, "auto"), (Petsc("cg", "gamg"), "constant"), (HYPRE, np.ones((1, LAST - FIRST)))):
        x = gathered(linear_solve(A, b[MINE], method=method, over=COMM, nullspace=nullspace).x)
        errors += [np.abs(closed(x.reshape(N, N)).ravel() - b).max(), abs(x.mean())]
    solver = prepare(A, b[MINE], method=HYPRE, over=COMM)
    errors += [np.abs(closed(gathered(solver(b[MINE])).reshape(N, N)).ravel() - b).max()]
    scaled = sp.csr_array(sp.diags_array(1 + np.arange(N * N) / N**2) @ sp.csr_array(A.known()))
    r = linear_solve(scaled[MINE], (scaled @ B)[MINE], method="petsc", over=COMM, nullspace="constant")
    errors += [np.abs(scaled @ gathered(r.x) - scaled @ B).max()]
    return {"error": float(max(errors)), "inconsistent": refused(A, B[MINE], nullspace=None)}


def prepared() -> dict[str, Any]:
    solver = prepare(MATRIX, B[MINE], method=HYPRE, over=COMM)
    other = solver.update(2 * MATRIX)
    same = solver.preconditioner.solvers[0] is other.preconditioner.solvers[0]
    errors = [distance(one(B[MINE]), A) for one, A in ((other, 2 * WHOLE), (solver, WHOLE), (other, 2 * WHOLE))]
    return {"error": max(errors), "same": same}


def mat() -> dict[str, Any]:
    own = WHOLE_BLOWN[MINE]
    local = LAST - FIRST
    A = PETSc.Mat().createAIJ(((local, None), (local, None)), csr=(own.indptr, own.indices, own.data), comm=COMM)
    A.assemble()
    r = linear_solve(A, B[MINE], method="petsc")
    solver = prepare(A, B[MINE], method="petsc", over=COMM)
    used = solver.preconditioner.solvers[0].mat is A
    return {"error": max(distance(r.x, WHOLE_BLOWN), distance(solver(B[MINE]), WHOLE_BLOWN)), "used": used}


def callback() -> dict[str, Any]:
    seen: list[float] = []

    def look(state: Any) -> bool:
        seen.append(float(state.residual_norm))
        return COMM.rank == 0 and len(seen) == 3  # one member decides for all

    r = linear_solve(MATRIX, B[MINE], method=Petsc("cg", "jacobi"), over=COMM, callback=look)
    return {"error": 0.0, "seen": len(seen), "status": r.status.name}


def refused(A: Any, b: Any, solve: Any = linear_solve, **more: Any) -> dict[str, Any]:
    try:
        solve(A, b, **{"method": HYPRE, "over": COMM, **more})
    except Exception as error:
        return {"raised": type(error).__name__, "says": str(error)}
    return {"raised": None}


def failures() -> dict[str, Any]:
    own, b, broken = WHOLE[MINE], B[MINE], WHOLE[MINE].copy()
    if COMM.rank:
        broken.data[0] = np.nan
    last = COMM.rank == COMM.size - 1
    return {
        "error": 0.0,
        "limit": refused(own, b, method=Petsc("cg", "none"), max_iter=3),
        "shape": refused(own[:, :-1] if last else own, b),
        "not finite": refused(broken, b),
        "function": refused(star, b),
        "kind": refused(own if not last else "A", b),
        "unknown": refused(own, b, method=Petsc("conjugate")),
        "settings": refused(own, b, rtol=1e-5 if last else 1e-6),
        "option": refused(own, b, method=Petsc(options={"pc_nothing": 1})),
        "length": refused(own, b, lambda A, b, **more: prepare(A, b, **more).solve(np.append(b, b) if last else b)),
    }


CASES = (
    traced, given_rows, other_cut, not_symmetric, adjoint, methods, batch, single, negative, singular, prepared, mat,
    callback, failures,
)  # fmt: skip

if __name__ == "__main__":
    for case in CASES:
        if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
            tell(COMM.rank, case=case.__name__, **case())
