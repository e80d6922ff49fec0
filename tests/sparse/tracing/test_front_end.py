"""A front end for another library is one module and one line: here one for NumPy, by a duck array."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracing_engine as engine
from krylix import NonlinearError, UnsupportedOperation, jacobian_matrix, matrix_from_function
from krylix.backends import get_backend
from krylix.sparse.tracing import front_end
from krylix.sparse.tracing.engine.operands import MATRIX_FREE
from krylix.sparse.tracing.front_end import Traced, arguments, check_dtypes, matrix_dtype
from krylix.sparse.tracing.messages import Operation, kind_of, located, nonlinear, place_of, unsupported

NUMPY = str(Path(np.__file__).parent)


def scaled(x: Any, y: Any) -> Any:
    return engine.scale(x, y) if isinstance(x, engine.Linear) else engine.scale(y, x)


RULES: dict[Any, Callable[..., Any]] = {
    np.add: engine.add,
    np.subtract: engine.subtract,
    np.negative: engine.negate,
    np.multiply: scaled,
    np.conjugate: engine.conjugate,
}


class Duck(np.lib.mixins.NDArrayOperatorsMixin):
    """Looks like an array, and follows what is done to it."""

    def __init__(self, linear: engine.Linear) -> None:
        self.linear = linear

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> "Duck":
        values = [x.linear if isinstance(x, Duck) else np.asarray(x) for x in inputs]
        frames = [(f.filename, f.lineno or 0, f.name) for f in reversed(traceback.extract_stack()[:-1])]
        kinds = [kind_of(value, known=True) for value in values]
        place = place_of(frame for frame in frames if not frame[0].startswith(NUMPY))
        operation = Operation(ufunc.__name__, place, kinds)
        if method != "__call__":
            raise unsupported(operation, f"the toy has no '{method}'. {MATRIX_FREE}")
        if ufunc not in RULES or (ufunc is np.multiply and all(isinstance(x, Duck) for x in inputs)):
            raise nonlinear(operation)
        try:
            return Duck(RULES[ufunc](*values))
        except UnsupportedOperation as error:
            raise located(error, operation) from None

    def __getitem__(self, index: slice) -> "Duck":
        start, stop, step = index.indices(self.linear.size)
        return Duck(engine.slice_(self.linear, [start], [stop], [step]))


class ToyFrontEnd:
    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        bk = get_backend("numpy")
        check_dtypes([like], "the input")
        result = function(*(Duck(x) for x in arguments(bk, [like])), *args, **kwargs)
        output = result.linear if isinstance(result, Duck) else np.asarray(result)
        check_dtypes([output], "an output")
        return Traced(
            bk,
            program=lambda z: np.asarray(function(z, *args, **kwargs)),
            outputs=(output,),
            inputs=(like,),
            constants=(),
            pack=lambda leaves: leaves[0],
            in_shape=like.shape,
            out_shape=output.shape,
            dtype=matrix_dtype([like, output]),
            precision=float(np.finfo(like.dtype).eps),
        )

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        return [traced.program(*leaves)], 0.0

    def sample(self, traced: Traced, inputs: Any, wanted: Any) -> None:
        return None

    def forward_derivative(self, f: Any, x: Any, args: Any, kwargs: Any) -> front_end.Linearised:
        raise UnsupportedOperation("NumPy has no derivatives. Write the function with JAX.")

    reverse_derivative = forward_derivative

    def has_only_reverse_rule(self, error: Exception) -> bool:
        return False


FRONT_END: front_end.FrontEnd = ToyFrontEnd()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line."""
    monkeypatch.setitem(front_end.FRONT_ENDS, "numpy", front_end.Library(__name__, "NumPy", "numpy.empty(shape)"))


def difference(u: Any, c: Any) -> Any:
    return c * (2 * u[1:] - u[:-1]) + 1


@pytest.mark.parametrize("size", [5, 60_000])
@pytest.mark.parametrize("format", [None, "csr"])
def test_a_matrix(toy: None, size: int, format: str | None) -> None:
    rng = np.random.default_rng(0)
    u, c = rng.standard_normal(size), rng.standard_normal(size - 1)
    matrix, bias = matrix_from_function(difference, np.zeros(size), c, format=format)
    assert matrix.shape == (size - 1, size) and matrix.nnz == 2 * (size - 1) and isinstance(bias, np.ndarray)
    np.testing.assert_allclose(matrix @ u + bias, difference(u, c), atol=1e-13)


@pytest.mark.parametrize("size", [5, 60_000])
def test_it_is_verified(toy: None, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setitem(RULES, np.subtract, engine.add)
    with pytest.raises(UnsupportedOperation, match="does not reproduce the function"):
        matrix_from_function(difference, np.zeros(size), 1.0)
    assert matrix_from_function(difference, np.zeros(size), 1.0, verify=False)[0].nnz == 2 * (size - 1)


def test_errors_name_the_line(toy: None) -> None:
    def running(u: Any) -> Any:
        return np.add.accumulate(u)

    with pytest.raises(UnsupportedOperation, match=r"'add' at .*toy has no 'accumulate'.*solve with the function") as e:
        matrix_from_function(running, np.zeros(3))
    assert f"test_front_end.py:{running.__code__.co_firstlineno + 1} (running)" in str(e.value)

    def conjugated(u: Any) -> Any:
        return 2 * np.conjugate(u)

    with pytest.raises(UnsupportedOperation, match=r"'conjugate' at .* cannot be traced: The complex conjugate") as e:
        matrix_from_function(conjugated, np.zeros(3, complex))
    assert f"test_front_end.py:{conjugated.__code__.co_firstlineno + 1} (conjugated)" in str(e.value)

    def square(u: Any) -> Any:
        return u * (u + 1)

    text = r"'multiply' at .*\(operands: input-dependent, input-dependent\) is not linear.*jacobian_matrix"
    with pytest.raises(NonlinearError, match=text) as e:
        matrix_from_function(square, np.zeros(3))
    assert f"test_front_end.py:{square.__code__.co_firstlineno + 1} (square)" in str(e.value)


def test_dtypes_and_derivatives(toy: None) -> None:
    with pytest.raises(TypeError, match=r"the input.*expected a floating or complex"):
        matrix_from_function(lambda u: 2 * u, np.zeros(3, int))
    with pytest.raises(UnsupportedOperation, match="NumPy has no derivatives"):
        jacobian_matrix(lambda u: u * u, np.zeros(3))


def test_messages_name_the_libraries_of_the_table() -> None:
    titles = "JAX or PyTorch or TensorFlow or NumPy"
    like = rf"like is a builtins\.list; expected an array of {titles}, or a container of these\. "
    joint = titles.replace(" or ", " and ")
    how = rf"Functions of {joint} can be traced: give jax\.Shape.* or torch\.empty.* or numpy\.empty\("
    with pytest.raises(UnsupportedOperation, match=rf"{like}{how}"):
        matrix_from_function(difference, [1.0, 2.0])
    with pytest.raises(UnsupportedOperation, match=rf"of fortran cannot be traced; .* of {titles}\.$"):
        front_end.front_end_of("fortran")


@pytest.mark.needs("jax")
def test_arrays_of_numpy_mix_with_others(toy: None) -> None:
    """The library is told by any array, and NumPy's has no say where there is another."""
    import jax
    import jax.numpy as jnp

    matrix, _ = matrix_from_function(lambda u, c: c * jax.jit(lambda v: 2 * v)(u), np.zeros(3), jnp.ones(3))
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(3))
    assert matrix.bk.name == "jax"
    jacobian = jacobian_matrix(lambda u, c: c * jnp.sin(u), np.zeros(3), {"c": [jnp.ones(3)]}["c"][0])
    np.testing.assert_array_equal(jacobian.toarray(), np.eye(3))


@pytest.mark.needs("jax")
def test_callable_containers_tell_the_library() -> None:
    import jax
    import jax.numpy as jnp

    @jax.tree_util.register_pytree_node_class
    class Model:
        def __init__(self, weight: Any) -> None:
            self.weight = weight

        def __call__(self, u: Any) -> Any:
            return self.weight * u

        def tree_flatten(self) -> Any:
            return (self.weight,), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> "Model":
            return cls(*children)

    matrix, _ = matrix_from_function(lambda u, model: model(u), np.zeros(3), Model(jnp.arange(3.0)))
    np.testing.assert_array_equal(matrix.toarray(), np.diag(np.arange(3.0)))
