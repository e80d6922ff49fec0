"""Files of others: what is wrong with one is said in a line that names it, and nothing is believed unseen."""

import gzip
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from krylix.sparse import load, save

HEADER = "%%MatrixMarket matrix coordinate real general\n"
GOOD = HEADER + "2 2 2\n1 1 1.5\n2 2 2.5\n"


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ValueError) as caught:
        load(path)
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    for word in words:
        assert word in message, message


def test_what_is_no_gzip(tmp_path: Path) -> None:
    path = tmp_path / "A.mtx.gz"
    for content in (b"hello", gzip.compress(GOOD.encode())[:40]):
        path.write_bytes(content)
        refused(path, "malformed")


def arrays_of(A: sp.sparray) -> dict[str, np.ndarray]:
    stream = io.BytesIO()
    sp.save_npz(stream, A)
    stream.seek(0)
    return dict(np.load(stream))


BROKEN: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "index outside": lambda a: a | {"indices": a["indices"] + 10**6},
    "index just outside": lambda a: a | {"indices": np.where(a["indices"] == 3, 4, a["indices"])},
    "negative index": lambda a: a | {"indices": a["indices"] - 1},
    "falling starts": lambda a: a | {"indptr": a["indptr"][::-1].copy()},
    "starts beyond the end": lambda a: a | {"indptr": a["indptr"] * 1000},
    "a start in between": lambda a: a | {"indptr": np.where(a["indptr"] == 4, 10**6, a["indptr"])},
    "first start": lambda a: a | {"indptr": np.maximum(a["indptr"], 1)},
    "too few starts": lambda a: a | {"indptr": a["indptr"][:-1]},
    "too few values": lambda a: a | {"data": a["data"][:-1]},
    "no starts": lambda a: {k: v for k, v in a.items() if k != "indptr"},
    "unknown format": lambda a: a | {"format": np.array("xyz")},
    "NaN": lambda a: a | {"data": a["data"] * np.nan},
    "words": lambda a: a | {"data": a["data"].astype(str)},
    "objects": lambda a: a | {"data": np.array([None] * len(a["data"]))},
    "promises": lambda a: a | {"shape": np.array([2 * 10**9, 2 * 10**9])},
    "two arrays": lambda a: {"a": np.eye(2), "b": np.eye(2)},
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_broken_archives(case: str, kind: str, tmp_path: Path) -> None:
    A = sp.diags_array([np.ones(3), np.full(4, 4.0), np.ones(3)], offsets=[-1, 0, 1]).asformat(kind)
    arrays = arrays_of(A)
    changed = BROKEN[case](arrays)
    if case == "a start in between" and np.array_equal(changed["indptr"], arrays["indptr"]):
        changed["indptr"] = np.array([0, 10**6, *arrays["indptr"][2:]])
    if case == "index just outside" and kind == "bsr":
        changed["indices"] = arrays["indices"] + 1 + A.shape[1] // A.blocksize[1] - 1
    np.savez(tmp_path / "A.npz", **changed)
    refused(tmp_path / "A.npz")


@pytest.mark.parametrize("at", ["row", "col"])
@pytest.mark.parametrize("value", [-1, 4, 10**6])
def test_broken_coordinates(at: str, value: int, tmp_path: Path) -> None:
    arrays = arrays_of(sp.eye_array(4).tocoo())
    name = at if at in arrays else "coords"
    changed = arrays[name].copy()
    changed.reshape(-1)[-1] = value
    np.savez(tmp_path / "A.npz", **(arrays | {name: changed}))
    refused(tmp_path / "A.npz")


def test_a_promise_takes_no_memory(tmp_path: Path) -> None:
    wide = 2 * 10**9
    one = sp.coo_array((np.ones(1), (np.array([5]), np.array([7]))), (wide, wide))
    sp.save_npz(tmp_path / "A.npz", one)
    sp.save_npz(tmp_path / "D.npz", sp.dia_array((np.ones((1, 1)), [0]), (wide, wide)))
    (tmp_path / "A.mtx").write_text(f"{HEADER}{wide} {wide} 1\n5 7 1\n")
    tracemalloc.start()
    for name in ("A.npz", "D.npz", "A.mtx"):
        refused(tmp_path / name, f"{wide} x {wide} for 1 entries", "memory")
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


def test_few_entries_in_a_large_matrix_are_fine(tmp_path: Path) -> None:
    n = 10**6
    A = sp.coo_array((np.ones(2), (np.array([5, n - 1]), np.array([7, 0]))), (n, n))
    save(tmp_path / "A.npz", A)
    assert load(tmp_path / "A.npz").nnz == 2


def test_missing_files_are_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        load(tmp_path / "none.npz")


def test_one_dense_array_in_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "A.npz", anything=np.diag([1.0, 2.0]))
    assert load(tmp_path / "A.npz").nnz == 2
    np.savez(tmp_path / "v.npz", np.ones(3))
    refused(tmp_path / "v.npz", "shape (3,)")
