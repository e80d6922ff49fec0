"""Derivatives in PyTorch are those of the function as it was when the solve was called; against the dense inverse.

Kinds of closures that all libraries have are tested in `test_closure_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frameworks import lazy
from krylix import linear_solve

torch = lazy("torch")
N = 5
METHODS = ("GMRES", "biCG-stab(2)", "direct", "scipy-direct")  # products, a dense matrix, one on the host
methods = pytest.mark.parametrize("method", METHODS)


def given() -> tuple[Any, Any, Any]:
    """A matrix, not symmetric, a right-hand side, and a cotangent."""
    generator = torch.Generator().manual_seed(1)
    M, b, g = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((N, N), (N,), (N,)))
    return (4 * torch.eye(N, dtype=torch.float64) + 0.4 * M).requires_grad_(), b.requires_grad_(), g


def solve(A: Callable[..., Any], b: Any, method: str, args: Any = ()) -> Any:
    return linear_solve(A, b, method=method, args=args, rtol=1e-13).x


def by_inverse(M: Any, b: Any) -> Any:
    return torch.linalg.inv(M) @ b


def check(x: Any, wanted: Any, parameters: Any, g: Any) -> None:
    """First and second derivatives."""
    for found, exact in zip(gradients(x, parameters, g), gradients(wanted, parameters, g), strict=True):
        assert exact.abs().max() > 0
        torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-9)


def gradients(x: Any, parameters: Any, g: Any) -> list[Any]:
    first = torch.autograd.grad(((x**3).sum() + x @ g).real, parameters, create_graph=True)
    return [*first, *torch.autograd.grad(sum((f.conj() * f).real.sum() for f in first), parameters)]


@methods
def test_a_parameter_of_a_module_that_is_replaced(method: str) -> None:
    _, b, g = given()
    layer = torch.nn.Linear(N, N, bias=False, dtype=torch.float64)
    weight = layer.weight
    x = solve(lambda v: 4 * v + layer(v), b, method)
    layer.weight = torch.nn.Parameter(2 * weight.detach())
    check(x, by_inverse(4 * torch.eye(N, dtype=torch.float64) + weight, b), (weight, b), g)


@methods
def test_time_loop(method: str) -> None:
    """The function of each step reads a name that the next step binds anew."""
    _, b, _ = given()
    kappa = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def steps(krylix: bool) -> Any:
        u = b.detach()
        for _ in range(3):
            d = kappa * (1 + u**2)

            def A(x: Any) -> Any:
                padded = torch.nn.functional.pad(x, (1, 1))
                return x - d * (padded[2:] - 2 * x + padded[:-2])  # noqa: B023

            u = (
                solve(A, u, method)
                if krylix
                else by_inverse(torch.stack([A(e) for e in torch.eye(N, dtype=torch.float64)], 1), u)
            )
        return u

    check(steps(True), steps(False), (kappa,), torch.ones(N, dtype=torch.float64))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: torch.func.grad(f),
        lambda f: torch.func.jacfwd(f),
        lambda f: torch.func.grad(torch.func.grad(f)),
    ],
    ids=["grad", "jacfwd", "grad of grad"],
)
def test_time_loop_in_transformations(transform: Callable[..., Any]) -> None:
    M, b, _ = given()
    M, b = M.detach(), b.detach()

    def steps(by: Callable[..., Any]) -> Callable[[Any], Any]:
        def loss(kappa: Any) -> Any:
            u = b
            for step in range(1, 4):
                d = kappa * (step + u**2)
                u = by(d, u)
            return (u**3).sum()

        return loss

    kappa = torch.tensor(0.3, dtype=torch.float64)
    found = transform(steps(lambda d, u: solve(lambda v: M @ v + d * v, u, "GMRES")))(kappa)
    torch.testing.assert_close(
        found, transform(steps(lambda d, u: by_inverse(M + torch.diag(d), u)))(kappa), rtol=1e-8, atol=0
    )


def test_captures_that_depend_on_each_other() -> None:
    M, b, g = given()
    square = M * M
    check(solve(lambda v: M @ v + square @ v, b, "GMRES"), by_inverse(M + M * M, b), (M, b), g)
    check(solve(lambda v, W: M @ v + W @ v, b, "GMRES", (M,)), by_inverse(2 * M, b), (M, b), g)  # also in args
    check(solve(lambda v: M @ v + b * v, b, "GMRES"), by_inverse(M + torch.diag(b), b), (M, b), g)


@pytest.mark.parametrize("tracked", [True, False])
def test_changed_in_place_is_an_error(tracked: bool) -> None:
    M, b, g = given()
    W = M * 1 if tracked else torch.eye(N, dtype=torch.float64)
    x = solve(lambda v: W @ v + M @ v, b, "GMRES")
    with torch.no_grad():
        W.add_(1.0)
    with pytest.raises((ValueError, RuntimeError), match=r"in place|inplace"):  # ours, or PyTorch's
        torch.autograd.grad(x, (M, b), g)


def test_what_the_function_cuts_off_and_writes() -> None:
    """detach, no_grad, workspaces and updates in place."""
    M, b, g = given()
    work = torch.zeros(N, dtype=torch.float64)

    def cut(v: Any) -> Any:
        with torch.no_grad():
            largest = M.abs().max() * 1
            torch.mul(M[0], 2.0, out=work)
        return M @ v + largest * v + M.detach().diagonal() * v + work.clone() * v

    def dense(A: Callable[..., Any]) -> Any:
        return torch.stack([A(e) for e in torch.eye(N, dtype=torch.float64)], 1)

    check(solve(cut, b, "GMRES"), by_inverse(dense(cut), b), (M, b), g)

    def writes(v: Any) -> Any:
        y = M @ v
        y[1:] += 0.3 * M[0, 1:] * v[:-1]
        y[:-1].sub_(v[1:])
        return y

    check(solve(writes, b, "GMRES"), by_inverse(dense(writes), b), (M, b), g)


def test_derivatives_inside_of_the_function() -> None:
    """A is the Hessian of an energy times its argument, by autograd twice, and by a forward derivative."""
    _, b, g = given()
    weight, at = (
        torch.linspace(0.5, 1.5, N, dtype=torch.float64).requires_grad_(),
        torch.linspace(-0.4, 0.6, N, dtype=torch.float64),
    )

    def energy(u: Any) -> Any:
        return torch.exp(weight * u).sum() + (u * u).sum() + torch.tanh(weight @ u) ** 2

    def twice(v: Any) -> Any:
        u = at.clone().requires_grad_()
        (first,) = torch.autograd.grad(energy(u), u, create_graph=True)
        return torch.autograd.grad(first, u, v, create_graph=True)[0]

    def forward(v: Any) -> Any:
        return torch.func.jvp(torch.func.grad(energy), (at,), (v,))[1]

    for A in (twice, forward):
        dense = torch.stack([A(e) for e in torch.eye(N, dtype=torch.float64)], 1)
        check(solve(A, b, "GMRES"), by_inverse(dense, b), (weight, b), g)


def test_a_vmap_inside_of_the_function() -> None:
    M, b, g = given()
    check(solve(lambda v: torch.vmap(lambda row: row @ v)(M), b, "GMRES"), by_inverse(M, b), (M, b), g)


def test_a_branch_on_the_argument() -> None:
    M, b, g = given()

    def A(v: Any) -> Any:
        return M @ v * float(M.detach()[0, 0]) if bool(v.any()) else 0 * v

    check(solve(A, b, "GMRES"), by_inverse(M * M.detach()[0, 0], b), (M, b), g)


def test_values_of_the_argument_that_leave_torch() -> None:
    """The function is then called for each product; derivatives by b need none of A's but of the transposed ones."""
    M, b, _ = given()
    weights = M.detach()

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, v: Any) -> Any:
            return torch.from_numpy(weights.numpy() @ v.detach().numpy())

        @staticmethod
        def backward(ctx: Any, c: Any) -> Any:
            return weights.T @ c

    x = solve(Product.apply, b, "GMRES")
    torch.testing.assert_close(x, by_inverse(weights, b), rtol=1e-9, atol=0)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_values_that_escape_unseen(share: float) -> None:
    """What the record takes for a constant is found by a second vector: then the function itself is called."""
    M, b, _ = given()

    def A(v: Any) -> Any:
        escaped = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(v.detach()))
        return (1 - share) * (M @ v) + share * (M @ escaped)

    torch.testing.assert_close(solve(A, b, "GMRES").detach(), by_inverse(M, b).detach(), rtol=1e-9, atol=0)


def test_a_random_function() -> None:
    M, b, _ = given()
    with pytest.raises((ValueError, RuntimeError)):  # not linear, or it has no solution: never a success
        solve(lambda v: M @ v * (1 + torch.rand((), dtype=torch.float64)), b, "GMRES")


def test_a_complex_function_with_a_conjugate_matrix() -> None:
    M, b, g = given()
    M, b, g = (torch.complex(v.detach(), v.detach().flip(0) / 3).requires_grad_() for v in (M, b, g))
    check(solve(lambda v: M.conj() @ v, b, "GMRES"), by_inverse(M.conj(), b), (M, b), g.detach())
