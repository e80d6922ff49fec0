"""The dtypes of a library of the array API standard, and its functions under the one promotion rule of `backend.xp`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..interface.arrays import Array
from ..interface.devices import ComputeDevice, host_device
from ..interface.kernels import CooEntries
from ..standard.library import DTYPES, RULES, ArrayLibrary
from ..standard.namespace import Namespace

_OPERANDS = {"pair", "first_pair", "power", "real_pair", "listed", "where", "clip", "diff"}  # rules for several arrays
_WITH_ARRAYS = ("broadcast_arrays", "meshgrid", "repeat", "take", "take_along_axis")  # of other rules
_CREATION = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")


class ArrayApiLibrary(ArrayLibrary):
    """A library as its own namespace tells it.

    Args:
        namespace: what `x.__array_namespace__()` gives.
        module: its name.
    """

    def __init__(self, namespace: Any, module: str) -> None:
        self.namespace, self.name, self.module = namespace, module, module
        self.array_type = type(namespace.zeros(1))
        self.natives = {np.dtype(name): _dtype(namespace, name) for name in DTYPES if hasattr(namespace, name)}
        self._defaults = _default_dtypes(namespace)
        super().__init__()

    @property
    def default_float(self) -> np.dtype:
        return self._default("real floating", np.dtype(np.float64))

    @property
    def default_integer(self) -> np.dtype:
        return self._default("integral", np.dtype(np.int64))

    def _default(self, kind: str, otherwise: np.dtype) -> np.dtype:
        return self.numpy_dtypes.get(self._defaults.get(kind), otherwise)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, self.array_type)

    def cast(self, x: Any, dtype: Any) -> Any:
        return self.namespace.astype(x, dtype)

    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        device = None if like is None else like.device
        if isinstance(x, np.ndarray | np.generic):
            x = np.ascontiguousarray(x, self.numpy_dtypes[dtype]).reshape(np.shape(x))
        return self.namespace.asarray(x, dtype=dtype, device=device)

    def stack(self, arrays: list[Any]) -> Any:
        return self.namespace.stack(arrays)

    def devices(self) -> list[Any]:
        return devices_of(self.namespace) or [None]

    def native(self, dtype: Any) -> Any:
        """NumPy's first, since array_api_strict warns where its dtypes are compared with these."""
        numpy_dtype = None if dtype is None else _as_of_arrays(dtype)
        if isinstance(numpy_dtype, np.dtype) and numpy_dtype in self.natives:
            return self.natives[numpy_dtype]
        return super().native(dtype)

    def standard(self, device: Callable[[], Any]) -> Namespace:
        """The namespace of the standard, of the library's functions.

        Args:
            device: the one on which this thread makes new arrays; None leaves it to the library.
        """

        def there(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def made(*args: Any, **keywords: Any) -> Any:
                own = args[0] if args and self.is_array(args[0]) else None  # stays where it is
                if keywords.get("device") is None and own is None:
                    keywords["device"] = device()
                return function(*args, **keywords)

            return made

        made = {name: there(getattr(self.namespace, name)) for name in _CREATION if hasattr(self.namespace, name)}
        own = {
            "": SimpleNamespace(
                **made,
                take=self._with_constants(self._take),
                maximum=self._maximum(),
                real=self._of_complex("real"),
                conj=self._of_complex("conj"),
            ),
            "linalg": None,
            "fft": self._complex_transforms(),
        }
        library = {e: getattr(self.namespace, e, None) if e else self.namespace for e in own}
        return Namespace(self, {e: (own[e], self._of_operands(library[e], e), library[e]) for e in own})

    def _of_operands(self, module: Any, extension: str) -> SimpleNamespace:
        """Those functions of a module that take several arrays: NumPy's are constants beside the library's own."""
        names = [name.rpartition(".") for name, rule in RULES.items() if rule in _OPERANDS or name in _WITH_ARRAYS]
        there = [own for within, _, own in names if within == extension and hasattr(module, own)]
        return SimpleNamespace(**{own: self._with_constants(getattr(module, own)) for own in there})

    def _with_constants(self, function: Callable[..., Any]) -> Callable[..., Any]:
        is_array = self.is_array

        @wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            if all(map(is_array, args)):
                return function(*args, **keywords)
            like = next((x for arg in args for x in (arg if isinstance(arg, list) else [arg]) if is_array(x)), None)
            return function(*(self._beside(arg, like) for arg in args), **keywords)

        return called

    def _beside(self, x: Any, like: Any) -> Any:
        """NumPy's arrays, also in a list, as the library's own, where `like` is; anything else as it is."""
        if isinstance(x, list):
            return [self._beside(one, like) for one in x]
        if like is None or not isinstance(x, np.ndarray | np.generic):
            return x
        return self.constant(x, self.native(x.dtype), like)

    def _maximum(self) -> Callable[..., Any]:
        """The library's own, which the standard has since 2023.12; else made of others, NaN wherever one is."""
        where = self.namespace.where
        own = getattr(self.namespace, "maximum", lambda x1, x2: where((x1 >= x2) | (x1 != x1), x1, x2))
        return self._with_constants(own)

    def _of_complex(self, name: str) -> Callable[..., Any]:
        """The library's own for complex numbers; real ones, which it may copy or refuse, stay as they are."""
        own = getattr(self.namespace, name)

        @wraps(own)
        def part(x: Any, /) -> Any:
            return own(x) if self.kinds[x.dtype] == "c" else x

        return part

    def _take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
        """With indices of any number of axes; the standard has them with one."""
        axis = 0 if axis is None else axis % x.ndim
        taken = self.namespace.take(x, self.namespace.reshape(indices, (-1,)), axis=axis)
        return self.namespace.reshape(taken, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def _complex_transforms(self) -> SimpleNamespace:
        """Of real numbers, too, which libraries may refuse."""
        fft = getattr(self.namespace, "fft", None)

        def of_any(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def transform(x: Any, /, **keywords: Any) -> Any:
                if self.kinds[x.dtype] == "f":
                    x = self.namespace.astype(x, self.natives[np.result_type(self.numpy_dtypes[x.dtype], np.complex64)])
                return function(x, **keywords)

            return transform

        names = [name for name in ("fft", "fftn", "ifft", "ifftn") if hasattr(fft, name)]
        return SimpleNamespace(**{name: of_any(getattr(fft, name)) for name in names})


def _dtype(namespace: Any, name: str) -> Any:
    return _as_of_arrays(getattr(namespace, name))


def _as_of_arrays(dtype: Any) -> Any:
    """A dtype as arrays have it: libraries with NumPy's dtypes offer the classes of its numbers."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return dtype


def _info(namespace: Any) -> Any:
    """What the namespace tells of itself since the standard of 2023; None of an older one."""
    own = getattr(namespace, "__array_namespace_info__", None)
    return None if own is None else own()


def _default_dtypes(namespace: Any) -> dict[str, Any]:
    info = _info(namespace)
    if info is None:
        return {}
    return {kind: _as_of_arrays(dtype) for kind, dtype in info.default_dtypes().items()}


def devices_of(namespace: Any) -> list[Any]:
    """The devices that the library tells, the default one first; none if it is of an older standard."""
    info = _info(namespace)
    if info is None:
        return []
    first = info.default_device()
    others = [device for device in info.devices() if device is not None and device != first]
    return others if first is None else [first, *others]


# --- Devices of a library of the array API standard, as its namespace tells them --------------------------------------

_TYPES = {1: "CPU", 2: "GPU", 3: "GPU", 7: "GPU", 8: "GPU", 10: "GPU", 13: "GPU", 14: "GPU"}  # DLPack's numbers


class ArrayApiDevices:
    """See `DeviceModule`; the default is krylix's own, of this thread, where the standard knows none that can be set.

    Args:
        namespace: of the library.
        name: of the backend.
    """

    def __init__(self, namespace: Any, name: str) -> None:
        self.namespace, self.name = namespace, name
        self.chosen: ContextVar[Any] = ContextVar(f"krylix_device_of_{name}", default=None)

    def all_devices(self) -> list[ComputeDevice]:
        """Those of the namespace; of an older standard that of a new array."""
        every = devices_of(self.namespace) or [self._of_new_arrays()]
        return [self._described(ref) for ref in every]

    def _described(self, ref: Any) -> ComputeDevice:
        try:
            number = self.namespace.zeros(1, dtype=self.namespace.int64, device=ref).__dlpack_device__()[0]
        except Exception:  # a device that another process holds, or without DLPack: the library says it in its own way
            number = 0
        if number == 1:
            return host_device(self.name, name_of(ref), ref)
        return ComputeDevice(self.name, name_of(ref), _TYPES.get(int(number), "OTHER"), -1, -1, str(ref), ref)

    def device_of(self, x: Array) -> Any:
        """As the array says."""
        return x.device

    def current(self) -> Any:
        """As set in this thread, or else as the library says."""
        chosen = self.chosen.get()
        return self._of_new_arrays() if chosen is None else chosen

    def _of_new_arrays(self) -> Any:
        return self.namespace.zeros(1, dtype=self.namespace.int64).device

    @contextmanager
    def scope(self, ref: Any) -> Iterator[None]:
        """Arrays that krylix makes in this thread go there."""
        token = self.chosen.set(ref)
        try:
            yield
        finally:
            self.chosen.reset(token)

    def make_default(self, ref: Any) -> None:
        """For arrays that krylix makes in this thread."""
        self.chosen.set(ref)

    def moved(self, x: Array, ref: Any) -> Array:
        """By the array's own method."""
        return x if x.device == ref else x.to_device(ref)


def name_of(ref: Any) -> str:
    """How the library calls a device, without the words around it."""
    text = str(ref)
    inner = text[text.find("(") + 1 : text.rfind(")")] if text.endswith(")") else text
    return inner.strip("'\"") or text


# --- Sparse matrices of a library of the array API standard: there are none -------------------------------------------


class NoSparse:
    """Matrices of SciPy and of krylix take their place.

    Args:
        name: of the backend.
    """

    to_dense = "{}"

    def __init__(self, name: str) -> None:
        self.name = name

    def accepts(self, x: Any) -> bool:
        """Nothing is one."""
        return False

    def dtype(self, x: Any) -> np.dtype:
        """Of nothing."""
        raise self._refusal()

    def check(self, x: Any, what: str) -> None:
        """There is nothing to check."""

    def entries(self, x: Any) -> CooEntries:
        """Of nothing."""
        raise self._refusal()

    def native(self, values: Array, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> Any:
        """
        Raises:
            TypeError: always.
        """
        raise self._refusal()

    def _refusal(self) -> TypeError:
        return TypeError(
            f"The array API standard has no sparse matrices, so krylix knows none of {self.name}; expected another "
            "library. Take the matrix of krylix itself, which multiplies arrays of "
            f"{self.name}, or that of SciPy: native('numpy')."
        )
