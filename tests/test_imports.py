"""What an import of krylix does, and does not do, in a fresh interpreter."""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from frameworks import FRAMEWORKS, PEERS, import_quietly, missing
from library import FOLDERS, ROOT, label, library_files, module_name

SCIPY = ("scipy.optimize", "scipy.special", "scipy.fft", "scipy.io")  # their imports take as long as those of krylix
HEAVY = (*FRAMEWORKS, *PEERS, *SCIPY, "equinox", "mpi4py", "pyamg", "matplotlib", "pandas", "tqdm")
IMPORT_ALL = "import krylix, krylix.backends, krylix.sparse, krylix.solvers"


SERVING_OTHERS = "import krylix.adapters.skfem, krylix.adapters.jax_fem, krylix.adapters.phiflow"
# Importing PyTorch's compiler takes longer than most solves; a solve, a record of a function and a matrix need none.
TORCH = """
import torch
krylix.linear_solve(torch.eye(3), torch.ones(3))
w = torch.ones(3, requires_grad=True)
krylix.linear_solve(lambda x: w * x, torch.ones(3))
krylix.matrix_from_function(lambda x: 2 * x - torch.roll(x, 1), torch.ones(5))
print("torch._dynamo" in sys.modules)
"""


def python(code: str, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter, with `path` in front of the installed packages."""
    environment = dict(os.environ) | ({} if path is None else {"PYTHONPATH": str(path)})
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_fresh_interpreter() -> None:
    """One process for all, as each takes two seconds. It starts where `""`, the first place on the path, is the
    repository's root, in which backends/, sparse/ and solvers/ lie."""
    imports = f"{IMPORT_ALL}, krylix.__main__; {SERVING_OTHERS}"
    loaded = f"print({{*{HEAVY}, *{FOLDERS}}} & set(sys.modules), krylix.sparse.__name__)"
    run = python(f"import sys; {imports}; {loaded}" + ("" if missing("torch") else TORCH), cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["set() krylix.sparse", "False"][: 1 if missing("torch") else 2]


@pytest.mark.parametrize("folder", FOLDERS)
def test_root_folder_is_no_top_level_module(folder: str) -> None:
    """Packages that try `import sparse` must see that PyData's package is not there, and not get ours."""
    code = f"""
try:
    import {folder}
except ModuleNotFoundError as error:
    print(error.name, "|", error)
"""
    run = python(code, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    name, message = run.stdout.split("|")
    assert name.strip() == folder
    assert f"is krylix.{folder}, not a top-level module" in message


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_do_not_shadow(folder: str) -> None:
    """Neither the root's folders nor tests/sparse are importable as top-level modules in the tests."""
    spec = importlib.util.find_spec(folder)
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    assert not [place for place in places if place and Path(place).resolve().is_relative_to(ROOT)]


def test_works_without_links(tmp_path: Path) -> None:
    """As on Windows, where git writes the links as files of text, and in an unpacked sdist."""
    ignore = shutil.ignore_patterns("__pycache__", *FOLDERS)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / "src/krylix" / folder).write_text(f"../../{folder}")
    run = python(f"{IMPORT_ALL}; print(krylix.solvers.__file__)", cwd=tmp_path / "src", path=tmp_path / "src")
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).resolve() == (tmp_path / "solvers/__init__.py").resolve()


def test_every_module_imports() -> None:
    broken = []
    for path in library_files():
        try:
            (module,) = import_quietly(module_name(path))
        except Exception as error:
            name = getattr(error, "name", None)
            if not (name in (*FRAMEWORKS, *PEERS, "equinox", "mpi4py") and missing(name)):
                broken.append(f"{label(path)}: {type(error).__name__}: {error}")
            continue
        missing_names = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        broken += [f"{label(path)}: __all__ names {name}, which is not there" for name in missing_names]
    assert not broken, "\n".join(broken)
