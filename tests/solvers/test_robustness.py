"""The automatic choice on matrices of many kinds: it solves each, and never says so where it does not."""

from __future__ import annotations

import runpy
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve
from library import ROOT

_SET = runpy.run_path(str(ROOT / "benchmarks" / "robustness.py"))
MATRICES, right_hand_side = _SET["matrices"](), _SET["right_hand_side"]
RTOL = 1e-8
# in `jit`, before a merge: with values that are known, or not
IN_JIT = ("knot", "recirc_flow", "saddle point", "convection, Péclet 1000, central", "jumps 1e8, cell by cell")
BEFORE_A_MERGE = {(name, k % 2 == 0) for k, name in enumerate(IN_JIT)}


def relative(A: sp.csr_array, b: np.ndarray, x: Any) -> float:
    return float(np.linalg.norm(b - A @ np.asarray(x)) / np.linalg.norm(b))


@pytest.mark.parametrize("name", MATRICES)
def test_eager(name: str) -> None:
    A = MATRICES[name]()
    b = right_hand_side(A)
    result = linear_solve(A, b, rtol=RTOL, on_failure="status")
    assert bool(result.converged) == (relative(A, b, result.x) <= RTOL * (1 + 1e-6))
    assert result.converged, result


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("name", "known"),
    [
        pytest.param(n, known, marks=pytest.mark.merge if (n, known) in BEFORE_A_MERGE else pytest.mark.slow)
        for n in MATRICES
        for known in (True, False)
    ],
)
def test_in_jit(name: str, known: bool) -> None:
    """With values that are known when it is compiled, and with values that are an argument."""
    import jax

    A = MATRICES[name]()
    b = right_hand_side(A)
    if known:
        result = jax.jit(lambda b: linear_solve(A, b, rtol=RTOL, on_failure="status"))(b)
    else:
        operator = as_operator(A, jax.numpy.asarray(b))
        result = jax.jit(lambda A, b: linear_solve(A, b, rtol=RTOL, on_failure="status"))(operator, b)
    assert bool(result.converged) == (relative(A, b, result.x) <= RTOL * (1 + 1e-6))
    assert bool(result.converged), result
