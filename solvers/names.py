"""Names of methods and preconditioners as types, which editors complete; the registries are the measure.

Both have more names than can be listed: "GMRES(50)", "mixed-GMRES", those of other libraries. So arguments take any
string beside these.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

MethodName: TypeAlias = Literal[
    "auto",
    "CG",
    "CG-adaptive",
    "CG-single-reduction",
    "block-CG",
    "COCG",
    "COCR",
    "biCG-stab",
    "biCG-stab(2)",
    "biCG-stab(4)",
    "GMRES",
    "FGMRES",
    "IDR(4)",
    "MINRES",
    "LSMR",
    "CGLS",
    "mixed-CG",
    "mixed-biCG-stab(2)",
    "direct",
    "scipy-direct",
    "sparse-direct",
    "fast-direct",
    "banded-direct",
    "scipy-CG",
    "scipy-GMres",
    "scipy-lGMres",
    "scipy-biCG",
    "scipy-biCG-stab",
    "scipy-CGS",
    "scipy-QMR",
    "scipy-TFQMR",
    "scipy-GCrotMK",
    "scipy-MINRES",
    "scipy-lsqr",
    "scipy-lsmr",
    "petsc",
]
"""Names in `krylix.solvers.METHODS`, "auto", and those of methods that need a further package."""

PreconditionerName: TypeAlias = Literal[
    "auto",
    "jacobi",
    "block-jacobi",
    "ssor",
    "chebyshev",
    "ilu",
    "ic",
    "amg",
    "multigrid",
    "fast",
    "cluster",
    "shifted-laplacian",
    "schwarz",
]
"""Names in `krylix.solvers.PRECONDITIONERS`, and "auto"."""
