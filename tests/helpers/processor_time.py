"""Processor seconds of the tests, with those of the processes that they start: `pytest --processor-time`.

Wall time depends on who else uses the machine. The first of the tests that share a program pays for all of them, so the
sum over a file says more than a single test.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from frameworks import import_lazy_modules
from tiers import EXPENSIVE

SHOWN = 40
SECOND = 1.0  # a test of the default tier that takes longer belongs in the table EXPENSIVE, or is made smaller
_NAME = "processor_time"
_began = pytest.StashKey[float]()
_seconds: Counter[str] = Counter()  # by test, in the process that prints
_largest: Counter[str] = Counter()  # resident MB by process
_later: set[str] = set()  # tests of other tiers than the default one


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-time", action="store_true", help="print processor seconds by folder, file and test")


def _used() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    import_lazy_modules(item)  # no test pays for the import
    item.stash[_began] = _used()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Attach the numbers to the report of this phase, which reaches the process that prints."""
    try:
        return (yield)
    finally:
        later = any(item.get_closest_marker(tier) for tier in ("merge", "slow"))
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        item.user_properties.append((_NAME, (_used() - item.stash[_began], later, megabytes, os.getpid())))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        for seconds, later, megabytes, process in (value for name, value in report.user_properties if name == _NAME):
            _seconds[report.nodeid] += seconds
            _largest[process] = max(_largest[process], megabytes)
            if later:
                _later.add(report.nodeid)


def _folder(test: str) -> str:
    return "/".join(test.partition("::")[0].split("/")[:-1][:3])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("--processor-time"):
        return
    sizes = ", ".join(str(size) for size in sorted(_largest.values()))
    terminalreporter.section(f"{sum(_seconds.values()):.0f} processor seconds; largest resident size in MB: {sizes}")
    sums: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for test, seconds in _seconds.items():
        sums[0][_folder(test)] += seconds
        sums[1][test.partition("::")[0]] += seconds
    for title, counter in zip(("folders", "files"), sums, strict=True):
        terminalreporter.write_line(f"The most expensive {title}:")
        for name, seconds in counter.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:7.1f} s {name}")
    long = [(test, s) for test, s in _seconds.most_common() if s > SECOND and test not in _later | _listed()]
    terminalreporter.write_line(f"{len(long)} tests of the default tier over {SECOND:.0f} s, not in tiers.EXPENSIVE:")
    for test, seconds in long:
        terminalreporter.write_line(f"{seconds:7.1f} s {test}")


def _listed() -> set[str]:
    return {test for test in _seconds if test.removeprefix("tests/").partition("[")[0] in EXPENSIVE}
