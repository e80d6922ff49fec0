"""What is written: never over what is read."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from command_runs import Run, failed, refused
from krylix.backends.profile.user_profile import Profile

A = np.diag([1.0, 2.0, 4.0])


def by_itself() -> str:
    return "A.npy"


def by_a_detour() -> str:
    Path("folder").mkdir()
    return "folder/../A.npy"


def by_its_full_path() -> str:
    return str(Path("A.npy").resolve())


def by_a_symbolic_link() -> str:
    Path("x.npy").symlink_to("A.npy")
    return "x.npy"


def by_a_hard_link() -> str:
    os.link("A.npy", "x.npy")
    return "x.npy"


def by_a_linked_folder() -> str:
    Path("other").symlink_to(".", target_is_directory=True)
    return "other/A.npy"


SPELLINGS = [by_itself, by_a_detour, by_its_full_path, by_a_symbolic_link, by_a_hard_link, by_a_linked_folder]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda f: f.__name__)
def test_the_matrix_is_not_overwritten(spelling: Callable[[], str], run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    name = spelling()
    refused(run("solve", "A.npy", "--output", name), f"{name}: is the same file as A.npy")
    np.testing.assert_array_equal(np.load("A.npy"), A)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda f: f.__name__)
def test_the_right_hand_side_is_not_overwritten(spelling: Callable[[], str], run: Callable[..., Run]) -> None:
    np.save("matrix.npy", A)
    np.save("A.npy", np.ones(3))
    refused(run("solve", "matrix.npy", "A.npy", "--output", spelling()), "is the same file as A.npy")
    np.testing.assert_array_equal(np.load("A.npy"), np.ones(3))


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
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    np.save("A.npy", A)
    refused(run("solve", "A.npy", "--profile", "out.txt"), "out.txt", ".json")
    refused(run("solve", "A.npy", "--profile", "nowhere/out.json"), "no folder nowhere")
    monkeypatch.setattr(Profile, "save", full)
    result = run("solve", "A.npy", "--profile", "out.json")
    assert result.code == 1 and "out.json: cannot be written: No space left" in result.err
