"""Taking arrays apart and putting them together: every backend and dtype against NumPy, and the derivatives."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from contract import COMPILES, MODES, backend, covers, rows, run
from frameworks import tf, torch
from krylix.backends import Backend
from modes import EAGER, array, compiled, to_numpy

DTYPES = ("float32", "float64", "complex64", "complex128", "int32", "int64")
CELLS = [(m, d) for m in MODES for d in DTYPES if m not in COMPILES or d in ("float32", "complex128", "int64")]
cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)
modes = pytest.mark.parametrize("mode", MODES)
eager = pytest.mark.parametrize("mode", EAGER)

SHAPES = ((5,), (4, 3), (2, 3, 4), (1, 1), (0,), (3, 0, 2))


def data(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.round(rows("complex128" if dtype[0] == "c" else "float64", shape) * 10).astype(dtype)


def compare(mode: str, function: Callable[..., Any], want: list[np.ndarray], *arrays: np.ndarray) -> None:
    """Exactly: the numbers are small integers."""
    found = run(mode, function, *arrays)
    for got, exact in zip(found, want, strict=True):
        assert got.dtype == exact.dtype and got.shape == exact.shape
        np.testing.assert_array_equal(got, exact)


@covers("take_in_bounds")
@cells
def test_take(mode: str, dtype: str) -> None:
    arrays = [data(dtype, shape) for shape in SHAPES[:4]]
    indices = [np.array(i, np.int32) for i in ([0], [], [[0, 0], [0, 0]], 0)]
    cases = [(i, axis, index) for i, a in enumerate(arrays) for axis in (0, a.ndim - 1, -1) for index in indices]
    last = [(2, -1, np.array([[3, 0], [1, 1]], kind)) for kind in ("int32", "int64")]
    strided = [(2, -1, np.array([3, 0, 2, 1])[::-2]), (2, -1, np.array([3, 1])), (2, 1, np.array([[[2]], [[0]]]))]

    def takes(bk: Backend, *arrays: Any) -> tuple[Any, ...]:
        return tuple(bk.take_in_bounds(arrays[i], index, axis) for i, axis, index in cases + last + strided)

    compare(mode, takes, [np.take(arrays[i], index, axis) for i, axis, index in cases + last + strided], *arrays)


@modes
def test_take_with_an_index_of_the_library(mode: str) -> None:
    x, index = data("float64", (4, 3)), np.array([[3, 0], [1, 1]], np.int32)
    ids = np.array([1, 0, 1, 3], np.int32)
    want = [np.take(x, index, 0), np.array([x[1], x[0] + x[2], 0 * x[0], x[3]])]
    compare(mode, lambda bk, x, i, j: (bk.take_in_bounds(x, i), bk.segment_sum(x, j, 4)), want, x, index, ids)


@eager
def test_read_only_indices_are_accepted(mode: str) -> None:
    index = np.array([2, 0])
    index.flags.writeable = False
    assert to_numpy(backend(mode).take(array(mode, np.arange(3.0)), index)).tolist() == [2.0, 0.0]


@covers("sum_entries")
@cells
def test_sum_entries(mode: str, dtype: str) -> None:
    """The last axis, of one matrix and of batches, a batch of one among them."""
    ids = np.array([4, 0, 0, 2, 4, 4], np.int32)
    hits = (np.arange(6) == ids[:, None]).astype(float)  # (entry, segment)
    several = [data(dtype, shape) for shape in ((6,), (1, 6), (3, 6))]
    want = [(values @ hits).astype(dtype) for values in several]
    compare(mode, lambda bk, *v: tuple(bk.sum_entries(values, ids, 6) for values in v), want, *several)


@covers("segment_sum")
@cells
def test_segment_sum(mode: str, dtype: str) -> None:
    """Sorted and not, with missing and repeated ids, of no values, into no segments, with more axes."""
    shapes = [((6,), [4, 0, 0, 2, 4, 4], 6), ((6,), [0, 0, 1, 1, 3, 5], 7), ((4, 3), [1, 0, 1, 3], 4)]
    shapes += [((3, 2, 2), [2, 2, 2], 3), ((0,), [], 3), ((0, 2), [], 3), ((0,), [], 0), ((3, 0), [0, 1, 1], 2)]
    cases = [(data(dtype, shape), ids, count) for shape, ids, count in shapes]
    want = []
    for values, ids, count in cases:
        exact = np.zeros((count, *values.shape[1:]), dtype)
        for value, i in zip(values, ids, strict=True):
            exact[i] += value
        want.append(exact)

    def sums(bk: Backend, *arrays: Any) -> tuple[Any, ...]:
        return tuple(
            bk.segment_sum(v, np.array(ids, np.int32), count, sorted=ids == sorted(ids))
            for v, (_, ids, count) in zip(arrays, cases, strict=True)
        )

    compare(mode, sums, want, *(values for values, _, _ in cases))


@modes
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_not_a_number_stays_in_its_segment(mode: str, dtype: str) -> None:
    values = np.array([1, np.nan, 2, np.inf], dtype)
    found = run(mode, lambda bk, v: (bk.segment_sum(v, np.array([0, 1, 0, 2]), 4),), values)[0]
    assert found[0] == 3 and np.isnan(found[1]) and not np.isfinite(found[2]) and found[3] == 0


@covers("add_box")
@cells
def test_add_box(mode: str, dtype: str) -> None:
    x, part, line = data(dtype, (4, 3)), data(dtype, (2, 1)), data(dtype, (4, 3)) + 1
    first = x.copy()
    first[1:3, 2:] += part

    def sums(bk: Backend, x: Any, part: Any, line: Any) -> tuple[Any, ...]:
        return bk.add_box(x, (1, 2), part), bk.add_box(x, (0, 0), line), bk.add_box(x, (2, 1), part[:0])

    compare(mode, sums, [first, x + line, x], x, part, line)


@covers("window")
@cells
def test_windows(mode: str, dtype: str) -> None:
    x, big = data(dtype, (2, 4, 3)), np.zeros((2, 24, 23), dtype)
    big[:, 10:14, 10:13] = x
    places = [((0, 0), (4, 3)), ((1, -1), (4, 3)), ((-2, 1), (3, 5)), ((1, 1), (2, 1)), ((3, 0), (0, 2))]
    places += [((6, -7), (4, 3))]

    def windows(bk: Backend, x: Any) -> tuple[Any, ...]:
        return tuple(bk.window(x, start, shape) for start, shape in places)

    want = [big[:, 10 + a : 10 + a + k, 10 + b : 10 + b + n] for (a, b), (k, n) in places]
    compare(mode, windows, want, x)


@covers("pad", "permute_dims", "flip", "sum")
@cells
def test_moves(mode: str, dtype: str) -> None:
    arrays = [data(dtype, shape) for shape in SHAPES]
    widths = [[(i + 1, 2 * i) for i in range(a.ndim)] for a in arrays]
    orders = [tuple(np.roll(range(a.ndim), 1).tolist()) for a in arrays]
    axes = [tuple(range(a.ndim))[::2] for a in arrays]

    def moves(bk: Backend, *arrays: Any) -> tuple[Any, ...]:
        found: list[Any] = []
        for a, width, order, some in zip(arrays, widths, orders, axes, strict=True):
            found += [bk.pad(a, width), bk.permute_dims(a, order), bk.flip(a, some), bk.sum(a, some)]
            found += [bk.pad(a, [(0, 0)] * len(order)), bk.flip(a, ()), bk.sum(a, ()), bk.sum(a, (-1,))]
        return tuple(found)

    want: list[np.ndarray] = []
    for a, width, order, some in zip(arrays, widths, orders, axes, strict=True):
        want += [np.pad(a, width), a.transpose(order), np.flip(a, some), a.sum(some)]
        want += [a, a, a.sum(()), a.sum(-1)]  # integers in int64
    compare(mode, moves, [np.asarray(w) for w in want], *arrays)


@modes
def test_single_numbers(mode: str) -> None:
    """Arrays without axes."""
    x = np.array(2.5)
    found = run(mode, lambda bk, x: (bk.pad(x, []), bk.permute_dims(x, ()), bk.flip(x, ()), bk.sum(x, ())), x)
    assert [float(f) for f in found] == [2.5] * 4


def all_moves(bk: Backend, x: Any) -> Any:
    """A linear function of `(3, 4)` that uses all of them."""
    taken = bk.take_in_bounds(x, np.array([[3, 1], [0, 1]]), 1)
    summed = bk.segment_sum(bk.flip(taken, (0, 2)), np.array([1, 0, 1]), 2)
    return bk.sum(bk.permute_dims(bk.pad(summed, [(1, 0), (0, 2), (1, 1)]), (2, 0, 1)), (1,))


@pytest.mark.parametrize("mode", ["jax", "torch", "tf", "jax-jit", "tf-function"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives(mode: str, dtype: str) -> None:
    """The transpose that the library finds is that of the matrix of the function."""
    x = rows(dtype, (3, 4))
    numpy = backend("numpy")
    matrix = np.array([all_moves(numpy, e.reshape(3, 4)).ravel() for e in np.eye(12)]).T
    y = rows(dtype, all_moves(numpy, x).shape, 5)

    def transposed(x: Any, y: Any) -> Any:
        bk = backend(mode)
        return bk.transpose_function(lambda x: all_moves(bk, x), x)(y)

    found = to_numpy(compiled(mode, transposed)(array(mode, x), array(mode, y)))
    np.testing.assert_allclose(found.ravel(), matrix.T @ y.ravel(), rtol=1e-13)


@pytest.mark.needs("torch")
def test_torch_has_forward_mode_and_vmap() -> None:
    bk = backend("torch")
    x, t = torch.as_tensor(rows("float64", (3, 4))), torch.as_tensor(rows("float64", (3, 4), 1))
    _, pushed = torch.func.jvp(lambda x: all_moves(bk, x), (x,), (t,))
    torch.testing.assert_close(pushed, all_moves(bk, t))
    both = torch.func.vmap(lambda x: all_moves(bk, x))(torch.stack([x, t]))
    torch.testing.assert_close(both, torch.stack([all_moves(bk, x), all_moves(bk, t)]))
    inside = torch.func.vmap(torch.func.grad(lambda x: (all_moves(bk, x) ** 2).sum()))(torch.stack([x, t]))
    torch.testing.assert_close(inside[1], torch.func.grad(lambda x: (all_moves(bk, x) ** 2).sum())(t))


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_in_a_program_of_xla() -> None:
    bk, x = backend("tf"), rows("float64", (3, 4))
    compiled_by_xla = tf.function(lambda x: all_moves(bk, x), jit_compile=True, autograph=False)
    np.testing.assert_allclose(compiled_by_xla(tf.constant(x)), all_moves(backend("numpy"), x), rtol=1e-13)
