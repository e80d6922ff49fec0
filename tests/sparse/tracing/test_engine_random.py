"""Random chains of operations on traced arrays against the same chains on dense NumPy arrays.

The reference of an array of shape s is a dense array of shape (*s, columns + 1): its matrix, and its bias as one more
column. Every operation is carried out on it by plain NumPy.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import strategies as st

import tracing_engine as t
from krylix.backends import get_backend
from krylix.sparse.tracing.engine.linear import merge_entries, normal, sum_numbers
from krylix.sparse.tracing.engine.terms import Box, to_entries, to_gathered
from krylix.sparse.tracing.engine.to_matrix import biases_of, blocks_of, entries_of, plan_diagonals, write_diagonals
from random_examples import random_examples

SHAPES = [(7,), (4, 5), (3, 4, 2), (1, 6), (2, 1, 3), (1,), ()]


class Case:
    """A random state: traced array, reference, source of random numbers, and how coefficients are given."""

    def __init__(self, seed, shape, backend="numpy", dtype=np.float64):
        self.rng = np.random.default_rng(seed)
        self.bk = get_backend(backend)
        self.dtype = np.dtype(dtype)
        self.columns = int(np.prod(shape)) + 3
        self.x = t.identity(self.bk, shape, dtype, 2)
        dense = np.eye(self.columns + 1)[2 : 2 + int(np.prod(shape))].astype(dtype)
        self.ref = dense.reshape(*shape, self.columns + 1)

    @property
    def shape(self):
        return self.ref.shape[:-1]

    def numbers(self, shape, zeros=0.3):
        c = self.rng.standard_normal(shape)
        if self.dtype.kind == "c":
            c = c + 1j * self.rng.standard_normal(shape)
        return np.asarray(np.where(self.rng.random(shape) < zeros, 0, c), self.dtype)

    def coefficient(self, c):
        """Known or, for other backends, sometimes an array of theirs."""
        if self.bk.name != "numpy" and self.rng.random() < 0.6:
            return self.bk.asarray(c)
        return c

    def bias(self, c):
        """An array as a reference."""
        ref = np.zeros((*c.shape, self.columns + 1), c.dtype)
        ref[..., -1] = c
        return ref

    def axis(self):
        return int(self.rng.integers(len(self.shape)))


def slice_(case):
    if not case.shape:
        return
    starts = [int(case.rng.integers(0, max(n, 1))) for n in case.shape]
    limits = [int(case.rng.integers(a, n + 1)) if case.rng.random() < 0.3 else n for a, n in zip(starts, case.shape)]
    steps = [int(case.rng.integers(1, 4)) for _ in case.shape]
    starts = [min(a, n) for a, n in zip(starts, limits)]
    case.x = t.slice_(case.x, starts, limits, steps)
    case.ref = case.ref[tuple(slice(*s) for s in zip(starts, limits, steps))]


def pad(case):
    config = [
        tuple(int(i) for i in (*case.rng.integers(-2, 3, 2), case.rng.choice([0, 0, 0, 1, 2]))) for _ in case.shape
    ]
    fill = case.numbers(())
    spread = [n + max(n - 1, 0) * between for n, (_, _, between) in zip(case.shape, config)]
    if any(lo + hi + n < 0 for n, (lo, hi, _) in zip(spread, config)):
        return
    ref = case.ref
    for axis, (lo, hi, between) in enumerate(config):
        n = ref.shape[axis]
        full = np.zeros((*ref.shape[:axis], n + max(n - 1, 0) * between, *ref.shape[axis + 1 :]), ref.dtype)
        full[..., -1] = fill
        index = [slice(None)] * full.ndim
        index[axis] = slice(0, None, between + 1)
        full[tuple(index)] = ref
        for count, end in ((lo, 0), (hi, 1)):
            shape = list(full.shape)
            shape[axis] = max(count, 0)
            extra = np.zeros(shape, ref.dtype)
            extra[..., -1] = fill
            full = np.concatenate([extra, full] if end == 0 else [full, extra], axis)
        index[axis] = slice(max(-lo, 0), max(full.shape[axis] - max(-hi, 0), max(-lo, 0)))
        ref = full[tuple(index)]
    case.x, case.ref = t.pad(case.x, config, case.coefficient(fill)), ref


def transpose(case):
    axes = case.rng.permutation(len(case.shape))
    case.x = t.transpose(case.x, axes)
    case.ref = case.ref.transpose([*axes, len(axes)])


def reverse(case):
    axes = [a for a in range(len(case.shape)) if case.rng.random() < 0.5]
    case.x, case.ref = t.reverse(case.x, axes), np.flip(case.ref, axes)


def broadcast(case):
    if np.prod(case.shape) > 60 or len(case.shape) > 3:
        return
    shape, dims = [], []
    for n in case.shape:
        while case.rng.random() < 0.3:
            shape.append(int(case.rng.integers(1, 4)))
        dims.append(len(shape))
        shape.append(int(case.rng.integers(1, 4)) if n == 1 else n)
    case.x = t.broadcast_in_dim(case.x, shape, dims)
    lengths = [1] * len(shape)
    for d, n in zip(dims, case.shape):
        lengths[d] = n
    case.ref = np.broadcast_to(
        case.ref.reshape(*lengths, -1) if case.ref.size else case.ref.reshape(*lengths, case.columns + 1),
        (*shape, case.columns + 1),
    )


def reshape(case):
    size = int(np.prod(case.shape))
    divisors = [d for d in range(1, size + 1) if size % d == 0] if size else []
    options = (
        [(size,), (1, size), (size, 1, 1)] + [(d, size // d) for d in divisors] + [(d, 1, size // d) for d in divisors]
    )
    if size % 4 == 0:
        options.append((2, size // 4, 2))
    shape = options[int(case.rng.integers(len(options)))]
    case.x, case.ref = t.reshape(case.x, shape), case.ref.reshape(*shape, case.columns + 1)


def concatenate(case):
    if not case.shape or np.prod(case.shape) > 80:
        return
    axis = case.axis()
    other = list(case.shape)
    other[axis] = 2
    c = case.numbers(other)
    parts = [(case.x, case.ref), (case.coefficient(c), case.bias(c)), (t.negate(case.x), -case.ref)]
    parts = [parts[i] for i in case.rng.permutation(3)][: int(case.rng.integers(2, 4))]
    if not any(isinstance(p, t.Linear) for p, _ in parts):
        return
    case.x = t.concatenate([p for p, _ in parts], axis)
    case.ref = np.concatenate([r for _, r in parts], axis)


def stack(case):
    if np.prod(case.shape) > 80 or len(case.shape) > 3:
        return
    axis = int(case.rng.integers(len(case.shape) + 1))
    c = case.numbers(case.shape)
    case.x = t.stack([case.x, case.coefficient(c), t.scale(case.x, 2.0)], axis)
    case.ref = np.stack([case.ref, case.bias(c), 2 * case.ref], axis)


def flat(case):
    return case.ref.reshape(-1, case.columns + 1)


def with_empty(rows):
    """Row -1 is zero."""
    return np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])


def take(case):
    size = int(np.prod(case.shape))
    shape = [(5,), (2, 3), (), (40,), (0,)][int(case.rng.integers(5))]
    positions = case.rng.integers(-1, size, shape)
    case.ref = with_empty(flat(case))[positions]
    case.x = t.take(case.x, positions)


def take_slices(case):
    """Positions that are slices, with axes in another order."""
    if not case.shape or 0 in case.shape:
        return
    ids = np.arange(np.prod(case.shape)).reshape(case.shape)
    index = tuple(slice(int(case.rng.integers(n)), None, int(case.rng.integers(1, 3))) for n in case.shape)
    axes = case.rng.permutation(len(case.shape))
    ids = np.flip(ids[index].transpose(axes), [0] if case.rng.random() < 0.3 else [])
    if case.rng.random() < 0.3:
        ids = np.broadcast_to(ids[None], (2, *ids.shape))
    case.ref = flat(case)[ids]
    case.x = t.take(case.x, ids)


def assemble(case):
    size = int(np.prod(case.shape))
    c = case.numbers((4,))
    rows = with_empty(np.concatenate([case.bias(c), flat(case), 3 * flat(case)]))
    if case.rng.random() < 0.5:  # an update of a part
        positions = np.array(4 + np.arange(size).reshape(case.shape))
        positions[tuple(slice(int(case.rng.integers(0, n + 1)), None) for n in case.shape)] = 1
        positions = np.where(case.rng.random(case.shape) < 0.2, positions + size, positions) if size else positions
        positions = np.minimum(positions, 4 + 2 * size - 1)
    else:
        positions = case.rng.integers(-1, 4 + 2 * size, (3, 4))
    case.ref = rows[positions]
    case.x = t.assemble([case.coefficient(c), case.x, t.scale(case.x, 3.0)], positions)


def scatter_add(case):
    target = case.numbers((9,))
    positions = case.rng.integers(-1, 9, case.shape)
    ref = case.bias(target)
    keep = positions.reshape(-1) >= 0
    np.add.at(ref, positions.reshape(-1)[keep], flat(case)[keep])
    case.x = t.scatter_add(case.coefficient(target), positions, case.x)
    case.ref = ref


def scatter_row(case):
    """Add to a slice."""
    if not case.shape or 0 in case.shape:
        return
    ids = np.arange(np.prod(case.shape)).reshape(case.shape)
    axis = case.axis()
    index = (slice(None),) * axis + (int(case.rng.integers(case.shape[axis])),)
    ref = case.ref.copy()
    ref[index] += 2 * case.ref[(slice(None),) * axis + (0,)]
    update = t.scale(t.take(case.x, ids[(slice(None),) * axis + (0,)]), 2.0)
    case.x, case.ref = t.scatter_add(case.x, ids[index], update), ref


def select(case):
    c = case.numbers(case.shape)
    cases = [(case.x, case.ref), (case.coefficient(c), case.bias(c)), (t.scale(case.x, 0.5), case.ref * 0.5)]
    if case.rng.random() < 0.5:
        cases = [cases[0], cases[int(case.rng.integers(1, 3))]]
    which = case.rng.integers(0, len(cases), case.shape)
    if case.shape and case.rng.random() < 0.4:  # a box
        which = np.zeros(case.shape, int)
        which[tuple(slice(0, max(n - 1, 1)) for n in case.shape)] = 1
    case.ref = np.choose(which[..., None], [r for _, r in cases])
    which = which.astype(bool) if len(cases) == 2 else which
    case.x = t.select(case.coefficient(which), [p for p, _ in cases])


def add_shifted(case):
    if not case.shape:
        return
    axis, n = case.axis(), case.shape
    shift = int(case.rng.integers(0, n[axis] + 1))
    lo = [0] * len(n)
    lo[axis] = shift
    config = [(-shift, shift, 0) if a == axis else (0, 0, 0) for a in range(len(n))]
    other = np.zeros_like(case.ref)
    index = [slice(None)] * other.ndim
    source = list(index)
    index[axis], source[axis] = slice(0, n[axis] - shift), slice(shift, None)
    other[tuple(index)] = case.ref[tuple(source)]
    case.x, case.ref = t.subtract(case.x, t.pad(case.x, config)), case.ref - other


def add_coefficient(case):
    shape = [case.shape, (), (1,) * len(case.shape)][int(case.rng.integers(3))]
    c = case.numbers(shape)
    case.x = t.subtract(case.coefficient(c), case.x)
    case.ref = case.bias(np.broadcast_to(c, case.shape)) - case.ref


def add_broadcast(case):
    if len(case.shape) < 2:
        return
    row, ref = t.take(case.x, np.arange(case.shape[-1])) if case.ref.size else None, flat(case)[: case.shape[-1]]
    if row is not None:
        case.x, case.ref = t.add(row, case.x), case.ref + ref


def scale(case):
    shape = [case.shape, (), case.shape[-1:], (*case.shape[:-1], 1) if case.shape else ()][int(case.rng.integers(4))]
    c = case.numbers(shape)
    case.x, case.ref = t.scale(case.x, case.coefficient(c)), case.ref * c[..., None]


def divide(case):
    c = case.numbers(case.shape if case.rng.random() < 0.5 else (), zeros=0)
    case.x, case.ref = t.divide(case.x, case.coefficient(c)), case.ref / c[..., None]


def outer(case):
    """One element times an array."""
    if not case.ref.size:
        return
    c = case.numbers((3, 2))
    case.x = t.scale(t.take(case.x, np.zeros((1,), int)), case.coefficient(c))
    case.ref = flat(case)[0] * c[..., None]


def reduce_sum(case):
    axes = [a for a in range(len(case.shape)) if case.rng.random() < 0.4]
    case.x, case.ref = t.reduce_sum(case.x, axes), case.ref.sum(tuple(axes))


def cumulative_sum(case):
    if not case.shape:
        return
    axis, back = case.axis(), bool(case.rng.random() < 0.5)
    case.x = t.cumulative_sum(case.x, axis, back)
    ref = np.flip(case.ref, axis) if back else case.ref
    ref = np.cumsum(ref, axis)
    case.ref = np.flip(ref, axis) if back else ref


def window_sum(case):
    nd = len(case.shape)
    window, strides, dilation = (case.rng.integers(1, 3, nd) for _ in range(3))
    padding = [tuple(int(i) for i in case.rng.integers(0, 2, 2)) for _ in range(nd)]
    padded = np.pad(case.ref, [*padding, (0, 0)])
    sizes = [(n - (w - 1) * d - 1) // s + 1 for n, w, s, d in zip(padded.shape, window, strides, dilation)]
    if any(n <= 0 for n in sizes):
        return
    ref = np.zeros((*sizes, case.columns + 1), case.ref.dtype)
    for tap in np.ndindex(*window):
        begin = [i * d for i, d in zip(tap, dilation)]
        ref += padded[tuple(slice(b, b + (m - 1) * s + 1, s) for b, m, s in zip(begin, sizes, strides))]
    case.x = t.window_sum(case.x, window, strides, padding, None, dilation)
    case.ref = ref


def contract(case):
    if not case.shape:
        return
    axis, first = case.axis(), bool(case.rng.random() < 0.5)
    n = case.shape[axis]
    shape, along, inner = [((n,), 0, "z"), ((3, n), 1, "yz"), ((n, 20), 0, "zy")][int(case.rng.integers(3))]
    other = case.numbers(shape, 0.5)
    case.x = t.contract(case.x, case.coefficient(other), ((axis,), (along,)), ((), ()), first)
    letters = "abcdefghij"[: len(case.shape)]
    kept, free = letters.replace(letters[axis], ""), inner.replace("z", "")
    rule = f"{letters.replace(letters[axis], 'z')}k,{inner}->{kept + free if first else free + kept}k"
    case.ref = np.einsum(rule, case.ref, other)


def contract_batch(case):
    if len(case.shape) < 2:
        return
    n, m = case.shape[:2]
    other = case.numbers((m, n, 2) if case.rng.random() < 0.7 else (m, n, 40))
    case.x = t.contract(case.x, case.coefficient(other), ((1,), (0,)), ((0,), (1,)))
    case.ref = np.einsum("ab...k,bac->a...ck", case.ref, other)


def multiply_batch(case):
    """A contraction over nothing."""
    if not case.shape:
        return
    other = case.numbers((case.shape[0], 2))
    case.x = t.contract(case.x, case.coefficient(other), ((), ()), ((0,), (0,)))
    case.ref = np.einsum("a...k,ac->a...ck", case.ref, other)


def dense_along(case):
    if not case.shape:
        return
    axes = [a for a in range(len(case.shape)) if case.rng.random() < 0.5] or [0]
    n = int(np.prod([case.shape[a] for a in axes]))
    matrix = case.numbers((n, n))
    case.x = t.dense_along(case.x, axes, matrix)
    moved = np.moveaxis(case.ref, axes, range(len(axes)))
    result = np.tensordot(matrix, moved.reshape(n, -1) if moved.size else moved.reshape(n, 0), 1).reshape(moved.shape)
    case.ref = np.moveaxis(result, range(len(axes)), axes)


def degrade(case):
    """Other kinds of terms for the same array."""
    x = normal(case.x)
    terms = []
    for term in x.terms:
        kind = case.rng.random()
        if kind < 0.4 and isinstance(term, Box):
            terms.append(to_gathered(x.bk, term, x.base))
        elif kind < 0.7:
            terms.append(to_entries(x.bk, term, x.base))
        else:
            terms.append(term)
    case.x = x.changed(terms, x.bias)


def merge(case):
    boxes = sum_numbers(term for term in case.x.terms if isinstance(term, Box))
    loose = [term for term in case.x.terms if not isinstance(term, Box)]
    case.x = case.x.changed([*boxes, *([merge_entries(case.x, loose)] if loose else [])], case.x.bias)


OPERATIONS = [
    slice_, pad, transpose, reverse, broadcast, reshape, reshape, concatenate, stack, take, take_slices, assemble,
    scatter_add, scatter_row, select, add_shifted, add_shifted, add_coefficient, add_broadcast, scale, scale, divide,
    outer, reduce_sum, cumulative_sum, window_sum, contract, contract_batch, multiply_batch, dense_along, degrade,
    merge,
]  # fmt: skip


def check(case, tolerance=1e-9):
    x, ref = case.x, case.ref
    assert x.shape == case.shape
    rows = int(np.prod(case.shape))
    blocks = blocks_of([x])
    found = entries_of(case.bk, blocks, x.dtype)
    values = case.bk.to_numpy(found.values)
    assert values.dtype == x.dtype
    dense = sp.coo_array((values, (found.rows, found.columns)), (rows, case.columns)).toarray()
    expected = ref.reshape(rows, case.columns + 1)
    scale = max(1.0, np.abs(ref).max(initial=0))
    np.testing.assert_allclose(dense, expected[:, :-1], atol=tolerance * scale, rtol=tolerance)
    bias = case.bk.to_numpy(case.bk.asarray(np.asarray(biases_of([x])[0])))
    assert bias.shape == case.shape
    np.testing.assert_allclose(bias.reshape(-1), expected[:, -1], atol=tolerance * scale, rtol=tolerance)
    plan = plan_diagonals(case.bk, blocks, x.dtype, rows, most=1000, least_fill=0)
    if plan is not None:
        data = case.bk.to_numpy(write_diagonals(case.bk, plan, rows, x.dtype))
        check_diagonals(plan.offsets, data, expected[:, :-1], tolerance * scale)


def check_diagonals(offsets, data, dense, tolerance):
    seen = np.zeros_like(dense)
    for offset, diagonal in zip(offsets, data):
        for i in range(len(diagonal)):
            if 0 <= i + offset < dense.shape[1]:
                seen[i, i + offset] += diagonal[i]
            else:
                assert diagonal[i] == 0
    np.testing.assert_allclose(seen, dense, atol=tolerance)


def run(names, case):
    for name in names:
        before = case.x, case.ref
        BY_NAME[name](case)
        if case.ref.size > 60_000:
            case.x, case.ref = before
    check(case)


BY_NAME = {operation.__name__: operation for operation in OPERATIONS}
CHAINS = {
    "names": st.lists(st.sampled_from([operation.__name__ for operation in OPERATIONS]), min_size=2, max_size=8),
    "seed": st.integers(0, 10**9),
    "shape": st.sampled_from(SHAPES),
}


@random_examples(default=150, merge=300, slow=20_000, **CHAINS)
def test_known_coefficients(names, seed, shape):
    run(names, Case(seed, shape))


@random_examples(default=40, merge=100, slow=3000, **CHAINS)
def test_complex_coefficients(names, seed, shape):
    run(names, Case(seed, shape, dtype=np.complex128))


@pytest.mark.parametrize("operation", sorted(BY_NAME))
def test_single_operations(operation):
    for seed in range(12):
        case = Case(seed, SHAPES[seed % len(SHAPES)])
        if seed % 3:
            degrade(case)
        BY_NAME[operation](case)
        check(case)


@pytest.mark.needs("jax")
@random_examples(default=3, merge=6, slow=200, dtype=st.sampled_from([np.float64, np.complex128]), **CHAINS)
def test_coefficients_traced_by_jax(names, seed, shape, dtype):
    """Some coefficients are arrays of another library, which count as unknown."""
    run(names, Case(seed, shape, "jax", dtype))


@pytest.mark.needs("torch")
@random_examples(default=12, merge=24, slow=200, dtype=st.sampled_from([np.float64, np.complex128]), **CHAINS)
def test_coefficients_traced_by_torch(names, seed, shape, dtype):
    run(names, Case(seed, shape, "torch", dtype))


@pytest.mark.needs("tensorflow")
@random_examples(default=4, merge=12, slow=200, dtype=st.sampled_from([np.float64, np.complex128]), **CHAINS)
def test_coefficients_traced_by_tensorflow(names, seed, shape, dtype):
    run(names, Case(seed, shape, "tensorflow", dtype))
