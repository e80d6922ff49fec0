"""JAX's own sparse matrices, BCOO and BCSR: reading and making them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jsp

from ..interface.backend import Array
from ..interface.entries import Entries
from ..interface.places import check_count, check_range, check_rising


class JaxSparse:
    """BCOO and BCSR matrices without batch and dense axes."""

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, (jsp.BCOO, jsp.BCSR))

    def dtype(self, x: Any) -> np.dtype:
        """NumPy dtype of the values."""
        return np.dtype(x.dtype)

    def check(self, x: Any, name: str) -> None:
        """Refuse indices below 0 and starts that do not rise, where they are known.

        Indices beyond the end are JAX's padding, which every product leaves out.

        Raises:
            ValueError: there are such.
        """
        starts = (x.indptr,) if isinstance(x, jsp.BCSR) else ()
        if x.n_batch or x.n_dense or any(isinstance(i, jax.core.Tracer) for i in (x.indices, *starts)):
            return
        indices = np.asarray(x.indices)
        check_count(int(x.data.shape[0]), len(indices), f"indices of {name}")
        check_range(indices, None, f"The indices of {name}")
        for indptr in starts:
            check_rising(np.asarray(indptr), x.shape[0], len(indices), f"The starts (indptr) of {name}", spare=True)

    def entries(self, x: Any) -> Entries:
        """The entries of a BCOO or BCSR matrix (no batch and no dense axes), which may be traced.

        JAX pads with indices beyond the end. These entries are left out, or where the indices are traced become zeros.

        Raises:
            ValueError: it has batch or dense axes, or is no matrix.
        """
        indices = (x.indices, x.indptr) if isinstance(x, jsp.BCSR) else (x.indices,)
        if any(isinstance(i, jax.core.Tracer) for i in indices):
            values, rows, cols, shape = _read(x)
            inside = (rows < shape[0]) & (cols < shape[1])
            values, rows, cols = (jnp.where(inside, a, 0) for a in (values, rows, cols))
            return Entries(values, rows, cols, shape)
        with jax.ensure_compile_time_eval():  # the indices stay known inside jit, too
            values, rows, cols, shape = _read(x)
            kept = np.flatnonzero((rows < shape[0]) & (cols < shape[1]))
            if len(kept) == len(rows):
                return Entries(values, rows, cols, shape)
            rows, cols = rows[kept], cols[kept]
        return Entries(values[kept], rows, cols, shape)

    def native(self, values: Array, rows: Any, cols: Any, shape: tuple[int, int]) -> jsp.BCOO:
        """A BCOO matrix of entries in the order of rows, then columns, without duplicates."""
        indices = jnp.stack([jnp.asarray(rows), jnp.asarray(cols)], axis=1)
        return jsp.BCOO((values, indices), shape=tuple(shape), indices_sorted=True, unique_indices=True)


def _read(x: Any) -> Entries:
    if x.n_batch or x.n_dense or x.ndim != 2:
        raise ValueError(
            f"A {type(x).__name__} of shape {x.shape} with {x.n_batch} batch and {x.n_dense} dense axes was given; "
            "expected a plain sparse matrix. For a batch of matrices use a dense (batch, n, n) array or a function."
        )
    coo = x.to_bcoo() if isinstance(x, jsp.BCSR) else x
    return Entries(coo.data, coo.indices[:, 0], coo.indices[:, 1], x.shape)
