"""Assembly of matrices from others: blocks, stacks, Kronecker products, the identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, choose_backend, default_backend
from ..dense import Dense
from ..entries.integers import check_shape, check_size
from ..matrix import Matrix
from ..operations import check_systems
from ..sparse_matrix import SparseMatrix, entries_together, joint_values, on_common_backend
from .build import from_diagonals, from_entries, matrix_batch
from .foreign import from_scipy

Given = Any  # a matrix of krylix, or a sparse one of SciPy; one beside batches belongs to each of their systems


def block(rows: Sequence[Sequence[Given | None]], *, format: str | None = None) -> SparseMatrix:
    """A matrix of blocks, given row by row; None stands for a block of zeros.

    Values that are traced keep their derivatives.

    Args:
        rows: the blocks, matrices of krylix (zeros of dense ones are left out where they are known) or sparse ones of
            SciPy, of one library.
        format: of the result; None: what suits.

    Raises:
        ValueError: the blocks do not fit together, or a row or column has nothing but None.

    Examples:
        >>> import scipy.sparse as sp
        >>> from krylix.sparse import block
        >>> K, B = sp.eye_array(2), sp.csr_array([[1.0, 2.0]])
        >>> block([[K, B.T], [B, None]]).toarray()
        array([[1., 0., 1.],
               [0., 1., 2.],
               [1., 2., 0.]])
    """
    width = len(rows[0]) if len(rows) else 0
    if not width or any(len(row) != width for row in rows):
        raise ValueError(f"Rows of {[len(row) for row in rows]} blocks were given; expected as many in each, and some.")
    blocks = of_one_library([b for row in rows for b in row])
    grid = [blocks[i * width : (i + 1) * width] for i in range(len(rows))]
    heights = [_common((b.shape[0] for b in row if b is not None), f"row {i}") for i, row in enumerate(grid)]
    widths = [
        _common((row[j].shape[1] for row in grid if row[j] is not None), f"column {j}")  # type: ignore[union-attr]
        for j in range(width)
    ]
    first_row, first_col = np.cumsum([0, *heights]), np.cumsum([0, *widths])
    places = [
        (b, int(first_row[i]), int(first_col[j]))
        for i, row in enumerate(grid)
        for j, b in enumerate(row)
        if b is not None
    ]
    return _placed(places, (int(first_row[-1]), int(first_col[-1])), format)


def block_diagonal(blocks: Sequence[Given], *, format: str | None = None) -> SparseMatrix:
    """The blocks along the diagonal; these need not be square.

    Args:
        blocks: matrices of krylix, or sparse ones of SciPy, of one library.
        format: of the result; None: what suits.

    Raises:
        ValueError: there is no block.

    Examples:
        >>> import scipy.sparse as sp
        >>> from krylix.sparse import block_diagonal
        >>> block_diagonal([sp.eye_array(1), 2 * sp.eye_array(1)]).toarray()
        array([[1., 0.],
               [0., 2.]])
    """
    if not len(blocks):
        raise ValueError("No block was given; expected at least one matrix.")
    places, row, col = [], 0, 0
    for b in of_one_library(list(blocks)):
        if b is not None:
            places.append((b, row, col))
            row, col = row + b.shape[0], col + b.shape[1]
    return _placed(places, (row, col), format)


def hstack(blocks: Sequence[Given], *, format: str | None = None) -> SparseMatrix:
    """Matrices side by side, with equally many rows.

    Args:
        blocks: matrices of krylix, or sparse ones of SciPy, of one library.
        format: of the result; None: what suits.

    Raises:
        ValueError: they have not, or there is none.

    Examples:
        >>> from krylix.sparse import eye, hstack
        >>> hstack([eye(2), eye(2)]).shape
        (2, 4)
    """
    return block([list(blocks)], format=format)


def vstack(blocks: Sequence[Given], *, format: str | None = None) -> SparseMatrix:
    """Matrices below each other, with equally many columns.

    Args:
        blocks: matrices of krylix, or sparse ones of SciPy, of one library.
        format: of the result; None: what suits.

    Raises:
        ValueError: they have not, or there is none.

    Examples:
        >>> from krylix.sparse import eye, vstack
        >>> vstack([eye(2), eye(2)]).shape
        (4, 2)
    """
    return block([[b] for b in blocks], format=format)


def kron(A: Given, B: Given, *, format: str | None = None) -> SparseMatrix:
    """The Kronecker product: each entry of A times B.

    Args:
        A: a matrix of krylix, or a sparse one of SciPy, `(n, m)`.
        B: likewise, `(k, l)`; the result is `(n k, m l)`.
        format: of the result; None: what suits.

    Raises:
        ValueError: the result is too large for 32-bit indices.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.sparse import eye, kron
        >>> T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(8, 8))
        >>> (kron(T, eye(8)) + kron(eye(8), T)).shape  # the 5-point Laplacian of an 8 x 8 grid
        (64, 64)
    """
    first, second = of_one_library([A, B])
    if first is None or second is None:
        raise ValueError("None was given for a matrix; expected two matrices.")
    (n, m), (p, q) = first.shape, second.shape
    shape = check_shape((n * p, m * q))
    a, b = first.structure.entries(), second.structure.entries()
    check_size(len(a.rows) * len(b.rows), "entries")
    rows = (a.rows[:, None] * np.int32(p) + b.rows).reshape(-1)
    cols = (a.cols[:, None] * np.int32(q) + b.cols).reshape(-1)
    systems = check_systems([first, second])
    bk, (x, y) = entries_together([first, second], np.result_type(first.dtype, second.dtype))
    lead = () if systems is None else (systems,)
    values = bk.reshape(x[..., :, None] * y[..., None, :], (*lead, len(rows)))
    return _of_entries(first, rows, cols, values, shape, format)


def eye(
    n: int, m: int | None = None, k: int = 0, *, dtype: Any = None, like: Array | None = None, format: str | None = None
) -> SparseMatrix:
    """Ones on diagonal `k` of an `(n, m)` matrix.

    Args:
        n: rows.
        m: columns; None: as many as rows.
        k: column minus row of the ones.
        dtype: of the values; None: that of `like`, or the library's default.
        like: an array of the library, and on the device, that the matrix is for; None: the default backend's.
        format: of the result; None: DIA.

    Examples:
        >>> from krylix.sparse import eye
        >>> eye(2, 3, k=1).toarray()
        array([[0., 1., 0.],
               [0., 0., 1.]])
    """
    shape = check_shape((n, n if m is None else m))
    bk = default_backend() if like is None else choose_backend(like)
    kind = np.dtype(dtype) if dtype is not None else bk.default_float if like is None else bk.dtype(like)
    if k <= -shape[0] or k >= shape[1]:
        none = np.zeros(0, np.int32)
        return from_entries(bk, none, none, np.zeros(0, kind), shape, format=format, like=like)
    return from_diagonals(bk, [k], np.ones((1, shape[0]), kind), shape, format=format, like=like)


def of_one_library(given: list[Given | None]) -> list[SparseMatrix | None]:
    """Sparse matrices of one library, of those of krylix and SciPy; None stays."""
    given = [g.to("csr") if isinstance(g, Matrix) and g.format == "dense" else g for g in given]
    bk: Backend = choose_backend(*(g for g in given if isinstance(g, SparseMatrix)))
    if not any(isinstance(g, SparseMatrix) for g in given):
        bk = choose_backend("numpy")
    found = [from_scipy(bk, g, name="a block") if sp.issparse(g) else g for g in given]
    for g in found:
        if g is not None and not isinstance(g, SparseMatrix):
            raise TypeError(
                f"A {type(g).__name__} was given as a block; expected a matrix of krylix, or a sparse one of SciPy."
            )
    example = next((g for g in found if isinstance(g, SparseMatrix) and g.bk is bk), None)
    if example is None:
        raise ValueError("Nothing but None was given; expected at least one matrix.")
    return [g if g is None else on_common_backend(example, g)[1] for g in found]


def _common(sizes: Any, where: str) -> int:
    found = set(sizes)
    if len(found) != 1:
        got = "none but None" if not found else f"sizes {sorted(found)}"
        raise ValueError(f"The blocks of {where} have {got}; expected one size, told by at least one block.")
    return int(found.pop())


def _placed(places: list[tuple[SparseMatrix, int, int]], shape: tuple[int, int], format: str | None) -> SparseMatrix:
    shape = check_shape(shape)
    matrices = [b for b, _, _ in places]
    entries = [(b.structure.entries(), i, j) for b, i, j in places]
    rows = np.concatenate([e.rows + np.int32(i) for e, i, _ in entries])
    cols = np.concatenate([e.cols + np.int32(j) for e, _, j in entries])
    values = joint_values(matrices, np.result_type(*(b.dtype for b in matrices)))
    return _of_entries(matrices[0], rows, cols, values, shape, format)


def _of_entries(
    beside: SparseMatrix, rows: np.ndarray, cols: np.ndarray, values: Array, shape: Any, format: str | None
) -> SparseMatrix:
    """The matrix of entries of which none occurs twice, in the library and on the device of another."""
    options: dict[str, Any] = {"format": format, "prune": False, "sum_duplicates": False, "like": beside.anchor()}
    return from_entries(beside.bk, rows, cols, values, shape, **options)


# --- `stack`: single matrices of one pattern as one batch -------------------------------------------------------------


def stack(matrices: Sequence[Given], *, format: str | None = None) -> Matrix:
    """One batch of single matrices of one pattern: entries at the same places, of which only the values differ.

    Args:
        matrices: of krylix, or sparse ones of SciPy, of one library and shape; all dense or all sparse. Traced values
            keep their derivatives.
        format: of the result; None: that of the matrices, or what suits where these have several.

    Raises:
        ValueError: there is none, they are batches, or their shapes or patterns differ.
        TypeError: they are dense and sparse ones, or something else.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.sparse import eye, stack
        >>> A = stack([2 * eye(3), 4 * eye(3)])
        >>> linear_solve(A, np.ones(3)).x
        array([[0.5 , 0.5 , 0.5 ],
               [0.25, 0.25, 0.25]])
    """
    given = list(matrices)
    _check_single(given)
    dense = [isinstance(A, Dense) for A in given]
    if any(dense) and not all(dense):
        raise TypeError('Dense and sparse matrices were given; expected one kind. Take A.to("csr") of the dense ones.')
    batch: Matrix = _stacked_dense(given) if all(dense) else _stacked_sparse(given)
    return batch if format is None else batch.to(format)


def _check_single(matrices: list[Any]) -> None:
    """Refuse what is no matrix, batches, and several shapes."""
    if not matrices:
        raise ValueError("No matrix was given; expected at least one.")
    for i, A in enumerate(matrices):
        if len(getattr(A, "shape", ())) != 2:
            raise TypeError(f"matrices[{i}] is of type {type(A).__name__}; expected a matrix of krylix or SciPy.")
        if getattr(A, "systems", None) is not None:
            raise ValueError(
                f"matrices[{i}] is a batch of {A.systems}; expected single matrices. Take its parts, A[k]."
            )
    shapes = {tuple(A.shape): None for A in matrices}
    if len(shapes) > 1:
        raise ValueError(f"Matrices of the shapes {', '.join(map(str, shapes))} were given; expected one shape.")


def _stacked_dense(matrices: list[Dense]) -> Dense:
    bk = choose_backend(*matrices)
    dtype = np.result_type(*(A.dtype for A in matrices))
    moved = [(A if A.bk is bk else A.on_backend(bk, None)).astype(dtype) for A in matrices]
    constants = [A.constant for A in moved]
    constant = np.stack([c for c in constants if c is not None]) if all(c is not None for c in constants) else None
    return Dense(bk, constant if bk.on_host and constant is not None else bk.stack([A.matrix for A in moved]), constant)


def _stacked_sparse(matrices: list[Given]) -> SparseMatrix:
    stored: list[Any] = of_one_library([A.copy() if sp.issparse(A) else A for A in matrices])  # kept: own index arrays
    if all(A.structure == stored[0].structure for A in stored):
        return matrix_batch(stored)
    rows = [A.to("csr") for A in stored]  # two structures may hold the same places
    for i, A in enumerate(rows):
        if A.structure != rows[0].structure:
            raise ValueError(
                f"Matrices 0 and {i} have their {rows[0].nnz} and {A.nnz} entries at different places; expected the "
                "same, with zeros stored. as_operator(matrices) makes a batch on the union of all patterns."
            )
    return matrix_batch(rows).in_suitable_format()
