"""`host_view` shows numbers of the host where nobody watches what is done to them, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from contract import covers
from frameworks import jax, tf, torch
from krylix.backends import get_backend
from modes import EAGER, array, library

X = np.arange(6.0).reshape(2, 3)


@covers("host_view", "in_host_call", "can_ask_host")
@pytest.mark.parametrize("mode", EAGER)
def test_numbers(mode: str) -> None:
    """Also arrays for a function that is called on the host; loops that run now can ask it."""
    bk, x = get_backend(library(mode)), array(mode, X)
    view, made = bk.host_view(x), bk.in_host_call(X.copy(), x)
    assert type(view) is np.ndarray
    np.testing.assert_array_equal(view, X)
    np.testing.assert_array_equal(bk.host_view(array(mode, X * 1j)), X * 1j)  # type: ignore[arg-type]
    assert bk.is_array(made) and bk.dtype(made) == X.dtype
    np.testing.assert_array_equal(bk.to_numpy(made), X)
    assert bk.can_ask_host()


@pytest.mark.needs("torch")
def test_tensors_that_somebody_watches() -> None:
    bk, x = get_backend("torch"), torch.tensor(X)
    seen: list[Any] = []
    look: Callable[[Any], Any] = lambda x: (seen.append(bk.host_view(x)), x)[1]  # noqa: E731
    torch.func.vmap(look)(x)
    torch.func.jvp(look, (x,), (x,))
    look(x.clone().requires_grad_())
    with torch.inference_mode():
        look(torch.tensor(X))
    look((x + 1j).conj())
    look(torch.nn.Parameter(x))
    look(x.to(torch.bfloat16))
    look(x.to("meta"))
    with torch.device("cpu"):  # a mode, as others are that see each call
        look(x)
    assert len(seen) == 9 and all(one is None for one in seen)


@pytest.mark.needs("jax")
def test_arrays_that_are_traced() -> None:
    bk, x = get_backend("jax"), jax.numpy.asarray(X)
    seen: list[Any] = []
    look: Callable[[Any], Any] = lambda y: (seen.append(bk.host_view(y)), seen.append(bk.host_view(x)), y)[2]  # noqa: E731
    jax.jit(look)(x)
    jax.vmap(look)(x)
    jax.vjp(look, x)
    assert len(seen) == 6 and all(one is None for one in seen)


@pytest.mark.needs("tensorflow")
def test_tensors_that_a_tape_watches() -> None:
    bk, x = get_backend("tensorflow"), tf.constant(X)
    with tf.GradientTape() as tape:
        assert bk.host_view(x) is not None
        tape.watch(x)
        assert bk.host_view(x) is None
    assert bk.host_view(tf.Variable(X)) is None
    found: list[Any] = []
    tf.function(lambda x: (found.append(bk.host_view(x)), x)[1], autograph=False)(x)
    assert found == [None]


@pytest.mark.needs("tensorflow")
def test_a_program_of_xla_cannot_ask_the_host() -> None:
    bk, said = get_backend("tensorflow"), []

    def function(x: Any) -> Any:
        said.append(bk.can_ask_host())
        return x

    tf.function(function)(tf.ones(2))
    tf.function(function, jit_compile=True)(tf.ones(2))
    assert said == [True, False]
