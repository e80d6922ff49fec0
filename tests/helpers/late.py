"""Frameworks that some tests of a file need, imported where one of their names is first used.

`frameworks.lazy` is for files that all need one: it skips them where it is missing. A test that uses one of these has
the marker `needs`, or a parameter called `mode` or `backend`.
"""

from importlib import import_module
from typing import Any


class _Late:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of every global by pytest, while it collects
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


jax: Any = _Late("jax")
jnp: Any = _Late("jax.numpy")
torch: Any = _Late("torch")
tf: Any = _Late("tensorflow")
