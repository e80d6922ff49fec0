"""`jacobian` and `hessian` of whole functions: against finite differences of the same function in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from frameworks import jax, torch
from gradients import derivatives
from krylix.backends import Backend, get_backend
from modes import COMPILED, EAGER, array, compiled, library, to_numpy

MODES = (*EAGER[1:], *COMPILED)
each = pytest.mark.parametrize("mode", MODES)
eagerly = pytest.mark.parametrize("mode", EAGER[1:])
X = np.array([[0.3, -1.2, 0.8], [0.5, 0.9, -0.4]])
Y = np.array([0.7, -0.2, 1.1])
Z = np.array([0.6 - 0.3j, -1.1 + 0.4j])
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "one number": (lambda bk, x, y: bk.sum(bk.sin(x) * y * y, (0, 1)), (X, Y)),
    "several": (lambda bk, x, y: bk.exp(x[:, 0]) * bk.sum(y * y * y, 0), (X, Y)),
    "axes": (lambda bk, x, y: (x[:, 1:] * y[1:] * y[0])[:, None], (X, Y)),
    "one, with an axis": (lambda bk, x, y: bk.sum(x * x * y, (0, 1), True)[0], (X, Y)),
    "complex": (lambda bk, z, y: bk.real(z * z * (2 - 1j)) * bk.sum(y, 0) + bk.abs(z), (Z, Y)),
}


def differences(f: Callable[..., Any], args: tuple[np.ndarray, ...], place: int, step: float = 1e-5) -> np.ndarray:
    """d f / d args[place] by central differences; d/dRe + i d/dIm of a complex argument."""

    def along(x: np.ndarray) -> Any:
        high, low = (f(*args[:place], args[place] + sign * x, *args[place + 1 :]) for sign in (1, -1))
        return (np.asarray(high) - np.asarray(low)) / (2 * step)

    units = np.eye(args[place].size).reshape(-1, *args[place].shape) * step
    rows = [along(u) + (1j * along(1j * u) if args[place].dtype.kind == "c" else 0) for u in units]
    return np.moveaxis(np.stack(rows), 0, -1).reshape(*np.shape(rows[0]), *args[place].shape)


@each
def test_jacobian(mode: str) -> None:
    """All functions in one program."""
    bk, host = get_backend(library(mode)), get_backend("numpy")
    jacobians = [bk.jacobian(lambda *a, f=f: (f(bk, *a), a[1]), (0, 1)) for f, _ in FUNCTIONS.values()]
    run = compiled(mode, lambda *every: [of(*args) for of, args in zip(jacobians, every, strict=True)])
    every = run(*([array(mode, a) for a in args] for _, args in FUNCTIONS.values()))
    for (f, args), (loss, beside, *found) in zip(FUNCTIONS.values(), every, strict=True):
        np.testing.assert_allclose(to_numpy(loss), f(host, *args), rtol=1e-13)
        np.testing.assert_array_equal(to_numpy(beside), args[1])
        for place, derivative in enumerate(found):
            expected = differences(lambda *a, f=f: f(host, *a), args, place)
            assert to_numpy(derivative).dtype == args[place].dtype
            np.testing.assert_allclose(to_numpy(derivative), expected, atol=1e-8)


@each
def test_hessian(mode: str) -> None:
    """Of each system of a batch, by two arguments, and with what f returns beside its loss."""
    bk, host = get_backend(library(mode)), get_backend("numpy")

    def f(bk: Backend, x: Any, y: Any) -> Any:
        return bk.sum(bk.sin(x) * x[:, :1], 1) * bk.sum(y * y, (1, 2)) + y[:, 0, 0]

    x, y = X, np.arange(1.0, 9.0).reshape(2, 2, 2) / 8
    run = compiled(mode, bk.hessian(lambda x, y: (f(bk, x, y), x), (0, 1)))
    (loss, beside), gradients, hessians = run(array(mode, x), array(mode, y))
    np.testing.assert_allclose(to_numpy(loss), f(host, x, y), rtol=1e-13)
    np.testing.assert_array_equal(to_numpy(beside), x)
    for system in range(2):
        parts = tuple(a[system : system + 1] for a in (x, y))
        for i, part in enumerate(parts):

            def gradient(*a: Any, i: int = i) -> Any:
                return differences(lambda *b: f(host, *b)[0], a, i, 1e-4)[0]

            np.testing.assert_allclose(to_numpy(gradients[i])[system], gradient(*parts), atol=1e-7)
            for j in range(2):
                expected = differences(gradient, parts, j, 1e-4)[(..., 0, *[slice(None)] * (parts[j].ndim - 1))]
                assert to_numpy(hessians[i][j])[system].shape == part.shape[1:] + parts[j].shape[1:]
                np.testing.assert_allclose(to_numpy(hessians[i][j])[system], expected, atol=1e-6)


@eagerly
def test_hessian_of_one_number(mode: str) -> None:
    bk = get_backend(library(mode))
    y = array(mode, Y)
    found = bk.hessian(lambda y: bk.sum(y, 0) ** 3, get_output=False, get_gradient=False)(y)
    assert len(found) == 1
    np.testing.assert_allclose(to_numpy(found[0]), np.full((3, 3), 6 * Y.sum()), rtol=1e-12)
    # The gradient may be an argument's whole derivative, too: a Jacobian of a Jacobian.
    _, second = bk.jacobian(bk.jacobian(lambda y: bk.sum(y, 0) ** 3, get_output=False))(y)
    np.testing.assert_allclose(to_numpy(second), np.full((3, 3), 6 * Y.sum()), rtol=1e-12)


class Pair(NamedTuple):
    a: Any
    b: Any


@eagerly
def test_containers_and_integers(mode: str) -> None:
    """Arguments of several arrays, one without influence; integers, numbers of Python and of NumPy become real."""
    bk = get_backend(library(mode))
    x = array(mode, Y)
    given = {"pair": Pair(x, np.array([1, 2])), "other": [x, 3]}

    def f(tree: dict[str, Any], scale: float, plus: Any = 0) -> Any:
        return bk.sum(tree["pair"].a ** 2 * scale, 0) + bk.astype(tree["other"][1] ** 2, np.float64) + plus

    loss, found = bk.jacobian(f)(given, 2.0, plus=x[0])
    np.testing.assert_allclose(to_numpy(loss), 2 * (Y**2).sum() + 9 + Y[0], rtol=1e-6)
    assert isinstance(found["pair"], Pair) and isinstance(found["other"], list)
    np.testing.assert_allclose(to_numpy(found["pair"].a), 4 * Y, rtol=1e-14)
    np.testing.assert_array_equal(to_numpy(found["pair"].b), [0.0, 0.0])
    np.testing.assert_array_equal(to_numpy(found["other"][0]), 0 * Y)
    np.testing.assert_allclose(to_numpy(found["other"][1]), 6, rtol=1e-6)
    assert to_numpy(found["pair"].b).dtype.kind == "f"


@eagerly
def test_one_array_twice_and_closed_over(mode: str) -> None:
    """Two arguments may be one array, which f may close over, too: the derivative is by the argument."""
    bk = get_backend(library(mode))
    x = array(mode, Y)
    one, two = bk.jacobian(lambda a, b: bk.sum(a * a * b * x, 0), (0, 1), False)(x, x)
    np.testing.assert_allclose(to_numpy(one), 2 * Y**3, rtol=1e-14)
    np.testing.assert_allclose(to_numpy(two), Y**3, rtol=1e-14)
    assert isinstance(bk.jacobian(lambda a: bk.sum(a, 0), [0], False)(x), tuple)
    none = bk.jacobian(lambda a: x[:0] * a[0], get_output=False)(x)
    assert to_numpy(none).shape == (0, 3)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # between two graphs
@each
def test_outer_derivatives(mode: str) -> None:
    """By the library's own means, of a derivative that a function takes inside: by its argument and what it closes
    over.
    """
    bk = get_backend(library(mode))

    def outer(x: Any, w: Any) -> Any:
        found = bk.jacobian(lambda x: bk.sum(w * x * x * x, 0), get_output=False)(x)  # 3 w x^2
        return bk.sum(found * found, 0)

    by_x, by_w = derivatives(compiled(mode, outer), array(mode, Y), array(mode, Y[::-1].copy()))
    np.testing.assert_allclose(to_numpy(by_x), 36 * Y[::-1] ** 2 * Y**3, rtol=1e-12)
    np.testing.assert_allclose(to_numpy(by_w), 18 * Y[::-1] * Y**4, rtol=1e-12)


@pytest.mark.needs("torch")
def test_torch_where_nothing_is_recorded() -> None:
    bk = get_backend("torch")
    x, w = torch.arange(1.0, 4.0), torch.ones(3, requires_grad=True)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            loss, output, gradient = bk.jacobian(lambda x: ((x**3).sum(), w * x))(x)
        assert not loss.requires_grad and not output.requires_grad and not gradient.requires_grad
        np.testing.assert_allclose(gradient.numpy(), [3, 12, 27])
    rows = torch.func.vmap(bk.jacobian(lambda x: (x**3).sum(), get_output=False))(torch.stack([x, 2 * x]))
    np.testing.assert_allclose(rows.numpy(), [[3, 12, 27], [12, 48, 108]])


@pytest.mark.needs("torch")
def test_torch_records_what_others_asked_for() -> None:
    """A result has derivatives by what f closes over, where it depends on that, and else none."""
    bk = get_backend("torch")
    x, w = torch.arange(1.0, 4.0), torch.ones(3, requires_grad=True)
    cases = (
        (lambda x: ((x**2).sum(), w * x), (False, True, False)),
        (lambda x: ((w * x**2).sum(), x * 1), (True, False, True)),
        (lambda x: ((x * w.detach()).sum(), w), (False, True, False)),
        (lambda x: (w.sum(), x), (True, False, False)),
    )
    for f, recorded in cases:
        assert tuple(a.requires_grad for a in bk.jacobian(f)(x)) == recorded
    # Forward mode outside, and the transformations of torch.func.
    gradient = bk.jacobian(lambda x: (x**3).sum(), get_output=False)
    tangent = torch.func.jvp(gradient, (x,), (torch.ones(3),))[1]
    np.testing.assert_allclose(tangent, 6 * x)
    with torch.autograd.forward_ad.dual_level():
        dual = gradient(torch.autograd.forward_ad.make_dual(x, torch.ones(3)))
        np.testing.assert_allclose(torch.autograd.forward_ad.unpack_dual(dual).tangent, 6 * x)
    np.testing.assert_allclose(torch.func.grad(lambda x: gradient(x).sum())(x), 6 * x)


@pytest.mark.needs("torch")
def test_torch_uses_plain_autograd_where_no_transformation_runs() -> None:
    """The transformations of torch.func import PyTorch's compiler; test_processes.py looks at what is imported."""
    bk, x, levels = get_backend("torch"), torch.ones(3), []

    def cubes(x: Any) -> Any:
        levels.append(torch._C._functorch.peek_interpreter_stack())
        return (x**3).sum()

    bk.jacobian(cubes)(x)
    assert levels == [None]
    torch.func.grad(cubes)(x)
    assert levels[1] is not None


@pytest.mark.needs("jax")
def test_jax_vmap_of_both() -> None:
    bk = get_backend("jax")
    _, found = jax.vmap(bk.jacobian(lambda y: bk.sum(y**3, 0)))(array("jax", X))
    np.testing.assert_allclose(found, 3 * X**2, rtol=1e-14)
    (found,) = jax.vmap(bk.hessian(lambda y: bk.sum(y**3, 0), 0, False, False))(array("jax", X))
    np.testing.assert_allclose(found, [np.diag(6 * x) for x in X], rtol=1e-14)


@eagerly
def test_refusals(mode: str) -> None:
    bk = get_backend(library(mode))
    x, z = array(mode, X), array(mode, Z)
    with pytest.raises(TypeError, match="loss of type float; expected an array of"):
        bk.jacobian(lambda x: 3.0)(x)
    with pytest.raises(TypeError, match=r"loss of dtype .*complex128.*real part"):
        bk.jacobian(lambda z: z)(z)
    with pytest.raises(TypeError, match=r"loss of dtype .*int64"):
        bk.jacobian(lambda x: bk.astype(x, np.int64))(x)
    with pytest.raises(ValueError, match="names argument 1, counted from 0; got 1 arguments"):
        bk.jacobian(lambda x: x, 1)(x)
    for wrt in (-1, (), (0, 0)):
        with pytest.raises(ValueError, match="expected the position"):
            bk.jacobian(lambda x: x, wrt)
    with pytest.raises(TypeError, match=r"complex numbers .*; a Hessian is by real numbers"):
        bk.hessian(lambda z: bk.sum(bk.abs(z), 0))(z)
    with pytest.raises(ValueError, match=r"loss of shape \(2, 3\); a Hessian is of one number, or"):
        bk.hessian(lambda x: x)(x)
    with pytest.raises(ValueError, match="expected the same first axis"):
        bk.hessian(lambda x: bk.sum(x, 0))(x)


def test_numpy_has_none() -> None:
    bk = get_backend("numpy")
    with pytest.raises(TypeError, match="numpy has no derivatives of functions; expected arrays of JAX"):
        bk.jacobian(lambda x: x.sum())(Y)
