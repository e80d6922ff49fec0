"""The command line, run in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from command_runs import Run
from krylix.__main__ import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> Run:
        code = main(argv)
        return Run(code, *capsys.readouterr())

    return call
