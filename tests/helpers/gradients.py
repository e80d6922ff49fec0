"""Gradients by the library of a mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modes import array, library


def gradient(mode: str, loss: Callable[..., Any], *arguments: np.ndarray) -> list[np.ndarray]:
    """The gradient of `loss` with respect to each argument; in JAX of a compiled function."""
    arrays = [array(mode, a.copy()) for a in arguments]
    if library(mode) == "jax":
        import jax

        return [np.asarray(g) for g in jax.jit(jax.grad(loss, tuple(range(len(arrays)))))(*arrays)]
    if library(mode) == "torch":
        leaves = [a.requires_grad_() for a in arrays]
        loss(*leaves).backward()
        return [leaf.grad.numpy() for leaf in leaves]
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(arrays)
        value = loss(*arrays)
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(value, arrays)]
