"""Reverse derivatives in the libraries that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from frameworks import jax, tf, torch
from krylix import choose_backend
from modes import array, compiled, to_numpy


def derivatives(loss: Callable[..., Any], *at: Any) -> tuple[Any, ...]:
    """The derivatives of a number with respect to each array, by the means of the library of the arrays."""
    library = choose_backend(*at).name
    if library == "jax":
        return tuple(jax.grad(loss, tuple(range(len(at))))(*at))
    if library == "torch":
        tracked = tuple(x if x.requires_grad else x.detach().clone().requires_grad_() for x in at)
        is_inside_another = any(x.requires_grad for x in at)
        return tuple(torch.autograd.grad(loss(*tracked), tracked, create_graph=is_inside_another))
    with tf.GradientTape() as tape:
        tape.watch(at)
        value = loss(*at)
    return tuple(g if g is None else tf.convert_to_tensor(g) for g in tape.gradient(value, at))


def gradient(mode: str, loss: Callable[..., Any], *at: Any) -> Any:
    """`derivatives`, compiled where the mode compiles; of one array not a tuple."""
    found = compiled(mode, lambda *at: derivatives(loss, *at))(*at)
    return found[0] if len(at) == 1 else tuple(found)


def gradients(mode: str, loss: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """`gradient` at NumPy arrays, as arrays of the mode's library, in NumPy; compiled in JAX."""
    found = gradient("jax-jit" if mode == "jax" else mode, loss, *(array(mode, a) for a in arrays))
    return [to_numpy(g) for g in (found if len(arrays) > 1 else (found,))]
