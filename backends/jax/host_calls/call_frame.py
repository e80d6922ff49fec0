"""Named XLA custom calls to Python functions, through the C interface of `xla/ffi/api/c_api.h`.

A program holds the name, no pointer, so that it can be stored and read by another process. The structures here are
those of version 0.3. XLA tells at registration whether it still calls such functions: it does for at least 12 months.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p, cast, sizeof, string_at
from typing import Any

import jax
import numpy as np

VERSION = (0, 3)
_METADATA = 1  # the kind of extension by which XLA asks for the version, and calls nothing
_INTERNAL = 13  # the code of an error
_DTYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 15: "complex64", 18: "complex128",
}  # fmt: skip
DTYPES = frozenset(map(np.dtype, _DTYPES.values()))

_BASE: list[Any] = [("struct_size", c_size_t), ("extension", c_void_p)]


class _Span(Structure):
    _fields_ = [("start", c_void_p), ("length", c_size_t)]


class _Version(Structure):
    _fields_ = [*_BASE, ("major", c_int), ("minor", c_int)]


class _Api(Structure):
    _fields_ = [*_BASE, ("version", _Version), ("internal", c_void_p), ("create_error", c_void_p)]


class _Buffer(Structure):
    _fields_ = [
        *_BASE, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("shape", POINTER(c_int64)),
    ]  # fmt: skip


class _Buffers(Structure):
    _fields_ = [*_BASE, ("count", c_int64), ("kinds", c_void_p), ("each", POINTER(POINTER(_Buffer)))]


class _Attributes(Structure):
    _fields_ = [
        *_BASE, ("count", c_int64), ("kinds", c_void_p), ("names", POINTER(POINTER(_Span))),
        ("values", POINTER(POINTER(_Span))),
    ]  # fmt: skip


class _Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _Extension(Structure):
    _fields_ = [
        ("struct_size", c_size_t), ("kind", c_int), ("next", c_void_p), ("metadata", POINTER(_Metadata)),
    ]  # fmt: skip


class _Frame(Structure):
    _fields_ = [
        *_BASE, ("api", POINTER(_Api)), ("context", c_void_p), ("stage", c_int), ("operands", _Buffers),
        ("results", _Buffers), ("attributes", _Attributes),
    ]  # fmt: skip


class _ErrorArguments(Structure):
    _fields_ = [*_BASE, ("message", c_char_p), ("code", c_int)]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_CreateError = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))
_registered: dict[str, Any] = {}  # for ever, as XLA calls them


def register(name: str, function: Callable[..., Sequence[Any]]) -> bool:
    """Let programs on the CPU call `function(attributes, number of results, *operands)` by name; False if XLA cannot.

    The operands are arrays of NumPy, read-only, and there during the call alone. What the function returns are the
    results of the call; what it raises is the error of the program, with its type and text.
    """

    def called(pointer: Any) -> int | None:
        frame = pointer.contents
        if frame.extension:
            found = cast(frame.extension, POINTER(_Extension)).contents
            if found.kind == _METADATA:
                version = found.metadata.contents.version
                version.major, version.minor = VERSION
                return None
        return _run(frame, function)

    handler = _Handler(called)
    _registered[name] = handler
    try:
        jax.devices()  # XLA would look at the version later, when it starts, and then not start
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
    except (AttributeError, RuntimeError, ValueError):  # another version, or none
        return False
    return True


def _run(frame: Any, function: Callable[..., Sequence[Any]]) -> int | None:
    """Run a function; return the address of an error, or None, since ctypes drops exceptions."""
    try:
        results, attributes = [_array(buffer) for buffer in _each(frame.results)], frame.attributes
        for result in results:
            result.reshape(-1).view(np.uint8).fill(255)  # NaN, -1 or True, as long as it is not known to be well
        texts = {_text(attributes.names[i]): _text(attributes.values[i]) for i in range(attributes.count)}
        operands = [_array(buffer) for buffer in _each(frame.operands)]
        for operand in operands:
            operand.flags.writeable = False
        for result, value in zip(results, map(np.asarray, function(texts, len(results), *operands)), strict=True):
            if value.shape != result.shape:
                raise ValueError(f"A function on the host returned the shape {value.shape}, not {result.shape}.")
            result[...] = value
    except BaseException as error:
        return _error(frame, f"{type(error).__name__}: {error}")
    return None


def _error(frame: Any, message: str) -> int | None:
    arguments = _ErrorArguments(message=message.encode(errors="replace").replace(b"\0", b"?"), code=_INTERNAL)
    arguments.struct_size = _ErrorArguments.code.offset + sizeof(c_int)
    address: int | None = _CreateError(frame.api.contents.create_error)(ctypes.byref(arguments))
    return address


def _text(span: Any) -> str:
    return string_at(span.contents.start, span.contents.length).decode()


def _each(buffers: Any) -> list[Any]:
    return [buffers.each[i].contents for i in range(buffers.count)]


def _array(buffer: Any) -> np.ndarray:
    """A NumPy view of XLA's memory."""
    dtype, shape = np.dtype(_DTYPES[buffer.dtype]), tuple(buffer.shape[i] for i in range(buffer.rank))
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not size:
        return np.zeros(shape, dtype)
    return np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(buffer.data)), dtype).reshape(shape)
