"""`choose_backend(y).linear_solve(...)` and its like, against NumPy's solve."""

from typing import Any

import numpy as np
import pytest

import krylix
from krylix import Status

LIBRARIES = [
    "numpy",
    *(pytest.param(name, marks=pytest.mark.needs(name)) for name in ("jax", "torch", "tensorflow")),
]
A = np.array([[4.0, -1, 0, 0], [-1, 4, -1, 0], [0, -1, 4, -1], [0, 0, -1, 4]], np.float32)
Y = np.array([[1.0, 2, 3, 4], [0, 0, 1, -1]], np.float32)
CALLS = {
    "linear_solve": (lambda bk, *args: bk.linear_solve("direct", *args), "direct"),
    "conjugate_gradient": (lambda bk, *args: bk.conjugate_gradient(*args), "CG"),
    "conjugate_gradient_adaptive": (lambda bk, *args: bk.conjugate_gradient_adaptive(*args), "CG-adaptive"),
    "bi_conjugate_gradient": (lambda bk, *args: bk.bi_conjugate_gradient(*args), "biCG-stab(2)"),
}


@pytest.mark.parametrize("library", LIBRARIES[:1] + LIBRARIES[2:])
@pytest.mark.parametrize("name", CALLS)
def test_solves(library: str, name: str) -> None:
    bk = krylix.choose_backend(library)
    call, method = CALLS[name]
    result = call(bk, A, list(Y))
    assert bk.is_array(result.x), "the arrays of the backend, whatever y was"
    assert str(result.method).startswith(method)
    np.testing.assert_allclose(bk.to_numpy(result.x), np.linalg.solve(A, Y.T).T, rtol=1e-4, atol=1e-5)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "conjugate_gradient" else pytest.mark.merge) for name in CALLS]
)
def test_solves_of_jax(name: str) -> None:
    """Each call is a program there."""
    test_solves("jax", name)


@pytest.mark.parametrize("library", LIBRARIES)
def test_limits_of_each_checkpoint_and_system(library: str) -> None:
    bk = krylix.choose_backend(library)
    matrix = bk.asarray(A)

    def product(x: Any) -> Any:
        return x @ matrix

    result = bk.conjugate_gradient(product, bk.asarray(Y), None, 1e-5, 0.0, np.array([[1, 2], [4, 4]]))
    assert np.array_equal(bk.to_numpy(result.status)[0], [Status.MAX_ITER, Status.MAX_ITER]), "no failure is raised"
    np.testing.assert_allclose(bk.to_numpy(result.x)[1], np.linalg.solve(A, Y.T).T, rtol=1e-4, atol=1e-5)


def test_order_of_the_polynomial() -> None:
    bk = krylix.choose_backend("numpy")
    assert bk.bi_conjugate_gradient(A, Y, poly_order=1).method == "biCG-stab"
    with pytest.raises(ValueError, match="integer l >= 1; got 0"):
        bk.bi_conjugate_gradient(A, Y, poly_order=0)
