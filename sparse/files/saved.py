"""Operators in files: a description in JSON and arrays, in an archive of NumPy (`.npz`).

A file names classes by the names of the registry `STORABLE`, never a class or a module of Python. All that is read is
validated before it is used: sizes, types, indices of structures, the digest of the description; a product is tried.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache, partial
from hashlib import blake2b
from inspect import signature
from itertools import combinations, pairwise
from pathlib import Path
from secrets import token_hex
from types import NoneType, UnionType
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ...backends import Backend, get_backend
from ...backends.interface.arrays import check_count, check_range, check_rising
from ..errors import UnsupportedOperation
from ..formats import FORMATS, Dense, SparseMatrix
from ..formats.boxes import Shifted
from ..formats.compressed import CooStructure, CscStructure, CsrStructure
from ..formats.dia import DiaStructure
from ..formats.ell import EllStructure, HybStructure
from ..formats.entries.integers import check_shape, check_size, is_canonical
from ..formats.stencil import StencilStructure
from ..formats.structure import Structure
from ..operator import Operator
from ..operators.composed import Composed
from .packed import check_archive
from .reader import HEADER, check_extent, check_finite

Shape = tuple[int, int]
Fields = dict[str, Any]  # of operators, arrays (of NumPy in files), constants, and tuples of these
C = TypeVar("C", bound=type[Operator])
FORMAT = "krylix operator"
VERSION = 1
"""Raise it when a file of today could not be read right by yesterday's krylix; files of all versions are read."""
_DIGEST = "digest"  # what the description says of itself
_NUMBER = "number"  # the key of what JSON has no number for
_DTYPES = frozenset("?bhilqBHILQfdFD")  # by their characters


# --- operators ---


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
    _write(path, {"format": FORMAT, "version": VERSION, "operator": described}, writer.arrays)


def load_operator(path: Any, check: Callable[[Operator], None] | None = None) -> Operator:
    """Read and validate an operator of `save_operator`, on NumPy arrays.

    Args:
        check: raises ValueError for an operator that the caller has no use for.

    Raises:
        ValueError: the file is damaged, foreign or of a newer version; one line, which names it.
        OSError, MemoryError: it cannot be read.

    Cost: a few passes over the arrays, and a product with it and its transpose.
    """
    name = _path_of(path)
    description, arrays = _read(name)
    if description.get("format") != FORMAT:
        raise ValueError(f"{name}: was not written by krylix; expected what Preconditioner.save wrote.")
    version = description.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _damaged(name, f"it has the version {version!r}")
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
        if _DIGEST in description and description[_DIGEST] != _digest_of(description, arrays):
            raise ValueError("the description, or the shape or the dtype of an array, is not the one that was written")
        if unknown := description.keys() - {"format", "version", "operator", _DIGEST}:
            raise ValueError(f"its description has {', '.join(sorted(unknown))}, too")
        _try_product(operator)
        transposed = None
        with suppress(UnsupportedOperation):
            transposed = operator.transpose()
        if transposed is not None:
            _try_product(transposed)
    except MemoryError as error:
        raise MemoryError(f"{name}: does not fit into memory.") from error
    except Exception as error:  # of a description that says anything, constructors raise anything
        raise _damaged(
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
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
            return {_NUMBER: str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise UnsupportedOperation(
            f"{place} cannot be saved: {type(value).__name__} is no number, text or None. Give plain settings."
        )

    def _place_of(self, value: Any, place: str, bk: Backend) -> str:
        if id(value) in self._found:
            return self._found[id(value)][0]
        array = on_host(bk, value)
        if array.dtype.char not in _DTYPES:
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
        if described.keys() == {_NUMBER}:
            text = described[_NUMBER]
            return complex(text) if str(text).endswith(("j", "j)")) else float(text)
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


def _try_product(operator: Operator) -> None:
    """Multiply once on the host, to check indices and shapes that constructors have not compared."""
    rows = get_backend("numpy").full((operator.together or 1, operator.shape[1]), 1, operator.dtype)
    with np.errstate(all="ignore"):
        image = operator.apply(rows)
    if tuple(image.shape) != (len(rows), operator.shape[0]):
        raise ValueError(f"its product has the shape {image.shape}; expected {(len(rows), operator.shape[0])}")


# --- archives ---


def _write(path: Any, description: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file atomically: concurrent readers find the old one."""
    name = _path_of(path)
    if not name.lower().endswith(".npz"):
        raise ValueError(f"The file {name!r} was given; expected a name that ends with .npz.")
    final = os.path.realpath(name)  # the file that a link stands for
    text = json.dumps(description | {_DIGEST: _digest_of(description, arrays)}, allow_nan=False).encode()
    part = os.path.join(os.path.dirname(final), f".{token_hex(8)}.part")
    try:
        with open(part, "xb") as stream:
            np.savez(stream, allow_pickle=False, **{HEADER: np.frombuffer(text, np.uint8)}, **arrays)
        if os.path.exists(final):
            shutil.copymode(final, part)
        os.replace(part, final)
    except OSError as error:
        Path(part).unlink(missing_ok=True)
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, name) from error  # the name of the part tells nobody anything
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _read(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and the arrays that it names, each of a plain dtype."""
    try:
        with open(name, "rb") as stream:
            check_archive(stream, name)
            with np.load(stream, allow_pickle=False) as archive:
                if HEADER not in archive.files:
                    raise ValueError(f"{name}: {_foreign(archive.files)}")
                _refuse_packed(stream, name)
                description = json.loads(bytes(archive[HEADER].astype(np.uint8)))
                strangers = _strangers(description, archive.files)
                if strangers:  # before they are read
                    raise ValueError(f"{name}: is damaged: it holds {strangers}. Save it again.")
                arrays = {key: archive[key] for key in archive.files if key != HEADER}
    except MemoryError as error:
        raise MemoryError(f"{name}: does not fit into memory.") from error
    except Exception as error:  # parsers raise anything, from KeyError to zlib.error; all of it is about this file
        unreadable = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)  # of places that are none
        if unreadable or str(error).startswith(f"{name}: "):
            raise
        raise _damaged(name, error) from error
    for key, array in arrays.items():
        if array.dtype.char not in _DTYPES:
            raise ValueError(f"{name}: is damaged: {key} holds {array.dtype}; expected numbers. Save it again.")
    if not isinstance(description, dict):
        raise ValueError(f"{name}: {_foreign(arrays)}")
    return description, {key: np.asarray(a, a.dtype.newbyteorder("=")) for key, a in arrays.items()}


def _digest_of(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Digest of the description, dtypes and shapes; the archive has checksums of the numbers."""
    heads = {key: [array.dtype.char, list(array.shape)] for key, array in arrays.items()}
    text = json.dumps([{k: v for k, v in description.items() if k != _DIGEST}, heads], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _path_of(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError as error:
        raise TypeError(f"{path!r} was given; expected the path of a file.") from error


def _damaged(name: str, why: object) -> ValueError:
    """Error for a damaged file, in one line."""
    return ValueError(f"{name}: is damaged: {' '.join(str(why or type(why).__name__).split())}. Save it again.")


def _refuse_packed(stream: BinaryIO, name: str) -> None:
    """Compressed members are refused: a few bytes would fill the memory. `_write` compresses none."""
    with zipfile.ZipFile(stream) as archive:
        packed = [member for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
    if packed:
        unpacked, size = sum(member.file_size for member in packed), sum(member.compress_size for member in packed)
        raise ValueError(
            f"{name}: is compressed, {unpacked} bytes in {size}; expected plain arrays, as Preconditioner.save writes "
            "them."
        )


def _strangers(description: Any, members: Sequence[str]) -> str:
    """The arrays, in words, that the description of an operator does not name."""
    if not isinstance(description, dict) or not isinstance(description.get("operator"), dict):
        return ""  # which the caller refuses
    found, left = {HEADER}, [description["operator"]]
    while left:
        node = left.pop()
        if isinstance(node, dict) and node.keys() == {"array"}:
            found.add(node["array"])
        elif isinstance(node, dict | list):
            left.extend(node.values() if isinstance(node, dict) else node)
    for key in members:
        if key not in found:
            return f"the array {key!r}, which its description does not name"
    return "one array twice" if len(set(members)) < len(members) else ""


def _foreign(members: Any) -> str:
    if {"format", "shape"} <= set(members):
        return "holds a matrix of scipy.sparse.save_npz; read it by krylix.sparse.load."
    return "was not written by krylix; expected what Preconditioner.save wrote."


# --- classes ---


class StorableClass(NamedTuple):
    """Serialisation of an operator class.

    Attributes:
        cls: the class.
        flatten: the fields of one; arrays are of its library.
        unflatten: one on NumPy arrays, of fields of a file that are to be checked.
    """

    cls: type[Operator]
    flatten: Callable[[Any], Fields]
    unflatten: Callable[[Fields], Operator]


STORABLE: dict[str, StorableClass] = {}  # by the name in files


def storable(
    name: str,
    flatten: Callable[[Any], Fields] | None = None,
    unflatten: Callable[[Fields], Operator] | None = None,
) -> Callable[[C], C]:
    """Decorator of a class whose operators can be saved, under a name that no other class has or ever had.

    A `Composed` dataclass needs no more: its fields are stored, and those of a file are compared with their types, and
    made to an operator by its constructor, which raises ValueError where they do not fit each other.
    """

    def register(cls: C) -> C:
        if name in STORABLE and STORABLE[name].cls.__qualname__ != cls.__qualname__:
            raise ValueError(f"Files have the name {name!r} for {STORABLE[name].cls.__qualname__}; choose another one.")
        composed: Any = cls
        STORABLE[name] = StorableClass(cls, flatten or _own_fields, unflatten or (lambda own: _composed(composed, own)))
        return cls

    return register


def name_of(operator: Operator) -> str:
    """Name of the operator's class in files.

    Raises:
        UnsupportedOperation: they have no form for it.
    """
    if isinstance(operator, SparseMatrix) and operator.format in STORED_FORMATS:
        return operator.format
    for name, kind in STORABLE.items():
        if type(operator) is kind.cls:
            return name
    if isinstance(operator, Composed):
        raise UnsupportedOperation(
            f"{operator!r} cannot be saved: {type(operator).__name__} has no name in files. Give its class one: "
            '@krylix.sparse.storable("its name"), above @dataclass.'
        )
    raise UnsupportedOperation(
        f"{operator!r} cannot be saved: {type(operator).__name__} holds what only this process has, such as a function "
        "or compiled factors. Save what is made of matrices: krylix.preconditioner(A, kind), for a function its "
        "matrix, krylix.matrix_from_function(f, like)[0], for factors krylix.prepare(A, b, method='scipy-direct')"
        ".preconditioner."
    )


def _own_fields(operator: Any) -> Fields:
    return {f.name: getattr(operator, f.name) for f in fields(operator) if f.name != "bk"}


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _composed(cls: Any, given: Fields) -> Operator:
    own = {f.name: f for f in fields(cls) if f.name != "bk"}
    needed = {name for name, f in own.items() if f.default is MISSING and f.default_factory is MISSING}
    if not needed <= given.keys() <= own.keys():
        raise ValueError(f"the fields of {cls.__name__} are {sorted(own)}; got {sorted(given)}")
    for name, value in given.items():
        if not (isinstance(value, np.ndarray) if _is_array(cls, name, value) else _matches(value, _hints(cls)[name])):
            raise ValueError(f"{name} of {cls.__name__} is {type(value).__name__}")
    host = {"bk": get_backend("numpy")} if any(f.name == "bk" for f in fields(cls)) else {}
    made: Operator = cls(**given, **host)
    return made


def _is_array(cls: type[Composed], name: str, value: Any) -> bool:
    """Must it be an array: a part that is no operator, and not left out?"""
    return name in cls.parts and not isinstance(value, Operator | tuple | None)


def _matrix_fields(A: SparseMatrix) -> Fields:
    return {
        "shape": A.shape, "structure": tuple(fields_of(A.structure).items()), "values": A.known_or_arrays(),
        "in_shape": A._in_shape, "out_shape": A._out_shape, "reason": A.reason,
    }  # fmt: skip


def _matrix(format: str, given: Fields) -> Operator:
    structure = structure_of(format, given["shape"], dict(given["structure"]))
    values, host = given["values"], get_backend("numpy")
    if {v.dtype.char for v in values} - set("fdFD"):
        raise ValueError(f"the values are {values[0].dtype}; expected real or complex numbers")
    matrix = SparseMatrix.build(host, structure, values, in_shape=given["in_shape"], out_shape=given["out_shape"])
    for value, entries in zip(values, structure.padding(), strict=True):
        if entries is not None and format != "dia" and np.any(value[..., ~entries]):
            raise ValueError("there are values where the structure has no entry")
    matrix.reason = given["reason"]
    return matrix


def _dense(given: Fields) -> Operator:
    matrix = given["matrix"]
    if matrix.ndim not in (2, 3) or matrix.dtype.char not in "fdFD":
        raise ValueError(f"a dense matrix is {matrix.dtype} {matrix.shape}")
    return Dense(get_backend("numpy"), matrix)


def on_host(bk: Backend, array: Any) -> np.ndarray:
    """Values of a library array on the host, for saving.

    Raises:
        UnsupportedOperation: they are not known before the compiled function runs.
    """
    if not isinstance(array, np.ndarray) and bk.compiled(array):
        raise UnsupportedOperation(
            "What is computed inside a compiled function has no values yet that could be saved. Return the "
            "preconditioner from the function and save it outside, or build it there."
        )
    return array if isinstance(array, np.ndarray) else np.asarray(bk.to_numpy(array))


def _matches(value: Any, hint: Any) -> bool:
    """Is it of the type that a field of a dataclass has?

    >>> _matches((1, 2), tuple[int, ...]), _matches("a", int | None), _matches(True, int)
    (True, False, False)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_matches(value, one) for one in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[-1:] == (...,):
            return all(_matches(v, args[0]) for v in value)
        return len(value) == len(args) and all(map(_matches, value, args))
    if origin is Literal:
        return value in args
    if hint is Any:
        return True
    if hint in (None, NoneType):
        return value is None
    if isinstance(value, bool) and hint in (int, float, complex):
        return False
    accepted = {float: (int, float), complex: (int, float, complex)}.get(hint, hint)
    return isinstance(value, accepted) if isinstance(accepted, type | tuple) else True


# --- structures ---


def fields_of(structure: Structure) -> Fields:
    """Fields of a structure for `structure_of`, besides its format and shape."""
    _, *names = signature(STORED_FORMATS[structure.format]).parameters
    found = {name: getattr(structure, name) for name in names}
    if "boxes" in found:
        found["boxes"] = tuple(map(tuple, found["boxes"]))
    return found


def structure_of(format: str, shape: Any, fields: Fields) -> Structure:
    """The structure of a format; every index is validated, as products do not check them.

    Raises:
        ValueError, TypeError, KeyError: an index lies outside, the entries are not in order or one occurs twice, or the
            fields are not those of the format.

    Cost: a few passes over the entries; for a stencil one over pairs of boxes.
    """
    return STORED_FORMATS[format](check_shape(shape), **fields)


def _in_order(structure: Structure, rows: np.ndarray, cols: np.ndarray) -> Structure:
    if not is_canonical(rows, cols):
        raise ValueError("the entries are not in order, each once")
    return structure


def _csr(shape: Shape, starts: Any, cols: Any) -> Structure:
    cols = _places(cols, shape[1], "The columns")
    structure = CsrStructure(check_rising(starts, shape[0], len(cols), "The starts"), cols, shape)
    return _in_order(structure, structure.rows, cols)


def _csc(shape: Shape, starts: Any, lines: Any) -> Structure:
    lines = _places(lines, shape[0], "The rows")
    structure = CscStructure(check_rising(starts, shape[1], len(lines), "The starts"), lines, shape)
    return _in_order(structure, structure.owners, lines)


def _coo(shape: Shape, rows: Any, cols: Any) -> Structure:
    check_count(len(rows), len(cols), "columns")
    rows, cols = _places(rows, shape[0], "The rows"), _places(cols, shape[1], "The columns")
    return _in_order(CooStructure(rows, cols, shape), rows, cols)


def _dia(shape: Shape, offsets: tuple[int, ...], present: Any) -> Structure:
    rising = all(a < b for a, b in pairwise(offsets))
    if not rising or (offsets and not -max(shape[0], 1) < offsets[0] <= offsets[-1] < max(shape[1], 1)):
        raise ValueError(f"the offsets {offsets[:9]} are given for {shape}; expected rising ones inside of it")
    if present is not None and (present.dtype != bool or present.shape != (len(offsets), shape[0])):
        raise ValueError(f"the mask of diagonals is {present.dtype} {present.shape}; expected one for each of them")
    return DiaStructure(offsets, shape, present)


def _ell(shape: Shape, cols: Any, lengths: Any) -> Structure:
    return EllStructure(*_packed(cols, lengths, shape[0], shape[1]), shape)


def _hyb(shape: Shape, cols: Any, lengths: Any, piece_cols: Any, piece_lengths: Any, piece_rows: Any) -> Structure:
    pieces = _packed(piece_cols, piece_lengths, len(piece_rows), shape[1])
    rows = _places(piece_rows, shape[0], "The rows of pieces")
    if np.any(rows[1:] < rows[:-1]):
        raise ValueError("the pieces are not in the order of rows")
    structure = HybStructure(*_packed(cols, lengths, shape[0], shape[1]), *pieces, rows, shape)
    return _in_order(structure, *structure.entries()[:2])


def _packed(cols: Any, lengths: Any, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns `(k, n)` of which `lengths` `(n,)` are entries."""
    if cols.ndim != 2 or cols.shape[1] != n or lengths.shape != (n,):
        raise ValueError(f"columns and lengths of the shapes {cols.shape}, {lengths.shape} are given for {n} rows")
    check_size(cols.size, "stored values")
    found = check_range(cols, m, "The columns").astype(np.int32, copy=False)
    lengths = _places(lengths, len(cols) + 1, "The lengths of rows")
    if any(np.any((a >= b) & (i + 1 < lengths)) for i, (a, b) in enumerate(pairwise(found))):
        raise ValueError("the entries are not in order, each once")
    return found, lengths


def _places(x: Any, limit: int, what: str) -> np.ndarray:
    if x.ndim != 1:
        raise ValueError(f"{what} have the shape {x.shape}; expected one axis")
    return check_range(x, limit, what).astype(np.int32, copy=False)


def _stencil(shape: Shape, out_grid: Any, in_grid: Any, boxes: Any, numbers: Any) -> Structure:
    found = [Shifted(*map(tuple, box)) for box in boxes]
    if (math.prod(out_grid), math.prod(in_grid)) != shape or len(boxes) != len(numbers):
        raise ValueError(f"the grids {out_grid}, {in_grid} and {len(boxes)} boxes are given for {shape}")
    for box in found:
        for first, grid in ((box.lo, out_grid), (box.start, in_grid)):
            inside = all(min(a, n) >= 0 and a + n <= m for a, n, m in zip(first, box.shape, grid, strict=True))
            if not inside:
                raise ValueError(f"the box at {first} of {box.shape} lies outside of the grid {grid}")
    if any(a.overlaps(b) for a, b in combinations(found, 2)):
        raise ValueError("two boxes of the stencil share a place")
    return StencilStructure(out_grid, in_grid, found, numbers)


STORED_FORMATS: dict[str, Callable[..., Structure]] = {
    "csr": _csr, "csc": _csc, "coo": _coo, "dia": _dia, "ell": _ell, "hyb": _hyb, "stencil": _stencil,
}  # fmt: skip
"""What makes the structures of each format of its shape and of the attributes that it takes by their names."""


storable("dense", lambda A: {"matrix": A.matrix if A.constant is None else A.constant}, _dense)(Dense)
for _format in STORED_FORMATS:
    _class: Any = FORMATS[_format]
    storable(_format, _matrix_fields, partial(_matrix, _format))(_class)
