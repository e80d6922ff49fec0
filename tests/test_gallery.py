"""The gallery of the examples: its page is that of the examples there are, and its pictures are small."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from library import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load_gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "docs" / "make_gallery.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = load_gallery()


def test_the_page_is_that_of_the_examples() -> None:
    """Else: python docs/make_gallery.py."""
    assert gallery.PAGE.read_text() == gallery.page()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws_what_has_its_name(path: Path) -> None:
    """And has a picture in the gallery, if it draws one: python docs/make_gallery.py --pictures NAME."""
    drawn = set(re.findall(r'"(\w+\.png)"', path.read_text()))
    assert drawn <= {f"{path.stem}.png"}
    stored = [p for p in gallery.PICTURES.iterdir() if p.stem == path.stem]
    assert len(stored) == len(drawn)
    assert all(p.stat().st_size <= gallery.MOST_BYTES for p in stored)
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None and docstring.count("\n\n") >= 1


def test_texts_are_whole_sentences() -> None:
    assert not [one.name for one in gallery.examples() if one.text.rstrip().endswith((",", ":"))]


def test_the_first_picture_is_small() -> None:
    assert gallery.VORTEX_STREET.stat().st_size <= gallery.MOST_BYTES_IN_FRONT
