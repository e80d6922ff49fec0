"""The code in docstrings, in README, CONTRIBUTING and docs/ runs and prints what it says."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

from frameworks import FRAMEWORKS, missing
from library import ROOT, label, library_files, module_name

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(page, match.start(1), match.group(1), id=f"{label(page)}-{number}")
    for page in PAGES
    for number, match in enumerate(CODE.finditer(page.read_text()), start=1)
]


def skip_without_framework(text: str) -> None:
    for framework in FRAMEWORKS:
        if missing(framework) and re.search(rf"^\W*(import|from) {framework}\b", text, re.MULTILINE):
            pytest.skip(f"not installed: {framework}")


@pytest.mark.parametrize(("page", "start", "code"), BLOCKS)
def test_code_block(page: Path, start: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block stands by itself; it may write files."""
    skip_without_framework(code)
    monkeypatch.chdir(tmp_path)
    line = page.read_text().count("\n", 0, start)
    exec(compile("\n" * line + code, str(page), "exec"), {"__name__": "block"})


@pytest.mark.parametrize("path", library_files(), ids=label)
def test_docstrings(path: Path) -> None:
    skip_without_framework(path.read_text())
    module = importlib.import_module(module_name(path))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed = doctest.testmod(module, optionflags=flags, verbose=False).failed
    assert failed == 0, f"{failed} examples in {label(path)} fail; see the captured output"


def test_links_between_pages() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!\w+:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{label(page)} links to {target}, which is not there"


def test_paths_in_text_exist() -> None:
    """Of files and folders of this repository, as they are written in backticks."""
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    for page in [*PAGES, ROOT / "tests" / "README.md"]:
        for target in re.findall(rf"`((?:{folders})/[\w/.*]+)", page.read_text() if page.exists() else ""):
            assert any(ROOT.glob(target.rstrip("/."))), f"{label(page)} names {target}, which is not there"
