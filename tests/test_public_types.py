"""The types that an editor shows for public names: run by pytest, and checked by mypy and pyright in `.ci/run`."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, assert_type, get_args

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import krylix
from krylix.backends.profile.recording import Profile, ProfileEvent
from krylix.solvers import METHODS, OPTIONAL_METHODS, PRECONDITIONERS, MethodName, OnFailure, PreconditionerName

ROOT = Path(__file__).parents[1]
Vector: TypeAlias = NDArray[np.float64]
A = sp.csr_array(2.5 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1))
b: Vector = np.ones(4)


def f(x: np.ndarray) -> np.ndarray:
    return A @ x


def test_solves() -> None:
    result = assert_type(krylix.linear_solve(A, b, method="CG", rtol=1e-9), krylix.SolveResult[Vector])
    assert_type(result.x, Vector)
    assert_type(result.residual, Vector)
    assert_type(result.to_dict(include_x=True), dict[str, Any])
    assert_type(result.setup_time, float | None)
    assert_type(result.message, str)
    assert_type(result.method, str)
    assert_type(result.preconditioner, str | None)
    assert_type(result.iterations, int | Any)  # of a batch an array
    assert_type(result.residual_norm, float | Any)
    assert_type(result.converged, bool | Any)
    assert_type(result.status, krylix.Status | Any)
    assert result.converged and result.status.name == "CONVERGED"
    solver = assert_type(krylix.prepare(f, b), krylix.PreparedSolver)
    assert_type(solver.solve(b), krylix.SolveResult[Vector])
    assert_type(solver(b), Vector)
    assert_type(krylix.prepare(A).T, krylix.PreparedSolver)
    assert_type(solver.memory, int | None)
    assert_type(solver.explain(), str)
    assert_type(krylix.prepare(A)(b, axis=0), Vector)
    assert_type(krylix.solve_triangular(A, b, lower=True, axis=0), Vector)


def test_gaussian_fields() -> None:
    solver = krylix.prepare(A)
    found = assert_type(krylix.logdet(A), krylix.LogDeterminant)
    assert_type(solver.logdet(method="exact"), krylix.LogDeterminant)
    assert float(found.sign) == 1 and float(found.standard_error) == 0
    assert solver.sample(0, (2,), of="covariance").shape == (2, 4)
    assert solver.inverse_diagonal().shape == solver.inverse_entries([0, 1, 2, 3], 0).shape


def test_callbacks() -> None:
    def stop(state: krylix.IterationState) -> bool:
        assert_type(state, krylix.IterationState)
        return bool(state.iterations >= 2)

    result = krylix.linear_solve(A, b * np.arange(4), method="CG", callback=stop, time_limit=60)
    assert result.status == krylix.Status.STOPPED


def test_nonlinear() -> None:
    root = assert_type(krylix.solve_nonlinear(lambda x: x * x - 2.0, b), krylix.NonlinearResult)
    lowest = assert_type(krylix.minimize(lambda x: np.sum((x - 1.0) ** 2), b), krylix.MinimizeResult)
    assert_type(root.message, str)
    assert_type(lowest.method, str)
    assert bool(root.converged) and bool(lowest.converged)


def test_preconditioners(tmp_path: Path) -> None:
    M = assert_type(krylix.preconditioner(A, "jacobi"), krylix.Preconditioner)
    M.save(tmp_path / "M.npz")
    assert krylix.load_preconditioner(tmp_path / "M.npz").shape == (4, 4)
    assert assert_type(krylix.rigid_motions(np.eye(3)), np.ndarray).shape == (6, 3, 3)


def test_matrices() -> None:
    matrix, offset = krylix.matrix_from_function(f, b)
    assert isinstance(matrix, krylix.SparseMatrix)
    assert not np.any(offset)
    assert_type(matrix.T.nnz, int)
    assert_type(matrix.explain(), str)
    assert_type(matrix.to_scipy(), sp.csr_array)
    assert_type(matrix.toarray(), np.ndarray)
    assert_type(matrix.is_hermitian(), bool)
    assert_type(matrix.is_positive_definite(), bool | None)
    assert_type(krylix.as_operator(A).shape, tuple[int, int])
    with pytest.raises(krylix.UnsupportedOperation, match="NumPy has no derivatives"):
        assert_type(krylix.jacobian_matrix(f, b).nnz, int)


def test_libraries() -> None:
    assert_type(krylix.choose_backend(b), krylix.backends.Backend)
    assert_type(krylix.use("numpy"), krylix.backends.Backend)
    assert assert_type(krylix.default_backend(), krylix.backends.Backend).name == "numpy"
    assert krylix.convert([1.0], "numpy").shape == (1,)
    assert_type(krylix.choose_backend(b, prefer_default=True), krylix.backends.Backend)
    assert assert_type(krylix.context_backend(), krylix.backends.Backend | None) is None
    backend = assert_type(krylix.register_backend(krylix.choose_backend("numpy")), krylix.backends.Backend)
    assert assert_type(backend.supports("sin"), bool)


def test_profiles() -> None:
    with krylix.profile() as prof:
        assert_type(prof, Profile)
        krylix.linear_solve(A, b)
        assert assert_type(krylix.get_current_profile(), Profile | None) is prof
    assert_type(prof.duration, float)
    assert_type(prof.report(), str)
    assert_type(prof.events, list[ProfileEvent])
    assert_type(krylix.profile_function(f, (b,)), Profile)


def test_settings() -> None:
    with krylix.precision(64), krylix.on_failure("raise"), krylix.setup_cache(False):
        assert_type(krylix.get_on_failure(), OnFailure)
        bits = assert_type(krylix.get_precision(), int | None)
    krylix.set_global_precision(krylix.get_precision())
    krylix.set_global_on_failure(krylix.get_on_failure())
    krylix.set_global_setup_cache(True)
    assert_type(krylix.clear_setup_cache, Callable[[], None])()
    assert bits == 64


def test_failures() -> None:
    failures: list[type[Exception]] = [
        krylix.ConvergenceError, krylix.NotConverged, krylix.Diverged, krylix.OtherMemberFailed, krylix.NonlinearError,
        krylix.UnsupportedOperation, krylix.NoBackendFound, krylix.SingularMatrixWarning, krylix.GatherWarning,
    ]  # fmt: skip
    assert all(issubclass(failure, Exception) for failure in failures)
    with pytest.raises(krylix.NotConverged) as caught:
        krylix.linear_solve(f, b, method="CG", max_iter=1, rtol=1e-12)
    failure = caught.value
    assert isinstance(failure, krylix.NotConverged)
    assert assert_type(failure.result, krylix.SolveResult[Any]).status == krylix.Status.MAX_ITER
    assert pickle.loads(pickle.dumps(failure)).result.iterations == 1


def test_names_of_methods_and_preconditioners() -> None:
    """What editors complete is what there is; any other string is taken, too."""
    assert get_args(MethodName) == ("auto", *METHODS, *OPTIONAL_METHODS)
    assert get_args(PreconditionerName) == ("auto", *PRECONDITIONERS)
    method: MethodName = "biCG-stab(2)"
    assert_type(krylix.linear_solve(A, b, method=method, preconditioner="jacobi"), krylix.SolveResult[Vector])
    assert krylix.linear_solve(A, b, method="GMRES(3)", preconditioner="ilu").converged
    with pytest.raises(ValueError, match="on_failure must be one of"):
        krylix.linear_solve(A, b, on_failure="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_every_public_name_is_here() -> None:
    text: str = Path(__file__).read_text(encoding="utf-8")
    namespaces: Any = {"solvers", "sparse"}
    assert [name for name in krylix.__all__ if f"krylix.{name}" not in text and name not in namespaces] == []


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_the_code_of_the_readme_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    files = [tmp_path / f"block{i}.py" for i in range(len(blocks))]
    for file, code in zip(files, blocks, strict=True):
        file.write_text(code)
    options = ("--strict", "--config-file=", "--follow-imports=silent", "--ignore-missing-imports")
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, files)], cwd=tmp_path, env=environment, capture_output=True,
        text=True,
    )  # fmt: skip
    assert len(files) > 1 and run.returncode == 0, run.stdout + run.stderr
