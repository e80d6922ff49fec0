"""A function whose derivative by its argument is not the function itself: its gradients are refused, or right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from krylix import linear_solve

N = 6
K, B, G = np.linspace(4.0, 6.0, N), np.linspace(1.0, 2.0, N), np.arange(1.0, N + 1)


def torch_functions() -> dict[str, Callable[[Any], Callable[[Any], Any]]]:
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

    def without(k: Any) -> Callable[[Any], Any]:
        def A(x: Any) -> Any:
            with torch.no_grad():
                y = 0.1 * x
            return y + k * x - torch.roll(x, 1, 0)

        return A

    return {
        "cut": lambda k: lambda x: 0.1 * x.detach() + k * x - torch.roll(x, 1, 0),
        "no_grad": without,
        "replaced": lambda k: lambda x: Five.apply(x) + k * x - torch.roll(x, 1, 0),
        "symmetric": lambda k: lambda x: 0.1 * x.detach() + k * x - torch.roll(x, 1, 0) - torch.roll(x, -1, 0),
    }


def tf_functions() -> dict[str, Callable[[Any], Callable[[Any], Any]]]:
    import tensorflow as tf

    @tf.custom_gradient
    def five(x: Any) -> Any:
        return 2 * x, lambda g: 5 * g

    return {
        "cut": lambda k: lambda x: tf.stop_gradient(0.1 * x) + k * x - tf.roll(x, 1, 0),
        "replaced": lambda k: lambda x: five(x) + k * x - tf.roll(x, 1, 0),
        "symmetric": lambda k: lambda x: tf.stop_gradient(0.1 * x) + k * x - tf.roll(x, 1, 0) - tf.roll(x, -1, 0),
    }


def gradient_in_torch(kind: str, method: str, transformed: bool = False) -> Any:
    import torch

    def loss(b: Any) -> Any:
        x = linear_solve(torch_functions()[kind](torch.tensor(K)), b, method=method, rtol=1e-12).x
        return (x * torch.tensor(G)).sum()

    b = torch.tensor(B, requires_grad=not transformed)
    return torch.func.grad(loss)(b).numpy() if transformed else torch.autograd.grad(loss(b), b)[0].numpy()


def gradient_in_tf(kind: str, method: str, graph: bool = False, xla: bool = False) -> Any:
    import tensorflow as tf

    def gradient(b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(b)
            A = tf_functions()[kind](tf.constant(K))
            loss = tf.reduce_sum(linear_solve(A, b, method=method, rtol=1e-12).x * G)
        return tape.gradient(loss, b)

    return (tf.function(gradient, jit_compile=xla) if graph else gradient)(tf.constant(B)).numpy()


KINDS = {"torch": ("cut", "no_grad", "replaced", "symmetric"), "tf": ("cut", "replaced", "symmetric")}
METHODS = ("direct", "scipy-direct", "GMRES", "biCG-stab(2)")
# in graphs, each kind and each method; the other pairs before a merge
IN_GRAPHS = (("cut", "direct"), ("replaced", "GMRES"), ("symmetric", "CG"))
CELLS = [
    pytest.param(
        mode, kind, method, marks=pytest.mark.merge if mode == "tf-function" and (kind, method) not in IN_GRAPHS else ()
    )
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
    library, _, how = mode.partition("-")
    gradient: Any = gradient_in_torch if library == "torch" else gradient_in_tf
    try:
        found = gradient(kind, method, bool(how))
    except Exception as error:
        assert "is not A itself" in str(error) or "backward solve" in str(error), error
        return
    np.testing.assert_allclose(found, np.linalg.solve(matrix_of_kind(kind).T, G), rtol=1e-8)


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_not_a_number_in_xla() -> None:
    """Which no error leaves."""
    assert np.isnan(gradient_in_tf("cut", "GMRES", graph=True, xla=True)).all()


@pytest.mark.parametrize("mode", ["torch", "tf"])
def test_a_derivative_that_is_the_function_passes(mode: str) -> None:
    """Complex, where a transpose is easily taken for its conjugate."""
    rng = np.random.default_rng(0)
    M = 4 * np.eye(N) + 0.3 * (rng.standard_normal((N, N)) + 1j * rng.standard_normal((N, N)))
    b, c = B + 1j * G, G - 2j * B
    if mode == "torch":
        import torch

        rows = torch.tensor(b, requires_grad=True)
        x = linear_solve(lambda u: torch.tensor(M) @ u, rows, method="GMRES", rtol=1e-12).x
        found = torch.autograd.grad((torch.tensor(c).conj() * x).sum().real, rows)[0].numpy()
    else:
        import tensorflow as tf

        rows = tf.constant(b)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            x = linear_solve(lambda u: tf.linalg.matvec(tf.constant(M), u), rows, method="GMRES", rtol=1e-12).x
            loss = tf.math.real(tf.reduce_sum(np.conj(c) * x))
        found = tape.gradient(loss, rows).numpy()
    np.testing.assert_allclose(found, np.linalg.solve(M.conj().T, c), rtol=1e-8)


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
