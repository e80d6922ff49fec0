"""Stencil: a format for grids, coefficients times shifted copies of an array; coefficients may be single numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, Protocol

import numpy as np

from ...backends import Array, Backend, choose_backend
from ..errors import UnsupportedOperation
from .boxes import BoxDiagonals, Covered, Grid, Shifted, StencilForm, without_zeros
from .dia import DiaStructure, compress_nonzero
from .entries.integers import check_shape, check_size, points, repeat_rows, row_strides, rows_first
from .entries.values import Regather
from .sparse_matrix import SparseMatrix
from .structure import Layout, Slots, Sources, Structure, ValueOrder

_WIDEST = 6  # places of diagonals per entry: above, sorting the entries takes less time and memory


class StencilStructure(Structure):
    """Boxes on the grids of output and input, no two of which share a place; see `Shifted`."""

    format: ClassVar[str] = "stencil"
    gathers = False
    takes_all: ClassVar[bool] = False

    def __init__(
        self, out_grid: Sequence[int], in_grid: Sequence[int], boxes: Sequence[Shifted], numbers: Sequence[bool]
    ) -> None:
        super().__init__((math.prod(out_grid), math.prod(in_grid)))
        self.out_grid, self.in_grid = tuple(out_grid), tuple(in_grid)
        self.boxes, self.numbers = tuple(boxes), tuple(bool(b) for b in numbers)

    @cached_property
    def form(self) -> StencilForm:
        return StencilForm(self.out_grid, self.in_grid, self.boxes, self.numbers)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(() if number else box.shape for box, number in zip(self.boxes, self.numbers))

    @cached_property
    def nnz(self) -> int:
        return sum(math.prod(box.shape) for box in self.boxes)

    def padding(self) -> tuple[np.ndarray | None, ...]:
        return (None,) * len(self.boxes)

    def transposed(self) -> tuple[Structure, Regather]:
        flipped = self.form.flipped()
        structure = StencilStructure(flipped.out_grid, flipped.in_grid, flipped.boxes, flipped.numbers)
        return structure, Regather.unchanged()

    def pruned(
        self, values: Sequence[np.ndarray], systems: int | None
    ) -> tuple[Structure, Sequence[np.ndarray]] | None:
        """Boxes cut to what is not 0; None where zeros are left among others."""
        cut = []
        for box, value in zip(self.boxes, values, strict=True):
            found = without_zeros(box, value, systems)
            if found is None:
                return None
            cut.append(found)
        kept = [part for part in cut if math.prod(part[0].shape)] or cut[:1]
        boxes, values = zip(*kept, strict=True)
        lead = 0 if systems is None else 1
        return StencilStructure(self.out_grid, self.in_grid, boxes, [v.ndim == lead for v in values]), values

    @cached_property
    def diagonals(self) -> BoxDiagonals | None:
        """Conversion of values to diagonals; None where these have other entries than boxes."""
        return BoxDiagonals.of(self.boxes, self.out_grid, self.in_grid)

    def laid_out(self, cls: type[Structure]) -> tuple[Structure, Layout] | None:
        return self._as_diagonals if cls is DiaStructure else None

    @cached_property
    def _as_diagonals(self) -> tuple[Structure, Layout] | None:
        found = self.diagonals
        return None if found is None else (DiaStructure(found.offsets, self.shape, Covered(found)), found)

    def row_block(self, values: Sequence[np.ndarray], first: int, last: int) -> tuple[np.ndarray, ...]:
        out_strides, in_strides = row_strides(self.out_grid), row_strides(self.in_grid)
        slab = out_strides[0] if out_strides else 1
        low, high = first // slab, -(-last // slab)  # planes along the first axis that have some of the rows
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.result_type(*values)))]
        for box, number, value in zip(self.boxes, self.numbers, values, strict=True):
            cut = _planes(box, low, high)
            if cut is None:
                continue
            rows, columns = _places(cut.lo, cut.shape, out_strides), _places(cut.start, cut.shape, in_strides)
            inner = value if number or not box.lo else value[cut.lo[0] - box.lo[0] :][: cut.shape[0]]
            entries = np.broadcast_to(inner, cut.shape).reshape(-1)
            inside = (rows >= first) & (rows < last)
            parts.append((rows[inside], columns[inside], entries[inside]))
        return tuple(np.concatenate([part[k] for part in parts]) for k in range(3))

    def _find_entries(self) -> Slots:
        check_size(self.nnz, "entries")
        found = self.diagonals
        if found is None or len(found.offsets) * self.shape[0] > _WIDEST * self.nnz:
            return self._entries_by_sorting()
        ends = np.cumsum([0, *map(math.prod, self.value_shapes)])
        numbers = [
            np.arange(a + 1, b + 1, dtype=np.int32).reshape(shape)  # 0: no entry
            for a, b, shape in zip(ends, ends[1:], self.value_shapes)
        ]
        starts, cols, slots = compress_nonzero(found.offsets, self.shape, found.spread(numbers))
        return Slots(repeat_rows(starts), cols, slots - np.int32(1))

    def _entries_by_sorting(self) -> Slots:
        parts, first = [], 0
        for box, number, shape in zip(self.boxes, self.numbers, self.value_shapes):
            rows, cols = points(box.lo, box.shape, self.out_grid), points(box.start, box.shape, self.in_grid)
            count = 1 if number else math.prod(shape)
            slots = np.full(len(rows), first, np.int32) if number else np.arange(first, first + count, dtype=np.int32)
            parts.append((rows, cols, slots))
            first += count
        none = np.zeros(0, np.int32)
        rows, cols, slots = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(3))
        order = rows_first(cols, self.shape[1])
        order = order[rows_first(rows[order], self.shape[0])]
        return Slots(rows[order], cols[order], slots[order])

    def _static(self) -> tuple[Any, ...]:
        return self.out_grid, self.in_grid, self.boxes, self.numbers

    @classmethod
    def from_entries(
        cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]
    ) -> tuple[StencilStructure, Sources]:  # fmt: skip
        raise UnsupportedOperation(
            "A stencil cannot be found in a list of entries. Make one with krylix.sparse.Stencil, or trace the "
            'function; "dia" stores any matrix of few diagonals.'
        )

    def summary(self) -> str:
        arrays = self.numbers.count(False)
        kinds = "numbers" if not arrays else f"{len(self.boxes) - arrays} numbers and {arrays} arrays"
        grids = f"{self.in_grid}" if self.in_grid == self.out_grid else f"{self.in_grid} -> {self.out_grid}"
        return f"{len(self.boxes)} boxes on the grid {grids}, {kinds}"


def _planes(box: Shifted, low: int, high: int) -> Shifted | None:
    """The part of a box in planes `low` to `high`; None where it has none."""
    if not box.lo:
        return box if low < high else None
    a, b = max(box.lo[0], low), min(box.lo[0] + box.shape[0], high)
    if a >= b:
        return None
    shift = box.start[0] - box.lo[0]
    return Shifted((a, *box.lo[1:]), (b - a, *box.shape[1:]), (a + shift, *box.start[1:]))


def _places(lo: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Numbers of the points of a box, int64, as the whole grid may have more than int32 counts."""
    found = np.zeros((1,) * len(shape), np.int64)
    for axis, (a, n, stride) in enumerate(zip(lo, shape, strides, strict=True)):
        line = (a + np.arange(n, dtype=np.int64)) * stride
        found = found + line.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(found, tuple(shape)).reshape(-1)


class CoefficientOrder(ValueOrder):
    """Coefficients of shifts, numbers or arrays of the grid, of which those on the other grid are stored.

    `places` is the number of the box of each shift; -1: all of it lies outside.
    """

    @cached_property
    def slots(self) -> np.ndarray:
        structure: Any = self.structure
        numbers, parts = self.places[0] if self.places else (), [np.zeros(0, np.int32)]
        first = np.cumsum([0, *map(math.prod, structure.value_shapes)], dtype=np.int32)
        for number, shape in zip(numbers, self.shapes, strict=True):
            slots = np.full(shape, -1, np.int32)
            if number >= 0:
                stored = structure.value_shapes[number]
                own = first[number] + np.arange(math.prod(stored), dtype=np.int32).reshape(stored)
                slots[structure.boxes[number].rows if shape else ()] = own
            parts.append(slots.ravel())
        return np.concatenate(parts)


class Stencil(SparseMatrix):
    """`out[i] = sum over k of coefficients[k] * in[i + shifts[k]]` on an n-d grid; what lies outside counts as 0.

    Args:
        coefficients: for each shift a number (of any library, possibly traced), or an array of `out_shape`. For a
            batch of matrices some or all have an axis of the systems in front: arrays `(systems, *out_shape)`, and
            numbers `(systems, 1, ..., 1)`.
        shifts: `(k, ndim)` integers, none twice.
        in_shape: of the arrays that it takes.
        out_shape: of those that it returns; None: the same.

    Raises:
        ValueError: numbers of shifts and coefficients, axes, or shapes do not fit; a shift is given twice.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import Stencil
        >>> A = Stencil([2.0, -1.0, -1.0], shifts=[[0], [1], [-1]], in_shape=(4,))
        >>> A(np.ones(4))
        array([1., 0., 0., 1.])
    """

    structure_class = StencilStructure

    def __init__(self, coefficients: Any, shifts: Any, in_shape: Any, out_shape: Any = None) -> None:
        ins = tuple(int(n) for n in in_shape)
        outs = ins if out_shape is None else tuple(int(n) for n in out_shape)
        check_shape((math.prod(outs), math.prod(ins)))
        steps = [tuple(int(s) for s in shift) for shift in np.asarray(shifts).reshape(len(shifts), -1)]
        if len(steps) != len(coefficients) or len(outs) != len(ins) or any(len(s) != len(ins) for s in steps):
            got = f"{len(coefficients)} coefficients, {len(steps)} shifts {steps} and the grids {ins}, {outs}"
            raise ValueError(f"{got} were given; expected a coefficient for each shift, and a shift along each axis.")
        if len(set(steps)) < len(steps):
            raise ValueError(f"The shifts {steps} were given; expected each once. Add up the coefficients.")
        bk = choose_backend([c for c in coefficients if not isinstance(c, (int, float, complex))])
        given = [c if hasattr(c, "shape") else np.asarray(c) for c in coefficients]
        systems, shapes, numbers = _systems_of(given, outs), [], []
        boxes: list[Shifted] = []
        values: list[Any] = []
        for step, c in zip(steps, given):
            box = _natural(step, outs, ins)
            shapes.append(outs if tuple(c.shape[systems is not None and len(c.shape) > len(outs) :]) == outs else ())
            numbers.append(-1 if box is None else len(boxes))
            if box is not None:
                boxes.append(box)
                values.append(_cut(c, box, outs, systems))
        if not boxes:  # the values carry dtype and device
            boxes = [Shifted((0,) * len(outs), (0,) * len(outs), (0,) * len(ins))]
            values = [_zero(bk, given, systems)]
        values = _of_one_dtype(bk, values, all(isinstance(c, (int, float)) for c in coefficients))
        axes = 0 if systems is None else 1
        structure = StencilStructure(outs, ins, boxes, [len(v.shape) == axes for v in values])
        self._set(bk, structure, values, None, ins, outs)
        if tuple(shapes) != structure.value_shapes:
            self.value_order = CoefficientOrder(structure, tuple(shapes), (np.asarray(numbers),))

    @property
    def own_grid(self) -> Grid | None:
        structure: Any = self.structure
        return structure.in_grid if structure.in_grid == structure.out_grid else None


def _zero(bk: Backend, coefficients: Sequence[Any], systems: int | None) -> Any:
    """Zero of the promoted dtype for coefficients whose shifts all leave the grid, one for each system."""
    shape = () if systems is None else (systems,)
    if all(isinstance(c, (np.ndarray, np.generic)) for c in coefficients):
        return np.zeros(shape, np.result_type(*(c.dtype for c in coefficients)) if len(coefficients) else float)
    first = next(c for c in coefficients if not isinstance(c, (np.ndarray, np.generic)))
    dtype = np.result_type(*(bk.dtype(bk.asarray(c)) for c in coefficients))
    return bk.zeros(shape, dtype, first)


def _of_one_dtype(bk: Backend, values: list[Any], plain: bool) -> list[Any]:
    """NumPy arrays if all are, else arrays of the library; `plain`: Python's numbers, in the library's precision."""
    if all(isinstance(v, (np.ndarray, np.generic)) for v in values):
        dtype = bk.default_float if plain else np.result_type(np.float32, *(v.dtype for v in values))
        return [np.array(v, dtype) for v in values]
    arrays = [bk.asarray(v) for v in values]
    dtype = np.result_type(np.float32, *(bk.dtype(v) for v in arrays))
    return [bk.astype(v, dtype) for v in arrays]


def _natural(shift: Grid, outs: Grid, ins: Grid) -> Shifted | None:
    """Box of all rows whose column is on the grid; None where there are none."""
    lo = tuple(max(0, -s) for s in shift)
    shape = tuple(min(n, m - s) - a for n, m, s, a in zip(outs, ins, shift, lo))
    return Shifted(lo, shape, tuple(a + s for a, s in zip(lo, shift))) if min(shape, default=1) > 0 else None


def _systems_of(coefficients: Sequence[Any], grid: Grid) -> int | None:
    """Number of systems of the coefficients; None where they have no such axis."""
    found = {int(c.shape[0]) for c in coefficients if len(c.shape) > len(grid)}
    if len(found) > 1:
        raise ValueError(f"Coefficients of {' and '.join(map(str, sorted(found)))} systems were given; expected one.")
    return found.pop() if found else None


def _cut(c: Any, box: Shifted, grid: Grid, systems: int | None) -> Any:
    """The part of a coefficient in a box: a number or an array of its shape, of a batch one for each system."""
    shape = tuple(int(n) for n in c.shape)
    own = systems is not None and len(shape) > len(grid)
    expected = (grid, (), (1,) * len(grid)) if own else (grid, ())
    if shape[own:] not in expected:
        raise ValueError(
            f"A coefficient of the shape {shape} was given; expected a number or an array of {grid}, or for a batch "
            f"(systems, *{grid}), and (systems{', 1' * len(grid)}) for numbers."
        )
    number = shape[own:] != grid or not grid
    part = c if number else c[(slice(None),) * own + box.rows]
    if systems is None:
        return part
    bk = choose_backend(c)
    return bk.broadcast_to(
        bk.reshape(part, (systems,)) if own and number else part, (systems, *(() if number else box.shape))
    )


# --- stencils of traced functions ---

_MOST_BOXES = 64  # each is a pass over the grid, though compilers join some


class StridedBox(Protocol):
    """Rows `lo + i` of the output's grid, i in a box of `shape`, have the column `offset + sum(strides * i)`.

    `coefficient` is a number or an array of the box's shape (or one that broadcasts to it), NumPy if it is known;
    `mask` says where of the box there are entries, None: everywhere.
    """

    @property
    def lo(self) -> tuple[int, ...]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def coefficient(self) -> Any: ...
    @property
    def mask(self) -> np.ndarray | None: ...


def stencil_of(
    bk: Backend,
    boxes: Sequence[StridedBox],
    in_shape: Grid,
    out_shape: Grid,
    *,
    dtype: np.dtype,
    like: Array | None = None,
) -> SparseMatrix | None:
    """The stencil of boxes whose coefficients are numbers; None where it is none, or another format multiplies faster.

    Each box must be a box on the grid of the input, too, and no two may share a place. NumPy and PyTorch run through
    memory once per box, so that there DIA is faster.
    """
    if not bk.fuses_elementwise:
        return None
    if len(in_shape) != len(out_shape) or len(boxes) > _MOST_BOXES:
        return None
    kept = [box for box in boxes if not (_known(box.coefficient) and not np.any(box.coefficient))]
    if not kept or any(_axes(box.coefficient) or box.mask is not None for box in kept):
        return None
    shifted = [found for box in kept if (found := shifted_box(box, in_shape)) is not None]
    if len(shifted) < len(kept) or any(a.overlaps(b) for a, b in combinations(shifted, 2)):
        return None
    values = [box.coefficient for box in kept]
    if all(_known(v) for v in values):
        cast: list[Any] = [np.asarray(v, dtype) for v in values]
    else:
        cast = [bk.asarray(np.asarray(v, dtype), like=like) if _known(v) else bk.astype(v, dtype) for v in values]
    structure = StencilStructure(out_shape, in_shape, shifted, [True] * len(kept))
    matrix = SparseMatrix.build(bk, structure, cast, like=like, in_shape=in_shape, out_shape=out_shape)
    matrix.reason = f"{len(kept)} boxes with a number each"
    return matrix


def _known(c: Any) -> bool:
    return isinstance(c, (np.ndarray, np.generic, int, float, complex))


def _axes(c: Any) -> int:
    return np.ndim(c) if _known(c) else len(c.shape)


def shifted_box(box: StridedBox, grid: Grid) -> Shifted | None:
    """The box on both grids; None where its columns are no box of consecutive points there."""
    start, offset = [], box.offset
    for k, n, stride, distance in zip(box.shape, grid, box.strides, row_strides(grid), strict=True):
        if not n or (k > 1 and stride != distance):
            return None
        at, offset = divmod(offset, distance)
        if at < 0 or at + k > n:
            return None
        start.append(at)
    return Shifted(tuple(box.lo), tuple(box.shape), tuple(start))
