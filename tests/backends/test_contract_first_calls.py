"""What keeps first calls short: records of functions, constants hidden from compilers, and results that NumPy found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contract import MODES, backend, covers, run
from frameworks import lazy
from krylix.backends import Backend
from modes import EAGER, array, to_numpy

jax = lazy("jax")
jnp = lazy("jax.numpy")
modes = pytest.mark.parametrize("mode", MODES)
X = np.arange(1.0, 5.0)
LARGE = np.cos(np.arange(2.0**18 + 1))


@covers("recorded")
@modes
def test_a_function_is_recorded_once(mode: str) -> None:
    """In a program of JAX; it is the same function of other arrays, and knows what it depends on."""
    calls: list[Any] = []

    def both(bk: Backend, x: Any, k: Any) -> Any:
        def function(u: Any, factor: Any) -> Any:
            calls.append(u)
            return bk.sum(u * factor, 0) * k

        record = bk.recorded(function, x, (2.0,))
        if record is None:
            return function(x, 2.0), function(3 * x, 2.0)
        assert len(calls) == 1 and record.fits(3 * x) and not record.fits(x[1:]) and not record.is_known
        assert bk.recorded(lambda u: 2 * u, x, ()).is_known
        found = record(x), record.by_lines(3 * x)
        assert len(calls) == 1
        return found

    once, thrice = run(mode, both, X, np.array(5.0))
    np.testing.assert_allclose([once, thrice], [100, 300])
    assert len(calls) == (1 if mode == "jax-jit" else 2)


@covers("hiding_constants")
@modes
def test_hidden_constants_have_their_values(mode: str) -> None:
    def product(bk: Backend, x: Any) -> Any:
        constant = bk.asarray(LARGE, bk.dtype(x), x)
        return bk.hiding_constants(lambda x, y: (x + bk.sum(constant * y, 0), y))(x, 2 * x[0])

    total, same = run(mode, product, X)
    np.testing.assert_allclose(total, X + 2 * LARGE.sum(), rtol=1e-12)
    np.testing.assert_array_equal(same, 2.0)


@pytest.mark.parametrize("closed", [True, False])
def test_xla_sees_no_large_constant(closed: bool) -> None:
    """Nor do derivatives by what else the function closes over get lost."""
    bk, constant = backend("jax-jit"), jnp.asarray(LARGE)
    program = jax.make_jaxpr(lambda x: bk.hiding_constants(lambda y: y * constant)(x))(LARGE)
    assert [str(e.primitive) for e in program.eqns].count("optimization_barrier") == 1
    by = lambda k: jnp.sum(bk.hiding_constants(lambda y: k * y * constant)(jnp.asarray(LARGE)))  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(by))(2.0) if closed else jax.jvp(by, (2.0,), (1.0,))[1], LARGE @ LARGE)


@covers("compiles_numbers")
@modes
def test_whose_numbers_are_kernels(mode: str) -> None:
    seen: list[bool] = []

    def look(bk: Backend, x: Any) -> Any:
        seen.append(bk.compiles_numbers(x))
        return x

    run(mode, look, X)
    assert seen == [mode == "jax-jit"]


@covers("may_leave_to_host")
@modes
def test_who_leaves_arrays_to_numpy(mode: str) -> None:
    """JAX, where its arrays have values and nobody watches."""
    seen: list[bool] = []

    def look(bk: Backend, x: Any) -> Any:
        seen.append(bk.may_leave_to_host(x, {"one": x, "two": (2.0, None)}))
        return x

    run(mode, look, X)
    assert seen == [mode == "jax" and jax.device_count() == 1]


def test_watched_arrays_are_not_left_to_numpy() -> None:
    if jax.device_count() > 1:
        pytest.skip("with several devices nothing is left to NumPy")
    bk, x = backend("jax"), jnp.asarray(X)
    assert bk.may_leave_to_host(x)
    assert not bk.may_leave_to_host(jnp.asarray(2.0)), "of a weak type"
    for setting in (jax.disable_jit, jax.debug_nans):
        with setting(True):
            assert not bk.may_leave_to_host(x)
    seen: list[bool] = []
    jax.grad(lambda k: (seen.append(bk.may_leave_to_host(x, (k,))), k)[1])(1.0)
    jax.vmap(lambda y: (seen.append(bk.may_leave_to_host(y)), y)[1])(x)
    assert seen == [False, False]


@covers("results_from_host")
@pytest.mark.parametrize("mode", EAGER)
def test_results_of_numpy(mode: str) -> None:
    bk, like = backend(mode), array(mode, X)
    arrays = [X.copy(), np.array([True, False]), np.array(3), np.float32([1, 2]), X * 1j]
    found = bk.results_from_host(arrays, like)
    for one, expected in zip(found, arrays, strict=True):
        assert bk.is_array(one) and bk.dtype(one) == expected.dtype and bk.device(one) == bk.device(like)
        np.testing.assert_array_equal(to_numpy(one), expected)
