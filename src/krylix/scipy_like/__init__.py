"""`scipy.sparse.linalg` with krylix underneath: `from krylix import scipy_like as sla` replaces its import.

| ours | underneath |
|---|---|
| `cg`, `bicgstab`, `gmres`, `minres` | `linear_solve` with that method |
| `spsolve` | `linear_solve` with "auto" |
| `splu`, `factorized` | SuperLU, with an ordering of less fill where that is safe |
| `spsolve_triangular` | `krylix.solve_triangular` |
| `bicg`, `cgs`, `qmr`, `tfqmr` | SciPy's algorithm; the true residual decides |
| `lgmres`, `gcrotmk` | SciPy's function, which tests the true residual itself |
| `lsqr`, `lsmr` | SciPy's function; norms of the true residual |

Every other name (`LinearOperator`, `eigsh`, `spilu`, `norm`, `expm_multiply`, ...) is SciPy's own.
"""

from .delegation import __dir__ as __dir__
from .delegation import __getattr__ as __getattr__
from .direct import factorized, splu, spsolve, spsolve_triangular
from .krylov import bicg, bicgstab, cg, cgs, gcrotmk, gmres, lgmres, lsmr, lsqr, minres, qmr, tfqmr

__all__ = [
    "bicg",
    "bicgstab",
    "cg",
    "cgs",
    "factorized",
    "gcrotmk",
    "gmres",
    "lgmres",
    "lsmr",
    "lsqr",
    "minres",
    "qmr",
    "splu",
    "spsolve",
    "spsolve_triangular",
    "tfqmr",
]
