"""Arrays between libraries: every pair, dtype and form of memory; nothing aborts, and immutable arrays stay."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import jax, jnp, tf, torch
from krylix import NoBackendFound, choose_backend, convert
from modes import EAGER, array, compiled, library, native_sparse, to_numpy

DTYPES = ("float32", "float64", "complex64", "complex128", "bool", "int32", "int64", "int8", "uint8", "float16")
target_mode = pytest.mark.parametrize("mode", EAGER)


def grid(dtype: str = "float64") -> np.ndarray:
    x = np.arange(-12, 12).reshape(2, 3, 4)
    return (x * (1 + 0.5j)).astype(dtype) if np.dtype(dtype).kind == "c" else (x % 5).astype(dtype)


def unaligned(x: np.ndarray, offset: int) -> np.ndarray:
    """The same values, so many bytes after a multiple of 64."""
    raw = np.empty(x.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    y = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


NUMPY_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "column order": lambda x: np.asfortranarray(x),
    "transposed": lambda x: x.T,
    "strided": lambda x: x[:, ::2, 1:],
    "negative strides": lambda x: x[::-1, :, ::-1],
    "read-only": read_only,
    "broadcast": lambda x: np.broadcast_to(x[:1], (3, *x.shape[1:])),
    "no strides at all": lambda x: np.lib.stride_tricks.as_strided(x, (5,), (0,)),
    "empty": lambda x: x[:0],
    "empty inside": lambda x: x[:, 1:1],
    "0-d": lambda x: x[0, 0, 1:2].reshape(()),
    "8 bytes off": lambda x: unaligned(x, 8),
    "16 bytes off": lambda x: unaligned(x, 16),
    "32 bytes off": lambda x: unaligned(x, 32),
    "4 bytes off": lambda x: unaligned(x, 4),
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "subclass": lambda x: np.ma.masked_array(x).view(type("Mine", (np.ndarray,), {})),
}


def use_it(x: Any) -> None:
    """Compute with it, as some libraries only die then."""
    bk = choose_backend(x)

    def used(x: Any) -> Any:
        if bk.dtype(x).kind in "fc" and bk.dtype(x).itemsize > 2:
            return bk.stack([x, x]), bk.sum(bk.reshape(x + x, (1, -1)), 1, keepdims=True)
        return bk.stack([x, x])

    compiled("jax-jit" if bk.name == "jax" else bk.name, used)(x)  # eagerly, JAX compiles each operation


@pytest.mark.parametrize(
    ("dtype", "backend", "mode"),
    # every two of them meet
    [(dtype, source, EAGER[(i + j) % 4]) for i, dtype in enumerate(DTYPES) for j, source in enumerate(EAGER)],
)
def test_every_pair(mode: str, backend: str, dtype: str) -> None:
    x = grid(dtype)
    there = convert(x, backend)
    found = convert(there, mode)
    bk = choose_backend(library(mode))
    assert choose_backend(found) is bk and bk.is_array(found)
    assert bk.dtype(found) == np.dtype(dtype)
    np.testing.assert_array_equal(to_numpy(found), x)
    np.testing.assert_array_equal(to_numpy(there), x)
    use_it(found)
    if mode == backend:
        assert found is there


@pytest.mark.parametrize("form", NUMPY_FORMS)
@target_mode
def test_forms_of_numpy_arrays(mode: str, form: str) -> None:
    for dtype in ("float32", "complex128", "int64"):
        x = NUMPY_FORMS[form](grid(dtype))
        before = x.copy()
        found = convert(x, mode)
        use_it(found)
        np.testing.assert_array_equal(to_numpy(found), before)
        assert tuple(found.shape) == x.shape
        assert x.flags.writeable == NUMPY_FORMS[form](grid(dtype)).flags.writeable


def forms_of(backend: str) -> dict[str, Any]:
    x = array(backend, grid())
    forms = {"strided": x[:, ::2, 1:], "empty": x[:0], "0-d": x[0, 0, 0]}
    if backend == "jax":
        return {**forms, "flipped": x[::-1], "transposed": x.T, "expanded": jnp.broadcast_to(x[:1], (3, 3, 4))}
    if backend == "tf":
        return {**forms, "flipped": x[::-1], "transposed": tf.transpose(x), "variable": tf.Variable(x)}
    z = array(backend, grid("complex128"))
    return {
        **forms,
        "requires_grad": x.clone().requires_grad_(),
        "inside a graph": x.clone().requires_grad_() * 2,
        "parameter": torch.nn.Parameter(x.clone()),
        "conj bit": z.conj(),
        "negative bit": z.conj().imag,
        "conj bit with grad": z.clone().requires_grad_().conj(),
        "transposed": z.mT,
        "flipped": z.flip(0),
        "expanded": x[:1].expand(3, 3, 4),
        "slice": x.reshape(-1)[1:],
    }


@pytest.mark.parametrize("backend", ["jax", "torch", "tf"])
@target_mode
def test_forms_of_arrays(mode: str, backend: str) -> None:
    for name, x in forms_of(backend).items():
        expected = np.asarray(x.detach().resolve_conj().resolve_neg() if backend == "torch" else x).copy()
        with torch.no_grad() if backend == "torch" else nullcontext():
            found = convert(x, mode)
        use_it(found)
        np.testing.assert_array_equal(to_numpy(found), expected, err_msg=name)


def overwrite(x: Any) -> None:
    """Try to write to the memory of `x`."""
    if isinstance(x, np.ndarray):
        try:
            x[...] = 77
        except ValueError:
            with pytest.raises(ValueError):
                x.flags.writeable = True
    elif choose_backend(x).name == "torch":
        x.fill_(77)


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("backend", ["jax", "tf"])
@pytest.mark.parametrize("mode", ["numpy", "torch", "tf", "jax"])
def test_no_way_to_write_to_an_immutable_array(mode: str, backend: str, size: int) -> None:
    values = np.arange(size, dtype=np.float64)
    source = array(backend, values.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overwrite(convert(source, mode))
    np.testing.assert_array_equal(to_numpy(source), values)


@pytest.mark.parametrize("mode", ["jax", "tf"])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_later_change_of_a_read_only_source(mode: str, aligned: bool) -> None:
    """An array that was read-only is copied by libraries that keep memory."""
    x = unaligned(np.arange(1000.0), 0 if aligned else 16)
    view = x.view()
    view.flags.writeable = False
    assert to_numpy(convert(view, mode)).tolist() == list(range(1000))


@pytest.mark.needs("torch")
def test_memory_is_shared_where_both_sides_can_write() -> None:
    """torch has no read-only tensors, so it gets a copy of what is."""
    x = np.arange(3.0)
    assert np.shares_memory(convert(convert(x, "torch"), "numpy"), x)
    closed = read_only(x)
    convert(closed, "torch").fill_(7)
    np.testing.assert_array_equal(closed, [0, 1, 2])


@pytest.mark.needs("jax")
def test_jax_without_64_bits() -> None:
    with jax.enable_x64(False):
        narrow = {"float64": "float32", "complex128": "complex64", "int64": "int32", "float32": "float32"}
        for dtype, expected in narrow.items():
            found = convert(grid(dtype), "jax")
            assert found.dtype == np.dtype(expected)
            np.testing.assert_array_equal(np.asarray(found), grid(dtype))


@target_mode
def test_numbers_and_lists(mode: str) -> None:
    for x in (3, 2.5, 1j, True, [1, 2], [[1.0], [2.0]], np.float32(3), ()):
        np.testing.assert_array_equal(to_numpy(convert(x, mode)), np.asarray(x))


def test_names_and_defaults() -> None:
    assert type(convert([1.0, 2.0])) is np.ndarray
    x = np.ones(2)
    assert convert(x, "np") is x and convert(x, choose_backend("numpy")) is x
    with pytest.raises(NoBackendFound, match="No backend is called 'cupy'"):
        convert(x, "cupy")


SPARSE = np.array([[0, 2, 0, 0], [-1, 0, 0, 3], [0, 0, 0, 0]])


@pytest.mark.parametrize(
    ("dtype", "backend", "mode"),
    [
        (("float32", "complex128", "int32")[(i + j) % 3], source, target)
        for i, source in enumerate(EAGER)
        for j, target in enumerate(EAGER)
    ],
)
def test_sparse_matrices(mode: str, backend: str, dtype: str) -> None:
    x = native_sparse(backend, SPARSE.astype(dtype))
    bk = choose_backend(library(mode))
    found = convert(x, mode)
    assert found is x if mode == backend else bk.sparse.accepts(found)
    assert bk.sparse.dtype(found) == np.dtype(dtype)
    entries = bk.sparse.entries(found)
    rows, cols = np.nonzero(SPARSE)
    assert sorted(zip(np.asarray(entries.rows), np.asarray(entries.cols), strict=True)) == [
        *zip(rows, cols, strict=True)
    ]
    there = convert(found, "numpy")
    np.testing.assert_array_equal(there.toarray(), SPARSE.astype(dtype))
    assert there.dtype == np.dtype(dtype)


@target_mode
def test_matrices_of_krylix(mode: str) -> None:
    dense = np.asarray(SPARSE, np.float64)
    for matrix in (krylix.as_operator(sp.csc_array(dense)), krylix.as_operator(sp.dia_array(dense))):
        np.testing.assert_array_equal(convert(convert(matrix, mode), "numpy").toarray(), dense)
    np.testing.assert_array_equal(to_numpy(convert(krylix.as_operator(dense), mode)), dense)


@target_mode
def test_duplicates_add_up_and_empty_matrices_stay(mode: str) -> None:
    twice = sp.coo_array(([1.0, 2.0, 4.0], ([1, 1, 0], [0, 0, 2])), (2, 3))
    found = convert(convert(twice, "jax" if mode == "torch" else "torch"), mode)
    np.testing.assert_array_equal(convert(found, "numpy").toarray(), [[0, 0, 4], [3, 0, 0]])
    empty = convert(sp.csr_array((2, 3)), mode)
    np.testing.assert_array_equal(convert(empty, "numpy").toarray(), np.zeros((2, 3)))


@pytest.mark.needs("torch", "tensorflow")
def test_recorded_derivatives_are_refused() -> None:
    """They would be lost without a word."""
    x = torch.ones(3, requires_grad=True)
    sparse = torch.diag(x).to_sparse_csr()
    matrices = (krylix.as_operator(sparse), krylix.as_operator(torch.diag(x)))
    for recorded in (x, 2 * x, sparse, torch.diag(x).to_sparse(), *matrices):
        with pytest.raises(TypeError, match=r"do not pass between libraries.*detach"):
            convert(recorded, "numpy")
        with torch.no_grad():
            convert(recorded, "numpy")
    with tf.GradientTape() as tape:
        y = tf.constant([1.0])
        np.testing.assert_array_equal(convert(y, "numpy"), [1])
        tape.watch(y)
        with pytest.raises(TypeError, match="do not pass between libraries"):
            convert(y * 2, "torch")


@pytest.mark.needs("jax")
def test_batches_of_sparse_matrices_are_refused() -> None:
    from jax.experimental import sparse as jsp

    batch = jsp.BCOO((np.ones((2, 1)), np.zeros((2, 1, 2), int)), shape=(2, 3, 3))
    with pytest.raises(ValueError, match=r"one sparse matrix; got a batch of the shape \(2, 3, 3\)"):
        convert(batch, "numpy")


@target_mode
@pytest.mark.parametrize("nonsense", ["text", None, {"a": 1}, object()])
def test_nonsense_is_refused(mode: str, nonsense: Any) -> None:
    with pytest.raises(TypeError, match="convert expects"):
        convert(nonsense, mode)


@pytest.mark.needs("torch")
@target_mode
def test_bfloat16(mode: str) -> None:
    """NumPy has no such numbers; the message says what to do."""
    x = torch.ones(3, dtype=torch.bfloat16)
    if mode == "torch":
        assert convert(x, mode) is x
        return
    with pytest.raises(TypeError, match=r"bfloat16.*Cast to torch\.float32"):
        convert(x, mode)
