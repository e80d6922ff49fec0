"""The dtypes of a library of the array API standard, and its functions under the one promotion rule of `backend.xp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..standard.library import ArrayLibrary
from ..standard.names import DTYPES, EXTENSIONS
from ..standard.namespace import Namespace

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
        sources = {extension: (getattr(self.namespace, extension, None),) for extension in EXTENSIONS}
        own = {"": SimpleNamespace(**made, take=self._take), "linalg": None, "fft": self._complex_transforms()}
        return Namespace(self, {"": (own.pop(""), self.namespace), **{e: (own[e], *sources[e]) for e in own}})

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
