"""The result says which method made x: eagerly, out of compiled functions, vectorised, and in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from frameworks import jax
from krylix import linear_solve
from modes import EAGER, MODES, array, compiled, product, to_numpy

N = 40
FEW = 3  # iterations, too few for the first method
RNG = np.random.default_rng(0)
MATRIX = sp.diags_array([-1.0, 3.0, -1.5, 0.01], offsets=[-1, 0, 1, 9], shape=(N, N)).toarray()
MATRIX *= 10.0 ** RNG.uniform(-3, 3, (N, 1))
HARD, ZERO = RNG.normal(size=N), np.zeros(N)
FIRST = "biCG-stab(2)"
BOTH = np.stack([HARD, ZERO])
OTHER = f"scipy-direct (after {FIRST} had failed)"
SOME = f"{FIRST}, for 1 of 2 systems {OTHER}"


def function(mode: str, **settings: Any) -> Any:
    """A solve that begins with an iteration, as a preconditioner is given."""
    settings = {"preconditioner": "jacobi", **settings}

    def solve(b: Any, A: Any) -> Any:
        return linear_solve(lambda x, A: product(mode, A)(x), b, args=(A,), max_iter=FEW, **settings)

    return solve


def solved(mode: str, b: np.ndarray, A: np.ndarray = MATRIX, **settings: Any) -> Any:
    return compiled(mode, function(mode, **settings))(array(mode, b), array(mode, A))


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function", "torch-compile"))
@pytest.mark.parametrize("mode", MODES)
def test_a_method_that_took_over(mode: str) -> None:
    """Alone, and in a batch for one of two systems."""
    result = solved(mode, HARD)
    assert (result.method, result.preconditioner, int(result.iterations)) == (OTHER, None, 1)
    assert result.message.startswith(f"{OTHER} converged in 1 iteration")
    assert result.to_dict()["method"] == OTHER and str(result).startswith(f"method: {OTHER}, no preconditioner")
    np.testing.assert_allclose(to_numpy(result.x), np.linalg.solve(MATRIX, HARD), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("mode", EAGER)
def test_for_one_system_of_a_batch(mode: str) -> None:
    result = solved(mode, BOTH, batch_ndim=1)
    assert result.method == SOME
    np.testing.assert_array_equal(to_numpy(result.iterations), [1, 0])
    assert result.message.startswith(f"{SOME} converged in 0 to 1 iterations for all 2 systems")


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("mode", MODES)
def test_a_method_that_did_it_alone(mode: str) -> None:
    result = solved(mode, HARD, np.diag(np.full(N, 2.0)))
    assert result.method in (FIRST, "CG") and int(result.iterations) <= FEW
    np.testing.assert_allclose(to_numpy(result.x), HARD / 2)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("mode", MODES)
def test_where_both_fail(mode: str) -> None:
    """A singular matrix and a right-hand side that no x reaches: the failure is that of the second method."""
    singular = MATRIX.copy()
    singular[3] = 0
    result = solved(mode, HARD, singular, on_failure="status", nullspace=None)
    assert result.method == OTHER and not to_numpy(result.converged).any()
    assert result.message.startswith(OTHER)
    with pytest.raises(Exception, match=r"scipy-direct \(after biCG-stab\(2\) had failed\)"):
        to_numpy(solved(mode, HARD, singular, nullspace=None).x)


@pytest.mark.needs("jax")
def test_vectorised() -> None:
    many = jax.jit(jax.vmap(function("jax"), (0, None)))(np.stack([HARD, ZERO, 2 * HARD]), MATRIX)
    assert many.method == f"{FIRST}, for 2 of 3 systems {OTHER}"
    np.testing.assert_array_equal(many.iterations, [1, 0, 1])


@pytest.mark.needs("jax")
@pytest.mark.merge
def test_vectorised_over_matrices() -> None:
    matrices = np.stack([MATRIX, np.eye(N)])
    each = jax.jit(jax.vmap(function("jax"), (None, 0)))(HARD, matrices)
    assert each.method == SOME
    np.testing.assert_allclose(each.x, np.linalg.solve(matrices, HARD[:, None])[..., 0], rtol=1e-7, atol=1e-9)


@pytest.mark.needs("jax")
def test_where_none_can_take_over() -> None:
    """Nothing more is computed, and the failure is that of the first method."""
    failed = solved("jax-jit", HARD, on_failure="nan")
    assert failed.method == FIRST and np.isnan(failed.x).all() and failed.message.startswith(FIRST)

    def leaves(**settings: Any) -> int:
        return len(jax.tree.leaves(jax.eval_shape(function("jax", **settings), HARD, MATRIX)))

    assert leaves() - 1 == leaves(on_failure="nan") == leaves(method=FIRST)


@pytest.mark.needs("jax")
def test_results_are_containers() -> None:
    """The numbers travel with the result, through other functions and copies."""
    result = jax.jit(jax.vmap(function("jax"), (0, None)))(BOTH, MATRIX)
    for same in (jax.jit(lambda r: r)(result), jax.tree.map(np.asarray, result), jax.tree.map(lambda a: a[:1], result)):
        assert same.method == (SOME if same.x.shape[0] == 2 else OTHER)
    assert jax.tree.map(lambda a: a[1], result).method == FIRST
    assert jax.tree.map(lambda a: a[0], result).method == OTHER


@pytest.mark.needs("jax")
def test_inside_a_compiled_function() -> None:
    """The method is not known before it runs."""
    names = []

    def solve(b: Any, A: Any) -> Any:
        result = function("jax")(b, A)
        names.append((result.method, result.preconditioner))
        return result.x

    jax.jit(solve)(HARD, MATRIX)
    assert names == [(FIRST, "jacobi")]
