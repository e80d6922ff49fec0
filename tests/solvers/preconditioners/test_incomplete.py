"""Incomplete factors and symmetric relaxation, against the textbook's loops in dense NumPy."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from krylix import linear_solve, preconditioner
from krylix.solvers.preconditioners.ilu import factors
from krylix.solvers.preconditioners.ilu.factors import factors_by_sweeps, incomplete_factors, zero_fill
from krylix.solvers.preconditioners.ilu.unit_diagonal import Pattern, UnitDiagonalMatrix
from krylix.solvers.preconditioners.pipeline import Target
from modes import COMPILED, array, compiled, to_numpy
from named_problems import convection, elements, jumps, poisson, squared_laplace

N = 20


def general(dtype: str = "float64", seed: int = 0, density: float = 0.2, hermitian: bool = False) -> np.ndarray:
    """Sparse, without a symmetric pattern, diagonally dominant."""
    rng = np.random.default_rng(seed)
    m = rng.uniform(-1, 1, (N, N)) * (rng.random((N, N)) < density)
    if np.dtype(dtype).kind == "c":
        m = m + 1j * rng.uniform(-1, 1, (N, N)) * (rng.random((N, N)) < density)
    m = (m + m.conj().T) / 2 if hermitian else m
    return (m * (1 - np.eye(N)) + np.diag(4 + 4 * rng.random(N))).astype(dtype)


def textbook(m: np.ndarray, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """L with ones and U without fill, row by row (Saad, Algorithm 10.4), in the pattern of A + A^T."""
    F = m.astype(np.result_type(m.dtype, np.float64)) + shift * np.diag(np.diag(m))
    pattern, n = (m != 0) | (m.T != 0) | np.eye(len(m), dtype=bool), len(m)
    for i in range(1, n):
        for k in np.flatnonzero(pattern[i, :i]):
            F[i, k] /= F[k, k]
            j = np.flatnonzero(pattern[i, k + 1 :] & pattern[k, k + 1 :]) + k + 1
            # all (k, j) of the pattern, of which those with (i, j) outside of it are dropped
            F[i, j] -= F[i, k] * F[k, j]
    return np.tril(F, -1) + np.eye(n), np.triu(F)


def swept(T: np.ndarray, sweeps: int) -> np.ndarray:
    """I - S + S^2 - ... for T = I + S."""
    S = T - np.eye(len(T))
    return sum(np.linalg.matrix_power(-S, k) for k in range(sweeps + 1))


def by_hand(L: np.ndarray, U: np.ndarray, sweeps: int | None) -> np.ndarray:
    """M of factors."""
    D = np.diag(np.diag(U))
    if sweeps is None:
        return np.linalg.inv(L @ U)
    return swept(np.linalg.solve(D, U), sweeps) @ np.linalg.inv(D) @ swept(L, sweeps)


@pytest.mark.parametrize("settings", [{}, {"sweeps": 1}, {"sweeps": 5}, {"apply": "exact"}], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_factors_are_the_textbooks(dtype: str, settings: dict[str, Any]) -> None:
    m = general(dtype)
    expected = by_hand(*textbook(m), None if "apply" in settings else settings.get("sweeps", 2))
    M = preconditioner(sp.csr_array(m), "ilu", **settings)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(M.dense(), expected, atol=tolerance * np.abs(expected).max())
    assert M.dtype == np.dtype(dtype) and M.hermitian is False
    np.testing.assert_allclose(M.T.dense(), expected.T, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("kind", ["ilu", "ic"])
@pytest.mark.parametrize("settings", [{}, {"apply": "exact"}, {"levels": 3}], ids=str)
def test_hermitian(kind: str, dtype: str, settings: dict[str, Any]) -> None:
    """M is Hermitian to the last digits and positive definite; in the pattern of A it is the textbook's."""
    m = general(dtype, hermitian=True)
    M = preconditioner(sp.csr_array(m), kind, **settings)
    dense = M.dense()
    assert M.hermitian is True
    np.testing.assert_allclose(dense, dense.conj().T, atol=1e-15 * np.abs(dense).max())
    assert np.linalg.eigvalsh(dense).min() > 0
    if "levels" not in settings:
        expected = by_hand(*textbook(m), None if settings else 2)
        np.testing.assert_allclose(dense, expected, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["ilu", "ic"])
@pytest.mark.parametrize(
    "problem", [poisson(6, 7), elements(80), jumps(8), squared_laplace(5)], ids=lambda A: f"{A.shape[0]}"
)
def test_sweeps_build_the_same_factors(kind: str, problem: sp.csr_array) -> None:
    """As many as there are levels, less one, are exact; each keeps the symmetry."""
    own = krylix.as_operator(problem)
    A = UnitDiagonalMatrix.of(own, Target(own, own.dtype), lower_only=kind == "ic").shifted(0.1)
    factors, pivots, shift = incomplete_factors(A, 0.0, True)
    levels = int(A.pattern.levels.max()) + 1
    swept_factors, swept_pivots = factors_by_sweeps(A, levels - 1)
    off = A.pattern.rows != A.pattern.cols
    assert shift == 0
    np.testing.assert_allclose(swept_pivots, pivots, rtol=1e-12)
    np.testing.assert_allclose(swept_factors[off], factors[off], atol=1e-12)
    F, _ = factors_by_sweeps(A, 1)
    F = F * A.units[A.pattern.rows]
    np.testing.assert_allclose(F, F[A.pattern.mirror], atol=1e-12 * np.abs(F).max())


@pytest.mark.parametrize("omega", [0.7, 1.0, 1.6])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_ssor(dtype: str, omega: float) -> None:
    """Against (D/w + L) (D/w)^-1 (D/w + U) / (2 - w)."""
    m = general(dtype)
    D = np.diag(np.diag(m)) / omega
    expected = np.linalg.inv((D + np.tril(m, -1)) @ np.linalg.inv(D) @ (D + np.triu(m, 1)) / (2 - omega))
    M = preconditioner(sp.csr_array(m), "ssor", omega=omega, apply="exact")
    np.testing.assert_allclose(M.dense(), expected, atol=1e-13 * np.abs(expected).max())
    many = preconditioner(sp.csr_array(m), "ssor", omega=omega, sweeps=N)
    if many.note is None:
        np.testing.assert_allclose(many.dense(), expected, atol=1e-13 * np.abs(expected).max())


def test_levels_make_blocks() -> None:
    """Exact factors of the blocks that bands of levels are; each of them waits for few steps."""
    A = poisson(9, 9)
    levels = Pattern.of(*_entries(A), 81)[0].levels
    np.testing.assert_array_equal(levels, np.add.outer(np.arange(9), np.arange(9)).ravel())
    band = levels // 4
    blocks = A.toarray() * (band[:, None] == band)
    M = preconditioner(A, "ilu", levels=4)
    np.testing.assert_allclose(M.dense(), by_hand(*textbook(blocks), None), atol=1e-14)
    assert dict(M.settings) == {"apply": "exact", "levels": 4}


def _entries(A: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    rows, cols = A.nonzero()
    return rows.astype(np.int32), cols.astype(np.int32)


# --- pivots and scales ---

# Kershaw, J. Comp. Phys. 26 (1978): positive definite, and its incomplete factors have a negative pivot.
KERSHAW = np.array([[3.0, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]])


def test_shift_of_negative_pivots() -> None:
    """Known: the smallest of a list, which the note tells; on request another."""
    assert np.linalg.eigvalsh(KERSHAW).min() > 0 and np.diag(textbook(KERSHAW)[1]).min() < 0
    shifts = [s for s in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0) if np.diag(textbook(KERSHAW, s)[1]).min() > 0.03]
    for kind in ("ilu", "ic"):
        M = preconditioner(sp.csr_array(KERSHAW), kind, apply="exact")
        assert M.note == f"diagonal multiplied by {1 + shifts[0]:g} because pivots demanded it" and M.note in repr(M)
        np.testing.assert_allclose(M.dense(), by_hand(*textbook(KERSHAW, shifts[0]), None), atol=1e-14)
        other = preconditioner(sp.csr_array(KERSHAW), kind, apply="exact", shift=2)
        assert other.note == "diagonal multiplied by 3"
        np.testing.assert_allclose(other.dense(), by_hand(*textbook(KERSHAW, 2.0), None), atol=1e-14)
    with pytest.raises(ValueError, match=r"The shift 0.0 of the diagonal makes pivots .* Is the matrix positive"):
        preconditioner(sp.csr_array(KERSHAW), "ic", shift=0.0)


@pytest.mark.parametrize("kind", ["ilu", "ic", "ssor"])
def test_growing_sweeps_are_damped(kind: str) -> None:
    A, b = squared_laplace(14), np.random.default_rng(1).standard_normal(196)
    M = preconditioner(A, kind)
    assert M.note is not None and "damped" in M.note
    dense = M.dense()
    assert M.hermitian and np.linalg.eigvalsh(dense).min() > 0
    jacobi = linear_solve(A, b, method="CG", preconditioner="jacobi").iterations
    assert linear_solve(A, b, method="CG", preconditioner=M).iterations < jacobi


@pytest.mark.parametrize("kind", ["ilu", "ssor"])
def test_zeros_on_the_diagonal(kind: str) -> None:
    """Of a saddle point, of a row without entries, and of a matrix of zeros: M is finite and can be inverted."""
    saddle = np.block([[np.diag([4.0, 5.0, 6.0]), np.ones((3, 1))], [np.ones((1, 3)), np.zeros((1, 1))]])
    M = preconditioner(sp.csr_array(saddle), kind, apply="exact")
    assert np.isfinite(M.dense()).all() and np.linalg.matrix_rank(M.dense()) == 4
    if kind == "ilu":  # without fill there is none
        np.testing.assert_allclose(M.dense(), np.linalg.inv(saddle), atol=1e-14)
    for m in (np.diag([2.0, 0.0, 4.0]), np.zeros((3, 3)), np.array([[0.0, 1.0], [1.0, 0.0]])):
        M = preconditioner(sp.csr_array(m), kind)
        assert np.isfinite(M.dense()).all() and np.linalg.matrix_rank(M.dense()) == len(m)
    np.testing.assert_allclose(preconditioner(np.diag([2.0, 0.0, 4.0]), kind).dense(), np.diag([0.5, 1, 0.25]))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("kind", ["ilu", "ic", "ssor"])
def test_units_change_nothing(kind: str, scale: float) -> None:
    A = poisson(5, 6)
    for settings in ({}, {"apply": "exact"}):
        M, other = (preconditioner(s * A, kind, **settings) for s in (1.0, scale))
        np.testing.assert_allclose(other.dense() * scale, M.dense(), rtol=1e-12)


def test_rows_of_any_size() -> None:
    """D A D gets D^-1 M D^-1."""
    A, d = elements(60), 10.0 ** np.random.default_rng(3).uniform(-9, 9, elements(60).shape[0])
    scaled = sp.csr_array(sp.diags_array(d) @ A @ sp.diags_array(d))
    M, other = preconditioner(A, "ic", apply="exact"), preconditioner(scaled, "ic", apply="exact")
    np.testing.assert_allclose(d[:, None] * other.dense() * d, M.dense(), rtol=1e-9, atol=1e-12)


# --- drop tolerance ---


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_drop_tolerance(mode: str, dtype: str) -> None:
    """SciPy's factors, in the library: applied, transposed."""
    m = general(dtype, density=0.5)
    factors = sp.linalg.spilu(sp.csc_array(m), drop_tol=0.05, fill_factor=10)
    b = array(mode, np.arange(1.0, N + 1).astype(dtype))
    M = preconditioner(sp.csr_array(m), "ilu", like=b, drop_tolerance=0.05)
    for found, trans in zip(compiled(mode, lambda b: (M @ b, M.T @ b))(b), ("N", "T"), strict=True):
        expected = factors.solve(np.arange(1.0, N + 1).astype(dtype), trans)
        np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-12)
    assert M.hermitian is False and dict(M.settings)["drop_tolerance"] == 0.05


def test_drop_tolerance_of_zero_is_the_inverse() -> None:
    A = convection(9, 1e-3)
    M = preconditioner(A, "ilu", drop_tolerance=0.0, fill_factor=50)
    np.testing.assert_allclose(M.dense() @ A.toarray(), np.eye(81), atol=1e-9)


# --- refusals ---


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("ilu", {"apply": "jacobi"}, "apply='jacobi' was given; expected 'sweeps' or 'exact'"),
        ("ilu", {"sweeps": 0}, "sweeps=0 was given; expected an integer of at least 1"),
        ("ilu", {"levels": 0}, "levels=0 was given; expected an integer"),
        ("ic", {"shift": -0.1}, "shift=-0.1 was given; expected a number above 0"),
        ("ilu", {"drop_tolerance": -1.0}, "drop_tolerance=-1.0 was given; expected a number above 0"),
        ("ilu", {"drop_tolerance": 0.1, "fill_factor": 0.0}, "fill_factor=0.0 was given"),
        ("ssor", {"omega": 2.0}, "omega=2.0 was given; expected a number between 0 and 2"),
    ],
)
def test_settings_that_do_not_fit(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preconditioner(poisson(4, 4), kind, **settings)


def test_matrices_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="not Hermitian; expected a Hermitian positive definite one for 'ic'"):
        preconditioner(convection(5, 1e-2), "ic")
    with pytest.raises(ValueError, match="diagonal is not positive in row 0"):
        preconditioner(-poisson(4, 4), "ic")
    with pytest.raises(krylix.UnsupportedOperation, match="expected one matrix whose values are known"):
        preconditioner([poisson(4, 4), poisson(4, 4)], "ilu", drop_tolerance=0.1)
    with pytest.raises(krylix.UnsupportedOperation, match="products only"):
        preconditioner(sp.linalg.aslinearoperator(poisson(4, 4)), "ilu")
    with pytest.raises(krylix.UnsupportedOperation, match="rows are too full: use method 'scipy-direct'"):
        preconditioner(np.eye(600) + 1e-3, "ilu")


def test_signs_of_pivots_are_for_symmetric_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are not factorised once more to look at the same pivots."""
    tried: list[Any] = []

    def counted(*arguments: Any) -> Any:
        tried.append(arguments)
        return zero_fill(*arguments)

    monkeypatch.setattr(factors, "zero_fill", counted)
    for A, times in ((np.array([[1.0, 2], [0.5, 1]]), 1), (np.ones((2, 2)), 2)):
        tried.clear()
        with pytest.raises(ValueError, match="pivots"):
            preconditioner(A, "ilu", shift=0)
        assert len(tried) == times


# --- batches, compiled functions, other libraries ---


def test_batch_with_shifts_of_each() -> None:
    """Of one pattern; one system needs a shift and damping, the others keep their own M."""
    matrices = [sp.csr_array(sp.block_diag([KERSHAW + c * np.eye(4), squared_laplace(5)])) for c in (0.0, 9.0, 20.0)]
    for settings in ({}, {"apply": "exact"}):
        M = preconditioner(matrices, "ilu", **settings)
        assert M.note is not None and "pivots demanded" in M.note, M.note
        for i, A in enumerate(matrices):
            alone = preconditioner(A, "ilu", **settings).dense()
            np.testing.assert_allclose(M.dense()[i], alone, rtol=1e-12, atol=1e-14)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(
    ("kind", "settings", "mode"),
    [
        # which makes all kinds outside of its graphs
        pytest.param(*kind, mode, marks=pytest.mark.slow if mode != "jax-jit" and kind[0] != "ssor" else ())
        for kind in (("ilu", {}), ("ilu", {"levels": 4}), ("ic", {}), ("ssor", {}))
        for mode in COMPILED
    ],
)
def test_traced_values(mode: str, kind: str, settings: dict[str, Any]) -> None:
    """Made of an argument of the compiled function: near to the factors of known values, or equal."""
    A = poisson(7, 8)
    b = array(mode, np.ones(56))
    operator: Any = krylix.as_operator(A, b)

    def dense(values: Any) -> Any:
        return preconditioner(operator.with_values(values), kind, **settings).dense()

    known = to_numpy(preconditioner(A, kind, **settings).dense())
    found = to_numpy(compiled(mode, dense)(operator.values))
    exact = kind == "ssor" or "levels" in settings or mode == "torch-compile"  # which makes it outside of its graphs
    np.testing.assert_allclose(found, known, atol=(1e-14 if exact else 0.02) * np.abs(known).max())
    np.testing.assert_allclose(found, found.T, atol=1e-15 * np.abs(known).max())


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_traced_negative_pivots() -> None:
    """M stays positive definite, and CG does not take longer than after scaling by the diagonal."""
    import jax

    with jax.enable_x64(True):
        A = sp.csr_array(sp.block_diag([KERSHAW, squared_laplace(6)]))
        b = np.random.default_rng(1).standard_normal(40)
        operator: Any = krylix.as_operator(A, array("jax", b))
        for settings in ({}, {"build_sweeps": 6}):
            M = jax.jit(lambda v, s=settings: preconditioner(operator.with_values(v), "ic", **s).dense())(
                operator.values
            )
            assert np.linalg.eigvalsh(np.asarray(M)).min() > 0
        result = jax.jit(lambda v: linear_solve(operator.with_values(v), b, method="CG", preconditioner="ic"))(
            operator.values
        )
        assert result.converged
        assert result.iterations < linear_solve(A, b, method="CG", preconditioner="jacobi").iterations


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_mapped_over_values() -> None:
    """`jax.vmap` of build and solve is each by itself."""
    import jax

    with jax.enable_x64(True):
        A, b = convection(8, 1e-2), np.ones(64)
        operator: Any = krylix.as_operator(A, array("jax", b))

        def solve(values: Any) -> Any:
            M = preconditioner(operator.with_values(values), "ilu", levels=4)
            return linear_solve(operator.with_values(values), b, method="biCG-stab(2)", preconditioner=M).x

        many = np.stack([np.asarray(operator.values) * (1 + i) for i in range(3)])
        x = jax.jit(jax.vmap(solve))(many)
        for i in range(3):
            np.testing.assert_allclose(x[i], np.linalg.solve(A.toarray(), b) / (1 + i), rtol=1e-7)


@pytest.mark.needs("torch")
def test_mapped_over_values_in_torch() -> None:
    import torch

    A, b = convection(8, 1e-2), torch.ones(64, dtype=torch.float64)
    operator: Any = krylix.as_operator(A, b)

    def solve(values: Any) -> Any:
        M = preconditioner(operator.with_values(values), "ilu", apply="exact")
        return linear_solve(operator.with_values(values), b, method="biCG-stab(2)", preconditioner=M).x

    x = torch.func.vmap(solve)(torch.stack([operator.values, 2 * operator.values]))
    expected = np.linalg.solve(A.toarray(), b.numpy())
    np.testing.assert_allclose(x.numpy(), np.stack([expected, expected / 2]), rtol=1e-7)


@pytest.mark.parametrize("settings", [{}, {"apply": "exact"}, {"drop_tolerance": 1e-2}], ids=str)
def test_pickled(settings: dict[str, Any]) -> None:
    A = convection(8, 1e-2)
    M = preconditioner(A, "ilu", **settings)
    b = np.random.default_rng(0).standard_normal(64)
    expected = M @ b
    again = pickle.loads(pickle.dumps(M))
    np.testing.assert_array_equal(again @ b, expected)
    x = np.linalg.solve(A.toarray(), b)
    np.testing.assert_allclose(linear_solve(A, b, method="GMRES", preconditioner=again).x, x, rtol=1e-7)


@pytest.mark.parametrize(
    ("settings", "mode"),
    in_turn([{}, {"apply": "exact"}, {"drop_tolerance": 1e-2}], ["torch", "jax-jit", "tf"], always=["torch"]),
)
def test_made_by_numpy_for_another_library(mode: str, settings: dict[str, Any]) -> None:
    A, b = convection(8, 1e-2), np.random.default_rng(0).standard_normal(64)
    M = preconditioner(A, "ilu", **settings)
    solve = compiled(mode, lambda b: linear_solve(A, b, method="biCG-stab(2)", preconditioner=M).x)
    np.testing.assert_allclose(to_numpy(solve(array(mode, b))), np.linalg.solve(A.toarray(), b), rtol=1e-6)


# --- iterations ---

PROBLEMS = {
    "Poisson 40 x 40": (poisson(40, 40), "CG"),
    "Poisson 14 x 14 x 14": (poisson(14, 14, 14), "CG"),
    "jumps of 1e4": (jumps(40), "CG"),
    "elements": (elements(1500), "CG"),
    "stretched elements": (elements(1500, 6.0), "CG"),
    "convection, eps 1e-2": (convection(40, 1e-2), "biCG-stab"),
    "convection, eps 1e-3": (convection(40, 1e-3), "biCG-stab"),
    "implicit step": (sp.csr_array(sp.eye_array(1600) + 0.5 * convection(40, 1e-3) / 41), "biCG-stab"),
}
AT_MOST = {  # of the iterations without M; the counts of research on larger grids are alike
    "Poisson 40 x 40": {"ilu": 0.5, "ic": 0.5, "exact": 0.42, "ssor": 0.55, "levels": 0.6},
    "Poisson 14 x 14 x 14": {"ilu": 0.6, "ic": 0.6, "exact": 0.5, "ssor": 0.6, "levels": 0.6},
    "jumps of 1e4": {"ilu": 0.5, "ic": 0.5, "exact": 0.42, "ssor": 0.55, "levels": 0.6},
    "elements": {"ilu": 0.6, "ic": 0.6, "exact": 0.45, "ssor": 0.6, "levels": 0.6},
    "stretched elements": {"ilu": 0.5, "ic": 0.5, "exact": 0.42, "ssor": 0.55, "levels": 0.6},
    "convection, eps 1e-2": {"ilu": 0.6, "exact": 0.45, "ssor": 0.6, "levels": 0.6},
    "convection, eps 1e-3": {"ilu": 0.6, "exact": 0.3, "ssor": 0.65, "levels": 0.5},
    "implicit step": {"ilu": 0.5, "exact": 0.4, "ssor": 0.5, "levels": 0.5},
}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "exact": ("ilu", {"apply": "exact"}),
    "levels": ("ilu", {"levels": 16}),
}


@pytest.mark.parametrize("form", ["ilu", "ic", "exact", "ssor", "levels"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_iterations(problem: str, form: str) -> None:
    """A part of those that the method takes after scaling by the diagonal."""
    A, method = PROBLEMS[problem]
    if form not in AT_MOST[problem]:
        pytest.skip("for Hermitian matrices")
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    settings: dict[str, Any] = {"method": method, "rtol": 1e-8}
    jacobi = int(linear_solve(A, b, preconditioner="jacobi", **settings).iterations)
    kind, options = FORMS.get(form, (form, {}))
    found = int(linear_solve(A, b, preconditioner=preconditioner(A, kind, **options), **settings).iterations)
    assert found <= AT_MOST[problem][form] * jacobi, f"{found} of {jacobi}"


@pytest.mark.parametrize("problem", ["Poisson 40 x 40", "elements"])
def test_iterations_are_those_of_exact_factors(problem: str) -> None:
    """A solve with factors that dense loops made takes as many."""
    A, method = PROBLEMS[problem]
    part = A[:600][:, :600]
    b = np.random.default_rng(1).standard_normal(600)
    L, U = textbook(part.toarray())
    M = by_hand(L, U, None)
    counts = [
        int(linear_solve(part, b, method=method, preconditioner=P, rtol=1e-8).iterations)
        for P in ((M + M.T) / 2, preconditioner(part, "ilu", apply="exact"))
    ]
    assert abs(counts[0] - counts[1]) <= 1


@pytest.mark.parametrize("kind", ["ilu", "ic", "ssor"])
def test_entries_that_are_not_finite_and_no_entries(kind: str) -> None:
    A = poisson(3, 3)
    for value in (np.nan, np.inf):
        A.data[-1] = value
        with pytest.raises(ValueError, match="Row 8 of A has an entry that is not finite"):
            preconditioner(A, kind)
    assert preconditioner(np.zeros((0, 0)), kind).shape == (0, 0)


def test_words_in_any_case() -> None:
    """Not one of them is taken for the other."""
    A = poisson(4, 4)
    for word in ("sweeps", "exact"):
        M, other = (preconditioner(A, "ilu", apply=form) for form in (word, word.upper()))
        np.testing.assert_array_equal(M.dense(), other.dense())
        assert M.settings == other.settings


KERSHAW = np.array([[3.0, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]])


@pytest.mark.parametrize("size", [0, 1e-13, 1e-6])
def test_positive_definite_where_the_triangles_differ(size: float) -> None:
    """IC reads the lower triangle, and its pivots stay positive."""
    A = KERSHAW.copy()
    A[0, 1] += size
    M = krylix.preconditioner(sp.csr_array(A), "ic", apply="exact")
    entries = M.dense()
    assert M.hermitian and np.linalg.eigvalsh(entries).min() > 0
    np.testing.assert_allclose(entries, entries.T, atol=1e-14)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_drop_tolerance_with_what_is_no_number(value: float) -> None:
    """SuperLU would not come back."""
    A = sp.csr_array(sp.random_array((60, 60), density=0.1, rng=np.random.default_rng(4)) + 4 * sp.eye_array(60))
    A.data[17] = value
    with pytest.raises(ValueError, match=r"Row \d+ of A has an entry that is not finite"):
        krylix.preconditioner(A, "ilu", drop_tolerance=1e-3)


def test_settings_that_exclude_each_other() -> None:
    A = sp.csr_array(KERSHAW)
    with pytest.raises(ValueError, match="drop_tolerance, and for levels, shift"):
        krylix.preconditioner(A, "ilu", drop_tolerance=0.1, levels=4, shift=1.0)
    with pytest.raises(ValueError, match="takes a drop_tolerance"):
        krylix.preconditioner(A, "ilu", fill_factor=3)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("kind", ["ilu", "ic", "ssor", "amg", "block-jacobi", "cluster", "multigrid", "triangular"])
def test_places_that_are_not_known(kind: str) -> None:
    """A matrix of JAX as an argument of a compiled function has no pattern yet."""
    import jax
    from jax.experimental.sparse import BCOO

    def solve(A: Any, b: Any) -> Any:
        if kind == "triangular":
            return krylix.solve_triangular(A, b, lower=True)
        return krylix.linear_solve(A, b, method="GMRES", preconditioner=kind).x

    A = BCOO.from_scipy_sparse(sp.eye_array(80, format="csr"))
    with pytest.raises(krylix.sparse.UnsupportedOperation, match="is an argument of the compiled function"):
        jax.jit(solve)(A, jax.numpy.ones(80))
