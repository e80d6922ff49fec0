"""Methods, preconditioners and `linear_solve`."""

if __name__ != "krylix.solvers":  # reached through sys.path (repository root), not through the package
    raise ModuleNotFoundError(f"{__file__} is krylix.solvers, not a top-level module", name=__name__)

from .bicgstab import BiCGStab
from .block_cg import BlockCG
from .cg import CG
from .cg_adaptive import CGAdaptive
from .cgls import CGLS
from .direct import Direct
from .errors import ConvergenceError, Diverged, NotConverged
from .gmres import GMRES
from .idr import IDR
from .linear_solve import linear_solve
from .lsmr import LSMR
from .method import Method
from .minres import MINRES
from .mixed_precision import MixedPrecision
from .preconditioners import PRECONDITIONERS, Preconditioner, preconditioner
from .prepare import PreparedSolver, prepare
from .registry import METHODS, find_method
from .result import SolveResult
from .scipy_direct import ScipyDirect
from .scipy_methods import ScipyMethod
from .status import Status

__all__ = [
    "CG",
    "CGLS",
    "GMRES",
    "IDR",
    "LSMR",
    "METHODS",
    "MINRES",
    "PRECONDITIONERS",
    "BiCGStab",
    "BlockCG",
    "CGAdaptive",
    "ConvergenceError",
    "Direct",
    "Diverged",
    "Method",
    "MixedPrecision",
    "NotConverged",
    "Preconditioner",
    "PreparedSolver",
    "ScipyDirect",
    "ScipyMethod",
    "SolveResult",
    "Status",
    "find_method",
    "linear_solve",
    "preconditioner",
    "prepare",
]
