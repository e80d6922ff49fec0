"""Profiles: every call once, with the line that asked for it, and nothing left when they have ended."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import jax, jnp, tf, torch
from krylix.backends import get_backend, get_current_profile, profile, profile_function, registry
from krylix.backends.numpy.backend import NumpyBackend
from krylix.backends.numpy.one_system import OneSystemBackend
from krylix.backends.operations.table import ALIASES, OPERATIONS
from krylix.backends.profile import spans, watching
from krylix.backends.profile.recording import KINDS, Profile
from krylix.backends.standard.library import RULES

numpy = get_backend("numpy")
x = np.arange(4.0)


def names(prof: Profile) -> list[str]:
    return [event.name for event in prof.events]


def children(prof: Profile, name: str) -> list[str]:
    return [event.name for event in prof.events if event.parent is not None and event.parent.name == name]


# ---- what is recorded


def test_an_operation_with_its_line_and_arrays() -> None:
    with profile() as prof:
        line = sys._getframe().f_lineno + 1
        found = numpy.sin(x)
    assert np.array_equal(found, np.sin(x))
    (event,) = prof.events
    assert (event.name, event.kind, event.library, event.traced) == ("sin", "operation", "numpy", False)
    assert event.facts == {"shapes": [(4,)], "dtypes": ["float64"]}
    assert event.lines[-1] == (__file__, line, "test_an_operation_with_its_line_and_arrays")
    assert 0 <= event.own_time <= event.duration <= prof.duration


def test_every_operation_is_recorded_once_by_any_word() -> None:
    others = {*watching.QUESTIONS, *filter(watching.makes_functions, OPERATIONS)}
    assert {name for name, rule in RULES.items() if rule == "dtypes"} <= others
    words = sorted({*OPERATIONS, *ALIASES} - others - {name for name in ALIASES if ALIASES[name] in others})
    words = [name for name in words if callable(getattr(numpy, name))]
    with profile(trace=False) as prof:
        for name in words:
            with pytest.raises(TypeError):
                getattr(numpy, name)(x, x, *[object()] * 9, nothing_has_this_argument=1)
    assert names(prof) == [ALIASES.get(name, name) for name in words]
    assert {event.facts["error"] for event in prof.events} == {"TypeError"}


def test_nested_calls_are_inside_their_caller() -> None:
    with profile() as prof:
        numpy.sigmoid(x)
    first, *inside = prof.events
    assert first.name == "sigmoid"
    assert children(prof, "sigmoid") == ["divide", "where", "exp", "where"]
    assert {event.lines for event in inside} == {first.lines}
    assert first.inside == pytest.approx(sum(event.duration for event in inside))
    assert all(first.start <= event.start and event.end <= first.end for event in inside)  # type: ignore[operator]


def test_the_standard_and_the_parts_of_a_backend() -> None:
    with profile() as prof:
        numpy.xp.linalg.qr(np.eye(2))
        assert numpy.xp.float32 == np.float32
        assert numpy.xp.isdtype(x.dtype, "real floating")
        numpy.linalg.cholesky(np.eye(2))
        numpy.dot(x[None], x[None])
    assert names(prof) == ["linalg.qr", "linalg.cholesky", "dot"]
    assert repr(numpy.xp) == "<krylix: the array API standard 2024.12 on NumPy>"


def test_backends_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have no factorisations, and share transforms with NumPy's."""

    class Bare(NumpyBackend):
        name = "bare"

        @property
        def linalg(self) -> Any:
            raise AttributeError("none")

    class Sharing(NumpyBackend):
        name = "sharing"

    for bk in (Bare(), Sharing()):
        monkeypatch.setitem(registry._loaded, bk.name, bk)
    with profile() as prof:
        numpy.linalg.cholesky(np.eye(2))
        numpy.fourier.forward(x[None], [1])
        bk.max_abs(x[None])
    assert [(event.name, event.library) for event in prof.events if not event.depth] == [
        ("linalg.cholesky", "numpy"), ("fourier.forward", "numpy"), ("max_abs", "sharing"),
    ]  # fmt: skip
    assert not any(isinstance(value, watching.Watched) for value in vars(numpy.linalg).values())


def test_lines_of_the_users_functions_inside() -> None:
    def f(u: Any) -> Any:
        return numpy.multiply(u, 2.0)

    with profile() as prof:
        krylix.linear_solve(f, x, method="CG")
    calls = [event for event in prof.events if event.name == "multiply"]
    assert calls and {event.parent.kind for event in calls if event.parent} == {"user"}
    assert {event.lines[-1].function for event in calls} == {"f"}
    assert {event.lines[0] for event in calls} == {event.lines[0] for event in prof.events}


def test_regions_and_errors() -> None:
    with pytest.raises(ZeroDivisionError), profile() as prof:
        with prof.region("step"):
            numpy.cos(x)
        with prof.region("broken"):
            numpy.while_loop(lambda s: 1 / 0, lambda s: s, x)
    assert [(event.name, event.kind, event.depth) for event in prof.events] == [
        ("step", "region", 0), ("cos", "operation", 1), ("broken", "region", 0), ("while_loop", "operation", 1),
    ]  # fmt: skip
    assert prof.events[-1].facts["error"] == "ZeroDivisionError"
    assert all(event.end is not None for event in prof.events)
    lines = [event.lines[-1] for event in prof.events]
    assert {line.function for line in lines} == {"test_regions_and_errors"}
    assert lines[1].line == lines[0].line + 1 and lines[3].line == lines[2].line + 1


def test_without_lines() -> None:
    with profile(trace=False) as prof:
        numpy.sin(x)
    assert prof.events[0].lines == () and prof.events[0].facts == {}


# ---- what is left


def attributes() -> dict[Any, dict[str, Any]]:
    """Of all objects that a profile changes."""
    from krylix.solvers import profiled

    with profile():  # operations are bound when they are first asked for, and stay
        pass
    owners = {method[0] for method in profiled.watched_methods()} | {
        *(numpy, numpy.linalg, numpy.fourier, numpy.xp, numpy.xp.linalg, numpy.xp.fft),
        profiled.loop.NUMBERS,
    }
    return {owner: dict(vars(owner)) for owner in owners}


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_nothing_is_left(error: type[BaseException] | None) -> None:
    before = attributes()

    def work() -> None:
        with profile():
            numpy.arcsin(x / 4)
            with profile() as inner:
                krylix.linear_solve(np.diag(x + 1), x, method="CG")
            assert "__array_function__" not in vars(numpy) and inner.events
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert attributes() == before
    assert get_current_profile() is None


def test_a_failure_while_it_begins_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = attributes()
    with monkeypatch.context() as patch:
        patch.setattr(spans, "providers", [*spans.providers, lambda: 1 / 0])
        with pytest.raises(ZeroDivisionError), profile():
            raise AssertionError("It has not begun.")
    assert attributes() == before and get_current_profile() is None


def test_functions_that_are_kept_record_nothing_later() -> None:
    with profile() as prof:
        sin, compiled = numpy.sin, numpy.compile(np.cos, ())
    assert np.array_equal(sin(x), np.sin(x)) and compiled is np.cos
    assert signature(sin) == signature(numpy.sin) and sin.__name__ == numpy.sin.__name__
    assert prof.events == []


def test_excluded_names_are_there() -> None:
    there = {name for cls in (krylix.backends.Backend, OneSystemBackend) for name in dir(cls)} | set(OPERATIONS)
    assert {*watching.QUESTIONS, *watching.MAKERS, *watching.KIND_OF} <= there
    assert {*watching.KIND_OF.values(), *watching.MAKERS.values()} <= set(KINDS)


def test_a_library_that_is_needed_first_in_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._CLASSES, "another", (".numpy.backend", "NumpyBackend"))
    try:
        with profile() as prof:
            get_backend("another").sin(x)
        assert names(prof) == ["sin"]
        assert not any(isinstance(value, watching.Watched) for value in vars(get_backend("another")).values())
    finally:
        del registry._loaded["another"]


def test_a_library_of_the_standard() -> None:
    strict = pytest.importorskip("array_api_strict")
    matrix, y = strict.asarray(np.diag(x + 1)), strict.asarray(x)
    bk = krylix.choose_backend(y)
    with profile() as prof:
        bk.sin(y)
        bk.xp.linalg.qr(matrix)
        krylix.linear_solve(matrix, y, method="CG")
    assert names(prof)[:3] == ["sin", "linalg.qr", "linear_solve"]
    assert {event.library for event in prof.events} == {None, bk.name}
    assert not any(isinstance(value, watching.Watched) for value in vars(bk).values())


# ---- several profiles and threads


def test_two_profiles_get_both() -> None:
    with profile() as outer:
        assert get_current_profile() is outer
        numpy.sin(x)
        with outer.region("inside"), profile() as inner:
            assert get_current_profile() is inner
            numpy.cos(x)
        numpy.tan(x)
    assert names(outer) == ["sin", "inside", "cos", "tan"]
    assert names(inner) == ["cos"]
    assert inner.events[0].parent is None and outer.events[2].parent is outer.events[1]


def test_threads_have_their_own_tracks() -> None:
    def work() -> None:
        numpy.sigmoid(x)

    with profile() as prof:
        numpy.sin(x)
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    assert prof.threads == [threading.current_thread().name, "worker"]
    assert [event.thread for event in prof.events] == [0, 1, 1, 1, 1, 1]
    assert prof.events[1].parent is None


def test_a_call_that_another_thread_has_not_left() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def stop(state: Any) -> bool:
        begun.set()
        return not go_on.wait(10)

    with profile() as prof:
        thread = threading.Thread(target=lambda: numpy.while_loop(stop, lambda s: s, x))
        thread.start()
        assert begun.wait(10)
    go_on.set()
    thread.join()
    assert prof.events[0].facts["unfinished"] and prof.events[0].end <= prof.start + prof.duration  # type: ignore[operator]


def test_many_threads_begin_and_end() -> None:
    before = attributes()

    def work() -> None:
        for _ in range(20):
            with profile(trace=False) as prof:
                for _ in range(5):
                    numpy.cos(x)
            mine = [event for event in prof.events if prof.threads[event.thread] == threading.current_thread().name]
            assert len(mine) == 5

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work) for _ in range(4)]:
            future.result()
    assert attributes() == before


def test_only_some_libraries() -> None:
    with profile("numpy") as own, profile(["numpy"]) as listed, profile([numpy]) as given, profile([]) as none:
        numpy.sin(x)
    assert [names(prof) for prof in (own, listed, given, none)] == [["sin"]] * 3 + [[]]
    with pytest.raises(krylix.NoBackendFound, match="No backend is called 'cupi'"), profile("cupi"):
        pass


# ---- times again


def test_retime_keeps_lines() -> None:
    def work(pause: float) -> None:
        with prof.region("work"):
            threading.Event().wait(pause)
            numpy.sigmoid(x)

    with profile() as prof:
        work(0.05)
    first = prof.events
    with prof.retime():
        assert get_current_profile() is prof
        work(0)
    assert first[0].duration >= 0.05 > prof.events[0].duration
    for old, new in zip(first, prof.events, strict=True):
        assert (old.name, old.lines, old.facts) == (new.name, new.lines, new.facts)
        assert new.parent is None or new.parent.start <= new.start
    assert prof.events[0].inside == prof.events[1].duration


@pytest.mark.parametrize(
    ("second", "message"), [((), "used 0 threads"), ((1,), "was cos, in the first sin"), ((1, 2), "was cos")]
)
def test_retime_refuses_other_calls(second: tuple[int, ...], message: str) -> None:
    with profile() as prof:
        numpy.sin(x)
    with pytest.raises(ValueError, match=message), prof.retime():
        for _ in second:
            numpy.cos(x)
    assert names(prof) == ["sin"]


def test_profile_function() -> None:
    calls: list[float] = []

    def step(a: Any, *, power: float) -> Any:
        calls.append(power)
        return numpy.pow(a, power)

    prof = profile_function(step, (x,), {"power": 2.0}, call_count=3, warmup=1)
    assert names(prof) == ["step", "pow"] * 3
    assert len(calls) == 1 + 3 + 3 and not prof.notes
    assert prof.events[1].lines[-1].function == "step"

    prof = profile_function(lambda: [numpy.sin(x) for _ in range(len(calls))] and calls.append(0), warmup=0)
    assert "made other calls" in prof.report()
    assert names(prof) == ["<lambda>"] + ["sin"] * 7


# ---- what comes of it


def events_of(path: Path) -> list[dict[str, Any]]:
    """Those of a file, each checked by what the trace event format asks for."""
    found = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    for event in found["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} <= set(event)
        assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] in ("M", "X")
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["cat"], str)
        else:
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
    return found["traceEvents"]


def test_a_file_of_trace_events(tmp_path: Path) -> None:
    with pytest.raises(KeyError), profile(save=tmp_path / "out.json") as prof:
        numpy.sigmoid(x)
        krylix.linear_solve(np.diag([1.0, np.inf]), x[:2], on_failure="status", method="CG")
        raise KeyError
    events = events_of(tmp_path / "out.json")
    calls = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in calls] == names(prof)
    assert {event["tid"] for event in events} == {0}
    first, inside = calls[:2]
    assert first["args"]["line"].startswith("test_profile.py:") and first["args"]["stack"][-1].startswith(__file__)
    assert first["args"]["library"] == "numpy" and first["args"]["shapes"] == [[4]]
    assert first["ts"] <= inside["ts"] and inside["ts"] + inside["dur"] <= first["ts"] + first["dur"] + 1e-6


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    with profile() as prof:
        for _ in range(3):
            numpy.sigmoid(x)
        with prof.region("long"):
            pass
    for event in prof.events:  # times as on a machine that does nothing else
        event.start, event.end, event.inside = 0.0, 0.05 if event.name == "long" else 1e-4, 0.0
    prof.add_external_message("a note")
    head, columns, *rows, note = prof.report().splitlines()
    assert "16 calls in" in head and "each call waits" in head
    assert columns.split() == ["ms", "own", "ms", "calls", "call"]
    assert sorted(row.split()[2] for row in rows) == ["1", "3", "3", "3", "6"]
    assert rows[0].split()[3:6] == ["region", "long", "<-"] and "test_profile.py" in rows[1]
    assert note == "a note"
    prof.print(0.04)
    printed = capsys.readouterr().out
    assert "region long" in printed and "sigmoid" not in printed and "4 rows below 40 ms are left out" in printed


def test_a_residual_that_is_nan_is_reported() -> None:
    with profile() as prof:
        for _ in range(2):
            numpy.sin(x)
    for event in prof.events:
        event.facts.update(residual_norm=float("nan"), converged=False)
    assert "residual_norm=nan converged=False" in prof.report()


def test_calls_inside_of_a_call_of_their_name_are_events() -> None:
    """Loops in loops and regions in regions; of a function that calls the same one of `xp` there is one."""

    def outer(k: int) -> int:
        numpy.while_loop(lambda j: j < 2, lambda j: j + 1, 0)
        return k + 1

    with profile() as prof:
        numpy.while_loop(lambda k: k < 3, outer, 0)
        with prof.region("same"), prof.region("same"):
            get_backend("numpy").flip(x)
    names = [event.name for event in prof.events if event.kind in ("operation", "region")]
    assert names.count("while_loop") == 4 and names.count("same") == 2 and names.count("flip") == 1


# ---- programs


@pytest.mark.needs("jax")
def test_programs_of_jax() -> None:
    bk, y = get_backend("jax"), jnp.ones(3)
    with profile() as prof:
        f = bk.compile(lambda x: bk.sin(x), ())
        f(y), f(y)
        jax.vmap(lambda x: bk.sin(x))(jnp.ones((2, 3)))
    assert [(event.name, event.kind, event.traced, event.depth) for event in prof.events] == [
        ("<lambda>", "compiled", False, 0), ("sin", "operation", True, 1), ("<lambda>", "compiled", False, 0),
        ("sin", "operation", False, 0),
    ]  # fmt: skip
    assert "sin (traced)" in prof.report()


@pytest.mark.needs("jax")
def test_programs_that_call_the_host() -> None:
    def of_numpy(values: np.ndarray) -> tuple[np.ndarray]:
        return (np.sin(values),)

    bk, y = get_backend("jax"), jnp.ones(3)
    f = jax.jit(lambda y: bk.host_call(of_numpy, [((3,), np.dtype(y.dtype))], y)[0])
    f(y)
    with profile() as prof:
        assert np.allclose(f(y), np.sin(1.0))
    assert [(event.name, event.kind, event.traced) for event in prof.events] == [("of_numpy", "host call", False)]


@pytest.mark.needs("jax")
def test_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(spans, "wait_for", waited.append)
    y = get_backend("jax").asarray([1.0])
    for blocking in (True, False):
        with profile(blocking=blocking) as prof:
            get_backend("jax").negative(y)
        assert len(waited) == 1
    assert "do not wait" in prof.report()


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_programs_of_tensorflow() -> None:
    bk = get_backend("tensorflow")

    @tf.function
    def f(x: Any) -> Any:
        return bk.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, bk.sin(s[1])), (3, x))[1]

    with profile() as prof:
        found = f(tf.constant([1.0]))
        bk.cos(tf.constant([1.0]))
    assert float(found[0]) == pytest.approx(np.sin(np.sin(np.sin(1.0))))
    assert {event.name for event in prof.events if event.traced} >= {"while_loop", "sin"}
    assert [event.name for event in prof.events if not event.traced] == ["cos"]
    assert {event.lines[-1].function for event in prof.events} == {"test_programs_of_tensorflow"}


@pytest.mark.merge
@pytest.mark.needs("torch")
def test_programs_of_torch() -> None:
    """PyTorch's compiler sees no profile: one graph, without breaks."""
    bk, y = get_backend("torch"), torch.ones(3)
    bk.sin(y), bk.cos(y)  # looked for when they are called first, which the compiler cannot follow
    with profile() as prof:
        found = torch.compile(lambda x: bk.sin(x) + 1, backend="eager", fullgraph=True)(y)
        torch.func.vmap(bk.cos)(torch.ones(2, 3))
    assert torch.equal(found, torch.sin(y) + 1)
    assert [(event.name, event.traced) for event in prof.events] == [("cos", False)]


@pytest.mark.needs("torch")
def test_waiting_for_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr("krylix.backends.torch.operations.block_until_ready", waited.append)
    spans.wait_for({"a": torch.ones(2), "b": [torch.ones(3, device="meta"), None, 1.0]})
    assert [tuple(tensor.shape) for tensor in waited] == [(3,)]
