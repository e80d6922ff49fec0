"""PyTorch and TensorFlow around loops of NumPy: what a function may do, and where the library must loop itself."""

import warnings
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import tf, torch
from krylix import linear_solve

pytestmark = pytest.mark.needs("torch")
N = 6
MATRIX = np.diag(np.arange(2.0, N + 2)) + 0.3 * (np.eye(N, k=1) + np.eye(N, k=-1))
B = np.arange(1.0, N + 1)
ANSWER = np.linalg.solve(MATRIX, B)


def check(A: Any, b: Any = None, **settings: Any) -> Any:
    b = torch.tensor(B) if b is None else b
    result = linear_solve(A, b, method="CG", **settings)
    assert type(result.x) is torch.Tensor and result.x.dtype == b.dtype
    close = 1e-8 if b.dtype == torch.float64 else 1e-4
    np.testing.assert_allclose(result.x.detach().numpy(), ANSWER, rtol=close, atol=close)
    return result


def test_what_a_function_may_return() -> None:
    """Views, buffers of its own, its argument, tensors whose numbers are kept conjugate or negative."""
    A, room, doubled = (
        torch.tensor(MATRIX),
        torch.empty(N, dtype=torch.float64),
        torch.empty(2 * N, dtype=torch.float64),
    )

    def strided(u: Any) -> Any:
        doubled[::2] = A @ u
        return doubled[::2]

    def rotated(u: Any) -> Any:
        return (A @ u).to(torch.complex128).mul(1j).conj().imag.neg().neg().neg()

    check(lambda u: torch.mv(A, u, out=room))
    check(strided)
    check(lambda u: torch._neg_view(-(A @ u)))
    check(rotated)
    check(lambda u: A.clone().requires_grad_().detach() @ u)
    check(lambda u: torch.linalg.vecdot(A, u.expand(N, N)))
    result = linear_solve(lambda u: u, torch.tensor(B), method="CG")
    np.testing.assert_array_equal(result.x.numpy(), B)
    phase = torch.tensor(B) * (1 + 1j)
    for image in (
        lambda u: A * (1 + 0j) @ u.conj().resolve_conj().conj(),
        lambda u: torch.conj(torch.conj_physical(A * (1 + 0j) @ u)),
    ):
        found = linear_solve(image, phase.conj(), method="CG")
        np.testing.assert_allclose(found.x.resolve_conj().numpy(), ANSWER * (1 - 1j), rtol=1e-8)


def test_what_a_function_may_not_return() -> None:
    A = torch.tensor(MATRIX)
    for image, error, words in (
        (lambda u: (A @ u)[:-1], ValueError, "shape"),
        (lambda u: None, TypeError, "return"),
        (lambda u: (A @ u).float(), TypeError, "float32"),
        (lambda u: (A @ u) * 1j, TypeError, "complex"),
        (lambda u: u.mul_(2), ValueError, "writes"),
    ):
        with pytest.raises(error, match=words):
            check(image)
    calls = [0]

    def later(u: Any) -> Any:  # seen in a product of the loop, not in the looks before it
        calls[0] += 1
        return A @ u if calls[0] < 6 else (u.mul_(2) if calls[0] == 6 else A @ u)

    with pytest.raises(ValueError, match="writes"):
        linear_solve(later, torch.tensor(B), method="CG", max_iter=50, on_failure="status")


def test_a_function_of_more_precision_is_called_as_often() -> None:
    A, calls = torch.tensor(MATRIX), [0, 0]

    def function(u: Any, kind: int) -> Any:
        calls[kind] += 1
        return A @ u.double() if kind else A.float() @ u

    results = [check(lambda u, k=k: function(u, k), torch.tensor(B, dtype=torch.float32)) for k in (0, 1)]
    assert results[0].iterations == results[1].iterations and calls[0] == calls[1]


def test_modes_of_the_library() -> None:
    """Inference, no gradients, a default device, autocast: the answer is an array as that mode makes them."""
    A = torch.tensor(MATRIX)
    with torch.inference_mode():
        assert check(lambda u: A @ u).x.is_inference()
        assert check(lambda u: A @ u, torch.tensor(B)).residual.is_inference()
    with torch.no_grad():
        check(lambda u: A @ u)
    with torch.device("cpu"):
        check(lambda u: A @ u)
    with torch.autocast("cpu", torch.bfloat16):
        check(lambda u: A @ u)
    assert not check(lambda u: A @ u).x.is_inference()
    check(lambda u: A @ u, torch.nn.Parameter(torch.tensor(B)))


def test_memory_of_the_caller_stays_as_it_is() -> None:
    A, b, x0 = torch.tensor(MATRIX), torch.tensor(B), torch.tensor(ANSWER)
    for start in (None, x0, x0 + 1e-3):
        result = check(lambda u: A @ u, b, x0=start)
        for found in (result.x, result.residual):
            found += 1
        assert torch.equal(b, torch.tensor(B)) and torch.equal(x0, torch.tensor(ANSWER))


def test_equal_solves_have_equal_digits() -> None:
    """Wherever the right-hand side and NumPy's arrays lie: MKL adds up in an order that follows from that."""
    generator = torch.Generator().manual_seed(0)
    A = torch.rand(301, 301, generator=generator, dtype=torch.float32)
    A = A @ A.T + 301 * torch.eye(301)
    b, found, kept = torch.rand(301, generator=generator), [], []
    for shift in range(6):
        kept.append(np.empty(17 * shift + 1))
        room = torch.empty(301 + shift)
        room[shift:] = b
        found.append(linear_solve(A, room[shift:], method="MINRES").x)
    assert all(torch.equal(found[0], x) for x in found)


@pytest.mark.parametrize("nested", ["forward", "reverse"])
def test_a_solve_inside_of_the_function(nested: str) -> None:
    """Its derivatives are those of the inner solve, which is recorded where the function is."""
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=nested == "reverse")
    inner = torch.tensor(np.diag(np.arange(1.0, N + 1)))

    def function(w: Any) -> Any:
        def A(u: Any) -> Any:
            return w * u + linear_solve(lambda v: inner @ v + w * v, u, method="CG").x

        return linear_solve(A, torch.tensor(B), method="CG").x.sum()

    d = np.arange(1.0, N + 1)
    exact = -np.sum(B * (1 - 1 / (d + 2) ** 2) / (2 + 1 / (d + 2)) ** 2)
    if nested == "reverse":
        function(w).backward()
        found = w.grad
    else:
        found = torch.func.grad(function)(w)
    np.testing.assert_allclose(found.item(), exact, rtol=1e-6)


def test_no_warnings_of_huge_cotangents() -> None:
    A, b = torch.tensor(MATRIX, requires_grad=True), torch.tensor(B, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = linear_solve(lambda u: A @ u, b, method="CG", on_failure="status").x
        (x * 1e300).sum().backward()
    assert bool(torch.isfinite(b.grad).all())


@pytest.mark.needs("tensorflow")
@pytest.mark.merge
def test_tapes_and_accumulators_of_tensorflow() -> None:
    """First and second derivatives of a loop that TensorFlow does not see; forward ones are refused, never zero."""
    d, b = tf.constant(np.arange(2.0, N + 2)), tf.constant(B)

    def x(w: Any) -> Any:
        return krylix.linear_solve(lambda u: w * d * u, b, method="CG", nullspace=None).x

    w = tf.constant(1.5, tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(w)
        with tf.GradientTape() as tape:
            tape.watch(w)
            y = tf.reduce_sum(x(w))
        first = tape.gradient(y, w)
    total = np.sum(B / np.arange(2.0, N + 2))
    np.testing.assert_allclose(first.numpy(), -total / 1.5**2, rtol=1e-8)
    np.testing.assert_allclose(outer.gradient(first, w).numpy(), 2 * total / 1.5**3, rtol=1e-8)
    with tf.autodiff.ForwardAccumulator(w, tf.constant(1.0, tf.float64)), pytest.raises(RuntimeError, match="Forward"):
        x(w)
