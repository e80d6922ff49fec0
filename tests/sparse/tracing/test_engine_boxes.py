"""Boxes: what keeps stencils symbolic, and where index arrays are recognised as slices."""

import itertools

import numpy as np
import pytest

import tracing_engine as t
from krylix.backends import get_backend
from krylix.sparse.tracing.engine.structural import find_slices
from krylix.sparse.tracing.engine.terms import Box, affine, axis_groups, bounding_slices, reshape_box, to_gathered

BK = get_backend("numpy")
HUGE = (20_000, 30_000)


def number_boxes(x):
    assert all(isinstance(term, Box) and term.values is None and term.mask is None for term in x.terms)
    return len(x.terms)


def windows(x, shifts):
    """Slices of x padded by one, shifted."""
    p = t.pad(x, [(1, 1, 0)] * x.ndim)
    return [t.slice_(p, [1 + s for s in shift], [1 + s + n for s, n in zip(shift, x.shape)]) for shift in shifts]


@pytest.mark.parametrize("change", ["none", "ravel", "transpose", "reverse", "rows", "stack"])
def test_stencils_cost_nothing_on_huge_grids(change):
    u = t.identity(BK, HUGE, np.float32)
    parts = windows(u, [(1, 0), (-1, 0), (0, 1), (0, -1)])
    total = t.scale(u, -4.0)
    for part in parts:
        total = t.add(total, part)
    if change == "ravel":
        total = t.scale(t.reshape(total, (HUGE[0] * HUGE[1],)), 2.0)
    elif change == "transpose":
        total = t.transpose(total, (1, 0))
    elif change == "reverse":
        total = t.reverse(total, (0,))
    elif change == "rows":
        total = t.slice_(total, (5, 0), (HUGE[0], HUGE[1]), (2, 3))
    elif change == "stack":
        total = t.stack([total, u], -1)
    assert number_boxes(total) == 5 + (change == "stack")


def test_flat_input_becomes_a_grid_and_flat_again():
    x = t.identity(BK, (HUGE[0] * HUGE[1],), np.float64)
    grid = t.reshape(x, HUGE)
    inner = t.reshape(t.slice_(grid, (1, 1), (HUGE[0] - 1, HUGE[1] - 1)), ((HUGE[0] - 2) * (HUGE[1] - 2),))
    total = t.subtract(t.scale(inner, 2.0), inner)
    assert number_boxes(total) == 2
    assert number_boxes(t.reshape(total, (HUGE[0] - 2, HUGE[1] - 2))) == 2


def test_many_terms_are_merged():
    n = 30
    u = t.identity(BK, (n, n), np.float64)
    x, line = u, np.eye(n, k=1) + np.eye(n, k=-1)
    once = np.kron(line, np.eye(n)) + np.kron(np.eye(n), line) + np.eye(n * n)
    for _ in range(6):
        parts = windows(x, [(1, 0), (-1, 0), (0, 1), (0, -1)])
        for part in parts:
            x = t.add(x, part)
    assert all(isinstance(term, Box) for term in x.terms)
    assert len(x.terms) < 4 * 85  # shifts
    matrix, _ = t.to_matrix([x], n * n, BK, np.dtype(np.float64), format="csr")
    np.testing.assert_array_equal(matrix.toarray(), np.linalg.matrix_power(once, 6))


@pytest.mark.parametrize("seed", range(200))
def test_reshape_of_random_boxes(seed):
    """Either the box has the same rows and columns in the new shape, or it is none there."""
    rng = np.random.default_rng(seed)
    factors = [int(n) for n in rng.choice([1, 2, 3, 4], int(rng.integers(1, 5)))]

    def shape():
        groups = np.sort(rng.integers(0, len(factors) + 1, int(rng.integers(0, 4))))
        bounds = [0, *groups, len(factors)]
        return tuple(int(np.prod(factors[a:b])) for a, b in itertools.pairwise(bounds))

    old, new = shape(), shape()
    lo = tuple(int(rng.integers(0, n)) for n in old)
    lengths = tuple(int(rng.integers(1, n - a + 1)) if rng.random() < 0.5 else n - a for a, n in zip(lo, old))
    strides = tuple(int(s) for s in rng.integers(0, 5, len(old)))
    if rng.random() < 0.7:
        strides = tuple(int(np.prod(old[k + 1 :])) for k in range(len(old)))
    box = Box(lo, lengths, 3, strides, 1, rng.standard_normal(lengths))
    found = reshape_box(BK, box, old, new)
    if found is None:
        assert strides != tuple(int(np.prod(old[k + 1 :])) for k in range(len(old))) or lengths != old
        return
    before, after = to_gathered(BK, box, old), to_gathered(BK, found, new)
    np.testing.assert_array_equal(before.columns.reshape(new), after.columns)
    np.testing.assert_array_equal(before.values.reshape(new), after.values)


def test_axis_groups():
    assert axis_groups((6, 4), (6, 4)) == [(range(1), range(1)), (range(1, 2), range(1, 2))]
    assert axis_groups((6, 4), (24,)) == [(range(2), range(1))]
    assert axis_groups((), (1, 1)) == [(range(0), range(1)), (range(0), range(1, 2))]


@pytest.mark.parametrize("seed", range(100))
def test_slices_are_found(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 4))))
    ids = np.arange(np.prod(shape)).reshape(shape)
    part = ids[tuple(slice(int(rng.integers(n)), None, int(rng.choice([1, 1, 2]))) for n in shape)]
    part = np.flip(part.transpose(rng.permutation(part.ndim)), [0] if rng.random() < 0.3 else [])
    found = find_slices(part, shape)
    assert found is not None
    distances = [n and s for n, s in zip(found.steps, [int(np.prod(shape[k + 1 :])) for k in range(len(shape))])]
    assert found.starts == tuple(int(i) for i in np.unravel_index(part[(0,) * part.ndim], shape))
    assert len(distances) == len(shape)
    x = t.take(t.identity(BK, shape, np.float64), part)
    assert number_boxes(x) == 1
    np.testing.assert_array_equal(to_gathered(BK, x.terms[0], x.base).columns, part)


@pytest.mark.parametrize("positions", [[0, 1, 3], [2, 1, 1], [-1, 0, 1], [0, -1], [[0, 1], [2, 4]], [5, 4, 2]])
def test_other_positions_are_not_slices(positions):
    assert find_slices(np.array(positions), (6,)) is None


def test_steps_over_the_end_of_an_axis_are_no_slice():
    assert find_slices(np.array([1, 3, 5]), (3, 2)) is not None  # a column
    assert find_slices(np.array([1, 2, 3]), (3, 3)) is None
    assert find_slices(np.array([0, 4, 8]), (3, 3)) is None  # a diagonal


def test_zero_dimensional_and_empty():
    for shape in [(), (0,), (0, 3), (1,), (1, 1)]:
        x = t.identity(BK, shape, np.float64)
        assert t.reshape(x, (x.size,)).shape == (x.size,)
        assert t.reduce_sum(x, range(x.ndim)).shape == ()
        assert t.transpose(x, range(x.ndim)[::-1]).size == x.size
        assert t.pad(x, [(1, 2, 1)] * x.ndim).size == int(np.prod([3 + n + max(n - 1, 0) for n in shape]))


def test_an_update_of_a_row_keeps_boxes():
    x = t.identity(BK, (300, 400), np.float64)
    positions = np.arange(300 * 400).reshape(300, 400)
    positions[0] = 300 * 400 + np.arange(400)
    y = t.assemble([x, np.zeros(400)], positions)
    assert number_boxes(y) == 1 and y.terms[0].lo == (1, 0)
    z = t.scatter_add(x, np.arange(400), t.take(x, np.arange(400, 800)))
    assert number_boxes(z) == 2


def test_known_masks_stay_masks():
    x = t.identity(BK, (30, 40), np.float64)
    mask = np.random.default_rng(0).random((30, 40)) < 0.5
    y = t.select(mask, [x, t.scale(x, 2.0)])
    assert [term.mask is not None and term.values is None for term in y.terms] == [True, True]
    inside = np.zeros((30, 40), bool)
    inside[1:-1, 1:-1] = True
    z = t.select(inside, [np.zeros((30, 40)), x])
    assert number_boxes(z) == 1 and z.terms[0].shape == (28, 38)


def test_bounding_slices():
    mask = np.zeros((4, 5), bool)
    assert bounding_slices(mask) is None
    mask[1, 2] = mask[2, 4] = True
    assert bounding_slices(mask) == (slice(1, 3), slice(2, 5))
    assert bounding_slices(np.array(True)) == ()
    assert bounding_slices(np.array(False)) is None


def test_affine_is_int32():
    found = affine(5, (10, 0, 1), (2, 3, 4))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, 5 + 10 * np.arange(2)[:, None, None] + np.zeros((1, 3, 1)) + np.arange(4))
