"""Operators: everything that maps x to A x."""

if __name__ != "krylix.sparse":  # reached through sys.path (repository root), not through the package
    raise ModuleNotFoundError(f"{__file__} is krylix.sparse, not a top-level module", name=__name__)

from .bridge import BridgedOperator
from .cast import CastOperator, in_precision
from .combine import OffsetOperator
from .convert import as_operator, is_function, operand_dtype, to_operator
from .dense import DenseOperator
from .errors import NonlinearError, UnsupportedOperation
from .function import FunctionOperator
from .host import HostOperator
from .layout import Layout
from .linearity import linear_part
from .mapped import MappedOperator
from .normal import NormalOperator
from .operator import Operator
from .sparse_matrix import SparseOperator
from .symmetry import asymmetry

__all__ = [
    "BridgedOperator",
    "CastOperator",
    "DenseOperator",
    "FunctionOperator",
    "HostOperator",
    "Layout",
    "MappedOperator",
    "NonlinearError",
    "NormalOperator",
    "OffsetOperator",
    "Operator",
    "SparseOperator",
    "UnsupportedOperation",
    "as_operator",
    "asymmetry",
    "in_precision",
    "is_function",
    "linear_part",
    "operand_dtype",
    "to_operator",
]
