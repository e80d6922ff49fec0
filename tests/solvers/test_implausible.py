"""No solution exists, and the precision decides: an x that has blown up along a null vector is no solution.

Rounding of `A x` grows with x, so that failure would widen its own tolerance. In single precision, where rtol is left
to the library, against the residual that no x goes below.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cells import METHOD_NAMES, in_turn
from krylix import linear_solve
from krylix.solvers import METHODS
from modes import array, compiled, to_numpy

KINDS = ["orthogonal", "definite", "oblique", "general"]
SYMMETRIC = ["orthogonal", "definite"]
LOST = 1e-3  # of b: outside of the range
N, SYSTEMS = 24, 12
DEAR = ("scipy-lGMres", "scipy-GCrotMK")  # all of their steps, thousands, run in Python


def singular(kind: str, seed: int, n: int = N, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """A matrix without an inverse, and b with a small part outside of its range."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    w = q[:, 0]
    if kind == "orthogonal":
        A = np.eye(n) - np.outer(w, w)
    elif kind == "definite":
        A = q[:, 1:] * rng.uniform(0.1, 1, n - 1) @ q[:, 1:].T
    elif kind == "oblique":
        v = w + rng.standard_normal(n) / n**0.5
        A = np.eye(n) - np.outer(v, w) / (w @ v)
    else:
        v = np.linalg.qr(rng.standard_normal((n, n)))[0]
        A = q[:, 1:] * rng.uniform(0.5, 2, n - 1) @ v[:, 1:].T
    b = rng.standard_normal(n)
    b -= w * (w @ b)
    return A.astype(dtype), (b / np.linalg.norm(b) + LOST * w).astype(dtype)


def needs_symmetry(method: str) -> bool:
    return METHODS[method]().needs_symmetry if callable(METHODS[method]) else METHODS[method].needs_symmetry


SEEDED = [
    pytest.param(method, seed, marks=pytest.mark.slow if seed and method != "auto" else ())
    for method in ["auto", *METHOD_NAMES]
    for seed in range(4)
]


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize(("method", "seed"), SEEDED)
@pytest.mark.parametrize("kind", KINDS)
def test_no_method_converges(kind: str, method: str, seed: int) -> None:
    if method != "auto" and needs_symmetry(method) and kind not in SYMMETRIC:
        pytest.skip("refused: the method is for symmetric matrices")
    A, b = singular(kind, seed)
    result = linear_solve(A, b, method=method, on_failure="status")
    assert not result.converged, f"{result.message}; |x| = {np.linalg.norm(result.x):.1e}"


@pytest.mark.parametrize(
    ("mode", "method"), in_turn(["jax-jit", "torch", "tf-function"], ["CG", "scipy-GMres"], always=["jax-jit"])
)
def test_other_libraries(mode: str, method: str) -> None:
    kind = "orthogonal" if method == "CG" else "general"
    systems = [singular(kind, seed) for seed in range(SYSTEMS)]

    def solve(A: Any, b: Any) -> Any:
        return linear_solve(A, b, method=method, on_failure="status").converged

    solve = compiled(mode, solve)
    assert not any(bool(to_numpy(solve(array(mode, A), array(mode, b)))) for A, b in systems)


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_consistent_ones_converge(kind: str) -> None:
    for seed in range(4):
        A, b = singular(kind, seed)
        b = (A.astype(float) @ np.random.default_rng(seed).standard_normal(N)).astype(np.float32)
        for method in ("auto", "scipy-direct", "GMRES", *(["CG"] if kind in SYMMETRIC else [])):
            x = linear_solve(A, b, method=method).x
            assert np.linalg.norm(A.astype(float) @ x - b) <= 1e-4 * np.linalg.norm(b)


@pytest.mark.parametrize("condition", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("symmetric", [False, True])
def test_regular_ones_still_converge(symmetric: bool, condition: float) -> None:
    """To what the precision allows, also where that is far from the default tolerance."""
    n, rng = 120, np.random.default_rng(0)
    q, p = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    A = (q * np.logspace(0, -np.log10(condition), n)) @ (q if symmetric else p).T
    b = rng.standard_normal(n)
    x = linear_solve(A.astype(np.float32), b.astype(np.float32), method="scipy-direct").x
    expected = np.linalg.solve(A, b)
    assert np.linalg.norm(x - expected) <= 20 * condition * np.finfo(np.float32).eps * np.linalg.norm(expected)
    if symmetric and condition < 1e5:
        x = linear_solve(A.astype(np.float32), b.astype(np.float32), method="CG").x
        assert np.linalg.norm(x - expected) <= 20 * condition * np.finfo(np.float32).eps * np.linalg.norm(expected)


def test_batches_are_their_systems() -> None:
    """Of matrices of which some have an inverse."""
    pairs = [singular("general", seed) for seed in range(SYSTEMS)]
    A, b = (np.stack(parts) for parts in zip(*pairs))
    A[::3] += np.eye(N, dtype=np.float32)
    together = linear_solve(A, b, method="scipy-GMres", on_failure="status").converged
    alone = [
        bool(linear_solve(A[i], b[i], method="scipy-GMres", on_failure="status").converged) for i in range(SYSTEMS)
    ]
    np.testing.assert_array_equal(together, alone)
    assert not together[1::3].any() and not together[2::3].any()
