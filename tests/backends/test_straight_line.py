"""Programs of torch as Python functions: what they take once, what for each x, and what they give back."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from frameworks import torch
from krylix import linear_solve

pytestmark = pytest.mark.needs("torch")
N = 6


def recorded(function: Callable[..., Any], *arrays: Any) -> Any:
    """The program, recorded at one vector."""
    from krylix.backends.torch.program.recorded import record

    return record(function, torch.linspace(1, 2, N, dtype=torch.float64), arrays, arrays, find=False)


def vectors() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(N, generator=generator, dtype=torch.float64) for _ in range(3)]


def calls_of(run: Callable[[], Any]) -> list[str]:
    """The operations that it takes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[str] = []

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Noted():
        run()
    return found


@cache
def workspace() -> Any:
    return torch.zeros(N, dtype=torch.float64)


def with_workspace(u: Any, w: Any) -> Any:  # a clone of what was there, into which x is written
    room = workspace()
    room.copy_(u)
    room[1:] -= w[1:] * u[:-1]
    return room * 1


def with_rows(u: Any, w: Any) -> Any:
    table = torch.stack([w, w])
    table[1] = u
    return table.prod(0)


def into_a_coefficient(u: Any, w: Any) -> Any:
    c = w.exp()
    view = c[2:]
    view += u[2:]
    return c - w.exp() + u


def in_parts(u: Any, w: Any) -> Any:
    a, b = torch.split(u, [2, 4])
    (whole,) = torch.split(u, N)
    first, *rest = torch.unbind(w)
    return torch.cat([b, a]) * first + rest[-1] * torch.stack([whole, u]).sum(dim=0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "coefficient": lambda u, w: (w.exp() + w.flip(0)) * u,
    "in place": lambda u, w: torch.mul(u, w).add_(u, alpha=2.5).clamp_(min=-1e300),
    "workspace": with_workspace,
    "rows": with_rows,
    "into a coefficient": into_a_coefficient,
    "in parts": in_parts,
    "its argument": lambda u, w: u,
    "nothing of x": lambda u, w: w * 2,
    "settings": lambda u, w: (
        torch.roll(u, (1,), (0,)) * float("nan")
        if w is None
        else torch.nn.functional.pad(u, (1, 1), value=0.0)[1:-1] * w
    ),
    "a container": lambda u, w: {"a": (u * w, w.exp()), "b": [u, 3.0]},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_are_the_functions(name: str) -> None:
    """One that is bound once gives for each x what the function gives, whatever it got before."""
    from torch.utils._pytree import tree_leaves

    function, w = FUNCTIONS[name], torch.linspace(0.5, 1, N, dtype=torch.float64)
    program = recorded(function, w)
    product = program.bound(w)
    for x in (*vectors(), *vectors()):
        expected = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(function(x, w))]
        for found in (product(x), program(x, w)):
            for a, b in zip(tree_leaves(found), expected, strict=True):
                assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b


def test_what_does_not_depend_on_x_is_taken_once() -> None:
    w = torch.linspace(0.5, 1, N, dtype=torch.float64)
    program = recorded(FUNCTIONS["coefficient"], w)
    bound: list[Any] = []
    x = vectors()[0]
    assert sorted(calls_of(lambda: bound.append(program.bound(w)))) == ["aten::add", "aten::exp", "aten::flip"]
    assert calls_of(lambda: bound[0](x)) == ["aten::mul"]


@pytest.mark.parametrize("name", ["workspace", "rows", "into a coefficient"])
def test_writes_to_what_does_not_depend_on_x_keep_all_steps(name: str) -> None:
    w = torch.linspace(0.5, 1, N, dtype=torch.float64)
    program = recorded(FUNCTIONS[name], w)
    assert calls_of(lambda: program.bound(w)) == []


def test_random_numbers_are_drawn_for_each_x() -> None:
    program = recorded(lambda u: torch.rand(N) * u)
    product, x = program.bound(), torch.ones(N, dtype=torch.float64)
    assert not torch.equal(product(x), product(x))


def test_programs_of_one_structure_share_their_code() -> None:
    from krylix.backends.torch.program.straight_line import straight_line

    w = torch.ones(N, dtype=torch.float64)
    before = straight_line.cache_info()
    for k in range(5):
        recorded(lambda u, w, k=k: w.pow(k + 7.25) * u / (k + 0.5), w)(w, w)
    after = straight_line.cache_info()
    assert after.misses - before.misses <= 1 and after.maxsize is not None


def test_a_tensor_that_changed_is_noticed() -> None:
    c = torch.ones(N, dtype=torch.float64)
    program = recorded(lambda u: c.exp() * u)
    program(c)
    c += 1
    with pytest.raises(ValueError, match="changed in place"):
        program.bound()


def test_gradients_of_functions_with_workspaces() -> None:
    """By solves with bound programs, forward and backward, beside dense answers."""
    room = torch.empty(N, dtype=torch.float64)
    w = torch.linspace(2, 3, N, dtype=torch.float64, requires_grad=True)

    def function(u: Any) -> Any:
        room.copy_(u.new_zeros(N))
        v = (w * w) * u
        v[1:] -= 0.1 * u[:-1]
        v[:-1] -= 0.1 * u[1:]
        return v + room

    b = torch.ones(N, dtype=torch.float64)
    x = linear_solve(function, b, method="CG").x
    (first,) = torch.autograd.grad((x**2).sum(), w, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), w)
    shifts = torch.diag(torch.ones(N - 1, dtype=torch.float64), 1)

    def dense(w: Any) -> Any:
        return (torch.linalg.solve(torch.diag(w * w) - 0.1 * (shifts + shifts.T), b) ** 2).sum()

    (exact,) = torch.autograd.grad(dense(w), w, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), exact.detach().numpy(), rtol=1e-7)
    np.testing.assert_allclose(second.numpy(), torch.autograd.grad(exact.sum(), w)[0].numpy(), rtol=1e-6)


def test_settings_of_a_call_that_failed_are_none_of_the_program() -> None:
    """The function catches the error, and goes on with other settings."""

    def function(u: Any) -> Any:
        try:
            v = u.reshape(5, 3)
        except RuntimeError:
            v = u.reshape(2, 3)
        return (3.0 * v).sum(0) - 2.0

    x = vectors()[0]
    assert torch.equal(recorded(function)(x), function(x))


def test_programs_run_without_gradients_where_nobody_asks() -> None:
    """Their products are the function's, though what it closes over is recorded."""
    w = torch.linspace(2, 3, N, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        product = recorded(lambda u: w * u).bound()
        assert not product(torch.ones(N, dtype=torch.float64)).requires_grad


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_transposes_serve_wherever_they_are_used(kind: str) -> None:
    """Made where nothing is recorded: then under autograd, in a batch of `torch.func.vmap`, and in inference mode."""
    from krylix.backends import get_backend

    dtype = torch.float64 if kind == "real" else torch.complex128
    generator = torch.Generator().manual_seed(1)
    A = torch.randn(N, N, generator=generator, dtype=dtype)
    y = torch.randn(3, N, generator=generator, dtype=dtype)
    with torch.no_grad():
        transposed = get_backend("torch").transpose_function(lambda x: x @ A.T, y)
    torch.testing.assert_close(transposed(y), y @ A)
    with torch.no_grad():
        torch.testing.assert_close(transposed(y), y @ A)
        torch.testing.assert_close(transposed(y), y @ A)
        torch.testing.assert_close(torch.func.vmap(lambda v: transposed(v.expand(3, N))[0])(y), y @ A)
    with torch.inference_mode():
        torch.testing.assert_close(transposed(y.clone()), y @ A)
    tracked = y.clone().requires_grad_()
    image = transposed(tracked)
    (found,) = torch.autograd.grad((image * image.conj()).real.sum(), tracked)
    (expected,) = torch.autograd.grad((tracked @ A).abs().square().sum(), tracked)
    torch.testing.assert_close(found, expected)
    nothing = get_backend("torch").transpose_function(lambda x: torch.zeros_like(x), y)
    assert not nothing(y).any()
