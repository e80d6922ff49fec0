"""CG with one reduction in each step: as many iterations as CG, and as small a residual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krylix import linear_solve

N = 24


def conduction(contrast: float, seed: int = 0) -> Any:
    """Conductivities exp(contrast * normal) on the faces of a grid with u = 0 around it."""
    c = np.exp(contrast * np.random.default_rng(seed).normal(size=(2, N + 1, N + 1)))
    cy, cx = c[0, :, :N], c[1, :N, :]

    def apply(u: Any) -> Any:
        padded = np.pad(u, 1)
        fy = (padded[1:, 1:-1] - padded[:-1, 1:-1]) * cy
        fx = (padded[1:-1, 1:] - padded[1:-1, :-1]) * cx
        return fy[:-1] - fy[1:] + fx[:, :-1] - fx[:, 1:]

    return apply


@pytest.mark.parametrize("preconditioner", [None, "jacobi", "ic"])
@pytest.mark.parametrize(("contrast", "rtol"), [(0.0, 1e-13), (1.0, 1e-13), (2.0, 1e-12)])
def test_same_iterations_and_residual_as_cg(contrast: float, rtol: float, preconditioner: str | None) -> None:
    """To what double precision allows, where pipelined forms of CG have stopped long before."""
    A, b = conduction(contrast), np.random.default_rng(1).normal(size=(N, N))
    found = {}
    for method in ("CG", "CG-single-reduction"):
        one = linear_solve(A, b, method=method, preconditioner=preconditioner, rtol=rtol, max_iter=20_000)
        assert np.linalg.norm(A(one.x) - b) <= rtol * np.linalg.norm(b)
        found[method] = one.iterations
    assert found["CG-single-reduction"] <= 1.15 * found["CG"] + 5, found


def test_negative_definite_and_complex_hermitian() -> None:
    rng = np.random.default_rng(2)
    H = rng.normal(size=(30, 30)) + 1j * rng.normal(size=(30, 30))
    H = H @ H.conj().T + 30 * np.eye(30)
    b = rng.normal(size=(3, 30)) + 1j * rng.normal(size=(3, 30))
    for A in (H, -H):
        x = linear_solve(A, b, method="CG-single-reduction", rtol=1e-12).x
        np.testing.assert_allclose(x, np.linalg.solve(A, b.T).T, rtol=1e-9, atol=1e-12)


def test_breakdown_is_no_success() -> None:
    """An indefinite matrix whose first <r, A r> is zero."""
    result = linear_solve(
        np.diag([1.0, -1.0]), np.ones(2), method="CG-single-reduction", on_failure="status", nullspace=None
    )
    assert bool(result.converged) == bool(np.allclose(np.diag([1.0, -1.0]) @ result.x, 1))
