"""Operators: everything that maps x to A x."""

if __name__ != "krylix.sparse":  # reached through sys.path (repository root), not through the package
    raise ModuleNotFoundError(f"{__file__} is krylix.sparse, not a top-level module", name=__name__)

from . import plot as plot
from .analysis.analysis import asymmetry
from .convert import as_operator, batch_shape, is_function, is_list_of_matrices, operand_dtype, to_operator
from .errors import NonlinearError, UnsupportedOperation
from .files.reader import load, save
from .files.saved import storable
from .formats import (
    COO,
    CSC,
    CSR,
    DIA,
    ELL,
    HYB,
    Dense,
    Matrix,
    SparseMatrix,
    Stencil,
    block,
    block_diagonal,
    eye,
    hstack,
    kron,
    stack,
    vstack,
)
from .layout import Layout
from .operator import Operator
from .operators.checks import linear_part
from .operators.composed import BridgedOperator, Composed, Turned
from .operators.cut_rows import CutRows, RowCutMatrix, cut_matrix, row_cut
from .operators.foreign import HostOperator
from .operators.function import FunctionOperator, transposed_in_shape
from .operators.wrappers import (
    CastOperator,
    MappedOperator,
    NormalOperator,
    OffsetOperator,
    OnHost,
    arguments_of,
    as_symmetric_dia,
    for_some_systems,
    in_precision,
    on_grid,
)
from .partition.row_partition import GhostCounts, ghost_counts, row_partition
from .tracing.matrix_from_function import jacobian_matrix, matrix_from_function

DenseOperator = Dense  # as an operator among others

__all__ = [
    "COO",
    "CSC",
    "CSR",
    "DIA",
    "ELL",
    "HYB",
    "BridgedOperator",
    "CastOperator",
    "Composed",
    "CutRows",
    "Dense",
    "DenseOperator",
    "FunctionOperator",
    "GhostCounts",
    "HostOperator",
    "Layout",
    "MappedOperator",
    "Matrix",
    "NonlinearError",
    "NormalOperator",
    "OffsetOperator",
    "OnHost",
    "Operator",
    "RowCutMatrix",
    "SparseMatrix",
    "Stencil",
    "Turned",
    "UnsupportedOperation",
    "arguments_of",
    "as_operator",
    "as_symmetric_dia",
    "asymmetry",
    "batch_shape",
    "block",
    "block_diagonal",
    "cut_matrix",
    "eye",
    "for_some_systems",
    "ghost_counts",
    "hstack",
    "in_precision",
    "is_function",
    "is_list_of_matrices",
    "jacobian_matrix",
    "kron",
    "linear_part",
    "load",
    "matrix_from_function",
    "on_grid",
    "operand_dtype",
    "row_cut",
    "row_partition",
    "save",
    "stack",
    "storable",
    "to_operator",
    "transposed_in_shape",
    "vstack",
]
