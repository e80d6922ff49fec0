"""Log determinants: exact, estimated, and their derivatives, against NumPy's `slogdet` and `inv`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from gaussian_matrices import MATRICES, definite, grid_laplacian, scattered
from gradients import gradient
from krylix import UnsupportedOperation, logdet, prepare
from krylix.solvers.gaussian.factorised import SMALL
from modes import COMPILED, EAGER, MODES, array, compiled, library, to_numpy


def exact(A: Any) -> tuple[Any, Any]:
    return np.linalg.slogdet(A.toarray() if sp.issparse(A) else A)


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("name", MATRICES)
def test_against_numpy(name: str, form: str) -> None:
    A = MATRICES[name]
    found = prepare(A if form == "sparse" else A.toarray()).logdet()
    sign, log = exact(A)
    np.testing.assert_allclose(found.sign, sign, rtol=1e-9)
    np.testing.assert_allclose(found.logabsdet, log, rtol=1e-11, atol=1e-9)
    assert found.standard_error == 0


@pytest.mark.compiled_by_default(modes=COMPILED)
@pytest.mark.parametrize(
    ("form", "mode"), in_turn(["dense", "sparse", "large"], MODES, always=["numpy", "torch"], shift=2)
)
def test_every_library(form: str, mode: str) -> None:
    """The values are arguments of compiled functions; in the precision of A."""
    m = (scattered(SMALL + 3, 0.02) if form == "large" else scattered(20, 0.2)).astype(np.float32)
    A: Any = krylix.as_operator(m, array(mode, np.zeros(m.shape[0], np.float32)))
    values = array(mode, m.toarray()) if form == "dense" else A.values
    found = compiled(mode, lambda values: logdet(values if form == "dense" else A.with_values(values)))(values)
    sign, log = exact(m.astype(float))
    assert to_numpy(found.logabsdet).dtype == np.float32
    np.testing.assert_allclose(to_numpy(found.sign), sign)
    np.testing.assert_allclose(to_numpy(found.logabsdet), log, rtol=1e-4)


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        ("list", "numpy"),
        *in_turn(["dense", "shared pattern"], ["numpy", "jax-jit", "torch", "tf"], always=["numpy", "torch"]),
    ],
)
def test_batches(form: str, mode: str) -> None:
    ms = [grid_laplacian(2, 3, shift=s) for s in (0.1, 1.0, -0.7)]
    dense = np.stack([m.toarray() for m in ms])
    one: Any = krylix.as_operator(ms[0], array(mode, np.zeros(6))).to("csr")
    values = array(mode, dense if form == "dense" else np.stack([sp.csr_array(m).data for m in ms]))

    def both(values: Any) -> Any:
        A = one.with_values(values) if form == "shared pattern" else {"list": ms, "dense": values}[form]
        found = logdet(A)
        return found.sign, found.logabsdet, prepare(A).inverse_diagonal()

    expected = *np.linalg.slogdet(dense), np.linalg.inv(dense)[:, range(6), range(6)]
    for found, exact in zip(compiled(mode, both)(values), expected, strict=True):
        np.testing.assert_allclose(to_numpy(found), exact)


@pytest.mark.parametrize(("form", "mode"), in_turn(["sparse", "dense"], EAGER, always=["numpy"]))
def test_singular(form: str, mode: str) -> None:
    """An exact zero pivot, a row of zeros, an empty matrix, NaN."""
    cases = [np.array([[1.0, 2, 0], [2, 4, 0], [0, 0, 3]]), np.diag([1.0, 0, 2])]
    for m in cases:
        A = array(mode, m) if form == "dense" else krylix.as_operator(sp.csr_array(m), array(mode, np.zeros(3)))
        sign, log, _ = logdet(A)
        assert to_numpy(sign) == 0 and to_numpy(log) == -np.inf
    if mode == "numpy":
        assert logdet(np.zeros((0, 0)) if form == "dense" else sp.csr_array((0, 0)))[:2] == (1, 0)
        bad = np.diag([1.0, np.nan])
        assert np.isnan(logdet(bad if form == "dense" else sp.csr_array(bad)).logabsdet)


@pytest.mark.parametrize("mode", EAGER)
def test_functions_are_traced(mode: str) -> None:
    bk = krylix.choose_backend(library(mode))
    found = logdet(lambda x: 3 * x - bk.xp.roll(x, 1, axis=-1), array(mode, np.zeros(50)))
    expected = 50 * np.log(3) + np.log1p(-(3.0**-50))  # of a circulant
    np.testing.assert_allclose(to_numpy(found.logabsdet), expected, rtol=1e-12)


# --- estimates ---


@pytest.mark.parametrize(
    "mode", ["numpy", "jax-jit", "torch", "tf-function", pytest.param("torch-compile", marks=pytest.mark.slow)]
)
def test_estimate(mode: str) -> None:
    """Of a function, within four standard errors; exact for a multiple of the identity."""
    m = grid_laplacian(12, 11, shift=0.5)
    A = array(mode, m.toarray())
    bk = krylix.choose_backend(library(mode))

    def estimate(A: Any) -> Any:
        return logdet(lambda x: bk.xp.matmul(x, A), A[0], method="lanczos", probes=40, steps=60)

    found = compiled(mode, estimate)(A)
    _, log = exact(m)
    error = to_numpy(found.standard_error)
    assert 0 < error < 0.05 * log
    assert abs(to_numpy(found.logabsdet) - log) < 4 * error
    assert to_numpy(found.sign) == 1


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_estimate_in_other_precisions(dtype: str) -> None:
    m = definite(120, complex_=dtype == "complex128").astype(dtype)
    found = logdet(m, method="lanczos", probes=60, steps=80)
    assert found.logabsdet.dtype == np.finfo(dtype).dtype
    assert abs(found.logabsdet - exact(m)[1]) < 4 * found.standard_error


def test_what_is_left_out_by_few_steps_counts() -> None:
    """Five steps see little of a condition number of 1e4: the standard error says so."""
    m = sp.diags_array(np.geomspace(1e-4, 1, 400))
    found = logdet(m, method="lanczos", probes=20, steps=5)
    assert abs(found.logabsdet - exact(m)[1]) < 5 * found.standard_error


def test_estimates_are_functions_of_the_key() -> None:
    m = grid_laplacian(9, 9)
    one, same, other = (logdet(m, method="lanczos", probes=4, key=k).logabsdet for k in (1, 1, 2))
    assert one == same != other
    drawn = logdet(m, method="lanczos", probes=4, key=np.random.default_rng(0)).logabsdet
    assert drawn not in (one, other)


def test_few_unknowns() -> None:
    """Lanczos' method ends before the steps do, and in its own subspaces."""
    for m in (np.eye(1) * 5, np.diag([2.0, 2.0, 2.0]), np.diag([1.0, 1.0, 7.0])):
        found = logdet(m, method="lanczos", probes=8)
        np.testing.assert_allclose(found.logabsdet, exact(m)[1], rtol=1e-12)


@pytest.mark.parametrize("name", ["indefinite", "scattered", "negative definite"])
def test_estimates_refuse_what_is_not_definite(name: str) -> None:
    with pytest.raises(ValueError, match=r"Hermitian positive definite"):
        logdet(MATRICES[name], method="lanczos")


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_estimates_refuse_what_is_semi_definite(dtype: str) -> None:
    """Constants as null vectors, of which the probes show little, and Ritz values that are rounding."""
    rng = np.random.default_rng(1)
    closed = grid_laplacian(60, 60, shift=0)
    closed = closed - sp.diags_array(closed.sum(axis=1))
    weights = np.abs(sp.csr_array(sp.random_array((300, 300), density=0.02, rng=rng)))
    weights = weights + weights.T
    graph = sp.diags_array(weights.sum(axis=1)) - weights
    rank_one = np.outer(v := rng.standard_normal(120), v) + np.diag(np.arange(120.0) % 2)
    for m in (closed, 1e-20 * closed, graph, rank_one, sp.csr_array((300, 300))):
        with pytest.raises(ValueError, match="semi-definite"):
            logdet(sp.csr_array(m).astype(dtype), method="lanczos", probes=4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_estimates_take_what_is_nearly_singular(dtype: str) -> None:
    """Rows that add up to little, but more than rounding."""
    shift = 1e-4 if dtype == "float32" else 1e-12
    m = grid_laplacian(12, 12, shift=0)
    m = sp.csr_array(m - sp.diags_array(m.sum(axis=1)) + shift * sp.eye_array(144)).astype(dtype)
    found = logdet(m, method="lanczos", probes=60, steps=144)
    assert abs(found.logabsdet - exact(m.astype(float))[1]) < 6 * found.standard_error


@pytest.mark.needs("jax")
def test_nan_instead_of_an_error() -> None:
    """By policy, also in a program, which then calls nobody on the host."""
    import jax

    def estimate(A: Any) -> Any:
        return logdet(lambda x: x @ A, A[0], method="lanczos", probes=2, steps=3).logabsdet

    bad = np.diag([1.0, -2.0, 3.0])
    with krylix.on_failure("nan"):
        program = jax.jit(estimate)
        assert np.isnan(program(bad)) and np.isnan(logdet(bad, method="lanczos").logabsdet)
        assert "callback" not in str(jax.make_jaxpr(estimate)(bad))


# --- derivatives ---


@pytest.mark.parametrize("name", ["grid", "scattered", "complex", "indefinite", "cancelling", "large grid"])
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_gradient_on_numpy(name: str, form: str) -> None:
    """Against a difference of log determinants, along a random direction on the pattern."""
    A = MATRICES[name]
    G = prepare(A if form == "sparse" else A.toarray()).logdet_gradient()
    rng = np.random.default_rng(1)
    change = A.copy()
    change.data = rng.standard_normal(A.nnz).astype(A.dtype)
    if A.dtype.kind == "c":
        change.data = change.data + 1j * rng.standard_normal(A.nnz)
    slope = np.sum(np.conj(G.to_scipy().toarray() if form == "sparse" else G) * change.toarray()).real
    h = 1e-5 / np.abs(change.data).max()
    difference = (exact(A + h * change)[1] - exact(A - h * change)[1]) / (2 * h)
    np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-6 * np.abs(G).sum() if form == "dense" else 1e-4)


def pattern_gradient(m: sp.csr_array) -> np.ndarray:
    """By NumPy."""
    rows, columns = m.tocoo().coords
    return np.linalg.inv(m.toarray())[columns, rows].conj()


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        *((mode, form) for mode in ("jax-jit", "torch") for form in ("exact, large", "lanczos", "complex")),
        ("jax", "exact, large"), ("tf-function", "exact, large"), ("tf", "complex"), ("torch", "exact"),
        *(pytest.param(mode, "lanczos", marks=pytest.mark.slow) for mode in ("jax", "tf", "tf-function")),
        pytest.param("tf", "exact, large", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_gradient_by_values(mode: str, form: str) -> None:
    """Exact where entries of the inverse are; of an estimate the mean of what its probes give."""
    m = scattered(SMALL + 5, 0.02) if form == "exact, large" else definite(30, complex_=form == "complex")
    A: Any = krylix.as_operator(m, array(mode, np.zeros(m.shape[0]))).to("csr")
    method = "lanczos" if form == "lanczos" else "exact"
    probes = 3000 if form == "lanczos" else 2

    def value(values: Any) -> Any:
        return logdet(A.with_values(values), method=method, probes=probes, steps=40).logabsdet

    found = compiled(mode, lambda values: gradient(mode, value, values))(array(mode, m.data))
    expected = pattern_gradient(m)
    if form == "lanczos":
        assert np.abs(to_numpy(found) - expected).max() < 0.1 * np.abs(expected).max()
        np.testing.assert_allclose(np.sum(to_numpy(found) * m.data), m.shape[0], rtol=1e-6)  # exact for each probe
        return
    if mode.startswith("jax"):
        expected = expected.conj()  # its convention
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "mode"),
    [
        *in_turn(["exact", "lanczos"], ["jax-jit", "torch", "tf"], always=["torch"]),
        *(pytest.param(algorithm, "jax", marks=pytest.mark.slow) for algorithm in ("exact", "lanczos")),
    ],
)
def test_gradient_by_what_a_function_closes_over(algorithm: str, mode: str) -> None:
    """Against a difference with the same probes."""
    bk = krylix.choose_backend(library(mode))
    like = array(mode, np.zeros((18, 17) if algorithm == "exact" else (6, 5)))

    def value(t: Any) -> Any:
        def A(x: Any, t: Any) -> Any:
            near = sum(bk.xp.roll(x, s, axis=a) for s in (1, -1) for a in (-1, -2))
            return (1 + 5 * t) * x - t * near

        return logdet(A, like, args=(t,), method=algorithm, probes=3, steps=30).logabsdet

    t, h = array(mode, 0.7), 1e-4
    slope = to_numpy(compiled(mode, lambda t: gradient(mode, value, t))(t))
    np.testing.assert_allclose(
        slope, (to_numpy(value(t + h)) - to_numpy(value(t - h))) / (2 * h), rtol=1e-6 if algorithm == "exact" else 1e-5
    )


@pytest.mark.needs("jax")
def test_second_derivatives() -> None:
    """Of small matrices to every order; elsewhere an error says that there is none."""
    import jax

    def second(n: int, method: str) -> Any:
        def loss(t: Any) -> Any:
            return logdet(lambda x: t**2 * x, jax.numpy.zeros(n), method=method, steps=2, probes=2).logabsdet

        return jax.jit(jax.grad(jax.grad(loss)))(2.0)

    np.testing.assert_allclose(second(5, "exact"), -5 * 2 / 4)
    for n, method, what in ((SMALL, "exact", "only a first one"), (20, "lanczos", "only a first derivative")):
        with pytest.raises(TypeError, match=what):
            second(n, method)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_forward_mode_of_sparse_matrices(dtype: str) -> None:
    """With t = tr(A^-1 dA), log |det A| changes by Re t and the sign by i Im t times itself; no second order."""
    import jax

    m = scattered(SMALL + 5, 0.02).astype(dtype)
    m = m if dtype == "float64" else m * (1 + 0.5j)
    A: Any = krylix.as_operator(m, array("jax", np.zeros(m.shape[0], dtype)))
    values, rows, columns = m.data, *m.nonzero()
    step = np.random.default_rng(1).uniform(-1, 1, m.nnz).astype(dtype) * (1 if dtype == "float64" else 1 + 2j)
    change = (np.linalg.inv(m.toarray())[columns, rows] * step).sum()

    def found(v: Any) -> Any:
        return logdet(A.with_values(v))[:2]

    value, slope = jax.jvp(found, (array("jax", values),), (array("jax", step),))
    np.testing.assert_allclose(slope[1], change.real, rtol=1e-9)
    np.testing.assert_allclose(slope[0], value[0] * 1j * change.imag if dtype != "float64" else 0, rtol=1e-8)
    with pytest.raises(TypeError, match="only a first one"):
        jax.jvp(jax.grad(lambda v: found(v)[1]), (array("jax", values),), (array("jax", step),))


@pytest.mark.needs("jax")
def test_vmap_of_gradients() -> None:
    import jax

    m = grid_laplacian(20, 15)
    A: Any = krylix.as_operator(m, jax.numpy.zeros(300)).to("csr")
    values = np.stack([m.data, 2 * m.data])
    found = jax.jit(jax.vmap(jax.grad(lambda v: logdet(A.with_values(v)).logabsdet)))(values)
    np.testing.assert_allclose(found, np.stack([pattern_gradient(m), pattern_gradient(m) / 2]), rtol=1e-9)


@pytest.mark.needs("torch")
def test_a_loop_of_training_steps_with_one_solver() -> None:
    """A solver may not keep the record of the first derivative."""
    import torch

    values = torch.tensor(grid_laplacian(5, 5).data, requires_grad=True)
    A: Any = krylix.as_operator(grid_laplacian(5, 5), torch.zeros(25, dtype=torch.float64)).to("csr")
    solver = prepare(A.with_values(values))
    for _ in range(2):
        (found,) = torch.autograd.grad(solver.logdet().logabsdet, values)
        np.testing.assert_allclose(to_numpy(found), pattern_gradient(grid_laplacian(5, 5)), rtol=1e-9)


# --- what is refused ---


def test_bad_input() -> None:
    A = np.eye(3)
    for settings, what in (
        ({"method": "cholesky"}, "'exact'"),
        ({"probes": 1}, "from 2 on"),
        ({"steps": 0.5}, "steps"),
    ):
        with pytest.raises(ValueError, match=what):
            logdet(A, **settings)
    with pytest.raises(ValueError, match="square"):
        prepare(np.ones((3, 2)), method="LSMR").logdet()
    with pytest.raises(ValueError, match="square"):
        logdet(np.ones((3, 2)))
    with pytest.raises(ValueError, match="matrix_offset"):
        prepare(A, matrix_offset=0.1).logdet()
    with pytest.raises(TypeError, match=r"logdet\(A, like\) needs `like`"):
        logdet(lambda x: x)
    opaque = sp.linalg.LinearOperator((300, 300), matvec=lambda x: np.fft.ifft(np.fft.fft(x)).real, dtype=float)
    with pytest.raises(UnsupportedOperation, match="entries"):
        logdet(opaque, np.zeros(300), method="exact")


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_the_derivative_of_a_singular_dense_matrix_is_nan(mode: str) -> None:
    """Or TensorFlow's own error."""
    m = np.random.default_rng(0).standard_normal((6, 6))
    m[-1] = m[0]
    assert float(to_numpy(logdet(array(mode, m)).logabsdet)) == -np.inf
    if mode == "tf":
        with pytest.raises(Exception, match="not invertible"):
            gradient(mode, lambda m: logdet(m).logabsdet, array(mode, m))
    else:
        assert np.isnan(to_numpy(gradient(mode, lambda m: logdet(m).logabsdet, array(mode, m)))).all()


@pytest.mark.parametrize("condition", [10.0, 1e5, 1e10])
def test_the_standard_error_bounds_what_the_quadrature_leaves_out(condition: float) -> None:
    n = 150
    q = np.linalg.qr(np.random.default_rng(1).standard_normal((n, n)))[0]
    values = np.logspace(0, -np.log10(condition), n)
    matrix = (q * values) @ q.T
    found = logdet(lambda u: matrix @ u, np.ones(n), method="lanczos", steps=20)
    assert abs(float(found.logabsdet) - np.log(values).sum()) <= 4 * float(found.standard_error)
    assert condition > 10 or float(found.standard_error) < 0.05 * n  # no more than the spread of the probes
