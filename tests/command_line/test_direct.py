"""`krylix direct`: which libraries of sparse factors there are, and what they do with a matrix."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from command_runs import Run
from krylix.solvers.factors.sparse import PROVIDERS


def test_what_is_installed(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(PROVIDERS["rslab"]), "is_installed", lambda self: False)
    result = run("direct")
    assert result.code == 0 and result.line("SuperLU") == "installed"
    assert result.line("rslab") == "not installed: pip install rslab"
    rows = json.loads(run("direct", "--json").out)["rows"]
    assert {row["library"]: row["installed"] for row in rows}["rslab"] is False and len(rows) == len(PROVIDERS)
    assert run("direct", "--quiet").out == ""


@pytest.mark.parametrize("symmetric", [True, False])
def test_times_and_errors(symmetric: bool, run: Callable[..., Run]) -> None:
    line = sp.diags_array([-1.0, 4.0, -1.0 if symmetric else -0.5], offsets=[-1, 0, 1], shape=(60, 60))
    sp.save_npz("A.npz", sp.csr_array(line))
    rows = json.loads(run("direct", "A.npz", "--json").out)["rows"]
    for row in rows:
        if row["installed"]:
            assert row["problem"] is None and row["numbers"] > 60 and min(row["factor"], row["refactor"]) > 0
            assert max(row["backward_error"], row["transposed_error"]) < 1e-14
    text = run("direct", "A.npz").out
    assert "60 x 60" in text and all(name in text for name in PROVIDERS)


def test_matrices_without_factors(run: Callable[..., Run]) -> None:
    sp.save_npz("singular.npz", sp.csr_array(np.ones((40, 40))))
    for row in json.loads(run("direct", "singular.npz", "--json").out)["rows"]:
        assert row["problem"] if row["installed"] else row["factor"] is None
    np.save("wide.npy", np.ones((3, 4)))
    assert run("direct", "wide.npy").code == 2 and "square" in run("direct", "wide.npy").err
    np.save("nan.npy", np.full((3, 3), np.nan))
    assert run("direct", "nan.npy").code == 2 and "finite" in run("direct", "nan.npy").err
