"""Load preconditioners and factorisations that `save` wrote."""

from __future__ import annotations

from typing import Any

from ...backends import Array, choose_backend, without_compilers
from ...sparse import Operator
from ...sparse.files import tree
from ..factors.protocol import DirectInverse
from .base import Preconditioner


def load_preconditioner(path: Any, like: Array | None = None) -> Preconditioner:
    """Read a preconditioner, or a factorisation of `prepare(...)`, from a file of its `save`.

    Args:
        path: of the file; one of any library can be read for any other.
        like: an array of the library, and on the device, that it is for; None: the default backend's.

    Returns:
        The preconditioner; of a file of factors these, which have its `@`, `kind` and `save`.

    Raises:
        ValueError: the file is damaged, no such file, or of a newer krylix; the message names it and says what to do.
        TypeError: the library has no way to it.
        OSError, MemoryError: it cannot be read.

    Cost: a few passes over the numbers, and a product or two. Factors of `scipy-direct` are made again.

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


load_preconditioner._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of linear_solve


def _load(path: Any, like: Array | None) -> Operator:
    bk, M = choose_backend(like), tree.load_operator(path, _check)
    moved = M if bk is M.bk else M.on_backend(bk, like)
    if not isinstance(moved, Preconditioner | DirectInverse):
        raise TypeError(f"{path}: {M!r} serves NumPy arrays only; load it without `like`.")
    return moved


def _check(M: Operator) -> None:
    if not isinstance(M, Preconditioner | DirectInverse) or M.shape[0] != M.shape[1]:
        raise ValueError(f"it holds {M!r}, no preconditioner; expected a file of Preconditioner.save")
