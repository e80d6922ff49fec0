"""The gradient of a function of several arrays, as each library computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def gradient(mode: str, loss: Callable[[list[Any]], Any], values: Sequence[Any]) -> Sequence[Any]:
    """The derivatives of `loss`, which takes a list, by each of the arrays; JAX compiles them."""
    values = list(values)
    if mode.startswith("jax"):
        import jax

        return jax.jit(jax.grad(loss))(values)  # type: ignore[no-any-return]
    if mode == "torch":
        import torch

        leaves = [v.clone().requires_grad_() for v in values]
        return torch.autograd.grad(loss(leaves), leaves)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(values)
        value = loss(values)
    return tape.gradient(value, values)  # type: ignore[no-any-return]
