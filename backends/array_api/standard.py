"""The dtypes of a library of the array API standard, and its functions under the one promotion rule of `backend.xp`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..standard.library import ArrayLibrary
from ..standard.names import DTYPES, EXTENSIONS
from ..standard.namespace import Namespace


class ArrayApiLibrary(ArrayLibrary):
    """A library as its own namespace tells it.

    Args:
        namespace: what `x.__array_namespace__()` gives.
        module: its name.
    """

    def __init__(self, namespace: Any, module: str) -> None:
        self.namespace, self.name, self.module = namespace, module, module
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
        own = getattr(type(x), "__array_namespace__", None)
        return own is not None and not isinstance(x, np.generic | np.ndarray) and own(x) is self.namespace

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

    def standard(self) -> Namespace:
        """The namespace of the standard, of the library's functions."""
        sources = {extension: (getattr(self.namespace, extension, None),) for extension in EXTENSIONS}
        return Namespace(self, {"": (self.namespace,), **sources})


def _dtype(namespace: Any, name: str) -> Any:
    """As arrays have it: libraries with NumPy's dtypes offer the classes of its numbers."""
    own = getattr(namespace, name)
    try:
        return np.dtype(own)
    except TypeError:
        return own


def _info(namespace: Any) -> Any:
    """What the namespace tells of itself since the standard of 2023; None of an older one."""
    own = getattr(namespace, "__array_namespace_info__", None)
    return None if own is None else own()


def _default_dtypes(namespace: Any) -> dict[str, Any]:
    info = _info(namespace)
    if info is None:
        return {}
    return {
        kind: _dtype_found(dtype) for kind, dtype in info.default_dtypes().items()
    }  # fmt: skip


def _dtype_found(dtype: Any) -> Any:
    try:
        return np.dtype(dtype)
    except TypeError:
        return dtype


def devices_of(namespace: Any) -> list[Any]:
    """The devices that the library tells, the default one first; none if it is of an older standard."""
    info = _info(namespace)
    if info is None:
        return []
    first = info.default_device()
    others = [device for device in info.devices() if device is not None and device != first]
    return others if first is None else [first, *others]
