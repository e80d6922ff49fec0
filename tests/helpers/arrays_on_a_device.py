"""A library like CuPy: NumPy's dtypes and functions, and arrays that take none of NumPy's and become one by `get`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from krylix.backends.standard.library import DTYPES, RULES

_BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]
_OTHERS = ["lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert"]


class DeviceArray:
    """Keeps an array of NumPy to itself."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    device = "device0"

    def __init__(self, own: np.ndarray) -> None:
        self._own = own
        self.dtype, self.shape, self.ndim, self.size = own.dtype, own.shape, own.ndim, own.size

    def __array_namespace__(self, api_version: Any = None) -> ModuleType:
        return library

    def __array__(self, *args: Any, **keywords: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **keywords: Any) -> Any:
        raise BufferError("Not on the host.")

    def get(self) -> np.ndarray:
        return self._own.copy()

    def to_device(self, device: Any) -> DeviceArray:
        return self

    def __getitem__(self, key: Any) -> Any:
        return _out(self._own[_in(key)])

    def __bool__(self) -> bool:
        return bool(self._own)

    def __int__(self) -> int:
        return int(self._own)

    def __float__(self) -> float:
        return float(self._own)


def _in(x: Any) -> Any:
    if isinstance(x, DeviceArray):
        return x._own
    if isinstance(x, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return type(x)(map(_in, x)) if type(x) in (list, tuple) else x


def _out(x: Any) -> Any:
    if isinstance(x, np.ndarray | np.generic):
        return DeviceArray(np.asarray(x))
    if isinstance(x, list | tuple):
        return type(x)(*map(_out, x)) if hasattr(x, "_fields") else type(x)(map(_out, x))
    return x


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, device: Any = None, **keywords: Any) -> Any:
        return _out(function(*map(_in, args), **{name: _in(x) for name, x in keywords.items()}))

    return called


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *others: _out(getattr(self._own, name)(*map(_in, others)))


def _asarray(x: Any, dtype: Any = None, device: Any = None, copy: bool | None = None) -> DeviceArray:
    return DeviceArray(np.array(x._own if isinstance(x, DeviceArray) else x, dtype=dtype))


def _info() -> Any:
    kinds = {"real floating": "f8", "complex floating": "c16", "integral": "i8", "indexing": "i8"}
    return SimpleNamespace(
        default_dtypes=lambda: {kind: np.dtype(dtype) for kind, dtype in kinds.items()},
        default_device=lambda: "device0",
        devices=lambda: ["device0"],
    )


def _library() -> ModuleType:
    found = ModuleType("arrays_on_a_device")
    vars(found).update(linalg=SimpleNamespace(), fft=SimpleNamespace(), asarray=_asarray, pi=np.pi)
    vars(found).update({name: getattr(np, name) for name in DTYPES}, __array_namespace_info__=_info)
    for full in RULES:
        within, _, name = full.rpartition(".")
        source, target = (getattr(np, within), getattr(found, within)) if within else (np, found)
        if hasattr(source, name) and not hasattr(target, name):
            setattr(target, name, _of_arrays(getattr(source, name)))
    return found


for _name in _BINARY:
    for _kind in ("", "r", "i"):
        if hasattr(np.ndarray, f"__{_kind}{_name}__"):
            setattr(DeviceArray, f"__{_kind}{_name}__", _method(f"__{_kind}{_name}__"))
for _name in _OTHERS:
    setattr(DeviceArray, f"__{_name}__", _method(f"__{_name}__"))
library = _library()
