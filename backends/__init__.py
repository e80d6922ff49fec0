"""Array backends: what differs between NumPy, JAX, PyTorch and TensorFlow, and nothing else."""

if __name__ != "krylix.backends":  # reached through sys.path (repository root), not through the package
    raise ModuleNotFoundError(f"{__file__} is krylix.backends, not a top-level module", name=__name__)

from .communicators import Communicator, OtherMemberFailed, agreed, find_communicator, over_members
from .compilers import without_compilers
from .convert import convert
from .interface.arrays import nan_of
from .interface.backend import Array, Backend
from .interface.control import Kept, select
from .interface.cuts import Cut, CutAxis
from .interface.devices import ComputeDevice
from .interface.functions import LinearSystem
from .interface.kernels import Bilinear, CooEntries
from .profile import get_current_profile, profile, profile_function
from .registry import (
    NoBackendFound,
    choose_backend,
    context_backend,
    default_backend,
    get_backend,
    of_libraries,
    register_backend,
    use,
)
from .settings import (
    get_on_failure,
    get_precision,
    on_failure,
    precision,
    real_dtype,
    set_global_on_failure,
    set_global_precision,
    tune_malloc,
    working_dtype,
)

__all__ = [
    "Array",
    "Backend",
    "Bilinear",
    "Communicator",
    "ComputeDevice",
    "CooEntries",
    "Cut",
    "CutAxis",
    "Kept",
    "LinearSystem",
    "NoBackendFound",
    "OtherMemberFailed",
    "agreed",
    "choose_backend",
    "context_backend",
    "convert",
    "default_backend",
    "find_communicator",
    "get_backend",
    "get_current_profile",
    "get_on_failure",
    "get_precision",
    "nan_of",
    "of_libraries",
    "on_failure",
    "over_members",
    "precision",
    "profile",
    "profile_function",
    "real_dtype",
    "register_backend",
    "select",
    "set_global_on_failure",
    "set_global_precision",
    "tune_malloc",
    "use",
    "without_compilers",
    "working_dtype",
]
