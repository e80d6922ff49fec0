"""Processor seconds of each file of tests, with those of the processes that it starts: `pytest --processor-time`.

Wall time says as much about who else uses the machine; and the first of the tests that share a program pays for all of
them, so a file says more than a test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

SHOWN = 40
_NAME = "processor_time"
_began = pytest.StashKey[float]()
_seconds: Counter[str] = Counter()  # by file, in the process that prints


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-time", action="store_true", help=f"say what the {SHOWN} dearest files of tests take")


def _used() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_began] = _used()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """The report of this phase takes the number along, to the process that prints."""
    try:
        return (yield)
    finally:
        item.user_properties.append((_NAME, _used() - item.stash[_began]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _seconds[report.nodeid.partition("::")[0]] += sum(s for name, s in report.user_properties if name == _NAME)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--processor-time"):
        terminalreporter.section(f"{sum(_seconds.values()):.0f} processor seconds, the dearest files")
        for file, seconds in _seconds.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:7.1f} s {file}")
