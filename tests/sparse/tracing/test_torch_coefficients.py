"""Derivatives through the values of a matrix: by what a PyTorch function closes over, and by its arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import UnsupportedOperation, matrix_from_function

torch = lazy("torch")
F = lazy("torch.nn.functional")

N = 5
rng = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Tensors that the functions close over: collecting tests imports no framework."""
    global X, MASK, INDEX
    X = torch.zeros(N, N, dtype=torch.float64)
    MASK = torch.tensor(rng.random((N, N)) > 0.4)
    INDEX = torch.tensor(rng.integers(0, N, N))


def diffusion(x: Any, k: Any) -> Any:
    p, q = (F.pad(a[None, None], (1, 1, 1, 1), mode="replicate")[0, 0] for a in (x, k))
    return (q[2:, 1:-1] + k) * (p[2:, 1:-1] - x) - (k + q[1:-1, :-2]) * (x - p[1:-1, :-2])


def in_place(x: Any, k: Any) -> Any:
    y = k * x
    y[1:] -= k[1:] * x[:-1]
    y[:, 0] = k[0, 0] * x[:, 1]
    c = k.clone()
    c[1:] *= 2
    c[0] = x[0]
    return y + c


def without_gradient(x: Any, k: Any) -> Any:
    with torch.no_grad():
        c = k * 2
    return c * x + k.detach() * x + k * k.data * x


def energy(z: Any, k: Any) -> Any:
    return (k * z**2).sum() + (k[1:] * z[1:] * z[:-1]).sum()


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "diffusion": diffusion,
    "in place": in_place,
    "without gradient": without_gradient,
    "scalar": lambda x, k: k[0, 0] * x + k.sum() * x.flip(0) + x / k[1, 1],
    "divided": lambda x, k: x / k + k,
    "where": lambda x, k: torch.where(k > 1, x, k * x.T) + torch.where(MASK, k, x),
    "products": lambda x, k: k @ x + x @ k.T + torch.einsum("ij,ij->i", k, x) + k[0] @ x,
    "addmm": lambda x, k: torch.addmm(k, k, x, beta=2) + torch.addmm(x, k, k, alpha=0.5),
    "gathered": lambda x, k: k[INDEX] * x[INDEX] + (k * x).index_add(0, INDEX, k * x),
    "assigned": lambda x, k: x.index_put((INDEX[:1],), k[:1]) + (k * x).masked_fill(MASK, 2.0),
    "convolution": lambda x, k: F.conv2d(x[None, None], k[None, None, :3, :3], k[0, :1], padding=1)[0, 0],
    "transposed convolution": lambda x, k: F.conv_transpose2d(x[None, None], k[None, None, :2, :3]),
    "batch norm": lambda x, k: (
        F.batch_norm(x, k[0].detach(), k[1].detach(), k[2], k[3]) + F.batch_norm(k, x[0], k[1].detach(), k[2], x[1])
    ),
    "bags": lambda x, k: (
        F.embedding_bag(INDEX, x, INDEX[:1] * 0, mode="sum", per_sample_weights=k[0])
        + F.embedding_bag(INDEX, k, INDEX[:1] * 0, mode="sum", per_sample_weights=x[0])
    ),
    "bilinear": lambda x, k: F.bilinear(x, k, k[None]) + F.bilinear(k, k, x[None], k[0, :1]),
    "lists": lambda x, k: torch.stack(torch._foreach_addcmul([x, k], [k, x], [k, k], 2.0)),
    "blocks": lambda x, k: torch.block_diag(x, k),
    "reshaped": lambda x, k: (k * x).reshape(-1)[5:20].reshape(5, 3).flip(0) * k[:, :3],
    "summed": lambda x, k: (k * x).sum() + (k * x).cumsum(0) + k.cumsum(1),
    "stacked": lambda x, k: torch.stack([k * x, k, x], 1),
    "fft": lambda x, k: torch.fft.irfft(k[:, :3] * torch.fft.rfft(x), n=N),
    "solved": lambda x, k: torch.linalg.solve(k + 5 * torch.eye(N, dtype=k.dtype), x),
    "complex": lambda x, k: ((k + 1j * k**2) * torch.complex(x, x)).conj().imag,
    "vmap": lambda x, k: torch.vmap(lambda a, b: a * b.exp())(x, k),
    "jvp": lambda x, k: torch.func.jvp(torch.func.grad(lambda z: energy(z, k)), (X,), (x,))[1],
    "gradient": lambda x, k: torch.func.grad(lambda z: energy(z, k))(x),
}


def flat(x: Any) -> Any:
    return torch.cat([x.reshape(-1)])


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str, closed: bool) -> None:
    """First and second, through the product with the matrix and through the function."""
    f = FUNCTIONS[name]
    k = torch.tensor(rng.random((N, N)) + 0.6, requires_grad=True)
    u, direction = torch.tensor(rng.standard_normal((N, N))), torch.tensor(rng.standard_normal((N, N)))

    def by_matrix(k: Any) -> Any:
        made = matrix_from_function(lambda x: f(x, k), X) if closed else matrix_from_function(f, X, k)
        return flat(made[0] @ u.reshape(-1) + made[1].reshape(-1))

    found, expected = [], []
    for into, product in ((found, by_matrix), (expected, lambda k: flat(f(u.clone(), k)))):
        y = product(k)
        weights = torch.linspace(1, 2, y.numel(), dtype=y.dtype)
        (first,) = torch.autograd.grad((weights * y).sum(), k, create_graph=True)
        into += [y, first]
        second = None
        if first.requires_grad:
            (second,) = torch.autograd.grad((first * direction).sum(), k, allow_unused=True)
        into.append(torch.zeros_like(k) if second is None else second)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-11, atol=1e-11)


def test_values_are_known_without_derivatives() -> None:
    k = torch.tensor(rng.random((N, N)), requires_grad=True)
    assert matrix_from_function(diffusion, X, k)[0].constant is None
    assert matrix_from_function(diffusion, X, k.detach())[0].constant is not None
    with torch.no_grad():
        assert matrix_from_function(diffusion, X, k)[0].constant is not None


def test_forward_derivatives_are_refused_or_right() -> None:
    """Duals are tensors of a transformation, which have no matrix."""
    k, t = torch.rand(N, N, dtype=torch.float64), torch.rand(N, N, dtype=torch.float64)
    with pytest.raises(UnsupportedOperation, match=r"torch\.func"):
        torch.func.jvp(lambda k: matrix_from_function(diffusion, X, k)[0] @ X.reshape(-1), (k,), (t,))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_later_changes_of_constants_do_not_matter(requires_grad: bool) -> None:
    """As a step of an optimiser, which writes to the parameters."""
    for f in (diffusion, lambda x, k: k * x, lambda x, k: k.reshape(-1)[3:8] * x[0], lambda x, k: x + k):
        k = torch.tensor(rng.random((N, N)), requires_grad=requires_grad)
        u = torch.tensor(rng.random((N, N)))
        expected = f(u, k).detach().clone()
        matrix, bias = matrix_from_function(f, X, k)
        with torch.no_grad():
            k.mul_(3)
        found = (matrix @ u.reshape(-1)).reshape(expected.shape) + bias
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-13, atol=1e-14)  # of numbers of size one


@pytest.mark.merge
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor"
)  # of what goes from graph to graph, by torch itself
def test_inside_of_torch_compile() -> None:
    """Which makes the matrix between two graphs."""
    k = torch.tensor(rng.random((N, N)) + 0.5, requires_grad=True)

    def loss(k: Any) -> Any:
        return (matrix_from_function(diffusion, X, k)[0].values ** 2).sum() * 3

    (found,) = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(k), k)
    (wanted,) = torch.autograd.grad(loss(k), k)
    step, direction = 1e-6, torch.tensor(rng.standard_normal((N, N)))
    difference = (loss(k + step * direction) - loss(k - step * direction)).item() / (2 * step)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    np.testing.assert_allclose((found * direction).sum().item(), difference, rtol=1e-6)
