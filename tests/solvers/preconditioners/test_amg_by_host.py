"""Classical AMG of traced values that the host sets up in each run of a JAX program."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix

pytestmark = pytest.mark.needs("jax")
AMG: Any = sys.modules["krylix.solvers.preconditioners.amg.amg"]
SIDE = 40
N = SIDE * SIDE
B = np.random.default_rng(0).standard_normal(N)


def medium(kind: str, seed: int = 0) -> sp.csr_array:
    """Flow on a grid of cells with lines that conduct 1e6 times better, or conductivities of any size."""
    rng = np.random.default_rng(seed)
    line = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(SIDE - 1, SIDE))
    D = sp.vstack([sp.kron(line, sp.eye_array(SIDE)), sp.kron(sp.eye_array(SIDE), line)])
    k = np.exp(3 * rng.standard_normal((SIDE, SIDE)))
    if kind == "lines":
        k = np.ones((SIDE, SIDE))
        k[rng.integers(0, SIDE, 6)] = 1e6
    face = np.concatenate([np.sqrt(k[1:] * k[:-1]).ravel(), np.sqrt(k[:, 1:] * k[:, :-1]).ravel()])
    rim = np.where(np.arange(N) < SIDE, 1.0, 0.0)
    A = sp.csr_array(D.T @ sp.diags_array(face) @ D + sp.diags_array(rim))
    A.sort_indices()
    return A


def entries(A: sp.csr_array) -> Any:
    return krylix.as_operator(A).values


PATTERN = krylix.as_operator(medium("lines"))


def made(values: Any) -> tuple[Any, Any]:
    A = PATTERN.with_values(values)
    return A, krylix.preconditioner(A, "amg", coarsening="classical")


def solve(values: Any, b: Any, **settings: Any) -> tuple[Any, Any]:
    A, M = made(values)
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-9, **settings)
    return result.x, result.iterations


def test_splittings_are_those_of_the_run() -> None:
    """As many iterations as outside of programs, for any coefficients; of the same numbers it is set up once."""
    import jax

    compiled = jax.jit(solve)
    for kind, seed in (("lines", 1), ("cells", 2), ("cells", 3), ("cells", 3)):
        A = medium(kind, seed)
        x, count = compiled(entries(A), B)
        assert np.linalg.norm(B - A @ np.asarray(x)) <= 1e-8 * np.linalg.norm(B)
        M = krylix.preconditioner(A, "amg", coarsening="classical")
        assert int(count) == krylix.linear_solve(A, B, method="CG", preconditioner=M, rtol=1e-9).iterations <= 16
    assert len(AMG._CYCLES) == 3
    krylix.clear_setup_cache()
    assert not AMG._CYCLES


FORMS: dict[str, Any] = {"H": lambda M: M.H, "conj": lambda M: M.conj(), "T": lambda M: M.T, "plain": lambda M: M}


@pytest.mark.parametrize("phase", [0.0, 0.3])
def test_the_cycle_its_transpose_and_conjugates(phase: float) -> None:
    """Of a matrix that is not symmetric, in one run and in any order: the cached cycle is that of the values."""
    import jax

    A = sp.csr_array(medium("cells") + 0.1 * sp.triu(medium("cells"), 1))
    assert A.nnz == medium("cells").nnz
    b = B
    if phase:
        A, b = sp.csr_array(A + 1j * phase * sp.diags_array(A.diagonal())), B + 1j * B[::-1]

    @jax.jit
    def images(values: Any, r: Any) -> dict[str, Any]:
        _, M = made(values)
        assert M.hermitian is None and "host" in repr(M)
        return {name: form(M) @ r for name, form in FORMS.items()}

    known = krylix.preconditioner(A, "amg", coarsening="classical").inner.dense()
    exact = {"H": known.conj().T, "conj": known.conj(), "T": known.T, "plain": known}
    for name, found in images(A.data, b).items():
        expected = exact[name] @ b
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max(), err_msg=name)


@pytest.mark.merge
def test_derivatives_and_several_matrices() -> None:
    import jax
    import jax.numpy as jnp

    matrices = [medium("cells", seed) for seed in (4, 5)]
    values = jnp.stack([jnp.asarray(entries(A)) for A in matrices])
    loss = lambda values: jnp.vdot(B, solve(values, B)[0])  # noqa: E731
    for found, A in zip(jax.jit(jax.vmap(jax.grad(loss)))(values), matrices, strict=True):
        x = np.linalg.solve(A.toarray(), B)
        rows = np.repeat(np.arange(N), np.diff(A.indptr))
        expected = -x[rows] * x[A.indices]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_values_without_a_hierarchy() -> None:
    """NaN, and a zero on the diagonal: the solve fails or succeeds by itself, nothing is raised by the set-up."""
    import jax

    @jax.jit
    def compiled(values: Any, b: Any) -> Any:
        A, M = made(values)
        return krylix.linear_solve(A, b, method="CG", preconditioner=M, on_failure="status").converged

    bad = np.array(entries(medium("cells")))
    bad[7] = np.nan
    assert not compiled(bad, B)
    indefinite = medium("cells")
    indefinite.setdiag(np.where(np.arange(N) == 3, 0, indefinite.diagonal()))
    assert np.asarray(compiled(indefinite.data, B)).dtype == bool


@pytest.mark.merge
def test_programs_that_do_not_call_the_host() -> None:
    """They keep the splittings of unit coefficients, or are refused where they cannot know in time."""
    import jax

    A = medium("cells")
    with krylix.on_failure("nan"):
        image = jax.jit(lambda values, r: made(values)[1] @ r)
        assert "callback" not in (text := image.lower(entries(A), B).as_text()) and "by_host" not in text
        x, _ = jax.jit(solve)(entries(A), B)
        assert np.linalg.norm(B - A @ np.asarray(x)) <= 1e-7 * np.linalg.norm(B)
    with pytest.raises(krylix.UnsupportedOperation, match="set up and applied by the host"):
        jax.jit(lambda values, b: solve(values, b, on_failure="nan"))(entries(A), B)
