"""Docstrings of public names: examples that run, and arguments that documentation tools read.

Examples are run by the object that users look up, not by the module: a decorated function has another one.
"""

import ast
import doctest
import inspect
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import krylix
import krylix.adapters.jax_fem
import krylix.adapters.phiflow
import krylix.adapters.skfem
from frameworks import import_quietly, imported_in, missing
from krylix import adapters, backends, scipy_like, solvers, sparse
from scipy_shipped import OURS

# What these two packages export for users; the rest of their `__all__` serves the folders above them.
OF_BACKENDS = ["get_backend", "tune_malloc"]
OF_SPARSE = [
    "COO", "CSC", "CSR", "DIA", "ELL", "GhostCounts", "HYB", "Operator", "RowCutMatrix", "Stencil", "block",
    "block_diagonal", "eye", "ghost_counts", "hstack", "kron", "load", "row_cut", "row_partition", "save", "stack",
    "vstack",
]  # fmt: skip


# Adapters and layers, which import these packages.
SERVING_OTHERS = {f"adapters.{name}": name for name in ("fipy", "pymatsolver", "lineax")}
SERVING_OTHERS |= {"torch": "torch", "keras": "tensorflow"}


def public_objects() -> dict[str, Callable[[], Any]]:
    """Every public function and class by its dotted name, imported when it is asked for where that takes a package."""
    modules = [(krylix, krylix.__all__), (solvers, solvers.__all__), (sparse, OF_SPARSE), (backends, OF_BACKENDS)]
    modules += [(module, module.__all__) for module in (adapters.skfem, adapters.jax_fem, adapters.phiflow)]
    things: dict[str, Any] = {}
    for module, exported in [*modules, (scipy_like, OURS)]:
        for name in exported:
            thing = getattr(module, name)
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and all(thing is not o for o in things.values()):
                things[f"{module.__name__}.{name}"] = thing
    later = [f"krylix.{name}" for name, package in SERVING_OTHERS.items() if not missing(package)]
    return {name: lambda thing=thing: thing for name, thing in things.items()} | {
        f"{module}.{name}": lambda module=module, name=name: getattr(*import_quietly(module), name)
        for module in later
        for name in exported_by(module)
    }


def exported_by(module: str) -> list[str]:
    """`__all__`, read without an import."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text()).body
    (names,) = (node.value for node in body if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets))
    return list(ast.literal_eval(names))


PUBLIC = public_objects()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", PUBLIC)
def test_example_runs(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]()) or ""
    assert "Examples:\n" in text, "an `Examples:` section with `>>>` lines is missing"
    wanted = imported_in(text)
    if absent := [name for name in wanted if missing(name)]:
        pytest.skip(f"not installed: {', '.join(absent)}")
    import_quietly(*wanted)
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert example.examples, "the section has no `>>>` line"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=said.append)
    assert not runner.summarize(verbose=False).failed, "\n".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_arguments_are_listed_one_by_one(name: str) -> None:
    """Of functions, every argument; documentation tools read neither `a, b: ...` nor prose."""
    thing = PUBLIC[name]()
    text = inspect.getdoc(thing) or ""
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", text, re.MULTILINE)
    listed = re.findall(r"^    (\*{0,2}\w[\w*, ]*):", section.group(1), re.MULTILINE) if section else []
    assert not [entry for entry in listed if "," in entry], f"several arguments in one entry: {listed}"
    if inspect.isclass(thing):
        return
    taken = [p.name for p in inspect.signature(thing).parameters.values()]
    assert [entry.lstrip("*") for entry in listed] == taken, "Args: is not the signature"
