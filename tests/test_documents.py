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


def missing_framework(text: str) -> str | None:
    """A framework that the code imports, and that is not installed."""
    imported = (f for f in FRAMEWORKS if re.search(rf"^\W*(import|from) {f}\b", text, re.MULTILINE))
    return next((framework for framework in imported if missing(framework)), None)


@pytest.mark.parametrize(("page", "start", "code"), BLOCKS)
def test_code_block(page: Path, start: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block stands by itself; it may write files."""
    if framework := missing_framework(code):
        pytest.skip(f"not installed: {framework}")
    monkeypatch.chdir(tmp_path)
    line = page.read_text().count("\n", 0, start)
    exec(compile("\n" * line + code, str(page), "exec"), {"__name__": "block"})


def test_docstrings() -> None:
    flags, failed = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, []
    for path in library_files():
        if ">>>" not in (text := path.read_text()) or missing_framework(text):
            continue
        examples = doctest.testmod(importlib.import_module(module_name(path)), optionflags=flags, verbose=False)
        if examples.failed:
            failed.append(f"{label(path)}: {examples.failed} of {examples.attempted}")
    assert not failed, "examples fail, see the captured output:\n" + "\n".join(failed)


def test_links_between_pages() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!\w+:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{label(page)} links to {target}, which is not there"


def test_paths_in_text_exist() -> None:
    """Of files and folders of this repository, as they are written in backticks."""
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    for page in [*PAGES, ROOT / "tests" / "README.md"]:
        for target in re.findall(rf"`((?:{folders})/[\w/.*]+)", page.read_text() if page.exists() else ""):
            found = [*ROOT.glob(target.rstrip("/.")), *page.parent.glob(target.rstrip("/."))]
            assert found, f"{label(page)} names {target}, which is not there"
