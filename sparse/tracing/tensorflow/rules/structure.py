"""Rules for operations that move elements: in blocks, in slices, or by known indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from .....backends.tensorflow.program import eagerly, evaluate
from ....errors import UnsupportedOperation
from ...engine import coefficients as co
from ...engine import storage
from ...engine.arithmetic import negate, scale
from ...engine.indexing import Labels, along, numbers, pad_by_mode, pad_by_mode_adjoint, replace_at, roll
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import integers, padded, reshaped, shape_of, spread, static, static_needed, where
from ...engine.positions import scatter_add, take
from ...engine.storage import View
from ...engine.structural import broadcast_to, concatenate, cut, element, reverse, slice_, stack, tile, transpose
from ...interpreter import Conjugate, conjugated


def linear_operand(x: Any, *others: Any) -> Linear:
    """The first operand, which is the one that may depend on the input."""
    if not isinstance(x, Linear):
        other = next(value for value in others if isinstance(value, Linear))
        raise static_needed("structure", other)
    return x


def _reshape(op: tf.Operation, x: Any, shape: Any) -> Any:
    x, lengths = linear_operand(x, shape), integers("shape", shape)
    rest = math.prod(n for n in lengths if n >= 0)
    return reshape(x, [x.size // max(rest, 1) if n < 0 else n for n in lengths])


def _expand(op: tf.Operation, x: Any, axis: Any) -> Any:
    (axis,) = integers("axis", axis)
    axis = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _squeeze(op: tf.Operation, x: Linear) -> Any:
    axes = [a % x.ndim for a in op.get_attr("squeeze_dims")] or [a for a, n in enumerate(x.shape) if n == 1]
    return reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])


def _transpose(op: tf.Operation, x: Any, axes: Any) -> Any:
    x = linear_operand(x, axes)
    return transpose(x, [a % x.ndim for a in integers("order", axes)])


# --- joining ----------------------------------------------------------------------------------------------------------


def _concatenate(op: tf.Operation, *values: Any) -> Any:
    *parts, axis = values
    (axis,) = integers("axis", axis)
    return concatenate(parts, axis % len(shape_of(parts[0])))


def _roll(op: tf.Operation, x: Any, shift: Any, axis: Any) -> Any:
    return roll(linear_operand(x, shift, axis), integers("shift", shift), integers("axis", axis))


def _reverse(op: tf.Operation, x: Any, axes: Any) -> Any:
    x = linear_operand(x, axes)
    return reverse(x, [a % x.ndim for a in integers("axis", axes)])


# --- padding ----------------------------------------------------------------------------------------------------------


def _pairs(widths: Any) -> list[tuple[int, int]]:
    return [(int(lo), int(hi)) for lo, hi in static("padding", widths)]


def _pad(op: tf.Operation, x: Any, widths: Any, fill: Any = 0) -> Any:
    return padded(linear_among([x, fill], "pad").bk, x, [(lo, hi, 0) for lo, hi in _pairs(widths)], fill)


_MODES = {b"REFLECT": "reflect", b"SYMMETRIC": "symmetric"}


def _mirror_pad(by: Callable[..., Linear]) -> Callable[..., Any]:
    return lambda op, x, widths: by(x, _pairs(widths), _MODES[op.get_attr("mode")])


# --- choice -----------------------------------------------------------------------------------------------------------


def _where_first(op: tf.Operation, condition: Any, a: Any, b: Any) -> Any:
    """As TensorFlow did in its first version: a vector chooses rows."""
    if not isinstance(condition, Linear) and len(shape_of(condition)) == 1:
        lengths = (*shape_of(condition), *[1] * (len(shape_of(a)) - 1))
        condition = co.reshape(linear_among([a, b], "where").bk, condition, lengths)
    return where(condition, a, b)


# --- shapes -----------------------------------------------------------------------------------------------------------


def _shape(x: Any) -> tuple[int, ...]:
    return x.linear.shape if isinstance(x, Conjugate) else shape_of(x)


def _integer(op: tf.Operation) -> Any:
    return op.outputs[0].dtype.as_numpy_dtype


SHAPES: dict[str, Callable[..., list[Any]]] = {  # of what may depend on the input; the results do not
    "Shape": lambda op, x: [np.asarray(_shape(x), _integer(op))],
    "ShapeN": lambda op, *xs: [np.asarray(_shape(x), _integer(op)) for x in xs],
    "Size": lambda op, x: [np.asarray(math.prod(_shape(x)), _integer(op))],
    "Rank": lambda op, x: [np.asarray(len(_shape(x)), np.int32)],
    "ZerosLike": lambda op, x: [np.zeros(_shape(x), _integer(op))],
    "OnesLike": lambda op, x: [np.ones(_shape(x), _integer(op))],
}


# --- slices and splitting ---------------------------------------------------------------------------------------------

Index = tuple[Any, ...]


def index_of(op: tf.Operation, begin: Any, end: Any, strides: Any) -> Index:
    """What NumPy calls the same part."""
    starts, stops, steps = (integers("slice", x) for x in (begin, end, strides))
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    no_begin, no_end, dots, new, shrunk = (int(op.get_attr(name)) for name in names)
    found: list[Any] = []
    for k, (start, stop, step) in enumerate(zip(starts, stops, steps)):
        bit = 1 << k
        if dots & bit:
            found.append(Ellipsis)
        elif new & bit:
            found.append(None)
        elif shrunk & bit:
            found.append(start)
        else:
            found.append(slice(None if no_begin & bit else start, None if no_end & bit else stop, step))
    return tuple(found)


def _view(shape: Sequence[int], index: Index) -> View:
    """`x[index]` as a view of an array of this shape: NumPy slices one of bytes, whose strides tell."""
    ghost = np.empty(tuple(shape), np.int8)
    part = ghost[index if Ellipsis in index else (*index, ...)]
    start = part.__array_interface__["data"][0] - ghost.__array_interface__["data"][0]
    return View(part.shape, part.strides, start if part.size else 0)


def _strided_slice(op: tf.Operation, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    x = linear_operand(x, begin, end, strides)
    return storage.read(x.bk, x, _view(x.shape, index_of(op, begin, end, strides)))


def _strided_slice_gradient(op: tf.Operation, shape: Any, begin: Any, end: Any, strides: Any, x: Any) -> Any:
    lengths, index = integers("shape", shape), index_of(op, begin, end, strides)
    view = _view(lengths, index)
    found = storage.accumulate(x.bk, np.zeros(lengths, x.dtype), view, reshape(x, view.shape))
    return reshape(found, lengths)


def _slice(op: tf.Operation, x: Any, begin: Any, size: Any) -> Any:
    x = linear_operand(x, begin, size)
    starts, sizes = integers("slice", begin), integers("slice", size)
    return slice_(x, starts, [n if m < 0 else a + m for a, m, n in zip(starts, sizes, x.shape)])


def _split(op: tf.Operation, x: Any, sizes: Any, axis: Any) -> list[Linear]:
    (axis,) = integers("axis", axis)
    n = x.shape[axis]
    lengths = integers("lengths", sizes)
    lengths = [n - sum(m for m in lengths if m >= 0) if m < 0 else m for m in lengths]
    ends = np.cumsum([0, *lengths])
    return [cut(x, axis % x.ndim, int(a), int(b)) for a, b in pairwise(ends)]


def _split_evenly(op: tf.Operation, axis: Any, x: Any) -> list[Linear]:
    (axis,), count = integers("axis", axis), len(op.outputs)
    return _split(op, x, np.full(count, x.shape[axis] // count), np.asarray(axis))


def _unpack(op: tf.Operation, x: Linear) -> list[Linear]:
    axis = op.get_attr("axis") % x.ndim
    return [element(x, k, axis) for k in range(x.shape[axis])]


# --- elements at known positions --------------------------------------------------------------------------------------


def moved(op: tf.Operation, *values: Any) -> Any:
    """Any operation that gives each element one of its operands' or zero: by what it does to numbers of them."""
    own, labels = next(i.dtype for i, value in zip(op.inputs, values) if isinstance(value, Linear)), Labels()
    given = [
        labels.of(value).astype(np.float64) if i.dtype == own else static("index", value)
        for i, value in zip(op.inputs, values)
    ]
    found = evaluate(op, given, {own: tf.float64})
    with eagerly():
        return [labels.result(x.numpy()) for x in found]


# --- gather -----------------------------------------------------------------------------------------------------------


def _gather(op: tf.Operation, x: Any, indices: Any, axis: Any = 0) -> Any:
    x = linear_operand(x, indices, axis)
    index, (axis,) = static("index", indices), integers("axis", axis)
    batch = int(op.get_attr("batch_dims")) if op.type == "GatherV2" else 0
    batch += index.ndim if batch < 0 else 0
    _check_range(index, x.shape[axis])
    axis %= x.ndim
    if batch == 0:
        return reshape(along(x, axis, index.reshape(-1)), (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
    lead = math.prod(x.shape[:batch])
    own = numbers(x.shape).reshape(lead, *x.shape[batch:])
    rows = index.reshape(lead, *index.shape[batch:])
    where = np.stack([np.take(own[k], rows[k], axis - batch) for k in range(lead)]) if lead else np.zeros(0, np.int64)
    shape = (*x.shape[:axis], *index.shape[batch:], *x.shape[axis + 1 :])
    return take(x, where.reshape(shape))


def _check_range(index: np.ndarray, n: int) -> None:
    if index.size and not (index.min() >= 0 and index.max() < n):
        raise UnsupportedOperation(f"an index is out of range, from {index.min()} to {index.max()} of {n} elements.")


def _flat(indices: Any, shape: Sequence[int]) -> np.ndarray:
    """Flat positions of all elements that the last axis of `indices` names."""
    index = static("index", indices)
    depth = index.shape[-1]
    for k in range(depth):
        _check_range(index[..., k], shape[k])
    return numbers(shape)[tuple(index[..., k] for k in range(depth))]


def _gather_nd(op: tf.Operation, x: Any, indices: Any) -> Any:
    x = linear_operand(x, indices)
    return take(x, _flat(indices, x.shape))


# --- scatter ----------------------------------------------------------------------------------------------------------


def _scatter_nd(op: tf.Operation, indices: Any, updates: Any, shape: Any) -> Any:
    lengths = integers("shape", shape)
    updates = linear_operand(updates, indices, shape)
    return scatter_add(np.zeros(lengths, updates.dtype), _flat(indices, lengths).reshape(updates.shape), updates)


def _scatter_add(op: tf.Operation, x: Any, indices: Any, updates: Any) -> Any:
    where = _flat(indices, shape_of(x))
    return scatter_add(x, where, spread(linear_among([x, updates], "scatter").bk, updates, where.shape))


def _scatter_subtract(op: tf.Operation, x: Any, indices: Any, updates: Any) -> Any:
    return _scatter_add(op, x, indices, negate(updates) if isinstance(updates, Linear) else -updates)


def _segment_positions(x: Linear, ids: Any, count: int) -> np.ndarray:
    """Where each element goes in `(count, ...)`; -1: nowhere."""
    rows = static("segment", ids)
    inner = math.prod(x.shape[rows.ndim :])
    rows = np.where((rows >= 0) & (rows < count), rows, -1).reshape(-1, 1)
    where = np.where(rows >= 0, rows * inner + np.arange(inner), -1)
    return where.reshape(x.shape)


def _segment_sum(op: tf.Operation, x: Any, ids: Any, count: Any = None) -> Any:
    x = linear_operand(x, ids)
    known = static("segment", ids)
    n = int(known.max(initial=-1)) + 1 if count is None else int(static("number of segments", count))
    shape = (n, *x.shape[known.ndim :])
    return scatter_add(np.zeros(shape, x.dtype), _segment_positions(x, ids, n), x)


def _by_counts(sums: Linear, ids: np.ndarray, power: float) -> Linear:
    counts = np.maximum(np.bincount(ids.reshape(-1), minlength=sums.shape[0]), 1).astype(np.float64) ** power
    return scale(sums, counts.astype(sums.dtype).reshape(-1, *[1] * (sums.ndim - 1)))


def _sparse_segment(power: float) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Any, indices: Any, ids: Any, count: Any = None) -> Any:
        x = linear_operand(x, indices, ids)
        picked = take(x, np.take(numbers(x.shape), static("index", indices), 0))
        sums = _segment_sum(op, picked, ids, count)
        return _by_counts(sums, static("segment", ids), power) if power else sums

    return rule


def _update_part(op: tf.Operation, x: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
    bk, view = linear_among([x, value], "update").bk, _view(shape_of(x), index_of(op, begin, end, strides))
    return reshaped(bk, storage.replace(bk, x, view, spread(bk, value, view.shape)), shape_of(x))


_MOVES = (
    *("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", "MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3"),
    *("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", "MatrixBandPart", "Diag", "DiagPart"),
    *("SpaceToBatchND", "BatchToSpaceND", "SpaceToBatch", "BatchToSpace", "SpaceToDepth", "DepthToSpace"),
    *("ReverseSequence", "ExtractImagePatches", "ExtractVolumePatches", "ResizeNearestNeighbor"),
    *("DynamicStitch", "ParallelDynamicStitch", "DynamicPartition", "RaggedTensorToTensor", "SparseToDense"),
)

STRUCTURE: dict[str, Callable[..., Any]] = {
    "Reshape": _reshape,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "ConjugateTranspose": lambda op, x, axes: conjugated(x.bk, _transpose(op, x, axes)),
    "BroadcastTo": lambda op, x, shape: broadcast_to(linear_operand(x, shape), integers("shape", shape)),
    "Tile": lambda op, x, reps: tile(linear_operand(x, reps), integers("number of copies", reps)),
    "Fill": lambda op, shape, x: broadcast_to(x, integers("shape", shape)),
    "ConcatV2": _concatenate,
    "Concat": lambda op, axis, *parts: _concatenate(op, *parts, axis),
    "Pack": lambda op, *parts: stack(parts, op.get_attr("axis") % (len(shape_of(parts[0])) + 1)),
    "Roll": _roll,
    "ReverseV2": _reverse,
    "Pad": _pad,
    "PadV2": _pad,
    "MirrorPad": _mirror_pad(pad_by_mode),
    "MirrorPadGrad": _mirror_pad(pad_by_mode_adjoint),
    "Select": _where_first,
    "SelectV2": lambda op, *values: where(*values),
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_gradient,
    "Slice": _slice,
    "Split": _split_evenly,
    "SplitV": _split,
    "Unpack": _unpack,
    "GatherV2": _gather,
    "Gather": _gather,
    "GatherNd": _gather_nd,
    "ScatterNd": _scatter_nd,
    "TensorScatterAdd": _scatter_add,
    "TensorScatterSub": _scatter_subtract,
    "TensorScatterUpdate": lambda op, x, indices, updates: replace_at(x, _flat(indices, shape_of(x)), updates),
    "ScatterNdNonAliasingAdd": _scatter_add,
    "SegmentSum": _segment_sum,
    "SegmentSumV2": _segment_sum,
    "UnsortedSegmentSum": _segment_sum,
    "SegmentMean": lambda op, x, ids: _by_counts(_segment_sum(op, x, ids), static("segment", ids), -1.0),
    "SparseSegmentSum": _sparse_segment(0.0),
    "SparseSegmentSumWithNumSegments": _sparse_segment(0.0),
    "SparseSegmentMean": _sparse_segment(-1.0),
    "SparseSegmentMeanWithNumSegments": _sparse_segment(-1.0),
    "SparseSegmentSqrtN": _sparse_segment(-0.5),
    "TensorStridedSliceUpdate": _update_part,
    **dict.fromkeys(_MOVES, moved),
}
