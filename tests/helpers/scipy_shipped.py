"""SciPy's own test modules, as shipped in its wheel, with the functions of `krylix.scipy_like` in place of SciPy's."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse.linalg
import scipy.sparse.linalg._dsolve
import scipy.sparse.linalg._isolve

from krylix import scipy_like

PACKAGES = (scipy.sparse.linalg, scipy.sparse.linalg._isolve, scipy.sparse.linalg._dsolve)
OURS = (
    "bicg", "bicgstab", "cg", "cgs", "factorized", "gcrotmk", "gmres", "lgmres", "lsmr", "lsqr", "minres", "qmr",
    "splu", "spsolve", "spsolve_triangular", "tfqmr",
)  # fmt: skip


def shipped_tests(name: str) -> dict[str, Any]:
    """What pytest collects of the module `scipy.sparse.linalg.<name>`, for the globals of one of our own.

    Args:
        name: as `_isolve.tests.test_lsqr`; skipped where this build of SciPy comes without its tests.
    """
    found = {key: value for key, value in vars(_rebound(name)).items() if not key.startswith("__")}
    return {key: value for key, value in found.items() if not isinstance(value, ModuleType)}


def _rebound(name: str) -> ModuleType:
    """The module in a copy of its own, which found our functions where it imports SciPy's."""
    full = f"scipy.sparse.linalg.{name}"
    spec = importlib.util.find_spec(full)
    if spec is None or spec.loader is None:
        pytest.skip("this build of SciPy comes without its tests", allow_module_level=True)
    before, random = sys.modules.pop(full, None), np.random.get_state()  # noqa: NPY002
    np.random.seed(1234)  # noqa: NPY002  # some draw their matrices when they are imported
    try:
        with ExitStack() as stack:
            for package in PACKAGES:
                stack.enter_context(mock.patch.multiple(package, **_ours(package)))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    finally:
        np.random.set_state(random)  # noqa: NPY002
        if before is not None:
            sys.modules[full] = before
    return module


def _ours(package: ModuleType) -> dict[str, Any]:
    return {name: getattr(scipy_like, name) for name in OURS if hasattr(package, name)}
