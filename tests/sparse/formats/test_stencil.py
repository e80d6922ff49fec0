"""Stencils, also those of the boxes that a traced function consists of."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import krylix
from krylix.sparse.formats import Stencil, stencil_of
from modes import EAGER, array, library, to_numpy

eager = pytest.mark.parametrize("mode", EAGER)


class Box(NamedTuple):
    lo: tuple[int, ...]
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    coefficient: Any
    mask: np.ndarray | None = None


def exact_stencil(coefficients: Any, shifts: Any, ins: Any, outs: Any) -> np.ndarray:
    M = np.zeros((*outs, *ins))
    for c, shift in zip(coefficients, shifts, strict=True):
        for i in np.ndindex(*outs):
            j = tuple(a + s for a, s in zip(i, shift, strict=True))
            if all(0 <= a < n for a, n in zip(j, ins, strict=True)):
                M[i + j] += np.broadcast_to(c, outs)[i]
    return M.reshape(int(np.prod(outs)), int(np.prod(ins)))


GRIDS: list[tuple[Any, Any, Any]] = [
    ((4, 5), (4, 5), [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]),
    ((4, 5), (3, 6), [(0, 0), (1, 0), (0, -1), (2, -2), (9, 9)]),
    ((6,), (6,), [(0,), (2,)]),
    ((2, 3, 2), (2, 3, 2), [(0, 0, 0), (1, -1, 1)]),
    ((0, 3), (0, 3), [(0, 0)]),
    ((3,), (3,), [(5,)]),
]


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf", "tf-function"))
@pytest.mark.parametrize("kind", ["numbers", "traced", "arrays"])
@eager
def test_stencils(mode: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    for ins, outs, shifts in GRIDS if mode != "jax" else GRIDS[1:3]:
        c: list[Any] = [float(v) for v in rng.normal(size=len(shifts))]
        if kind == "arrays":
            c[::2] = [rng.normal(size=outs) for _ in c[::2]]
        given = c if kind == "numbers" else [array(mode, np.asarray(v)) for v in c]
        with krylix.choose_backend(library(mode)):
            A = Stencil(given, shifts, ins, outs)
        M = exact_stencil(c, shifts, ins, outs)
        eps = 1e-5 if A.dtype == np.float32 else 1e-12
        assert (A.in_shape, A.out_shape, A.bk.name) == (ins, outs, library(mode))
        x, y = rng.normal(size=(2, *ins)).astype(A.dtype), rng.normal(size=(2, *outs)).astype(A.dtype)
        found = to_numpy(A(array(mode, x)))
        np.testing.assert_allclose(found, (x.reshape(2, -1) @ M.T).reshape(2, *outs) if x.size else found, atol=eps)
        found = to_numpy(A.T(array(mode, y[0])))
        np.testing.assert_allclose(found.ravel(), y[0].ravel() @ M, atol=eps)
        assert (A.T.in_shape, A.T.out_shape) == (outs, ins)
        for B in (A, A.to("csr"), A.to("dia"), A.to("hyb"), A.T.T):
            np.testing.assert_allclose(B.toarray(), M, atol=eps)
            assert B.nnz == A.nnz
        np.testing.assert_allclose(to_numpy(A.diagonal()), np.diagonal(M), atol=eps)
        np.testing.assert_allclose((A + A.to("csr")).toarray(), 2 * M, atol=eps)
        np.testing.assert_allclose((A.T @ A).toarray(), M.T @ M, atol=10 * eps)
        assert "grid" in repr(A) and (kind != "numbers" or A.structure.size == max(1, len(A.structure.boxes)))


def exact_boxes(boxes: list[Box], ins: Any, outs: Any) -> np.ndarray:
    M = np.zeros((int(np.prod(outs)), int(np.prod(ins))))
    for box in boxes:
        values = np.broadcast_to(
            to_numpy(box.coefficient) if hasattr(box.coefficient, "shape") else box.coefficient, box.shape
        )
        for i in np.ndindex(*box.shape):
            if box.mask is None or box.mask[i]:
                row = np.ravel_multi_index(tuple(a + b for a, b in zip(box.lo, i, strict=True)), outs)
                M[row, box.offset + sum(s * k for s, k in zip(box.strides, i, strict=True))] += values[i]
    return M


ALL = Box((0, 0), (3, 4), 0, (4, 1), -4.0)
RIGHT, DOWN = Box((0, 0), (3, 3), 1, (4, 1), 1.0), Box((0, 0), (2, 4), 4, (4, 1), 2.0)
WRAP = Box((2, 0), (1, 4), 0, (4, 1), 3.0)
BOXES: dict[str, tuple[list[Box], bool]] = {
    "five": ([ALL, RIGHT, DOWN], True),
    "periodic": ([ALL, DOWN, WRAP], True),
    "zero": ([ALL, RIGHT._replace(coefficient=0.0)], True),
    "overlap": ([ALL, ALL], False),
    "array": ([ALL, RIGHT._replace(coefficient=np.arange(9.0).reshape(3, 3))], False),
    "mask": ([ALL._replace(mask=np.arange(12).reshape(3, 4) % 2 == 0), DOWN], False),
    "strides": ([Box((0, 0), (1, 2), 0, (8, 2), 1.0)], False),
    "flipped": ([Box((0, 0), (3, 4), 11, (-4, -1), 1.0)], False),
    "across rows": ([Box((0, 0), (1, 4), 2, (4, 1), 1.0)], False),
    "nothing": ([], False),
}


@pytest.mark.parametrize("name", BOXES)
@eager
def test_boxes(mode: str, name: str) -> None:
    boxes, is_stencil = BOXES[name]
    bk = krylix.choose_backend(library(mode))
    for traced in (False, True):
        given = boxes
        if traced:
            given = [b._replace(coefficient=array(mode, np.asarray(b.coefficient))) for b in boxes]
        A = stencil_of(bk, given, (3, 4), (3, 4), dtype=np.dtype("float64"))
        assert (A is not None) == (is_stencil and mode in ("jax", "tf"))
        if A is None:
            continue
        M = exact_boxes(boxes, (3, 4), (3, 4))
        assert (A.in_shape, A.out_shape, A.dtype) == ((3, 4), (3, 4), np.float64)
        np.testing.assert_allclose(A.toarray(), M)
        np.testing.assert_allclose(to_numpy(A @ array(mode, np.arange(12.0))), M @ np.arange(12.0))
        if not traced:
            assert A.nnz == np.count_nonzero(M) and A.constant is not None
