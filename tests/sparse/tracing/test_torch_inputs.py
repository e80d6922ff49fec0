"""What PyTorch functions may take, return and close over; Jacobians; and who asks for matrices of functions."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from cells import DTYPES
from frameworks import lazy
from krylix import NonlinearError, jacobian_matrix, linear_solve, matrix_from_function

torch = lazy("torch")
F = lazy("torch.nn.functional")

rng = np.random.default_rng(0)
Pair = namedtuple("Pair", ["a", "b"])


def laplace(x: Any) -> Any:
    p = F.pad(x, (1, 1, 1, 1))
    return 4 * x - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def stencil(n: int) -> np.ndarray:
    one = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    return np.kron(one, np.eye(n)) + np.kron(np.eye(n), one)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_dtypes(dtype: str, device: str) -> None:
    like = torch.empty(4, 4, dtype=getattr(torch, dtype), device=device)
    matrix, bias = matrix_from_function(lambda x: laplace(x) + 1, like)
    np.testing.assert_array_equal(matrix.toarray(), stencil(4))
    assert matrix.format == "dia" and matrix.dtype == dtype
    assert bias.dtype == like.dtype and bias.device.type == "cpu" and bool((bias == 1).all())
    assert (matrix @ torch.ones(16, dtype=like.dtype)).dtype == like.dtype


def test_other_dtypes_inside_and_outside() -> None:
    x = torch.zeros(4, 4, dtype=torch.float64)
    for f in (lambda x: laplace(x.float()).double(), lambda x: laplace(x).float(), lambda x: laplace(x).half()):
        if f(x).dtype != torch.float16:
            np.testing.assert_array_equal(matrix_from_function(f, x)[0].toarray(), stencil(4))
    third = torch.tensor(1 / 3, dtype=torch.float64)
    matrix, _ = matrix_from_function(lambda x: third * x, torch.zeros(3, dtype=torch.float32))
    assert matrix.dtype == np.float32


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 1, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    matrix, bias = matrix_from_function(lambda x: 2 * x.flatten() + x.sum(), torch.zeros(shape, dtype=torch.float64))
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(size) + 1)
    assert bias.shape == (size,)
    assert matrix_from_function(lambda x: x, torch.zeros(shape))[0].in_shape == shape


def test_containers() -> None:
    def f(state: Any, factor: float, *, shift: Any) -> Any:
        return Pair([state["u"] * factor + state["v"][0], None], (state["v"][1].T @ state["u"] + shift,))

    like = {"u": torch.zeros(3, 2).double(), "v": (torch.zeros(2).double(), torch.zeros(3, 4, device="meta").double())}
    with pytest.raises(NonlinearError, match=r"both factors"):
        matrix_from_function(f, like, 2.0, shift=1.0)

    def g(state: Any, factor: float, *, shift: Any) -> Any:
        return Pair([state["u"] * factor + state["v"][0], None], (state["v"][1].T + shift,))

    matrix, bias = matrix_from_function(g, like, 2.0, shift=torch.ones(3).double())
    assert matrix.shape == (6 + 12, 6 + 2 + 12) and isinstance(bias, Pair) and bias.a[1] is None
    np.testing.assert_array_equal(bias.b[0], np.ones((4, 3)))
    z = torch.tensor(rng.standard_normal(20))
    parts = g({"u": z[:6].view(3, 2), "v": (z[6:8], z[8:].view(3, 4))}, 2.0, shift=0.0)
    expected = torch.cat([parts.a[0].flatten(), parts.b[0].flatten()])
    np.testing.assert_allclose(matrix @ z, expected)


def test_like_in_any_layout_and_of_other_kinds() -> None:
    w = torch.arange(12.0, dtype=torch.float64)
    for like in (
        torch.zeros(4, 3).double().T,
        torch.zeros(6, 8)[::2, ::2].double(),
        torch.zeros(3, 1).double().expand(3, 4),
    ):
        matrix, _ = matrix_from_function(lambda x: x.reshape(-1) * w, like)
        np.testing.assert_array_equal(matrix.toarray(), np.diag(np.arange(12.0)))
    matrix, _ = matrix_from_function(lambda x, w: x * w, np.zeros(12), w)
    np.testing.assert_array_equal(matrix.toarray(), np.diag(np.arange(12.0)))
    grad = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    assert matrix_from_function(lambda x: x * w, grad)[0].constant is not None and grad.grad is None


def test_workspaces_that_the_function_closes_over() -> None:
    """What they held when the function was called counts, also where another view of them is read."""
    space = torch.arange(5.0, dtype=torch.float64)
    view = space[3:]

    def f(x: Any) -> Any:
        before = view * 2
        space[:2] = x
        space[4] = 7.0
        return torch.cat([space, before, view.flip(0)])

    matrix, bias = matrix_from_function(f, torch.zeros(2).double(), verify=False)
    np.testing.assert_array_equal(bias, [0, 0, 2, 3, 7, 6, 8, 7, 3])
    np.testing.assert_array_equal(matrix.toarray(), np.eye(9, 2))


def test_memory_that_is_exchanged() -> None:
    def f(x: Any) -> Any:
        y, z = x.clone(), 2 * x
        y.data = z.T
        y += 1
        v = z.unsqueeze_(0)
        return y + v.squeeze_().t_()

    x = torch.tensor(rng.standard_normal((3, 3)))
    matrix, bias = matrix_from_function(f, x)
    np.testing.assert_allclose((matrix @ x.flatten()).reshape(3, 3) + bias, f(x))


def test_inference_mode_inside() -> None:
    def f(x: Any) -> Any:
        with torch.inference_mode():
            return torch.einsum("ij,jk->ik", torch.ones(4, 4).double(), laplace(x)).clone()

    matrix, _ = matrix_from_function(f, torch.zeros(4, 4).double())
    np.testing.assert_allclose(matrix.toarray(), np.kron(np.ones((4, 4)), np.eye(4)) @ stencil(4))


def test_modes_of_the_caller() -> None:
    w = torch.rand(4, 4, dtype=torch.float64, requires_grad=True)

    def f(x: Any) -> Any:
        return w * laplace(x) + torch.func.grad(lambda z: (z * z).sum())(x)

    with torch.enable_grad():
        expected = matrix_from_function(f, torch.zeros(4, 4).double())[0].toarray()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            np.testing.assert_array_equal(matrix_from_function(f, torch.zeros(4, 4).double())[0].toarray(), expected)


# --- Jacobians ------------------------------------------------------------------------------------------------------


def square(x: Any) -> Any:
    """Without a forward derivative."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * ctx.saved_tensors[0].conj() * g

    return Square.apply(x)


NONLINEAR = {
    "reaction": lambda x: laplace(x) + x**3,
    "in place": lambda x: x.clone().mul_(x).add_(torch.relu(x)),
    "rectangular": lambda x: (x[1:] * x[:-1]).sin(),
    "reverse only": lambda x: square(x) + laplace(x),
    "complex": lambda x: (x + 1j) ** 2,
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_jacobian(name: str) -> None:
    f, x = NONLINEAR[name], torch.tensor(rng.standard_normal((4, 4)))
    found = jacobian_matrix(f, x)
    h = 1e-6
    columns = []
    for k in range(16):
        e = h * torch.eye(16, dtype=torch.float64)[k].reshape(4, 4)
        columns.append(((f(x + e) - f(x - e)) / (2 * h)).flatten().numpy())
    np.testing.assert_allclose(found.toarray(), np.stack(columns, 1), atol=1e-7)
    assert found.nnz < 16 * 8


def test_jacobian_of_a_complex_argument() -> None:
    x = torch.tensor(rng.standard_normal(4) + 1j)
    for power, f in {3: lambda x: x**3, 2: square}.items():
        np.testing.assert_allclose(jacobian_matrix(f, x).toarray(), np.diag(power * x.numpy() ** (power - 1)))


# --- who asks for matrices of functions -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["scipy-direct", "direct"])
def test_derivatives_of_solves_through_the_matrix(method: str) -> None:
    b, k = torch.tensor(rng.standard_normal((4, 4))), torch.rand(4, 4, dtype=torch.float64, requires_grad=True)
    x = linear_solve(lambda u: laplace(u) + k * u, b, method=method).x
    A = torch.tensor(stencil(4)) + torch.diag(k.flatten())
    expected = (torch.linalg.inv(A) @ b.flatten()).reshape(4, 4)
    found = [torch.autograd.grad((y**3).sum(), k, create_graph=True)[0] for y in (x, expected)]
    np.testing.assert_allclose(found[0].detach(), found[1].detach(), rtol=1e-10)
    second = [torch.autograd.grad((g**2).sum(), k)[0] for g in found]
    np.testing.assert_allclose(second[0], second[1], rtol=1e-9)


def test_conjugates_of_a_complex_input() -> None:
    """Twice, on all ways, they have a matrix; once they have none."""
    c = torch.tensor(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)))

    def parts(x: Any) -> Any:
        y = torch.zeros_like(x)
        y[1:] = (x.conj().resolve_conj() * c)[:2]
        y.T[0] += (c @ torch.conj_physical(x))[1] * 2j
        y.conj()[0, 1] = x[0, 0]
        return torch.cat([y, torch.roll(y, 1, 0)]).conj() + (x.mH @ c).mH.tile(2, 1)

    x = c.flip(0)
    matrix, bias = matrix_from_function(parts, torch.zeros(3, 3, dtype=c.dtype))
    np.testing.assert_allclose((matrix @ x.flatten()).reshape(6, 3) + bias, parts(x), atol=1e-13)
