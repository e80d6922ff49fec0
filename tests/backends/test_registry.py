"""Which backend an object belongs to, names, defaults, contexts and threads."""

import threading
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from frameworks import jax, jnp, tf, torch
from krylix import NoBackendFound, as_operator, choose_backend, default_backend, use
from krylix.backends import Backend, get_backend, registry, without_compilers
from modes import EAGER, array, library, native_sparse
from problems import OPERATORS, has_operator, make_operator

eager = pytest.mark.parametrize("mode", EAGER)
FRAMEWORKS = ("jax", "torch", "tf")
NAMES = {
    "numpy": ("numpy", "np", "NumPy", "NP"),
    "jax": ("jax", "JAX"),
    "torch": ("torch", "pytorch", "PyTorch"),
    "tf": ("tensorflow", "tf", "TensorFlow"),
}


def test_every_backend_is_tested() -> None:
    """Those of other libraries in test_array_api_backend.py and test_register_backend.py."""
    assert {library(mode) for mode in EAGER} == set(registry._CLASSES)


@eager
def test_names(mode: str) -> None:
    found = {choose_backend(name) for name in NAMES[mode]} | {get_backend(name) for name in NAMES[mode]}
    assert [b.name for b in found] == [library(mode)]
    assert choose_backend(*found) is get_backend(*found) is next(iter(found))
    assert repr(next(iter(found))) == f"<krylix backend {library(mode)}>"


@pytest.mark.parametrize("name", ["cupy", "", "numpy "])
def test_unknown_names(name: str) -> None:
    with pytest.raises(NoBackendFound, match="numpy, jax, torch, tensorflow"):
        choose_backend(name)


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int64", "bool"])
@eager
def test_arrays(mode: str, dtype: str) -> None:
    x = array(mode, np.ones((2, 2)).astype(dtype))
    assert choose_backend(x).name == library(mode)
    assert choose_backend(array(mode, np.zeros((0, 3)))).name == library(mode)
    assert choose_backend(array(mode, np.array(1.0))).name == library(mode)


@eager
def test_containers(mode: str) -> None:
    x = array(mode, np.ones(2))
    for container in ([x], (1, [2, (x,)]), {"a": None, "b": {"c": x}}, [np.ones(2), x], [x, x]):
        assert choose_backend(container).name == library(mode)
    assert choose_backend(None, 3, "text", [], {}, x, lambda: 0).name == library(mode)


@eager
def test_numpy_and_scipy_mix_with_any(mode: str) -> None:
    x = array(mode, np.ones(2))
    matrices = sp.eye_array(2), sp.csr_matrix((2, 2)), spl.aslinearoperator(np.eye(2)), as_operator(np.eye(2))
    for constant in (np.ones(2), np.float32(3), *matrices):
        assert choose_backend(constant, x).name == choose_backend(x, [constant]).name == library(mode)
        assert choose_backend(constant).name == "numpy"


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_matrices_and_operators(mode: str) -> None:
    like = array(mode, np.ones(4))
    for kind in OPERATORS:
        if has_operator(mode, kind) and kind != "function":
            A = make_operator(mode, kind, np.eye(4))
            own = "numpy" if kind in ("scipy", "LinearOperator") else library(mode)
            assert choose_backend(A).name == own, kind
            assert choose_backend(as_operator(A, like)).name == library(mode), kind
    operator = as_operator(lambda x: x, like)
    preconditioner = krylix.preconditioner(as_operator(like[None] * like[:, None]))
    for one in (operator, operator.T if mode != "numpy" else operator, preconditioner):
        assert choose_backend(one).name == choose_backend([one], np.ones(3)).name == library(mode)


@pytest.mark.needs("jax", "torch", "tensorflow")
@pytest.mark.parametrize(("first", "second"), [*permutations(FRAMEWORKS, 2)])
def test_two_frameworks(first: str, second: str) -> None:
    a, b = array(first, np.ones(4)), array(second, np.ones(4))
    matrices = native_sparse(first, np.eye(4)), as_operator(a[None] * a[:, None])
    for objects in ((a, b), ([a], {"x": b}), *((matrix, b) for matrix in matrices)):
        with pytest.raises(NoBackendFound, match=rf"{library(first)} and {library(second)}.*convert"):
            choose_backend(*objects, np.ones(2))
    with pytest.raises(NoBackendFound, match="one framework"):
        krylix.linear_solve(matrices[0], b)


def test_no_arrays_at_all() -> None:
    for objects in ((), (None,), ([],), (1.5, [2, 3]), ("numpy", "torch"), (lambda x: x,)):
        assert choose_backend(*objects) is default_backend()


# ---- subclasses and things that act as arrays


class MyArray(np.ndarray):
    pass


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_numpy_subclasses() -> None:
    for x in (np.matrix([[1.0]]), np.ma.ones(3), np.ones(3).view(MyArray), np.float64(1)):
        assert choose_backend(x, [1]).name == "numpy"


@pytest.mark.needs("torch")
def test_torch_subclasses() -> None:
    class MyTensor(torch.Tensor):
        pass

    parameter = torch.nn.Parameter(torch.ones(3))
    for x in (parameter, torch.ones(3).as_subclass(MyTensor), torch.nn.Linear(2, 2), torch.ones(3, requires_grad=True)):
        assert choose_backend(x).name == "torch"
    assert choose_backend("torch").is_array(parameter)

    def inside(x: Any) -> Any:
        assert choose_backend(x).name == "torch" and choose_backend("torch").is_array(x)
        return x.sum()

    torch.func.vmap(torch.func.grad(inside))(torch.ones(2, 3))


@pytest.mark.needs("tensorflow")
def test_tensorflow_variables_and_symbols() -> None:
    bk, variable = choose_backend("tf"), tf.Variable([1.0, 2.0])
    assert choose_backend(variable) is bk and bk.is_array(variable)
    np.testing.assert_array_equal(bk.to_numpy(variable), [1, 2])
    assert isinstance(bk.asarray(variable), tf.Tensor) and bk.dtype(variable) == np.float32

    @tf.function
    def inside(x: Any) -> Any:
        assert choose_backend(x) is bk and bk.is_array(x) and bk.compiled(x)
        return x

    inside(tf.ones(2))
    assert choose_backend(tf.sparse.eye(2)) is bk and not bk.is_array(tf.sparse.eye(2))


@pytest.mark.needs("jax")
def test_jax_tracers() -> None:
    bk = choose_backend("jax")

    def inside(x: Any) -> Any:
        assert choose_backend(x) is bk and choose_backend({"a": [np.ones(2), x]}) is bk
        assert bk.is_array(x) and bk.compiled(x) and bk.dtype(x) == np.float64
        return jnp.sum(x)

    for transformed in (jax.jit(inside), jax.grad(inside), jax.vmap(inside), jax.jit(jax.vmap(jax.grad(inside)))):
        transformed(jnp.ones((2, 3)) if transformed.__name__ != "grad" else jnp.ones(3))


@pytest.mark.needs("jax")
def test_registered_containers_of_other_packages() -> None:
    class Field:
        def __init__(self, values: Any) -> None:
            self.values = values

    jax.tree_util.register_pytree_node(Field, lambda f: ((f.values,), None), lambda _, v: Field(*v))
    assert choose_backend(Field(jnp.ones(2))).name == "jax"
    assert choose_backend(np.ones(2), [Field({"a": Field(jnp.ones(2))})]).name == "jax"
    assert choose_backend(Field(np.ones(2))).name == "numpy"


# ---- defaults


@pytest.fixture
def restored() -> Any:
    chosen = list(registry._chosen)
    yield
    registry._chosen[:] = chosen


@eager
def test_use(mode: str, restored: None) -> None:
    assert use(NAMES[mode][-1]).name == default_backend().name == library(mode)
    assert choose_backend().name == choose_backend([1.0, 2.0]).name == library(mode)
    assert choose_backend(np.ones(2)).name == "numpy"
    assert use(get_backend("numpy")) is default_backend()


def test_use_refuses_and_keeps_the_old(restored: None) -> None:
    use("numpy")
    with pytest.raises(NoBackendFound):
        use("cupy")
    assert default_backend().name == "numpy"


@pytest.mark.needs("jax", "torch")
def test_contexts_nest(restored: None) -> None:
    jax, torch = get_backend("jax"), get_backend("torch")
    use("numpy")
    with jax as entered:
        assert entered is jax is default_backend()
        with torch, torch:
            use("jax")  # the context is stronger
            assert default_backend() is torch
        assert default_backend() is jax
        with pytest.raises(KeyError), torch:
            raise KeyError
        assert default_backend() is jax
    assert default_backend() is jax  # by `use`


@pytest.mark.needs("torch")
def test_contexts_belong_to_a_thread(restored: None) -> None:
    use("numpy")
    found: list[Backend] = []
    barrier = threading.Barrier(2)

    def other() -> None:
        barrier.wait(10)
        found.append(default_backend())
        with get_backend("numpy"):
            barrier.wait(10)
            barrier.wait(10)
        found.append(default_backend())

    thread = threading.Thread(target=other)
    thread.start()
    with get_backend("torch"):
        barrier.wait(10)
        barrier.wait(10)
        found.append(default_backend())
        barrier.wait(10)
    thread.join()
    assert [b.name for b in found] == ["numpy", "torch", "numpy"]


@pytest.mark.needs("torch")
def test_default_is_used_for_lists() -> None:
    with get_backend("torch"):
        assert type(krylix.convert([1.0, 2.0])).__name__ == "Tensor"
        assert as_operator([[1.0, 2.0], [3.0, 4.0]]).bk.name == "torch"
        assert krylix.linear_solve(np.eye(2), np.ones(2)).x.__class__ is np.ndarray


def test_left_alone() -> None:
    def function(x: int) -> int:
        return x + 1

    assert without_compilers(function)(1) == 2
    assert without_compilers(function) is without_compilers(function)
