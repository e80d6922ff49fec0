"""The array API standard 2024.12 as a table of calls, and what they are called with."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import standard_calls as calls
import standard_linalg_calls as linalg_calls
from called import names_in

GROUPS = {
    "creation": ("biufc", calls.CREATION),
    "dtypes": ("biufc", calls.DTYPES_OF),
    "elementwise": ("", calls.ELEMENTWISE),
    "statistics": ("", calls.STATISTICS),
    "searching": ("", calls.SEARCHING),
    "shapes": ("biufc", calls.SHAPES),
    "products": ("fc", linalg_calls.PRODUCTS),
    "factors": ("fc", linalg_calls.FACTORS),
    "fft": ("fc", linalg_calls.FFT),
}
DTYPES = ("bool", "uint8", "uint16", "int16", "int32", "int64", "float32", "float64", "complex64", "complex128")


class Call(NamedTuple):
    name: str  # of the function
    kinds: str  # of dtypes
    expression: str
    reference: str  # with `xp` for NumPy

    def operands(self) -> frozenset[str]:
        """The names of operands in the expression."""
        return names_in(self.expression) & {*_OPERANDS}

    def dtypes(self) -> list[str]:
        """The dtypes with which it is called; only one where the expression has none."""
        found = [dtype for dtype in DTYPES if np.dtype(dtype).kind in self.kinds]
        return found if self.operands() or "dt" in self.expression else found[-1:]


@cache
def signatures() -> dict[str, str]:
    """The parameters of each function, as in a definition."""
    return {name: parameters for _, name, parameters, _ in _table()}


@cache
def calls_of(group: str) -> tuple[Call, ...]:
    found = []
    for own, name, _, lines in _table():
        for line in lines if own == group else ():
            kinds, expression = re.fullmatch(r"(?:([biufc]+): )?(.*)", line).groups()  # type: ignore[union-attr]
            expression, _, reference = expression.partition(" -> ")
            found.append(Call(name, kinds or GROUPS[group][0], expression, reference or expression))
    return tuple(found)


@cache
def _table() -> tuple[tuple[str, str, str, list[str]], ...]:
    found: list[tuple[str, str, str, list[str]]] = []
    for group, (_, text) in GROUPS.items():
        for line in text.splitlines():
            if line.startswith(" "):
                found[-1][3].append(line.strip())
            elif line:
                name, parameters = re.fullmatch(r"([\w.]+)\((.*)\)", line).groups()  # type: ignore[union-attr]
                found.append((group, name, parameters, []))
    return tuple(found)


_OPERANDS = ("x", "y", "s", "e", "v", "m", "h", "m4", "z", "i", "i2", "b", "part", "special", "big", "up", "tall")


@cache
def operands(dtype: str) -> dict[str, np.ndarray]:
    """Arrays of NumPy, which nobody writes to.

    x (2, 3), y (3,) positive, s (), e (0, 3), v (4,), m (2, 3, 3) regular, h Hermitian, ...
    """
    kind = np.dtype(dtype).kind
    sign = 1 if kind in "bu" else -1
    i = 1j if kind == "c" else 0
    x = np.array([[3, 0, 1 * sign], [2 * sign, 4, 1]]) + i * np.array([[1, 0, 2], [0, -1, 1]])
    m = np.array([[[4, 1, 0], [2, 5, 1], [1, 0, 3]], [[3, 0, 1], [1, 4, 0], [0, 2, 6]]]) + i * np.eye(3)
    numbers = {
        "x": x,
        "y": np.array([2, 1, 3]) + i,
        "s": np.array(3) + i,
        "e": np.zeros((0, 3)),
        "v": np.array([2, 1, 4, 3]) * (1 + i),
        "m": m,
        "h": m @ np.conj(np.swapaxes(m, -1, -2)) if kind in "fc" else m,
        "m4": m[..., None],
        "part": np.array([0.5, -0.25, 0.75, 0.0]) + i * 0.5,
        "special": np.array([1.5, np.nan, -np.inf, -0.0, -2.5, np.inf, 0.5]) if kind in "fc" else x,
        "big": np.array([1e30, 2.0, -1e25]),
        "up": np.array([0, 1, 2, 4]),
        "tall": np.concatenate([m[0], x], axis=0),
    }
    made = {name: np.asarray(value).astype(dtype) for name, value in numbers.items() if kind in "fc" or name != "big"}
    indices = {"i": np.array([0, -1, 1]), "i2": np.array([[0, -1, 1], [2, 2, 0]])}
    return made | indices | {"b": np.array([[True, False, True]]), "z": np.array([0, 1, 1], np.int8)}


def environment(xp: Any, dtype: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The names in an expression."""
    kind, single = np.dtype(dtype).kind, dtype in ("float32", "complex64")
    wide = {"f": "float64", "c": "complex128"}.get(kind, "int64")

    def same(matrix: Any, values: Any, vectors: Any) -> Any:
        """The matrix of these eigenvalues and vectors."""
        scaled = vectors * xp.astype(values, vectors.dtype)[..., None, :]
        return xp.matmul(scaled, xp.conj(xp.matrix_transpose(vectors)))

    named = {"dt": dtype, "wide": wide, "fl": "float32" if single else "float64"}
    return {**arrays, **{key: getattr(xp, name) for key, name in named.items()}, "xp": xp, "same": same,
            "native": lambda x: x}  # fmt: skip
