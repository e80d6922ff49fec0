"""Methods and preconditioners of other packages: found by name, loaded on demand, and never in the way."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import krylix
from krylix import UnsupportedOperation, linear_solve, prepare
from krylix.__main__ import main
from krylix.solvers import METHODS, PRECONDITIONERS, find_method
from krylix.solvers.methods.registry import METHOD_PLUGINS
from krylix.solvers.plugins import BrokenPluginWarning
from krylix.solvers.preconditioners.build import PRECONDITIONER_PLUGINS

A = np.diag(np.arange(2.0, 12.0)) - np.eye(10, k=1) - np.eye(10, k=-1)
B = np.cos(np.arange(10))

CODE = """
from dataclasses import dataclass

from krylix.solvers import CG, Preconditioner
from krylix.solvers.preconditioners import DiagonalOperator, of_operator


@dataclass(frozen=True)
class Theirs(CG):
    '''Their own.'''

    @property
    def name(self):
        return "their-method"


@of_operator()
def their_kind(own, target, factor=1.0):
    values = own.bk.reshape(factor / own.bk.asarray(own.diagonal()), (1, -1))
    return Preconditioner(DiagonalOperator(own.bk, values), "their-kind", hermitian=True, memory=own.shape[0])


def not_one(own):
    return own.diagonal()


def too_small(own):
    return Preconditioner(DiagonalOperator(own.bk, own.bk.asarray([[1.0, 1.0]])), "small")


def refusing(own):
    raise ValueError("only for matrices\\nof five rows")


def broken_one(own):
    return {}["absent"]


def unsupported(own):
    from krylix import UnsupportedOperation

    raise UnsupportedOperation("no entries are known")


def without_operator():
    return None


number = 3
"""
ENTRIES = """[krylix.methods]
their-method = their_package:Theirs
CG = their_package:Theirs
pcg = their_package:Theirs
misnamed = their_package:Theirs
absent = their_package:Absent
broken = their_broken_package:Method
number = their_package:number

[krylix.preconditioners]
their-kind = their_package:their_kind
jacobi = their_package:their_kind
number = their_package:number
not-one = their_package:not_one
too-small = their_package:too_small
refusing = their_package:refusing
broken-one = their_package:broken_one
unsupported = their_package:unsupported
without-operator = their_package:without_operator
"""
THEIRS = ["broken-one", "not-one", "refusing", "their-kind", "too-small", "unsupported"]  # those that can be loaded


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that is installed in a folder of its own."""
    (tmp_path / "their_package.py").write_text(CODE)
    (tmp_path / "their_broken_package.py").write_text("1 / 0")
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("their_package", "their_broken_package"):
        sys.modules.pop(name, None)
    METHOD_PLUGINS.loaded.clear()
    PRECONDITIONER_PLUGINS.loaded.clear()


OWN = pytest.mark.filterwarnings("ignore:The (method|preconditioner) .* has a name that krylix itself takes")


@OWN
@pytest.mark.usefixtures("package")
def test_they_are_found_by_name() -> None:
    with pytest.raises(ValueError, match="No method is called 'their_other'"):
        find_method("their_other")
    assert "their_package" not in sys.modules  # nothing is loaded that was not asked for
    result = linear_solve(A, B, method="Their Method", preconditioner="their_kind")
    assert result.converged and result.method == "their-method" and result.preconditioner == "their-kind"
    np.testing.assert_allclose(result.x, np.linalg.solve(A, B), rtol=1e-8)
    assert "their-method" not in METHODS and "their-kind" not in PRECONDITIONERS
    for _ in range(3):  # what is kept for a repeated matrix is none of theirs
        assert linear_solve(A, B, method="their-method").iterations == linear_solve(A, B, method="CG").iterations
    assert prepare(A, B, method="mixed-their-method", preconditioner="their-kind").solve(B).converged
    M = krylix.preconditioner(A, "their-kind", factor=2.0)
    np.testing.assert_allclose(M @ B, 2 * B / A.diagonal())
    with pytest.raises(ValueError, match=r"their-?kind has no setting sweeps; it has factor"):
        krylix.preconditioner(A, "their-kind", sweeps=2)


@OWN
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("absent", "AttributeError"),
        ("broken", "ZeroDivisionError: division by zero"),
        ("number", "TypeError: 'int' object is not callable"),
        ("misnamed", "ValueError: its name is 'their-method'"),
    ],
)
def test_a_broken_one_is_named_in_one_line(name: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"The method '{name}' of the package their-package .* {error}") as found:
        linear_solve(A, B, method=name)
    assert "\n" not in str(found.value)
    assert linear_solve(A, B, method="their-method").converged
    with pytest.raises(ValueError, match="preconditioner 'number' of the package their-package"):
        linear_solve(A, B, method="CG", preconditioner="number")


@OWN
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("not-one", TypeError, r"returned ndarray; expected a krylix\.solvers\.Preconditioner"),
        ("too-small", ValueError, r"returned one of the shape \(2, 2\); expected \(10, 10\), that of A"),
        ("refusing", ValueError, "cannot be made: ValueError: only for matrices of five rows"),
        ("broken-one", RuntimeError, "cannot be made: KeyError: 'absent'"),
        ("unsupported", UnsupportedOperation, "cannot be made: UnsupportedOperation: no entries are known"),
        ("without-operator", ValueError, "cannot be used: TypeError: expected a function of an operator"),
    ],
)
def test_a_kind_that_fails_is_named_with_its_package(kind: str, error: type[Exception], text: str) -> None:
    said = rf"^The preconditioner '{kind}' of the package their-package .*{text}"
    for call in (
        lambda: linear_solve(A, B, method="CG", preconditioner=kind),
        lambda: krylix.preconditioner(A, kind),
        lambda: prepare(A, B, method="CG", preconditioner=kind),
    ):
        with pytest.raises(error, match=said) as found:
            call()
        assert "\n" not in str(found.value) and type(found.value) is error


@OWN
@pytest.mark.usefixtures("package")
def test_lists_show_those_that_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(BrokenPluginWarning, match="cannot be used") as told:
        assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([one for one in told if "cannot be used" in str(one.message)]) == 6  # 4 methods, and 2 that are no kind
    assert any(line.startswith("their-method ") and line.endswith("Their own") for line in lines)
    assert "their-kind" in lines[-1] and not any("absent" in line for line in lines)
    with pytest.warns(BrokenPluginWarning):
        assert main(["methods", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["preconditioners"] == ["auto", *PRECONDITIONERS, *THEIRS]
    with pytest.raises(ValueError, match=r"cluster, .*their-kind"):
        krylix.preconditioner(A, "unheard-of")


@pytest.mark.usefixtures("package")
def test_names_of_krylix_stay_its_own() -> None:
    assert type(find_method("CG")) is krylix.solvers.CG and type(find_method("pcg")) is krylix.solvers.CG
    assert krylix.preconditioner(A, "jacobi").kind == "jacobi"
    with pytest.warns(BrokenPluginWarning, match=r"'(CG|pcg)' of the package their-package has a name that krylix"):
        find_method("their-method")
    with pytest.warns(BrokenPluginWarning, match="'jacobi' of the package their-package has a name that krylix"):
        krylix.preconditioner(A, "their-kind")


def test_importing_krylix_loads_none(package: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r}); import krylix; assert 'their_package' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
