"""`krylix.adapters.phiflow` in PhiML: its functions, its tensors, its `Solve`."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import krylix
from frameworks import missing
from krylix.adapters.phiflow import settings_of, solve_linear


def a_solve(**attributes):
    return SimpleNamespace(**{"method": "CG", "suppress": (), "preprocess_y": None, "x0": None, **attributes})


def test_settings_without_phiml():
    assert settings_of(a_solve()) == {
        "method": "CG", "rtol": None, "atol": 0.0, "max_iter": None, "preconditioner": None, "nullspace": "auto",
    }  # fmt: skip
    with pytest.raises(ValueError, match="gradient_solve"):
        settings_of(a_solve(_gradient_solve=a_solve()))


if missing("phiml"):
    pytest.skip("not installed: phiml", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from phiml import math
    from phiml.math import Solve, batch, channel, extrapolation, spatial

pytestmark = [
    pytest.mark.merge,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::UserWarning"),
]


@pytest.fixture(params=["numpy", "jax", "torch", "tensorflow"])
def library(request):
    if request.param != "numpy" and missing(request.param):
        pytest.skip(f"not installed: {request.param}")
    before = math.get_precision()
    math.set_global_precision(64)
    math.use(request.param)
    yield request.param
    math.use("numpy")
    math.set_global_precision(before)


def helmholtz(x, k=5.0):
    return k * x - math.laplace(x, padding=extrapolation.ZERO)


def values(*dims):
    shape = math.concat_shapes(*dims)
    return math.tensor(np.random.default_rng(0).normal(size=shape.sizes), *dims)


def largest(x):
    return float(math.max(abs(x), x.shape))


@pytest.mark.parametrize("dims", [(spatial(x=6, y=5),), (spatial(x=6, y=5), batch(b=3)), (channel(c=2), spatial(x=7))])
def test_solution(library, dims):
    y = values(*dims)
    x = solve_linear(helmholtz, y, Solve("CG", rel_tol=1e-11), method="biCG-stab")
    assert x.default_backend.name == library and set(x.shape.names) == set(y.shape.names)
    assert largest(helmholtz(x) - y) < 1e-9


def test_as_phiml(library):
    y = values(spatial(x=6, y=5))
    solve = Solve("CG", rel_tol=1e-11, abs_tol=1e-11, x0=math.zeros_like(y))
    assert largest(solve_linear(helmholtz, y, solve) - math.solve_linear(helmholtz, y, solve)) < 1e-9


def test_arguments_and_preprocessing():
    y = values(spatial(x=6))
    doubled = Solve("CG", rel_tol=1e-5, preprocess_y=lambda y, s: s * y, preprocess_y_args=(2.0,))
    x = solve_linear(helmholtz, y, doubled, 7.0)
    assert largest(helmholtz(x, 7.0) - 2 * y) < 1e-4


def test_failures():
    y = values(spatial(x=30))
    solve = Solve("CG", rel_tol=1e-6, max_iterations=2)
    with pytest.raises(krylix.NotConverged):
        solve_linear(helmholtz, y, solve, 0.1)
    suppressed = Solve("CG", rel_tol=1e-6, max_iterations=2, suppress=[math.NotConverged])
    assert np.isfinite(largest(solve_linear(helmholtz, y, suppressed, 0.1)))


@pytest.mark.needs("phi")
def test_fields():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from phi.field import CenteredGrid, laplace

    y = CenteredGrid(values(batch(b=2), spatial(x=6, y=5)), extrapolation.ZERO)
    solve = Solve("CG", rel_tol=1e-5, x0=0 * y)
    u = solve_linear(lambda u: u - 0.1 * laplace(u), y, solve)
    assert isinstance(u, type(y)) and u.extrapolation == y.extrapolation
    assert largest((u - 0.1 * laplace(u) - y).values) < 1e-4
    assert largest((u - math.solve_linear(lambda u: u - 0.1 * laplace(u), y, solve)).values) < 1e-4


@pytest.mark.needs("jax")
def test_gradient_in_jit():
    import jax

    def loss(k):
        x = solve_linear(lambda x: helmholtz(x, math.wrap(k)), y, Solve("CG", rel_tol=1e-11))
        return math.sum(x**2, x.shape).native()  # the library of y, whatever PhiML's default is

    with math.precision(64):
        y = math.wrap(jax.numpy.cos(jax.numpy.arange(6.0)), spatial("x"))
        gradient = jax.jit(jax.grad(loss))(5.0)
        np.testing.assert_allclose(gradient, (loss(5.001) - loss(4.999)) / 0.002, rtol=1e-5)
