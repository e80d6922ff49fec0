"""`solve_triangular`: every kind of matrix, each of its settings, derivatives, and singular triangles."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from gradients import gradients
from krylix import solve_triangular
from krylix.solvers.triangular.inverse import HostSolve, LevelSolve, find_levels, make_schedule
from krylix.sparse import CSR
from modes import COMPILED, EAGER, array, compiled, native_sparse, to_numpy

N = 11
SETTINGS = list(itertools.product((True, False), repeat=4))  # lower, unit diagonal, transpose, conjugate


def matrix_of(dtype: str = "float64", systems: tuple[int, ...] = (), seed: int = 0) -> np.ndarray:
    """Random and sparse, in both triangles, with a diagonal away from zero."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((*systems, N, N)) * (rng.random((N, N)) < 0.4)
    if np.dtype(dtype).kind == "c":
        m = m + 1j * rng.standard_normal(m.shape) * (rng.random((N, N)) < 0.3)
    m[..., range(N), range(N)] = 2 + rng.random((*systems, N))
    return m.astype(dtype)


def vectors(dtype: str = "float64", shape: tuple[int, ...] = (3,), seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((*shape, N))
    return (v + 1j * rng.standard_normal(v.shape) if np.dtype(dtype).kind == "c" else v).astype(dtype)


def triangle_of(m: np.ndarray, lower: bool, unit: bool, transpose: bool = False, conjugate: bool = False) -> np.ndarray:
    """By NumPy, in double precision."""
    wide = m.astype(np.result_type(m.dtype, np.float64))
    T = np.tril(wide) if lower else np.triu(wide)
    if unit:
        T = T * (1 - np.eye(m.shape[-1])) + np.eye(m.shape[-1])
    T = np.swapaxes(T, -1, -2) if transpose else T
    return T.conj() if conjugate else T


def exact(T: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(T, b[..., None])[..., 0]


def given(mode: str, m: np.ndarray, form: str) -> Any:
    """The matrix in the mode's library, dense or as a sparse matrix of SciPy or of the library."""
    if form == "dense":
        return array(mode, m)
    return sp.csr_array(m) if form == "scipy" else native_sparse(mode, m)


@pytest.mark.parametrize("form", ["dense", "scipy"])
@pytest.mark.parametrize("mode", EAGER)
def test_every_setting(mode: str, form: str) -> None:
    """Against a dense solve; complex, so that a conjugate is seen; the other triangle is not read."""
    m, b = matrix_of("complex128"), vectors("complex128")
    some = SETTINGS if mode in ("numpy", "torch") else SETTINGS[::5]

    def solutions(b: Any) -> list[Any]:
        found = []
        for lower, unit, transpose, conjugate in some:
            spoilt = m.copy()
            spoilt[np.triu_indices(N, 1) if lower else np.tril_indices(N, -1)] *= 1e30
            found.append(
                solve_triangular(
                    given(mode, spoilt, form), b, lower=lower, unit_diagonal=unit, transpose=transpose,
                    conjugate=conjugate,
                )
            )  # fmt: skip
        return found

    run = compiled("jax-jit", solutions) if mode == "jax" else solutions
    for (lower, unit, transpose, conjugate), x in zip(some, run(array(mode, b)), strict=True):
        assert krylix.choose_backend(x) is krylix.choose_backend(array(mode, b))
        expected = exact(triangle_of(m, lower, unit, transpose, conjugate), b)
        np.testing.assert_allclose(to_numpy(x), expected, rtol=1e-11, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(("form", "dtype"), [("dense", "complex64"), ("scipy", "float32")])
@pytest.mark.parametrize("mode", EAGER)
def test_single_precision(mode: str, form: str, dtype: str) -> None:
    m, b = matrix_of(dtype), vectors(dtype)
    x = to_numpy(solve_triangular(given(mode, m, form), array(mode, b), lower=True))
    expected = exact(triangle_of(m, True, False), b)
    assert x.dtype == np.dtype(dtype)
    np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "dia", "ell", "hyb", "native", "function"])
def test_every_format(form: str) -> None:
    """And a linear function, which is traced."""
    m, b = matrix_of(), vectors(shape=())
    A: Any = CSR.of(krylix.as_operator(sp.csr_array(m)))  # type: ignore[arg-type]
    A = (lambda x: x @ m.T) if form == "function" else sp.csr_array(m) if form == "native" else A.to(form)
    x = solve_triangular(A, b, lower=False, transpose=True)
    np.testing.assert_allclose(x, exact(triangle_of(m, False, False, True), b), rtol=1e-11)


@pytest.mark.parametrize("form", ["dense", "list"])
@pytest.mark.parametrize("mode", EAGER)
def test_batches(mode: str, form: str) -> None:
    """Of matrices, of one pattern or not, and of vectors with more batch axes."""
    m, b = matrix_of(systems=(2,)), vectors(shape=(4, 2))
    A = array(mode, m) if form == "dense" else [sp.csr_array(one) for one in m]

    def solutions(b: Any) -> list[Any]:
        one_for_all = solve_triangular(A, b[0, 0], lower=True)
        return [one_for_all, *(solve_triangular(A, b, lower=True, unit_diagonal=unit) for unit in (False, True))]

    found = (compiled("jax-jit", solutions) if mode == "jax" else solutions)(array(mode, b))
    for x, unit, rhs in zip(found, (False, False, True), (b[0, 0] + 0 * b[0], b, b), strict=True):
        np.testing.assert_allclose(to_numpy(x), exact(triangle_of(m, True, unit), rhs), rtol=1e-10, atol=1e-12)


@pytest.mark.compiled_by_default(modes=COMPILED)
@pytest.mark.parametrize(("form", "mode"), in_turn(["sparse", "dense"], COMPILED, always=["jax-jit", "tf-function"]))
def test_compiled(mode: str, form: str) -> None:
    """The values are arguments of the compiled function."""
    m, b = matrix_of()[:4, :4], vectors()[:, :4]
    A: Any = krylix.as_operator(sp.csr_array(m), array(mode, b[0]))
    given = array(mode, m) if form == "dense" else A.values

    def solve(values: Any, b: Any) -> Any:
        return solve_triangular(
            values if form == "dense" else A.with_values(values), b, lower=False, unit_diagonal=True
        )

    x = to_numpy(compiled(mode, solve)(given, array(mode, b)))
    np.testing.assert_allclose(x, exact(triangle_of(m, False, True), b), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("form", ["dense", "scipy"])
def test_singular(form: str) -> None:
    m, b = matrix_of(), vectors(shape=())
    m[3, 3] = m[7, 7] = 0
    with pytest.raises(ValueError, match=r"The triangle is singular: .*row 3.*unit_diagonal"):
        solve_triangular(given("numpy", m, form), b, lower=True)
    x = solve_triangular(given("numpy", m, form), b, lower=True, unit_diagonal=True)
    np.testing.assert_allclose(x, exact(triangle_of(m, True, True), b), rtol=1e-11)
    batch = np.stack([matrix_of(), m])
    with pytest.raises(ValueError, match="The triangle is singular: the diagonal of matrix 1 is 0 in row 3"):
        solve_triangular(batch, b, lower=True)


@pytest.mark.needs("jax")
def test_singular_where_it_is_not_known() -> None:
    """The rows that a zero concerns are not finite, the others right."""
    import jax

    m, b = matrix_of(), vectors(shape=())
    A: Any = krylix.as_operator(sp.csr_array(m), array("jax", b))
    rows, cols, _ = A.structure.entries()
    values = np.array(m[rows, cols])
    values[(rows == 4) & (cols == 4)] = 0
    x = to_numpy(jax.jit(lambda v: solve_triangular(A.to("csr").with_values(v), array("jax", b), lower=True))(values))
    assert not np.isfinite(x[4]) and np.isfinite(x[:4]).all()
    np.testing.assert_allclose(x[:4], np.linalg.solve(np.tril(m)[:4, :4], b[:4]), rtol=1e-10)


def test_refused_inputs() -> None:
    m, b = matrix_of(), vectors(shape=())
    with pytest.raises(ValueError, match="square"):
        solve_triangular(m[:, :-1], b, lower=True)
    with pytest.raises(krylix.UnsupportedOperation, match="does not show its entries"):
        solve_triangular(sp.linalg.aslinearoperator(m), b, lower=True)
    with pytest.raises(TypeError, match="lower"):
        solve_triangular(m, b)  # type: ignore[call-arg]


@pytest.mark.parametrize("mode", EAGER)
def test_one_row_and_diagonals(mode: str) -> None:
    """Triangles with nothing outside their diagonal."""
    for m in (np.array([[4.0]]), np.diag([1.0, 2.0, 4.0])):
        x = solve_triangular(sp.csr_array(m), array(mode, np.ones(len(m))), lower=True)
        np.testing.assert_allclose(to_numpy(x), 1 / np.diag(m))


# --- derivatives ---


def gradients_by_hand(m: np.ndarray, b: np.ndarray, w: np.ndarray, transpose: bool) -> tuple[np.ndarray, np.ndarray]:
    """Of sum(w x^2 / 2) by the lower triangle and by b, from the formulas."""
    T = triangle_of(m, True, False, transpose)
    x = exact(T, b)
    y = exact(np.swapaxes(T, -1, -2), w * x)
    outer = -np.einsum("ki,kj->ij", y, x)
    return np.tril(outer.T if transpose else outer), y


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_gradients(mode: str, form: str, transpose: bool) -> None:
    m, b, w = matrix_of(), vectors(), np.arange(1.0, N + 1)
    A: Any = krylix.as_operator(sp.csr_array(m), array(mode, b[0])).to("csr")  # type: ignore[attr-defined]
    rows, cols, _ = A.structure.entries()

    def loss(values: Any, b: Any) -> Any:
        matrix = values if form == "dense" else A.with_values(values)
        x = solve_triangular(matrix, b, lower=True, transpose=transpose)
        bk = krylix.choose_backend(x)
        return bk.sum(array(mode, w) * x * x, (0, 1)) / 2

    by_values, by_b = gradients_by_hand(m, b, w, transpose)
    found = gradients(mode, loss, m if form == "dense" else m[rows, cols], b)
    expected = by_values if form == "dense" else by_values[rows, cols]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-11 * scale)
    np.testing.assert_allclose(found[1], by_b, rtol=1e-9, atol=1e-11 * np.abs(by_b).max())


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_torch_second_derivatives_and_transformations(dtype: str) -> None:
    import torch

    m, b = matrix_of(dtype)[:5, :5], vectors(dtype, (1,))[:, :5]
    A: Any = krylix.as_operator(sp.csr_array(m), array("torch", b[0])).to("csr")  # type: ignore[attr-defined]

    def solve(values: Any, b: Any, conjugate: bool = True) -> Any:
        return solve_triangular(A.with_values(values), b, lower=True, transpose=True, conjugate=conjugate)

    values, rhs = A.values.clone().requires_grad_(), array("torch", b).requires_grad_()
    assert torch.autograd.gradcheck(solve, (values, rhs))
    assert torch.autograd.gradgradcheck(solve, (values, rhs))
    many = torch.stack([values.detach() * (1 + i) for i in range(3)])
    mapped = torch.func.vmap(lambda v, b: solve(v, b, False), (0, None))(many, rhs.detach())  # torch: conj warns there
    for i in range(3):
        torch.testing.assert_close(mapped[i], solve(many[i], rhs.detach(), False))
    if dtype == "float64":
        tangents = torch.ones_like(values), torch.ones_like(rhs)
        _, forward = torch.func.jvp(solve, (values.detach(), rhs.detach()), tangents)
        h = 1e-6
        steps = [solve(values.detach() + s * h, rhs.detach() + s * h) for s in (1, -1)]
        torch.testing.assert_close(forward, (steps[0] - steps[1]) / (2 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_jax_second_derivatives_and_transformations() -> None:
    import jax
    from jax.test_util import check_grads

    with jax.enable_x64(True):
        m, b = matrix_of()[:5, :5], vectors(shape=(1,))[:, :5]
        A: Any = krylix.as_operator(sp.csr_array(m), array("jax", b[0])).to("csr")  # type: ignore[attr-defined]

        def solve(values: Any, b: Any) -> Any:
            return solve_triangular(A.with_values(values), b, lower=False)

        values, rhs = A.values, array("jax", b)
        check_grads(jax.jit(solve), (values, rhs), order=2, modes=["fwd", "rev"], rtol=1e-4, atol=1e-4)
        many = jax.numpy.stack([values * (1 + i) for i in range(3)])
        mapped = jax.jit(jax.vmap(solve, (0, None)))(many, rhs)
        for i in range(3):
            np.testing.assert_allclose(mapped[i], solve(values, rhs) / (1 + i), rtol=1e-10, atol=1e-13)


# --- levels ---


def test_levels_and_steps() -> None:
    """Against the definition, row by row; every row has one place, behind those that it waits for."""
    rng = np.random.default_rng(5)
    for density in (0.0, 0.02, 0.1, 0.5):
        S = sp.csr_array(sp.tril(sp.random_array((80, 80), density=density, rng=rng), -1))
        S = S if density < 0.3 else sp.csr_array(S.T)  # also an upper one
        levels = find_levels(S.indptr, S.indices, 80)
        order = range(80) if density < 0.3 else range(79, -1, -1)
        expected = np.zeros(80, int)
        for i in order:
            expected[i] = max((expected[j] + 1 for j in S.indices[S.indptr[i] : S.indptr[i + 1]]), default=0)
        np.testing.assert_array_equal(levels, expected)
        schedule = make_schedule(levels)
        np.testing.assert_array_equal(schedule.order[schedule.places], np.arange(80))
        step = schedule.places // schedule.width
        assert all(step[i] > step[j] for i, j in zip(*S.nonzero(), strict=True))


@pytest.mark.parametrize("kind", [LevelSolve, HostSolve])
def test_the_two_ways_agree_with_a_dense_inverse(kind: Any) -> None:
    rng = np.random.default_rng(6)
    S = sp.csr_array(sp.tril(sp.random_array((60, 60), density=0.1, rng=rng), -1))
    made = kind.of if kind is LevelSolve else kind
    inverse = made(krylix.as_operator(S))
    expected = np.linalg.inv(np.eye(60) + S.toarray())
    np.testing.assert_allclose(inverse.dense(), expected, atol=1e-13)
    np.testing.assert_allclose(inverse.T.dense(), expected.T, atol=1e-13)
    np.testing.assert_allclose(inverse.astype(np.dtype("float32")).dense(), expected, atol=1e-5)
    x = rng.standard_normal(60) + 1j * rng.standard_normal(60)
    np.testing.assert_allclose(inverse @ x, expected @ x, atol=1e-12)


ARROWS = ["last row", "first column", "both", "two long rows"]


def arrow(name: str, n: int, systems: tuple[int, ...] = (), seed: int = 2) -> np.ndarray:
    """Unit lower triangles with long rows and columns."""
    rng = np.random.default_rng(seed)
    m = np.zeros((*systems, n, n)) + np.diag(0.5 * rng.standard_normal(n - 1), -1)
    rows = {"last row": [n - 1], "both": [n - 1], "two long rows": [n - 7, n - 1]}.get(name, [])
    for i in rows:
        m[..., i, :i] = rng.standard_normal((*systems, i))
    if name in ("first column", "both"):
        m[..., 1:, 0] = rng.standard_normal((*systems, n - 1))
    return m + np.eye(n)


@pytest.mark.parametrize(
    ("name", "mode"), [*((name, "torch") for name in ARROWS), ("both", "jax"), ("two long rows", "tf")]
)
def test_long_rows_and_columns(mode: str, name: str) -> None:
    """Cut into pieces: the solution, that of the transpose, and derivatives by what is stored, as of a dense matrix."""
    n = 90
    m, b = arrow(name, n), np.random.default_rng(3).standard_normal((2, n))
    A: Any = krylix.as_operator(sp.csr_array(m), array(mode, b[0])).to("csr")  # type: ignore[attr-defined]

    def solutions(b: Any) -> list[Any]:
        return [solve_triangular(A, b, lower=True, transpose=transpose) for transpose in (False, True)]

    run = compiled("jax-jit", solutions) if mode == "jax" else solutions
    for matrix, x in zip((m, m.T), run(array(mode, b)), strict=True):
        expected = exact(matrix, b)
        np.testing.assert_allclose(to_numpy(x), expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max())
    if mode == "tf":
        return  # takes the same way
    rows, cols, _ = A.structure.entries()

    def loss(values: Any, b: Any) -> Any:
        x = solve_triangular(A.with_values(values), b, lower=True)
        return krylix.choose_backend(x).sum(x * x, (0, 1)) / 2

    by_values, by_b = gradients_of_half_square(m, b)
    found = gradients(mode, loss, m[rows, cols], b)
    for got, want in zip(found, (by_values[rows, cols], by_b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10 * np.abs(want).max())


def gradients_of_half_square(m: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = np.linalg.solve(m, b.T).T
    y = np.linalg.solve(m.T, x.T).T
    return -np.einsum("ki,kj->ij", y, x), y


@pytest.mark.parametrize("name", ARROWS)
def test_memory_of_long_rows_and_columns(name: str) -> None:
    """A few values for each entry, where rows of equal length would be as long as the longest one; also for batches."""
    n = 300
    m, b = arrow(name, n, (2,)) + 0j, np.random.default_rng(3).standard_normal((2, n))
    S = [sp.csr_array(one - np.eye(n)) for one in m]
    for lower in (True, False):
        A: Any = krylix.as_operator([one if lower else sp.csr_array(one.T) for one in S])
        inverse = LevelSolve.of(A.to("csr"))
        for found in (inverse, inverse.transpose()):
            assert found.rows.structure.size < 30 * (S[0].nnz + n)
            expected = exact(m if lower == (found is inverse) else np.swapaxes(m, -1, -2), b)
            np.testing.assert_allclose(found(b), expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float32", "complex64", "float64"])
@pytest.mark.parametrize("mode", [*EAGER, "jax-jit"])
def test_rows_and_columns_of_any_size(mode: str, dtype: str) -> None:
    """Sizes whose quotients are no numbers of the dtype, where those of b and x are: rows, columns and both."""
    far = 100 if dtype != "float64" else 900
    m, exact_x = matrix_of(dtype), vectors(dtype, shape=(2,))
    big = np.clongdouble if dtype == "complex64" else np.longdouble
    wide = triangle_of(m, True, False).astype(big)
    rng = np.random.default_rng(4)
    for by_row, by_column in ((1, 0), (0, 1), (0.5, 0.5), (0.5, -0.5)):
        steps = rng.integers(-far, far, N)
        rows, columns = (np.ldexp(np.longdouble(1), (by * steps).astype(int)) for by in (by_row, by_column))
        T, x = (rows[:, None] * wide * columns).astype(dtype), (exact_x / columns).astype(dtype)
        for transpose in (False, True):
            given_x = x if not transpose else (exact_x / rows).astype(dtype)
            b = (given_x @ (T if transpose else T.T).astype(big)).astype(dtype)

            def solve(b: Any, T: Any = T, transpose: bool = transpose) -> Any:
                return solve_triangular(sp.csr_array(T), b, lower=True, transpose=transpose)

            found = to_numpy(compiled(mode, solve)(array(mode, b)) if mode in COMPILED else solve(array(mode, b)))
            assert np.isfinite(found).all() and found.dtype == np.dtype(dtype)
            np.testing.assert_allclose(
                found / given_x, np.ones_like(found), atol=1e-2 if dtype[-2:] == "32" or dtype == "complex64" else 1e-9
            )
