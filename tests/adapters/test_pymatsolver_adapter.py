"""`krylix.adapters.pymatsolver`: the interface of pymatsolver, compared with its own solver by SuperLU."""

import numpy as np
import pytest
import scipy.sparse as sp

from frameworks import lazy

pymatsolver = lazy("pymatsolver")

import krylix  # noqa: E402
from krylix.adapters.pymatsolver import KrylixSolver  # noqa: E402

N = 30
RNG = np.random.default_rng(0)


def matrix(kind):
    A = sp.diags_array([-1.0, 3.0, -0.5], offsets=[-1, 0, 1], shape=(N, N)).tocsr()
    if kind == "symmetric":
        return (A + A.T).tocsr()
    return (A + 1j * sp.eye_array(N)).tocsr() if kind == "complex" else A.toarray() if kind == "dense" else A


@pytest.mark.parametrize("kind", ["unsymmetric", "symmetric", "complex", "dense"])
@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 4), (N, N), (2, N, 3)])
@pytest.mark.parametrize("dtype", [float, complex])
def test_right_hand_sides(kind, shape, dtype):
    A, B = matrix(kind), RNG.normal(size=shape).astype(dtype) * (1 if dtype is float else 1 + 0.5j)
    Ainv, full = KrylixSolver(A, rtol=1e-12), matrix(kind) if kind == "dense" else matrix(kind).toarray()
    columns = B if len(shape) > 1 else B[:, None]
    expected = np.linalg.solve(full, columns).reshape(shape)
    np.testing.assert_allclose(Ainv * B, expected, atol=1e-9)
    np.testing.assert_allclose(Ainv @ B, expected, atol=1e-9)
    np.testing.assert_allclose(Ainv.T * B, np.linalg.solve(full.T, columns).reshape(shape), atol=1e-9)
    np.testing.assert_allclose(Ainv.conj() * B, np.linalg.solve(full.conj(), columns).reshape(shape), atol=1e-9)
    if len(shape) == 1:
        np.testing.assert_allclose(B @ Ainv, np.linalg.solve(full.T, B), atol=1e-9)


def test_as_pymatsolver():
    A, b = matrix("unsymmetric"), RNG.normal(size=N)
    np.testing.assert_allclose(KrylixSolver(A) * b, pymatsolver.SolverLU(A.tocsc()) * b)


def test_set_up_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "krylix.adapters.pymatsolver.prepare", lambda *args, **kw: calls.append(1) or krylix.prepare(*args, **kw)
    )
    Ainv = KrylixSolver(matrix("symmetric"), method="CG", preconditioner="ic")
    for _ in range(3):
        Ainv * RNG.normal(size=(N, 2))
    assert calls == [1]


def test_settings_reach_the_transpose_and_are_checked():
    Ainv = KrylixSolver(matrix("unsymmetric"), method="CG", check_accuracy=True)
    assert Ainv.check_accuracy and Ainv.T.check_accuracy
    for solver in (Ainv, Ainv.T):
        with pytest.raises(ValueError, match="symmetric"):
            solver * np.ones(N)
    with pytest.raises(krylix.NotConverged):
        KrylixSolver(matrix("symmetric"), method="CG", preconditioner=None, max_iter=2) * RNG.normal(size=N)
    with pytest.raises(TypeError, match="ordering"):
        KrylixSolver(matrix("symmetric"), ordering="amd") * np.ones(N)
    with pytest.raises(ValueError, match="square"):
        KrylixSolver(np.ones((3, 2)))
