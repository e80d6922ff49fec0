"""Sparse matrices: a static structure and values of any array library."""

from .choose import FormatChoice, choose_format
from .compressed import COO, CSC, CSR
from .dense import Dense
from .dia import DIA
from .ell import ELL, HYB
from .making.assemble import block, block_diagonal, eye, hstack, kron, stack, vstack
from .making.build import from_csr, from_diagonals, from_entries, from_systems, matrix_batch
from .making.foreign import from_native, from_scipy, pattern_from_scipy, places_of_values
from .matrix import FORMATS, Matrix
from .sparse_matrix import SparseMatrix
from .stencil import Stencil, stencil_of
from .structure import Slots, Structure
from .traced_coo import TracedCOO

__all__ = [
    "COO",
    "CSC",
    "CSR",
    "DIA",
    "ELL",
    "FORMATS",
    "HYB",
    "Dense",
    "FormatChoice",
    "Matrix",
    "Slots",
    "SparseMatrix",
    "Stencil",
    "Structure",
    "TracedCOO",
    "block",
    "block_diagonal",
    "choose_format",
    "eye",
    "from_csr",
    "from_diagonals",
    "from_entries",
    "from_native",
    "from_scipy",
    "from_systems",
    "hstack",
    "kron",
    "matrix_batch",
    "pattern_from_scipy",
    "places_of_values",
    "stack",
    "stencil_of",
    "vstack",
]
