"""The examples that `--help` shows are run as they stand."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import scipy.io

import krylix
from command_runs import N, Run, matrix, rhs
from krylix.command_line.arguments import COMMANDS

LINES = [(name, line) for name, command in COMMANDS.items() for line, _ in command.examples]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_them(command: str, run: Callable[..., Run]) -> None:
    result = run(command, "--help")
    assert result.code == 0 and result.err == ""
    for line, why in COMMANDS[command].examples:
        assert f"  {line}\n      {why}\n" in result.out
    assert all(len(line) <= 120 for line in result.out.splitlines())
    assert "exit codes: 0 done; 1 not" in " ".join(result.out.split()) and "130 interrupted" in result.out
    options = ("--example", "--method", "--output", "--json", "--quiet") if command == "solve" else ()
    assert all(option in result.out for option in options)


def test_every_command_has_some(run: Callable[..., Run]) -> None:
    listed = run("--help").out.partition("COMMAND\n")[2]
    named = {line.split()[0] for line in listed.splitlines() if line.startswith("    ") and line[4] != " "}
    assert named == set(COMMANDS) and all(command.examples for command in COMMANDS.values())


def test_version(run: Callable[..., Run]) -> None:
    assert run("--version") == (0, f"krylix {krylix.__version__}\n", "")


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(("command", "line"), LINES)
def test_they_run(command: str, line: str, run: Callable[..., Run]) -> None:
    scipy.io.mmwrite("A.mtx", matrix(symmetric=True), symmetry="general")
    scipy.io.mmwrite("b.mtx", rhs(N, 1))
    words = shlex.split(line.partition(" > ")[0])
    assert words[:2] == ["krylix", command]
    result = run(*words[1:])
    assert result.code == 0 and result.err == "" and result.out, result
    for option in ("--output", "--plot"):
        if option in words and words[words.index(option) + 1] != "-":
            assert Path(words[words.index(option) + 1]).stat().st_size > 0
