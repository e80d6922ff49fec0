"""The command as a process: exit codes, pipes, names."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import krylix


def process(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "krylix", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_as_a_process(tmp_path: Path) -> None:
    good = process("solve", "--example", "bar", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert process("solve", "--example", "bar", "--method", "CG", "--max-iter", "5", cwd=tmp_path).returncode == 1
    bad = process("solve", "nothing.mtx", cwd=tmp_path)
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "krylix: nothing.mtx: there is no such file.\n")


def test_version_and_help(tmp_path: Path) -> None:
    assert process("--version", cwd=tmp_path).stdout == f"krylix {krylix.__version__}\n"
    text = process("solve", "--help", cwd=tmp_path).stdout
    assert all(word in text for word in ("--example", "--method", "--output", "helmholtz_2D"))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently")
def test_reader_that_goes_away(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m krylix methods | head -n 1'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode elsewhere")
def test_file_name_that_cannot_be_printed(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.eye(2))
    name = b"\xff\n.npy".decode("utf-8", "surrogateescape")
    (tmp_path / "A.npy").rename(tmp_path / name)
    assert process("solve", name, cwd=tmp_path).returncode == 0
    (tmp_path / name).write_bytes(b"")
    bad = process("solve", name, cwd=tmp_path)
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
