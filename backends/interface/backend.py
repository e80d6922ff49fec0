"""The Backend class: the array operations that solvers and matrices use, one small method each.

Conventions. Inside solvers a vector is `(batch, n)` and a scalar per system `(batch, 1)`. A method whose name says
that it updates (`axpy`, `xpay`) may overwrite the array named `y`, which the caller must own; nothing else is ever
written to. Dtypes are NumPy dtypes on every backend.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from numbers import Number
from typing import Any, ClassVar

import numpy as np

from ..operations.binding import NamedOperations
from ..settings import get_precision
from .arrays import SMALL, have_one_dtype, pairs_alike, pairs_with_int, scattered
from .arrays import Array as Array
from .containers import Opened, flatten_with_structure
from .control import Control
from .cuts import Collectives, Cut
from .devices import Devices
from .functions import Transformations
from .kernels import Fourier, Kernels, Linalg

entered: ContextVar[tuple[Backend, ...]] = ContextVar("krylix_backends", default=())  # by `with backend:`
_SAFE_SQUARES = {"f": (1e-20, 1e30), "d": (1e-200, 1e300)}  # far from both ends


class Backend(Control, Kernels, Transformations, Devices, Collectives, NamedOperations):
    """One array library. Use as a context (`with choose_backend("torch"):`) to make it the default."""

    linalg: Linalg  # dense factorisations
    fourier: Fourier  # transforms
    sparse: Any  # reads and makes sparse matrices of the library itself, see numpy/sparse.py
    _native_dtypes: ClassVar[Mapping[Any, np.dtype]] = {}  # those of which `_select` chooses as `xp.where` does

    is_eager: ClassVar[bool] = False  # is control flow always Python's, never compiled?
    raises_in_programs: Any = True  # can a compiled program raise an error, in every process that runs it?
    updates_in_place: ClassVar[bool] = False  # do `axpy` and `xpay` overwrite memory?
    on_host: ClassVar[bool] = False  # are its arrays NumPy's, accepted by SciPy, and constants to other libraries?
    has_compiled_rows: ClassVar[bool] = False  # is its CSR product the fastest for scattered entries?
    fuses_elementwise: ClassVar[bool] = False  # does a compiler fuse elementwise operations?
    has_windows: ClassVar[bool] = False  # is `window` a single operation, fused with those that follow?
    has_pure_arrays: ClassVar[bool] = False  # immutable, no autograd record: may results be cached by array?
    always_writable: ClassVar[bool] = False  # are all arrays writable, so that only a copy protects one?
    has_unknown_sizes: ClassVar[bool] = False  # may sizes in compiled functions depend on numbers?
    requires_fixed_shapes_when_tracing: ClassVar[bool] = False  # is a function compiled for each shape?
    prefers_channels_last: ClassVar[bool] = False  # are channels behind grids quicker than in front?

    def __repr__(self) -> str:
        return f"<krylix backend {self.name}>"

    def __enter__(self) -> Backend:
        entered.set((*entered.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        entered.set(entered.get()[:-1])

    @classmethod
    def _module(cls, name: str) -> Any:
        """The module of this name in the folder of a library: "devices", "standard", "operations"; None: there is none.

        Late, by name: most solves need none of them, and only the folder of a library imports the library.
        """
        of_all = ("", __package__, __package__.rpartition(".")[0])  # packages that belong to no library
        for owner in cls.__mro__:
            package = owner.__module__.rpartition(".")[0]
            beside = f"{package}.{name}"
            if package not in of_all and (beside in sys.modules or find_spec(beside)):
                return import_module(beside)
        return None

    @cached_property
    def _own_operations(self) -> Any:
        return self._module("operations")

    @classmethod
    def _needed_module(cls, name: str, contents: str) -> Any:
        module = cls._module(name)
        if module is None:
            raise TypeError(
                f"{cls.__name__} has no module {name!r} beside it; expected one with {contents}, as the folders in "
                "krylix.backends have, or a backend made of a namespace by krylix.register_backend."
            )
        return module

    # --- arrays -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def is_array(self, x: Any) -> bool:
        """Is `x` a dense array of this library?"""

    @abstractmethod
    def asarray(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        """`x` (an array of this library, of NumPy, or nested lists) as an array of this library on `like`'s device."""

    @abstractmethod
    def to_numpy(self, x: Array) -> np.ndarray:
        """The array on the host; may share memory with `x`, so treat it as read-only."""

    @abstractmethod
    def dtype(self, x: Array) -> np.dtype:
        """NumPy dtype of `x`."""

    @abstractmethod
    def astype(self, x: Array, dtype: np.dtype) -> Array:
        """`x` in another dtype; `x` itself where it has that dtype already."""

    def device(self, x: Array) -> Hashable:
        """Where `x` lives, to compare with `==`; None where the library moves arrays by itself."""
        return None

    def compiled(self, *arrays: Any) -> bool:
        """Are we inside a compiled function (some array has no value yet)?"""
        return False

    def at_once(self) -> AbstractContextManager[Any]:
        """Context in which operations on concrete arrays run eagerly, also while a function is traced."""
        return nullcontext()

    def concrete_value(self, function: Callable[[], Array]) -> np.ndarray | None:
        """The value of `function()` while tracing; None where only a run of the program knows it."""
        return None if self.compiled() else self.to_numpy(function())

    def constant_folded(self, x: Array) -> np.ndarray | None:
        """The value of an array that is a constant of the traced program, on one device; None for others.

        Use it only for what has no derivatives: a program may be differentiated later by what it closes over.
        """
        return None

    def is_concrete(self, x: Array) -> bool:
        """Has `x` a value that can be read now, without waiting for another device?"""
        return False

    def copy(self, x: Array) -> Array:
        """A copy that the caller owns; `x` itself where arrays are immutable."""
        return x

    def uncut(self, x: Array) -> Array:
        """A constant array whose rows are used one by one, kept from being split element by element in the compiler."""
        return x

    def apart(self, x: np.ndarray) -> Any:
        """A constant array in the library; a tuple along its first axis where a compiler would split it slowly."""
        return self.asarray(x)

    def materialize(self, x: Array) -> Array:
        """`x`, stored in memory (`optimization_barrier`): a compiler could recompute its elements at each use."""
        return x

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return self.xp.reshape(x, tuple(shape))

    def spreads_arrays(self) -> bool:
        """May a compiler shard arrays over several devices, so that moving entries costs communication?"""
        return False

    def on_grid(self, rows: Array, grid: Sequence[int], cut: Cut | None = None) -> Array:
        """Rows `(batch, n)` in the form in which grid vectors keep their sharding; mostly the rows themselves.

        The other form supports elementwise functions, `dot`, `sum` over each row, `max_abs`, and combinations of these.

        Args:
            cut: how `(batch, *grid)` is distributed over a device mesh, where that is known.
        """
        return rows

    def known_cut(self, rows: Array) -> Cut | None:
        """The distribution that `on_grid` was told."""
        return None

    def flat(self, rows: Array) -> Array:
        """Inverse of `on_grid`: rows `(batch, n)`."""
        return rows

    def stack(self, arrays: Sequence[Array], axis: int = 0) -> Array:
        """Stack arrays along a new axis."""
        return self.xp.stack(arrays, axis=axis)

    def stack_materialized(self, arrays: Sequence[Array]) -> Array:
        """`stack` with each array materialized, at hardly more compile time than for the arrays themselves."""
        return self.materialize(self.stack(arrays))

    def broadcast_to(self, x: Array, shape: Sequence[int]) -> Array:
        return self.xp.broadcast_to(x, tuple(shape))

    def call_user(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        """Call a user's function in the context that it expects; it must not write to `x`."""
        return function(x, *args)

    def check_numbers(self, x: Any, what: str) -> None:
        """Refuse an array of the library without values (such as a meta tensor); `what` names it in the message."""
        return None

    def read_only(self, x: Array) -> Array:
        """A read-only view of `x`, where the library has such."""
        return x

    def leaves(self, tree: Any) -> tuple[list[Any], Any]:
        """Leaves and structure of a container of arrays; an array is its own only leaf, with structure None.

        Nested lists of numbers count as one array, to be converted later.
        """
        if self.is_array(tree):
            return [tree], None
        leaves, structure = flatten_with_structure(tree, self._open_container)
        if isinstance(tree, list | tuple) and all(isinstance(leaf, Number | np.number) for leaf in leaves):
            return [tree], None
        return leaves, structure

    def unleaves(self, structure: Any, leaves: Sequence[Array]) -> Any:
        """Rebuild the container with other leaves."""
        return leaves[0] if structure is None else structure.rebuild(leaves)

    def _open_container(self, x: Any) -> Opened | None:
        """Open a container type registered with the library, other than dictionaries, lists and tuples."""
        return None

    # --- elementwise and reductions -----------------------------------------------------------------------------------

    @cached_property
    def _pairs(self) -> tuple[frozenset[Any], frozenset[Any]]:
        return pairs_alike(self._native_dtypes), pairs_with_int(self._native_dtypes)

    def _promotes(self, a: Any, b: Any) -> bool:
        """Do the library's functions promote these operands as `xp` does?"""
        alike, with_int = self._pairs
        pair = (getattr(a, "dtype", type(a)), getattr(b, "dtype", type(b)))
        return pair in alike or (pair in with_int and (a if pair[0] is int else b) in SMALL)

    def where(self, condition: Array, a: Any, b: Any) -> Array:
        return self._select(condition, a, b) if self._promotes(a, b) else self.xp.where(condition, a, b)

    def _select(self, condition: Array, a: Any, b: Any) -> Array:
        """`where` of operands that the library promotes as `xp` does, in a third of the time."""
        return self.xp.where(condition, a, b)

    def maximum(self, a: Array, b: Any) -> Array:
        return self.xp.maximum(a, b)

    def sqrt(self, x: Array) -> Array:
        return self.xp.sqrt(x)

    def abs(self, x: Array) -> Array:
        return self.xp.abs(x)

    def real(self, x: Array) -> Array:
        return self.xp.real(x)

    def conj(self, x: Array) -> Array:
        return self.xp.conj(x)

    def isfinite(self, x: Array) -> Array:
        return self.xp.isfinite(x)

    def negated(self, condition: Array) -> Array:
        """Where a comparison does not hold, as those of NaN; TensorFlow's graphs take `~(a < b)` for `a >= b`."""
        return ~condition

    def any(self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
        """Is any element true, that is not 0, or any along some axes?"""
        return self.xp.any(x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)

    def max_abs(self, v: Array) -> Array:
        """`(batch, n)` -> real `(batch, 1)`: the largest absolute value of each row."""
        size, count = self.abs(v), v.shape[1]
        largest = (self.xp.sum if count == 0 else self.xp.max)(size, axis=1, keepdims=True)
        return self.maximum(largest, 0) if count is None else largest  # of rows that may be found to be empty

    @abstractmethod
    def dot(self, a: Array, b: Array) -> Array:
        """`(batch, n)` twice -> `(batch, 1)`: sum of conj(a) b over each row."""

    def dots(self, *pairs: tuple[Array, Array]) -> tuple[Array, ...]:
        """`dot` of each pair of one dtype: one reduction for all of them where vectors are spread over devices."""
        return tuple(self.dot(a, b) for a, b in pairs)

    def sum(
        self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False, dtype: Any = None
    ) -> Array:
        """`x` summed over all axes or some, integers in the widest dtype; `x` itself where there are none."""
        axis = tuple(axis) if isinstance(axis, list) else axis
        return self.xp.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)

    def square_norm(self, v: Array) -> Array:
        """`(batch, n)` -> real `(batch, 1)`: the squared 2-norm of each row. May overflow or underflow; see `norm`."""
        return self.real(self.dot(v, v))

    def norm(self, v: Array) -> Array:
        """`(batch, n)` -> real `(batch, 1)`: the 2-norm of each row, for entries of any magnitude.

        Scales by a power of two, which is exact, unless the squares are known to stay in range.
        """
        if self.is_concrete(v):
            square = self.square_norm(v)
            low, high = _SAFE_SQUARES[self.dtype(square).char]
            if not self.any(~((square > low) & (square < high))):
                return self.sqrt(square)
        scale = self.binary_scale(v)
        return scale * self.sqrt(self.square_norm(self.times(1 / scale, v)))

    def binary_scale(self, v: Array) -> Array:
        """`(batch, n)` -> real `(batch, 1)`: the power of two just below each row's largest entry.

        1 for a row that is zero or not finite. Dividing by it is exact, so a solve does not depend on units. It stays
        where its inverse is a normal number too, as compilers flush others to zero.
        """
        largest = self.max_abs(v)
        dtype = self.dtype(largest)
        power, one = self.unit_in_first_place(largest), self.asarray(1, dtype, like=largest)
        low = float(np.finfo(dtype).tiny)
        power = self.where(power < low, one * low, self.where(power > 1 / low, one * (1 / low), power))
        return self.where((largest > 0) & self.isfinite(largest), power, one)

    @abstractmethod
    def unit_in_first_place(self, x: Array) -> Array:
        """Largest power of two not above `x >= 0`: the mantissa bits are cleared."""

    def times(self, scalar: Array, v: Array) -> Array:
        """Real `(batch, 1)` times real or complex `(batch, n)`."""
        return self.astype(scalar, self.dtype(v)) * v

    def zeros_like(self, x: Array, dtype: Any = None) -> Array:
        """A new array of zeros of `x`'s shape, device and dtype, or another one."""
        return self.zeros(tuple(x.shape), self.dtype(x) if dtype is None else np.dtype(dtype), x)

    def scatter_numbers(self, n: int, dtype: np.dtype, like: Array) -> Array:
        """`(n,)` deterministic pseudo-random numbers in [-0.5, 0.5), by formula: no generator, no large constant."""
        return self.asarray(scattered(np, np.arange(1, n + 1, dtype=np.float64)), dtype, like)

    def safe_divide(self, a: Array, b: Array) -> Array:
        """`a / b`, and 0 where `b` is 0."""
        if not have_one_dtype((a, b)) or self.dtype(a).kind in "biu":
            a, b = self._composed("auto_cast")(a, b, int_to_float=True)
        zero = b == 0
        return self.where(zero, 0, a / self.where(zero, 1, b))

    def full_like(self, x: Array, value: complex | bool, dtype: Any = None) -> Array:
        """A new array of `x`'s shape and device, filled with one number."""
        return self.full(tuple(x.shape), value, np.dtype(dtype) if dtype is not None else self.dtype(x), x)

    # --- several vectors for each system: a stack `(batch, k, n)`, flat `(batch, k n)` where rows are frozen ----------

    def room_for(self, v: Array, count: int) -> Array:
        """A stack of zeros for `count` vectors per system, like v `(batch, n)`."""
        return self.zeros((int(v.shape[0]), count, int(v.shape[1])), self.dtype(v), v)

    def unfold(self, flat: Array, count: int) -> Array:
        """A flat stack as `(batch, count, n)`; a view where the library has views."""
        return self.reshape(flat, (int(flat.shape[0]), count, int(flat.shape[1]) // count))

    def fold(self, stack: Array) -> Array:
        """`(batch, k, n)` as `(batch, k n)`."""
        return self.reshape(stack, (int(stack.shape[0]), int(stack.shape[1]) * int(stack.shape[2])))

    # --- dense matrices -----------------------------------------------------------------------------------------------

    @abstractmethod
    def product(self, matrix: Array, x: Array) -> Array:
        """`(n, m)` or `(batch, n, m)` times each row of `(batch, m)` -> `(batch, n)`."""

    def matrix_transpose(self, matrix: Array) -> Array:
        """Swap the last two axes."""
        return self.xp.matrix_transpose(matrix)

    def diagonal(self, matrix: Array, offset: int = 0) -> Array:
        """`(..., n, n)` -> `(..., n)`; above the main diagonal by `offset`."""
        return self.xp.linalg.diagonal(matrix, offset=offset)

    # --- new arrays, and the array API standard -----------------------------------------------------------------------

    @property
    def default_float(self) -> np.dtype:
        """The dtype that this library gives to real numbers by default."""
        return np.dtype(np.float64)

    @property
    def float_type(self) -> np.dtype:
        """The dtype of new real numbers: of `krylix.precision`, or else the library's own."""
        bits = get_precision()
        return self.default_float if bits is None else np.dtype(f"float{bits}")

    @property
    def complex_type(self) -> np.dtype:
        """The dtype of new complex numbers, whose parts are real ones of `float_type` or wider."""
        return np.promote_types(self.float_type, np.complex64)

    def stored_dtype(self, dtype: np.dtype) -> np.dtype:
        """The dtype that a NumPy array of `dtype` becomes in the library: JAX may be set to single precision."""
        return np.dtype(dtype)

    def enable_double_precision(self) -> None:
        """Enable double precision for the rest of the process, where the library has a switch for it."""
        return None

    def zeros(
        self, shape: int | Sequence[int], dtype: Any = None, like: Array | None = None, device: Any = None
    ) -> Array:
        """A new array of zeros, on `like`'s device or another; of `float_type` where no dtype is given."""
        if isinstance(dtype, np.dtype) and device is None:
            return self._zeros(shape, dtype, like)
        return self.full(shape, 0, self.float_type if dtype is None else dtype, like, device)

    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array:
        return self._full(shape, 0, dtype, like)

    def full(
        self, shape: int | Sequence[int], value: Any, dtype: Any = None, like: Array | None = None, device: Any = None
    ) -> Array:
        """A new array filled with one number, on `like`'s device or another; of the number's dtype, as in `xp.full`."""
        if isinstance(dtype, np.dtype) and device is None:
            return self._full(shape, value, dtype, like)
        made = self.xp.full(shape, value, dtype=dtype)
        if device is not None:
            return self.to_device(made, device)
        return made if like is None else self.asarray(made, like=like)

    @abstractmethod
    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array: ...

    @cached_property
    def xp(self) -> Any:
        """The array API standard 2024.12 on this library: functions, dtypes, `linalg` and `fft`, alike on all four.

        One promotion rule holds: an integer with real or complex numbers gives the latter's dtype, arrays without axes
        count as arrays, and numbers of Python only raise the kind. `krylix.precision` sets the dtype of new real
        numbers. What a library has beyond the standard is no part of it.
        """
        return self._needed_module("standard", "the namespace `xp`").xp

    # --- updates of vectors, which may overwrite the array named `y`, and that alone ----------------------------------

    def axpy(self, a: Array, x: Array, y: Array) -> Array:
        """`y + a x`; may overwrite `y`."""
        return y + a * x

    def xpay(self, x: Array, a: Array, y: Array) -> Array:
        """`x + a y`; may overwrite `y`."""
        return x + a * y

    def axpy_norm(self, a: Array, x: Array, y: Array) -> tuple[Array, Array]:
        """`y + a x` and its squared norm; may overwrite `y`."""
        y = self.axpy(a, x, y)
        return y, self.square_norm(y)

    def axpy_xpay(self, a: Array, p: Array, x: Array, z: Array, b: Array) -> tuple[Array, Array]:
        """`x + a p` and `z + b p`; may overwrite `x` and `p`."""
        return self.axpy(a, p, x), self.xpay(z, b, p)

    def axpy_block(self, c: Array, x: Array, y: Array) -> Array:
        """`y + c x` with c `(k, m)`, a few rows x `(m, n)` and y `(k, n)`; may overwrite `y`."""
        return y + self.product(self.matrix_transpose(x), c)

    def xpay_block(self, x: Array | None, c: Array, y: Array) -> Array:
        """`x + c y` with c `(k, k)`, x (zero where None) and a few rows y `(k, n)`; may overwrite `y`."""
        image = self.product(self.matrix_transpose(y), c)
        return image if x is None else x + image

    def by_parts(self, function: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]], *blocks: Array) -> Any:
        """`function(*blocks)` -> (new values of the first blocks, sums over n); these blocks may be overwritten.

        Blocks are a few long rows `(k, n)`. The function treats all n positions alike, so a library may call it
        blockwise.
        """
        return function(*blocks)

    # --- vectors of which this process or device holds a part ---------------------------------------------------------

    communicator: Any = None  # of the members that hold the parts of vectors, see `Communicator`
    _communicators: ClassVar[str] = ""  # what `over=` takes with arrays of the library
    _of_members: ClassVar[tuple[type, ...]] = ()  # what it needs beside `communicators.SumsOverMembers`

    def _communicator(self, over: Any) -> Any:
        """The `Communicator` of what a user gave as `over=`; None if it is none for arrays of this library."""
        return None

    def stack_dots(self, stack: Array, v: Array) -> Array:
        """`(k, n)` or `(batch, k, n)` and each row of `(batch, n)` -> `(batch, k)`: sums over n, nothing conjugated."""
        return self.product(stack, v)

    def unknowns(self, v: Array) -> int:
        """Length n of rows `(batch, n)`; of parts the sum over all members, at the cost of a message."""
        return int(v.shape[1])

    def replicated(self, x: Array) -> Array:
        """A number that is the same in all members, in the type of such a number."""
        return x
