"""Files that cannot be used are refused in one line that names them."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_runs import HEADER, N, Run, matrix, refused

GOOD = HEADER + "2 2 2\n1 1 1.5\n2 2 2.5\n"
MALFORMED: dict[str, tuple[str, bytes, str]] = {
    "empty": ("A.mtx", b"", "A.mtx"),
    "garbage": ("A.mtx", b"hello\nworld\n", "Missing banner"),
    "binary": ("A.mtx", bytes(range(256)), "A.mtx"),
    "half a header": ("A.mtx", HEADER[:30].encode(), "A.mtx"),
    "wrong header": ("A.mtx", GOOD.replace("real", "quaternion").encode(), "quaternion"),
    "no size": ("A.mtx", HEADER.encode(), "A.mtx"),
    "truncated": ("A.mtx", GOOD[:-8].encode(), "runcated"),
    "truncated in a line": ("A.mtx", GOOD[:-6].encode(), "A.mtx"),
    "announces too much": ("A.mtx", GOOD.replace("2 2 2\n", "2 2 99999999999999\n").encode(), "truncated"),
    "goes on": ("A.mtx", (GOOD + "1 2 3\n").encode(), "Line 5"),
    "a word": ("A.mtx", GOOD.replace("2.5", "two").encode(), "Line 4"),
    "index too large": ("A.mtx", GOOD.replace("2 2 2.5", "3 2 2.5").encode(), "out of bounds"),
    "index zero": ("A.mtx", GOOD.replace("2 2 2.5", "0 2 2.5").encode(), "out of bounds"),
    "negative size": ("A.mtx", GOOD.replace("2 2 2\n", "-2 -2 2\n").encode(), "negative"),
    "NaN": ("A.mtx", GOOD.replace("2.5", "nan").encode(), "1 of 2 entries are not finite: NaN"),
    "infinity": ("A.mtx", GOOD.replace("2.5", "1e999").encode(), "infinity"),
    "not square": ("A.mtx", GOOD.replace("2 2 2\n", "2 3 2\n").encode(), "(2, 3); expected a square"),
    "far too large": ("A.mtx", GOOD.replace("2 2 2\n", "9000000000000 9000000000000 2\n").encode(), "memory"),
    "no gzip": ("A.mtx.gz", b"hello", "gzip"),
    "truncated gzip": ("A.mtx.gz", gzip.compress(GOOD.encode())[:40], "A.mtx.gz"),
    "text as npy": ("A.npy", b"1 2\n3 4\n", "is no .npy file"),
    "empty npy": ("A.npy", b"", "is no .npy file"),
    "text as npz": ("A.npz", b"1 2\n3 4\n", "is no .npz archive"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_text(case: str, run: Callable[..., Run]) -> None:
    name, content, words = MALFORMED[case]
    Path(name).write_bytes(content)
    np.save("good.npy", np.eye(2))
    refused(run("solve", name), name, words)
    if case == "not square":  # a matrix to look at, and three right-hand sides
        assert run("solve", "good.npy", name).code == run("inspect", name).code == 0
        return
    refused(run("solve", "good.npy", name), name, "to fit the matrix" if case == "far too large" else words)
    refused(run("inspect", name), name, words)


def arrays_of(A: sp.sparray) -> dict[str, np.ndarray]:
    stream = io.BytesIO()
    sp.save_npz(stream, A)
    stream.seek(0)
    return dict(np.load(stream))


BROKEN_NPZ: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "index outside": lambda a: a | {"indices": a["indices"] + 10**6},
    "negative index": lambda a: a | {"indices": a["indices"] - 10**6},
    "bad pointers": lambda a: a | {"indptr": a["indptr"][::-1].copy()},
    "pointers of truth": lambda a: a | {"indptr": a["indptr"].astype(bool)},
    "real indices": lambda a: a | {"indices": a["indices"].astype(float)},
    "too little data": lambda a: a | {"data": a["data"][:-1]},
    "no pointers": lambda a: {k: v for k, v in a.items() if k != "indptr"},
    "unknown format": lambda a: a | {"format": np.array("xyz")},
    "objects": lambda a: a | {"data": np.array([None] * len(a["data"]))},
    "words": lambda a: a | {"data": a["data"].astype(str)},
    "two arrays": lambda a: {"a": np.eye(2), "b": np.eye(2)},
    "none": lambda a: {},
}


@pytest.mark.parametrize("case", BROKEN_NPZ)
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_broken_npz(case: str, kind: str, run: Callable[..., Run]) -> None:
    np.savez("A.npz", **BROKEN_NPZ[case](arrays_of(matrix().asformat(kind))))
    refused(run("solve", "A.npz"), "A.npz")


def test_truncated_binary_files(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.eye(9))
    sp.save_npz("A.npz", matrix())
    for name in ("A.npy", "A.npz"):
        Path(name).write_bytes(Path(name).read_bytes()[:200])
        refused(run("solve", name), name)


BAD_ARRAYS = {
    "words": np.array([["a", "b"], ["c", "d"]]),
    "objects": np.array([[1, None], [2, 3]], object),
    "dates": np.zeros((2, 2), "M8[s]"),
    "records": np.zeros((2, 2), [("re", float), ("im", float)]),
    "NaN": np.array([[1, np.nan], [0, 1]]),
    "vector": np.ones(3),
    "three axes": np.ones((2, 2, 2)),
    "number": np.array(3.0),
    "not square": np.ones((2, 3)),
    "nothing": np.ones((0, 0)),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_are_no_matrix(case: str, run: Callable[..., Run]) -> None:
    np.save("A.npy", BAD_ARRAYS[case])
    refused(run("solve", "A.npy"), "A.npy")


@pytest.mark.parametrize("b", [np.ones(5), np.ones((3, N)), np.ones((N, 2, 2)), np.ones((N, 0)), np.array(1.0)])
def test_right_hand_side_of_wrong_shape(b: np.ndarray, run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy")
    refused(result, f"b.npy: got the shape {b.shape}", f"expected ({N},)")
    assert ("Transpose it" in result.err) == (b.shape[1:] == (N,))


def test_right_hand_side_as_one_row(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    for name, b in (("b.npy", np.arange(N)), ("row.npy", np.arange(N)[None])):
        np.save(name, b)
        assert run("solve", "A.npz", name, "--output", f"x_{name}").code == 0
    np.testing.assert_array_equal(np.load("x_b.npy").reshape(-1), np.load("x_row.npy").reshape(-1))


def test_nan_in_right_hand_side(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    np.save("b.npy", np.where(np.arange(N) == 3, np.nan, 1))
    refused(run("solve", "A.npz", "b.npy"), "b.npy", "NaN")
