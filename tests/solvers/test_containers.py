"""Unknowns in containers: dictionaries, lists, tuples and what a library knows as such."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import krylix
from frameworks import jax, jnp, torch
from gradients import gradients
from krylix import linear_solve
from modes import MODES, array, compiled, library, to_numpy


class Fields(NamedTuple):
    """Velocity and pressures."""

    u: Any
    p: list[Any]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-CG"])
@pytest.mark.compiled_by_default("CG")
def test_containers_of_arrays(method: str, mode: str) -> None:
    """Dictionaries in any order, lists and named tuples; x, the residual and what A returns are such containers."""
    total = krylix.choose_backend(library(mode)).sum

    def A(x: dict[str, Any]) -> dict[str, Any]:
        (first, second), u = x["v"].p, x["v"].u
        both = total(first, 0) + total(second, 0) + total(x["a"], (0, 1))
        return {"v": Fields(10 * u + both, [11 * first + total(u, 0), 12 * second + total(u, 0)]),
                "a": 13 * x["a"] + total(u, 0)}  # fmt: skip

    u, first, second, a = np.arange(3.0), np.ones(2), np.ones(1), np.arange(4.0).reshape(2, 2)
    n = (3, 2, 1, 4)
    matrix = np.diag(np.repeat([10.0, 11, 12, 13], n))
    matrix[:3, 3:] = matrix[3:, :3] = 1
    x = np.linalg.solve(matrix, np.concatenate([u, first, second, a.ravel()]))
    given = [array(mode, v) for v in (u, first, second, a)]

    def run(u: Any, first: Any, second: Any, a: Any) -> Any:
        b = {"a": a, "v": Fields(u, [first, second])}
        result = linear_solve(A, b, method=method, rtol=1e-9)
        assert list(result.x) == ["a", "v"] and type(result.x["v"]) is type(result.residual["v"]) is Fields
        return [result.x["v"].u, *result.x["v"].p, result.x["a"]]

    found = compiled(mode, run)(*given)
    assert [tuple(part.shape) for part in found] == [(3,), (2,), (1,), (2, 2)]
    np.testing.assert_allclose(np.concatenate([to_numpy(part).ravel() for part in found]), x, atol=1e-7)


@pytest.mark.parametrize("mode", ["jax-jit", "torch", "tf"])
def test_derivatives_of_containers(mode: str) -> None:
    """With respect to each array of b, and in a batch."""
    b = [np.arange(6.0).reshape(2, 3), np.ones((2, 1))]
    matrix = np.array([[4.0, 0, 0, 1], [0, 5, 0, 1], [0, 0, 6, 1], [2, 2, 2, 7]])
    bk = krylix.choose_backend(library(mode))

    def A(x: tuple[Any, Any]) -> tuple[Any, Any]:
        scale = array(mode, np.diagonal(matrix)[:3])
        return scale * x[0] + x[1], 7 * x[1] + 2 * bk.sum(x[0], 1, keepdims=True)

    def loss(first: Any, second: Any) -> Any:
        x = linear_solve(A, (first, second), batch_ndim=1, method="biCG-stab(2)", rtol=1e-12).x
        return bk.sum(x[0] ** 2, (0, 1)) + bk.sum(x[1] ** 3, (0, 1))

    inverse = np.linalg.inv(matrix)
    x = np.concatenate(b, 1) @ inverse.T
    wanted = np.concatenate([2 * x[:, :3], 3 * x[:, 3:] ** 2], 1) @ inverse
    found = gradients(mode, loss, *b)
    np.testing.assert_allclose(np.concatenate(found, 1), wanted, rtol=1e-8)


def test_containers_that_do_not_fit() -> None:
    b = {"u": np.ones(3), "p": np.ones(2)}
    with pytest.raises(ValueError, match=r"A\(x\) has the structure .*'u'.*expected .*'p', 'u'.*that of b"):
        linear_solve(lambda x: {"u": x["u"]}, b, method="CG")
    with pytest.raises(TypeError, match=r"A is a matrix, so b must be one array; got a dict"):
        linear_solve(np.eye(3), {"u": np.ones(3)})
    with pytest.raises(TypeError, match=r"b must be an array; got NoneType"):
        linear_solve(lambda x: x, {"u": np.ones(3), "p": None})
    with pytest.raises(ValueError, match=r"empty container"):
        linear_solve(lambda x: x, {})
    assert linear_solve(np.eye(3), [1, 2.0, np.float64(3)]).x.tolist() == [1, 2, 3]
    assert linear_solve(lambda x: 2 * x, [[1, 2], [3, 4]], method="CG").x.shape == (2, 2)


@pytest.mark.needs("torch")
def test_containers_that_torch_knows() -> None:
    """Those registered with `torch.utils._pytree`, such as those of other packages."""
    from torch.utils._pytree import register_pytree_node

    class Grid:
        def __init__(self, data: Any, name: str) -> None:
            self.data, self.name = data, name

    register_pytree_node(Grid, lambda g: ([g.data], g.name), lambda leaves, name: Grid(leaves[0], name))
    x = linear_solve(lambda g: Grid(2 * g.data, g.name), Grid(torch.ones(3), "cell"), method="CG").x
    assert isinstance(x, Grid) and x.name == "cell" and x.data.tolist() == [0.5] * 3
    with pytest.raises(ValueError, match="structure"):
        linear_solve(lambda g: Grid(2 * g.data, "face"), Grid(torch.ones(3), "cell"), method="CG")


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_containers_with_operators_of_numpy() -> None:
    """As programs of others define their grid arrays: a pytree of JAX, with NumPy's mixin for its operators."""
    from jax import tree_util

    @tree_util.register_pytree_node_class
    class GridArray(np.lib.mixins.NDArrayOperatorsMixin):
        def __init__(self, data: Any, offset: tuple[float, ...]) -> None:
            self.data, self.offset = data, offset

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
            plain = [x.data if isinstance(x, GridArray) else x for x in inputs]
            return GridArray(getattr(jnp, ufunc.__name__)(*plain), self.offset)

        def tree_flatten(self) -> Any:
            return (self.data,), self.offset

        @classmethod
        def tree_unflatten(cls, offset: Any, leaves: Any) -> Any:
            return cls(leaves[0], offset)

    def f(u: Any) -> Any:
        return 3.0 * u - GridArray(jnp.roll(u.data, 1), u.offset) - GridArray(jnp.roll(u.data, -1), u.offset)

    b = GridArray(jnp.arange(8.0), (0.5,))
    dense = 3 * np.eye(8) - np.roll(np.eye(8), 1, 0) - np.roll(np.eye(8), -1, 0)
    x = linear_solve(f, b, method="CG").x
    assert isinstance(x, GridArray) and x.offset == (0.5,)
    assert np.allclose(x.data, np.linalg.solve(dense, np.arange(8.0)), atol=1e-4)
    matrix, _ = krylix.matrix_from_function(f, b)
    assert np.allclose(matrix.toarray(), dense)
    loss = jax.grad(lambda data: linear_solve(f, GridArray(data, (0.5,)), method="CG").x.data[0])
    assert np.allclose(loss(b.data), np.linalg.inv(dense)[0], atol=1e-4)


@pytest.mark.needs("jax")
def test_prepared_in_numpy_after_a_solve_in_jax() -> None:
    """JAX then knows functions of krylix as containers."""

    def pair(x: dict[str, Any]) -> dict[str, Any]:
        return {"u": 3 * x["u"] + x["v"], "v": 2 * x["v"] - x["u"]}

    linear_solve(pair, {"u": jnp.ones(24), "v": jnp.ones(24)})
    b = {"u": np.ones(24), "v": np.ones(24)}
    x = krylix.prepare(pair, b).solve(b).x
    assert np.allclose(x["u"], 1 / 7) and np.allclose(x["v"], 4 / 7)


def test_the_operator_of_a_batch_knows_its_axes() -> None:
    """A container for a function that was made into an operator for several systems, without `batch_ndim`."""

    def A(x: dict[str, Any]) -> dict[str, Any]:
        return {"u": 3 * x["u"] + x["p"].sum(-1, keepdims=True), "p": 5 * x["p"] + x["u"].sum(-1, keepdims=True)}

    rng = np.random.default_rng(4)
    b = {"u": rng.normal(size=(3, 2)), "p": rng.normal(size=(3, 4))}
    matrix = np.diag(np.repeat([3.0, 5.0], [2, 4]))
    matrix[:2, 2:] = matrix[2:, :2] = 1
    result = linear_solve(krylix.as_operator(A, b, batch_ndim=1), b, method="GMRES", rtol=1e-12)
    assert result.iterations.shape == (3,)
    want = np.linalg.solve(matrix, np.concatenate([b["u"], b["p"]], axis=1).T).T
    np.testing.assert_allclose(np.concatenate([result.x["u"], result.x["p"]], axis=1), want, atol=1e-10)
