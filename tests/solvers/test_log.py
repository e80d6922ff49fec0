"""What the logger "krylix" is told, and that nothing is made of it where nobody listens."""

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import NotConverged, linear_solve, prepare, setup_cache
from krylix.solvers import METHODS
from krylix.solvers.plan import Rung
from modes import array, compiled

N = 30
MATRIX = sp.csr_array(np.diag(np.linspace(1, 30, N)) + np.diag(np.cos(np.arange(N - 1)), 1))
B = np.cos(np.arange(N)) + 2


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """The lines since the last call that hold all these words."""

    def since(*words: str, level: int | None = None) -> list[str]:
        records = [r for r in caplog.records if r.name == "krylix" and level in (None, r.levelno)]
        return [r.getMessage() for r in records if all(word in r.getMessage() for word in words)]

    caplog.set_level(logging.DEBUG, "krylix")
    return since


def test_choice_and_set_up(lines: Callable[..., list[str]]) -> None:
    with setup_cache(False):
        linear_solve(MATRIX, B)
    assert len(lines("auto chose ", "; if it fails", level=logging.INFO)) <= 1 and lines("auto chose ")
    prepare(MATRIX, B, method="scipy-direct")
    assert lines("factors of scipy-direct: set up", " s", level=logging.INFO)
    linear_solve(MATRIX, B, method="GMRES", preconditioner="ilu")
    assert lines("preconditioner of GMRES: set up <ilu preconditioner", level=logging.INFO)


def test_outcomes_and_kept_set_ups(lines: Callable[..., list[str]]) -> None:
    result = linear_solve(MATRIX, B, method="GMRES")
    assert lines(level=logging.DEBUG) == [result.message]
    for _ in range(3):
        linear_solve(MATRIX, B, method="scipy-direct")
    assert lines("with the plan of an earlier solve: scipy-direct converged", level=logging.DEBUG)
    linear_solve(np.eye(4), np.ones(4))
    assert lines("direct converged in 1 iteration:")
    before = len(lines())
    prepare(MATRIX, B, method="scipy-direct").solve(B)
    assert len(lines()) == before + 2


def test_restarts(lines: Callable[..., list[str]]) -> None:
    A = np.diag(np.logspace(0, 9, N)) + np.diag(np.ones(N - 1), 1)
    linear_solve(A, B, method="IDR", rtol=1e-12, max_iter=1000, on_failure="status")
    assert lines("IDR(4): another round from the residual norm", level=logging.DEBUG)


@pytest.mark.parametrize("policy", ["raise", "warn", "status"])
def test_failures(policy: str, lines: Callable[..., list[str]]) -> None:
    try:
        with pytest.warns(RuntimeWarning) if policy == "warn" else pytest.raises(NotConverged):
            linear_solve(MATRIX, B, method="GMRES", max_iter=2, on_failure=policy)
            if policy == "status":
                raise NotConverged("")
    finally:
        assert len(lines("failed: GMRES reached the limit of iterations", level=logging.INFO)) == 1


def test_fallbacks(lines: Callable[..., list[str]]) -> None:
    solver = prepare(MATRIX, B, method="GMRES", max_iter=2)
    plan = solver._plan
    solver = replace(solver, _plan=replace(plan, rungs=(*plan.rungs, Rung(METHODS["scipy-direct"]))))
    assert solver.solve(B).converged
    assert lines("GMRES failed; trying scipy-direct", level=logging.INFO)


def test_failures_in_programs(lines: Callable[..., list[str]]) -> None:
    jax = pytest.importorskip("jax")
    run = compiled("jax-jit", lambda b: linear_solve(MATRIX, b, method="GMRES", max_iter=2, on_failure="warn").x)
    with pytest.warns(RuntimeWarning):
        jax.block_until_ready(run(array("jax", B)))
    assert lines("failed: GMRES", level=logging.INFO)


def test_nothing_is_made_where_nobody_listens(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise AssertionError

    caplog.set_level(logging.WARNING, "krylix")
    monkeypatch.setattr("krylix.solvers.results.result.describe", refuse)
    monkeypatch.setattr("krylix.solvers.judge.describe", refuse)
    for settings in ({}, {"method": "GMRES", "preconditioner": "ilu"}, {"method": "scipy-direct"}):
        assert linear_solve(MATRIX, B, **settings).converged
    linear_solve(MATRIX, B, method="GMRES", max_iter=2, on_failure="status")
    assert not [r for r in caplog.records if r.name == "krylix"]


def test_nothing_is_written_by_itself() -> None:
    program = "import numpy as np, krylix; krylix.linear_solve(np.eye(3), np.ones(3), method='CG', max_iter=0, "
    program += "on_failure='status')"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == found.stderr == ""
