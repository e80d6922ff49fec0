"""Which frameworks there are, and which of them are installed here. Importing this imports none of them."""

import re
import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

FRAMEWORKS = ("jax", "torch", "tensorflow")
PEERS = ("lineax", "keras", "skfem", "fipy", "pymatsolver", "phiml", "jax_fem")  # that krylix.adapters and layers serve


def imported_in(text: str) -> list[str]:
    """The frameworks and peers that lines of this code import, also by krylix's adapters."""
    line = r"^\W*(import|from) (krylix\.adapters\.)?{}\b"
    return [name for name in (*FRAMEWORKS, *PEERS) if re.search(line.format(name), text, re.MULTILINE)]


def import_quietly(*names: str) -> list[ModuleType]:
    """Import modules without the warnings that other packages give when they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [import_module(name) for name in names]


class _Lazy(ModuleType):
    """A module that is imported where one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_mock_name":  # which pytest asks of every global
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)


# For files of which some tests need a framework: these have the marker `needs`, or a parameter `mode` or `backend`.
jax: Any = _Lazy("jax")
jnp: Any = _Lazy("jax.numpy")
torch: Any = _Lazy("torch")
tf: Any = _Lazy("tensorflow")


def lazy(name: str) -> Any:
    """The module `name`, imported at its first use: while tests are collected no framework is.

    For a file whose tests all need it: they are skipped where its package, or the framework that this is a part of, is
    not installed.
    """
    for package in (name.partition(".")[0], *(part for part in name.split(".") if part in FRAMEWORKS)):
        if missing(package):
            pytest.skip(f"not installed: {package}", allow_module_level=True)
    return _Lazy(name)


def import_lazy_modules(item: pytest.Item) -> None:
    """Import the frameworks that a test is about, by its file and its parameters."""
    found = vars(getattr(item, "module", item)).values()
    names = [v.__name__ for v in found if isinstance(v, _Lazy) and v not in (jax, jnp, torch, tf)]
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names += filter(None, (framework_of(parameters[key]) for key in ("backend", "mode") if key in parameters))
    for name in names:
        if name not in sys.modules and not missing(name.partition(".")[0]):
            import_quietly(name)


@cache
def missing(framework: str) -> bool:
    return find_spec(framework) is None


def framework_of(name: object) -> str | None:
    """The framework that a backend or mode such as `"jax-jit"` or `"tf-function"` belongs to, None for NumPy."""
    start = str(name).lower().split("-")[0]
    start = "tensorflow" if start == "tf" else start
    return start if start in FRAMEWORKS else None
