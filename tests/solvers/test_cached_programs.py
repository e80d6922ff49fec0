"""Programs of JAX that its cache on disk keeps: a second process compiles nothing, and fails in the same words."""

import gc
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fast_compilation import FLAGS
from frameworks import lazy
from krylix import SingularMatrixWarning, linear_solve

jax = lazy("jax")
jnp = lazy("jax.numpy")
by_host = lazy("krylix.backends.jax.host_calls.by_host")

CAN_BE_KEPT = "krylix.backends.jax.host_calls.by_host.can_be_kept"
N = 8
B = np.cos(np.arange(float(N)))
SHIFT = np.arange(2.0, 2.0 + N)


def moved(u: Any, c: Any = 3.0) -> Any:
    return c * u - jnp.roll(u, 1, -1)


def solve(b: Any, c: Any = 3.0, **settings: Any) -> Any:
    return linear_solve(lambda u: moved(u, c), b, **{"method": "biCG-stab", "max_iter": 2, **settings}).x


def singular(place: int) -> np.ndarray:
    """With an empty row and column, whose number the message tells."""
    A = np.diag(np.arange(2.0, 2.0 + N))
    A[place, place] = 0
    return A


def unprojected(A: np.ndarray, b: Any) -> Any:
    return linear_solve(A, b, method="CG", nullspace=None).x


def message(function: Any, *arrays: Any) -> str:
    with pytest.raises(RuntimeError) as info:
        jax.block_until_ready(function(*arrays))
    return str(info.value)


# --- what a program holds -------------------------------------------------------------------------------------------

TRANSFORMS = {
    "one": lambda f: f,
    "mapped": lambda f: lambda b, c: jax.vmap(f, (0, None))(jnp.stack([b, b]), c),
    "gradient": lambda f: jax.grad(lambda b, c: f(b, c).sum(), (0, 1)),
    "forward": lambda f: lambda b, c: jax.jvp(f, (b, c), (b, c)),
    "twice": lambda f: jax.grad(lambda b, c: (jax.grad(lambda b: (f(b, c) ** 3).sum())(b) ** 2).sum()),
}


@pytest.mark.parametrize(
    ("policy", "transform"),
    [("raise", "one"), ("warn", "gradient"), ("raise", "mapped")]
    + [pytest.param("raise", name, marks=pytest.mark.merge) for name in ("gradient", "forward", "twice")],
)
def test_programs_hold_no_callback(policy: str, transform: str) -> None:
    assert by_host.can_be_kept()
    function = TRANSFORMS[transform](lambda b, c: solve(b, c, on_failure=policy))
    text = jax.jit(function).lower(B, SHIFT).as_text()
    assert "callback" not in text and by_host.TARGET in text


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "GMRES"},
        {"rtol": 1e-3, "history": True},
        pytest.param({"method": "direct"}, marks=pytest.mark.merge),  # which JAX factorises one operation at a time
    ],
)
def test_nor_those_of_matrices_that_are_known(settings: dict[str, Any]) -> None:
    function = jax.jit(lambda b: linear_solve(singular(1), b, **{"method": "CG", **settings}).x)
    assert "callback" not in function.lower(B).as_text()


def striped(u: Any, k: Any) -> Any:
    """Three couplings, which an iteration needs many steps for; factors do not."""
    return 3 * k * u - k * jnp.roll(u, 1) - 1.5 * k * jnp.roll(u, -9)


K = 10.0 ** np.random.default_rng(0).uniform(-3, 3, 40)


@pytest.mark.merge
@pytest.mark.parametrize("known", [True, False])
def test_nor_those_in_which_another_method_may_follow(known: bool) -> None:
    """What the host does differs by the matrix alone: its structure, and the values that are known."""

    def program(scale: float) -> Any:
        def solve(b: Any, k: Any) -> Any:
            f = lambda u: scale * striped(u, K if known else k)  # noqa: E731
            return linear_solve(f, b, max_iter=3, preconditioner="jacobi").x

        return jax.jit(solve)

    b = np.cos(np.arange(40.0))
    matrix = np.diag(3 * K) - K[:, None] * (np.roll(np.eye(40), 1, 0) + 1.5 * np.roll(np.eye(40), -9, 0))
    programs = [program(scale).lower(b, K) for scale in (1.0, 1.0, 2.0)]
    texts = [one.as_text() for one in programs]
    assert texts[0] == texts[1] != texts[2]
    assert all("callback" not in text and by_host.TARGET in text for text in texts)
    both = [one.compile() for one in programs[1:]]
    for scale, run in zip((1.0, 2.0), both, strict=True):
        np.testing.assert_allclose(scale * matrix @ run(b, K), b, atol=1e-8)


def test_with_nan_none_is_called_on_a_gpu_either() -> None:
    program = jax.jit(jax.grad(lambda b: solve(b, on_failure="nan").sum())).trace(B)
    text = program.lower(lowering_platforms=("cuda",)).as_text()
    assert "callback" not in text and by_host.TARGET not in text


def test_a_program_is_the_same_text_when_it_is_made_again() -> None:
    texts = {jax.jit(lambda b: linear_solve(singular(1), b, method="CG").x).lower(B).as_text() for _ in range(2)}
    assert len(texts) == 1


# --- what it says ---------------------------------------------------------------------------------------------------


def test_programs_that_differ_in_a_known_matrix_tell_their_own_causes() -> None:
    programs = [jax.jit(lambda b, k=k: unprojected(singular(k), b)) for k in (1, 5)]
    for _ in range(2):
        for k, program in zip((1, 5), programs, strict=True):
            assert f"A is singular: row and column {k} are zero" in message(program, B)


@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_the_same_is_said_by_a_callback(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is where XLA calls nothing by name."""

    def said() -> str:
        function = jax.jit(lambda b: solve(b, on_failure=policy))
        if policy == "raise":
            return message(function, B)
        with pytest.warns(RuntimeWarning) as caught:
            jax.block_until_ready(function(B))
        return str(caught[0].message)

    by_name = said()
    monkeypatch.setattr(CAN_BE_KEPT, lambda: False)
    by_callback = said()
    assert by_callback.endswith(by_name.removeprefix("INTERNAL: "))
    assert by_name.startswith("INTERNAL: NotConverged: biCG-stab" if policy == "raise" else "biCG-stab")


@pytest.mark.parametrize(
    "dtype", ["complex64", *(pytest.param(d, marks=pytest.mark.merge) for d in ("float32", "complex128"))]
)
def test_lanes_and_dtypes(dtype: str) -> None:
    """One lane of three fails; those that do not have called nobody."""
    b = np.stack([0 * B, B, 0 * B]).astype(dtype)
    function = jax.jit(jax.vmap(solve))
    assert "biCG-stab reached the limit of iterations after 2" in message(function, b)
    assert not np.any(function(0 * b))


def test_batches_of_other_sizes_have_handlers_of_their_own() -> None:
    """In one process, made and run in turn: each says how many of its systems failed, and which was the worst."""
    sides = {k: np.stack([0 * B] * (k - 2) + [B, 0 * B]) for k in (3, 2)}
    programs = {k: jax.jit(lambda b: solve(b, batch_ndim=1)).lower(b).compile() for k, b in sides.items()}
    for k, b in sides.items():
        assert f"in 1 of {k} systems; the worst, system {k - 2}" in message(programs[k], b)


def test_the_backward_solve_names_itself() -> None:
    start = np.linalg.solve(3 * np.eye(N) - np.roll(np.eye(N), 1, 0), B)
    loss = jax.jit(jax.grad(lambda b, w: (w * solve(b, x0=start)).sum()))
    assert "the backward solve of biCG-stab" in message(loss, B, np.arange(1.0, 1 + N))


def broken(*_: Any) -> None:
    raise ZeroDivisionError("broken")


def test_an_error_in_the_handler_is_an_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    function = jax.jit(solve).lower(B).compile()
    for name in by_host._known:
        monkeypatch.setitem(by_host._known, name, broken)
    assert "ZeroDivisionError" in message(function, B)


def test_where_nobody_knows_the_name_any_more() -> None:
    """Of a program that outlives the function which it was made of, less is said."""
    gc.freeze()  # of what was there before, which takes long to look through, nothing is part of it
    fails, warns = (jax.jit(lambda b, p=p: solve(b, on_failure=p)).lower(B).compile() for p in ("raise", "warn"))
    by_host._known.clear()
    gc.collect()
    gc.unfreeze()
    assert "RuntimeError: biCG-stab did not reach its tolerance" in message(fails, B)
    with pytest.warns(RuntimeWarning, match="biCG-stab did not reach its tolerance"):
        jax.block_until_ready(warns(B))


def test_warnings_that_are_errors() -> None:
    function = jax.jit(lambda b: solve(b, on_failure="warn"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "RuntimeWarning: biCG-stab reached" in message(function, B)


@pytest.mark.parametrize("by_name", [True, pytest.param(False, marks=pytest.mark.merge)])
def test_what_no_x_reaches_is_warned_of(by_name: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the call that failures make, or as a callback (of lanes); not where failures are silent."""
    if not by_name:
        monkeypatch.setattr(CAN_BE_KEPT, lambda: False)
    solve = lambda b, **settings: linear_solve(singular(1), b, method="CG", **settings).x  # noqa: E731
    lowered = jax.jit(solve if by_name else jax.vmap(solve)).lower(B if by_name else np.stack([B, B]))
    assert ("callback" in lowered.as_text()) != by_name
    good, run = np.where(np.arange(N) == 1, 0, B), lowered.compile()
    with pytest.warns(SingularMatrixWarning, match="CG: b has a component in constants on closed regions") as caught:
        x = jax.block_until_ready(run(B if by_name else np.stack([good, B])))
    assert len(caught) == 1
    np.testing.assert_allclose(x, good / SHIFT + 0 * x, atol=1e-9)
    jax.block_until_ready(run(good if by_name else np.stack([good, good])))  # and no warning
    quiet = jax.jit(lambda b: solve(b, on_failure="nan")).lower(B).as_text()
    assert by_host.TARGET not in quiet and "callback" not in quiet


# --- two processes --------------------------------------------------------------------------------------------------

PROCESS = """
import json, logging, warnings
import jax, jax.numpy as jnp, numpy as np
from krylix import SingularMatrixWarning, linear_solve

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
jax.config.update("jax_enable_x64", True)
missed, said, found = [], [], []
jax.monitoring.register_event_listener(lambda event, **_: missed.append(event) if "cache_misses" in event else None)
A = np.diag([2.0, 3, 0, 5, 6, 7, 8, 9])
b = jnp.cos(jnp.arange(8.0))
K = jnp.asarray(10.0 ** np.random.default_rng(0).uniform(-3, 3, 40))

def solve(b, **settings):
    return linear_solve(lambda u: 3 * u - jnp.roll(u, 1, -1) - jnp.roll(u, -1, -1), b, method="CG", **settings).x

for function, good, bad in [
    (solve, b, b * jnp.nan),
    (jax.vmap(solve), jnp.stack([b, b]), jnp.stack([b, b * jnp.nan])),
    (jax.grad(lambda b: (solve(b) ** 2).sum()), b, b * jnp.nan),
    (lambda b: solve(b, on_failure="warn"), b, b),
    (lambda b: linear_solve(lambda u: A @ u + u, b, on_failure="nan").x, b, b),
    (lambda b: linear_solve(A, b, method="CG", nullspace=None).x, 0 * b, b),
    (lambda b: (linear_solve(lambda u: 3 * K * u - K * jnp.roll(u, 1) - 1.5 * K * jnp.roll(u, -9), b, max_iter=3).x),
     jnp.ones(40), jnp.nan * jnp.ones(40)),
]:
    program = jax.jit(function)
    found.append(np.asarray(program(good)).tolist())
    try:
        jax.block_until_ready(program(bad))
        said.append("")
    except RuntimeError as error:
        said.append(str(error))
print(json.dumps({"missed": len(missed), "said": said, "found": found}))
"""


@pytest.mark.merge
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {
        "XLA_FLAGS": " ".join(FLAGS),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
    }
    runs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROCESS], env=environment | {"PYTHONHASHSEED": seed}, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    first, second = runs
    assert first["missed"] > 0 and second["missed"] == 0
    assert second["said"] == first["said"] and second["found"] == first["found"]
    assert [bool(text) for text in first["said"]] == [True, True, True, False, False, True, True]
    assert "A is singular: row and column 2 are zero" in first["said"][-2]
