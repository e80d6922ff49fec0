"""Methods, preconditioners and `linear_solve`."""

if __name__ != "krylix.solvers":  # reached through sys.path (repository root), not through the package
    raise ModuleNotFoundError(f"{__file__} is krylix.solvers, not a top-level module", name=__name__)

from .bicgstab import BiCGStab
from .cg import CG
from .cg_adaptive import CGAdaptive
from .direct import Direct
from .errors import ConvergenceError, Diverged, NotConverged
from .linear_solve import linear_solve
from .method import Method
from .preconditioners import PRECONDITIONERS, Preconditioner, preconditioner
from .registry import METHODS, find_method
from .result import SolveResult
from .scipy_direct import ScipyDirect
from .scipy_methods import ScipyMethod
from .status import Status

__all__ = [
    "CG",
    "METHODS",
    "PRECONDITIONERS",
    "BiCGStab",
    "CGAdaptive",
    "ConvergenceError",
    "Direct",
    "Diverged",
    "Method",
    "NotConverged",
    "Preconditioner",
    "ScipyDirect",
    "ScipyMethod",
    "SolveResult",
    "Status",
    "find_method",
    "linear_solve",
    "preconditioner",
]
