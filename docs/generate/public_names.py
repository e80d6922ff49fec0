"""The public names: where each is defined, what it is, and on which page of the reference it stands."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import Any

PAGES: dict[str, tuple[str, ...]] = {
    "Solving": (
        "linear_solve", "prepare", "PreparedSolver", "SolveResult", "Status", "solve_triangular",
        "ConvergenceError", "NotConverged", "Diverged", "SingularMatrixWarning",
    ),
    "Preconditioners": ("preconditioner", "Preconditioner", "load_preconditioner", "rigid_motions"),
    "Matrices from functions": (
        "matrix_from_function", "jacobian_matrix", "as_operator", "SparseMatrix", "NonlinearError",
        "UnsupportedOperation",
    ),
    "Non-linear equations and minima": ("solve_nonlinear", "NonlinearResult", "minimize", "MinimizeResult"),
}  # fmt: skip
"""Pages for names of `krylix`, in this order; those that are not named here are on the page "Settings and backends"."""
MODULES = (
    "krylix",
    "krylix.solvers",
    "krylix.solvers.preconditioners",
    "krylix.sparse",
    "krylix.backends",
    "krylix.solvers.lineax_solver",
    "krylix.scipy_like",
    "krylix.adapters.skfem",
    "krylix.adapters.fipy",
    "krylix.adapters.pymatsolver",
    "krylix.adapters.jax_fem",
    "krylix.adapters.phiflow",
    "krylix.adapters.lineax",
    "krylix.torch",
    "krylix.keras",
)
"""Modules whose `__all__` is public, those first under which a name is known best."""


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        full: as users write it, such as `krylix.linear_solve`.
        defined: where its source is, such as `krylix.solvers.linear_solve.linear_solve`; None for data.
        value: the object.
        aliases: other public names of the same object.
    """

    full: str
    defined: str | None
    value: Any
    aliases: tuple[str, ...]

    @property
    def short(self) -> str:
        return self.full.rpartition(".")[2]

    @property
    def module(self) -> str:
        return self.full.rpartition(".")[0]

    @property
    def summary(self) -> str:
        """First sentence of its documentation."""
        if self.defined is None:
            return f"A {type(self.value).__name__}."
        text = inspect.getdoc(self.value) or ""
        return " ".join(text.partition("\n\n")[0].split())

    @property
    def page(self) -> str:
        """Title of its page."""
        if self.module != "krylix":
            return "krylix.adapters" if self.module.startswith("krylix.adapters.") else self.module
        return next((page for page, names in PAGES.items() if self.short in names), "Settings and backends")


def modules() -> list[ModuleType]:
    """The public modules that there are, without those whose package is not installed."""
    found = []
    for name in MODULES:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "krylix":
                raise
    return found


def all_names() -> list[Name]:
    """Every public name once, under its best known module."""
    found: dict[int, tuple[str, Any, list[str]]] = {}
    for module in modules():
        for short in module.__all__:
            value = getattr(module, short)
            if isinstance(value, ModuleType):
                continue
            full = f"{module.__name__}.{short}"
            key = id(value) if _has_source(value) else id(full)
            first, _, aliases = found.setdefault(key, (full, value, []))
            if first != full:
                aliases.append(full)
    return [Name(full, _defined(value), value, tuple(aliases)) for full, value, aliases in found.values()]


def _has_source(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _defined(value: Any) -> str | None:
    return f"{value.__module__}.{value.__qualname__}" if _has_source(value) else None
