"""Derivatives that users of PyTorch define themselves: followed as autograd does, or refused, never replaced."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import lazy

pytestmark = pytest.mark.needs("torch")
torch = lazy("torch")

METHODS = ("auto", "CG", "direct", "scipy-direct", "matrix")
C = np.array([1.6, 2.2, 2.9])


def own_function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """A `torch.autograd.Function` with this `backward(inputs, g)`."""

    class Own(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return backward(ctx.saved_tensors, g)

    Own.forward = staticmethod(forward)
    return Own.apply


@cache
def straight_through() -> Any:
    """Rounds, with the derivative of the identity."""
    return own_function(lambda x: torch.round(x), lambda _, g: g)


@cache
def rounded_times() -> Any:
    """`u * round(c)`, with the derivative of the identity for the rounding."""
    return own_function(lambda u, c: u * torch.round(c), lambda uc, g: (g * torch.round(uc[1]), g * uc[0]))


def hooked(c: Any) -> Any:
    d = c * 1.0
    d.register_hook(lambda g: 3 * g)
    return d


# coefficient -> its values and the derivative of these that the user has defined
COEFFICIENTS: dict[str, tuple[Callable[[Any], Any], np.ndarray, float]] = {
    "function": (lambda c: straight_through()(c), np.round(C), 1.0),
    "function of a function": (lambda c: 2 * straight_through()(3 * c) + 1, 2 * np.round(3 * C) + 1, 6.0),
    "hook": (hooked, C, 3.0),
}


def solved(method: str, f: Any, b: Any, *args: Any) -> Any:
    if method == "matrix":
        A, _ = krylix.matrix_from_function(lambda u: f(u, *args), b)
        return krylix.linear_solve(A, b).x
    return krylix.linear_solve(f, b, method=method, args=args).x


@pytest.mark.parametrize("inside", ["closure", "args", "keyword"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", COEFFICIENTS)
def test_coefficients(kind: str, method: str, inside: str) -> None:
    """The derivative of the sum of `1 / d(c)` with the user's derivative of d."""
    coefficient, d, derivative = COEFFICIENTS[kind]
    c, b = torch.tensor(C, requires_grad=True), torch.ones(3, dtype=torch.float64)
    if inside == "args":
        x = solved(method, lambda u, c: coefficient(c) * u, b, c)
    elif inside == "keyword":
        x = solved(method, lambda u: torch.mul(u, other=coefficient(c)), b)
    else:
        x = solved(method, lambda u: coefficient(c) * u, b)
    np.testing.assert_allclose(x.detach(), 1 / d, rtol=1e-6)
    (found,) = torch.autograd.grad(x.sum(), c)
    np.testing.assert_allclose(found, -derivative / d**2, rtol=1e-6)


def test_transformations() -> None:
    """`torch.func.grad` takes the user's backward, too."""
    b = torch.ones(3, dtype=torch.float64)

    def loss(c: Any) -> Any:
        return krylix.linear_solve(lambda u, c: straight_through()(c) * u, b, method="CG", args=(c,)).x.sum()

    found = torch.func.grad(loss)(torch.tensor(C))
    np.testing.assert_allclose(found, -1 / np.round(C) ** 2, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_functions_of_the_argument_and_of_coefficients(method: str) -> None:
    """Autograd's own derivative where the coefficient is an argument; behind a closure it cannot be told apart."""
    b = torch.ones(3, dtype=torch.float64)
    for closure in (False, True):
        c = torch.tensor(C, requires_grad=True)
        try:
            if closure:
                x = solved(method, lambda u, c=c: rounded_times()(u, c), b)
            else:
                x = solved(method, rounded_times(), b, c)
        except (RuntimeError, krylix.sparse.UnsupportedOperation) as error:
            assert "autograd.Function" in str(error) and (closure or method in ("matrix", "scipy-direct"))
            continue
        assert not closure
        (found,) = torch.autograd.grad(x.sum(), c)
        np.testing.assert_allclose(found, -1 / np.round(C) ** 2, rtol=1e-6)


def test_functions_of_the_argument_only() -> None:
    """One without coefficients whose derivatives are recorded is followed: its matrix is that of its forward."""
    twice = own_function(lambda u: 2 * u, lambda _, g: 2 * g)
    b = torch.tensor(C, requires_grad=True)
    for method in METHODS:
        x = solved(method, twice, b)
        (found,) = torch.autograd.grad(x.sum(), b)
        np.testing.assert_allclose(found, [0.5] * 3)
