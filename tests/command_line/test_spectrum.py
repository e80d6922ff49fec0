"""`krylix inspect --spectrum`, against LAPACK."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from command_runs import Run, refused
from gaussian_matrices import definite, grid_laplacian, saddle_point, scattered

CASES = {
    "definite": grid_laplacian(9, 8),
    "large": grid_laplacian(30, 27),
    "indefinite": saddle_point(),
    "not symmetric": scattered(50),
    "large, not symmetric": sp.csr_array(grid_laplacian(26, 26) + scattered(676, 0.002)),
    "Hermitian": definite(30, complex_=True),
}


@pytest.mark.parametrize("case", CASES)
def test_against_lapack(case: str, run: Callable[..., Run], tmp_path: Path) -> None:
    A, path = CASES[case], tmp_path / "A.mtx"
    scipy.io.mmwrite(path, A)
    result = run("inspect", str(path), "--spectrum", "--json")
    assert result.code == 0, result
    found = json.loads(result.out)["spectrum"]
    hermitian = "symmetric" not in case
    assert found["kind"] == ("eigenvalues" if hermitian else "singular values")
    dense = A.toarray()
    values = np.linalg.eigvalsh(dense) if hermitian else np.sort(np.linalg.svd(dense, compute_uv=False))
    np.testing.assert_allclose([found["values"][0], found["values"][-1]], values[[0, -1]], rtol=1e-6)
    np.testing.assert_allclose(found["condition"], np.linalg.cond(dense), rtol=1e-6)
    assert found["definite"] == (bool(np.all(values > 0)) if hermitian else None)


def test_words_and_picture(run: Callable[..., Run], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "A.mtx", tmp_path / "A.png"
    scipy.io.mmwrite(path, sp.diags_array(np.arange(1.0, 101)))
    result = run("inspect", str(path), "--spectrum", "--plot", str(picture))
    assert result.code == 0 and picture.stat().st_size > 1000, result
    assert result.line("eigenvalues") == "1 to 100"
    assert result.line("condition") == "100 in the 2-norm"
    assert result.line("iterations") == "of CG without a preconditioner at most about 119 to 1e-10"
    scipy.io.mmwrite(path, saddle_point())
    assert "of MINRES" in run("inspect", str(path), "--spectrum").line("iterations")


def test_singular_and_refused(run: Callable[..., Run], tmp_path: Path) -> None:
    path = tmp_path / "A.mtx"
    scipy.io.mmwrite(path, sp.coo_array(np.array([[1.0, -1.0], [-1.0, 1.0]])))
    result = run("inspect", str(path), "--spectrum")
    assert "singular: that of the rest" in result.line("condition")
    scipy.io.mmwrite(path, sp.coo_array(np.ones((3, 2))))
    refused(run("inspect", str(path), "--spectrum"), "--spectrum: got a matrix of shape (3, 2)")
