"""Operations beyond the standard give what PhiML's own NumPy backend gives, where PhiML is installed."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest

import krylix

pytestmark = [
    pytest.mark.merge,
    pytest.mark.skipif(importlib.util.find_spec("phiml") is None, reason="compares with PhiML, which is not installed"),
]
BACKENDS = ("numpy", "jax", "torch", "tensorflow")
_rng = np.random.default_rng(0)
_apart = np.stack([_rng.permutation(20)[:6] for _ in range(2)])
OPERANDS: dict[str, Any] = {
    "grid": _rng.normal(size=(2, 4, 5, 3)).astype(np.float32),
    "at": np.stack([_rng.integers(0, 4, (2, 6)), _rng.integers(0, 5, (2, 6))], -1).astype(np.int32),
    "apart": np.stack([_apart // 5, _apart % 5], -1).astype(np.int32),
    "values": _rng.normal(size=(2, 6, 3)).astype(np.float32),
    "rows": _rng.normal(size=(2, 50)).astype(np.float32),
    "weights": _rng.uniform(size=(2, 50)).astype(np.float32),
    "edges": np.sort(_rng.normal(size=(2, 6)), 1).astype(np.float32),
    "x": _rng.uniform(0.1, 3, size=(3, 5)).astype(np.float32),
    "mask": np.array([True, False, False, True, True]),
    "anywhere": _rng.integers(-3, 7, (10, 2)).astype(np.int32),
    "bins": _rng.integers(0, 9, 50).astype(np.int32),
    "counts": np.array([2, 0, 1, 3, 1], np.int32),
    "flat": np.arange(60, dtype=np.int32),
    "starts": np.array([[0, 1, 4], [0, 2, 3]], np.int32),
    "z": (_rng.normal(size=(2, 5, 6)) + 1j).astype(np.complex64),
}
_PADDED = "[(0, 0), (2, 1), (3, 0), (0, 0)]"
# Ours, and PhiML's where it reads otherwise.
CALLS = {
    **{
        f"bk.pad(grid, {_PADDED}, {mode!r})": ""
        for mode in ("constant", "boundary", "periodic", "symmetric", "reflect")
    },
    "bk.batched_gather_nd(grid, at)": "",
    "bk.batched_gather_nd(grid, at[:1])": "",
    "bk.scatter(grid, apart, values, 'update')": "",
    **{f"bk.scatter(grid, at, values, {mode!r})": "" for mode in ("add", "max", "min")},
    "bk.scatter(grid, at[:1], values[:1, :1, :1], 'add')": "",
    "bk.unravel_index(flat, (3, 4, 5))": "",
    **{f"bk.ravel_multi_index(anywhere, (3, 4), {mode!r})": "" for mode in ("periodic", "clamp", -1)},
    "bk.nonzero(mask)": "",
    "bk.nonzero(mask, 4)": "",
    "bk.nonzero(mask, 2)": "",
    "bk.boolean_mask(x, mask, 1)": "",
    "bk.boolean_mask(x, mask, 1, 4)": "",
    "bk.repeat(x, counts, 1, 7)": "bk.repeat(x, counts, 1)",
    "bk.bincount(bins, weights[0], 9)": "",
    "bk.histogram(rows, weights, edges)": "bk.histogram1d(rows, weights, edges)",
    "bk.quantile(rows, [0, 0.3, 1.0])": "",
    "bk.indexed_segment_sum(grid, starts, 2)": "",
    "bk.fft(z, (1, 2))": "",
    "bk.ifft(z, (1,))": "",
    **{f"bk.{name}(x)": "" for name in ("erf", "log_gamma", "softplus", "sigmoid", "arcsinh", "log2", "sign", "floor")},
    "bk.gamma_inc_l(x, x + 1)": "",
    "bk.gamma_inc_u(x, x + 1)": "",
    "bk.factorial(counts)": "",
    "bk.divide_no_nan(x, x - x)": "",
    "bk.einsum('ab,cb->ac', x, x)": "",
    "bk.cumsum(x, 1)": "",
    "bk.std(x, 1)": "",
    "bk.prod(x, 1)": "",
    "bk.tile(x, (2, 1))": "",
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_like_phiml(backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from phiml.backend import NUMPY  # type: ignore[import-not-found,unused-ignore]

        wrong = []
        bk = krylix.choose_backend(backend)
        for call, other in CALLS.items():
            expected = np.asarray(eval(other or call, {**OPERANDS, "bk": NUMPY}))
            found = eval(call, {**{name: bk.asarray(x) for name, x in OPERANDS.items()}, "bk": bk})
            found = bk.to_numpy(found)
            if found.shape != expected.shape or not np.allclose(found, expected, rtol=2e-4, atol=1e-5):
                wrong.append(f"{call}: {found.shape} {expected.shape} {found.ravel()[:4]} {expected.ravel()[:4]}")
    assert not wrong, "\n".join(wrong)
