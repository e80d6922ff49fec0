"""Load preconditioners and factorisations that `save` wrote."""

from __future__ import annotations

from typing import Any

from ...backends import Array, choose_backend, without_compilers
from ...sparse import Operator
from ...sparse.files import tree
from ..factors.inverse import DirectInverse
from .base import Preconditioner


def load_preconditioner(path: Any, like: Array | None = None) -> Preconditioner:
    """Read a preconditioner, or a factorisation of `prepare(...)`, from a file of its `save`.

    Args:
        path: path of the file, which may have been written by another library.
        like: an array of the library and on the device of use; None: those of the default backend.

    Returns:
        The preconditioner, or factors, which have `@`, `kind` and `save`, too.

    Raises:
        ValueError: the file is damaged, is no such file, or was written by a newer krylix.
        TypeError: it cannot be converted to the library.
        OSError, MemoryError: the file cannot be read.

    Cost: a few passes over the values, and a product or two. Factors of `scipy-direct` are computed again.

    Examples:
        >>> import tempfile, numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([2.0, 4.0], format="csr")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     krylix.preconditioner(A, "jacobi").save(f"{folder}/M.npz")
        ...     M = krylix.load_preconditioner(f"{folder}/M.npz")
        >>> M @ np.ones(2)
        array([0.5 , 0.25])
    """
    M: Any = without_compilers(_load)(path, like)
    return M


load_preconditioner._torchdynamo_disable = True  # type: ignore[attr-defined]  # see linear_solve


def _load(path: Any, like: Array | None) -> Operator:
    bk, M = choose_backend(like), tree.load_operator(path, _check)
    moved = M if bk is M.bk else M.on_backend(bk, like)
    if not isinstance(moved, Preconditioner | DirectInverse):
        raise TypeError(f"{path}: {M!r} serves NumPy arrays only; load it without `like`.")
    return moved


def _check(M: Operator) -> None:
    if not isinstance(M, Preconditioner | DirectInverse) or M.shape[0] != M.shape[1]:
        raise ValueError(f"it holds {M!r}, no preconditioner; expected a file of Preconditioner.save")
