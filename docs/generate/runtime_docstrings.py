"""Extension of griffe: the docstrings of `krylix.scipy_like` as `help` shows them, which a decorator completes."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from griffe import Extension, Function

COMPLETED = "krylix.scipy_like.krylov"


class RuntimeDocstrings(Extension):
    """Replace docstrings of the source by those of the functions."""

    def on_function_instance(self, *, func: Function, **_: Any) -> None:
        module, _, name = func.path.rpartition(".")
        if module == COMPLETED and func.docstring is not None and not name.startswith("_"):
            func.docstring.value = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
