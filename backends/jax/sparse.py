"""JAX's own sparse matrices, BCOO and BCSR: reading and making them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jsp

from ..interface.arrays import check_count, check_range, check_rising
from ..interface.backend import Array
from ..interface.kernels import CooEntries


class JaxSparse:
    """BCOO and BCSR matrices without dense axes, and batches of them, with one batch axis."""

    to_dense = "{}.todense()"  # how users call it

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
        if x.n_batch > 1 or x.n_dense or any(isinstance(i, jax.core.Tracer) for i in (x.indices, *starts)):
            return
        indices = np.asarray(x.indices)
        count = indices.shape[x.n_batch]
        check_count(int(x.data.shape[x.n_batch]), count, f"indices of {name}")
        check_range(indices, None, f"The indices of {name}")
        for indptr in starts:
            for row in np.asarray(indptr).reshape(-1, x.shape[-2] + 1):
                check_rising(row, x.shape[-2], count, f"The starts (indptr) of {name}", spare=True)

    def entries(self, x: Any) -> CooEntries:
        """The entries of a BCOO or BCSR matrix, or of a batch of them (`n_batch=1`), which may be traced.

        JAX pads with indices beyond the end. These entries are left out, or where the indices are traced become zeros.

        Raises:
            ValueError: it has more batch axes, or dense ones, or is no matrix.
        """
        indices = (x.indices, x.indptr) if isinstance(x, jsp.BCSR) else (x.indices,)
        if any(isinstance(i, jax.core.Tracer) for i in indices):
            values, rows, cols, shape, *_ = _read(x)
            inside = (rows < shape[-2]) & (cols < shape[-1])
            values, rows, cols = (jnp.where(inside, a, 0) for a in (values, rows, cols))
            return CooEntries(values, rows, cols, shape)
        systems: Any = None
        with jax.ensure_compile_time_eval():  # the indices stay known inside jit, too
            values, rows, cols, shape, *_ = _read(x)
            if x.n_batch:
                systems = np.repeat(np.arange(rows.shape[0], dtype=np.int32), rows.shape[1])
                rows, cols = jnp.reshape(rows, -1), jnp.reshape(cols, -1)
            kept = np.flatnonzero((rows < shape[-2]) & (cols < shape[-1]))
            every, given = len(kept) == len(rows), None
            if not every:
                given = rows, cols, tuple(rows.shape)
                rows, cols, systems = rows[kept], cols[kept], None if systems is None else systems[kept]
            values = jnp.reshape(values, -1)
            return CooEntries(values if every else values[kept], rows, cols, shape, systems, given)

    def native(self, values: Array, rows: Any, cols: Any, shape: tuple[int, int]) -> jsp.BCOO:
        """A BCOO matrix of entries in the order of rows, then columns, without duplicates.

        A batch, with repeated indices, for values `(systems, nnz)`.
        """
        indices = jnp.stack([jnp.asarray(rows), jnp.asarray(cols)], axis=1)
        lead = tuple(values.shape[:-1])
        if lead:
            indices = jnp.broadcast_to(indices, (*lead, *indices.shape))
        return jsp.BCOO((values, indices), shape=(*lead, *shape), indices_sorted=True, unique_indices=True)


def _read(x: Any) -> CooEntries:
    """`(nnz,)` arrays, or `(systems, nnz)` for a batch."""
    if x.n_batch > 1 or x.n_dense or x.ndim != 2 + x.n_batch:
        raise ValueError(
            f"A {type(x).__name__} of shape {x.shape} with {x.n_batch} batch and {x.n_dense} dense axes was given; "
            "expected a sparse matrix (n, m), or a batch of them (batch, n, m) with n_batch=1."
        )
    coo = x.to_bcoo() if isinstance(x, jsp.BCSR) else x
    lead = tuple(x.shape[: x.n_batch])
    count = coo.indices.shape[-2]
    values = jnp.broadcast_to(coo.data, (*lead, count))
    rows, cols = (jnp.broadcast_to(coo.indices[..., axis], (*lead, count)) for axis in (0, 1))
    return CooEntries(values, rows, cols, x.shape)
