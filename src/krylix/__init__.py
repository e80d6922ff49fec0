"""krylix solves `A x = b` on the arrays of NumPy/SciPy, JAX, PyTorch and TensorFlow.

`A` is a linear Python function, a sparse or a dense matrix. Importing krylix imports none of the frameworks: the
array in hand decides.
"""

from pathlib import Path as _Path

__version__ = "0.1.0"

_here = _Path(__file__).parent
if not (_here / "solvers").is_dir():  # a checkout without its links (Windows, an unpacked sdist)
    __path__.append(str(_here.parents[1]))

from . import backends, solvers, sparse
from .backends import (
    NoBackendFound,
    choose_backend,
    context_backend,
    convert,
    default_backend,
    get_current_profile,
    get_on_failure,
    get_precision,
    on_failure,
    precision,
    profile,
    profile_function,
    register_backend,
    set_global_on_failure,
    set_global_precision,
    use,
)
from .backends.public_names import shown as _shown
from .solvers import (
    ConvergenceError,
    Diverged,
    GatherWarning,
    IterationState,
    LogDeterminant,
    MinimizeResult,
    NonlinearResult,
    NotConverged,
    OtherMemberFailed,
    Preconditioner,
    PreparedSolver,
    SingularMatrixWarning,
    SolveResult,
    Status,
    clear_setup_cache,
    linear_solve,
    load_preconditioner,
    logdet,
    minimize,
    preconditioner,
    prepare,
    rigid_motions,
    set_global_setup_cache,
    setup_cache,
    solve_nonlinear,
    solve_triangular,
)
from .sparse import (
    NonlinearError,
    SparseMatrix,
    UnsupportedOperation,
    as_operator,
    jacobian_matrix,
    matrix_from_function,
)

__all__ = [
    "ConvergenceError",
    "Diverged",
    "GatherWarning",
    "IterationState",
    "LogDeterminant",
    "MinimizeResult",
    "NoBackendFound",
    "NonlinearError",
    "NonlinearResult",
    "NotConverged",
    "OtherMemberFailed",
    "Preconditioner",
    "PreparedSolver",
    "SingularMatrixWarning",
    "SolveResult",
    "SparseMatrix",
    "Status",
    "UnsupportedOperation",
    "as_operator",
    "backends",
    "choose_backend",
    "clear_setup_cache",
    "context_backend",
    "convert",
    "default_backend",
    "get_current_profile",
    "get_on_failure",
    "get_precision",
    "jacobian_matrix",
    "linear_solve",
    "load_preconditioner",
    "logdet",
    "matrix_from_function",
    "minimize",
    "on_failure",
    "precision",
    "preconditioner",
    "prepare",
    "profile",
    "profile_function",
    "register_backend",
    "rigid_motions",
    "set_global_on_failure",
    "set_global_precision",
    "set_global_setup_cache",
    "setup_cache",
    "solve_nonlinear",
    "solve_triangular",
    "solvers",
    "sparse",
    "use",
]

__dir__ = _shown([*__all__, "__version__"])
