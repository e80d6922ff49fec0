"""COCR: complex symmetric systems, and what is none."""

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import Status, linear_solve, preconditioner
from krylix.solvers import METHODS
from modes import array, compiled, to_numpy
from problems import SYSTEMS

SYSTEM = SYSTEMS["complex symmetric"]


def helmholtz(n: int = 24, waves: float = 12.0, absorption: float = 0.1) -> sp.csr_array:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)) * (n + 1) ** 2
    speed = np.linspace(0.8, 1.2, n * n)
    return sp.csr_array(sp.kronsum(line, line) - sp.diags_array((waves * speed) ** 2 * (1 + 1j * absorption)))


@pytest.mark.parametrize("kind", [None, "jacobi", "ssor", "ilu"])
def test_helmholtz(kind: str | None) -> None:
    """Far fewer products than methods for general matrices need."""
    A = helmholtz()
    b = np.random.default_rng(0).standard_normal(A.shape[0]) + 0j
    result = linear_solve(A, b, method="COCR", preconditioner=kind)
    np.testing.assert_allclose(result.x, np.linalg.solve(A.toarray(), b), rtol=1e-7, atol=1e-12)
    general = linear_solve(A, b, method="biCG-stab(2)", preconditioner=kind, on_failure="status")
    assert result.converged and result.function_evaluations < 0.75 * general.function_evaluations


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_steps_of_cocr_are_those_of_conjugate_residuals(steps: int) -> None:
    """For a real symmetric matrix, the residual over the Krylov space is the smallest."""
    A, b = SYSTEMS["definite"].matrix, SYSTEMS["definite"].right_hand_side(seed=3)
    space = np.stack([np.linalg.matrix_power(A, k) @ b for k in range(1, steps + 1)], 1)
    best = b - space @ np.linalg.lstsq(space, b, rcond=None)[0]
    result = linear_solve(A, b, method="COCR", max_iter=steps, on_failure="status")
    np.testing.assert_allclose(result.residual, best, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_residuals_are_orthogonal_without_conjugation(steps: int) -> None:
    A, b = SYSTEM.matrix, SYSTEM.right_hand_side(seed=3)
    space = np.stack([np.linalg.matrix_power(A, k) @ b for k in range(1, steps + 1)], 1)
    r = linear_solve(A, b, method="COCR", max_iter=steps, on_failure="status").residual
    size = np.linalg.norm(space, axis=0) * np.linalg.norm(r)
    assert (np.abs(space.T @ r) < 1e-8 * size).all()
    np.testing.assert_array_less(1e-4, np.abs(space.conj().T @ r).max() / size.max())  # with it, they are not


def test_of_real_matrices_it_is_one_for_symmetric_ones() -> None:
    A, b = SYSTEMS["definite"].matrix, SYSTEMS["definite"].right_hand_side(seed=1)
    result = linear_solve(A, b, method="COCR")
    assert result.converged and abs(int(result.iterations) - int(linear_solve(A, b, method="CG").iterations)) <= 1
    with pytest.raises(ValueError, match=r"needs a symmetric matrix \(A\^T = A"):
        linear_solve(SYSTEMS["nonsymmetric"].matrix, b, method="COCR")


def test_what_is_not_symmetric_is_refused() -> None:
    b = SYSTEM.right_hand_side(seed=1)
    with pytest.raises(ValueError, match=r"without conjugation.*Use CG or MINRES, because it is Hermitian"):
        linear_solve(SYSTEMS["complex Hermitian"].matrix, b, method="COCR")
    with pytest.raises(ValueError, match=r"without conjugation.*biCG-stab\(2\)"):
        linear_solve(sp.csr_array(SYSTEMS["complex"].matrix), b, method="COCR")
    with pytest.raises(ValueError, match="CG needs a Hermitian matrix"):
        linear_solve(SYSTEM.matrix, b, method="CG")


def test_preconditioners_are_symmetric() -> None:
    A, b = SYSTEM.matrix, SYSTEM.right_hand_side(seed=1)
    symmetric = np.diag(1 / np.diag(A))
    assert linear_solve(A, b, method="COCR", preconditioner=symmetric).converged
    with pytest.raises(ValueError, match=r"needs a symmetric preconditioner \(M\^T = M, without conjugation\)"):
        linear_solve(A, b, method="COCR", preconditioner=symmetric + np.triu(np.full_like(A, 0.1)))
    M = preconditioner(SYSTEMS["complex Hermitian"].matrix, "ilu")  # Hermitian, which is something else
    with pytest.raises(ValueError, match="needs a symmetric preconditioner"):
        linear_solve(A, b, method="COCR", preconditioner=M)
    result = linear_solve(A, b, method="COCR", preconditioner=lambda r: r / np.diag(A))  # nobody looks into a function
    np.testing.assert_allclose(A @ result.x, b, rtol=1e-8)


def test_a_breakdown_is_no_false_success() -> None:
    """r^T r = 0 for r = (1, i): a product without conjugation vanishes where its vector does not."""
    A, b = np.array([[2.0, 0], [0, 3]], complex), np.array([1, 1j])
    result = linear_solve(A, b, method="COCR", on_failure="status")
    assert result.status in (Status.CONVERGED, Status.BREAKDOWN) and np.isfinite(result.x).all()
    assert bool(result.converged) == np.allclose(A @ result.x, b)
    batch = linear_solve(A, np.stack([b, [1, 2], [0, 0]]), method="COCR", on_failure="status")
    assert batch.converged[1:].all() and batch.status[0] == result.status


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_compiled_and_differentiated(mode: str) -> None:
    """The adjoint is a solve with conj(A), which is symmetric too."""
    A, b = SYSTEM.matrix, SYSTEM.right_hand_side((2,), seed=1)
    result = compiled(mode, lambda b: linear_solve(array(mode, A), b, method="COCR").x)(array(mode, b))
    np.testing.assert_allclose(to_numpy(result), np.linalg.solve(A, b.T).T, rtol=1e-7)
    if mode != "jax-jit":
        return
    import jax
    from jax import numpy as jnp

    def loss(solve: str, A: jax.Array, b: jax.Array) -> jax.Array:
        A = (A + A.T) / 2
        x = linear_solve(A, b, method="COCR", rtol=1e-12).x if solve == "ours" else jnp.linalg.solve(A, b.T).T
        return jnp.sum(jnp.abs(x) ** 4)

    both = jax.jit(lambda *p: [jax.grad(loss, (1, 2))(solve, *p) for solve in ("ours", "theirs")])(A, b)
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_facts() -> None:
    method = METHODS["COCR"]
    assert method.needs_symmetric and method.needs_symmetry and not method.needs_hermitian
    b = SYSTEM.right_hand_side(seed=1)
    assert linear_solve(SYSTEM.matrix, b, method="mixed-COCR").converged
