"""The ways to run a solve: each array library, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

import krylix

MODES = ("numpy", "jax", "jax-jit", "torch", "torch-compile", "tf", "tf-function")
EAGER = ("numpy", "jax", "torch", "tf")
COMPILED = ("jax-jit", "tf-function", "torch-compile")


def library(mode: str) -> str:
    """Name of the mode's backend."""
    return {"tf": "tensorflow"}.get(mode.split("-")[0], mode.split("-")[0])


def array(mode: str, x: Any) -> Any:
    """A NumPy array as an array of the mode's library."""
    return krylix.convert(np.asarray(x), library(mode))


def to_numpy(x: Any) -> np.ndarray:
    """Any library's array as NumPy."""
    return np.asarray(krylix.choose_backend(x).to_numpy(x))


def compiled(mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the mode runs it."""
    if mode == "jax-jit":
        import jax

        return jax.jit(function)
    if mode == "tf-function":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    if mode == "torch-compile":
        import torch

        return torch.compile(function, backend="eager")
    return function


def product(mode: str, matrix: Any) -> Callable[[Any], Any]:
    """`x -> matrix x` on the last axis, in the mode's library, for `matrix` of the library."""
    if library(mode) == "tensorflow":
        import tensorflow as tf

        return lambda x: tf.linalg.matvec(matrix, x)
    return lambda x: (matrix @ x[..., None])[..., 0]


def native_sparse(mode: str, matrix: np.ndarray, layout: str = "coo") -> Any:
    """A sparse matrix of the mode's own library."""
    name = library(mode)
    if name == "jax":
        import jax.numpy as jnp
        from jax.experimental import sparse

        # `fromdense` compiles a dozen programs for each shape.
        A = sp.csr_array(matrix)
        facts = {"shape": A.shape, "indices_sorted": True, "unique_indices": True}
        if layout == "csr":
            return sparse.BCSR(tuple(map(jnp.asarray, (A.data, A.indices, A.indptr))), **facts)
        return sparse.BCOO((jnp.asarray(A.data), jnp.asarray(np.stack(A.nonzero(), 1).astype(np.int32))), **facts)
    if name == "torch":
        import torch

        dense = torch.as_tensor(matrix)
        if layout == "bsr":
            return dense.to_sparse_bsr((2, 2))
        return {"coo": dense.to_sparse, "csr": dense.to_sparse_csr, "csc": dense.to_sparse_csc}[layout]()
    if name == "tensorflow":
        import tensorflow as tf

        return tf.sparse.from_dense(matrix)
    return {"coo": sp.coo_array, "csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}[layout](matrix)


class Numbers:
    """A SolveResult with NumPy arrays."""

    def __init__(self, result: Any) -> None:
        self.message = result.message
        self.method = result.method
        for name in ("x", "residual", "residual_norm", "tolerance", "attainable", "iterations", "function_evaluations",
                     "converged", "diverged", "status", "singular", "history"):  # fmt: skip
            value = getattr(result, name)
            setattr(self, name, None if value is None else to_numpy(value))


@lru_cache(maxsize=256)
def _solver(mode: str, precision: int | None, known: tuple[tuple[str, Any], ...]) -> Callable[[dict[str, Any]], Any]:
    """`linear_solve` with these arguments known, as a compiled function of the others."""
    arguments = dict(known)
    return compiled(mode, lambda arrays: krylix.linear_solve(**arguments, **arrays))


def solve(mode: str, A: Any, b: np.ndarray, x0: np.ndarray | None = None, **settings: Any) -> Any:
    """`linear_solve` in a mode. Where that compiles, arrays of the library are arguments of the compiled function.

    So a second system of the same shape and settings runs the program of the first. Functions, and matrices of NumPy,
    SciPy and the library's sparse kinds, are closed over: these are known while the function is compiled.
    """
    arrays = {"b": array(mode, b)} | ({} if x0 is None else {"x0": array(mode, x0)})
    if mode not in COMPILED:
        return Numbers(krylix.linear_solve(A, **arrays, **settings))
    is_array = krylix.choose_backend(library(mode)).is_array
    known = {}
    for name, value in {"A": A, **settings}.items():
        (arrays if is_array(value) else known)[name] = value
    try:
        function = _solver(mode, krylix.get_precision(), tuple(sorted(known.items(), key=lambda item: item[0])))
    except TypeError:  # without a hash
        function = _solver.__wrapped__(mode, None, tuple(known.items()))
    return Numbers(function(arrays))


def forget_compiled() -> None:
    """Let the functions go that `solve` has compiled."""
    _solver.cache_clear()
