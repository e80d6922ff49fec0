"""Eager solves with a function that was traced: steps multiply by its diagonals, residuals are the function's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krylix import linear_solve, prepare
from modes import array, to_numpy

GRID = (90, 80)  # more unknowns than a function has that is not traced
rng = np.random.default_rng(5)
K = np.exp(rng.standard_normal(GRID))
B = rng.standard_normal(GRID)


class Diffusion:
    """`u -> scale times the sum of k times differences`, plus a constant; it counts its calls with numbers."""

    def __init__(self, mode: str, scale: float = 1.0, constant: float = 0.0) -> None:
        self.mode, self.scale, self.constant, self.calls = mode, scale, constant, 0
        self.k = array(mode, K.copy())

    def __call__(self, u: Any) -> Any:
        self.calls += 1
        if self.mode == "torch":
            import torch

            p = torch.nn.functional.pad(u, (1, 1, 1, 1))
        else:
            p = np.pad(u, 1)
        near = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
        return self.scale * (4.05 * u - near) * self.k + self.constant


def dense_residual(mode: str, f: Diffusion, x: Any) -> float:
    return float(np.linalg.norm(to_numpy(f(x)) - B) / np.linalg.norm(B))


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_few_calls(mode: str) -> None:
    f = Diffusion(mode)
    result = linear_solve(f, array(mode, B), rtol=1e-9, preconditioner="jacobi", method="biCG-stab(2)")
    assert int(result.iterations) > 20
    assert f.calls < 15
    assert dense_residual(mode, f, result.x) <= 1.1e-9


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_what_changes_between_solves_is_seen(mode: str) -> None:
    """The matrix of one solve is not that of the next; nor is an affine part lost."""
    f = Diffusion(mode)
    for scale, constant in ((1.0, 0.0), (3.0, 0.0), (0.5, 2.0)):
        f.scale, f.constant = scale, constant
        result = linear_solve(f, array(mode, B), rtol=1e-9)
        assert dense_residual(mode, f, result.x) <= 1.1e-9


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_prepared_solvers_follow_arrays_that_are_written_to(mode: str) -> None:
    """The preconditioner is that of before, the function is not."""
    f = Diffusion(mode)
    solver = prepare(f, array(mode, B), method="biCG-stab(2)", preconditioner="jacobi", rtol=1e-9)
    f.k *= array(mode, np.linspace(1, 2, K.size).reshape(GRID))
    result = solver.solve(array(mode, B))
    assert dense_residual(mode, f, result.x) <= 1.1e-9


def test_what_changes_during_a_solve_is_found_out() -> None:
    """The residual is that of the function as it is then."""
    f = Diffusion("numpy")

    def drifting(u: np.ndarray) -> np.ndarray:
        f.scale = 1.0 if f.calls < 6 else 1.0 + 1e-3
        return np.asarray(f(u))

    result = linear_solve(drifting, B, rtol=1e-9, on_failure="status")
    true = np.linalg.norm(f(np.asarray(result.x)) - B)
    if bool(result.converged):
        assert true <= 1.1e-9 * np.linalg.norm(B)
    assert np.isclose(float(result.residual_norm), true, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    b = (B + (1j * B[::-1] if "complex" in dtype else 0)).astype(dtype)
    f = Diffusion("numpy")
    f.k = K.astype(np.empty(0, dtype).real.dtype)
    result = linear_solve(f, b, rtol=1e-4)
    assert result.x.dtype == dtype
    assert np.linalg.norm(f(result.x) - b) <= 1.1e-4 * np.linalg.norm(b)


def test_gradients_are_those_of_the_function() -> None:
    """By what it closes over, against finite differences."""
    import torch

    f, direction = Diffusion("torch"), rng.standard_normal(GRID)

    def loss(k: Any) -> Any:
        f.k = k
        return (linear_solve(f, torch.from_numpy(B), rtol=1e-12).x ** 2).sum()

    k = torch.from_numpy(K.copy()).requires_grad_()
    loss(k).backward()
    assert k.grad is not None
    h = 1e-6
    with torch.no_grad():
        ahead, behind = (float(loss(torch.from_numpy(K + s * h * direction))) for s in (1, -1))
    np.testing.assert_allclose(float((k.grad.numpy() * direction).sum()), (ahead - behind) / (2 * h), rtol=1e-5)
