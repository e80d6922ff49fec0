"""Reverse derivatives in the libraries that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modes import library


def gradient(mode: str, loss: Callable[..., Any], *at: Any) -> Any:
    """The derivative of a number by an array of the mode's library, or by each of several arrays."""
    if library(mode) == "jax":
        import jax

        found = jax.grad(loss, tuple(range(len(at))))(*at)
    elif library(mode) == "torch":
        import torch

        tracked = tuple(x if x.requires_grad else x.detach().clone().requires_grad_() for x in at)
        inside = any(x.requires_grad for x in at)  # of another one
        found = torch.autograd.grad(loss(*tracked), tracked, create_graph=inside)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(at)
            value = loss(*at)
        found = tape.gradient(value, at)
    return found[0] if len(at) == 1 else tuple(found)
