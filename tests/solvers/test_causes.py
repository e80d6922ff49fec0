"""A failed solve names its cause, and gives no advice that was followed already."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product as combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import METHOD_NAMES, in_turn
from frameworks import torch
from krylix import ConvergenceError, Status, linear_solve, prepare
from krylix.solvers import METHODS
from krylix.solvers.results.messages import Failure, is_least_squares
from modes import array, product, solve, to_numpy

N = 30
RANDOM = np.random.default_rng(0).standard_normal((N, N))
GENERAL = RANDOM + 8 * np.eye(N)
DEFINITE = RANDOM @ RANDOM.T + 3 * np.eye(N)
INDEFINITE = np.diag(np.r_[np.ones(20), -np.ones(10)]) + 0.01 * DEFINITE
B = np.random.default_rng(1).standard_normal(N)
ALL = ("numpy", "jax", "jax-jit", "torch", "tf", "tf-function")
EAGERLY = ("numpy", "jax", "torch", "tf")


def chain(n: int = 400, low: float = -1.0, diagonal: float = 2.0, high: float = -1.0) -> sp.csr_array:
    return sp.csr_array(sp.diags_array([low, diagonal, high], offsets=[-1, 0, 1], shape=(n, n)))


def without(matrix: Any, rows: Any = (), columns: Any = ()) -> sp.csr_array:
    kept = [np.ones(matrix.shape[0]) for _ in range(2)]
    kept[0][list(rows)], kept[1][list(columns)] = 0, 0
    found = sp.csr_array(sp.diags_array(kept[0]) @ matrix @ sp.diags_array(kept[1]))
    found.eliminate_zeros()
    return found


def with_entry(array: np.ndarray, place: Any, value: float) -> np.ndarray:
    changed = np.array(array, float)
    changed[place] = value
    return changed


def neumann() -> sp.csr_array:
    matrix = chain(40).tolil()
    matrix[0, 0] = matrix[-1, -1] = 1
    return matrix.tocsr()


class Function:
    """A matrix as a function in the library of the mode."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def of(self, mode: str) -> Callable[[Any], Any]:
        return product(mode, array(mode, self.matrix))


@dataclass(frozen=True)
class Case:
    """A system that is not solved, and what is said about it.

    Attributes:
        names: words that the message must have.
        never: words that it must not have.
        compiled: likewise in a compiled function that knows the matrix; None: as eagerly; (): nothing of it is known.
    """

    method: str
    A: Any
    b: np.ndarray
    names: tuple[str, ...]
    never: tuple[str, ...] = ()
    compiled: tuple[str, ...] | None = ()
    settings: dict[str, Any] = field(default_factory=dict)


UNITS = np.linalg.qr(RANDOM)[0] * np.logspace(0, 4, N) @ np.linalg.qr(RANDOM.T)[0]
UNSYMMETRIC = spl.LinearOperator((N, N), matvec=spl.splu(sp.csc_array(GENERAL)).solve, dtype=float)
FEW: dict[str, Any] = {"max_iter": 20}
AS_IT_STANDS: dict[str, Any] = {"nullspace": None}
CASES = {
    "CG, not symmetric": Case("CG", Function(GENERAL), B, ("A is not symmetric", "biCG-stab(2)"), ("raise max_iter",)),
    "CG, indefinite": Case(
        "CG", INDEFINITE, B, ("A is indefinite", "MINRES"), ("raise max_iter",), ("A is indefinite",), {"max_iter": 5}
    ),
    "CG, indefinite function": Case("CG", Function(INDEFINITE), B, ("A is indefinite",), settings={"max_iter": 5}),
    "CG, M not symmetric": Case(
        "CG", DEFINITE, B, ("the preconditioner is not symmetric",), ("give a preconditioner", "raise max_iter"),
        ("the preconditioner is not symmetric",),
        {**FEW, "preconditioner": UNSYMMETRIC},
    ),
    "MINRES, M indefinite": Case(
        "MINRES", DEFINITE, B, ("the preconditioner is not positive definite",), ("give a preconditioner",),
        ("the preconditioner is not positive definite",),
        {**FEW, "preconditioner": sp.diags_array(np.r_[np.ones(15), -np.ones(15)])},
    ),
    "MINRES, negative definite": Case(
        "MINRES", -DEFINITE, B, ("the preconditioner is not positive definite", "solve -A x = -b"), (),
        ("solve -A x = -b",), {**FEW, "preconditioner": "jacobi"},
    ),
    "NaN in b": Case(
        "GMRES", DEFINITE, with_entry(B, 3, np.nan), ("b is not finite: nan at (3,)",), ("direct",),
        ("b is not finite",),
    ),
    "infinity in b of a batch": Case(
        "CG", DEFINITE, with_entry(np.ones((3, N)), (1, 4), np.inf),
        ("1 of 3 systems", "system 1", "b is not finite: inf at (1, 4)"), (), ("b is not finite",),
    ),
    "NaN from a function": Case(
        "biCG-stab(2)", Function(with_entry(DEFINITE, (7, 2), np.nan)), B, ("A x is not finite", "at (7,)"),
    ),
    "an empty row": Case(
        "GMRES", without(chain(), rows=[17]), np.ones(400), ("row 17 is zero, while b is 1 in row 17",),
        ("raise max_iter", "column"), ("row 17 is zero",), FEW,
    ),
    "an empty column": Case(
        "scipy-direct", without(chain(), columns=[5, 8]), np.ones(400), ("2 columns are zero, the first is 5",),
        ("direct'", "CG", "MINRES"), ("2 columns are zero",),
    ),
    "an empty row and column": Case(
        "scipy-direct", without(chain(), rows=[9], columns=[9]), np.ones(400),
        ("row and column 9 are zero, while b is",), ("direct'",), ("row and column 9 are zero",), AS_IT_STANDS,
    ),
    "an empty row of a function": Case("CG", Function(without(chain(N), [4], [4]).toarray()), B, ("row 4 is zero",)),
    "singular to working precision": Case(
        "scipy-direct", chain(400, -1.0, 2.1, -1.2), np.ones(400),
        ("A is singular to working precision", "condition number is about", "rounding them leaves a residual norm"),
        ("CG", "MINRES", "use double", "direct'"), ("A is singular to working precision",),
    ),
    "no solution, a function": Case(
        "CG", Function(neumann().toarray()), np.arange(40.0),
        ("maps the constant vector to zero", "mean of b is 19.5"), settings=AS_IT_STANDS,
    ),
    "single precision inside": Case(
        "mixed-CG", UNITS @ DEFINITE @ UNITS.T, B, ("computes in single precision inside", "use CG"),
        ("use double", "mixed-CG"), ("computes in single precision inside",),
    ),
    "too few iterations": Case(
        "CG", DEFINITE, B, ("the residual norm went from", "raise max_iter"), ("is not symmetric", "use double"),
        ("raise max_iter",), FEW,
    ),
    "too few iterations, preconditioned": Case(
        "GMRES", GENERAL, B, ("raise max_iter",), ("give a preconditioner",), ("raise max_iter",),
        {"max_iter": 4, "preconditioner": "jacobi"},
    ),
    "a tolerance out of reach": Case(
        "scipy-direct", chain(), np.ones(400), ("accuracy that float64 allows", "use a larger rtol"),
        ("use double", "CG"), ("accuracy that float64 allows",), {"rtol": 1e-17},
    ),
    "least squares, too few iterations": Case(
        "LSMR", RANDOM[:, :10] * np.logspace(0, 3, 10), B, ("the normal residual norm went from", "columns of A"),
        ("LSMR'", "direct"), ("raise max_iter",), {"max_iter": 4},
    ),
    "least squares, a tolerance out of reach": Case(
        "LSMR", RANDOM[:, :10] * np.logspace(0, 6, 10), B, ("larger rtol",), ("LSMR'", "direct", "use double"),
        (), {"rtol": 1e-30, "max_iter": 4000},
    ),
}  # fmt: skip


def message_of(mode: str, case: Case, **more: Any) -> str:
    A = case.A.of(mode) if isinstance(case.A, Function) else case.A
    with pytest.raises(Exception) as caught:
        solve(mode, A, case.b, method=case.method, **case.settings, **more)
    if mode in EAGERLY:
        assert isinstance(caught.value, ConvergenceError) and caught.value.result.message == str(caught.value)
    return str(caught.value)


@pytest.mark.compiled_by_default()
@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("name", CASES)
def test_a_failure_names_its_cause(name: str, mode: str) -> None:
    case = CASES[name]
    known = not isinstance(case.A, Function)
    if mode not in EAGERLY and not (known and case.compiled):
        pytest.skip("nothing of this is known in a compiled function")
    message = message_of(mode, case)
    for words in case.names if mode in EAGERLY else case.compiled or ():
        assert words in message, message
    assert not [words for words in case.never if words in message.partition("To do:")[2]], message


@pytest.mark.parametrize(
    ("name", "mode"), [("CG, indefinite", "jax-jit"), ("CG, not symmetric", "tf"), ("CG, not symmetric", "jax")]
)
def test_a_failure_names_its_cause_in_other_libraries(name: str, mode: str) -> None:
    test_a_failure_names_its_cause(name, mode)


AFFINE: dict[str, Callable[[str], Any]] = {
    "function": lambda mode: lambda r: 0.1 * r + 1,
    "LinearOperator": lambda mode: spl.LinearOperator((N, N), matvec=lambda r: 0.1 * r + 1, dtype=float),
    "module": lambda mode: _layer(),
}


def _layer() -> Any:
    layer = torch.nn.Linear(N, N, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(0.1 * torch.eye(N))
        layer.bias.fill_(1)
    return layer


AFFINE_CELLS = in_turn(
    [(m, k) for m in EAGERLY for k in AFFINE if m == "torch" or k != "module"], ["CG", "GMRES", "biCG-stab(2)"]
)


@pytest.mark.parametrize(
    ("mode", "kind", "method"),
    [pytest.param(*cell.values[0], cell.values[1], marks=cell.marks) for cell in AFFINE_CELLS],
)
def test_affine_preconditioners(mode: str, kind: str, method: str) -> None:
    """A constant that M adds: one evaluation tells, of the system that failed; and none of a linear one."""
    M, b = AFFINE[kind](mode), array(mode, B)
    with pytest.raises(ConvergenceError, match=r"Cause: M is not linear: M\(0\) != 0, but of norm 5\.5e\+00") as caught:
        linear_solve(array(mode, DEFINITE), b, method=method, preconditioner=M, max_iter=20)
    assert "bias=False" in str(caught.value)
    with pytest.raises(ConvergenceError) as caught:
        linear_solve(array(mode, DEFINITE), b, method=method, preconditioner=lambda r: 0.1 * r, max_iter=5)
    assert "M is not linear" not in str(caught.value)


@pytest.mark.parametrize("policy", ["warn", "status"])
@pytest.mark.parametrize("name", ["CG, not symmetric", "NaN in b", "an empty row", "singular to working precision"])
def test_every_policy_names_the_cause(name: str, policy: str) -> None:
    case = CASES[name]
    A = case.A.of("numpy") if isinstance(case.A, Function) else case.A
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = linear_solve(A, case.b, method=case.method, on_failure=policy, **case.settings)
        message = result.message
    assert all(words in message for words in case.names), message
    assert policy == "status" or message in [str(w.message) for w in caught]


def test_a_matrix_that_was_changed_since_is_not_blamed() -> None:
    matrix = INDEFINITE.copy()
    result = linear_solve(lambda x: x @ matrix, B, method="CG", max_iter=5, on_failure="status")
    matrix[:] = GENERAL
    assert "symmetric:" not in result.message and "Cause" not in result.message


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_infinite_entries_are_named_where_failures_do_not_raise(kind: str) -> None:
    matrix = with_entry(DEFINITE, (3, 4), np.inf)
    A = matrix if kind == "dense" else sp.csr_array(matrix)
    result = linear_solve(A, B, method="GMRES", on_failure="status")
    assert "inf at (3, 4)" in result.message
    stack = np.stack([DEFINITE, matrix, DEFINITE])
    with pytest.raises(ConvergenceError, match=r"of system 1 is not finite: inf at \(3, 4\)"):
        linear_solve(stack, np.ones((3, N)), method="GMRES")


def test_places_in_containers_and_grids() -> None:
    b = {"u": np.ones((2, 3)), "v": with_entry(np.ones(4), 2, np.nan)}
    with pytest.raises(ConvergenceError, match=r"nan at \(2,\) of array 1"):
        linear_solve(lambda t: {"u": 2 * t["u"], "v": 3 * t["v"]}, b, method="CG")
    with pytest.raises(ConvergenceError, match=r"x0 is not finite: inf at \(1, 2\)"):
        linear_solve(lambda u: 2 * u, np.ones((2, 3)), x0=with_entry(np.ones((2, 3)), (1, 2), np.inf), method="CG")


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_a_backward_solve_names_itself_and_its_cause(mode: str) -> None:
    _, vectors = np.linalg.eigh(DEFINITE)
    b = array(mode, np.ascontiguousarray(vectors[:, 0]))  # solved in one step
    if mode == "torch":
        b.requires_grad_(True)
    result = linear_solve(DEFINITE, b, method="CG", max_iter=3)
    cotangent = with_entry(B, 3, np.nan)
    with pytest.raises(ConvergenceError, match=r"the backward solve of CG .* Cause: b is not finite: nan at \(3,\)"):
        result.vjp(cotangent) if mode == "numpy" else (result.x * array(mode, cotangent)).sum().backward()


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_looking_never_raises_or_goes_on(mode: str) -> None:
    """A function that fails once the solve is over, and one whose products are counted."""
    times = product(mode, array(mode, INDEFINITE))

    def counted(calls: list[int], most: float = np.inf) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            calls.append(1)
            if len(calls) > most:
                raise KeyError("no more")
            return times(x)

        return function

    looked, alone, stopped = [], [], []
    with pytest.raises(ConvergenceError, match="A is indefinite"):
        linear_solve(counted(looked), array(mode, B), method="CG", max_iter=5)
    result = linear_solve(counted(alone), array(mode, B), method="CG", max_iter=5, on_failure="status")
    assert to_numpy(result.status) == Status.MAX_ITER
    assert len(looked) - len(alone) <= 5 + 6
    with pytest.raises(ConvergenceError, match="reached the limit of iterations"):
        linear_solve(counted(stopped, len(alone)), array(mode, B), method="CG", max_iter=5)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("method", ["CG", "MINRES", "scipy-CG", "block-CG"])
@pytest.mark.parametrize("kind", ["factors", "matrix", "sparse matrix"])
def test_preconditioners_that_are_seen_not_to_be_symmetric(kind: str, method: str, mode: str) -> None:
    A = sp.csc_array(DEFINITE)
    incomplete = spl.spilu(A, drop_tol=0.5)
    inverse = incomplete.solve(np.eye(N))
    M = {"factors": incomplete, "matrix": array(mode, inverse), "sparse matrix": sp.csr_array(inverse)}[kind]
    for call in (linear_solve, prepare):
        with pytest.raises(ValueError, match=r"needs a symmetric preconditioner; .* differs .* Use biCG-stab\(2\)"):
            call(A, array(mode, B), method=method, preconditioner=M)
    assert linear_solve(A, array(mode, B), method="GMRES", preconditioner=M).converged
    complete = {"factors": spl.splu(A), "matrix": array(mode, np.linalg.inv(DEFINITE))}.get(kind, sp.eye_array(N))
    assert linear_solve(A, array(mode, B), method=method, preconditioner=complete).converged


def test_symmetric_factors_of_a_prepared_solver_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.csc_array(DEFINITE)
    solver = prepare(A, B, method="CG", preconditioner=spl.splu(A))
    asked: list[Any] = []
    monkeypatch.setattr("krylix.sparse.analysis.analysis.asymmetry_of_products", lambda M: asked.append(M))
    assert solver.solve(B).converged and not asked


def test_a_singular_matrix_with_a_solution_is_not_the_cause() -> None:
    """Of a solve that only needs more iterations: closed regions, and cells that are taken out."""
    b = np.cos(np.arange(40))
    cells = without(chain(), rows=[9], columns=[9])
    for A, rhs in ((neumann(), b - b.mean()), (cells, with_entry(np.ones(400), 9, 0)), (chain(), np.ones(400))):
        for method in ("CG", "GMRES"):
            with pytest.raises(ConvergenceError, match="raise max_iter") as caught:
                linear_solve(A, rhs, method=method, max_iter=8)
            said = str(caught.value).replace("The matrix is singular; x is orthogonal to the known null vectors", "")
            assert "singular" not in said and "no solution" not in said


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_advice_was_not_followed_already(method: Any) -> None:
    failures = [s for s in Status if s not in (Status.RUNNING, Status.CONVERGED, Status.CANDIDATE)]
    for kind, given, precision, looked in combinations(
        failures, (None, "jacobi"), ("float32", "float64"), (True, False)
    ):
        for name in (method.name, f"scipy-direct (after {method.name} had failed)"):
            last = METHODS["scipy-direct"] if "after" in name else method
            failure = Failure(kind, name, last, given, precision, looked)
            said = "; ".join(failure.untried(failure.advice()))
            assert said and (precision == "float32" or "double" not in said)
            assert method.name.lower() not in said.lower()
            assert not (last.factorises and ("direct" in said or "symmetric" in said)), said
            assert not (is_least_squares(last) and ("least-squares" in said or "LSMR" in said)), said
            assert "give a preconditioner" not in said or (given is None and last.takes_preconditioner)


@pytest.mark.parametrize(("method", "dtype"), in_turn(METHOD_NAMES, ["float32", "float64"]))
def test_every_method_fails_with_reasons(method: str, dtype: str) -> None:
    """A hard system and a singular one, with a preconditioner where the method takes one."""
    facts = METHODS[method]
    weights = np.logspace(0, 6, N)
    hard = (weights[:, None] * DEFINITE * weights).astype(dtype)
    empty = without(DEFINITE, rows=[3], columns=[3]).toarray().astype(dtype)
    M = {"preconditioner": "jacobi"} if facts.takes_preconditioner else {}
    dear = method in ("scipy-lGMres", "scipy-GCrotMK")  # all of their steps, thousands, run in Python
    for matrix, limit in ((hard, 2), (empty, 30 if dear else None)):
        with pytest.raises(ConvergenceError) as caught:
            linear_solve(matrix, np.ones(N, dtype), method=method, max_iter=limit, rtol=1e-30, nullspace=None, **M)
        said, to_do = str(caught.value), str(caught.value).partition("To do: ")[2]
        assert to_do and "give a preconditioner" not in (to_do if M else "")
        assert dtype == "float32" or "double" not in to_do
        assert not (facts.factorises and "direct" in to_do) and f"'{method}'" not in to_do
        assert not (is_least_squares(facts) and ("LSMR" in to_do or "least-squares" in to_do))
        assert matrix is hard or is_least_squares(facts) or "row and column 3 are zero" in said


def test_zero_rows_on_a_grid_are_named_by_their_indices() -> None:
    def A(u: np.ndarray) -> np.ndarray:
        out = 4 * u
        out[..., 1, 2] = 0
        return out

    with pytest.raises(ConvergenceError, match=r"row \(1, 2\) is zero, while b is 1 in row \(1, 2\)") as failed:
        linear_solve(A, np.ones((3, 4)), method="GMRES")
    assert "such as x itself there" in str(failed.value)
