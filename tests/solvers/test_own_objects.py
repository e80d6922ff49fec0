"""Methods and preconditioners of other packages, passed as objects: they solve as ours do, and change no registry."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import krylix
from krylix import as_operator, linear_solve, prepare
from krylix.__main__ import main
from krylix.solvers import CG, METHODS, PRECONDITIONERS, MixedPrecision, Preconditioner, find_method
from krylix.solvers.preconditioners import DiagonalOperator, of_operator

A = np.diag(np.arange(2.0, 12.0)) - np.eye(10, k=1) - np.eye(10, k=-1)
B = np.cos(np.arange(10))


@dataclass(frozen=True)
class Theirs(CG):
    """Their own."""

    @property
    def name(self) -> str:
        return "their-method"


@of_operator()
def their_kind(own: Any, target: Any, factor: float = 1.0) -> Preconditioner:
    values = own.bk.reshape(factor / own.bk.asarray(own.diagonal()), (1, -1))
    return Preconditioner(DiagonalOperator(own.bk, values), "their-kind", hermitian=True, memory=own.shape[0])


def test_objects() -> None:
    result = linear_solve(A, B, method=Theirs(), preconditioner=their_kind(as_operator(A)))
    assert result.converged and result.method == "their-method" and result.preconditioner == "their-kind"
    np.testing.assert_allclose(result.x, np.linalg.solve(A, B), rtol=1e-8)
    for _ in range(3):  # what is kept for a repeated matrix is none of theirs
        assert linear_solve(A, B, method=Theirs()).iterations == linear_solve(A, B, method="CG").iterations
    assert prepare(A, B, method=MixedPrecision(Theirs()), preconditioner=their_kind(as_operator(A))).solve(B).converged
    np.testing.assert_allclose(their_kind(as_operator(A), factor=2.0) @ B, 2 * B / A.diagonal())
    assert "their-method" not in METHODS and "their-kind" not in PRECONDITIONERS
    with pytest.raises(ValueError, match="No method is called 'their-method'"):
        find_method("their-method")


@pytest.fixture
def entered() -> Iterator[None]:
    METHODS["their-method"], PRECONDITIONERS["their-kind"] = Theirs(), their_kind
    yield
    del METHODS["their-method"], PRECONDITIONERS["their-kind"]


@pytest.mark.usefixtures("entered")
def test_names_that_a_program_has_entered(capsys: pytest.CaptureFixture[str]) -> None:
    result = linear_solve(A, B, method="their-method", preconditioner="their_kind")
    assert result.converged and result.method == "their-method" and result.preconditioner == "their-kind"
    np.testing.assert_allclose(krylix.preconditioner(A, "their-kind", factor=2.0) @ B, 2 * B / A.diagonal())
    with pytest.raises(ValueError, match=r"their-kind has no setting sweeps; it has factor"):
        krylix.preconditioner(A, "their-kind", sweeps=2)
    with pytest.raises(ValueError, match=r"cluster, .*their-kind"):
        krylix.preconditioner(A, "unheard-of")
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("their-method ") and line.endswith("Their own") for line in lines)
    assert "their-kind" in lines[-1]


def test_a_kind_that_fails_says_so_itself() -> None:
    def refusing(own: Any) -> Preconditioner:
        raise ValueError("only for matrices of five rows")

    with pytest.raises(ValueError, match="only for matrices of five rows"):
        linear_solve(A, B, method="CG", preconditioner=of_operator()(lambda own, target: refusing(own))(as_operator(A)))
