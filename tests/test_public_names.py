"""Docstrings of public names: examples that run, and arguments that documentation tools read.

Examples are run by the object that users look up, not by the module: a decorated function has another one.
"""

import doctest
import inspect
import re
from typing import Any

import pytest

import krylix
from frameworks import import_quietly, imported_in, missing
from krylix import backends, scipy_like, solvers, sparse
from scipy_shipped import OURS

# What these two packages export for users; the rest of their `__all__` serves the folders above them.
OF_BACKENDS = ["get_backend", "tune_malloc"]
OF_SPARSE = [
    "COO", "CSC", "CSR", "DIA", "ELL", "GhostCounts", "HYB", "Operator", "RowCutMatrix", "Stencil", "block",
    "block_diagonal", "eye", "ghost_counts", "hstack", "kron", "load", "row_cut", "row_partition", "save", "stack",
    "vstack",
]  # fmt: skip


def serving_others() -> list[Any]:
    """The adapters and layers whose packages are installed."""
    packages = {"adapters.skfem": "", "adapters.jax_fem": "", "adapters.phiflow": "", "torch": "torch"}
    packages |= {f"adapters.{name}": name for name in ("fipy", "pymatsolver", "lineax")} | {"keras": "tensorflow"}
    return import_quietly(
        *(f"krylix.{name}" for name, package in packages.items() if not package or not missing(package))
    )


def public_objects() -> dict[str, Any]:
    """Every public function and class by its dotted name."""
    names = [(krylix, "krylix", krylix.__all__), (solvers, "krylix.solvers", solvers.__all__)]
    names += [(sparse, "krylix.sparse", OF_SPARSE), (backends, "krylix.backends", OF_BACKENDS)]
    names.append((scipy_like, "krylix.scipy_like", OURS))
    names += [(module, module.__name__, module.__all__) for module in serving_others()]
    found: dict[str, Any] = {}
    for module, prefix, exported in names:
        for name in exported:
            thing = getattr(module, name)
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and not any(
                thing is other for other in found.values()
            ):
                found[f"{prefix}.{name}"] = thing
    return found


PUBLIC = public_objects()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", PUBLIC)
def test_example_runs(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
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
    thing = PUBLIC[name]
    text = inspect.getdoc(thing) or ""
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", text, re.MULTILINE)
    listed = re.findall(r"^    (\*{0,2}\w[\w*, ]*):", section.group(1), re.MULTILINE) if section else []
    assert not [entry for entry in listed if "," in entry], f"several arguments in one entry: {listed}"
    if inspect.isclass(thing):
        return
    taken = [p.name for p in inspect.signature(thing).parameters.values()]
    assert [entry.lstrip("*") for entry in listed] == taken, "Args: is not the signature"
