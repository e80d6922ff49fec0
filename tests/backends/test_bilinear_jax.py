"""The derivatives of products in JAX, against those of the dense matrix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bilinear_forms import (
    COLS,
    FORMS,
    OFFSETS,
    ROWS,
    Coordinates,
    Diagonals,
    M,
    N,
    close,
    dense,
    dtypes,
    few_forms,
    forms,
    indices_of,
    selectors_of,
    values_of,
)
from contract import backend, rows

AXES = [(None, 0), (1, 2), *(pytest.param(axes, marks=pytest.mark.merge) for axes in ((None, 2), (0, None)))]
AXES += [pytest.param(axes, marks=pytest.mark.slow) for axes in ((None, 1), (1, None), (0, 0))]


@pytest.mark.needs("jax")
class TestJax:
    """Every transformation, of every argument."""

    @staticmethod
    def function(name: str, transposed: bool = False) -> Callable[..., Any]:
        bk = backend("jax")
        return lambda values, x: bk.bilinear(FORMS[name], values, indices_of(name), x, transposed)

    @staticmethod
    def dense_function(name: str, transposed: bool = False) -> Callable[..., Any]:
        """The same in JAX's own operations on the dense matrix."""
        import jax.numpy as jnp

        selectors = selectors_of(name)

        def product(values: Any, x: Any) -> Any:
            matrix = sum(jnp.tensordot(v, s, v.ndim) for v, s in zip(values, selectors, strict=True))
            return x @ (matrix if transposed else matrix.T)

        return product

    @few_forms
    @dtypes
    @pytest.mark.parametrize("transposed", [False, True])
    def test_first_order(self, name: str, dtype: str, transposed: bool) -> None:
        import jax

        f, g = self.function(name, transposed), self.dense_function(name, transposed)
        values, x = values_of(name, dtype), rows(dtype, (2, N if transposed else M))
        dv, dx = values_of(name, dtype, 1), rows(dtype, x.shape, 2)
        ct = rows(dtype, (2, M if transposed else N), 3)

        def everything(h: Any) -> Any:
            def parts(v: Any, x: Any, dv: Any, dx: Any) -> list[Any]:
                return [
                    jax.jvp(h, (v, x), (dv, dx)),
                    jax.vjp(h, v, x)[1](ct),
                    jax.jvp(lambda x: h(values, x), (x,), (dx,))[1],
                    jax.linear_transpose(lambda x: h(values, x), x)(ct),
                    jax.linear_transpose(lambda v: h(v, rows(dtype, x.shape, 4)), v)(ct),
                ]

            return parts

        given = values, x, dv, dx
        want = jax.jit(everything(g))(*given)
        for found in (everything(f)(*given), jax.jit(everything(f))(*given)):
            jax.tree.map(close, found, want)
        close(want[2], jax.jit(g)(values, dx))

    @few_forms
    @dtypes
    @pytest.mark.parametrize("transposed", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_higher_order(self, name: str, dtype: str, transposed: bool) -> None:
        import jax
        import jax.numpy as jnp

        x = rows(dtype, (2, N if transposed else M))
        values = values_of(name, dtype)

        def scalar(f: Any) -> Any:
            return lambda v, x: jnp.sum(jnp.sin(jnp.abs(f(v, x)) ** 2))

        found, want = (scalar(h(name, transposed)) for h in (self.function, self.dense_function))

        def thrice(f: Any) -> Any:
            """Forward over reverse over reverse."""
            push = lambda v, x: jax.jvp(lambda v, x: jnp.real(jax.grad(f, 1)(v, x)).sum(), (v, x), (v, x))[1]  # noqa: E731
            return jax.grad(push, (0, 1))

        ways = [thrice]
        if dtype == "float64":
            ways += [lambda f: jax.hessian(f, (0, 1)), lambda f: jax.jacfwd(jax.jacfwd(f, 0), 1)]

        def everything(f: Any) -> Any:
            return jax.jit(lambda v, x: [way(f)(v, x) for way in ways])

        jax.tree.map(close, everything(found)(values, x), everything(want)(values, x))

    @few_forms
    @pytest.mark.parametrize("axes", AXES)
    @pytest.mark.parametrize("transposed", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_vmap(self, name: str, axes: tuple[int | None, int | None], transposed: bool) -> None:
        """Of the vectors, the values and both; its derivatives, and derivatives inside."""
        import jax
        import jax.numpy as jnp

        def several(arrays: Sequence[np.ndarray], axis: int | None) -> Any:
            if axis is None:
                return arrays[0]
            return jnp.stack(arrays, axis)

        width = N if transposed else M
        v_axis, x_axis = axes
        x = several([rows("float64", (2, width), s) for s in range(4)], x_axis)
        values = tuple(several(v, v_axis) for v in zip(*(values_of(name, "float64", s) for s in range(4)), strict=True))
        f, g = self.function(name, transposed), self.dense_function(name, transposed)

        def mapped(f: Any) -> Any:
            return jax.vmap(f, axes)

        def outside(f: Any) -> Any:
            return jax.grad(lambda v, x: jnp.sum(jnp.sin(mapped(f)(v, x))), (0, 1))

        def inside(f: Any) -> Any:
            return mapped(jax.grad(lambda v, x: jnp.sum(jnp.sin(f(v, x))), (0, 1)))

        def twice(f: Any) -> Any:
            return jax.grad(lambda v, x: sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(inside(f)(v, x))), (0, 1))

        def everything(f: Any) -> Any:
            return lambda v, x: [transform(f)(v, x) for transform in (mapped, outside, inside, twice)]

        close(mapped(f)(values, x), jax.jit(mapped(g))(values, x))
        jax.tree.map(close, *(jax.jit(everything(h))(values, x) for h in (f, g)))

    @forms
    def test_nested_vmaps(self, name: str) -> None:
        import jax
        import jax.numpy as jnp

        f, g = self.function(name), self.dense_function(name)
        values = tuple(np.stack(v) for v in zip(*(values_of(name, "float64", s) for s in range(3)), strict=True))
        x = rows("float64", (2, 4, 2, M))

        def tables(f: Any) -> Any:
            """Values by x by x, where the middle map has x only."""
            return jax.vmap(lambda v: jax.vmap(lambda x: jax.vmap(lambda x: f(v, x))(x))(x))(values)

        def gradient(f: Any) -> Any:
            some = jax.grad(lambda v, x: jnp.sum(jnp.sin(f(v, x))), (0, 1))
            return jax.vmap(jax.vmap(jax.vmap(some, (None, 0)), (None, 0)), (0, None))(values, x)

        close(tables(f), tables(g))
        jax.tree.map(close, gradient(f), gradient(g))
        basis = jax.vmap(lambda x: jax.vmap(lambda v: f(v, x))(values))(x[0])
        close(basis, jax.vmap(lambda x: jax.vmap(lambda v: g(v, x))(values))(x[0]))

    def test_mapped_indices(self) -> None:
        import jax

        bk, values, x = backend("jax"), values_of("coordinates", "float64"), rows("float64", (2, M))
        several = np.stack([ROWS, (ROWS + 1) % N])
        found = jax.vmap(lambda i: bk.bilinear(Coordinates(), values, (i, COLS), x))(several)
        alone = [bk.bilinear(Coordinates(), values, (i, COLS), x) for i in several]
        close(found, np.stack(alone))

    def test_in_loops_checkpoints_and_custom_linear_solve(self) -> None:
        import jax
        import jax.numpy as jnp

        bk, x = backend("jax"), rows("float64", (1, N))

        @dataclass(frozen=True)
        class Square(Diagonals):
            def product_transposed(self, bk: Any, values: Any, indices: Any, y: Any) -> Any:
                return bk.dia_product(values[0], OFFSETS, y, N, transposed=True)

        d = 0.1 * rows("float64", (len(OFFSETS), N)) + 3 * (np.array(OFFSETS) == 0)[:, None]
        matrix = dense("diagonals", [d])[:, :N]

        def product(d: Any, x: Any) -> Any:
            return bk.bilinear(Square(), (d,), (), x)

        def powers(d: Any, x: Any) -> Any:
            return jax.lax.scan(lambda y, _: (jax.checkpoint(product)(d, y), None), x, None, 3)[0].sum()

        def exact(d: Any, x: Any) -> Any:
            matrix = sum(jnp.diag(d[i, max(0, -o) : min(N, N - o)], o) for i, o in enumerate(OFFSETS) if abs(o) < N)
            return (x @ matrix.T @ matrix.T @ matrix.T).sum()

        jax.tree.map(close, jax.grad(powers, (0, 1))(d, x), jax.grad(exact, (0, 1))(d, x))

        def solve(f: Any, b: Any) -> Any:
            return jnp.linalg.solve(jax.jacfwd(lambda x: f(x[None])[0])(b[0]), b[0])[None]

        b = rows("float64", (1, N), 4)
        solved = jax.vjp(lambda b: jax.lax.custom_linear_solve(lambda x: product(d, x), b, solve, solve), b)
        close(solved[0], np.linalg.solve(matrix, b[0])[None])
        close(solved[1](x)[0], np.linalg.solve(matrix.T, x[0])[None])
