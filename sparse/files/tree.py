"""Serialisation of an operator and its parts as a JSON description and arrays; see `storable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...backends import Backend, get_backend
from ...backends.interface.arrays import check_range
from ..errors import UnsupportedOperation
from ..operator import Operator
from . import archive
from .plain import NUMBER, number_of, to_json
from .reader import check_extent, check_finite
from .storable import STORABLE, name_of, on_host

FORMAT = "krylix operator"
VERSION = 1
"""Raise it when a file of today could not be read right by yesterday's krylix; files of all versions are read."""


def save_operator(path: Any, operator: Operator) -> None:
    """Write an operator to a `.npz` file, which `load_operator` reads bit by bit.

    Raises:
        ValueError: the path has another ending; numbers are not finite.
        UnsupportedOperation: it holds what files have no form for, or values that are not known yet.
        OSError: it cannot be written.
    """
    writer = _Writer()
    described = writer.describe(operator, "operator", operator.bk)
    for name, array in writer.arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise ValueError(
                f"{operator!r} is not written to {path}: {name} holds infinite numbers or NaN, as where the matrix "
                "that it was made of has very small or very large entries. Scale the matrix."
            )
    check_extent(max(operator.shape), operator.shape, sum(a.size for a in writer.arrays.values()), str(path))
    archive.write(path, {"format": FORMAT, "version": VERSION, "operator": described}, writer.arrays)


def load_operator(path: Any, check: Callable[[Operator], None] | None = None) -> Operator:
    """Read and validate an operator of `save_operator`, on NumPy arrays.

    Args:
        check: raises ValueError for an operator that the caller has no use for.

    Raises:
        ValueError: the file is damaged, foreign or of a newer version; one line, which names it.
        OSError, MemoryError: it cannot be read.

    Cost: a few passes over the arrays, and a product with it and its transpose.
    """
    name = archive.path_of(path)
    description, arrays = archive.read_archive(path, _named)
    if description.get("format") != FORMAT:
        raise ValueError(f"{name}: was not written by krylix; expected what Preconditioner.save wrote.")
    version = description.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise archive.damaged(name, f"it has the version {version!r}")
    if version > VERSION:
        raise ValueError(
            f"{name}: was written by a newer krylix (version {version} of the form of files; this one reads up to "
            f"{VERSION}). Update krylix, or save it again by this one."
        )
    for key, array in arrays.items():
        check_finite(array, f"{name}: {key}")
    try:
        operator = _Reader(arrays).value(description["operator"])
        if not isinstance(operator, Operator):
            raise ValueError("it describes no operator")
        if check is not None:
            check(operator)
        archive.check_digest(description, arrays)
        if unknown := description.keys() - {"format", "version", "operator", "digest"}:
            raise ValueError(f"its description has {', '.join(sorted(unknown))}, too")
        _try_product(operator)
        _try_transposed(operator)
    except MemoryError as error:
        raise MemoryError(f"{name}: does not fit into memory.") from error
    except Exception as error:  # of a description that says anything, constructors raise anything
        raise archive.damaged(
            name, str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        ) from error
    return operator


class _Writer:
    """Collects arrays by the path of their first occurrence; shared arrays are stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._found: dict[int, tuple[str, Any]] = {}  # by identity, with the object, which keeps that its own

    def describe(self, value: Any, place: str, bk: Backend) -> Any:
        """JSON description of a value."""
        if isinstance(value, Operator):
            kind = name_of(value)
            own = STORABLE[kind].flatten(value)
            return {"is": kind, "of": {k: self.describe(v, f"{place}.{k}", value.bk) for k, v in own.items()}}
        if isinstance(value, tuple):
            return [self.describe(v, f"{place}.{i}", bk) for i, v in enumerate(value)]
        if isinstance(value, np.ndarray) or bk.is_array(value):
            return {"array": self._place_of(value, place, bk)}
        try:
            return to_json(value)
        except TypeError as error:
            raise UnsupportedOperation(f"{place} cannot be saved: {error}. Give plain settings.") from error

    def _place_of(self, value: Any, place: str, bk: Backend) -> str:
        if id(value) in self._found:
            return self._found[id(value)][0]
        array = on_host(bk, value)
        if array.dtype.char not in archive.DTYPES:
            raise UnsupportedOperation(f"{place} is an array of {array.dtype}; files hold plain numbers.")
        self.arrays[place], self._found[id(value)] = array, (place, value)
        return place


class _Reader:
    """Validates and rebuilds what `_Writer` described."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays, self.numbers = arrays, sum(array.size for array in arrays.values())

    def value(self, described: Any) -> Any:
        if isinstance(described, list):
            return tuple(map(self.value, described))
        if not isinstance(described, dict):
            return described
        if described.keys() == {"array"}:
            return self._array(described["array"])
        if described.keys() == {NUMBER}:
            return number_of(described[NUMBER])
        if described.keys() != {"is", "of"}:
            raise ValueError(f"an operator is described by {sorted(map(str, described))}; expected 'is' and 'of'")
        return self._operator(described["is"], described["of"])

    def _array(self, place: str) -> np.ndarray:
        array = self.arrays[place]
        return check_range(array, None, place) if array.dtype.kind in "iu" else array

    def _operator(self, kind: str, own: dict[str, Any]) -> Operator:
        if kind not in STORABLE:
            raise ValueError(f"no class is registered for {kind!r}: import what defines it, or update krylix")
        fields = {name: self.value(described) for name, described in own.items()}
        if isinstance(fields.get("shape"), tuple):
            self._check_extent(fields["shape"])
        operator = STORABLE[kind].unflatten(fields)
        self._check_extent(operator.shape)
        return operator

    def _check_extent(self, shape: tuple[int, ...]) -> None:
        check_extent(max(shape), shape, self.numbers, "the file")


def _named(description: Any) -> set[str] | None:
    """The arrays that a description names; None where it describes no operator."""
    if not isinstance(description, dict) or not isinstance(description.get("operator"), dict):
        return None
    found, left = set(), [description["operator"]]
    while left:
        node = left.pop()
        if isinstance(node, dict) and node.keys() == {"array"}:
            found.add(node["array"])
        elif isinstance(node, dict | list):
            left.extend(node.values() if isinstance(node, dict) else node)
    return found


def _try_transposed(operator: Operator) -> None:
    try:
        transposed = operator.transpose()
    except UnsupportedOperation:
        return
    _try_product(transposed)


def _try_product(operator: Operator) -> None:
    """Multiply once on the host, to check indices and shapes that constructors have not compared."""
    rows = get_backend("numpy").full((operator.together or 1, operator.shape[1]), 1, operator.dtype)
    with np.errstate(all="ignore"):
        image = operator.apply(rows)
    if tuple(image.shape) != (len(rows), operator.shape[0]):
        raise ValueError(f"its product has the shape {image.shape}; expected {(len(rows), operator.shape[0])}")
