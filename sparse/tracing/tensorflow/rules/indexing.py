"""Rules for elements at known positions: which they are is computed, or asked of TensorFlow, on an array of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .....backends.tensorflow.program import eagerly, evaluate
from ....errors import UnsupportedOperation
from ...engine.arithmetic import negate, scale
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import shape_of, spread
from ...engine.operations.along import along
from ...engine.operations.indexing import Labels, numbers, replace_at
from ...engine.positions import scatter_add, take
from ...engine.refusals import integers, static
from .slices import index_of
from .structure import linear_operand


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


# --- gather ---------------------------------------------------------------------------------------------------------

_FEW_RUNS = 3


def _gather(op: tf.Operation, x: Any, indices: Any, axis: Any = 0) -> Any:
    x = linear_operand(x, indices, axis)
    index, (axis,) = static("index", indices), integers("axis", axis)
    batch = int(op.get_attr("batch_dims")) if op.type == "GatherV2" else 0
    batch += index.ndim if batch < 0 else 0
    _check_range(index, x.shape[axis])
    axis %= x.ndim
    if batch == 0 and index.ndim <= 1 and np.count_nonzero(np.diff(index.reshape(-1)) != 1) <= _FEW_RUNS:
        found = along(x, axis, index.reshape(-1))
        return reshape(found, (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))
    if batch == 0:
        return take(x, np.take(numbers(x.shape), index, axis))
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


# --- scatter --------------------------------------------------------------------------------------------------------


def _scatter_nd(op: tf.Operation, indices: Any, updates: Any, shape: Any) -> Any:
    lengths = integers("shape", shape)
    updates = linear_operand(updates, indices, shape)
    return scatter_add(np.zeros(lengths, updates.dtype), _flat(indices, lengths).reshape(updates.shape), updates)


def _scatter_add(op: tf.Operation, x: Any, indices: Any, updates: Any) -> Any:
    where = _flat(indices, shape_of(x))
    return scatter_add(x, where, spread(linear_among([x, updates], "scatter").bk, updates, where.shape))


def _scatter_subtract(op: tf.Operation, x: Any, indices: Any, updates: Any) -> Any:
    return _scatter_add(op, x, indices, negate(updates) if isinstance(updates, Linear) else -updates)


def _scatter_update(op: tf.Operation, x: Any, indices: Any, updates: Any) -> Any:
    return replace_at(x, _flat(indices, shape_of(x)), updates)


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


def _segment_mean(op: tf.Operation, x: Any, ids: Any) -> Any:
    return _by_counts(_segment_sum(op, x, ids), static("segment", ids), -1.0)


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
    where = numbers(shape_of(x))[index_of(op, begin, end, strides)]
    return replace_at(x, where, value)


_MOVES = (
    *("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", "MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3"),
    *("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", "MatrixBandPart", "Diag", "DiagPart"),
    *("SpaceToBatchND", "BatchToSpaceND", "SpaceToBatch", "BatchToSpace", "SpaceToDepth", "DepthToSpace"),
    *("ReverseSequence", "ExtractImagePatches", "ExtractVolumePatches", "ResizeNearestNeighbor"),
    *("DynamicStitch", "ParallelDynamicStitch", "DynamicPartition", "RaggedTensorToTensor", "SparseToDense"),
)

INDEXING: dict[str, Callable[..., Any]] = {
    "GatherV2": _gather,
    "Gather": _gather,
    "GatherNd": _gather_nd,
    "ScatterNd": _scatter_nd,
    "TensorScatterAdd": _scatter_add,
    "TensorScatterSub": _scatter_subtract,
    "TensorScatterUpdate": _scatter_update,
    "ScatterNdNonAliasingAdd": _scatter_add,
    "SegmentSum": _segment_sum,
    "SegmentSumV2": _segment_sum,
    "UnsortedSegmentSum": _segment_sum,
    "SegmentMean": _segment_mean,
    "SparseSegmentSum": _sparse_segment(0.0),
    "SparseSegmentSumWithNumSegments": _sparse_segment(0.0),
    "SparseSegmentMean": _sparse_segment(-1.0),
    "SparseSegmentMeanWithNumSegments": _sparse_segment(-1.0),
    "SparseSegmentSqrtN": _sparse_segment(-0.5),
    "TensorStridedSliceUpdate": _update_part,
    **dict.fromkeys(_MOVES, moved),
}
