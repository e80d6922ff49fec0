"""JAX, PyTorch and TensorFlow, imported where a test first uses one; such a test is marked with `needs` or a mode."""

from frameworks import _Lazy

jax, jnp, torch, tf = map(_Lazy, ("jax", "jax.numpy", "torch", "tensorflow"))
