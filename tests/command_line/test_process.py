"""The command as a process: exit codes, pipes, names."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import krylix

# Python, also where the tests run in the background of a shell, which makes all that they start ignore interrupts.
_RESTORE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
INTERRUPTIBLE = (sys.executable, "-c", _RESTORE)


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
    assert all(word in text for word in ("--example", "--method", "--output", "helmholtz_2D", "--json", "--quiet"))
    assert all(words in " ".join(text.split()) for words in ("0 done; 1 not", "2 the input", "130 interrupted"))


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash, in which K stands for the command."""
    line = f'K() {{ "{sys.executable}" -W error -m krylix "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, text=True, check=False)


posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals are others")


@posix
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("solve --example airfoil --output x.npy", 0),
        ("solve --example bar --method CG --max-iter 3 --output x.npy", 1),
    ],
)
def test_reader_that_goes_away(words: str, code: int, tmp_path: Path) -> None:
    """The work is done all the same, and its outcome is the exit code."""
    done = shell(f"K {words} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout, done.stderr) == (f"{code}\n", "")
    assert (tmp_path / "x.npy").exists() == ("x.npy" in words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", ["--help", "solve --example airfoil --output x.npy"])
def test_report_on_a_full_disk(words: str, tmp_path: Path) -> None:
    done = shell(f"K {words} > /dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "krylix: the report cannot be written: No space left on device.\n"
    assert (tmp_path / "x.npy").exists() == ("x.npy" in words)


@posix
def test_streams_that_are_closed(tmp_path: Path) -> None:
    assert shell("K methods >&- 2>&-", tmp_path).returncode == 0
    assert shell("K solve nothing.mtx > /dev/full 2>&-", tmp_path).returncode == 2


@posix
def test_pipes_of_matrices(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.diag([1.0, 2.0]))
    done = shell("cat A.npy | K solve - --output x.npy --quiet; echo $?", tmp_path)
    assert (done.stdout, done.stderr) == ("0\n", "")
    done = shell("K solve - --output A.npy < A.npy", tmp_path)
    assert done.returncode == 2 and "A.npy: is the same file as standard input" in done.stderr


@posix
@pytest.mark.parametrize("started", ["module", "script"])
def test_interrupted_while_it_starts(started: str, tmp_path: Path) -> None:
    """Imports take most of a second; here SciPy's never end."""
    (tmp_path / "scipy").mkdir()
    waiting = (
        "import os, time\nos.write(1, b'importing')\ntry: time.sleep(60)\nexcept BaseException as e: raise ImportError"
    )
    (tmp_path / "scipy" / "__init__.py").write_text(waiting)
    (tmp_path / "krylix-script").mkdir()
    script = tmp_path / "krylix-script" / "krylix"
    script.write_text("import sys\nfrom krylix.__main__ import main\nsys.exit(main())\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [*INTERRUPTIBLE, *(["-m", "krylix"] if started == "module" else [str(script)]), "solve", "A.mtx"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONPATH": path}) as process:
        assert process.stdout is not None and process.stdout.read(9) == b"importing"
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"krylix: interrupted\n")
    assert process.returncode == 130


def test_a_program_that_imports_krylix_keeps_its_signals(tmp_path: Path) -> None:
    look = "import signal, krylix; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    assert subprocess.run([*INTERRUPTIBLE, "-c", look], cwd=tmp_path, check=False).returncode == 0


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
