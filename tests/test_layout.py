"""The list of folders stands on disk, in pyproject.toml (three times) and in git (links): they must agree."""

import ast
import importlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from library import FOLDERS, ROOT, library_files, module_name

NOT_LIBRARY = {"src", "tests", "examples", "benchmarks", "docs", "requirements"}


def build_settings() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]


def test_every_root_folder_is_registered() -> None:
    on_disk = {path.parent.name for path in ROOT.glob("[!.]*/__init__.py")} - NOT_LIBRARY
    assert on_disk == set(FOLDERS)
    build = build_settings()
    wheel = build["targets"]["wheel"]
    assert wheel["only-include"] == ["src/krylix", *FOLDERS]
    assert wheel["sources"] == {"src/krylix": "krylix"} | {folder: f"krylix/{folder}" for folder in FOLDERS}
    assert build["exclude"] == [f"/src/krylix/{folder}" for folder in FOLDERS]


@pytest.mark.parametrize("folder", FOLDERS)
def test_link_and_import(folder: str) -> None:
    link = ROOT / "src/krylix" / folder
    if link.exists():  # absent in an unpacked sdist; a text file where git cannot make links
        assert link.resolve() == ROOT / folder or link.read_text().strip() == f"../../{folder}"
    assert importlib.import_module(f"krylix.{folder}").__name__ == f"krylix.{folder}"


def test_guard_opens_every_root_folder() -> None:
    for folder in FOLDERS:
        docstring, guard, *_ = ast.parse((ROOT / folder / "__init__.py").read_text()).body
        assert isinstance(docstring, ast.Expr), f"{folder}/__init__.py: the docstring comes first"
        is_guard = isinstance(guard, ast.If) and ast.unparse(guard.test) == f"__name__ != 'krylix.{folder}'"
        assert is_guard, f"{folder}/__init__.py: the guard comes right after the docstring"


def test_wheel_holds_every_file_once(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    command = [sys.executable, "-P", "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    assert "krylix/py.typed" in names
    modules = sorted(name[:-3].removesuffix("/__init__").replace("/", ".") for name in names if name.endswith(".py"))
    assert modules == sorted(module_name(path) for path in library_files())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"krylix"}
    metadata = next(name for name in names if name.endswith("entry_points.txt"))
    assert "krylix = krylix.__main__:main" in zipfile.ZipFile(wheel).read(metadata).decode()
    assert any(name.endswith("licenses/LICENSE") for name in names)
