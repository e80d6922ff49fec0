"""Preconditioners and factorisations in files: what was saved is loaded bit by bit, and what is wrong is refused."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, splu

import krylix
from krylix.backends import Array
from krylix.solvers import Preconditioner
from krylix.solvers.factors.dense import as_interchanges, from_interchanges
from krylix.solvers.fast import inverse as fast_solver
from krylix.sparse import Composed, Operator, Stencil, UnsupportedOperation, storable
from krylix.sparse.files.saved import STORABLE, STORED_FORMATS, VERSION
from krylix.sparse.formats import FORMATS
from modes import EAGER, array, library, to_numpy

N = 12
A = sp.csr_array(sp.diags_array([-1.0, 3.0, -1.5], offsets=[-1, 0, 2], shape=(N, N)))
V = np.linspace(-1, 2, N)
MATRICES = tuple(word for word in FORMATS if word != "stencil")


@storable("test: three parts")
@dataclass(eq=False, repr=False)
class ThreeParts(Composed):
    """`scale * weights * first(second(x)[order])`, with constants of every kind."""

    parts = ("first", "second", "weights", "order")

    first: Operator
    second: Operator
    weights: Array
    order: Array
    scale: float = 1.0
    words: tuple[tuple[str, Any], ...] = ()

    def apply(self, x: Array) -> Array:
        moved = self.bk.take_in_bounds(self.second.apply(x), self.array("order"), 1)
        return self.scale * self.array("weights") * self.first.apply(moved)

    def transpose(self) -> Operator:
        raise UnsupportedOperation("There is none.")


def three_parts(dtype: str = "float64") -> ThreeParts:
    rng = np.random.default_rng(0)
    first, second = (krylix.as_operator(A.astype(dtype)).to(word) for word in ("ell", "dia"))
    weights = rng.standard_normal((1, N)).astype(dtype)
    words = (("a", None), ("b", True), ("c", (1, 0.1, "text", float("inf"), 1 + 2j)))
    return ThreeParts(first, second, weights, rng.permutation(N).astype(np.int32), 0.1, words)


def saved(M: Any, folder: Path) -> Path:
    path = folder / "M.npz"
    M.save(path)
    return path


def same_bits(a: Any, b: Any) -> bool:
    a, b = to_numpy(a), to_numpy(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("word", MATRICES)
def test_matrices_of_every_format(word: str, dtype: str, tmp_path: Path) -> None:
    full = A.toarray() * (1 + 0.3j if dtype.startswith("c") else 1)
    full[3] = np.arange(N)  # a long row
    matrix = krylix.as_operator(sp.csr_array(full.astype(dtype))).to(word)
    M = Preconditioner(matrix, "mine", None, 5, 6, 7, (("x", 0.1),), "why")
    loaded = krylix.load_preconditioner(saved(M, tmp_path))
    assert (loaded.kind, loaded.hermitian, loaded.memory, loaded.work, loaded.entries) == ("mine", None, 5, 6, 7)
    assert (loaded.settings, loaded.note, repr(loaded)) == ((("x", 0.1),), "why", repr(M))
    assert loaded.inner.format == word
    values = [A.values if isinstance(A.values, tuple) else (A.values,) for A in (loaded.inner, matrix)]
    assert all(map(same_bits, *values)) and len(values[0]) == len(values[1])
    assert same_bits(loaded @ V.astype(dtype), M @ V.astype(dtype))
    assert same_bits(loaded.T @ V.astype(dtype), M.T @ V.astype(dtype))


def test_every_format_has_a_form() -> None:
    """A new one is entered in `sparse/files/saved.py`."""
    assert set(STORED_FORMATS) == set(FORMATS) - {"dense"}
    assert {*FORMATS} <= {*STORABLE}


def test_stencils_batches_shapes_and_empty_matrices(tmp_path: Path) -> None:
    grid = Stencil([4.0, np.full((4, 3), -1.0), -2.0], [(0, 0), (1, 0), (0, -1)], (4, 3))
    single = krylix.as_operator(A)
    batch = single.with_values(np.stack([single.values, 2 * single.values]))
    others = [krylix.as_operator(sp.csr_array((n, n))).to(word) for n in (0, 3) for word in MATRICES]
    for matrix in (grid, batch, krylix.as_operator(np.stack([A.toarray(), np.eye(N)])), *others):
        loaded = krylix.load_preconditioner(saved(Preconditioner(matrix, "mine"), tmp_path)).inner
        assert (loaded.shape, loaded.systems) == (matrix.shape, matrix.systems)
        assert (loaded.in_shape, loaded.out_shape) == (matrix.in_shape, matrix.out_shape)
        assert getattr(loaded, "structure", None) == getattr(matrix, "structure", None)
        assert same_bits(loaded.toarray(), matrix.toarray())


@pytest.mark.parametrize("mode", EAGER)
def test_parts_of_parts_in_every_library(mode: str, tmp_path: Path) -> None:
    inner = three_parts()
    expected = Preconditioner(inner, "mine") @ V
    M = krylix.load_preconditioner(saved(Preconditioner(inner, "mine"), tmp_path), like=array(mode, V))
    assert M.bk.name == library(mode) and M.inner.words == inner.words and M.inner.scale == 0.1
    np.testing.assert_allclose(to_numpy(M @ array(mode, V)), expected, rtol=1e-13)
    again = krylix.load_preconditioner(saved(M, tmp_path))
    assert again.bk.name == "numpy" and same_bits(again @ V, expected)
    assert again.inner.words == inner.words and same_bits(again.inner.order, inner.order)


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_factorisations(method: str, mode: str, tmp_path: Path) -> None:
    """Of LU, Cholesky and SuperLU; saved by one library and loaded into another."""
    rng = np.random.default_rng(2)
    full = rng.standard_normal((N, N))  # whose rows are interchanged
    for matrix in (full, full @ full.T, full + 1j * full.T):
        given = sp.csr_array(matrix) if method == "scipy-direct" else array(mode, matrix)
        b = V.astype(matrix.dtype)
        F = krylix.prepare(given, array(mode, b), method=method).preconditioner
        path = saved(F, tmp_path)
        for other in {"numpy", "torch", mode}:
            loaded = krylix.load_preconditioner(path, like=array(other, b))
            for turned, A in ((loaded, matrix), (loaded.T, matrix.T), (loaded.H, matrix.conj().T)):
                x = to_numpy(turned @ array(other, b))
                np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-9, atol=1e-11)
        transposed = krylix.load_preconditioner(saved(krylix.load_preconditioner(path).H, tmp_path))
        np.testing.assert_allclose(transposed @ b, np.linalg.solve(matrix.conj().T, b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("transforms", ["fast", "dense"])
@pytest.mark.parametrize("mode", EAGER)
def test_factors_on_grids(mode: str, transforms: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `fast-direct`, of a matrix that is not symmetric, along axes with all kinds of transforms."""
    monkeypatch.setattr(fast_solver, "is_fast", lambda *_: transforms == "fast")
    line = np.diag(np.full(5, 2.5)) - np.eye(5, k=1) - np.eye(5, k=-1)
    ring, uneven = line.copy(), np.diag([1.0, 2.0, 3.0]) @ (3 * np.eye(3) - np.eye(3, k=1) - np.eye(3, k=-1))
    ring[0, -1] = ring[-1, 0] = -1
    sizes, matrix = (5, 5, 3), np.zeros((75, 75))
    for k, part in enumerate((line, ring, uneven)):
        matrix += np.kron(np.kron(np.eye(int(np.prod(sizes[:k]))), part), np.eye(int(np.prod(sizes[k + 1 :]))))
    of_grid = lambda u: (sp.csr_array(matrix) @ u.reshape(-1)).reshape(sizes)  # noqa: E731
    grid = krylix.matrix_from_function(of_grid, np.zeros(sizes))[0].in_library_of(array(mode, np.zeros(1)))
    b = np.linspace(-1, 2, 75)
    F = krylix.prepare(grid, array(mode, b), method="fast-direct").preconditioner
    path = saved(F, tmp_path)
    for other in dict.fromkeys(("numpy", "torch", mode)):
        loaded = krylix.load_preconditioner(path, like=array(other, b))
        for turned, A in ((loaded, matrix), (loaded.T, matrix.T), (loaded.H, matrix.T)):
            x = to_numpy(turned @ array(other, b))
            np.testing.assert_allclose(A @ x, b, atol=1e-12)


def test_factorisations_serve_as_preconditioners(tmp_path: Path) -> None:
    for method, matrix in (("direct", A.toarray()), ("scipy-direct", A)):
        F = krylix.load_preconditioner(saved(krylix.prepare(matrix, V, method=method).preconditioner, tmp_path))
        for b in (V, array("torch", V)):
            result = krylix.linear_solve(matrix, b, method="GMRES", preconditioner=F)
            assert result.converged and result.iterations == 1 and result.preconditioner == "factors"


def test_factors_are_those_of_the_matrix_as_it_was(tmp_path: Path) -> None:
    """Files and copies of sparse ones have the matrix, to which its owner writes."""
    own = A.copy()
    factors = krylix.prepare(own, np.ones(N), method="scipy-direct").preconditioner
    own.data[:] *= 2
    factors.save(tmp_path / "F.npz")
    for other in (krylix.load_preconditioner(tmp_path / "F.npz"), pickle.loads(pickle.dumps(factors)), factors):
        np.testing.assert_allclose(other @ V, np.linalg.solve(A.toarray(), V), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_factors_in_another_precision(method: str, mode: str, dtype: str, tmp_path: Path) -> None:
    """Those of NumPy in double precision precondition a system in the precision of its arrays."""
    given: Any = A if method == "scipy-direct" else A.toarray()
    krylix.prepare(given, np.ones(N), method=method).preconditioner.save(tmp_path / "F.npz")
    b = array(mode, (V + 1j * V[::-1] if dtype.startswith("c") else V).astype(dtype))
    loaded = krylix.load_preconditioner(tmp_path / "F.npz", like=b)
    matrix: Any = A.astype(dtype) if method == "scipy-direct" else array(mode, given.astype(dtype))
    result = krylix.linear_solve(matrix, b, method="GMRES", preconditioner=loaded)
    assert to_numpy(result.x).dtype == np.dtype(dtype) and int(to_numpy(result.iterations)) <= 2
    np.testing.assert_allclose(to_numpy(result.x), np.linalg.solve(A.toarray(), to_numpy(b)), rtol=1e-4)


def test_complex_factors_do_not_serve_real_vectors() -> None:
    for given, method in ((1j * A, "scipy-direct"), (1j * A.toarray(), "direct")):
        factors = krylix.prepare(given, np.ones(N, complex), method=method).preconditioner
        with pytest.raises(TypeError, match="complex128 was given for a system of float64; expected a real one"):
            krylix.linear_solve(A, V, method="GMRES", preconditioner=factors)


@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_factors_are_handed_to_scipy(method: str) -> None:
    given: Any = A if method == "scipy-direct" else A.toarray()
    factors = krylix.prepare(given, np.ones(N), method=method).preconditioner
    result = krylix.linear_solve(A, V, method="scipy-GMres", preconditioner=factors)
    np.testing.assert_allclose(result.x, np.linalg.solve(A.toarray(), V), rtol=1e-9)


def test_factorisations_of_batches_and_with_offset(tmp_path: Path) -> None:
    batch = np.stack([A.toarray(), A.toarray().T])
    b = np.stack([V, 2 * V])
    for method, given in (("direct", batch), ("scipy-direct", [A, sp.csr_array(A.T)])):
        solver = krylix.prepare(given, b, method=method, batch_ndim=1)
        loaded = krylix.load_preconditioner(saved(solver.preconditioner, tmp_path))
        np.testing.assert_allclose(loaded(b), np.linalg.solve(batch, b[..., None])[..., 0], rtol=1e-10)
    shifted = krylix.prepare(A, V, method="scipy-direct", matrix_offset=0.5).preconditioner
    loaded = krylix.load_preconditioner(saved(shifted, tmp_path))
    np.testing.assert_allclose(loaded @ V, np.linalg.solve(A.toarray() + 0.5, V), rtol=1e-10)


def test_factorisations_are_pickled_and_copied() -> None:
    for method, matrix in (("direct", A.toarray()), ("scipy-direct", A)):
        F = krylix.prepare(matrix, V, method=method).preconditioner
        for other in (pickle.loads(pickle.dumps(F.T)), copy.deepcopy(F.T), copy.copy(F.T)):
            np.testing.assert_allclose(other @ V, np.linalg.solve(A.toarray().T, V), rtol=1e-12)


@pytest.mark.needs("torch")
def test_values_that_require_gradients(tmp_path: Path) -> None:
    """A file holds numbers only."""
    matrix = array("torch", A.toarray()).requires_grad_()
    loaded = krylix.load_preconditioner(saved(krylix.preconditioner(matrix, "jacobi"), tmp_path), like=matrix)
    assert not loaded.diagonal().requires_grad
    np.testing.assert_array_equal(to_numpy(loaded.diagonal()), 1 / A.diagonal())


def test_interchanges_and_permutations() -> None:
    """LAPACK's row interchanges are one permutation, and that one list of them."""
    rng = np.random.default_rng(0)
    interchanges = np.array([[rng.integers(i, 9) for i in range(9)] for _ in range(5)], np.int32)
    for first in (0, 1, None):
        assert np.array_equal(as_interchanges(from_interchanges(interchanges, first), first), interchanges)
    rows = list(range(9))
    for i, j in enumerate(interchanges[0]):
        rows[i], rows[j] = rows[j], rows[i]
    assert from_interchanges(interchanges[:1], None)[0].tolist() == rows


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    M = krylix.preconditioner(A, "jacobi")
    path = saved(M, tmp_path)
    before = path.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        M.save(path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["M.npz"]
    with pytest.raises(ValueError, match=r"M.txt.*ends with \.npz"):
        M.save(tmp_path / "M.txt")


def test_what_occurs_twice_is_stored_once(tmp_path: Path) -> None:
    matrix, weights = krylix.as_operator(A).to("csr"), np.ones((1, N))
    M = ThreeParts(matrix, matrix, weights, np.arange(N))
    with np.load(saved(Preconditioner(M, "mine"), tmp_path)) as archive:
        assert len(archive.files) == 6  # the header, weights, order, and three arrays of the matrix
    loaded = krylix.load_preconditioner(tmp_path / "M.npz")
    assert same_bits(loaded @ V, Preconditioner(M, "mine") @ V)


# --- what cannot be saved ---


def no_file(M: Any, folder: Path, words: str, error: type[Exception] = UnsupportedOperation) -> None:
    with pytest.raises(error, match=words) as caught:
        M.save(folder / "M.npz")
    assert "\n" not in str(caught.value) and not list(folder.iterdir())


def test_functions_and_objects_of_others(tmp_path: Path) -> None:
    def handed_over(M: Any) -> Any:
        return krylix.prepare(A, V, method="biCG-stab", preconditioner=M).preconditioner

    no_file(handed_over(lambda r: r / 3), tmp_path, "matrix_from_function")
    no_file(handed_over(splu(A.tocsc())), tmp_path, "scipy-direct")
    no_file(handed_over(LinearOperator((N, N), matvec=lambda x: x, rmatvec=lambda x: x)), tmp_path, "cannot be saved")
    with pytest.raises(UnsupportedOperation, match="cannot be saved"):
        Preconditioner(krylix.as_operator(lambda x: 2 * x, V), "mine").save(tmp_path / "M.npz")
    broken = Preconditioner(krylix.as_operator(np.diag([np.inf, 1.0])), "mine")
    no_file(broken, tmp_path, "infinite numbers or NaN", ValueError)
    no_file(Preconditioner(krylix.as_operator(A), "mine", settings=(("f", max),)), tmp_path, "plain settings")


def test_classes_without_a_name(tmp_path: Path) -> None:
    @dataclass(eq=False, repr=False)
    class Unnamed(ThreeParts):
        pass

    parts = three_parts()
    M = Preconditioner(Unnamed(parts.first, parts.second, parts.weights, parts.order), "mine")
    no_file(M, tmp_path, r"Unnamed has no name in files.*storable")
    with pytest.raises(ValueError, match="test: three parts"):
        storable("test: three parts")(Unnamed)


@pytest.mark.needs("jax")
def test_traced_values(tmp_path: Path) -> None:
    import jax

    def program(values: Any) -> Any:
        M = krylix.preconditioner(krylix.as_operator(values), "jacobi")
        M.save(tmp_path / "M.npz")
        return values

    with pytest.raises(UnsupportedOperation, match="no values yet"):
        jax.jit(program)(array("jax", A.toarray()))


# --- what is refused ---


def change(path: Path, edit: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> None:
    """Rewrite the file after `edit(description, arrays)`."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    description = json.loads(bytes(arrays.pop("header")))
    edit(description, arrays)
    np.savez(path, header=np.frombuffer(json.dumps(description).encode(), np.uint8), **arrays)


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ValueError, match=r"M\.npz") as caught:
        krylix.load_preconditioner(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and "\n" not in text and all(word in text for word in words), text


def inner(description: dict[str, Any]) -> dict[str, Any]:
    return description["operator"]["of"]["inner"]


def put(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, np.ndarray]], None]:
    """One of the arrays, by the end of its name."""

    def edit(_: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        (key,) = [key for key in arrays if key.endswith(name)]
        arrays[key] = value(arrays[key].copy())

    return edit


def setitem(x: np.ndarray, i: Any, value: Any) -> np.ndarray:
    x[i] = value
    return x


INDICES = {
    "a column beyond": ("csr", put("1.1", lambda c: setitem(c, 0, N))),
    "a negative column": ("csr", put("1.1", lambda c: setitem(c, 0, -1))),
    "columns that fall": ("csr", put("1.1", lambda c: c[::-1])),
    "columns of real numbers": ("csr", put("1.1", lambda c: c.astype(float))),
    "starts that fall": ("csr", put("0.1", lambda s: setitem(s, 3, 100))),
    "too few starts": ("csr", put("0.1", lambda s: s[:-1])),
    "too few values": ("csr", put("values.0", lambda v: v[:-1])),
    "whole values": ("csr", put("values.0", lambda v: v.astype(int))),
    "NaN": ("csr", put("values.0", lambda v: setitem(v, 0, np.nan))),
    "a row beyond": ("csc", put("1.1", lambda c: setitem(c, 0, N))),
    "rows that fall": ("csc", put("1.1", lambda c: c[::-1])),
    "a row of entries beyond": ("coo", put("0.1", lambda r: setitem(r, -1, N))),
    "an entry twice": ("coo", put("1.1", lambda c: setitem(c, 1, c[0]))),
    "a column of ELL beyond": ("ell", put("0.1", lambda c: setitem(c, (0, 0), N))),
    "a length of ELL beyond": ("ell", put("1.1", lambda n: setitem(n, 0, 9))),
    "a value in the padding": ("ell", put("values.0", lambda v: setitem(v, (-1, 0), 1.0))),
    "a piece beyond": ("hyb", put("0.1", lambda c: setitem(c, (0, 0), N))),
    "a mask of another shape": ("dia", put("values.0", lambda v: v[:-1])),
}


@pytest.mark.parametrize("case", INDICES)
def test_indices_that_do_not_fit(case: str, tmp_path: Path) -> None:
    word, edit = INDICES[case]
    path = saved(Preconditioner(krylix.as_operator(A).to(word), "mine"), tmp_path)
    change(path, edit)
    refused(path)


def set_field(*where: Any) -> Callable[[dict[str, Any], Any], None]:
    *keys, last, value = where

    def edit(description: dict[str, Any], _: Any) -> None:
        node: Any = description
        for key in keys:
            node = node[key]
        node[last] = value

    return edit


OF = ("operator", "of")
DESCRIPTIONS = {
    "newer": (set_field("version", VERSION + 1), ("newer krylix", "Update krylix")),
    "no version": (set_field("version", "x"), ("version",)),
    "another format": (set_field("format", "hdf"), ("not written by krylix",)),
    "an unknown class": (set_field(*OF, "inner", "is", "os.system"), ("os.system", "no class is registered")),
    "no operator": (set_field("operator", 5), ("no operator",)),
    "a matrix only": (lambda d, _: d.update(operator=inner(d)), ("no preconditioner",)),
    "a constant of another type": (set_field(*OF, "kind", 5), ("kind",)),
    "a fact of another type": (set_field(*OF, "hermitian", "yes"), ("hermitian",)),
    "an operator of another type": (set_field(*OF, "inner", "text"), ("inner",)),
    "an array for a text": (set_field(*OF, "kind", {"array": "operator.inner.values.0"}), ("kind",)),
    "a field too much": (set_field(*OF, "more", 1), ("fields",)),
    "a field too few": (lambda d, _: d["operator"]["of"].pop("kind"), ("fields",)),
    "no such array": (set_field(*OF, "inner", "of", "values", 0, "array", "x"), ("is damaged",)),
    "a giant shape": (set_field(*OF, "inner", "of", "shape", [N, 2**31 - 1]), ("promises a matrix",)),
    "a shape beyond": (set_field(*OF, "inner", "of", "shape", [N, 2**40]), ("is damaged",)),
    "another grid": (set_field(*OF, "inner", "of", "in_shape", [5, 5]), ("in_shape",)),
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_descriptions_that_say_anything(case: str, tmp_path: Path) -> None:
    path = saved(Preconditioner(krylix.as_operator(A).to("csr"), "mine"), tmp_path)
    edit, words = DESCRIPTIONS[case]
    change(path, edit)
    refused(path, *words)


@pytest.mark.parametrize("form", ["transposed", "conjugated"])
def test_sparse_factors_of_another_form(form: str, tmp_path: Path) -> None:
    """Files have the matrix in the form that is solved with."""
    path = saved(krylix.prepare(A, V, method="scipy-direct").preconditioner, tmp_path)
    change(path, set_field(*OF, form, True))
    refused(path, form)


def test_stencils_that_do_not_fit(tmp_path: Path) -> None:
    """A box beyond the grid, and two that share a place."""
    path = saved(Preconditioner(Stencil([4.0, -1.0], [(0, 0), (1, 0)], (4, 3)), "mine"), tmp_path)
    before = path.read_bytes()

    def beyond(description: dict[str, Any], _: Any) -> None:
        dict(inner(description)["of"]["structure"])["boxes"][1][2][0] = 2

    def shared(description: dict[str, Any], _: Any) -> None:
        boxes = dict(inner(description)["of"]["structure"])["boxes"]
        boxes[1] = [[0, 0], [2, 2], [0, 0]]

    for edit, word in ((beyond, "outside"), (shared, "share a place")):
        path.write_bytes(before)
        change(path, edit)
        refused(path, word)


def test_integers_of_parts_and_factors(tmp_path: Path) -> None:
    """What no constructor compares is found by a product on the host; LAPACK's interchanges by a look."""
    M = Preconditioner(three_parts(), "mine")
    for value in (N, -1, 2**31 - 1):
        path = saved(M, tmp_path)
        change(path, put("order", lambda o, value=value: setitem(o, 0, value)))
        refused(path)
    F = krylix.prepare(A.toarray(), V, method="direct").preconditioner
    for value in (N, -1, 0):
        path = saved(F, tmp_path)
        change(path, put("factors.1", lambda p, value=value: setitem(p, 5, value)))
        refused(path)


def test_files_of_others_and_remains(tmp_path: Path) -> None:
    path = tmp_path / "M.npz"
    M = krylix.preconditioner(A, "jacobi")
    M.save(path)
    whole = path.read_bytes()
    for content, words in (
        (b"", ("no .npz archive",)), (b"PK\x03\x04", ("no .npz archive",)), (whole[: len(whole) // 2], ("cut off",)),
        (b"text " * 100, ("no .npz archive",)), (whole[:60] + b"\xff" * 20 + whole[80:], ()),
    ):  # fmt: skip
        path.write_bytes(content)
        refused(path, *words)
    sp.save_npz(path, A)
    refused(path, "krylix.sparse.load")
    np.savez(path, x=V)
    refused(path, "not written by krylix")
    np.savez(path, header=np.array([{"a": 1}], object))
    refused(path, "Python objects")
    with pytest.raises(FileNotFoundError):
        krylix.load_preconditioner(tmp_path / "nothing.npz")
    M.save(path)
    with pytest.raises(ValueError, match=r"M.npz.*load_preconditioner"):
        krylix.sparse.load(path)


@pytest.mark.parametrize("content", [b"hello", b"\x93NUMPY\x01\x00"])
def test_members_that_are_no_arrays(content: bytes, tmp_path: Path) -> None:
    """NumPy reads any member by its first bytes, whatever its name is."""
    krylix.preconditioner(A, "jacobi").save(tmp_path / "M.npz")
    with zipfile.ZipFile(tmp_path / "M.npz", "a") as archive:
        archive.writestr("readme.txt", content)
    with pytest.raises(ValueError, match=r"M\.npz: has the member 'readme.txt'; expected arrays"):
        krylix.load_preconditioner(tmp_path / "M.npz")


def test_paths(tmp_path: Path) -> None:
    """Of any form; messages have the name that was given, and a file keeps who may read it."""
    M = krylix.preconditioner(A, "jacobi")
    for bad in (io.BytesIO(), None):
        with pytest.raises(TypeError, match="expected the path of a file"):
            krylix.load_preconditioner(bad)
        with pytest.raises(TypeError, match="expected the path of a file"):
            M.save(bad)
    name = tmp_path / ("M" * 240 + ".npz")
    M.save(os.fsencode(name))
    name.chmod(0o600)
    M.save(name)
    assert name.stat().st_mode & 0o777 == 0o600 and krylix.load_preconditioner(name).kind == "jacobi"
    with pytest.raises(FileNotFoundError) as caught:
        M.save(tmp_path / "nowhere/M.npz")
    assert caught.value.filename == str(tmp_path / "nowhere/M.npz")


def test_what_load_would_refuse_is_not_saved(tmp_path: Path) -> None:
    """A stencil of two numbers for millions of points."""
    stencil = Preconditioner(Stencil([4.0, -1.0], [(0, 0), (1, 0)], (4200, 4200)), "mine")
    no_file(stencil, tmp_path, "M.npz: promises a matrix of 17640000 x 17640000", ValueError)


def test_arrays_that_promise_too_much(tmp_path: Path) -> None:
    """Are refused before memory is taken: in files of preconditioners and of matrices."""
    path = tmp_path / "M.npz"
    krylix.preconditioner(A, "jacobi").save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    sp.save_npz(tmp_path / "A.npz", A, compressed=False)
    with zipfile.ZipFile(tmp_path / "A.npz") as archive:
        matrix = {name: archive.read(name) for name in archive.namelist()}
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"shape": (10**13,), "fortran_order": False, "descr": "<f8"})
    forged = head.getvalue() + bytes(96)
    for file, contents, member in (
        (path, members, "operator.inner.values.npy"), (tmp_path / "A.npz", matrix, "data.npy"),
    ):  # fmt: skip
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in contents.items():
                archive.writestr(name, forged if name == member else content)
        read = krylix.load_preconditioner if file == path else krylix.sparse.load
        with pytest.raises(ValueError, match="promises"):
            read(file)


def test_compressed_archives_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    """Zeros take a thousandth of their size in a file: as values, as the head of an array, and members of one place."""
    path = tmp_path / "M.npz"
    krylix.preconditioner(A, "jacobi").save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(4_000_000))
    long_head = b"\x93NUMPY\x02\x00" + (30_000_000).to_bytes(4, "little") + bytes(30_000_000)
    for forged, why in ((zeros.getvalue(), r"is compressed, 6\d* bytes in"), (long_head, "promises a head of 3")):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, forged if name == "operator.inner.values.npy" else content)
            archive.writestr("more.npy", forged)
        assert_refused_without_memory(path, why)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("one.npy", zeros.getvalue())
        for k in range(3):
            twin = zipfile.ZipInfo(f"twin{k}.npy")
            for field in ("header_offset", "compress_size", "file_size", "CRC"):
                setattr(twin, field, getattr(archive.infolist()[0], field))
            archive.filelist.append(twin)
    assert_refused_without_memory(path, "its members overlap")


def assert_refused_without_memory(path: Path, why: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"M\.npz: .*{why}") as caught:
            krylix.load_preconditioner(path)
        assert "\n" not in str(caught.value) and tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("factor", [2, -0.5, 1 + 2j])
def test_conjugates_of_multiples(factor: complex, tmp_path: Path) -> None:
    M = (factor * krylix.preconditioner(A.astype(complex), "ilu", apply="exact")).conj()
    expected = np.conj(factor * (krylix.preconditioner(A, "ilu", apply="exact") @ V))
    M.save(tmp_path / "M.npz")
    np.testing.assert_allclose(krylix.load_preconditioner(tmp_path / "M.npz") @ V.astype(complex), expected, rtol=1e-14)
