"""The namespace that the array API's test suite tests, and what pytest is to know about it; `run.sh` loads it."""

from __future__ import annotations

import collections.abc
import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from krylix.backends import get_backend

LIBRARY = os.environ["KRYLIX_LIBRARY"]
xp = get_backend(LIBRARY).xp
xp.__name__ = f"krylix_{LIBRARY}"

if LIBRARY == "tensorflow":
    import tensorflow as tf

    collections.abc.Sequence.register(tf.TensorShape)  # the suite indexes by shapes as by tuples


def expected_failures(library: str) -> dict[str, str]:
    """The tests that are expected to fail, with the reason: `file.py::test[parameters]: reason` in each line."""
    lines = (Path(__file__).parent / f"{library}.txt").read_text().splitlines()
    found = dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))
    return {f"array_api_tests/{test}": reason for test, reason in found.items()}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """No shrinking of a failure to its smallest example, which takes minutes for each in TensorFlow."""
    own = settings.get_profile("array-api-tests")
    settings.register_profile("without_shrinking", own, phases=[Phase.explicit, Phase.generate])
    settings.load_profile("without_shrinking")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    expected = expected_failures(LIBRARY)
    for item in items:
        if item.nodeid in expected:
            item.add_marker(pytest.mark.xfail(strict=True, reason=expected.pop(item.nodeid)))
    if expected and len(config.args) > 10:  # else only a few of the files are run
        raise pytest.UsageError(f"{LIBRARY}.txt expects failures of tests that there are not: {', '.join(expected)}")
