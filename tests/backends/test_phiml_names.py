"""docs/phiml_names.md has a row for each method of PhiML's backends, and names what there is."""

from __future__ import annotations

import importlib.util
import re
import warnings

import pytest

import krylix
from krylix.backends.operations.table import ALIASES
from krylix.sparse import SparseMatrix
from library import ROOT

ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs/phiml_names.md").read_text(), re.MULTILINE))
REFUSED = {"is_module", "module", "nn_library"}
OWNERS = {"krylix": krylix, "A": SparseMatrix}
BACKENDS = ("numpy", "jax", "torch", "tensorflow")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_name_is_there(backend: str) -> None:
    bk = krylix.choose_backend(backend)
    owners = {**OWNERS, "bk": bk}
    lacking = [
        f"{name}: {owner}.{dotted}"
        for name, row in ROWS.items()
        for code in re.findall("`([^`]+)`", row)
        for owner, dotted in re.findall(r"\b(bk|krylix|A)\.([\w.]*\w)", code)
        if not _has(owners[owner], dotted)
    ]
    assert not lacking


def _has(owner: object, dotted: str) -> bool:
    for name in dotted.split("."):
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def test_rows_say_something() -> None:
    assert {name for name, row in ROWS.items() if "`" not in row} == REFUSED
    assert all(ROWS[name].startswith("refused: ") for name in REFUSED)


def test_aliases_stand_in_the_page() -> None:
    """A word of PhiML's that works names in its row the operation that it is."""
    for alias, name in ALIASES.items():
        assert re.match(rf"`bk\.{name}\b", ROWS[alias]), alias


@pytest.mark.skipif(importlib.util.find_spec("phiml") is None, reason="compares with PhiML, which is not installed")
def test_every_method_of_phiml_has_a_row() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from phiml.backend import Backend  # type: ignore[import-not-found,unused-ignore]

    public = {name for name in dir(Backend) if not name.startswith("_")}
    assert public == set(ROWS)
