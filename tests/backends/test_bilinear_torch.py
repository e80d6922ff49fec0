"""The derivatives of products in PyTorch, against those of the dense matrix."""

from collections.abc import Callable
from typing import Any

import pytest

from bilinear_forms import FORMS, M, N, dtypes, few_forms, forms, indices_of, native, selectors_of, values_of
from contract import backend, rows


@pytest.mark.needs("torch")
class TestTorch:
    """autograd, forward mode and torch.func, nested."""

    @staticmethod
    def function(name: str, transposed: bool = False) -> Callable[..., Any]:
        bk = backend("torch")

        def product(*values_and_x: Any) -> Any:
            *values, x = values_and_x
            return bk.bilinear(FORMS[name], tuple(values), indices_of(name), x, transposed)

        return product

    @staticmethod
    def dense_function(name: str, transposed: bool = False) -> Callable[..., Any]:
        import torch

        selectors = [torch.as_tensor(s) for s in selectors_of(name)]

        def product(*values_and_x: Any) -> Any:
            *values, x = values_and_x
            pairs = zip(values, selectors, strict=True)
            matrix = sum(torch.tensordot(v, s.to(v.dtype), v.ndim) for v, s in pairs)
            return x @ (matrix if transposed else matrix.T)

        return product

    @staticmethod
    def arguments(name: str, dtype: str, width: int, seed: int = 0) -> list[Any]:
        return native("torch", *values_of(name, dtype, seed), rows(dtype, (2, width), seed + 10))

    @forms
    @dtypes
    @pytest.mark.parametrize("transposed", [False, True])
    def test_gradients_by_finite_differences(self, name: str, dtype: str, transposed: bool) -> None:
        import torch

        arguments = [a.requires_grad_() for a in self.arguments(name, dtype, N if transposed else M)]
        f = self.function(name, transposed)
        assert torch.autograd.gradcheck(f, arguments, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(f, arguments, check_fwd_over_rev=True)

    @few_forms
    @dtypes
    @pytest.mark.parametrize("transposed", [False, True])
    def test_nested_transformations(self, name: str, dtype: str, transposed: bool) -> None:
        import torch
        from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp

        width = N if transposed else M
        arguments, tangents = (self.arguments(name, dtype, width, s) for s in (0, 1))
        every = tuple(range(len(arguments)))
        cotangent = torch.as_tensor(rows(dtype, (2, M if transposed else N), 3))

        def scalar(f: Any) -> Any:
            return lambda *a: f(*a).abs().square().sin().sum()

        def push(f: Any) -> Any:
            return lambda *a: jvp(f, tuple(a), tuple(tangents))[1]

        def thrice(f: Any) -> Any:
            """Forward over reverse over reverse."""
            return push(grad(lambda *a: sum(g.abs().square().sum() for g in grad(scalar(f), every)(*a)), every))

        for transform in (
            push,
            lambda f: push(push(f)),
            lambda f: push(push(push(scalar(f)))),
            lambda f: lambda *a: vjp(f, *a)[1](cotangent),
            lambda f: lambda *a: vjp(lambda *a: vjp(f, *a)[1](cotangent), *a)[1](tuple(tangents)),
            thrice,
        ):
            found, want = transform(self.function(name, transposed)), transform(self.dense_function(name, transposed))
            torch.testing.assert_close(found(*arguments), want(*arguments), rtol=1e-11, atol=1e-11)
        if dtype == "float64":
            for transform in (
                hessian,
                lambda f, by: jacfwd(jacfwd(f, by), by),
                lambda f, by: jacrev(jacrev(f, by), by),
            ):
                for by in every:
                    found = transform(scalar(self.function(name, transposed)), by)(*arguments)
                    want = transform(scalar(self.dense_function(name, transposed)), by)(*arguments)
                    torch.testing.assert_close(found, want, rtol=1e-11, atol=1e-11)

    @few_forms
    @pytest.mark.parametrize("axes", [(None, 0), (None, 1), (None, 2), (0, None), (1, None), (0, 0), (1, 2)])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_vmap(self, name: str, axes: tuple[int | None, int | None], transposed: bool) -> None:
        import torch
        from torch.func import grad, vmap

        several = list(
            zip(*(self.arguments(name, "float64", N if transposed else M, s) for s in range(4)), strict=True)
        )
        dims = (axes[0],) * (len(several) - 1) + (axes[1],)
        arguments = [a[0] if axis is None else torch.stack(a, axis) for a, axis in zip(several, dims, strict=True)]
        every = tuple(range(len(arguments)))
        f, g = self.function(name, transposed), self.dense_function(name, transposed)

        def mapped(f: Any) -> Any:
            return vmap(f, dims)

        def outside(f: Any) -> Any:
            return grad(lambda *a: mapped(f)(*a).sin().sum(), every)

        def inside(f: Any) -> Any:
            return mapped(grad(lambda *a: f(*a).sin().sum(), every))

        def twice(f: Any) -> Any:
            return grad(lambda *a: sum(g.sin().sum() for g in inside(f)(*a)), every)

        def basis(f: Any) -> Any:
            return lambda *a: vmap(lambda x: mapped(f)(*a[:-1], x))(torch.stack([a[-1], 2 * a[-1]]))

        for transform in (mapped, outside, inside, twice, basis):
            found, want = transform(f)(*arguments), transform(g)(*arguments)
            torch.testing.assert_close(found, want, rtol=1e-11, atol=1e-11)

    def test_forward_mode_of_autograd(self) -> None:
        """Dual numbers, and a tangent for one array only."""
        import torch
        from torch.autograd import forward_ad

        entries, diagonals, x = self.arguments("both", "float64", M)
        f = self.function("both")
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(f(entries, forward_ad.make_dual(diagonals, 2 * diagonals), x)).tangent
        torch.testing.assert_close(tangent, f(0 * entries, 2 * diagonals, x))
