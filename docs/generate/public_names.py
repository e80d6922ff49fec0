"""The public names: where each is defined, what it is, and on which page of the reference it stands."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import krylix

PAGES: dict[str, tuple[str, ...]] = {
    "Solving": (
        "linear_solve", "prepare", "PreparedSolver", "SolveResult", "Status", "IterationState", "solve_triangular",
        "ConvergenceError", "NotConverged", "Diverged", "OtherMemberFailed", "SingularMatrixWarning", "GatherWarning",
    ),
    "Determinants": ("logdet", "LogDeterminant"),
    "Preconditioners": ("preconditioner", "Preconditioner", "load_preconditioner", "rigid_motions"),
    "Matrices from functions": (
        "matrix_from_function", "jacobian_matrix", "as_operator", "SparseMatrix", "NonlinearError",
        "UnsupportedOperation",
    ),
    "Non-linear equations and minima": ("solve_nonlinear", "NonlinearResult", "minimize", "MinimizeResult"),
}  # fmt: skip
"""Pages for names of `krylix`, in this order; those that are not named here are on the page "Settings and backends"."""
SERVES_USERS: dict[str, tuple[str, ...]] = {
    "krylix.sparse": (
        "COO", "CSC", "CSR", "DIA", "ELL", "GhostCounts", "HYB", "Operator", "RowCutMatrix", "Stencil", "block",
        "block_diagonal", "eye", "ghost_counts", "hstack", "kron", "load", "row_cut", "row_partition", "save", "stack",
        "vstack",
    ),
    "krylix.backends": ("get_backend", "tune_malloc"),
}  # fmt: skip
"""What is public of modules whose `__all__` also serves the folders above them, as in tests/test_public_names.py."""
MODULES = (
    "krylix",
    "krylix.solvers",
    "krylix.solvers.preconditioners",
    "krylix.sparse",
    "krylix.backends",
    "krylix.scipy_like",
)
"""Modules whose `__all__` is public, or a part of it (`SERVES_USERS`), those first under which a name is known best."""
ON_DEMAND = ("krylix.torch", "krylix.keras", "krylix.adapters")
"""Modules that import a framework: they are read and not imported. A folder without names stands for its files."""


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        full: as users write it, such as `krylix.linear_solve`.
        defined: where its source is, such as `krylix.solvers.linear_solve.linear_solve`; None for data and for names
            of other packages.
        summary: the first paragraph of its documentation.
        aliases: other public names of the same object.
    """

    full: str
    defined: str | None
    summary: str
    aliases: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        return self.full.rpartition(".")[2]

    @property
    def module(self) -> str:
        return self.full.rpartition(".")[0]

    @property
    def page(self) -> str:
        """Title of its page."""
        if self.module.startswith("krylix.adapters"):
            return "krylix.adapters"
        if self.module != "krylix":
            return self.module
        return next((page for page, names in PAGES.items() if self.short in names), "Settings and backends")


def all_names() -> list[Name]:
    """Every public name once, under its best known module."""
    found: dict[str, Name] = {}
    for name in [*_imported(), *(name for module in ON_DEMAND for name in _read(module))]:
        first = found.setdefault(name.defined or name.full, name)
        if first is not name:
            found[name.defined or name.full] = replace(first, aliases=(*first.aliases, name.full))
    return list(found.values())


def _imported() -> Iterator[Name]:
    found: dict[object, tuple[str, Any, list[str]]] = {}
    for module in modules():
        for short in exported(module):
            value = getattr(module, short)
            if isinstance(value, ModuleType):
                continue
            full = f"{module.__name__}.{short}"
            key = id(value) if _has_source(value) else full
            first, _, aliases = found.setdefault(key, (full, value, []))
            if first != full:
                aliases.append(full)
    for full, value, aliases in found.values():
        yield Name(full, _defined(value), _summary(value), tuple(aliases))


def modules() -> list[ModuleType]:
    """The modules whose names are found by importing them."""
    return [importlib.import_module(name) for name in MODULES]


def exported(module: ModuleType) -> list[str]:
    """The public names of a module."""
    return list(SERVES_USERS.get(module.__name__, module.__all__))


def _has_source(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _defined(value: Any) -> str | None:
    ours = _has_source(value) and value.__module__.startswith("krylix.")
    return f"{value.__module__}.{value.__qualname__}" if ours else None


def _summary(value: Any) -> str:
    if not _has_source(value):
        return f"A {type(value).__name__}."
    if _defined(value) is None:
        return f"That of {value.__module__.partition('.')[0].replace('scipy', 'SciPy')}."
    return _first_paragraph(inspect.getdoc(value) or "")


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _read(module: str) -> Iterator[Name]:
    """The public functions and classes of a module, from its source. A folder without names stands for its files."""
    file = _file(module)
    names = _own_all(file)
    if file.name == "__init__.py" and not names:
        for inside in sorted(file.parent.glob("[!_]*.py")):
            yield from _read(f"{module}.{inside.stem}")
        return
    for short in names or [name for name in _definitions(file) if not name.startswith("_")]:
        defined, text = _definition(module, short)
        yield Name(f"{module}.{short}", defined, _first_paragraph(text))


def _file(module: str) -> Path:
    place = Path(krylix.__file__).parent.joinpath(*module.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _own_all(file: Path) -> list[str]:
    """`__all__` of a file, in its source."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _definitions(file: Path) -> dict[str, str]:
    """Functions and classes of a file, and their documentation."""
    nodes = ast.parse(file.read_text()).body
    return {n.name: ast.get_docstring(n) or "" for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def _definition(module: str, short: str) -> tuple[str, str]:
    """Where a name is defined that a module defines or imports, and its documentation.

    Raises:
        LookupError: the module does neither.
    """
    file = _file(module)
    definitions = _definitions(file)
    if short in definitions:
        return f"{module}.{short}", definitions[short]
    package = module.split(".") + ["__init__"] * (file.name == "__init__.py")
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and short in [alias.asname or alias.name for alias in node.names]:
            start = package[: len(package) - node.level] if node.level else []
            return _definition(".".join([*start, *(node.module or "").split(".")]).rstrip("."), short)
    raise LookupError(f"{module} does not define {short}")
