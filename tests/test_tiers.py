"""The table in tests/README.md says in which tier each contract is tested, and is right."""

import re
from typing import NamedTuple

import pytest

from cells import METHOD_NAMES
from library import ROOT
from modes import MODES
from tiers import (
    AGAIN,
    BEFORE_A_MERGE,
    CELLS,
    COMPILING,
    EXPENSIVE,
    IMPORTED,
    REPRESENTATIVE,
    TIERS,
    TWINS,
    VARIATIONS,
    Cell,
)


class Row(NamedTuple):
    contract: str
    tests: tuple[str, ...]
    tiers: dict[str, str]  # by mode


def table() -> list[Row]:
    rows = []
    for line in (ROOT / "tests/README.md").read_text().splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")]
        if len(cells) == 2 + len(MODES) and re.match(r"\d", cells[0]):
            tests = tuple(re.findall(r"`([^`]+)`", cells[1]))
            rows.append(Row(cells[0], tests, dict(zip(MODES, cells[2:], strict=True))))
    return rows


def collected(request: pytest.FixtureRequest, tests: tuple[str, ...]) -> list[Cell]:
    """The tests of these files or functions; skips where this run has not collected all of them."""
    found = request.config.stash[CELLS]
    for test in tests:
        file, _, name = test.partition("::")
        assert (ROOT / "tests" / file).exists(), f"there is no {file}"
        if not any(c.test.startswith(f"{file}::") for c in found):
            pytest.skip(f"{file} is not part of this run")
        assert any(c.test == test or (not name and c.test.startswith(f"{file}::")) for c in found), f"no test {test}"
    return [c for c in found if any(c.test == t or c.test.startswith(f"{t}::") for t in tests)]


def test_table_has_every_contract() -> None:
    assert {row.contract.split()[0] for row in table()} == {str(number) for number in range(1, 10)}
    for row in table():
        assert row.tests and set(row.tiers.values()) <= {*TIERS, "–"}, row


@pytest.mark.parametrize("row", table(), ids=lambda row: row.contract)
def test_cells_are_tested_in_their_tier(row: Row, request: pytest.FixtureRequest) -> None:
    found, wrong = collected(request, row.tests), []
    for mode, said in row.tiers.items():
        first = next((t for t in TIERS if any(c.mode == mode and c.tier == t for c in found)), "–")
        if first != said:
            wrong.append(f"{mode}: the table says {said}, the first tier with such a test is {first}")
    assert not wrong, "\n".join(wrong)


def test_markers_name_what_there_is(request: pytest.FixtureRequest) -> None:
    """A method or mode that a test no longer has, or that its marker names in vain, asks for a tier of nothing."""
    if any("::" in argument for argument in request.config.args):
        pytest.skip("this run has not collected all cells of its tests")
    asked: dict[str, set[str | None]] = {}
    there: dict[str, set[str | None]] = {}
    for c in request.config.stash[CELLS]:
        asked.setdefault(c.test, set()).update(c.asked)
        there.setdefault(c.test, set()).update((c.method, c.mode))
    stale = {test: names - there[test] for test, names in asked.items() if names - there[test]}
    assert not stale, f"the marker compiled_by_default names what these tests do not have: {stale}"


def test_methods_that_stand_for_others_exist() -> None:
    assert {
        *BEFORE_A_MERGE,
        *VARIATIONS,
        *VARIATIONS.values(),
        *(method for methods in AGAIN.values() for method in methods),
    } <= set(METHOD_NAMES)
    assert {*AGAIN, *TWINS, *TWINS.values(), *COMPILING} <= set(MODES)


GRID = (
    "solvers/test_basics.py::test_solution",
    "solvers/test_batches.py::test_scaled_zero_and_nan_systems",
    "solvers/test_trivial.py::test_zero_and_exact_start",
    "solvers/test_failures.py::test_inconsistent_is_never_converged",
)


@pytest.mark.parametrize("test", GRID)
def test_every_method_in_every_mode(test: str, request: pytest.FixtureRequest) -> None:
    """Those that stand for others by default; the others compiled in one way before a merge, and in all on demand."""
    tiers: dict[tuple[str | None, str | None], set[str]] = {}
    for c in collected(request, (test,)):
        tiers.setdefault((c.method, c.mode), set()).add(c.tier)
    for method in METHOD_NAMES:
        for mode in MODES:
            assert (method, mode) in tiers, f"{method} is not tested in {mode}"
        eager = ("numpy",) if method in VARIATIONS else ("numpy", "torch")
        always = [m for m in MODES if method in AGAIN.get(m, REPRESENTATIVE) or m in eager]
        assert all("default" in tiers[method, mode] for mode in always), f"{method}: {tiers}"
        assert {"default", "merge"} & tiers[method, "jax-jit"], f"{method} never compiles before a merge"
        if method not in VARIATIONS:
            assert {"default", "merge"} & tiers[method, "tf"], f"{method} never runs in TensorFlow before a merge"


def test_files_that_are_handed_out_by_their_seconds_exist() -> None:
    pytest.importorskip("xdist")
    from scheduling import ONE_PROGRAM, SECONDS

    gone = [file for file in (*ONE_PROGRAM, *SECONDS) if not (ROOT / "tests" / file).exists()]
    assert not gone, f"tests/helpers/scheduling.py names files that are not there: {gone}"


def test_collecting_imports_no_framework(request: pytest.FixtureRequest) -> None:
    assert not request.config.stash[IMPORTED], "use frameworks.lazy in the file that imports them"


def test_expensive_tests_are_few(request: pytest.FixtureRequest) -> None:
    """Each is a test of the default tier, and has a reason."""
    assert len(EXPENSIVE) <= 40
    for test, reason in EXPENSIVE.items():
        assert reason and any(c.tier == "default" for c in collected(request, (test,))), test
