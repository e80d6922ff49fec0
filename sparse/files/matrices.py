"""Saving and loading of matrices: SciPy's .npz, and Matrix Market."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from ...backends import Array, choose_backend
from ..formats.entries.checked import checked_scipy
from ..formats.making.foreign import from_scipy
from ..formats.matrix import Matrix
from ..formats.sparse_matrix import SparseMatrix
from .archive import UNPACKED
from .reader import ENDINGS, accepted, form_of_file, form_of_name, read_contents, split_part

_WRITTEN = ("npz", "mtx", "mtx.gz")
_READ = tuple(ending for ending, form in ENDINGS.items() if form != "npy")


def save(path: Any, matrix: Any) -> None:
    """Write a matrix with known values to a file that other programs read: `.npz` of SciPy or `.mtx` (Matrix Market).

    Args:
        path: of the file; its ending tells the form. `.mtx.gz` is compressed.
        matrix: of krylix or SciPy.

    Raises:
        ValueError: the path has another ending.
        UnsupportedOperation: the values are not known yet (inside a compiled function).

    Examples:
        >>> import tempfile
        >>> from krylix.sparse import eye, load, save
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(f"{folder}/A.mtx", eye(3))
        ...     A = load(f"{folder}/A.mtx")
        >>> A.shape
        (3, 3)
    """
    form = form_of_name(Path(path).name)
    if form not in _WRITTEN:
        raise ValueError(f"The file {str(path)!r} was given; expected a name that ends with .npz, .mtx or .mtx.gz.")
    A = matrix.to_scipy() if isinstance(matrix, Matrix) else sp.csr_array(checked_scipy(matrix, "the matrix"))
    if form == "npz":
        compressed = sum(part.nbytes for part in vars(A).values() if isinstance(part, np.ndarray)) <= UNPACKED
        sp.save_npz(path, A, compressed=compressed)  # as `load` would not unpack more
        return
    digits = np.finfo(A.dtype).precision + 3 if A.dtype.kind in "fc" else None  # enough to read back the same numbers
    opened = gzip.open if form == "mtx.gz" else open
    with opened(path, "wb") as file:
        scipy.io.mmwrite(file, A, precision=digits)


def load(path: Any, *, format: str | None = None, dtype: Any = None, like: Array | None = None) -> SparseMatrix:
    """Read a matrix that `save`, SciPy or another program wrote.

    Args:
        path: of the file: of SciPy (`.npz`), Matrix Market (`.mtx`), MATLAB up to version 7 (`.mat`), Harwell-Boeing
            or Rutherford-Boeing (`.rb`, `.hb`, `.rua`, `.cua`, ...), rows of numbers (`.txt`, `.csv`), or an archive of
            the SuiteSparse collection (`.tar`); all but the first also compressed by gzip or bzip2. The content tells
            the form, whatever the name; where it does not, the ending of the name does. `A.mat:K` is the variable K of
            a file that has several, `A.tar.gz:A/K.mtx` a member of an archive.
        format: of the result; None: what suits.
        dtype: of the values; None: that of the file, or double precision for integers.
        like: an array of the library, and on the device, that the matrix is for; None: the default backend's.

    Raises:
        ValueError: neither the content nor the name tells the form; the file is malformed, holds no matrix or NaN or
            infinity, has indices outside of the matrix, or promises far more rows and columns than it has entries; a
            line of a Matrix Market file is not what its header says; a compressed archive unpacks to more than 1 GiB
            and 20 times its size.
        OSError, MemoryError: it cannot be read.

    Examples:
        >>> import tempfile
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.sparse import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sp.save_npz(f"{folder}/A.npz", sp.eye_array(3, format="csr"))
        ...     A = load(f"{folder}/A.npz")
        >>> A @ np.ones(3)
        array([1., 1., 1.])
    """
    name = str(path)
    file, part = split_part(Path(path))
    form = form_of_file(file)
    if form is None or form == "npy":
        raise ValueError(f"The file {name!r} was given; expected a name that ends with {', '.join(_READ)}.")
    A = accepted(read_contents(file, form, name, part).matrix, name)
    if A.ndim != 2:
        raise ValueError(f"{name}: holds an array of shape {A.shape}; expected a matrix, of two axes.")
    if not sp.issparse(A):
        A = sp.csr_array(A)
    bk = choose_backend(like)
    return from_scipy(bk, A, dtype, like, format=format)
