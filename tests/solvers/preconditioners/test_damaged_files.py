"""Each value of a description and each array of a file is changed: it is refused at once, or it applies as before."""

from __future__ import annotations

import copy
import json
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.solvers import PRECONDITIONERS, Preconditioner
from krylix.sparse import Stencil, UnsupportedOperation
from krylix.sparse.files import packed
from krylix.sparse.files.saved import STORED_FORMATS

A = sp.csr_array(sp.diags_array([-1.0, 3.0, -1.5], offsets=[-1, 0, 2], shape=(12, 12)))
GRID = sp.csr_array(sum(np.array(c) * sp.kron(a, b) for c, a, b in (
    (1.0, sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(8, 8)), sp.eye_array(8)),
    (1.0, sp.eye_array(8), sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(8, 8))),
)))  # fmt: skip

SETTINGS: dict[str, dict[str, Any]] = {"amg": {"max_coarse": 20}, "block-jacobi": {"block_size": 2}}
SAVED: dict[str, Callable[[], Any]] = {
    **{kind: lambda kind=kind: krylix.preconditioner(GRID, kind, **SETTINGS.get(kind, {})) for kind in PRECONDITIONERS},
    **{word: lambda word=word: Preconditioner(krylix.as_operator(A).to(word), "mine")
       for word in STORED_FORMATS if word != "stencil"},
    "dense": lambda: Preconditioner(krylix.as_operator(A.toarray()), "mine"),
    "stencil": lambda: Preconditioner(Stencil([4.0, -1.0], [(0, 0), (1, 0)], (4, 3)), "mine"),
    "exact ilu": lambda: krylix.preconditioner(GRID, "ilu", apply="exact"),
    "sum": lambda: krylix.preconditioner(GRID, "jacobi") + 2 * krylix.preconditioner(GRID, "ssor"),
    "factors": lambda: krylix.prepare(A.toarray(), np.ones(12), method="direct").preconditioner,
    "factors on the host": lambda: krylix.prepare(A, np.ones(12), method="scipy-direct").preconditioner,
}  # fmt: skip
THIN = ("chebyshev", "csr")


def values(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place of a description."""
    if path:
        yield path, node
    for key, below in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from values(below, (*path, key))


def others(value: Any) -> list[Any]:
    """What could stand in its place."""
    if isinstance(value, bool):
        return [not value, 5]
    if isinstance(value, int):
        return [0, -1, value + 1, 10**8, 10**9, 2**31, 2**70, "x", None]
    if isinstance(value, float):
        return [0.0, -1.0, 1e308, "x", None, {"number": "nan"}]
    if isinstance(value, str):
        return ["zzz", 3, None, "float16"]
    if isinstance(value, list):
        return [value[:-1], value + value, None, value[::-1]]
    return [{}, 5] if isinstance(value, dict) else [1, "x", [1]]


def other_arrays(a: np.ndarray) -> list[np.ndarray]:
    wide = a if a.ndim else a[None]
    found = [
        wide[:-1],
        wide[..., :-1],
        np.concatenate([wide, wide]),
        wide.reshape(-1),
        a[None],
        a.T,
        np.zeros(()),
    ]
    return [*found, *(a.astype(dtype) for dtype in ("f4", "f8", "c16", "i4", "i8", "?", "u1"))]


def changes(description: Any, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    for path, value in values(description):
        for other in others(value):
            new = node = copy.deepcopy(description)
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = other
            yield f"{path}: {other!r}", new, arrays
    for name, array in arrays.items():
        for i, other in enumerate(other_arrays(array)):
            if (other.shape, other.dtype) == (array.shape, array.dtype):
                continue  # other numbers, of which the archive itself has a sum
            yield f"{name} {i}: {other.dtype} {other.shape}", description, {**arrays, name: other}


def write(path: Path, description: Any, arrays: dict[str, np.ndarray]) -> None:
    np.savez(path, header=np.frombuffer(json.dumps(description).encode(), np.uint8), **arrays)


def taken_apart(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(bytes(arrays.pop("header"))), arrays


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        *((kind, False) for kind in THIN),
        *(pytest.param(kind, True, marks=pytest.mark.merge) for kind in THIN),
        *(pytest.param(kind, False, marks=pytest.mark.merge) for kind in SAVED if kind not in THIN),
    ],
)
def test_changed_files(kind: str, digest: bool, tmp_path: Path) -> None:
    """Without the digest what loads may be another operator, but one that can be applied."""
    M, path = SAVED[kind](), tmp_path / "M.npz"
    M.save(path)
    v = np.linspace(-1, 2, M.shape[1])
    want, (description, arrays) = M @ v, taken_apart(path)
    if not digest:
        del description["digest"]
    loaded = 0
    for what, changed, found in changes(description, arrays):
        if what.startswith("('digest',)"):
            continue
        write(path, changed, found)
        begin = time.process_time()
        try:
            other = krylix.load_preconditioner(path)
        except ValueError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error), what
            assert time.process_time() - begin < 2, what
            continue
        loaded += 1
        with warnings.catch_warnings(action="ignore"):
            image = other @ (v if other.shape == M.shape else np.ones(other.shape[1]))
            with suppress(UnsupportedOperation):
                assert (other.T @ np.ones(other.shape[0])).shape[-1] == other.shape[1]
        assert time.process_time() - begin < 2, what
        if digest:
            np.testing.assert_allclose(image, want, rtol=1e-12, err_msg=what)
    write(path, description, arrays)
    np.testing.assert_array_equal(krylix.load_preconditioner(path) @ v, want)
    assert loaded < 40 or not digest


def test_members_that_nobody_names(tmp_path: Path) -> None:
    path = tmp_path / "M.npz"
    krylix.preconditioner(A, "jacobi").save(path)
    description, arrays = taken_apart(path)
    write(path, description, {**arrays, "stranger": np.zeros(5)})
    with pytest.raises(ValueError, match=r"holds the array 'stranger', which its description does not name"):
        krylix.load_preconditioner(path)


def test_bounds_hold_where_they_are_made() -> None:
    """What could not be loaded is not made."""
    for kind, settings in (("chebyshev", {"degree": 10**9}), ("ilu", {"sweeps": 10**8}), ("ic", {"sweeps": 1001})):
        with pytest.raises(ValueError, match="at most 1000"):
            krylix.preconditioner(GRID, kind, **settings)


def test_compressed_matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They unpack to no more than is usual; larger ones are saved as they are."""
    monkeypatch.setattr(packed, "UNPACKED", 10_000)
    path, zeros = tmp_path / "A.npz", sp.csr_array(np.ones((100, 100)))
    sp.save_npz(path, zeros)
    with pytest.raises(ValueError, match=r"A\.npz: would unpack to \d+ bytes, \d+ times its size; expected at most"):
        krylix.sparse.load(path)
    krylix.sparse.save(path, zeros)
    with zipfile.ZipFile(path) as file:
        assert all(member.compress_type == zipfile.ZIP_STORED for member in file.infolist())
    np.testing.assert_array_equal(krylix.sparse.load(path).toarray(), zeros.toarray())
