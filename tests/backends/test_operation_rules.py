"""What operations refuse, in the same words on all libraries, and what they give of special numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import krylix
from called import check_none_wrong, failed, run_in_jax
from frameworks import torch
from krylix.backends import get_backend
from krylix.backends.operations.table import OPERATIONS
from library import ROOT
from modes import compiled
from operation_samples import SAMPLES, evaluate, operands

BACKENDS = ("numpy", "jax", "torch", "tensorflow")
REFUSED = (
    ("bk.take(x, [5], 0)", IndexError, "take got indices from 5 to 5"),
    ("bk.take(x, [0.5], 0)", TypeError, "expected integers"),
    ("bk.take(x, [0], 2)", IndexError, "an array with 2 axes"),
    ("bk.gather_nd(grid, at + 9, True)", IndexError, "gather_nd got indices"),
    ("bk.gather_nd(x, [[0, 0]])", ValueError, "an index for each of its 1 axes"),
    ("bk.gather_nd(grid, bk.concat([at, at[:1]]), True)", ValueError, "2 and 3 systems"),
    ("bk.scatter(grid, at, updates, 'mul')", ValueError, "expected one of update, add"),
    ("bk.scatter(grid, at - 9, updates)", IndexError, "scatter got indices"),
    ("bk.pad(x, [(-1, 0), (0, 0)], 'periodic')", ValueError, "none of them negative"),
    ("bk.pad(x, [(1, 1)], 'periodic')", ValueError, "a pair of numbers for each axis"),
    ("bk.pad(x, [(-1, 0), (0, 0)])", ValueError, "none of them negative"),
    ("bk.pad(x, [(1, 1)])", ValueError, "a pair of numbers for each axis"),
    ("bk.unravel_index([100], (3, 4))", IndexError, "unravel_index got indices"),
    ("bk.scatter(grid, at, 1.0)", ValueError, "scatter got values"),
    ("bk.repeat(u, [2, -1, 0, 0, 0], 0, 3)", ValueError, "none of them negative"),
    ("bk.repeat(u, [1.5] * 5, 0, 3)", ValueError, "expected integers"),
    ("bk.repeat(u, 2, new_length=-1)", ValueError, "none of them negative"),
    ("bk.pad_to(u, 0, -1)", ValueError, "expected a length"),
    ("bk.quantile(o, 0.5)", ValueError, "at least one"),
    ("bk.bincount(few[0], None, 4)", ValueError, "expected \\(n,\\)"),
    ("bk.bincount(at, None, 9)", ValueError, "expected \\(n,\\)"),
    ("bk.where(mask, bk.to_int32(few), 2**40)", OverflowError, "got the number 1099511627776"),
    ("bk.maximum(bk.to_int32(few), 2**40)", OverflowError, "got the number 1099511627776"),
    ("bk.pad(x, [(1, 1), (0, 0)], 'wrap')", ValueError, "expected one of boundary, periodic"),
    ("bk.pad(nothing, [(1, 0), (0, 0)], 'periodic')", ValueError, "no entries to repeat"),
    ("bk.tile_to(x, 0, 7)", ValueError, "expected a multiple"),
    ("bk.multi_slice(x, (0, 0, 0))", IndexError, "3 slices and an array with 2 axes"),
    ("bk.multi_slice(x, (3,))", IndexError, "out of range"),
    ("bk.stack_leaves([])", ValueError, "expected at least one"),
    ("bk.stack_leaves([(x,), [x]])", ValueError, "different containers"),
    ("bk.broadcast_size((x, x[:2]), 0)", ValueError, r"the lengths \[2, 3\]"),
    ("bk.bincount(few - 1, None, 4)", IndexError, "expected 0 to 3"),
    ("bk.bincount(x, None, 4)", TypeError, "expected integers"),
    ("bk.boolean_mask(x, mask)", ValueError, "an axis of length 3"),
    ("bk.histogram(x, x, x[0])", ValueError, r"expected \(batch, n\)"),
    ("bk.quantile(x, 1.5)", ValueError, "numbers from 0 to 1"),
    ("bk.quantile(nothing[None, :, 0], 0.5)", ValueError, "at least one"),
    ("bk.searchsorted(u, u, 'middle')", ValueError, "'left' or 'right'"),
    ("bk.ravel_multi_index(at, (4, 5), 'wrap')", ValueError, "'undefined', 'periodic', 'clamp' or an integer"),
    ("bk.nonzero(o)", ValueError, "without axes"),
    ("bk.unique(bk.multiply(x, 1j), axis=0)", TypeError, "have no order"),
    ("bk.floor_divide(bk.multiply(x, 1j), x)", TypeError, "xp.floor_divide got complex numbers, which have no order"),
    ("bk.grid_sample(grid, coordinates, 'wrap')", ValueError, "expected one of zeros, boundary"),
    ("bk.grid_sample(grid, coordinates[..., :1])", ValueError, "a last axis of 2 coordinates"),
    ("bk.conv(images, kernel[:, :, :2])", ValueError, "batch, out, channels"),
    ("bk.lstsq(x, u)", ValueError, "a column for each right-hand side"),
    ("bk.factorial(few + 20)", ValueError, "expected 0 to 20"),
    ("bk.linalg.qr", AttributeError, "bk.xp.linalg has the names of the standard"),
)


def test_documents_list_every_operation_beyond_the_standard() -> None:
    text = (ROOT / "docs/backends.md").read_text().partition("## Operations by name")[2].partition("```python")[0]
    listed = [name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`",
              line.split("|")[1])]  # fmt: skip
    assert sorted(listed) == sorted({sample.name for sample in SAMPLES})


def arrays(backend: str, dtype: str = "float64") -> dict[str, Any]:
    return {name: krylix.convert(x, backend) for name, x in operands(dtype).items()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_refused(backend: str) -> None:
    bk, wrong = get_backend(backend), []
    own = arrays(backend)
    for call, error, message in REFUSED:
        names = {name: own[name] for name in own if name in call}
        try:
            with pytest.raises(error, match=message):
                evaluate(call, bk=bk, **names)
        except BaseException as other:  # pytest's own are no Exceptions
            wrong.append(failed(call, other))
    check_none_wrong(wrong)


SIZED = [s for s in SAMPLES if not s.compiles and OPERATIONS[s.name].static_needs != ()]


@pytest.mark.parametrize("sample", SIZED, ids=lambda sample: sample.call)
@pytest.mark.parametrize("mode", ("jax-jit", "torch-vmap"))
def test_sizes_that_depend_on_numbers(mode: str, sample: Any) -> None:
    """The message names the argument that is missing, which the table has."""
    backend = mode.split("-")[0]
    pytest.importorskip(backend)
    bk, own = get_backend(backend), arrays(backend)
    needs = OPERATIONS[sample.name].static_needs
    message = "|".join(f"{name}=" for name in needs) if needs else "a call outside of compiled functions"

    def call(every: Any) -> Any:
        return evaluate(sample.call, bk=bk, **every)

    names = {name: own[name] for name in sample.operands()}
    if mode == "torch-vmap":
        names = {name: torch.stack([x, x]) for name, x in names.items()}
        call = torch.func.vmap(call)
    else:
        call = compiled(mode, call)
    with pytest.raises(ValueError, match=message):
        call(names)


# Calls of no or special numbers, and what each gives on all libraries.
SPECIAL = (
    ("bk.quantile(bk.asarray(np.array([1.0, np.nan, 2.0])), [0, 1])", "[np.nan, np.nan]"),
    ("bk.quantile(bk.asarray(np.array([1.0, np.inf])), [0, 0.5])", "[1, np.inf]"),
    ("bk.quantile(bk.asarray(np.array([2.0])), 0.3)", "2"),
    ("bk.grid_sample(grid, coordinates * np.nan)", "np.full((2, 7, 3), np.nan)"),
    ("bk.grid_sample(grid, coordinates * 0 + 1e20)", "np.zeros((2, 7, 3))"),
    ("bk.grid_sample(grid, coordinates * 0 - 1e20, 'boundary')[:, 0]", "bk.to_numpy(grid)[:, 0, 0]"),
    ("bk.lstsq(M * 0, Y)[0]", "np.zeros((2, 3, 2))"),
    ("bk.lstsq(M * 0, Y)[2]", "[0, 0]"),
    ("bk.factorial(bk.asarray(np.array([-1.5, -1, -0.5])))", "[np.nan, np.nan, np.sqrt(np.pi)]"),
    ("bk.safe_divide(few, few)", "[1, 0, 1, 1, 1]"),
    ("bk.safe_divide(few, u[1])", "[2, 0, 1, 3, 1] / bk.to_numpy(u)[1]"),
    ("bk.pad(few, [(1, 0)], value=np.nan)", "[np.nan, 2, 0, 1, 3, 1]"),
    ("bk.pad(few, [(1, 0)], value=0.5)", "[0.5, 2, 0, 1, 3, 1]"),
    ("bk.bincount(few[:0], None, 2)", "[0, 0]"),
    ("bk.bincount(few[:0])", "[]"),
    ("bk.unique(few[:0])", "[]"),
    ("bk.unique(few[:0][:, None], axis=0)", "np.zeros((0, 1))"),
    ("bk.unique(few[:1], True, True, 0)[2]", "[1]"),
    ("bk.nonzero(few[:0], 2)", "[[-1], [-1]]"),
    ("bk.nonzero(few[:0])", "np.zeros((0, 1))"),
    ("bk.boolean_mask(few[:0], mask[:0], 0, 2, 7)", "[7, 7]"),
    ("bk.scatter_nd(u, few[:0], u[:0])", "bk.to_numpy(u)"),
    ("bk.searchsorted(bk.asarray(np.array([[1.0, np.nan]])), bk.asarray(np.array([[np.nan, 2]])))", "[[1, 1]]"),
    ("bk.histogram(bk.asarray(np.array([[np.nan, 2, 3]])), None, bk.asarray(np.array([[1.0, 2, 3]])))", "[[0, 2]]"),
    ("bk.softplus(bk.asarray(np.array([-800.0, 800])))", "[0, 800]"),
    ("bk.sigmoid(bk.asarray(np.array([-800.0, 800])))", "[0, 1]"),
    ("bk.log(bk.sigmoid(bk.asarray(np.array([-40.0, -1e-20]))))", "[-40, -np.log(2)]"),
    ("bk.gammainc(few + 1, positive)", "scipy.special.gammainc(np.array([3, 1, 2, 4, 2]), bk.to_numpy(positive))"),
    ("bk.maximum(few, 1.5)", "[2, 1.5, 1.5, 3, 1.5]"),
    ("bk.where(few, few, 0.5)", "[2, 0.5, 1, 3, 1]"),
    ("bk.concat([few, u[:1]])", "[2, 0, 1, 3, 1, bk.to_numpy(u)[0]]"),
    ("bk.stack([few, mask], axis=1)[:2]", "[[2, 1], [0, 0]]"),
    ("bk.sum(bk.astype(few + 100, np.int8))", "507"),
    ("bk.zeros(2)", "[0, 0]"),
    ("bk.zeros((1, 2), np.int32, like=u)", "[[0, 0]]"),
    ("bk.full(2, 1.5)", "[1.5, 1.5]"),
    ("bk.diagonal(x, 1)", "np.diagonal(bk.to_numpy(x), 1)"),
    ("bk.diagonal(grid[..., 0], -1)", "np.diagonal(bk.to_numpy(grid)[..., 0], -1, 1, 2)"),
    ("bk.flip(few)", "[1, 3, 1, 0, 2]"),
    ("bk.sum(x, [])", "bk.to_numpy(x)"),
    ("bk.sum(x, [0, 1])", "bk.to_numpy(x).sum()"),
    ("bk.any(mask[None], [0, 1])", "True"),
    ("bk.max(x, [0, 1])", "bk.to_numpy(x).max()"),
    ("bk.copy_leaves({'a': few, 'n': 3})['a']", "[2, 0, 1, 3, 1]"),
    ("bk.grid_sample(grid, np.ones((2, 1, 2)))[:, 0]", "bk.to_numpy(grid)[:, 1, 1]"),
    ("bk.bincount(few, np.ones(5), 4)", "[1, 2, 1, 1]"),
    ("bk.histogram(u[None], np.ones((1, 5)), np.array([[-99.0, 99]]))", "[[5]]"),
    (
        "bk.histogram(bk.asarray(np.array([[1, 2, 3]], np.float32)), None, bk.asarray(np.array([[1.0, 2, 3]])))",
        "[[1, 2]]",
    ),
    ("bk.permute_dims(x, (-1, 0))", "bk.to_numpy(x).T"),
)


@pytest.mark.parametrize("backend", (*BACKENDS[:1], *BACKENDS[2:], pytest.param("jax", marks=pytest.mark.merge)))
def test_special_numbers(backend: str) -> None:
    bk, own, wrong = get_backend(backend), arrays(backend), []
    if backend == "jax":
        calls = [lambda given, call=call: evaluate(call, bk=bk, **given) for call, _ in SPECIAL]
        results = run_in_jax(calls, own)
    else:
        results = [outcome(call, bk, own) for call, _ in SPECIAL]
    for (call, reference), found in zip(SPECIAL, results, strict=True):
        if isinstance(found, Exception):
            wrong.append(failed(call, found))
            continue
        found, expected = bk.to_numpy(found), np.asarray(evaluate(reference, bk=bk, **own))
        if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-5, equal_nan=True):
            wrong.append(f"{call}: {found.tolist()}, expected {expected.tolist()}")
    check_none_wrong(wrong)


def outcome(call: str, bk: Any, own: dict[str, Any]) -> Any:
    try:
        return evaluate(call, bk=bk, **own)
    except Exception as error:
        return error


def test_results_have_their_own_memory_and_device() -> None:
    bk, x = get_backend("numpy"), np.ones((1, 2, 1))
    nowhere = np.zeros((1, 0, 1), np.int32)
    assert not np.shares_memory(bk.scatter(x, nowhere, np.ones((1, 0, 1))), x)
    with pytest.raises(ValueError, match="device"):
        bk.zeros(2, device="GPU")


@pytest.mark.parametrize("backend", BACKENDS)
def test_precision(backend: str) -> None:
    bk = get_backend(backend)
    for bits, real, complex_ in ((32, "float32", "complex64"), (64, "float64", "complex128")):
        with krylix.precision(bits):
            whole = bk.asarray(np.array([1, 4]))
            assert (bk.float_type, bk.complex_type) == (np.dtype(real), np.dtype(complex_))
            found = [bk.dtype(x).name for x in (bk.zeros(2), bk.sqrt(whole), bk.to_float(whole), bk.to_complex(whole))]
            assert found == [real, real, real, complex_]


@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_matrices_are_taken_apart(backend: str) -> None:
    import scipy.sparse as sp

    matrix = sp.coo_array(([1.0, 2, 3, 4], ([1, 0, 1, 1], [2, 0, 0, 2])), (2, 3))
    bk = get_backend(backend)
    native = krylix.as_operator(matrix).native(backend) if backend != "numpy" else matrix
    made, parts = bk.take_apart(native)
    assert bk.is_sparse(native) and bk.get_sparse_format(native) in ("coo", "csr")
    assert [bk.to_numpy(x).tolist() for x in parts] == [[2, 3, 5], [0, 1, 1], [0, 0, 2]]
    again = made(bk, 2 * parts[0], *parts[1:])
    assert np.array_equal(krylix.as_operator(again).to_scipy().toarray(), 2 * matrix.toarray())
