"""What is written: never over what is read."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from command_runs import Run, failed, no_space, refused
from krylix.backends.profile.recording import Profile

A = np.diag([1.0, 2.0, 4.0])


def by_a_detour() -> str:
    Path("folder").mkdir()
    return "folder/../A.npy"


SPELLINGS: dict[str, Callable[[], object]] = {
    "itself": lambda: "A.npy",
    "detour": by_a_detour,
    "full path": lambda: str(Path("A.npy").resolve()),
    "symbolic link": lambda: Path("x.npy").symlink_to("A.npy"),
    "hard link": lambda: os.link("A.npy", "x.npy"),
    "linked folder": lambda: Path("other").symlink_to(".", target_is_directory=True) or "other/A.npy",
}


@pytest.mark.parametrize("of", ["matrix", "right-hand side"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_is_read_is_not_overwritten(spelling: str, of: str, run: Callable[..., Run]) -> None:
    np.save("matrix.npy", A)
    np.save("A.npy", A if of == "matrix" else np.ones(3))
    before, name = Path("A.npy").read_bytes(), str(SPELLINGS[spelling]() or "x.npy")
    words = ("A.npy",) if of == "matrix" else ("matrix.npy", "A.npy")
    refused(run("solve", *words, "--output", name), f"{name}: is the same file as A.npy")
    assert Path("A.npy").read_bytes() == before


def test_a_picture_does_not_overwrite_the_matrix(run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    Path("A.png").symlink_to("A.npy")
    refused(run("inspect", "A.npy", "--plot", "A.png"), "A.png: is the same file as A.npy")
    np.testing.assert_array_equal(np.load("A.npy"), A)


def test_an_older_solution_is_overwritten(run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    np.save("x.npy", np.zeros(1))
    assert run("solve", "A.npy", "--output", "x.npy").code == 0
    assert np.load("x.npy").shape == (3,)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    for name in ("x.npy", "x.npz", "x.mtx"):
        Path(name).symlink_to("/dev/full")
        failed(run("solve", "A.npy", "--quiet", "--output", name), 1, f"{name}: cannot be written: No space left")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to this user")
def test_a_folder_without_permission(run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    Path("closed").mkdir(mode=0o500)
    refused(run("solve", "A.npy", "--output", "closed/x.npy"), "no permission")


def test_profile(run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    result = run("solve", "A.npy", "--method", "CG", "--profile", "out.json")
    assert result.code == 0, result
    events = json.loads(Path("out.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert "prepare" in names and "PreparedSolver.solve" in names
    assert result.line("profile") == f"{len(names)} calls, written to out.json"
    (solve,) = [event["args"] for event in events if event["name"] == "PreparedSolver.solve"]
    assert str(solve["iterations"]) == result.line("iterations")


def test_profile_is_refused_before_the_work(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("A.npy", A)
    refused(run("solve", "A.npy", "--profile", "out.txt"), "out.txt", ".json")
    refused(run("solve", "A.npy", "--profile", "nowhere/out.json"), "no folder nowhere")
    monkeypatch.setattr(Profile, "save", no_space)
    result = run("solve", "A.npy", "--profile", "out.json")
    assert result.code == 1 and "out.json: cannot be written: No space left" in result.err
