"""The benchmarks run, at sizes that measure nothing, and print numbers. No time is asserted here."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from frameworks import missing
from library import ROOT


def table(*arguments: str) -> list[list[str]]:
    """The rows that `python -m benchmarks` prints, as cells."""
    command = [sys.executable, "-m", "benchmarks", "--quick", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith("|")]
    header, rule, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert header == ["what", "krylix", "peer", "ratio", "budget", "ok?"]
    assert set("".join(rule)) == {"-"}
    return rows


SOURCE = (ROOT / "benchmarks" / "__main__.py").read_text()  # which cannot be imported: it takes the root off the path
NAMES: tuple[str, ...] = next(
    ast.literal_eval(node.value)
    for node in ast.parse(SOURCE).body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GROUPS"
)
OTHERS = tuple(f"tracing --backend {name}" for name in ("numpy", "torch", "tensorflow"))
GROUPS = [pytest.param(n, marks=pytest.mark.merge if n == "tolerance" else pytest.mark.slow) for n in (*NAMES, *OTHERS)]


@pytest.mark.parametrize("group", GROUPS)
def test_prints_numbers(group: str) -> None:
    rows = table(*group.split())
    assert rows
    for what, krylix, peer, ratio, _budget, _ok in rows:
        if not krylix:  # a peer that is not installed, or that found no solution
            assert re.search(r": (.*not installed|not finite after)", peer), (what, peer)
            continue
        assert re.fullmatch(r"-?[\d.]+ (s|ms|µs)", krylix), (what, krylix)
        assert re.fullmatch(r".+: -?[\d.]+ (s|ms|µs)", peer), (what, peer)
        assert re.fullmatch(r"-?[\d.]+|nan", ratio), (what, ratio)
    peers = " ".join(row[2] for row in rows)
    for package, name in {"jax": "jax.scipy", "torch": "out-of-place"}.items():
        assert group != "iteration" or missing(package) or f"{name}" in peers


@pytest.mark.needs("jax")
@pytest.mark.slow
def test_the_model_counts_and_extrapolates() -> None:
    command = [sys.executable, "-m", "benchmarks", "scaling", "--model", "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in run.stdout.splitlines() if "|" in line]
    counted = [row for row in rows if len(row) == 9 and row[1].endswith("³")]
    estimated = [row for row in rows if len(row) == 10 and row[1].isdigit()]
    assert {row[0] for row in counted} == {row[2] for row in estimated}
    assert all(int(row[3]) > 0 for row in counted), counted
    assert all(re.fullmatch(r"[\d.e+-]+ s", cell) for row in estimated for cell in row[4:9]), estimated
    assert all(word in run.stdout for word in ("Counted in", "Extrapolated:", "Assumed:"))


@pytest.mark.merge
def test_answers_are_compared(tmp_path: Path) -> None:
    """Those of the same code are equal; other iterations, another x and one that is missing are told."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks.answers", "--quick", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    saved, changed = tmp_path / "saved.npz", tmp_path / "changed.npz"
    assert run("--save", saved).returncode == 0
    again = run("--compare", saved)
    assert again.returncode == 0, again.stdout + again.stderr
    assert " 0 differ; x of 0 more" in again.stdout

    with np.load(saved) as file:
        parts = dict(file)
    words = json.loads(str(parts["words"]))
    steps, x, gone = "numpy | grid", "numpy | definite, dense", "numpy, prepared | grid"
    words[steps]["iterations"] = "77"
    parts[x] = parts[x] * (1 + 1e-8)
    del words[gone]
    np.savez(changed, **parts | {"words": np.array(json.dumps(words))})
    differ = run("--compare", saved, changed)
    assert differ.returncode == 1, differ.stderr
    lines = differ.stdout.splitlines()
    assert f"{gone}: only before" in lines
    assert any(line.startswith(f"{steps}: iterations ") and line.endswith(" -> '77'") for line in lines)
    assert f"{x}: x by 1.0e-08, where rtol is 1e-10" in lines
    assert " 3 differ;" in lines[-1]
    assert run("--compare", saved, changed, "--within", "1000").stdout.splitlines()[-1].count(" 2 differ;") == 1


def test_unknown_name() -> None:
    command = [sys.executable, "-m", "benchmarks", "iterations"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2
    assert f"no benchmark is called iterations; there are {', '.join(NAMES)}" in run.stderr
