"""The method "petsc" on arrays of all libraries and in compiled functions, with factors of SciPy in the place of PETSc.

PETSc's bindings and these libraries are rarely found in one environment; everything but a KSP is krylix's own.
"""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from gradients import gradient
from krylix import choose_backend, linear_solve, prepare
from krylix.solvers.methods.petsc import inverse
from krylix.solvers.methods.petsc.system import Choice, KspResult
from krylix.sparse import CSR
from modes import array, compiled, library, to_numpy

N = 12
MATRIX = sp.csr_array(sp.diags_array([-1.3, 2.5, -0.7], offsets=[-1, 0, 1], shape=(N, N)))
B = np.random.default_rng(0).standard_normal(N)
X = np.linalg.solve(MATRIX.toarray(), B)
ADJOINT = np.linalg.solve(MATRIX.toarray().T, np.ones(N))
INVERSE = np.linalg.inv(MATRIX.toarray())
HESSIAN = INVERSE.T @ np.diag(6 * X) @ INVERSE
BY_VALUES = [-ADJOINT[i] * X[j] for i, j in zip(*MATRIX.nonzero(), strict=True)]


class Standing:
    """As `PetscSystem`, with factors of SuperLU."""

    made = 0

    def __init__(self, rows: Any, choice: Choice, sign: int) -> None:
        Standing.made += 1
        self.choice, self.sign, self.rows = choice, sign, rows
        self.lu = spl.splu(sp.csc_array(rows))

    @classmethod
    def of(cls, rows: Any, choice: Choice, sign: int, block_size: int, comm: Any = None) -> "Standing":
        return cls(rows, choice, sign)

    def with_numbers(self, rows: Any) -> "Standing":
        return self if rows is self.rows else Standing(rows, self.choice, self.sign)

    def transposed(self) -> "Standing":
        return Standing(self.rows.T.tocsr(), self.choice, self.sign)

    def solve(self, b: np.ndarray, goal: float, limit: int, see: Any = None) -> KspResult:
        return KspResult(self.lu.solve(b.astype(float)), 3, "CONVERGED_RTOL")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inverse, "PetscSystem", Standing)
    monkeypatch.setattr(inverse, "suited", lambda *_: Choice("gmres", "hypre"))


def test_numpy() -> None:
    result = linear_solve(MATRIX, B, method="petsc")
    assert np.allclose(result.x, X) and result.iterations == 3 and "KSP gmres with PC hypre" in str(result)


@pytest.mark.needs("jax")
def test_jax() -> None:
    import jax
    import jax.numpy as jnp

    def loss(values: Any, b: Any) -> Any:
        return linear_solve(CSR(values, MATRIX.indices, MATRIX.indptr, MATRIX.shape), b, method="petsc").x.sum()

    by_values, by_b = jax.jit(jax.grad(loss, (0, 1)))(jnp.asarray(MATRIX.data), jnp.asarray(B))
    assert np.allclose(by_values, BY_VALUES) and np.allclose(by_b, ADJOINT)
    solver = prepare(MATRIX, jnp.asarray(B), method="petsc")
    made = Standing.made
    batch = jnp.stack([jnp.asarray(B), 2 * jnp.asarray(B)])
    assert np.allclose(jax.jit(solver)(batch), [X, 2 * X]) and np.allclose(solver(jnp.asarray(B)), X)
    assert np.allclose(jax.jit(lambda s, b: s(b))(solver, jnp.asarray(B)), X)  # a container
    assert np.allclose(jax.jit(jax.vmap(jax.grad(lambda b: solver(b).sum())))(batch), ADJOINT)
    assert Standing.made <= made + 1  # and its transpose
    assert np.allclose(jax.jit(jax.hessian(lambda b: (solver(b) ** 3).sum()))(jnp.asarray(B)), HESSIAN)


@pytest.mark.parametrize("mode", ["torch", "tf-function"])
def test_other_libraries(mode: str) -> None:
    def solve(b: Any) -> Any:
        return linear_solve(MATRIX, b, method="petsc").x

    xp, b = choose_backend(library(mode)).xp, array(mode, B)
    x, by_b = compiled(mode, lambda b: (solve(b), gradient(mode, lambda b: xp.sum(solve(b)), b)))(b)
    assert np.allclose(to_numpy(x), X) and np.allclose(to_numpy(by_b), ADJOINT)
