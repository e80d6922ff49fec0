"""Rules for the source that no tool checks: layers, circles, names, late imports, errors for users.

Imports point down, src/krylix -> solvers -> sparse -> backends, and are relative.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from library import FOLDERS, label, library_files, module_name

FILES = library_files()
MODULES = {module_name(path): path for path in FILES}
LEVELS = {"backends": 0, "sparse": 1, "solvers": 2}  # anything else in krylix: 3
HEAVY = {
    "jax",
    "torch",
    "tensorflow",
    "pyamg",
    "matplotlib",
    "tqdm",
    "mpi4py",
}  # a reason to import one of our modules late
LIBRARIES = {"numpy", "jax", "torch", "tensorflow"}
TABLES_OF_LIBRARIES = ("sparse/tracing/front_end.py",)  # where a front end is registered

SAME_NAMES = {"Solve": "the layer, of each library that has layers"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    line: int
    target: str  # absolute: "krylix.sparse.csr", "numpy"
    relative: bool
    late: bool  # inside a function
    typing_only: bool


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


def place_of(path: Path, node: ast.AST) -> str:
    return f"{label(path)}:{getattr(node, 'lineno', 0)}"


def is_typing_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def targets_of(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    """Absolute names of what the statement imports; `from . import a` counts as the module `a` if that is one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = module_name(path).split(".")
        package = package if path.name == "__init__.py" else package[:-1]
        package = package[: len(package) - node.level + 1]
        base = ".".join([*package, *([node.module] if node.module else [])])
    return [full if (full := f"{base}.{alias.name}") in MODULES else base for alias in node.names]


@cache
def imports_of(path: Path) -> list[Import]:
    found: list[Import] = []

    def visit(node: ast.AST, late: bool, typing_only: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            relative = isinstance(node, ast.ImportFrom) and node.level > 0
            found.extend(Import(node.lineno, name, relative, late, typing_only) for name in targets_of(node, path))
        late = late or isinstance(node, Function | ast.Lambda)
        typing_only = typing_only or is_typing_guard(node)
        for child in ast.iter_child_nodes(node):
            visit(child, late, typing_only)

    visit(tree_of(path), False, False)
    return found


def is_ours(target: str) -> bool:
    return target.split(".")[0] == "krylix"


def level_of(module: str) -> int:
    parts = module.split(".")
    return LEVELS.get(parts[1], 3) if len(parts) > 1 else 3


@cache
def is_heavy(module: str) -> bool:
    """Whether importing this module of ours imports a framework or another slow package."""
    eager = [i.target for i in imports_of(MODULES[module]) if not i.late and not i.typing_only]
    return any(is_heavy(t) if t in MODULES else t.split(".")[0] in HEAVY for t in eager if t != module)


def names_a_library(node: ast.AST | None) -> bool:
    """Is it a library's name, or a tuple, list, set or dictionary with one in it?"""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    parts = node.keys if isinstance(node, ast.Dict) else parts
    return any(isinstance(part, ast.Constant) and part.value in LIBRARIES for part in parts)


def every_file(rule: Callable[[Path], Iterator[str]]) -> None:
    """No file breaks the rule, which yields the places that do: all of them are listed."""
    places = [place for path in FILES for place in rule(path)]
    assert not places, f"{len(places)} places:\n" + "\n".join(places)


def test_libraries_are_known_to_their_folders_only() -> None:
    """Elsewhere code asks what a backend can do, as its class says, not what it is called."""

    def rule(path: Path) -> Iterator[str]:
        if label(path).startswith(("backends/", *(f"sparse/tracing/{library}/" for library in LIBRARIES))):
            return
        tree = tree_of(path)
        tables = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and names_a_library(node.value)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in nodes_of(path):
            if isinstance(node, ast.Dict) and names_a_library(node) and label(path) not in TABLES_OF_LIBRARIES:
                yield f"{place_of(path, node)}: make it an attribute of Backend"
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                asked = any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides)
                named = any(names_a_library(s) or (isinstance(s, ast.Name) and s.id in tables) for s in sides)
                if asked and named:
                    yield f"{place_of(path, node)}: ask the backend for a capability"

    every_file(rule)


def test_imports_are_relative_and_point_down() -> None:
    def rule(path: Path) -> Iterator[str]:
        own = module_name(path)
        for found in imports_of(path):
            where = f"{label(path)}:{found.line} imports {found.target}"
            if found.target.split(".")[0] in FOLDERS and not found.relative:
                yield f"{where}: no top-level module"
            if not is_ours(found.target):
                continue
            if not found.relative:
                yield f"{where}: use a relative import"
            if level_of(found.target) > level_of(own):
                yield f"{where}: imports point down only"
            if level_of(own) < 3 and level_of(found.target) == 3:
                yield f"{where}: krylix itself is the top"

    every_file(rule)


def test_late_imports_only_for_heavy_modules() -> None:
    """One of our modules may be imported inside a function only if it would pull in a framework."""

    def rule(path: Path) -> Iterator[str]:
        for found in imports_of(path):
            if found.late and is_ours(found.target) and not (found.target in MODULES and is_heavy(found.target)):
                yield f"{label(path)}:{found.line} imports {found.target} inside a function: move it to the top"

    every_file(rule)


def test_no_import_cycles() -> None:
    """Late imports count, and imports for type checking."""
    graph = {
        name: {i.target for i in imports_of(path) if i.target in MODULES} - {name} for name, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


def test_init_only_re_exports() -> None:
    def rule(path: Path) -> Iterator[str]:
        if path.name == "__init__.py":
            for node in ast.walk(tree_of(path)):
                if isinstance(node, Function | ast.ClassDef):
                    yield f"{label(path)}:{node.lineno} defines {node.name}: move it to a module"

    every_file(rule)


def test_errors_are_for_users() -> None:
    """`assert` vanishes under -O, and NotImplementedError says neither what was given nor what to do instead."""

    def rule(path: Path) -> Iterator[str]:
        for node in nodes_of(path):
            if isinstance(node, ast.Assert):
                yield f"{place_of(path, node)}: raise an error that says got / expected / do this instead"
            raised = node.exc if isinstance(node, ast.Raise) else None
            if any(isinstance(n, ast.Name) and n.id == "NotImplementedError" for n in ast.walk(raised or ast.Pass())):
                yield f"{place_of(path, node)}: use an abstract method, or an error that says what to do instead"

    every_file(rule)


def test_class_names_are_unique() -> None:
    """A search for a class finds one; what only its own file sees begins with an underscore."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place_of(path, node))
    shared = {name: found for name, found in places.items() if len(found) > 1 and name not in SAME_NAMES}
    assert not shared, f"classes with one name: {shared}"


def test_module_docstring() -> None:
    def rule(path: Path) -> Iterator[str]:
        if not ast.get_docstring(tree_of(path)):
            yield f"{label(path)}:1 says nothing about itself"

    every_file(rule)
