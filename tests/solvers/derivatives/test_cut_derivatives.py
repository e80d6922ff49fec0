"""A function whose derivative by its argument is not the function itself: its gradients are refused, or right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from gradients import gradient
from krylix import choose_backend, linear_solve
from modes import array, library, product, to_numpy

N = 6
K, B, G = np.linspace(4.0, 6.0, N), np.linspace(1.0, 2.0, N), np.arange(1.0, N + 1)


def twice_with_another_rule(mode: str) -> Callable[[Any], Any]:
    """`2 x`, whose derivative is said to be 5."""
    if mode.startswith("tf"):
        import tensorflow as tf

        return tf.custom_gradient(lambda x: (2 * x, lambda g: 5 * g))  # type: ignore[no-any-return]
    import torch

    class Five(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return 2 * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            return 5 * cotangents[0]

    return Five.apply  # type: ignore[no-any-return]


def without_record(x: Any) -> Any:
    import torch

    with torch.no_grad():
        return 0.1 * x


def cut(mode: str, x: Any) -> Any:
    """A tenth of x, of which no derivative is taken."""
    if mode.startswith("torch"):
        return 0.1 * x.detach()
    import tensorflow as tf

    return tf.stop_gradient(0.1 * x)


def by_b(mode: str, kind: str, method: str) -> Callable[[Any], Any]:
    """The loss as a function of b."""
    xp, rule = choose_backend(library(mode)).xp, twice_with_another_rule(mode)
    part = {"no_grad": without_record, "replaced": rule}.get(kind, lambda x: cut(mode, x))

    def A(x: Any) -> Any:
        image = part(x) + array(mode, K) * x - xp.roll(x, 1, axis=0)
        return image - xp.roll(x, -1, axis=0) if kind == "symmetric" else image

    return lambda b: xp.sum(linear_solve(A, b, method=method, rtol=1e-12).x * array(mode, G))


def gradient_of(mode: str, kind: str, method: str) -> np.ndarray:
    """In PyTorch and TensorFlow eagerly, by torch.func, in a graph, and under XLA."""
    loss, b = by_b(mode, kind, method), array(mode, B)
    if mode == "torch-func":
        import torch

        return to_numpy(torch.func.grad(loss)(b))
    function = partial(gradient, mode, loss)
    if mode.startswith("tf-"):
        import tensorflow as tf

        function = tf.function(function, jit_compile=mode == "tf-xla")
    return to_numpy(function(b))


KINDS = {"torch": ("cut", "no_grad", "replaced", "symmetric"), "tf": ("cut", "replaced", "symmetric")}
METHODS = ("direct", "scipy-direct", "GMRES", "biCG-stab(2)")
# in graphs one, each other kind and way to solve before a merge, and the other pairs on demand
IN_GRAPHS = (("cut", "direct"),)
LATER_IN_GRAPHS = (("replaced", "GMRES"), ("symmetric", "CG"), ("cut", "scipy-direct"))


def tier_of(mode: str, kind: str, method: str) -> Any:
    if mode != "tf-function" or (kind, method) in IN_GRAPHS:
        return ()
    return pytest.mark.merge if (kind, method) in LATER_IN_GRAPHS else pytest.mark.slow


CELLS = [
    pytest.param(mode, kind, method, marks=tier_of(mode, kind, method))
    for mode, library in {"torch": "torch", "torch-func": "torch", "tf": "tf", "tf-function": "tf"}.items()
    for kind in KINDS[library]
    for method in (*METHODS, *(("CG",) if kind == "symmetric" else ()))
]


def matrix_of_kind(kind: str) -> np.ndarray:
    matrix = np.diag(K + (2.0 if kind == "replaced" else 0.1)) - np.roll(np.eye(N), 1, 0)
    return matrix - np.roll(np.eye(N), -1, 0) if kind == "symmetric" else matrix


@pytest.mark.compiled_by_default("direct", "GMRES", "CG")
@pytest.mark.parametrize(("mode", "kind", "method"), CELLS)
def test_gradient_is_right_or_refused(mode: str, kind: str, method: str) -> None:
    """By which error the compiled ones end is their library's choice."""
    try:
        found = gradient_of(mode, kind, method)
    except Exception as error:
        assert "is not A itself" in str(error) or "backward solve" in str(error), error
        return
    np.testing.assert_allclose(found, np.linalg.solve(matrix_of_kind(kind).T, G), rtol=1e-8)


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_not_a_number_in_xla() -> None:
    """Which no error leaves."""
    assert np.isnan(gradient_of("tf-xla", "cut", "GMRES")).all()


@pytest.mark.parametrize("mode", ["torch", "tf"])
def test_a_derivative_that_is_the_function_passes(mode: str) -> None:
    """Complex, where a transpose is easily taken for its conjugate."""
    rng = np.random.default_rng(0)
    M = 4 * np.eye(N) + 0.3 * (rng.standard_normal((N, N)) + 1j * rng.standard_normal((N, N)))
    b, c = B + 1j * G, G - 2j * B
    A, xp = product(mode, array(mode, M)), choose_backend(library(mode)).xp

    def loss(b: Any) -> Any:
        return xp.real(xp.sum(array(mode, c.conj()) * linear_solve(A, b, method="GMRES", rtol=1e-12).x))

    found = gradient(mode, loss, array(mode, b))
    np.testing.assert_allclose(to_numpy(found), np.linalg.solve(M.conj().T, c), rtol=1e-8)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["auto", "CG"])
@pytest.mark.parametrize("where", ["always", "where x is not tracked"])
def test_second_order_of_energies_is_right_or_refused(where: str, method: str) -> None:
    """A is the gradient of an energy at a copy of x, which is symmetric: the first order alone may be right."""
    import torch

    n = 8
    rng = np.random.default_rng(0)
    root = torch.tensor(rng.standard_normal((n, n)))
    T = root @ root.T + n * torch.eye(n, dtype=torch.float64)
    b, c = (torch.tensor(rng.standard_normal(n), requires_grad=True) for _ in range(2))

    def A(x: Any) -> Any:
        own = x if x.requires_grad and where != "always" else x.detach().requires_grad_()
        energy = 0.5 * (own * (T @ own)).sum() + 0.5 * (c.exp() * own * own).sum()
        return torch.autograd.grad(energy, own, create_graph=True)[0]

    def second(x: Any) -> Any:
        first = torch.autograd.grad((x**3).sum(), [b, c], create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), [b, c])

    wanted = second(torch.linalg.solve(T + torch.diag(c.exp()), b))
    try:
        found = second(linear_solve(A, b, method=method).x)
    except RuntimeError as error:
        assert "is not A itself" in str(error)
        return
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7)
