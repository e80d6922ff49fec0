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

from .direct import factorized, splu, spsolve, spsolve_triangular
from .krylov import bicg, bicgstab, cg, cgs, gcrotmk, gmres, lgmres, lsmr, lsqr, minres, qmr, tfqmr
from .wrap import names_of_scipy as __dir__  # noqa: F401
from .wrap import object_of_scipy as __getattr__  # noqa: F401

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
