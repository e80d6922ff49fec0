"""BoomerAMG through PETSc, in a process of its own: reads a task a line, writes an answer a line, both in JSON.

Runs in any interpreter that has petsc4py and NumPy, so it imports nothing of this project, nor SciPy. A task is
`{"file": an .npz, "options": of BoomerAMG, ...}`, its answer the processor seconds of set-up and solve.
"""

import json
import sys
import time

import numpy as np
import petsc4py

petsc4py.init(["hypre"])
from petsc4py import PETSc  # noqa: E402

_PREFIX = "pc_hypre_boomeramg_"
_held = {}  # the last file and what was in it


def main():
    print(json.dumps({"version": ".".join(map(str, PETSc.Sys.getVersion()))}), flush=True)
    for line in sys.stdin:
        try:
            answer = solve(**json.loads(line))
        except Exception as error:  # the reader says it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def solve(file, options, symmetric, singular, unknowns_per_point, rtol, max_iter):
    """Set up and solve once; the matrix is made before the clock starts."""
    A, b = matrix(file, singular, unknowns_per_point)
    choices = PETSc.Options()
    for name, value in options.items():
        choices[_PREFIX + name] = value
    try:
        start = time.process_time()
        solver = krylov(A, symmetric, rtol, max_iter)
        x, right = A.createVecRight(), A.createVecLeft()
        right.setArray(b)
        solver.setUp()
        between = time.process_time()
        solver.solve(right, x)
        end = time.process_time()
        A.mult(x, r := A.createVecLeft())
        r.axpy(-1.0, right)
        found = {"setup": between - start, "solve": end - between, "iterations": solver.getIterationNumber()}
        found["residual"] = r.norm() / right.norm()
        solver.destroy()
        return found
    finally:
        for name in options:
            choices.delValue(_PREFIX + name)


def matrix(file, singular, unknowns_per_point):
    if _held.get("file") != file:
        _held.clear()
        with np.load(file) as stored:
            indptr, indices, data, b = (stored[k] for k in ("indptr", "indices", "data", "b"))
        n = len(indptr) - 1
        A = PETSc.Mat().createAIJ(size=(n, n), bsize=unknowns_per_point, csr=(indptr, indices, data))
        A.assemble()
        if singular:
            A.setNullSpace(PETSc.NullSpace().create(constant=True))
        _held.update(file=file, A=A, b=b)
    return _held["A"], _held["b"]


def krylov(A, symmetric, rtol, max_iter):
    solver = PETSc.KSP().create()
    solver.setOperators(A)
    solver.setTolerances(rtol=rtol, atol=0, max_it=max_iter)
    if symmetric:
        solver.setType("cg")
        solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    else:
        solver.setType("gmres")
        solver.setPCSide(PETSc.PC.Side.RIGHT)
        solver.setGMRESRestart(100)
    chosen = solver.getPC()
    chosen.setType("hypre")
    chosen.setHYPREType("boomeramg")
    solver.setFromOptions()
    return solver


if __name__ == "__main__":
    main()
