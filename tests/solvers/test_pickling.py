"""A prepared solver that was pickled solves as the one that was not."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from modes import array, to_numpy

A = sp.csr_array(sp.diags_array([-1.0, 3.0, -1.5], offsets=[-1, 0, 2], shape=(12, 12)))
B = np.arange(1.0, 13.0)


def tridiagonal(x: Any) -> Any:
    return 3 * x - 0.5 * x[..., ::-1]


@pytest.mark.compiled_by_default("scipy-direct", modes=("jax",))
@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])
@pytest.mark.parametrize("method", ["scipy-direct", "direct", "biCG-stab(2)", "auto", "scipy-GMres"])
def test_as_the_original(method: str, mode: str) -> None:
    matrix: Any = A.toarray() if method == "direct" else A
    M = "jacobi" if method == "biCG-stab(2)" else None
    solver = krylix.prepare(matrix, array(mode, B), method=method, preconditioner=M)
    expected = np.linalg.solve(A.toarray(), B)
    for other in (pickle.loads(pickle.dumps(solver)), copy.copy(solver), copy.deepcopy(solver)):
        assert repr(other) == repr(solver)
        np.testing.assert_allclose(to_numpy(other.solve(array(mode, B)).x), expected, rtol=1e-8)


def test_offset_and_fallback() -> None:
    solver = pickle.loads(pickle.dumps(krylix.prepare(A, B, method="scipy-direct", matrix_offset=0.5)))
    np.testing.assert_allclose(solver.solve(B).x, np.linalg.solve(A.toarray() + 0.5, B), rtol=1e-10)
    np.testing.assert_allclose(solver.update(2 * A).solve(B).x, np.linalg.solve(2 * A.toarray() + 0.5, B), rtol=1e-10)


def test_functions_by_name() -> None:
    solver = pickle.loads(pickle.dumps(krylix.prepare(tridiagonal, B, method="biCG-stab")))
    np.testing.assert_allclose(tridiagonal(solver.solve(B).x), B, rtol=1e-8)
    unnamed = krylix.prepare(lambda x: 2 * x, B, method="CG")
    with pytest.raises(pickle.PicklingError, match=r"lambda.*matrix_from_function"):
        pickle.dumps(unnamed)
    assert copy.deepcopy(unnamed) is unnamed


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", ["direct", pytest.param("biCG-stab(2)", marks=pytest.mark.merge)])
def test_in_another_process(method: str, tmp_path: Path) -> None:
    """Which has registered none of the classes with the library."""
    M = "jacobi" if method == "biCG-stab(2)" else None
    solver = krylix.prepare(A.toarray(), array("jax", B), method=method, preconditioner=M)
    (tmp_path / "solver.pickle").write_bytes(pickle.dumps((solver, array("jax", B))))
    code = "import pickle, sys, numpy; solver, b = pickle.load(open(sys.argv[1], 'rb')); import jax; " \
        "print(*numpy.asarray(jax.jit(lambda s, b: s.solve(b).x)(solver, b)))"  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "solver.pickle")], capture_output=True, text=True, check=False
    )
    assert not ran.returncode, ran.stderr
    found = np.array(ran.stdout.split(), float)
    np.testing.assert_allclose(found, np.linalg.solve(A.toarray(), B), rtol=1e-7)
