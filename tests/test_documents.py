"""The code in docstrings, in README, CONTRIBUTING and docs/ runs and prints what it says.

Pages run as a reader would run them, in the default precision of each library, and in double precision.
"""

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frameworks import import_quietly, imported_in, missing
from library import ROOT, label, library_files, module_name

FOLDERS = ("start", "tutorials", "coming_from", "how_to")
IN_DOCS = sorted(page for folder in ("", *FOLDERS) for page in (ROOT / "docs" / folder).glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *IN_DOCS]
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS: list[Any] = [
    pytest.param(page, match.start(1), match.group(1), id=f"{label(page)}-{number}")
    for page in PAGES
    for number, match in enumerate(CODE.finditer(page.read_text()), start=1)
]


def missing_framework(text: str) -> str | None:
    """A framework that the code imports, and that is not installed."""
    return next((framework for framework in imported_in(text) if missing(framework)), None)


# Reads programs `[{file, code}]`, runs each by itself, and writes what went wrong: `[text or null]`.
RUN_ALL = """
import contextlib, json, sys, traceback
errors = []
for program in json.load(sys.stdin):
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(program["code"], program["file"], "exec"), {"__name__": "block"})
        errors.append(None)
    except BaseException:
        errors.append(traceback.format_exc())
json.dump(errors, sys.stdout)
"""


def as_program(page: Path, start: int, code: str) -> str:
    """The block, its lines numbered as in the page."""
    return "\n" * page.read_text().count("\n", 0, start) + code


@pytest.fixture(scope="module")
def errors_in_default_precision(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[Path, int], str | None]:
    """Of each block that this run looks at (by page and start), in one process that has of the settings of the tests
    only those of the compiler."""
    items = (item.callspec.params for item in request.session.items if item.name.startswith("test_code_block["))
    blocks = [(item["page"], item["start"], item["code"]) for item in items if not missing_framework(item["code"])]
    programs = [{"file": str(block[0]), "code": as_program(*block)} for block in blocks]
    set_by_tests = ("JAX_ENABLE_X64", "OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS")
    run = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(programs), capture_output=True, text=True, check=False,
        cwd=tmp_path_factory.mktemp("blocks"), env={k: v for k, v in os.environ.items() if k not in set_by_tests},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return {block[:2]: error for block, error in zip(blocks, json.loads(run.stdout), strict=True)}


@pytest.mark.merge
@pytest.mark.parametrize(("page", "start", "code"), BLOCKS)
def test_code_block(
    page: Path, start: int, code: str, errors_in_default_precision: dict[tuple[Path, int], str | None]
) -> None:
    if framework := missing_framework(code):
        pytest.skip(f"not installed: {framework}")
    error = errors_in_default_precision[page, start]
    assert error is None, error


def is_quick(page: Path, code: str) -> bool:
    return page.name == "README.md" and not imported_in(code)


@pytest.mark.parametrize(
    ("page", "start", "code"),
    [pytest.param(*b.values, id=b.id, marks=() if is_quick(*b.values[::2]) else pytest.mark.slow) for b in BLOCKS],
)
def test_code_block_in_double_precision(
    page: Path, start: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block stands by itself; it may write files. Those of README that compile nothing run by default."""
    if framework := missing_framework(code):
        pytest.skip(f"not installed: {framework}")
    import_quietly(*imported_in(code))
    monkeypatch.chdir(tmp_path)
    exec(compile(as_program(page, start, code), str(page), "exec"), {"__name__": "block"})


def test_sessions_belong_to_one_page() -> None:
    """markdown-exec shares the names of a session between all pages."""
    found = [session for page in IN_DOCS for session in named_sessions(page)]
    assert len(set(found)) == len(found) > 0


def named_sessions(page: Path) -> set[str]:
    """Of the blocks that are executed when the site is built, which `docs/build` does before a merge."""
    executed = re.findall(r"^```python (?=.*exec=)(.*)$", page.read_text(), re.MULTILINE)
    return {session for options in executed for session in re.findall(r'session="?([^"\s]+)', options)}


def test_docstrings() -> None:
    flags, failed = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, []
    for path in library_files():
        if ">>>" not in (text := path.read_text()) or missing_framework(text):
            continue
        (module, *_) = import_quietly(module_name(path), *imported_in(text))
        examples = doctest.testmod(module, optionflags=flags, verbose=False)
        if examples.failed:
            failed.append(f"{label(path)}: {examples.failed} of {examples.attempted}")
    assert not failed, "examples fail, see the captured output:\n" + "\n".join(failed)


def test_links_between_pages() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\((?!\w+:|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{label(page)} links to {target}, which is not there"


def test_paths_in_text_exist() -> None:
    """Of files and folders of this repository, as they are written in backticks."""
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    for page in [*PAGES, ROOT / "tests" / "README.md"]:
        for target in re.findall(rf"`((?:{folders})/[\w/.*]+)", page.read_text() if page.exists() else ""):
            found = [*ROOT.glob(target.rstrip("/.")), *page.parent.glob(target.rstrip("/."))]
            assert found, f"{label(page)} names {target}, which is not there"
