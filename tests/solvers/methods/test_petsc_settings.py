"""The method "petsc" without PETSc: its settings, and what it says where the package is missing."""

import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import linear_solve
from krylix.backends import get_backend
from krylix.solvers import METHODS, OPTIONAL_METHODS, Petsc, find_method
from krylix.solvers.methods.petsc import system
from krylix.solvers.methods.petsc.inverse import PetscInverse

A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(9, 9)).tocsr()


def test_name_and_settings() -> None:
    assert find_method("PETSc") == Petsc() == OPTIONAL_METHODS["petsc"] and "petsc" not in METHODS
    one, other = (Petsc("gmres", options=o) for o in ({"-a": True, "b": 2}, {"b": "2", "a": "true"}))
    assert one == other and hash(one) == hash(other) and one != Petsc("gmres")


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"ksp": 3}, "ksp is a name"),
        ({"pc": ["hypre"]}, "pc is a name"),
        ({"options": 7}, "options is a dictionary"),
        ({"options": {3: 4}}, "options is a dictionary"),
        ({"block_size": 0}, "block_size"),
        ({"block_size": True}, "block_size"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], word: str) -> None:
    with pytest.raises((TypeError, ValueError), match=word):
        Petsc(**settings)


def test_what_needs_no_petsc_is_refused_first() -> None:
    with pytest.raises(ValueError, match="no multiple of block_size=2"):
        linear_solve(A, np.ones(9), method=Petsc(block_size=2))
    with pytest.raises(ValueError, match="takes no preconditioner"):
        linear_solve(A, np.ones(9), method="petsc", preconditioner="jacobi")


def test_where_it_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    system.petsc.cache_clear()
    monkeypatch.setitem(sys.modules, "petsc4py.PETSc", None)
    with pytest.raises(ImportError, match=r"apt-get install python3-petsc4py.*conda install.*krylix\[petsc\]"):
        linear_solve(A, np.ones(9), method="petsc")
    system.petsc.cache_clear()


class Inverse:
    """In place of a PetscSystem: the inverse of a dense matrix as its preconditioner."""

    def __init__(self, A: np.ndarray) -> None:
        self.A = A

    def with_numbers(self, rows: Any) -> "Inverse":
        return self

    def transposed(self) -> "Inverse":
        return Inverse(self.A.T)

    def precondition(self, r: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.A, r)


@pytest.mark.parametrize("hermitian", [True, False])
def test_every_form_of_a_complex_preconditioner(hermitian: bool) -> None:
    """A Hermitian matrix has one solver for both sides, which gets conjugated vectors for the transpose."""
    rng = np.random.default_rng(0)
    G = rng.standard_normal((9, 9)) + 1j * rng.standard_normal((9, 9))
    H = G @ G.conj().T if hermitian else G
    inverse = PetscInverse(
        bk=get_backend("numpy"), shape=H.shape, dtype=H.dtype, systems=None, rows=[None], solvers=[Inverse(H)],
        hermitian=hermitian, again=lambda: [Inverse(H)], transposed=False, conjugated=False,
    )  # fmt: skip
    r = rng.standard_normal((2, 9)) + 1j * rng.standard_normal((2, 9))
    forms = {
        "A": (inverse, H), "transpose": (inverse.transpose(), H.T), "conjugate": (inverse.conj(), H.conj()),
        "adjoint": (inverse.transpose().conj(), H.conj().T),
    }  # fmt: skip
    for name, (form, matrix) in forms.items():
        np.testing.assert_allclose(form.apply(r).T, np.linalg.solve(matrix, r.T), rtol=1e-8, err_msg=name)
