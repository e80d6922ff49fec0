"""JAX, PyTorch and TensorFlow, imported where a test first uses one; such a test is marked with `needs` or a mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frameworks import _Lazy
from krylix import choose_backend

jax, jnp, torch, tf = map(_Lazy, ("jax", "jax.numpy", "torch", "tensorflow"))


def gradient(f: Callable[..., Any], *args: Any) -> Any:
    """The derivatives of a number with respect to each array, by the library's own means."""
    library = choose_backend(*args).name
    if library == "jax":
        return jax.grad(f, tuple(range(len(args))))(*args)
    if library == "torch":
        args = tuple(a.detach().requires_grad_() for a in args)
        return torch.autograd.grad(f(*args), args)
    with tf.GradientTape() as tape:
        tape.watch(args)
        value = f(*args)
    return tape.gradient(value, args)
