"""Products with sparse matrices in JAX: gather, multiply, segment sum; BCOO and BCSR are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.experimental import sparse as jsp

from .base import Array
from .entries import Entries


class JaxSparse:
    """A matrix here is an `Entries` of JAX arrays."""

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, (jsp.BCOO, jsp.BCSR))

    def entries(self, x: Any) -> Entries:
        """The entries of a BCOO or BCSR matrix (no batch and no dense axes), which may be traced.

        JAX pads with indices beyond the end. These entries are left out, or where the indices are traced become zeros.

        Raises:
            ValueError: it has batch or dense axes, or is no matrix.
        """
        indices = (x.indices, x.indptr) if isinstance(x, jsp.BCSR) else (x.indices,)
        if any(isinstance(i, jax.core.Tracer) for i in indices):
            values, rows, cols, shape = self.read(x)
            inside = (rows < shape[0]) & (cols < shape[1])
            values, rows, cols = (jnp.where(inside, a, 0) for a in (values, rows, cols))
            return Entries(values, rows, cols, shape)
        with jax.ensure_compile_time_eval():  # the indices stay known inside jit, too
            values, rows, cols, shape = self.read(x)
            kept = np.flatnonzero((rows < shape[0]) & (cols < shape[1]))
            if len(kept) == len(rows):
                return Entries(values, rows, cols, shape)
            rows, cols = rows[kept], cols[kept]
        return Entries(values[kept], rows, cols, shape)

    def native(self, values: Array, rows: Any, cols: Any, shape: tuple[int, int]) -> jsp.BCOO:
        """A BCOO matrix of entries in the order of rows, then columns, without duplicates."""
        indices = jnp.stack([jnp.asarray(rows), jnp.asarray(cols)], axis=1)
        return jsp.BCOO((values, indices), shape=tuple(shape), indices_sorted=True, unique_indices=True)

    def read(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Entries:
        """A BCOO or BCSR matrix (no batch and no dense axes) as `Entries`."""
        if x.n_batch or x.n_dense or x.ndim != 2:
            raise ValueError(
                f"A {type(x).__name__} of shape {x.shape} with {x.n_batch} batch and {x.n_dense} dense axes was given; "
                "expected a plain sparse matrix. For a batch of matrices use a dense (batch, n, n) array or a function."
            )
        coo = x.to_bcoo() if isinstance(x, jsp.BCSR) else x
        return Entries(
            coo.data if dtype is None else coo.data.astype(dtype), coo.indices[:, 0], coo.indices[:, 1], x.shape
        )

    def from_scipy(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Entries:
        """A SciPy sparse matrix as `Entries`, in row order."""
        if max(x.shape) >= 2**31:
            raise ValueError(f"A matrix of shape {x.shape} needs 64-bit indices; krylix indexes with 32 bits in JAX.")
        coo = x.tocsr().tocoo()
        index = np.dtype(np.int32)
        return Entries(
            jnp.asarray(coo.data, dtype),
            jnp.asarray(coo.row.astype(index)),
            jnp.asarray(coo.col.astype(index)),
            x.shape,
        )

    def dtype(self, matrix: Any) -> np.dtype:
        """NumPy dtype of the values, of `Entries` or of JAX's own matrices."""
        return np.dtype((matrix.values if isinstance(matrix, Entries) else matrix).dtype)

    def recast(self, matrix: Entries, dtype: np.dtype) -> Entries:
        """The same matrix with values of another dtype."""
        return matrix._replace(values=matrix.values.astype(dtype))

    def product(self, matrix: Entries, x: Array) -> Array:
        """`(n, m)` times each row of `(batch, m)` -> `(batch, n)`."""
        values, rows, cols, (n, _) = matrix
        if x.shape[0] == 1:
            return jax.ops.segment_sum(values * x[0].at[cols].get(mode="fill", fill_value=0), rows, n)[None]
        gathered = values[:, None] * x.T.at[cols].get(mode="fill", fill_value=0)
        return jax.ops.segment_sum(gathered, rows, n).T

    def transpose(self, matrix: Entries) -> Entries:
        """The transposed matrix (not conjugated)."""
        return Entries(matrix.values, matrix.cols, matrix.rows, matrix.shape[::-1])

    def conj(self, matrix: Entries) -> Entries:
        """The complex conjugate."""
        return matrix._replace(values=jnp.conj(matrix.values))

    def diagonal(self, matrix: Entries) -> Array:
        """`(min(n, m),)`."""
        values, rows, cols, shape = matrix
        return jax.ops.segment_sum(jnp.where(rows == cols, values, 0), rows, min(shape))

    def to_dense(self, matrix: Entries) -> Array:
        """`(n, m)`."""
        values, rows, cols, shape = matrix
        return jnp.zeros(shape, values.dtype).at[rows, cols].add(values, mode="drop")

    def arrays(self, matrix: Entries) -> tuple[Array, ...]:
        """The arrays that `to_scipy` needs."""
        return matrix[:3]

    def with_arrays(self, shape: tuple[int, int], arrays: Sequence[Array]) -> Entries:
        """The matrix of this shape made of `arrays`."""
        values, rows, cols = arrays
        return Entries(values, rows, cols, shape)

    def to_scipy(self, matrix: Entries, arrays: Sequence[np.ndarray]) -> Any:
        """The SciPy matrix, given the values of `arrays(matrix)` as NumPy arrays."""
        values, rows, cols = arrays
        inside = (rows < matrix.shape[0]) & (cols < matrix.shape[1])  # BCOO pads with indices beyond the end
        return sp.coo_array((values[inside], (rows[inside], cols[inside])), matrix.shape).tocsr()
