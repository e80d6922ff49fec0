"""Registry of the operator classes that files may hold, by name; a file never names a Python class or module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from ...backends import Backend, get_backend
from ..errors import UnsupportedOperation
from ..formats import FORMATS, Dense, SparseMatrix
from ..operator import Operator
from ..operators.composed import Composed
from .plain import matches
from .structures import STORED_FORMATS, fields_of, structure_of

Fields = dict[str, Any]  # of operators, arrays (of NumPy in files), constants, and tuples of these
C = TypeVar("C", bound=type[Operator])


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
        if not (isinstance(value, np.ndarray) if _is_array(cls, name, value) else matches(value, _hints(cls)[name])):
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


def _register_matrices() -> None:
    storable("dense", lambda A: {"matrix": A.matrix if A.constant is None else A.constant}, _dense)(Dense)
    for format in STORED_FORMATS:
        cls: Any = FORMATS[format]
        storable(format, _matrix_fields, partial(_matrix, format))(cls)


_register_matrices()
