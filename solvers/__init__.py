"""Methods, preconditioners and `linear_solve`."""

if __name__ != "krylix.solvers":  # reached through sys.path (repository root), not through the package
    raise ModuleNotFoundError(f"{__file__} is krylix.solvers, not a top-level module", name=__name__)

from ..backends import OtherMemberFailed
from ..backends.settings import OnFailure
from . import backend_solves as backend_solves
from . import profiled as profiled  # what profiles monitor
from .gaussian.logdet import LogDeterminant, logdet
from .judge import SingularMatrixWarning
from .linear_solve import linear_solve
from .methods.bicgstab import BiCGStab
from .methods.block_cg import BlockCG
from .methods.cg import CG, CGAdaptive, CGSingleReduction
from .methods.cocr import COCR
from .methods.direct import BandedDirect, Direct, FastDirect, ScipyDirect, SparseDirect
from .methods.gmres import GMRES
from .methods.idr import IDR
from .methods.least_squares import CGLS, LSMR
from .methods.method import Method
from .methods.minres import MINRES
from .methods.mixed_precision import MixedPrecision
from .methods.petsc.method import Petsc
from .methods.registry import METHODS, OPTIONAL_METHODS, find_method
from .methods.scipy_methods import ScipyMethod
from .names import MethodName, PreconditionerName
from .nonlinear.minimize import minimize
from .nonlinear.newton import solve_nonlinear
from .nonlinear.results import MinimizeResult, NonlinearResult
from .plan_cache import clear_setup_cache, set_global_setup_cache, setup_cache
from .preconditioners import PRECONDITIONERS, Preconditioner, preconditioner, rigid_motions
from .preconditioners.build import load_preconditioner
from .prepared import PreparedSolver, prepare
from .results.devices import GatherWarning
from .results.result import ConvergenceError, Diverged, NotConverged, SolveResult
from .run.outcome import Status
from .run.watch import IterationState
from .triangular.solve_triangular import solve_triangular

__all__ = [
    "CG",
    "CGLS",
    "COCR",
    "GMRES",
    "IDR",
    "LSMR",
    "METHODS",
    "MINRES",
    "OPTIONAL_METHODS",
    "PRECONDITIONERS",
    "BandedDirect",
    "BiCGStab",
    "BlockCG",
    "CGAdaptive",
    "CGSingleReduction",
    "ConvergenceError",
    "Direct",
    "Diverged",
    "FastDirect",
    "GatherWarning",
    "IterationState",
    "LogDeterminant",
    "Method",
    "MethodName",
    "MinimizeResult",
    "MixedPrecision",
    "NonlinearResult",
    "NotConverged",
    "OnFailure",
    "OtherMemberFailed",
    "Petsc",
    "Preconditioner",
    "PreconditionerName",
    "PreparedSolver",
    "ScipyDirect",
    "ScipyMethod",
    "SingularMatrixWarning",
    "SolveResult",
    "SparseDirect",
    "Status",
    "clear_setup_cache",
    "find_method",
    "linear_solve",
    "load_preconditioner",
    "logdet",
    "minimize",
    "preconditioner",
    "prepare",
    "rigid_motions",
    "set_global_setup_cache",
    "setup_cache",
    "solve_nonlinear",
    "solve_triangular",
]
