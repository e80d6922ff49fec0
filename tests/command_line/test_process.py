"""The command as a process: exit codes, pipes, names."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from command_forks import CLOSED, NOBODY, Commands

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals are others")


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    started = Commands()
    yield started
    started.close()


def test_as_a_process(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "krylix", "solve", "nothing.mtx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "krylix: nothing.mtx: there is no such file.\n")


FULL = "the report cannot be written: No space left on device."
SOLVED, LIMITED = "solve A.npy", "solve A.npy --method CG --max-iter 1"


@pytest.mark.parametrize(
    ("words", "streams", "code", "problem"),
    [
        (SOLVED, {}, 0, ""),
        (LIMITED, {}, 1, ""),
        # Where nobody reads on, the work is done all the same, and its outcome is the exit code.
        ("--help", {"stdout": NOBODY}, 0, ""),
        (f"{SOLVED} --output x.npy", {"stdout": NOBODY}, 0, ""),
        (f"{LIMITED} --output x.npy", {"stdout": NOBODY}, 1, ""),
        ("--help", {"stdout": "/dev/full"}, 1, FULL),
        (f"{SOLVED} --output x.npy", {"stdout": "/dev/full"}, 1, FULL),
        ("methods", {"stdout": CLOSED, "stderr": CLOSED}, 0, ""),
        ("solve nothing.mtx", {"stdout": "/dev/full", "stderr": CLOSED}, 2, ""),
        ("solve - --output x.npy --quiet", {"stdin": "A.npy"}, 0, ""),
        ("solve - --output A.npy", {"stdin": "A.npy"}, 2, "A.npy: is the same file as standard input"),
    ],
)  # fmt: skip
def test_streams(
    words: str, streams: dict[str, str], code: int, problem: str, commands: Commands, tmp_path: Path
) -> None:
    if "/dev/full" in streams.values() and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    np.save(tmp_path / "A.npy", np.diag([1.0, 2.0]))
    done = commands(*words.split(), cwd=tmp_path, **streams)
    assert done.code == code, done
    assert done.err.startswith(f"krylix: {problem}") and done.err.count("\n") == 1 if problem else done.err == ""
    assert bool(done.out) == (not streams)
    assert (tmp_path / "x.npy").exists() == ("x.npy" in words)


@pytest.mark.merge
@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode elsewhere")
def test_file_name_that_cannot_be_printed(commands: Commands, tmp_path: Path) -> None:
    name = b"\xff\n.npy".decode("utf-8", "surrogateescape")
    np.save(tmp_path / "A.npy", np.eye(2))
    (tmp_path / "A.npy").rename(tmp_path / name)
    assert commands("solve", name, cwd=tmp_path).code == 0
    (tmp_path / name).write_bytes(b"")
    bad = commands("solve", name, cwd=tmp_path)
    assert bad.code == 2 and bad.err.count("\n") == 1
