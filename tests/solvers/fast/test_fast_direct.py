"""`fast-direct`: right where a matrix is a sum of matrices along the axes of a grid, refused elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.sparse as sp

from cells import in_turn
from krylix import (
    SingularMatrixWarning,
    UnsupportedOperation,
    linear_solve,
    matrix_from_function,
    preconditioner,
    prepare,
)
from krylix.solvers.fast import inverse as fast_solver
from krylix.sparse import Stencil
from modes import EAGER, array, compiled, to_numpy

rng = np.random.default_rng(0)
ENDS = {"point": 0.0, "derivative": 1.0, "value": -1.0}


def constant(n: int, first: str = "point", last: str = "point", d: float = 2.3, c: float = -1.0) -> np.ndarray:
    A = np.diag(np.full(n, d)) + c * (np.eye(n, k=1) + np.eye(n, k=-1))
    A[0, 0] += c * ENDS[first]
    A[-1, -1] += c * ENDS[last]
    return A


def periodic(n: int) -> np.ndarray:
    return 2.3 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)


def wide(n: int) -> np.ndarray:
    """Periodic, of fourth order."""
    row = np.zeros(n)
    row[[0, 1, 2, -2, -1]] = 3.1, -4 / 3, 1 / 12, 1 / 12, -4 / 3
    return np.array([np.roll(row, k) for k in range(n)])


def spaced(n: int) -> np.ndarray:
    """Of a grid with other spacings everywhere: not symmetric, but by a scaling of its rows."""
    h = np.random.default_rng(n).uniform(0.5, 2, n + 1)
    rows = 2 / (h[1:] + h[:-1])
    A = np.diag(rows * (1 / h[1:] + 1 / h[:-1]) + 0.1)
    A -= np.diag(rows[:-1] / h[1:-1], 1) + np.diag(rows[1:] / h[1:-1], -1)
    return A


def dense(n: int) -> np.ndarray:
    m = rng.standard_normal((n, n))
    return m @ m.T / n + np.eye(n)


KINDS: dict[str, tuple[np.ndarray, ...]] = {
    "Dirichlet": (constant(7), constant(5)),
    "Neumann": (constant(7, "derivative", "derivative"), constant(5, "derivative", "derivative")),
    "mixed": (constant(6, "value", "derivative"), constant(5, "derivative", "point")),
    "periodic": (periodic(6), constant(4, "value", "point")),
    "spaced": (spaced(7), spaced(5)),
    "dense": (dense(4), spaced(6)),
    "three axes": (constant(3, "derivative"), spaced(4), periodic(5)),
    "flat": (constant(1), constant(5), constant(2)),
    "both ends": (constant(4, "value", "value"), constant(5, "point", "value"), constant(3, "value", "point")),
    "in the middle": (constant(3, "point", "derivative"), spaced(2), constant(4, "derivative", "value")),
    "four periodic axes": (periodic(3), periodic(4), periodic(3), periodic(4)),
    "fourth order": (wide(7), constant(4)),
}


def kronecker(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    """The sum as one dense matrix."""
    sizes = [len(A) for A in parts]
    total = np.zeros((int(np.prod(sizes)),) * 2, np.result_type(*parts))
    for k, A in enumerate(parts):
        before, after = np.eye(int(np.prod(sizes[:k]))), np.eye(int(np.prod(sizes[k + 1 :])))
        total = total + np.kron(np.kron(before, A), after)
    return total


def matrix(mode: str, parts: tuple[np.ndarray, ...], dtype: Any = float) -> Any:
    """As a matrix that knows its grid, in the mode's library."""
    entries = sp.csr_array(kronecker(parts).astype(dtype))
    grid = tuple(len(A) for A in parts)
    like = np.zeros(grid, dtype)
    found = matrix_from_function(lambda u: (entries @ u.reshape(-1)).reshape(grid), like)[0]
    return found.in_library_of(array(mode, like))


def chosen(*modes: str) -> list[tuple[str, str]]:
    """Products with matrices along axes without formulas are in all of them."""
    eliminated = [(mode, "eliminated") for mode in modes if mode != "tf"]
    return [*((mode, "fast") for mode in modes), *eliminated, ("numpy", "dense")]


@pytest.fixture(params=["fast", "dense", "eliminated"])
def transforms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the two along all axes, or elimination along the first: which is quicker depends on their lengths."""
    choice: str = request.param
    monkeypatch.setattr(fast_solver, "is_fast", lambda *_: choice != "dense")
    monkeypatch.setattr(fast_solver, "pays", lambda *_: choice == "eliminated")
    return choice


def layered(n: int, ratio: float, every: int = 2) -> np.ndarray:
    """Symmetric, with couplings that jump after so many points."""
    c = np.where(np.arange(n + 1) // every % 2, ratio, 1.0)
    return np.asarray(np.diag(c[1:] + c[:-1] + 0.1) - np.diag(c[1:-1], 1) - np.diag(c[1:-1], -1))


LINES = {
    "definite": (constant(7), constant(5)),
    "negative": (-constant(7), -constant(5)),
    "couplings of the diagonal's sign": (constant(7, c=1.0), constant(5)),
    "spaced": (spaced(7), constant(5)),
    "jumps": (layered(9, 1e3), constant(5)),
    "three axes": (layered(5, 7.0), constant(4), constant(3, "value", "point")),
    "three points": (constant(3), constant(5)),
}
NOT = {
    "singular": tuple(constant(n, "derivative", "derivative", 2.0) for n in (7, 5)),
    "indefinite": (constant(7, d=1.0), constant(5, d=1.1)),
    "a ring": (periodic(6), constant(5)),
    "a ring beside": (constant(7), periodic(6)),
    "wide": (wide(7), constant(5)),
    "out of range": (layered(13, 30.0, every=1), constant(5)),
    "two points": (constant(2), constant(5)),
    "apart": (np.diag([2.0, 3.0, 4.0, 5.0]) - np.diag([1.0, 0.0, 1.0], 1) - np.diag([1.0, 0.0, 1.0], -1), constant(5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*LINES, *NOT])
def test_which_lines_are_eliminated(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same inverse, whatever the units of the matrix are."""
    monkeypatch.setattr(fast_solver, "pays", lambda *_: True)
    monkeypatch.setattr(fast_solver, "is_fast", lambda *_: True)
    parts = (LINES | NOT)[name]
    for unit in (1.0, 1e-30, 1e30) if dtype == "float64" else (1.0,):
        A = kronecker(parts) * unit
        inverse = fast_solver.fast_inverse(matrix("numpy", tuple(unit * part for part in parts), dtype))
        assert ("Eliminated" in kinds_of(inverse)) == (name in LINES)
        if name in LINES:
            expected, limit = np.linalg.inv(A), 1e-5 if dtype == "float32" else 1e-13
            size = np.max(np.abs(expected))
            for found, of in ((inverse, expected), (inverse.T, expected.T)):
                np.testing.assert_allclose(found.apply(np.eye(len(A), dtype=dtype)).T, of, atol=limit * size, rtol=0)


def kinds_of(M: Any) -> set[str]:
    """Names of the classes that an operator is made of."""
    inner = [getattr(M, name) for name in getattr(M, "parts", ())]
    return {type(M).__name__}.union(*(kinds_of(part) for part in inner if hasattr(part, "apply")))


def test_long_lines_are_eliminated_by_themselves() -> None:
    """Where transforms of their length are slow; accelerators and TensorFlow have no quick steps."""
    laplacian = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], (256, 300))
    assert "Eliminated" in kinds_of(fast_solver.fast_inverse(laplacian))
    b = rng.standard_normal(laplacian.shape[0])
    for mode in ("numpy", "jax-jit", "torch", "tf"):
        x = compiled(mode, lambda b, A=laplacian: linear_solve(A, b, method="fast-direct", rtol=1e-12).x)(
            array(mode, b)
        )
        residual = laplacian.to_scipy() @ to_numpy(x) - b
        assert np.linalg.norm(residual) <= 1e-12 * np.linalg.norm(b)


# what jax-jit and tf run, again: for a few kinds before a merge
AGAIN = in_turn(("periodic", "both ends", "three axes", "fourth order"), ("jax", "tf-function"))
AGAIN += [
    pytest.param(kind, mode, marks=pytest.mark.slow)
    for kind in KINDS
    for mode in ("jax", "tf-function")
    if kind not in {case.values[0] for case in AGAIN}
]


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize(
    ("kind", "mode", "transforms"),
    [
        *((kind, *way) for kind in KINDS for way in chosen("numpy", "torch", "tf")),
        *(
            pytest.param(case.values[0], "jax-jit", case.values[1], marks=case.marks)
            for case in in_turn(KINDS, ("fast", "eliminated"))
        ),
        *(pytest.param(*case.values, "fast", marks=case.marks) for case in AGAIN),
    ],
    indirect=["transforms"],
)
def test_solution(mode: str, kind: str, transforms: str) -> None:
    """Against a dense solve, transposed too: `prepare` outside, and all of it in the compiled function."""
    parts = KINDS[kind]
    A = kronecker(parts)
    b = rng.standard_normal(len(A))
    operator = matrix(mode, parts)
    solver = prepare(operator, array(mode, b), method="fast-direct")
    factors = solver.preconditioner
    assert factors is not None

    def solutions(b: Any) -> tuple[Any, Any, Any]:
        """In one program."""
        return linear_solve(operator, b, method="fast-direct").x, solver.solve(b).x, factors.T @ b

    x, found, image = map(to_numpy, compiled(mode, solutions)(array(mode, b)))
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, x, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(image, np.linalg.solve(A.T, b), rtol=1e-9, atol=1e-12)


def dtype_phases(dtype: str) -> np.ndarray:
    return np.exp(1j * np.arange(30)).astype(dtype) if dtype.startswith("c") else np.ones(30, dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize(("mode", "transforms"), chosen(*EAGER), indirect=["transforms"])
@pytest.mark.parametrize("kind", ["sines", "periodic"])
def test_dtypes_and_batches(mode: str, dtype: str, kind: str, transforms: str) -> None:
    """Helmholtz with damping where it is complex; three systems at once."""
    shift = (0.3 + 0.2j) * np.eye(6) if dtype.startswith("c") else 0.3 * np.eye(6)
    parts = (constant(6, "derivative") + shift, spaced(5) if kind == "sines" else periodic(5))
    A, b = kronecker(parts), rng.standard_normal((3, 30)).astype(dtype)
    b = b * dtype_phases(dtype)
    result = linear_solve(matrix(mode, parts, dtype), array(mode, b), method="fast-direct")
    x = to_numpy(result.x)
    assert x.dtype == np.dtype(dtype)
    exact = np.linalg.solve(A, b.T).T
    np.testing.assert_allclose(x, exact, rtol=2e-3 if dtype in ("float32", "complex64") else 1e-9, atol=1e-4)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", ["jax", "jax-jit", "torch", "tf", "tf-function"])
@pytest.mark.parametrize("other", [periodic(4), constant(4, "derivative", "point")])
@pytest.mark.parametrize("transforms", ["fast"], indirect=True)
def test_gradients(mode: str, other: np.ndarray, transforms: str) -> None:
    """By b, of a matrix that is not symmetric."""
    parts = (spaced(5), other)
    operator, A = matrix(mode, parts), kronecker(parts)
    b, g = rng.standard_normal((2, 20))

    def loss(b: Any) -> Any:
        x = linear_solve(operator, b, method="fast-direct", rtol=1e-13).x
        return (x * array(mode, g)).sum() if mode == "torch" else _sum(mode, x * array(mode, g))

    found = _gradient(mode, loss, array(mode, b))
    np.testing.assert_allclose(to_numpy(found), np.linalg.solve(A.T, g), rtol=1e-9)


def _sum(mode: str, x: Any) -> Any:
    if mode.startswith("jax"):
        return x.sum()
    import tensorflow as tf

    return tf.reduce_sum(x)


def _gradient(mode: str, loss: Any, b: Any) -> Any:
    if mode.startswith("jax"):
        import jax

        return compiled(mode, jax.grad(loss))(b)
    if mode == "torch":
        import torch

        b.requires_grad_()
        return torch.autograd.grad(loss(b), b)[0]
    import tensorflow as tf

    def gradient(b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(b)
            value = loss(b)
        return tape.gradient(value, b)

    return compiled(mode, gradient)(b)


@pytest.mark.parametrize("kind", ["periodic", "Neumann"])
def test_singular(kind: str, transforms: str) -> None:
    """Without the part that A does not see; a system without a solution is not called solved."""
    ends = ("derivative", "derivative")
    parts = (periodic(6) - 0.3 * np.eye(6), periodic(5) - 0.3 * np.eye(5))
    if kind == "Neumann":
        parts = (constant(6, *ends, d=2.0), constant(5, *ends, d=2.0))
    b = rng.standard_normal(30)
    result = linear_solve(matrix("numpy", parts), b - b.mean(), method="fast-direct")
    np.testing.assert_allclose(result.x, np.linalg.pinv(kronecker(parts)) @ (b - b.mean()), atol=1e-12)
    wrong = linear_solve(matrix("numpy", parts), b, method="fast-direct", on_failure="status", nullspace=None)
    assert not wrong.converged


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "tf-function"])
def test_one_of_two_systems_without_a_solution(mode: str) -> None:
    """One application of the factors ends a solve only where it solves all; the others are told apart."""
    ends = ("derivative", "derivative")
    parts = (constant(6, *ends, d=2.0), constant(5, *ends, d=2.0))
    operator, b = matrix(mode, parts), rng.standard_normal((2, 30))
    b[0] -= b[0].mean()

    def solve(b: Any) -> Any:
        result = linear_solve(operator, b, method="fast-direct", on_failure="status", nullspace=None)
        return result.x, result.converged, result.iterations

    x, converged, iterations = map(to_numpy, compiled(mode, solve)(array(mode, b)))
    assert converged.tolist() == [True, False] and iterations[0] == 1
    np.testing.assert_allclose(x[0] - x[0].mean(), np.linalg.pinv(kronecker(parts)) @ b[0], atol=1e-12)
    b[1] -= b[1].mean()
    x, converged, iterations = map(to_numpy, compiled(mode, solve)(array(mode, b)))
    assert converged.all() and iterations.tolist() == [1, 1]
    np.testing.assert_allclose(x, b @ np.linalg.pinv(kronecker(parts)), atol=1e-12)


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
@pytest.mark.parametrize("kind", ["both ends", "periodic", "Neumann"])
def test_factors_are_mapped_and_differentiated(mode: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the library itself, without the rule of `linear_solve`."""
    monkeypatch.setattr(fast_solver, "is_fast", lambda *_: True)
    A = kronecker(KINDS[kind])
    rows, g = rng.standard_normal((3, len(A))), rng.standard_normal(len(A))
    factors: Any = prepare(matrix(mode, KINDS[kind]), array(mode, rows[0]), method="fast-direct").preconditioner
    if mode == "jax":
        import jax

        mapped = jax.jit(jax.vmap(lambda b: factors @ b))
    elif mode == "torch":
        import torch

        mapped = torch.func.vmap(lambda b: factors @ b)
    else:
        import tensorflow as tf

        mapped = tf.function(lambda rows: tf.vectorized_map(lambda b: factors @ b, rows), autograph=False)
    np.testing.assert_allclose(to_numpy(mapped(array(mode, rows))), np.linalg.solve(A, rows.T).T, atol=1e-12)
    weights = array(mode, g)

    def loss(b: Any) -> Any:
        image = (factors @ b) * weights
        return image.sum() if mode == "torch" else _sum(mode, image)

    np.testing.assert_allclose(
        to_numpy(_gradient("jax-jit" if mode == "jax" else mode, loss, array(mode, rows[0]))),
        np.linalg.solve(A.T, g),
        atol=1e-12,
    )


@pytest.mark.merge
def test_functions_compiled_by_xla() -> None:
    """TensorFlow's."""
    tf = pytest.importorskip("tensorflow")
    parts = (constant(7, "derivative", "point"), periodic(6))
    A, b = kronecker(parts), rng.standard_normal(42)
    operator = matrix("tf", parts)
    solve = tf.function(lambda b: linear_solve(operator, b, method="fast-direct").x, jit_compile=True, autograph=False)
    np.testing.assert_allclose(to_numpy(solve(array("tf", b))), np.linalg.solve(A, b), atol=1e-12)


@pytest.mark.parametrize("n", [64, 256, 512])
def test_single_precision(n: int) -> None:
    """Smooth waves are far below the largest eigenvalue, and no null vectors; against SciPy's sine transforms."""
    b = rng.standard_normal((n, n)).astype(np.float32)
    result = linear_solve(laplace, b, method="fast-direct")
    waves = 2 - 2 * np.cos(np.pi * np.arange(1, n + 1) / (n + 1))
    x = scipy.fft.idstn(scipy.fft.dstn(b.astype(float), type=1) / (waves[:, None] + waves), type=1)
    assert result.converged and result.x.dtype == np.float32
    assert np.linalg.norm(result.x - x) <= 1e-5 * n * np.linalg.norm(x)


def laplace(u: np.ndarray) -> np.ndarray:
    padded = np.pad(u, 1)
    return 4 * u - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2]


def test_what_is_no_sum_is_refused() -> None:
    """One entry of a thousand that is another is seen."""
    b = rng.standard_normal((8, 6))
    assert linear_solve(laplace, b, method="fast-direct").iterations == 1
    bump = np.zeros((8, 6))
    for place in ((0, 0), (3, 4), (7, 5)):
        bump[place] = 1e-9
        with pytest.raises(UnsupportedOperation, match="no sum of matrices along the axes"):
            linear_solve(lambda u: laplace(u) + bump * u, b, method="fast-direct")
        bump[place] = 0
    cross = lambda u: laplace(u) + 0.1 * np.roll(np.roll(u, 1, 0), 1, 1)  # noqa: E731
    with pytest.raises(UnsupportedOperation, match="no sum of matrices along the axes"):
        linear_solve(cross, b, method="fast-direct")
    k = 1 + rng.random((8, 6))
    with pytest.raises(UnsupportedOperation, match="no sum of matrices along the axes"):
        linear_solve(lambda u: k * laplace(u), b, method="fast-direct")


def test_other_refusals() -> None:
    b = rng.standard_normal((8, 6))
    with pytest.raises(UnsupportedOperation, match=r"shape \(5,\)"):
        linear_solve(np.eye(5), np.ones(5), method="fast-direct")
    with pytest.raises(UnsupportedOperation, match="matrix_offset"):
        linear_solve(laplace, b, method="fast-direct", matrix_offset=1.0)
    with pytest.raises(UnsupportedOperation, match="along axis 0 is neither Hermitian"):
        linear_solve(lambda u: laplace(u) + np.roll(u, 1, 0), b, method="fast-direct")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_no_numbers_are_refused_as_such(value: float) -> None:
    with np.errstate(invalid="ignore"), pytest.raises(UnsupportedOperation, match="NaN or infinite"):
        linear_solve(lambda u: value * u, np.ones((6, 5)), method="fast-direct")


def test_products_that_show_no_entries_are_refused_without_naming_another_library() -> None:
    products = preconditioner(Stencil([2.0], [(0, 0)], (6, 5)), "chebyshev")
    with pytest.raises(UnsupportedOperation, match=r"coefficients, but .*products only") as refusal:
        fast_solver.fast_inverse(products)
    assert "PyTorch" not in str(refusal.value)


def test_long_axes_are_refused_before_memory_is_taken() -> None:
    """Their eigenvectors would be 80 GB, where there is no fast transform; `auto` takes another way."""
    b = rng.standard_normal((2, 100_000))
    k = 5 + rng.random(100_000)
    A = matrix_from_function(lambda u: k * u - np.roll(u, 1, 1) - np.roll(u, -1, 1), b)[0]
    with pytest.raises(UnsupportedOperation, match="axis 1 has 100000 points"):
        linear_solve(A, b.reshape(-1), method="fast-direct")
    assert "CG" in linear_solve(A, b.reshape(-1)).method


@pytest.mark.needs("jax")
def test_coefficients_that_are_traced_are_refused() -> None:
    import jax
    import jax.numpy as jnp

    def solve(c: Any) -> Any:
        A = lambda u: c * u - jnp.roll(u, 1, 0) - jnp.roll(u, -1, 0)  # noqa: E731
        return linear_solve(A, jnp.ones((4, 3)), method="fast-direct").x

    np.testing.assert_allclose(solve(5.0), np.full((4, 3), 1 / 3), rtol=1e-6)
    with pytest.raises(UnsupportedOperation, match="computed in the compiled function"):
        jax.jit(solve)(5.0)


def stretched(u: np.ndarray) -> np.ndarray:
    """Dirichlet along the first axis, Neumann along the other one, which is coupled 128 times as strongly."""
    p, q = np.pad(u, ((1, 1), (0, 0))), np.pad(u, ((0, 0), (1, 1)), mode="edge")
    return 2 * u - p[2:] - p[:-2] + 128 * (2 * u - q[:, 2:] - q[:, :-2])


def test_modes_that_single_precision_cannot_tell_from_zero() -> None:
    """They are not dropped: the method is refused by its numbers, and another one chosen."""
    n = 1000
    b, i = np.ones((n, 4), np.float32), np.arange(1, n + 1)
    exact = (i * (n + 1 - i) / 2)[:, None] * np.ones(4)
    with pytest.raises(UnsupportedOperation, match="cannot be told from zero in this precision"):
        linear_solve(stretched, b, method="fast-direct")
    assert linear_solve(stretched, b.astype(float), method="fast-direct").converged
    solver = prepare(stretched, b, on_failure="status")  # its x has no digits for a residual within the tolerance
    assert solver.method.name != "fast-direct"
    with pytest.warns(SingularMatrixWarning, match="ill-conditioned"):
        x = solver.solve(b).x
    assert np.linalg.norm(x - exact) <= 1e-2 * np.linalg.norm(exact)


def test_grids_without_points() -> None:
    assert linear_solve(lambda u: 3 * u, np.ones((0, 5)), method="fast-direct").x.shape == (0, 5)


def test_dense_functions_are_not_traced_in_order_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over everything before would take a matrix of half a million entries."""
    from krylix.solvers import choose as facts

    refused: list[str] = []
    traced = facts.as_matrix

    def noted(A: Any) -> Any:
        try:
            return traced(A)
        except UnsupportedOperation as error:
            refused.append(str(error))
            raise

    monkeypatch.setattr(facts, "as_matrix", noted)

    def sums(u: np.ndarray) -> np.ndarray:
        return 1000 * u + np.cumsum(u.reshape(-1)).reshape(u.shape)

    b = np.ones((30, 30))
    x = prepare(sums, b).solve(b).x
    np.testing.assert_allclose(sums(x), b, rtol=1e-6)
    assert len(refused) == 1 and f"at most {64 * 900:,} fit" in refused[0]
