"""What a profile says of solves: each one with its outcome, and every product that it made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import linear_solve, matrix_from_function, preconditioner, prepare, profile, profile_function
from krylix.backends import get_backend
from krylix.backends.profile.recording import Profile, ProfileEvent

N = 40
A = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.2], offsets=[-1, 0, 1], shape=(N, N)))
S = sp.csr_array(A + A.T)
b = np.random.default_rng(0).normal(size=N)


def inside(event: ProfileEvent, *kinds: str) -> bool:
    return event.parent is not None and (event.parent.kind in kinds or inside(event.parent, *kinds))


def of_kind(prof: Profile, kind: str) -> list[ProfileEvent]:
    return [event for event in prof.events if event.kind == kind]


@pytest.mark.parametrize(
    ("method", "M"),
    [("CG", None), ("CG", "jacobi"), ("MINRES", None), ("biCG-stab(2)", "ilu"), ("GMRES", "ssor"), ("IDR(2)", None)],
)
def test_every_product_is_an_event(method: str, M: Any) -> None:
    plain = linear_solve(S, b, method=method, preconditioner=M)
    krylix.clear_setup_cache()
    with profile() as prof:
        result = linear_solve(S, b, method=method, preconditioner=M)
    assert np.array_equal(plain.x, result.x) and plain.iterations == result.iterations
    (solve,) = of_kind(prof, "solve")
    assert solve.facts["iterations"] == result.iterations and solve.facts["method"] == result.method
    assert solve.facts["residual_norm"] == result.residual_norm and solve.facts["converged"] is True
    assert solve.facts.get("preconditioner") == M
    products = [event for event in of_kind(prof, "product") if not inside(event, "preconditioner", "set-up")]
    assert len(products) == result.function_evaluations
    applied, made = of_kind(prof, "preconditioner"), [e.name for e in of_kind(prof, "set-up") if "precond" in e.name]
    assert {event.name for event in applied} == ({M} if M else set())
    assert made == ([f"preconditioner {M}"] if M else [])
    assert len(applied) >= (result.iterations if M else 0)


@pytest.mark.parametrize("backend", ["numpy", "torch", "tensorflow"])
def test_a_function_of_the_user(backend: str) -> None:
    bk = get_backend(backend)
    right, calls = bk.asarray(b), []

    def f(x: Any) -> Any:
        calls.append(1)
        return 3 * x - bk.flip(x, (len(x.shape) - 1,))

    with profile() as prof:
        result = linear_solve(f, right, method="CG")
    assert bk.to_numpy(result.converged)
    assert len(calls) == len([event for event in of_kind(prof, "user") if event.name == "f"])
    assert {event.lines[-1].function for event in prof.events if event.name == "flip"} == {"f"}
    assert {event.library for event in of_kind(prof, "user")} == {bk.name}


def test_parts_of_a_prepared_solve() -> None:
    with profile() as prof:
        solver = prepare(S, b, method="scipy-direct")
        solver.solve(b), solver.solve(2 * b)
        preconditioner(S, "ic") @ b
        matrix_from_function(lambda x: 2 * x, b)
    top = [(event.name, event.kind) for event in prof.events if event.parent is None and event.kind != "operation"]
    assert top == [
        ("prepare", "set-up"), ("PreparedSolver.solve", "solve"), ("PreparedSolver.solve", "solve"),
        ("preconditioner ic", "set-up"), ("ic", "preconditioner"), ("<lambda>", "trace"),
    ]  # fmt: skip
    factors = [event for event in of_kind(prof, "set-up") if event.name == "scipy-direct: factors"]
    assert [event.parent.name for event in factors if event.parent] == ["prepare"]
    assert prof.events[0].facts["method"] == "scipy-direct"
    assert of_kind(prof, "trace")[0].facts["matrix"].startswith("<")


def test_stages_of_a_solve() -> None:
    with krylix.setup_cache(False), profile() as prof:
        linear_solve(S, b, preconditioner="jacobi")
    solve = prof.events[0]
    stages = [(e.kind, e.name) for e in prof.events if e.parent is solve and e.kind not in ("operation", "product")]
    assert stages == [
        ("set-up", "read"), ("set-up", "choose"), ("set-up", "preconditioner jacobi"), ("run", "CG"),
        ("judge", "raise"),
    ]  # fmt: skip
    choice = next(event for event in prof.events if event.name == "choose")
    assert choice.facts["method"] == "CG"


def test_a_small_system_without_parts() -> None:
    with profile() as prof:
        linear_solve(np.diag([1.0, 2.0]), np.ones(2))
    assert of_kind(prof, "solve") == prof.events[:1] and len(prof.events) < 10
    assert prof.events[0].facts["method"] == "direct"


def test_nonlinear_equations_and_minima() -> None:
    def f(u: Any) -> Any:
        return u**3 - b

    with pytest.raises(krylix.NotConverged), profile() as prof:
        best = krylix.minimize(lambda u: ((u - 1) ** 2).sum(), np.zeros(2))
        krylix.solve_nonlinear(f, 1 + 0 * b, max_iter=1)
    solves = of_kind(prof, "solve")
    assert [event.name for event in solves] == ["minimize", "solve_nonlinear", "linear_solve"]
    assert solves[0].facts["iterations"] == best.iterations and solves[0].facts["gradient_norm"] == best.gradient_norm
    assert solves[1].facts["iterations"] == 1 and solves[1].facts["error"] == "NotConverged"
    assert solves[2].parent is not None and inside(solves[2], "solve")


def test_batches_and_failures() -> None:
    rows = np.array([b, 1e3 * b, 0 * b])
    with profile() as prof:
        result = linear_solve(S, rows, method="CG")
        with pytest.raises(krylix.NotConverged):
            linear_solve(S, b, method="CG", max_iter=2)
        with pytest.raises(ValueError, match="No method"):
            linear_solve(S, b, method="DG")
    good, failed, refused = (event.facts for event in of_kind(prof, "solve"))
    assert good["systems"] == 3 and good["iterations"] == np.max(result.iterations)
    assert (failed["iterations"], failed["converged"], failed["error"]) == (2, False, "NotConverged")
    assert "iterations" not in refused and refused["error"] == "ValueError"


def test_a_report_of_solves() -> None:
    prof = profile_function(linear_solve, (S, b), {"method": "CG"}, call_count=2)
    assert not prof.notes  # the set-up that a second call keeps is there
    (row,) = [line for line in prof.report().splitlines() if " linear_solve method=" in line]
    steps = [event.facts["iterations"] for event in of_kind(prof, "solve")]
    assert f"iterations={sum(steps)}" in row and "converged=True" in row


def counted(call: Callable[[], Any]) -> int:
    calls = 0

    def hook(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(hook)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def test_nothing_is_paid_before_and_after() -> None:
    solver = prepare(S, b, method="CG")
    solver.solve(b)
    before = counted(lambda: solver.solve(b))
    with profile():
        during = counted(lambda: solver.solve(b))
    assert counted(lambda: solver.solve(b)) == before < during


@pytest.mark.needs("jax")
def test_compiled_solves() -> None:
    import jax
    import jax.numpy as jnp

    right = jnp.asarray(b)
    with profile() as prof:
        jax.jit(lambda b: linear_solve(lambda x: 3 * x, b, method="CG", on_failure="status").x)(right)
    (solve,) = of_kind(prof, "solve")
    assert solve.traced and solve.facts["method"] == "CG" and "iterations" not in solve.facts
    assert {event.traced for event in of_kind(prof, "product")} == {True}
    assert all(event.traced for event in prof.events if event.library == "jax" and event.kind == "operation")
