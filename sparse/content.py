"""Content of matrices and objects: bitwise comparison, which recognises a matrix that is given again, and hashes."""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..backends import Backend

_FIELDS = {
    **dict.fromkeys((sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix), ("data", "indices", "indptr")),
    **dict.fromkeys((sp.bsr_array, sp.bsr_matrix), ("data", "indices", "indptr")),
    **dict.fromkeys((sp.coo_array, sp.coo_matrix), ("data", "row", "col")),
    **dict.fromkeys((sp.dia_array, sp.dia_matrix), ("data", "offsets")),
}  # of classes themselves: others may have products of their own
_WORD = np.dtype(np.int64)
_SAMPLED = 4096  # words of an array at most
_FIRST = 64  # words that mostly tell different matrices apart


@dataclass(frozen=True, eq=False)
class Content:
    """The arrays of a matrix and their form in memory.

    Attributes:
        form: its class, shape, dtypes and layout in memory.
        arrays: its numbers, one-dimensional views of the memory of the matrix.
    """

    form: Hashable
    arrays: tuple[np.ndarray, ...]

    @property
    def nbytes(self) -> int:
        """Memory of the numbers."""
        return sum(array.nbytes for array in self.arrays)

    def checksum(self) -> int:
        """Checksum of some thousand words; matrices of different content may share it."""
        found = 0
        for words in map(_words, self.arrays):
            some = np.ascontiguousarray(words[:: 1 + len(words) // _SAMPLED])
            found = zlib.crc32(some.view(np.uint8).data, found)
        return found

    def __eq__(self, other: object) -> bool:
        """Is each bit the same? So NaN equals itself, and 0 differs from -0. Cost: one pass over the numbers."""
        if not isinstance(other, Content) or self.form != other.form:
            return False
        pairs = [(_words(a), _words(b)) for a, b in zip(self.arrays, other.arrays, strict=True)]
        starts = ((a[:_FIRST] == b[:_FIRST]).all() for a, b in pairs if len(a) > _FIRST)
        return all(starts) and all((a == b).all() for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # compared only


def content_of(A: Any, bk: Backend) -> Content | None:
    """Content of one NumPy or SciPy matrix, or of a dense one of the library `bk` in untracked host memory.

    None of others, and where the numbers are not contiguous.
    """
    names = _FIELDS.get(type(A))
    if names is not None and len(A.shape) == 2:
        arrays = [getattr(A, name) for name in names]
    else:
        view = A if type(A) is np.ndarray else bk.host_view(A) if bk.is_array(A) else None
        if view is None:
            return None
        arrays = [view]
    if len(A.shape) != 2 or arrays[0].dtype.kind not in "biufc" or not all(map(_is_flat, arrays)):
        return None
    form = type(A), tuple(A.shape), *((a.dtype.str, a.shape, a.flags.c_contiguous) for a in arrays)
    return Content(form, tuple(a.ravel(order="K") for a in arrays))


def copy_of(A: Any, bk: Backend) -> Any:
    """Copy a matrix that has a content, in the same memory layout."""
    if type(A) in _FIELDS:
        return A.copy()
    if type(A) is np.ndarray:
        return A.copy(order="K")
    view: Any = bk.host_view(A)
    if view.flags.c_contiguous:
        return bk.asarray(view.copy())
    return bk.matrix_transpose(bk.asarray(view.T.copy()))


def _is_flat(array: Any) -> bool:
    """Is it an array whose numbers lie side by side?"""
    return type(array) is np.ndarray and (array.flags.c_contiguous or array.flags.f_contiguous)


def _words(array: np.ndarray) -> np.ndarray:
    return array.view(_WORD if array.nbytes % _WORD.itemsize == 0 else np.uint8)


# --- hashes ---


def fingerprint(*parts: Any) -> str | None:
    """Content hash of objects and of the arrays in them; None where they cannot be pickled.

    Equal content may have several names; different content has one only by a collision of BLAKE2b. Cost: a pass over
    the arrays.
    """
    arrays: list[pickle.PickleBuffer] = []
    try:
        digest = hashlib.blake2b(pickle.dumps(parts, 5, buffer_callback=arrays.append), digest_size=16)
        for array in arrays:
            digest.update(array.raw())
    except Exception:  # what pickle raises of functions, of objects of others, and of strided arrays is of any type
        return None
    return digest.hexdigest()
