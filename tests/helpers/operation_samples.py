"""Calls of the operations beyond the standard, with what NumPy, SciPy or a loop gives: a row is a call and a reference.

Both are of the operands below, of any dtype of `kinds`. Each row is run eagerly, compiled, under `vmap` and
differentiated, unless the table of operations or its own flags say otherwise.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.ndimage
import scipy.signal
import scipy.special

from called import code_of, names_in
from krylix.backends.operations.table import OPERATIONS


class Sample(NamedTuple):
    name: str  # of the operation
    call: str  # of `bk`
    expected: str  # of NumPy, and the references below
    kinds: str = "f"  # of dtypes that it is called with
    compiles: bool = True
    differentiable: bool | str = True  # apart from what the table says; or by which operand

    def operands(self) -> list[str]:
        return sorted(names_in(self.call) & {*NAMES})


_rng = np.random.default_rng(0)
_SHAPES = {
    "x": (3, 5),
    "u": (5,),
    "o": (),
    "nothing": (0, 5),
    "grid": (2, 4, 5, 3),
    "updates": (2, 6, 3),
    "rows": (2, 20),
    "weights": (2, 20),
    "images": (2, 3, 6, 5),
    "kernel": (1, 4, 3, 3, 2),
    "M": (2, 5, 3),
    "Y": (2, 5, 2),
}
_places = np.stack([_rng.permutation(20)[:6] for _ in range(2)])
_INTEGERS = {
    "at": np.stack([_rng.integers(0, 4, (2, 6)), _rng.integers(-5, 5, (2, 6))], -1),
    "apart": np.stack([_places // 5, _places % 5], -1),
    "anywhere": _rng.integers(-3, 7, (10, 2)),
    "few": np.array([2, 0, 1, 3, 1]),
    "bins": _rng.integers(0, 9, (2, 20)),
    "starts": np.array([[0, 1, 4], [0, 2, 3]]),
    "back": np.array([0, -1, 2, 2]),
    "mask": np.array([True, False, False, True, True]),
    "order": _rng.integers(0, 3, (6, 3)),
}
_FIXED = {  # real numbers, of the dtype where it is real
    "coordinates": _rng.uniform(-2.4, 6.4, (2, 7, 2)),
    "edges": np.sort(_rng.normal(size=(2, 6)), -1),
    "positive": _rng.uniform(0.2, 4, (3, 5)),
    "other": _rng.uniform(0.2, 4, (3, 5)),
    "square": _rng.normal(size=(2, 4, 4)),
    "alike": np.linalg.qr(np.random.default_rng(1).normal(size=(2, 5, 3)))[0],  # singular values are
}
_FIXED["edges"][0, -1] = 1.0  # with a value on the last one
_BASE = {name: np.round(_rng.normal(size=shape) * 3, 3) for name, shape in _SHAPES.items()}
_BASE["rows"][0, 0] = 1.0
_BASE["M"][1, :, 2] = _BASE["M"][1, :, 1]
_BASE["x"][0, :3] = (0, 1, 0)
NAMES = (*_BASE, *_INTEGERS, *_FIXED)


@cache
def operands(dtype: str) -> dict[str, np.ndarray]:
    """Arrays of NumPy, which nobody writes to."""
    kind = np.dtype(dtype).kind
    numbers = {name: x * (1 + 0.5j) if kind == "c" else np.rint(x) if kind in "iu" else x for name, x in _BASE.items()}
    if kind == "b":
        numbers = {name: x > 0 for name, x in _BASE.items()}
    made = {name: np.asarray(x).astype(dtype) for name, x in numbers.items()}
    real = np.empty(0, dtype).real.dtype if kind in "fc" else np.dtype(np.float64)
    return {**made, **_INTEGERS, **{name: x.astype(real) for name, x in _FIXED.items()}}


def scattered(base: Any, at: Any, values: Any, mode: str) -> np.ndarray:
    found = np.array(base)
    for b, j in product(range(len(base)), range(at.shape[1])):
        one = (b, *at[b % len(at), j])
        own = np.broadcast_to(values, (len(base), at.shape[1], base.shape[-1]))[b, j]
        change = {"add": lambda a, c: a + c, "max": np.maximum, "min": np.minimum, "update": lambda a, c: c}[mode]
        found[one] = change(found[one], own)
    return found


def gathered(x: Any, at: Any) -> np.ndarray:
    return np.stack([x[b % len(x)][tuple(np.moveaxis(at[b % len(at)], -1, 0))] for b in range(max(len(x), len(at)))])


def sampled(grid: Any, coordinates: Any, extrapolation: str) -> np.ndarray:
    mode = {"zeros": "grid-constant", "boundary": "nearest", "periodic": "grid-wrap", "symmetric": "reflect",
            "reflect": "mirror"}[extrapolation]  # fmt: skip
    channels = range(grid.shape[-1])
    return np.stack([
        np.stack([scipy.ndimage.map_coordinates(grid[b, ..., c], coordinates[b].T, order=1, mode=mode)
                  for c in channels], -1) for b in range(len(coordinates))
    ])  # fmt: skip


def correlated(images: Any, kernel: Any, mode: str) -> np.ndarray:
    """SciPy's correlations conjugate the kernel."""
    return np.stack([
        np.stack([sum(scipy.signal.correlate(image[i], np.conj(kernel[0, o, i]), mode=mode)
                      for i in range(kernel.shape[2])) for o in range(kernel.shape[1])]) for image in images
    ])  # fmt: skip


def lstsq(M: Any, Y: Any) -> list[np.ndarray]:
    x = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(M, Y, strict=True)])
    return [x, np.sum(np.abs(M @ x - Y) ** 2, 1), np.linalg.matrix_rank(M), np.linalg.svd(M, compute_uv=False)]


_PAD = {"boundary": "edge", "periodic": "wrap", "symmetric": "symmetric", "reflect": "reflect"}
_ANY = "bifc"
SAMPLES = (
    # shapes
    *(Sample("pad", f"bk.pad(x, [(2, 1), (3, 0)], {mode!r})", f"np.pad(x, [(2, 1), (3, 0)], {own!r})", _ANY)
      for mode, own in _PAD.items()),
    *(Sample("pad", f"bk.pad(x, [(7, 0), (0, 11)], {mode!r})", f"np.pad(x, [(7, 0), (0, 11)], {own!r})")
      for mode, own in _PAD.items()),
    Sample("pad", "bk.pad(x, [(0, 2), (0, 0)])", "np.pad(x, [(0, 2), (0, 0)])", _ANY),
    Sample("pad", "bk.pad(x, [(1, 2), (0, 0)], 'constant', 3)", "np.pad(x, [(1, 2), (0, 0)], constant_values=3)",
           "ifc"),
    Sample("pad", "bk.pad(x, [(0, 0), (1, 0)], value=o)", "np.pad(x, [(0, 0), (1, 0)], constant_values=o)", _ANY),
    Sample("pad", "bk.pad(nothing, [(1, 0), (0, 0)])", "np.zeros((1, 5), nothing.dtype)"),
    Sample("pad_to", "bk.pad_to(x, 1, 7)", "np.pad(x, [(0, 0), (0, 2)])", _ANY),
    Sample("pad_to", "bk.pad_to(x, -1, 2)", "x[:, :2]", "f"),
    Sample("tile_to", "bk.tile_to(x, 0, 6)", "np.tile(x, (2, 1))", _ANY),
    Sample("multi_slice", "bk.multi_slice(x, (slice(None, None, -2), slice(-1, 0, -1)))", "x[::-2, -1:0:-1]", _ANY),
    Sample("multi_slice", "bk.multi_slice(x, (-1, slice(1, 9)))", "x[-1, 1:]"),
    Sample("multi_slice", "bk.multi_slice(x, (slice(5, 2), slice(None)))", "x[:0]"),
    Sample("multi_slice", "bk.multi_slice(grid, (slice(None), back[1], few[2]))", "grid[:, -1, 1]"),
    Sample("repeat", "bk.repeat(x, few, 1)", "np.repeat(x, few, 1)", _ANY, compiles=False),
    Sample("repeat", "bk.repeat(x, few, 1, 7)", "np.repeat(x, few, 1)", _ANY),
    Sample("repeat", "bk.repeat(x, few, -1, 5)", "np.repeat(x, few, 1)[:, :5]"),
    Sample("repeat", "bk.repeat(x, 2, new_length=31)", "np.append(np.repeat(x, 2), x[-1, -1])"),
    Sample("unstack", "bk.unstack(x, -2, True)", "[x[:1], x[1:2], x[2:]]", _ANY),
    Sample("expand_dims", "bk.expand_dims(x)", "x[None]", _ANY),
    Sample("expand_dims", "bk.expand_dims(x, (0, -1))", "x[None, ..., None]"),
    Sample("linspace_without_last", "bk.linspace_without_last(o, u[1], 4)", "np.linspace(o, u[1], 5)[:-1]"),
    Sample("copy_leaves", "bk.copy_leaves({'a': x, 'b': [u]})['b'][0]", "u", _ANY),
    Sample("stack_leaves", "bk.stack_leaves([(x, {'a': u}), (x, {'a': u})], -1)[1]['a']", "np.stack([u, u], -1)", _ANY),
    Sample("broadcast_size", "bk.broadcast_size((x, u[None]), 0)", "3", differentiable=False),
    # gathering
    Sample("take", "bk.take(x, back, 0)", "x[back]", _ANY),
    Sample("take", "bk.take(x, [[0, -1], [-5, 4]], -1)", "x[:, [[0, -1], [-5, 4]]]"),
    Sample("take", "bk.take(x, [], 0)", "x[:0]"),
    Sample("gather_nd", "bk.gather_nd(grid, at, True)", "gathered(grid, at)", _ANY),
    Sample("gather_nd", "bk.gather_nd(grid[0], at[:, None])", "gathered(grid[:1], at)[:, None]"),
    Sample("batched_gather_nd", "bk.batched_gather_nd(grid, at[:1])", "gathered(grid, at[:1])"),
    Sample("batched_gather_nd", "bk.batched_gather_nd(grid[:1], at)", "gathered(grid[:1], at)"),
    Sample("scatter", "bk.scatter(grid, apart, updates)", "scattered(grid, apart, updates, 'update')", _ANY),
    Sample("scatter", "bk.scatter(grid, at, updates, 'add')", "scattered(grid, at, updates, 'add')", "ifc"),
    Sample("scatter", "bk.scatter(grid, at, updates, 'max')", "scattered(grid, at, updates, 'max')", "if"),
    Sample("scatter", "bk.scatter(grid, at, updates, 'min')", "scattered(grid, at, updates, 'min')", "if"),
    Sample("scatter", "bk.scatter(grid[:1], apart, updates[:1, :1, :1])",
           "scattered(np.repeat(grid[:1], 2, 0), apart, updates[:1, :1, :1], 'update')"),
    Sample("scatter_nd", "bk.scatter_nd(grid[0], at[0], updates[0], 'add')",
           "scattered(grid[:1], at[:1], updates[:1], 'add')[0]"),
    Sample("scatter_nd", "bk.scatter_nd(x, [[0, 1], [-1, 2]], u[:2])",
           "scattered(x[None, ..., None], np.array([[[0, 1], [-1, 2]]]), u[None, :2, None], 'update')[0, ..., 0]"),
    Sample("scatter_nd", "bk.scatter_nd(u, back, u[:1], 'add')",
           "scattered(u[None, :, None], back[None, :, None], u[None, :1, None], 'add')[0, :, 0]"),
    Sample("unravel_index", "bk.unravel_index(bins[0], (3, 1, 4))",
           "np.stack(np.unravel_index(bins[0], (3, 1, 4)), -1)"),
    Sample("ravel_multi_index", "bk.ravel_multi_index(anywhere, (3, 4), 'periodic')",
           "np.ravel_multi_index(anywhere.T, (3, 4), 'wrap')"),
    Sample("ravel_multi_index", "bk.ravel_multi_index(anywhere, (3, 4), 'clamp')",
           "np.ravel_multi_index(anywhere.T, (3, 4), 'clip')"),
    Sample("ravel_multi_index", "bk.ravel_multi_index(anywhere, (3, 4), -7)",
           "np.where(np.all((anywhere >= 0) & (anywhere < (3, 4)), -1), anywhere @ (4, 1), -7)"),
    Sample("ravel_multi_index", "bk.ravel_multi_index(apart, (4, 5))", "apart @ (5, 1)"),
    # lists
    Sample("nonzero", "bk.nonzero(x)", "np.argwhere(x)", _ANY, compiles=False),
    Sample("nonzero", "bk.nonzero(x, 20)",
           "np.concatenate([a := np.argwhere(x), np.full((20 - len(a), 2), -1)])", _ANY),
    Sample("nonzero", "bk.nonzero(mask, 2, -3)", "np.argwhere(mask)[:2]"),
    Sample("boolean_mask", "bk.boolean_mask(x, mask, 1)", "x[:, mask]", _ANY, compiles=False),
    Sample("boolean_mask", "bk.boolean_mask(x, mask, -1, 4, 2)",
           "np.pad(x[:, mask], [(0, 0), (0, 1)], constant_values=2)"),
    Sample("boolean_mask", "bk.boolean_mask(x, mask, 1, 2)", "x[:, mask][:, :2]", _ANY),
    Sample("unique", "bk.unique(back)", "np.unique(back)", compiles=False),
    Sample("unique", "bk.unique(order, True, True, 0)",
           "[r.reshape(-1) if i else r for i, r in enumerate(np.unique(order, False, True, True, 0))]", compiles=False),
    Sample("unique", "bk.unique(order[:4], axis=1)", "np.unique(order[:4], axis=1)", compiles=False),
    Sample("indexed_segment_sum", "bk.indexed_segment_sum(grid, starts, 2)",
           "np.stack([np.add.reduceat(a, i, 1) for a, i in zip(grid, starts)])", "fc"),
    Sample("indexed_segment_sum", "bk.indexed_segment_sum(grid[:1], starts, -2)",
           "np.stack([np.add.reduceat(grid[0], i, 1) for i in starts])"),
    Sample("bincount", "bk.bincount(bins, None, 9)", "np.stack([np.bincount(row, minlength=9) for row in bins])"),
    Sample("bincount", "bk.bincount(bins, weights, 10)",
           "np.stack([np.bincount(row, w, 10) for row, w in zip(bins, weights)])"),
    Sample("bincount", "bk.bincount(few)", "np.bincount(few)", compiles=False),
    Sample("histogram", "bk.histogram(rows, weights, edges)",
           "np.stack([np.histogram(r, e, weights=w)[0] for r, w, e in zip(rows, weights, edges)])",
        differentiable="weights"),
    Sample("histogram", "bk.histogram(rows, None, edges[:1])", "np.stack([np.histogram(r, edges[0])[0] for r in rows])",
           differentiable=False),
    Sample("quantile", "bk.quantile(rows, [0, 0.3, 1])", "np.quantile(rows, [0, 0.3, 1], -1)", "if"),
    Sample("quantile", "bk.quantile(x, 0.25)", "np.quantile(x, 0.25, -1)"),
    *(Sample("searchsorted", f"bk.searchsorted(edges, rows, {side!r})",
             f"np.stack([np.searchsorted(e, r, {side!r}) for e, r in zip(edges, rows)])") for side in ("left",
             "right")),
    Sample("searchsorted", "bk.searchsorted(edges[0], x)", "np.searchsorted(edges[0], x)"),
    # grids
    *(Sample("grid_sample", f"bk.grid_sample(grid, coordinates, {mode!r})",
             f"sampled(grid, coordinates, {mode!r})", kinds)
      for mode, kinds in (("zeros", "f"), ("boundary", "fc"), ("periodic", "f"), ("symmetric", "f"), ("reflect", "f"))),
    Sample("conv", "bk.conv(images, kernel)",
           "correlated(np.pad(images, [(0, 0), (0, 0), (1, 1), (0, 1)]), kernel, 'valid')", "ifc"),
    Sample("conv", "bk.conv(images, kernel, False)", "correlated(images, kernel, 'valid')"),
    Sample("fft", "bk.fft(grid, (1, 2))", "np.fft.fftn(grid, axes=(1, 2))", "fc"),
    Sample("ifft", "bk.ifft(grid, (0, 2))", "np.fft.ifftn(grid, axes=(0, 2))", "fc"),
    Sample("einsum", "bk.einsum('bij,bik->bjk', M, Y)", "np.einsum('bij,bik->bjk', M, Y)", "fc"),
    Sample("einsum", "bk.einsum('ij,j', x, few)", "x @ few"),
    Sample("tensordot", "bk.tensordot(M, Y, axes=((0, 1), (0, 1)))", "np.tensordot(M, Y, ((0, 1), (0, 1)))", "fc"),
    # dense
    Sample("svd", "bk.svd(M, False)[1]", "np.linalg.svd(M, compute_uv=False)", "fc", differentiable=False),
    Sample("matrix_rank", "bk.matrix_rank(M)", "np.linalg.matrix_rank(M)", "fc"),
    Sample("lstsq", "bk.lstsq(M, Y)", "lstsq(M, Y)", "fc", differentiable="Y"),
    Sample("lstsq", "bk.lstsq(alike, Y)[0]", "lstsq(alike, Y)[0]"),
    Sample("lstsq", "bk.lstsq(M[0], Y[0])[0]", "np.linalg.lstsq(M[0], Y[0], rcond=None)[0]"),
    Sample("eigvals", "bk.sort(bk.abs(bk.eigvals(square)), axis=-1)", "np.sort(np.abs(np.linalg.eigvals(square)), -1)"),
    Sample("eig", "bk.linalg.eig(square)[1] * bk.linalg.eig(square)[0][:, None]",
           "square @ bk.to_numpy(bk.linalg.eig(bk.asarray(square))[1])", compiles=False, differentiable=False),
    # special
    Sample("erf", "bk.erf(x)", "scipy.special.erf(x)", "f"),
    Sample("lgamma", "bk.lgamma(positive)", "scipy.special.gammaln(positive)"),
    Sample("gammainc", "bk.gammainc(positive, other)", "scipy.special.gammainc(positive, other)", differentiable=False),
    Sample("gammaincc", "bk.gammaincc(2, other)", "scipy.special.gammaincc(2, other)"),
    Sample("softplus", "bk.softplus(10 * x)", "np.logaddexp(10 * x, 0)"),
    Sample("sigmoid", "bk.sigmoid(10 * x)", "scipy.special.expit(10 * x)"),
    Sample("factorial", "bk.factorial(bins)", "scipy.special.factorial(bins, exact=True)"),
    Sample("factorial", "bk.factorial(positive)", "scipy.special.factorial(positive)"),
    # inspection
    Sample("auto_cast", "bk.auto_cast(x, few, 2)[1]", "few.astype(x.dtype)", "fc"),
    Sample("to_float", "bk.to_float(few) / 2", "few / 2"),
    Sample("to_complex", "bk.to_complex(few) * 1j", "few * 1j"),
    Sample("to_int32", "bk.to_int32(x)", "x.astype(np.int32)"),
    Sample("to_int64", "bk.to_int64(mask)", "mask.astype(np.int64)"),
    Sample("shape", "bk.shape(grid)", "grid.shape", differentiable=False),
    Sample("staticshape", "bk.staticshape(grid)", "grid.shape", differentiable=False),
    Sample("size", "bk.size(grid)", "grid.size", differentiable=False),
    Sample("is_sparse", "bk.is_sparse(x)", "False", differentiable=False),
    Sample("get_sparse_format", "len(bk.get_sparse_format(x))", "5", differentiable=False),
    Sample("is_available", "bk.is_available([x, {'a': u}])", "True", compiles=False),
    Sample("take_apart", "bk.take_apart(x)[1][0]", "x", _ANY),
    Sample("variable", "bk.variable(x) * 2", "x * 2", compiles=False),
)  # fmt: skip
REFERENCES = {
    "np": np, "scipy": scipy, "scattered": scattered, "gathered": gathered, "sampled": sampled,
    "correlated": correlated, "lstsq": lstsq,
}  # fmt: skip


def evaluate(expression: str, **names: Any) -> Any:
    return eval(code_of(expression), {**REFERENCES, **names})


def of_group(group: str) -> list[Sample]:
    return [sample for sample in SAMPLES if OPERATIONS[sample.name].group == group]


GROUPS = sorted({OPERATIONS[sample.name].group for sample in SAMPLES})
