"""Stencils, also those of the boxes that a traced function consists of."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

import krylix
from krylix.sparse import as_operator, asymmetry
from krylix.sparse.formats import SparseMatrix, Stencil, stencil_of
from krylix.sparse.formats.boxes import Shifted
from krylix.sparse.formats.stencil import StencilStructure
from modes import EAGER, array, compiled, library, to_numpy

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


@pytest.mark.parametrize("systems", [None, 2])
@eager
def test_stencils_whose_shifts_all_leave_the_grid(mode: str, systems: int | None) -> None:
    """Zeros of the dtype, the library and the systems of their coefficients."""
    shape = (3,) if systems is None else (systems, 3)
    for coefficients in ([np.ones(shape, "float32")], [2.0, np.ones((*shape[:-1], *[1] * bool(systems)), "float32")]):
        given = [c if isinstance(c, float) else array(mode, c) for c in coefficients]
        A = Stencil(given, [(9,), (8,)][: len(given)], (3,))
        inside = Stencil(given, [(0,), (1,)][: len(given)], (3,))
        assert (A.dtype, A.systems, A.bk) == (inside.dtype, inside.systems, inside.bk) and A.systems == systems
        assert not to_numpy(A.dense()).any() and A.dense().shape == inside.dense().shape
        x = array(mode, np.ones((2, 3), "float32"))
        np.testing.assert_array_equal(to_numpy(A(x)), np.zeros((2, 3)))


@pytest.mark.compiled_by_default(modes=("tf",))
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


def from_boxes(boxes: Any, values: Any, outs: Any, ins: Any) -> np.ndarray:
    """Dense, of boxes (lo, shape, start)."""
    M = np.zeros((*outs, *ins), np.result_type(*values))
    for (lo, shape, start), value in zip(boxes, values, strict=True):
        for i in np.ndindex(*shape):
            row, col = (tuple(a + k for a, k in zip(corner, i, strict=True)) for corner in (lo, start))
            M[row + col] += np.broadcast_to(value, shape)[i]
    return M.reshape(int(np.prod(outs)), int(np.prod(ins)))


def periodic(grid: tuple[int, ...], shifts: Any) -> list[Shifted]:
    """Boxes of a stencil that goes on at the other end of every axis."""
    boxes = []
    for shift in shifts:
        parts = []
        for n, s in zip(grid, shift, strict=True):
            s %= n
            parts.append([(0, n - s, s), *([(n - s, s, 0)] if s else [])])
        boxes += [Shifted(*zip(*part, strict=True)) for part in itertools.product(*parts)]
    return boxes


FIVE = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
LAID_OUT: dict[str, tuple[Any, Any, list[Shifted]]] = {
    "line": ((7,), (7,), periodic((7,), [(0,), (1,), (-1,)])),
    "plane": ((4, 5), (4, 5), periodic((4, 5), FIVE)),
    "space": ((3, 2, 4), (3, 2, 4), periodic((3, 2, 4), [(0, 0, 0), (1, 0, 0), (0, 0, -1), (1, 1, 1)])),
    "more rows": ((5, 4), (3, 4), [Shifted((0, 0), (3, 4), (0, 0)), Shifted((2, 1), (3, 3), (0, 0))]),
    "other width": ((4, 5), (4, 3), [Shifted((0, 1), (4, 3), (0, 0)), Shifted((1, 0), (1, 1), (3, 2))]),
    "other width, one row": ((4, 5), (4, 3), [Shifted((1, 1), (1, 3), (2, 0)), Shifted((3, 0), (1, 1), (3, 2))]),
    "far apart": ((9,), (9,), [Shifted((0,), (1,), (8,)), Shifted((8,), (1,), (0,)), Shifted((4,), (1,), (6,))]),
    "empty box": ((2, 3), (2, 3), [Shifted((0, 0), (0, 3), (0, 0)), Shifted((1, 0), (1, 3), (0, 0))]),
    "nothing": ((2, 3), (2, 3), [Shifted((0, 0), (0, 0), (0, 0))]),
    "no points": ((0, 3), (0, 3), [Shifted((0, 0), (0, 3), (0, 0))]),
}


def values_for(boxes: list[Shifted], dtype: str, lead: tuple[int, ...] = ()) -> list[np.ndarray]:
    """Arrays, and numbers for every third box."""
    rng, found = np.random.default_rng(3), []
    for k, box in enumerate(boxes):
        shape = (*lead, *(() if k % 3 == 1 else box.shape))
        found.append((rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype[0] == "c" else 0)).astype(dtype))
    return found


@pytest.mark.parametrize(
    ("mode", "dtype", "name"),
    [
        *itertools.product(("numpy", "torch"), ("float32", "float64", "complex128"), LAID_OUT),
        *(("jax", "complex128", "plane"), ("tf", "complex128", "plane"), ("tf", "float32", "other width")),
    ],
)
def test_stencils_in_other_formats(mode: str, dtype: str, name: str) -> None:
    """Known and traced, one and three of them: diagonals and rows have the entries of the boxes, no others."""
    outs, ins, boxes = LAID_OUT[name]
    bk = krylix.choose_backend(library(mode))
    for lead in ((), (3,)):
        values = values_for(boxes, dtype, lead)
        structure = StencilStructure(outs, ins, boxes, [v.ndim == len(lead) for v in values])
        M = [from_boxes(boxes, [v[i] for v in values] if lead else values, outs, ins) for i in range(3 if lead else 1)]
        for given in (values, [array(mode, v) for v in values]):
            A = SparseMatrix.build(bk, structure, given, in_shape=ins, out_shape=outs)
            for B in (A, A.to("dia"), A.to("csr"), A.to("dia").to("csr"), A.T.to("dia").T):
                assert B.dtype == dtype and B.nnz == A.nnz == sum(int(np.prod(b.shape)) for b in boxes) * len(M)
                np.testing.assert_array_equal(B.toarray(), M if lead else M[0])
                assert (B.in_shape, B.out_shape) == (ins, outs)
            offsets = A.to("dia").structure.offsets
            assert offsets == tuple(sorted({int(j - i) for i, j in np.argwhere(M[0])}))


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_stencils_in_other_formats_in_programs(mode: str) -> None:
    """With values that are arguments, and the gradient by them."""
    outs, ins, boxes = LAID_OUT["plane"]
    values, bk = values_for(boxes, "float64"), krylix.choose_backend(library(mode))
    structure = StencilStructure(outs, ins, boxes, [v.ndim == 0 for v in values])
    M, x = from_boxes(boxes, values, outs, ins), np.arange(20.0)

    def images(*given: Any) -> Any:
        A = SparseMatrix.build(bk, structure, given[:-1])
        return A.to("dia") @ given[-1], A.to("csr") @ given[-1], A.to("dia").dense()

    found = compiled(mode, images)(*(array(mode, v) for v in (*values, x)))
    for got, want in zip(found, (M @ x, M @ x, M), strict=True):
        np.testing.assert_allclose(to_numpy(got), want, atol=1e-12)


def test_gradients_through_other_formats() -> None:
    torch = pytest.importorskip("torch")
    outs, ins, boxes = LAID_OUT["plane"]
    given = [torch.tensor(v, requires_grad=True) for v in values_for(boxes, "float64")]
    structure = StencilStructure(outs, ins, boxes, [v.ndim == 0 for v in given])
    x, y = np.arange(20.0), np.cos(np.arange(20.0))
    for format in ("dia", "csr"):
        A = SparseMatrix.build(krylix.choose_backend("torch"), structure, given).to(format)
        found = torch.autograd.grad((A @ torch.tensor(x)) @ torch.tensor(y), given)
        for box, g in zip(boxes, found, strict=True):
            terms = y.reshape(outs)[box.rows] * x.reshape(ins)[box.cols]
            np.testing.assert_allclose(g.numpy(), terms if g.ndim else terms.sum(), atol=1e-12)


def edge(value: float, edges: float) -> np.ndarray:
    c = np.full((4, 5), value)
    c[0], c[:, -1] = edges, edges
    return c


PRUNED: dict[str, tuple[Any, str]] = {
    "no zeros": ([edge(2, 3), 1.0, edge(1, 2)], "stencil"),
    "zeros at the border": ([edge(2, 3), edge(1, 0)], "stencil"),
    "zeros throughout": ([edge(2, 3), edge(0, 0), 0.0], "stencil"),
    "nothing but zeros": ([edge(0, 0), 0.0], "stencil"),
    "zeros among others": ([edge(2, 3), np.where(np.eye(4, 5), 0, 1.0)], "dia"),
}


@pytest.mark.parametrize("name", PRUNED)
@eager
def test_prune(mode: str, name: str) -> None:
    """Without stored zeros, and the same; of a batch zeros of all systems go."""
    c, format = PRUNED[name]
    systems = [[np.broadcast_to(v, (4, 5)), 0 * np.broadcast_to(v, (4, 5))] for v in c]
    for given, times in (
        ([array(mode, np.asarray(v)) for v in c], [1]),
        ([array(mode, np.stack(v)) for v in systems], [1, 0]),
    ):
        with krylix.choose_backend(library(mode)):
            A = Stencil(given, FIVE[: len(c)], (4, 5))
        M = exact_stencil(c, FIVE[: len(c)], (4, 5), (4, 5))
        found = A.prune()
        assert found.format == format and found.bk is A.bk and (found.in_shape, found.out_shape) == ((4, 5), (4, 5))
        assert found.nnz == np.count_nonzero(M) * len(times)
        np.testing.assert_array_equal(found.toarray(), M if len(times) == 1 else [t * M for t in times])
        np.testing.assert_allclose(to_numpy(found(array(mode, np.ones((len(times), 4, 5))))).reshape(len(times), -1),
                                   [t * M.sum(1) for t in times], atol=1e-12)  # fmt: skip


@eager
def test_asymmetry_of_stencils(mode: str) -> None:
    """As a dense matrix has it, for the same vector."""
    rng, lead = np.random.default_rng(0), (2,)
    c = rng.normal(size=(2, 4, 5)) + 1j * rng.normal(size=(2, 4, 5))
    for shape in ((), lead):
        values = [np.broadcast_to(v, (*shape, 4, 5)).copy() for v in c]
        if shape:
            values[1][0] = 0
        with krylix.choose_backend(library(mode)):
            A = Stencil([array(mode, v) for v in values], [(0, 0), (1, 0)], (4, 5))
        for B in (A, A.to("dia")):
            found = asymmetry(B)
            assert found is not None and found > 0.1
            assert found == pytest.approx(asymmetry(as_operator(array(mode, A.toarray()))), rel=1e-12)
    with krylix.choose_backend(library(mode)):
        wide = Stencil([array(mode, np.ones((2, 3)))], [(0, 0)], (2, 4), (2, 3))
        nan = Stencil([array(mode, np.full((2, 3), np.nan))], [(0, 0)], (2, 3))
    assert asymmetry(wide) == np.inf and np.isnan(asymmetry(nan))
