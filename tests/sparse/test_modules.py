"""Modules of PyTorch: their modes, buffers and dtypes, alone and behind other functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import NonlinearError, as_operator, linear_solve

torch = lazy("torch")
N = 8
B = np.arange(1.0, N + 1)


def linear(dtype: str = "float64", n: int = N) -> Any:
    layer = torch.nn.Linear(n, n, bias=False, dtype=getattr(torch, dtype))
    with torch.no_grad():
        layer.weight.copy_(3 * torch.eye(n))
    return layer


def with_dropout() -> Any:
    return torch.nn.Sequential(linear(), torch.nn.Dropout(0.5))


def own_noise() -> Any:
    """Random in training mode, with no part that tells."""

    class Noise(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear()

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.dropout(self.linear(x), 0.5, self.training)

    return Noise()


model: Any = None


def by_global_name(x: Any) -> Any:
    return model(x)


class Holder:
    def __init__(self, module: Any) -> None:
        self.module = module


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "module": lambda m: m,
    "closure": lambda m: lambda x: m(x),
    "closure of a closure": lambda m: (lambda f: lambda x: f(x))(lambda x: m(x)),
    "bound method": lambda m: m.forward,
    "partial": lambda m: partial(m),
    "global name": lambda m: by_global_name,
    "operator": lambda m: as_operator(m, _b()),
}


def _b(dtype: str = "float64") -> Any:
    return torch.tensor(B, dtype=getattr(torch, dtype))


@pytest.mark.parametrize("make", [with_dropout, own_noise])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_training_mode_after_evaluation_mode(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any], wrapped: str
) -> None:
    """What was found out in one mode is not taken for the other; and back."""
    torch.manual_seed(0)
    module = make().eval()
    monkeypatch.setitem(globals(), "model", module)
    function = WRAPPED[wrapped](module)
    for _ in range(2):
        np.testing.assert_allclose(linear_solve(function, _b()).x.detach(), B / 3)
        module.train()
        with pytest.raises(ValueError, match=r"different values for the same x.*module\.eval\(\)"):
            linear_solve(function, _b())
        module.eval()


def test_flag_of_a_closure() -> None:
    def make() -> Any:
        cube = False

        def function(x: np.ndarray) -> np.ndarray:
            return x**3 if cube else 2 * x

        def switch() -> None:
            nonlocal cube
            cube = True

        return function, switch

    function, switch = make()
    np.testing.assert_allclose(linear_solve(function, B).x, B / 2)
    switch()
    with pytest.raises(NonlinearError, match="is not linear"):
        linear_solve(function, B)


def test_random_functions_are_named() -> None:
    """Also of NumPy; one evaluation more, only where the test of linearity failed."""
    rng = np.random.default_rng(0)
    with pytest.raises(NonlinearError, match=r"different values for the same x.*random numbers"):
        linear_solve(lambda x: 3 * x + rng.standard_normal(x.shape), B)


@pytest.mark.parametrize("as_M", [False, True])
@pytest.mark.parametrize("kind", ["batch", "instance", "spectral"])
def test_buffers_are_kept(kind: str, as_M: bool) -> None:
    """A module that writes to them in training mode is refused before it is evaluated."""
    if kind == "spectral":
        module = torch.nn.utils.parametrizations.spectral_norm(linear())
    else:
        norm = torch.nn.BatchNorm1d(N) if kind == "batch" else torch.nn.InstanceNorm1d(N, track_running_stats=True)
        module = torch.nn.Sequential(linear(), norm.double())
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    b = torch.ones((3, N), dtype=torch.float64)
    with pytest.raises(ValueError, match=r"training mode, where every evaluation changes its buffers.*eval\(\)"):
        if as_M:
            linear_solve(lambda x: 2 * x, b, preconditioner=module, batch_ndim=1)
        else:
            linear_solve(module, b, batch_ndim=1)
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name])
    if kind == "batch":  # a scale and a shift
        assert linear_solve(module.eval(), b, batch_ndim=1).converged.all()


def test_buffers_behind_a_function() -> None:
    """The test of linearity takes its own writes back."""
    norm = torch.nn.BatchNorm1d(N).double()
    with pytest.raises(NonlinearError):
        linear_solve(lambda x: norm(3 * x), torch.ones((3, N), dtype=torch.float64), batch_ndim=1)
    assert int(norm.num_batches_tracked) == 0 and not norm.running_mean.any()


@pytest.mark.parametrize("as_M", [False, True])
@pytest.mark.parametrize("of_b", ["float64", "float32", "numpy"])
def test_dtypes(of_b: str, as_M: bool) -> None:
    own = "float64" if of_b == "float32" else "float32"
    b = B if of_b == "numpy" else _b(of_b)
    message = {
        "float32": r"are float32, b is taken as float64: give b\.float\(\), or call module\.double\(\)",
        "float64": r"are float64, b is taken as float32: give b\.double\(\), or call module\.float\(\)",
    }
    with pytest.raises(TypeError, match=message[own]):
        if as_M:
            linear_solve(lambda x: 2 * x, b, preconditioner=linear(own), method="GMRES")
        else:
            linear_solve(linear(own), b)


def test_complex_vectors() -> None:
    with pytest.raises(TypeError, match=r"call module\.to\(torch\.complex128\), or solve for the real and the imag"):
        linear_solve(linear(), _b() + 1j)


def test_as_operator() -> None:
    """Of tensors, and of NumPy's arrays, which become tensors for it."""
    for like in (_b(), B):
        A = as_operator(linear(), like)
        np.testing.assert_allclose(A(_b()).detach(), 3 * B)
    with pytest.raises(ValueError, match="give `like`"):
        as_operator(linear())


def test_other_errors_stay() -> None:
    """A vector of the wrong size keeps PyTorch's words; a module that converts by itself is taken."""
    with pytest.raises(ValueError, match="shapes cannot be multiplied"):
        linear_solve(linear(n=N + 1), _b())

    class Converting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.tensor(4.0))

        def forward(self, x: Any) -> Any:
            return self.factor.double() * x

    np.testing.assert_allclose(linear_solve(Converting(), _b()).x.detach(), B / 4)
