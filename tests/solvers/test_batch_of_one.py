"""A system takes the same steps alone and beside others, to the last digit where a library's arithmetic allows it.

A kernel that is chosen by the number of rows adds up in another order, and a method whose matrices are hard turns that
into other steps. Lengths stand on both sides of each threshold by which a backend chooses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import METHOD_NAMES
from frameworks import torch
from krylix import choose_backend, convert, linear_solve
from krylix.solvers import METHODS, MixedPrecision

STEPS = 7
LENGTHS = {"numpy": (37, 700, 9001), "torch": (37, 5003, 70001)}
# These ask the library for solves or products with whole matrices, where BLAS takes another kernel for one vector.
BLAS = {"direct", "block-CG"}
ALONE = [name for name in METHOD_NAMES if not METHODS[name].couples_systems and name not in BLAS]
OURS = [name for name in ALONE if not METHODS[name].on_host]
# Their factors take all systems at once, three times as fast as one after the other, by kernels of BLAS that differ.
TOGETHER = ("scipy-direct", "sparse-direct")
# Stacks of vectors, in one product for the whole batch: MKL has another kernel for a batch of one matrix.
STACKS = ("GMRES", "FGMRES", "IDR(4)")


def cells(backend: str, methods: list[str]) -> list[Any]:
    """Method, n, dtype: two of the latter by default, and before a merge one other, and long rows in double precision.

    The rest is much alike, and waits for the tier slow.
    """
    found = []
    for method in methods:
        for n in LENGTHS[backend]:
            for dtype in ("float32", "float64", "complex64", "complex128"):
                if dtype.startswith("c") and not METHODS[method].takes_complex:
                    continue
                is_long = n == LENGTHS[backend][-1]
                quick = not is_long and dtype in ("float64", "complex64") and method in OURS
                soon = dtype == ("float64" if is_long or method not in OURS else "float32")
                later = pytest.mark.merge if soon else pytest.mark.slow
                found.append(pytest.param(method, n, dtype, marks=() if quick else later))
    return found


def matrix(n: int, dtype: str, method: str = "CG") -> sp.dia_array:
    """Symmetric (Hermitian, but for methods that ask for no conjugation), and definite enough for a few steps."""
    rng = np.random.default_rng(n)
    below = [rng.standard_normal(n) * (np.exp(1j * rng.uniform(0, 6, n)) if dtype.startswith("c") else 1) for _ in "ab"]
    half = sp.dia_array((np.array(below), (-1, -3)), shape=(n, n))
    other = half.T if METHODS[method].needs_symmetric else half.conj().T
    return sp.dia_array(half + other + sp.diags_array(np.linspace(8, 40, n))).astype(dtype)


def uneven(n: int, dtype: str, method: str) -> sp.csr_array:
    """The same with some entries more, so that its rows have different lengths."""
    at = np.arange(0, n - 20, 7)
    more = sp.csr_array((np.linspace(-1, 1, len(at)).astype(dtype), (at, at + 17)), shape=(n, n))
    return sp.csr_array(matrix(n, dtype, method) + more + more.T)


def solved(A: Any, b: np.ndarray, backend: str, method: str, steps: int) -> list[np.ndarray]:
    settings = {"max_iter": steps, "rtol": 1e-6 if b.dtype.char in "fF" else 1e-13, "on_failure": "status"}
    result = linear_solve(A, convert(b, backend), method=method, **settings)
    to_numpy = choose_backend(result.x).to_numpy
    return [np.array(to_numpy(a)) for a in (result.x, result.iterations, result.status, result.residual_norm)]


def right_hand_sides(n: int, dtype: str) -> np.ndarray:
    """Some are done at once, and one has no numbers."""
    rng, count = np.random.default_rng(n + 1), 40 if n < 100 else 5
    b = rng.standard_normal((count, n)) + (1j * rng.standard_normal((count, n)) if dtype.startswith("c") else 0)
    b[1] = 0
    b[count // 2] = np.nan
    b[-1, 1:] = 0
    return b.astype(dtype)


def check_alone(A: Any, b: np.ndarray, backend: str, method: str, eps: float = 0.0, steps: int = STEPS) -> None:
    """The first and the last system alone, in a batch of 3 and in the whole batch."""
    few, many = solved(A, b[[0, 1, -1]], backend, method, steps), solved(A, b, backend, method, steps)
    for alone, among_few in ((0, 0), (len(b) - 1, 2)):
        x, *numbers = solved(A, b[alone : alone + 1], backend, method, steps)
        for batch, i in ((few, among_few), (many, alone)):
            np.testing.assert_allclose(batch[0][i], x[0], rtol=0, atol=eps * np.abs(x[0]).max())
            for name, one, other in zip(("iterations", "status", "norm"), numbers, batch[1:], strict=True):
                assert other[i] == one[0] or (name == "norm" and eps), name


@pytest.mark.parametrize(
    ("method", "n", "dtype", "kind"),
    [
        pytest.param(*cell.values, kind, marks=cell.marks if k % 2 == i else pytest.mark.slow)
        for k, cell in enumerate(cells("numpy", ALONE))
        for i, kind in enumerate((matrix, uneven))
    ],  # in turn
)
def test_to_the_last_digit_in_numpy(kind: Any, method: str, n: int, dtype: str) -> None:
    eps = 1e2 * float(np.finfo(dtype).eps) if method in TOGETHER else 0.0
    check_alone(kind(n, dtype, method), right_hand_sides(n, dtype), "numpy", method, eps)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("method", "n", "dtype"), cells("torch", OURS))
def test_to_the_last_digit_in_torch(method: str, n: int, dtype: str) -> None:
    """Real numbers; a complex product of PyTorch is rounded in another way at the end of an array's memory."""
    exact = dtype.startswith("f") and method not in STACKS
    mixed = isinstance(METHODS[method], MixedPrecision)
    eps = 0.0 if exact else 1e4 * float(np.finfo("float32" if mixed else dtype).eps)
    check_alone(matrix(n, dtype, method), right_hand_sides(n, dtype), "torch", method, eps)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("method", ["CG", pytest.param("MINRES", marks=pytest.mark.merge)])
def test_threads(threads: int, method: str) -> None:
    """PyTorch shares out long reductions, in another way if there is one of them only."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_alone(matrix(70_001, "float64"), right_hand_sides(70_001, "float64"), "torch", method, steps=2)
    finally:
        torch.set_num_threads(before)
