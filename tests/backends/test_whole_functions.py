"""Whole functions for users: compiled, run on the host, mapped over elements, looped, and without derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frameworks import jax, torch
from krylix.backends import Backend, get_backend
from modes import COMPILED, EAGER, MODES, array, compiled, library, to_numpy

eagerly = pytest.mark.parametrize("mode", EAGER)
recorded = pytest.mark.parametrize("mode", (*EAGER[1:], *COMPILED))
looped = pytest.mark.parametrize("mode", ("numpy", "jax", "jax-jit", "torch", "tf", "tf-function"))
X = np.array([[0.3, -1.2, 0.8], [0.5, 0.9, -0.4]])
Y = np.array([0.7, -0.2, 1.1])


@recorded
def test_stop_gradient(mode: str) -> None:
    bk = get_backend(library(mode))

    def loss(x: Any) -> Any:
        held = bk.stop_gradient({"a": x, "b": [x, 2.0, "text"]})
        assert held["b"][1:] == [2.0, "text"]
        return bk.sum(held["a"] * x + held["b"][0] * 3, 0)

    gradient = compiled(mode, bk.jacobian(loss, get_output=False))(array(mode, Y))
    np.testing.assert_array_equal(to_numpy(gradient), Y)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # from inside torch.compile
@eagerly
def test_compile(mode: str) -> None:
    """Once for each shape and static value."""
    bk, calls = get_backend(library(mode)), []

    def power(x: Any, times: int) -> Any:
        calls.append(times)
        return x**times

    function = bk.compile(power, static=("times",))
    if mode == "torch":
        assert callable(function) and function is not power
        return  # which takes the compiler that it needs 20 s
    for times in (2, 3, 2):
        np.testing.assert_allclose(to_numpy(function(array(mode, Y), times=times)), Y**times, rtol=1e-14)
    assert len(calls) == (3 if mode == "numpy" else 2)


@eagerly
def test_block_until_ready(mode: str) -> None:
    bk = get_backend(library(mode))
    tree = {"a": array(mode, Y), "b": [array(mode, X), 3]}
    ready = bk.block_until_ready(tree)
    assert ready.keys() == tree.keys() and ready["b"][1] == 3
    np.testing.assert_array_equal(to_numpy(ready["b"][0]), X)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "torch-compile"])
def test_numpy_call(mode: str) -> None:
    bk = get_backend(library(mode))

    def on_host(x: np.ndarray, y: np.ndarray, shift: float = 0.0) -> Any:
        assert type(x) is np.ndarray
        return np.cumsum(x + y) + shift, np.argsort(y)

    def both(x: Any, y: Any) -> Any:
        several = bk.numpy_call(on_host, [((6,), np.float64), ((3,), np.int64)], x, y, shift=1.0)
        return (*several, bk.numpy_call(lambda x: x.max(), ((), np.float64), x))

    sums, order, largest = compiled(mode, both)(array(mode, X), array(mode, Y))
    np.testing.assert_allclose(to_numpy(sums), np.cumsum(X + Y) + 1, rtol=1e-14)
    np.testing.assert_array_equal(to_numpy(order), np.argsort(Y))
    assert to_numpy(largest) == X.max()


@eagerly
def test_numpy_call_shares_no_memory(mode: str) -> None:
    """Neither the caller's arrays with f, nor a buffer of f with the results."""
    bk, buffer, x = get_backend(library(mode)), np.zeros(3), array(mode, Y.copy())

    def doubled(x: np.ndarray) -> np.ndarray:
        return np.multiply(x, 2, out=buffer)

    first, _, same = (bk.numpy_call(f, ((3,), float), a) for f, a in ((doubled, x), (doubled, x + 1), (lambda x: x, x)))
    np.testing.assert_array_equal(to_numpy(first), 2 * Y)
    with pytest.raises(ValueError, match="read-only"):
        bk.numpy_call(lambda x: x.sort(), ((3,), float), x)
    np.testing.assert_array_equal(to_numpy(x), Y)
    if mode in ("numpy", "torch"):
        same[0] = 5
        np.testing.assert_array_equal(to_numpy(x), Y)


@pytest.mark.needs("torch")
def test_numpy_call_is_refused_inside_of_torch_func() -> None:
    bk = get_backend("torch")

    def sine(x: Any) -> Any:
        return bk.numpy_call(np.sin, ((), float), x)

    ruled, x = bk.custom_gradient(sine, lambda inputs, outputs, c: c * bk.cos(inputs[0])), torch.tensor(Y)
    for f in (sine, ruled):
        calls = (
            lambda f=f: torch.func.grad(f)(x[0]),
            lambda f=f: torch.func.jvp(f, (x[0],), (x[1],)),
            lambda f=f: torch.func.vmap(f)(x),
            lambda f=f: bk.vmap(f)(x),
        )
        for call in calls:
            with pytest.raises(TypeError, match=r"inside of torch\.func got a tensor without values; expected plain"):
                call()
    assert bk.vmap(lambda y: y + sine(x[0]))(x).shape == (3,)


def test_numpy_call_says_what_it_expects() -> None:
    bk = get_backend("numpy")
    for returns in (3, X, "float64", [(3,), (3,)], ((2.5,), float)):
        with pytest.raises(TypeError, match=r"(?s)argument returns=.*expected \(shape, dtype\)"):
            bk.numpy_call(np.sin, returns, X)
    with pytest.raises(ValueError, match=r"shape \(2, 3\); \(3,\) was declared"):
        bk.numpy_call(np.sin, ((3,), float), X)


@pytest.mark.parametrize("mode", ("jax", "torch", "tf", "tf-function"))
def test_numpy_call_has_the_derivative_that_is_given_to_it(mode: str) -> None:
    bk = get_backend(library(mode))

    def sines(x: Any) -> Any:
        return bk.numpy_call(np.sin, ((3,), np.float64), x)

    unknown = compiled(mode, bk.jacobian(lambda x: bk.sum(sines(x), 0), get_output=False))
    if mode == "tf-function":
        assert np.isnan(to_numpy(unknown(array(mode, Y)))).all()
    else:
        with pytest.raises(TypeError, match="derivative of numpy_call was asked for"):
            unknown(array(mode, Y))
    special = bk.custom_gradient(sines, lambda inputs, outputs, c: c * bk.cos(inputs[0]))
    gradient = compiled(mode, bk.jacobian(lambda x: bk.sum(special(x), 0), get_output=False))(array(mode, Y))
    np.testing.assert_allclose(to_numpy(gradient), np.cos(Y), rtol=1e-13)


# ---- vmap


@looped
def test_vmap_shares_arguments_of_size_one(mode: str) -> None:
    bk = get_backend(library(mode))

    def f(x: Any, pair: dict[str, Any], z: Any) -> Any:
        return {"p": x * pair["y"] + z, "q": (bk.sum(pair["y"], 0),)}

    def mapped(x: Any, y: Any, z: Any) -> Any:
        return bk.vmap(f)(x, {"y": y}, z), bk.vmap(f, (0, None, 0))(x, {"y": y[0]}, z)

    y, z = Y[None], np.array([[1.0], [2.0]])
    for found in compiled(mode, mapped)(*(array(mode, a) for a in (X, y, z))):
        np.testing.assert_allclose(to_numpy(found["p"]), X * Y + z, rtol=1e-14)
        np.testing.assert_allclose(to_numpy(found["q"][0]), [Y.sum()] * 2, rtol=1e-14)


@eagerly
def test_vmap_of_sizes_that_do_not_fit(mode: str) -> None:
    bk = get_backend(library(mode))
    x, y = array(mode, X), array(mode, Y)
    with pytest.raises(ValueError, match="first axes of size 2, 3; expected one size, or 1"):
        bk.vmap(lambda x, y: x)(x, y)
    for axes in ((1, 0), (0,), (None, None)):
        with pytest.raises(ValueError, match="expected 0 or None for each"):
            bk.vmap(lambda x, y: x, axes)(x, y)
    with pytest.raises(ValueError, match=r"argument 0 with first axes of size (2, 3|3, 2); expected one size"):
        bk.vmap(lambda pair: pair[0])((x, y))


@looped
def test_vmap_of_no_elements(mode: str) -> None:
    bk = get_backend(library(mode))
    mapped = compiled(mode, bk.vmap(lambda x, y: {"p": x + y, "q": (bk.sum(x, 0) > 1,)}, (0, None)))
    found = mapped(array(mode, np.zeros((0, 3))), array(mode, Y))
    assert tuple(found["p"].shape) == (0, 3) and bk.dtype(found["p"]) == np.float64
    assert tuple(found["q"][0].shape) == (0,) and bk.dtype(found["q"][0]) == np.bool_


def test_vmap_keeps_results_that_lie_in_one_buffer() -> None:
    buffer = np.zeros(3)
    np.testing.assert_array_equal(get_backend("numpy").vmap(lambda x: np.multiply(x, 2, out=buffer))(X), 2 * X)


# ---- loops


def collatz(bk: Backend, n: Any, max_iter: Any = None) -> Any:
    """Steps of 3 n + 1 until 1, counted."""

    def body(state: dict[str, Any]) -> dict[str, Any]:
        n = state["n"]
        return {"n": bk.where(n % 2 == 0, n // 2, 3 * n + 1), "steps": state["steps"] + 1}

    return bk.while_loop(lambda s: s["n"] != 1, body, {"n": n, "steps": 0 * n}, max_iter)


@looped
def test_while_loop_with_limits(mode: str) -> None:
    """6 3 10 5 16 8 4 2 1: it ends by itself after 8 steps."""
    bk = get_backend(library(mode))
    seen = [6, 3, 10, 5, 16, 8, 4, 2, 1]
    limits = (0, 1, 4, 7, 8, 11, 20)

    def both(n: Any) -> Any:
        return collatz(bk, n, 3), collatz(bk, n, limits), collatz(bk, n, 30), collatz(bk, n, [2])

    third, every, end, second = compiled(mode, both)(array(mode, np.array(6)))
    assert to_numpy(third["n"]) == 5 and to_numpy(third["steps"]) == 3
    np.testing.assert_array_equal(to_numpy(every["n"]), [seen[min(limit, 8)] for limit in limits])
    np.testing.assert_array_equal(to_numpy(every["steps"]), [min(limit, 8) for limit in limits])
    assert to_numpy(end["n"]) == 1 and to_numpy(end["steps"]) == 8
    assert to_numpy(second["n"]).tolist() == [10]


@looped
def test_trajectories_of_numbers(mode: str) -> None:
    """A tuple of numbers, which NumPy's arrays without axes become after a step, has a leaf for each."""
    bk = get_backend(library(mode))

    def steps(n: Any, x: Any) -> Any:
        def down(s: Any) -> Any:
            return s[0] - 1, s[1] + 2.0

        return [bk.while_loop(lambda s: s[0] > 0, down, s, [0, 3, 12]) for s in ((n, x), (10, np.float64(5)))]

    for counts, sums in compiled(mode, steps)(array(mode, np.array(10)), array(mode, np.array(5.0))):
        np.testing.assert_array_equal(to_numpy(counts), [10, 7, 0])
        np.testing.assert_array_equal(to_numpy(sums), [5, 11, 25])


@eagerly
def test_while_loop_keeps_states_that_the_body_overwrites(mode: str) -> None:
    bk = get_backend(library(mode))
    ones = array(mode, np.ones((1, 2)))
    found = bk.while_loop(
        lambda s: True, lambda s: bk.axpy(ones[:, :1], ones, s), array(mode, X[:1, :2].copy()), (1, 2, 4)
    )
    np.testing.assert_allclose(to_numpy(found)[:, 0], X[0, :2] + np.array([[1], [2], [4]]))
    for wrong in (-1, (), (2, 2), (3, 1)):
        with pytest.raises(ValueError, match="expected a number of steps from 0 on, or increasing ones"):
            bk.while_loop(lambda s: True, lambda s: s, ones, wrong)


@pytest.mark.parametrize("mode", ("jax", "torch", "tf", "tf-function"))
def test_derivatives_of_loops(mode: str) -> None:
    """Of `for_loop` in all; of `while_loop` where the library has them: JAX says that it has none in reverse."""
    bk = get_backend(library(mode))
    x = array(mode, Y)
    cubes = compiled(mode, bk.jacobian(lambda x: bk.sum(bk.for_loop(3, lambda s: s * s, x), 0), get_output=False))
    np.testing.assert_allclose(to_numpy(cubes(x)), 8 * Y**7, rtol=1e-12)

    def squares(x: Any) -> Any:
        return bk.sum(bk.while_loop(lambda s: bk.max(s) < 10, lambda s: s * s, x, (1, 2)), (0, 1))

    gradient = compiled(mode, bk.jacobian(squares, get_output=False))
    if mode == "jax":
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
            gradient(x)
    else:
        np.testing.assert_allclose(to_numpy(gradient(x)), 2 * Y + 4 * Y**3, rtol=1e-12)


@pytest.mark.needs("jax")
def test_trajectories_are_one_program() -> None:
    """Of a size that does not grow with their number."""
    bk = get_backend("jax")
    few, many = (
        jax.make_jaxpr(lambda n, limits=limits: collatz(bk, n, limits))(6) for limits in ((1, 2), tuple(range(1, 60)))
    )
    assert len(str(few).splitlines()) == len(str(many).splitlines())
