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
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

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


def gradient_in_torch(kind: str, method: str) -> Any:
    import torch

    b = torch.tensor(B, requires_grad=True)
    x = linear_solve(torch_functions()[kind](torch.tensor(K)), b, method=method, rtol=1e-12).x
    return torch.autograd.grad((x * torch.tensor(G)).sum(), b)[0].numpy()


def gradient_in_tf(kind: str, method: str) -> Any:
    import tensorflow as tf

    b = tf.constant(B)
    with tf.GradientTape() as tape:
        tape.watch(b)
        x = linear_solve(tf_functions()[kind](tf.constant(K)), b, method=method, rtol=1e-12).x
        loss = tf.reduce_sum(x * G)
    return tape.gradient(loss, b).numpy()


CELLS = [
    ("torch", kind, method)
    for kind in ("cut", "no_grad", "replaced", "symmetric")
    for method in ("direct", "scipy-direct", "GMRES", "biCG-stab(2)", *(("CG",) if kind == "symmetric" else ()))
] + [
    ("tf", kind, method)
    for kind in ("cut", "replaced", "symmetric")
    for method in ("direct", "scipy-direct", "GMRES", *(("CG",) if kind == "symmetric" else ()))
]


@pytest.mark.compiled_by_default("direct", "scipy-direct", "GMRES", "CG")
@pytest.mark.parametrize(("mode", "kind", "method"), CELLS)
def test_gradient_is_right_or_refused(mode: str, kind: str, method: str) -> None:
    factor = 2.0 if kind == "replaced" else 0.1
    matrix = np.diag(K + factor) - np.roll(np.eye(N), 1, 0)
    if kind == "symmetric":
        matrix -= np.roll(np.eye(N), -1, 0)
    try:
        found = gradient_in_torch(kind, method) if mode == "torch" else gradient_in_tf(kind, method)
    except RuntimeError as error:
        assert "is not A itself" in str(error) or "backward solve" in str(error)
        return
    np.testing.assert_allclose(found, np.linalg.solve(matrix.T, G), rtol=1e-8)
