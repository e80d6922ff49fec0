"""The command line, run in this process."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """What standard input will give."""
    return lambda content: monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
