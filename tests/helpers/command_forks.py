"""Command lines in processes of their own, forked from one that has imported krylix, which takes two seconds."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from command_runs import Run

CLOSED, NOBODY = "closed", "nobody reads it"  # instead of the name of a file


class Commands:
    """The process that forks, until `close`."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-W", "error", __file__]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def __call__(self, *argv: str, cwd: Path, stdin: str = os.devnull, stdout: str = "out", stderr: str = "err") -> Run:
        """Run a command line in a folder, with files there, `CLOSED` or `NOBODY` as its streams."""
        assert self._process.stdin is not None
        print(json.dumps([argv, str(cwd), stdin, stdout, stderr]), file=self._process.stdin, flush=True)
        code = self._answer()
        texts = ((cwd / name).read_text() if name in ("out", "err") else "" for name in (stdout, stderr))
        return Run(code, *texts)

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def _redirect(number: int, name: str) -> None:
    if name == CLOSED:  # as Python does where it starts without this stream
        os.close(number)
        setattr(sys, {1: "stdout", 2: "stderr"}[number], None)
        return
    if name == NOBODY:
        reader, there = os.pipe()
        os.close(reader)
    else:
        there = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
    os.dup2(there, number)


def _serve() -> None:
    from krylix.__main__ import main

    gc.freeze()  # otherwise each child looks through all that was imported when it ends
    while line := sys.stdin.readline():
        argv, cwd, *streams = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(cwd)
            for number, name in enumerate(streams):
                _redirect(number, name)
            sys.exit(main(argv))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
