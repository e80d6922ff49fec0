"""Frameworks that some tests of a file need, imported where one of their names is first used; gradients in each.

`frameworks.lazy` is for files that all need one: it skips them where it is missing. A test that uses one of these has
the marker `needs`, or a parameter called `mode` or `backend`.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from modes import array, compiled, library, to_numpy


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of every global by pytest, while it collects
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


jax: Any = _Late("jax")
jnp: Any = _Late("jax.numpy")
torch: Any = _Late("torch")
tf: Any = _Late("tensorflow")


def fewer_in_torch(cells: Iterable[Any]) -> list[Any]:
    """Of (method, dtype, mode) all but two dtypes of PyTorch, which computes as NumPy does."""
    return [c for c in cells if c.values[2] != "torch" or c.values[1] in ("float64", "complex64")]


def gradients(mode: str, loss: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The gradient of `loss` with respect to each array, as the mode computes and compiles it."""

    def by_torch(*given: Any) -> Any:
        leaves = [a.requires_grad_() for a in given]
        return torch.autograd.grad(loss(*leaves), leaves)

    def by_tape(*given: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(given)
            value = loss(*given)
        return tape.gradient(value, given)

    name = library(mode)
    function = {"torch": by_torch, "tensorflow": by_tape}.get(name) or jax.grad(loss, tuple(range(len(arrays))))
    return [to_numpy(g) for g in compiled(mode, function)(*(array(mode, a) for a in arrays))]
