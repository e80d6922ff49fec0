"""`python -m benchmarks.answers`: what several hundred small solves return, saved and compared.

`--save FILE` solves and writes the status, the method, the iterations, x and the error of each. `--compare FILE` solves
again, or reads a second file, and prints each difference. Iterations and words have to be equal, and x up to
`--within` times the relative tolerance of its solve; else the exit status is 1. Nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .settings import missing, use_threads

use_threads(1)
# A quarter of the time to compile, as in the tests.
os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
logging.getLogger("tensorflow").setLevel("ERROR")  # each system is a function of its own

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

from krylix import clear_setup_cache, linear_solve, prepare, set_global_setup_cache  # noqa: E402
from krylix.solvers import METHODS, PRECONDITIONERS  # noqa: E402

Answer = dict[str, Any]  # status, method, iterations, error: words; x: array or None


@dataclass(frozen=True)
class Grid:
    """A function of pad, x and further arguments; `pad(x, periodic)` adds a frame of zeros or of the other side."""

    function: Callable[..., Any]


@dataclass(frozen=True)
class System:
    A: Any
    b: Any
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def rtol(self) -> float:
        """The largest relative tolerance of the solve; the default one where there is none, or none but `atol`."""
        single = any(v.dtype.name in ("float32", "complex64") for v in leaves(self.b))
        return float(np.max(self.settings.get("rtol", 0.0))) or (1e-5 if single else 1e-10)

    def using(self, **settings: Any) -> System:
        return replace(self, settings=self.settings | settings)


# ---- systems


def systems() -> dict[str, System]:
    """By name."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    n = 24
    square, symmetric = numbers(n, n), numbers(n, n)
    symmetric = symmetric + symmetric.T
    definite = symmetric @ symmetric / n + np.eye(n)
    general = square + 8 * np.eye(n)
    both = numbers(n, n) + 1j * numbers(n, n)
    hermitian = both @ both.conj().T / n + np.eye(n)
    low = numbers(n, n - 3) @ numbers(n - 3, n)
    ring = 2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)
    far = np.diag(10.0 ** np.linspace(-6, 6, n))
    batch = np.stack([definite, 2 * definite + np.eye(n), np.diag(np.arange(1.0, n + 1))])
    b, several = numbers(n), numbers(3, n)
    zero, nan, infinite = several.copy(), several.copy(), several.copy()
    zero[1], nan[1, 3], infinite[1, 3] = 0, np.nan, np.inf
    limits = np.array([1e-3, 1e-6, 1e-9])

    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(9, 9))
    eye = sp.eye_array(9)
    poisson = sp.csr_array(sp.kron(line, eye) + sp.kron(eye, line))
    flow = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(9, 9))
    convection = sp.csr_array(poisson + 4 * sp.kron(flow, eye) + sp.kron(eye, flow))
    waves = sp.csr_array(poisson - 2.1 * sp.eye_array(81))
    saddle = sp.csr_array(sp.block_array([[poisson, poisson[:, :12]], [poisson[:12], None]]))
    edges = sp.random_array((60, 60), density=0.06, rng=np.random.default_rng(1))
    edges = sp.csr_array(edges + edges.T)
    graph = sp.csr_array(sp.diags_array(edges.sum(axis=1)) - edges)
    scattered = sp.csr_array(
        sp.random_array((200, 200), density=0.02, rng=np.random.default_rng(2)) + sp.eye_array(200)
    )
    permuted = sp.csr_array(scattered[np.random.default_rng(3).permutation(200)])
    c, g, s = numbers(81), graph @ numbers(60), numbers(200)

    def five(pad: Any, x: Any) -> Any:
        p = pad(x, False)
        return 4 * x - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    def periodic(pad: Any, x: Any) -> Any:
        p = pad(x, True)
        return 4 * x - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    def varying(pad: Any, x: Any, k: Any) -> Any:
        p = pad(x, False)
        across, along = k[:, :-1] * (p[1:, 1:-1] - p[:-1, 1:-1]), k[:-1] * (p[1:-1, 1:] - p[1:-1, :-1])
        return across[:-1] - across[1:] + along[:, :-1] - along[:, 1:]

    def upwind(pad: Any, x: Any) -> Any:
        p = pad(x, False)
        return 5 * x - 2 * p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    def cubed(pad: Any, x: Any) -> Any:
        p = pad(x, False)
        i = (slice(1, -1),) * 3
        sides = [
            p[tuple(slice(o, o + 7) if a == axis else i[a] for a in range(3))] for axis in range(3) for o in (0, 2)
        ]
        return 6 * x - sides[0] - sides[1] - sides[2] - sides[3] - sides[4] - sides[5]

    def lines(pad: Any, x: Any) -> Any:  # the padded axes are those of all systems, and of each
        p = pad(x, False)
        return 3 * x - p[1:-1, :-2] - p[1:-1, 2:]

    def offset(pad: Any, x: Any) -> Any:
        return five(pad, x) + 1

    def pair(pad: Any, x: Any) -> Any:
        return {"u": 3 * x["u"] + x["v"], "v": 2 * x["v"] - x["u"]}

    def squared(pad: Any, x: Any) -> Any:
        return x * x

    plane, closed = numbers(12, 12), numbers(12, 12)
    closed -= closed.mean()
    k = np.exp(numbers(13, 13))
    return {
        "definite, dense": System(definite, b),
        "definite, sparse": System(poisson, c),
        "negative definite, sparse": System(-poisson, c),
        "definite, scaled by 1e±6": System(far @ definite @ far, far @ b),
        "definite, graph, grounded": System(sp.csr_array(graph + sp.diags_array(1.0 * (np.arange(60) == 0))), g),
        "unsymmetric, dense": System(general, b),
        "unsymmetric, sparse": System(convection, c),
        "unsymmetric, scattered": System(scattered, s),
        "unsymmetric, rows permuted": System(permuted, s),
        "unsymmetric, rows scaled by 1e±6": System(far @ general, far @ b),
        "indefinite, dense": System(symmetric, b),
        "indefinite, sparse": System(waves, c),
        "indefinite, saddle point": System(saddle, numbers(93)),
        "skew, dense": System(square - square.T, b),
        "singular, consistent, dense": System(low, low @ b),
        "singular, inconsistent, dense": System(low, b),
        "singular, consistent, ring": System(ring, ring @ b),
        "singular, inconsistent, ring": System(ring, b),
        "singular, consistent, graph": System(graph, g),
        "singular, inconsistent, graph": System(graph, numbers(60)),
        "singular, constants given": System(sp.csr_array(ring), ring @ b, {"nullspace": "constant"}),
        "singular, taken as it stands": System(sp.csr_array(ring), ring @ b, {"nullspace": None}),
        "zero matrix": System(np.zeros((n, n)), b),
        "zero matrix, zero b": System(np.zeros((n, n)), 0 * b),
        "nearly singular": System(ring + 1e-12 * np.eye(n), b),
        "Hilbert": System(1 / (np.arange(12)[:, None] + np.arange(12) + 1), numbers(12)),
        "diagonal": System(sp.dia_array(far), b),
        "triangular": System(np.tril(general), b),
        "permutation": System(np.eye(n)[rng.permutation(n)], b),
        "tridiagonal": System(
            sp.dia_array(sp.diags_array([-1.0, 2.5, -1.5], offsets=[-1, 0, 1], shape=(80, 80))), c[:80]
        ),
        "Hermitian, dense": System(hermitian, b + 1j * several[0]),
        "complex symmetric, sparse": System(sp.csr_array(poisson + (0.1j - 1) * sp.eye_array(81)), c + 0j),
        "complex, dense": System(both + 8 * np.eye(n), b + 1j * several[0]),
        "real A, complex b": System(definite, b + 1j * several[0]),
        "float32, dense": System(definite.astype("f4"), b.astype("f4")),
        "float32, sparse": System(convection.astype("f4"), c.astype("f4")),
        "float32, tight": System(poisson.astype("f4"), c.astype("f4"), {"rtol": 1e-7}),
        "complex64, dense": System(hermitian.astype("c8"), (b + 1j * several[0]).astype("c8")),
        "one unknown": System(np.array([[2.0]]), np.array([3.0])),
        "no unknowns": System(np.zeros((0, 0)), np.zeros(0)),
        "no systems": System(definite, np.zeros((0, n))),
        "batch of one": System(definite, several[:1]),
        "batch": System(definite, several),
        "batch, sparse": System(convection, numbers(3, 81)),
        "batch, own tolerances": System(poisson, numbers(3, 81), {"rtol": limits}),
        "batch, own limits of iterations": System(
            poisson, numbers(3, 81), {"method": "CG", "max_iter": np.array([3, 9, 99])}
        ),
        "batch of matrices": System(batch, several),
        "batch of matrices, one singular": System(np.stack([definite, ring, low]), several),
        "batch, one zero b": System(definite, zero),
        "batch, one NaN": System(definite, nan),
        "batch, one infinite": System(definite, infinite),
        "zero b": System(poisson, 0 * c),
        "NaN in b": System(poisson, np.where(np.arange(81) == 5, np.nan, c)),
        "NaN in A": System(np.where(np.eye(n, k=3) > 0, np.nan, definite), b),
        "x0 exact": System(definite, b, {"x0": np.linalg.solve(definite, b)}),
        "x0 random": System(poisson, c, {"x0": numbers(81)}),
        "x0 NaN": System(poisson, c, {"x0": np.full(81, np.nan)}),
        "atol": System(poisson, c, {"rtol": 0.0, "atol": 1e-3}),
        "too few iterations": System(poisson, c, {"method": "CG", "max_iter": 5}),
        "no iterations": System(poisson, c, {"method": "CG", "max_iter": 0}),
        "checkpoints": System(poisson, c, {"method": "CG", "max_iter": [1, 3, 99]}),
        "an offset": System(poisson, c, {"matrix_offset": 0.5}),
        "vectors in columns": System(convection, numbers(81, 2), {"axis": 0}),
        "rectangular": System(numbers(30, 12), numbers(30), {"method": "LSMR"}),
        "rectangular, auto": System(numbers(30, 12), numbers(30)),
        "wrong shape": System(definite, numbers(n + 1)),
        "grid": System(Grid(five), plane),
        "lines of a grid, batch": System(Grid(lines), numbers(3, 12), {"batch_ndim": 1}),
        "grid, periodic, consistent": System(Grid(periodic), closed),
        "grid, periodic, inconsistent": System(Grid(periodic), plane),
        "grid, varying coefficients": System(Grid(varying), plane, {"args": (k,)}),
        "grid, float32": System(Grid(varying), plane.astype("f4"), {"args": (k.astype("f4"),)}),
        "grid, unsymmetric": System(Grid(upwind), plane),
        "grid, three axes": System(Grid(cubed), numbers(7, 7, 7)),
        "function, affine": System(Grid(offset), plane),
        "function, not linear": System(Grid(squared), plane),
        "function of a container": System(Grid(pair), {"u": several[0], "v": several[1]}),
    }


OF_EVERY_METHOD = (
    "definite, sparse", "unsymmetric, dense", "indefinite, sparse", "singular, consistent, graph",
    "complex symmetric, sparse", "batch, one NaN", "grid, varying coefficients",
)  # fmt: skip
WITH_EVERY_PRECONDITIONER = ("definite, sparse", "unsymmetric, sparse", "grid, varying coefficients")
COMPILED = (
    "definite, dense", "definite, sparse", "unsymmetric, sparse", "indefinite, dense", "singular, consistent, ring",
    "singular, inconsistent, ring", "complex, dense", "float32, sparse", "batch, own tolerances", "batch of matrices",
    "batch, one NaN", "zero b", "x0 random", "too few iterations", "grid", "grid, periodic, consistent",
    "grid, varying coefficients", "function of a container",
)  # fmt: skip
DIFFERENTIATED = ("definite, sparse", "unsymmetric, dense", "singular, consistent, ring", "grid, varying coefficients")
QUICK = ("definite, dense", "unsymmetric, sparse", "singular, inconsistent, ring", "batch, one NaN", "grid")


# ---- libraries


class Numpy:
    """How a system is moved to a library, and programs are made of its functions."""

    def array(self, v: Any) -> Any:
        return v

    def sparse(self, A: Any) -> Any:
        return A

    def pad(self, x: Any, periodic: bool) -> Any:
        return np.pad(x, 1, mode="wrap" if periodic else "constant")

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def moved(self, v: Any) -> Any:
        """Matrices, functions and containers of arrays."""
        if isinstance(v, Grid):
            return lambda x, *args: v.function(self.pad, x, *args)
        if isinstance(v, dict):
            return {name: self.moved(part) for name, part in v.items()}
        if isinstance(v, tuple):
            return tuple(map(self.moved, v))
        return self.sparse(v) if sp.issparse(v) else self.array(v)

    def system(self, system: System) -> System:
        moved = {name: self.moved(system.settings[name]) for name in ("x0", "args") if name in system.settings}
        return System(self.moved(system.A), self.moved(system.b), system.settings | moved)


class Torch(Numpy):
    def array(self, v: Any) -> Any:
        import torch

        return torch.as_tensor(v)

    def sparse(self, A: Any) -> Any:
        import torch

        A = sp.csr_array(A)
        return torch.sparse_csr_tensor(*map(torch.as_tensor, (A.indptr, A.indices, A.data)), A.shape)

    def pad(self, x: Any, periodic: bool) -> Any:
        import torch

        sides = (1, 1) * x.ndim
        return torch.nn.functional.pad(x[None, None], sides, "circular" if periodic else "constant")[0, 0]


class Jax(Numpy):
    def array(self, v: Any) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(v)

    def sparse(self, A: Any) -> Any:
        from jax.experimental.sparse import BCOO

        return BCOO.from_scipy_sparse(A)

    def pad(self, x: Any, periodic: bool) -> Any:
        import jax.numpy as jnp

        return jnp.pad(x, 1, mode="wrap" if periodic else "constant")

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import jax

        return jax.jit(function)


class TensorFlow(Numpy):
    def array(self, v: Any) -> Any:
        import tensorflow as tf

        return tf.constant(v)

    def sparse(self, A: Any) -> Any:
        import tensorflow as tf

        entries = sp.csr_array(A).tocoo()
        return tf.SparseTensor(np.stack([entries.row, entries.col], 1).astype("i8"), entries.data, entries.shape)

    def pad(self, x: Any, periodic: bool) -> Any:
        import tensorflow as tf

        if not periodic:
            return tf.pad(x, [[1, 1]] * x.ndim)
        for axis in range(x.ndim):
            ends = [slice(None)] * axis
            x = tf.concat([x[(*ends, slice(-1, None))], x, x[(*ends, slice(0, 1))]], axis)
        return x

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import tensorflow as tf

        return tf.function(function, autograph=False)


# ---- answers


def solve(system: System) -> Any:
    return linear_solve(system.A, system.b, **system.settings)


def kept(system: System) -> Any:
    """The third solve with a matrix, whose set-up is kept."""
    set_global_setup_cache(True)
    try:
        for factor in (3.0, 2.0):
            linear_solve(system.A, factor * system.b, **system.settings)
        return solve(system)
    finally:
        set_global_setup_cache(False)
        clear_setup_cache()


def prepared(system: System) -> Any:
    settings = {name: value for name, value in system.settings.items() if name != "x0"}
    return prepare(system.A, system.b, **settings).solve(system.b, x0=system.settings.get("x0"))


def compiled(library: Numpy) -> Callable[[System], Any]:
    """A is known while the program is made, but for further arguments of a function."""

    def run(system: System) -> Any:
        args = system.settings.get("args", ())
        return library.compiled(lambda b, args: solve(replace(system, b=b).using(args=args)))(system.b, args)

    return run


def traced(library: Numpy) -> Callable[[System], Any]:
    """A is an argument of the program, too."""
    return lambda system: library.compiled(lambda A, b: solve(replace(system, A=A, b=b)))(system.A, system.b)


def gradient(system: System) -> Any:
    """Of a weighted sum of x with respect to b, in JAX."""
    import jax
    import jax.numpy as jnp

    w = np.cos(np.arange(system.b.size)).reshape(system.b.shape)
    return jax.jit(jax.grad(lambda b: jnp.sum(w * solve(replace(system, b=b)).x)))(system.b)


def answer(run: Callable[[System], Any], system: System) -> Answer:
    """What came of it, in words and arrays of NumPy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read(run(system)) | {"error": ""}
    except Exception as error:  # every refusal is an answer
        first = (re.sub(r"\{\{.*?\}\} ", "", str(error)).strip().splitlines() or [""])[0]  # nodes are numbered
        return read(getattr(error, "result", None)) | {"error": f"{type(error).__name__}: {first}"}


def read(result: Any) -> Answer:
    """A result, a gradient, or None."""
    x = None if result is None else np.concatenate([np.ravel(v) for v in leaves(getattr(result, "x", result))])
    return {"x": x} | {name: words(getattr(result, name, None)) for name in WORDS}


WORDS = ("status", "method", "preconditioner", "iterations")


def words(v: Any) -> str:
    return v if isinstance(v, str) else "" if v is None else str(np.asarray(v).tolist())


def leaves(v: Any) -> list[np.ndarray]:
    return [np.asarray(v[name]) for name in sorted(v)] if isinstance(v, dict) else [np.asarray(v)]


def cases(quick: bool) -> Iterator[tuple[str, Callable[[System], Any], Numpy, System]]:
    """Name, how it is solved, in which library."""
    all_systems = systems()
    some = {name: all_systems[name] for name in QUICK} if quick else all_systems
    libraries = {"jax": Jax(), "torch": Torch(), "tensorflow": TensorFlow()}
    libraries = {
        name: each for name, each in libraries.items() if not missing(name) and not (quick and name != "torch")
    }
    for name, system in some.items():
        yield f"numpy | {name}", solve, Numpy(), system
        if not isinstance(system.A, Grid):
            yield f"numpy, set-up kept | {name}", kept, Numpy(), system
        yield f"numpy, prepared | {name}", prepared, Numpy(), system
        for library, each in libraries.items():
            yield f"{library} | {name}", solve, each, system
    if quick:
        return
    for name in OF_EVERY_METHOD:
        for method in METHODS:
            yield f"numpy, {method} | {name}", solve, Numpy(), all_systems[name].using(method=method)
    for name in WITH_EVERY_PRECONDITIONER:
        for kind in (*PRECONDITIONERS, "auto"):
            system = all_systems[name].using(method="biCG-stab" if name.startswith("un") else "CG", preconditioner=kind)
            yield f"numpy, {kind} | {name}", solve, Numpy(), system
    for library in libraries:
        for name in () if library == "torch" else COMPILED:
            yield f"{library}, compiled | {name}", compiled(libraries[library]), libraries[library], all_systems[name]
    if "jax" in libraries:
        for name in COMPILED:
            if not isinstance(all_systems[name].A, Grid):
                yield f"jax, A traced | {name}", traced(libraries["jax"]), libraries["jax"], all_systems[name]
        for name in DIFFERENTIATED:
            yield f"jax, gradient | {name}", gradient, libraries["jax"], all_systems[name]


def answers(quick: bool) -> dict[str, Answer]:
    found = {}
    for name, run, library, system in cases(quick):
        found[name] = answer(lambda s, r=run, l=library: r(l.system(s)), system) | {"rtol": system.rtol}
    return found


# ---- files, and what differs


def save(found: dict[str, Answer], path: Path) -> None:
    words = {name: {key: value for key, value in each.items() if key != "x"} for name, each in found.items()}
    arrays = {name: each["x"] for name, each in found.items() if each["x"] is not None}
    with path.open("wb") as file:
        np.savez_compressed(file, words=np.array(json.dumps(words)), **arrays)


def load(path: Path) -> dict[str, Answer]:
    with np.load(path) as file:
        words = json.loads(str(file["words"]))
        return {name: each | {"x": file.get(name)} for name, each in words.items()}


def difference(x: np.ndarray | None, before: np.ndarray | None) -> float:
    """Relative, in the 2-norm; infinite where only one is there, the shapes or what is not finite differ."""
    if x is None or before is None or x.shape != before.shape:
        return 0.0 if x is before else np.inf
    finite = np.isfinite(before)
    if not np.array_equal(finite, np.isfinite(x)) or not np.array_equal(x[~finite], before[~finite], equal_nan=True):
        return np.inf
    size = np.linalg.norm(x[finite] - before[finite])
    return float(size / np.linalg.norm(before[finite])) if size else 0.0


def compare(found: dict[str, Answer], before: dict[str, Answer], within: float) -> int:
    """Print what differs; how many answers do."""
    wrong, rounded, largest = 0, 0, 0.0
    for name in before | found:
        if name not in found or name not in before:
            print(f"{name}: only {'before' if name in before else 'now'}")
            wrong += 1
            continue
        now, then = found[name], before[name]
        told = [f"{key} {then[key]!r} -> {now[key]!r}" for key in (*WORDS, "error") if now[key] != then[key]]
        relative = difference(now["x"], then["x"])
        if not relative <= within * then["rtol"]:
            told.append(f"x by {relative:.1e}, where rtol is {then['rtol']:.0e}")
        elif relative:
            rounded, largest = rounded + 1, max(largest, relative / then["rtol"])
        if told:
            wrong += 1
            print(f"{name}: {'; '.join(told)}")
    print(f"{len(before | found)} answers, {wrong} differ; x of {rounded} more differs by at most {largest:.1e} rtol")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers", description=__doc__)
    parser.add_argument("--save", type=Path, metavar="FILE", help="solve, and write the answers")
    parser.add_argument(
        "--compare", type=Path, nargs="+", metavar="FILE", help="this file with a second one, or else with new answers"
    )
    parser.add_argument("--within", type=float, default=1.0, help="how far x may be, in rtol of its solve (default 1)")
    parser.add_argument("--quick", action="store_true", help="a few systems")
    given = parser.parse_args()
    if not (given.save or given.compare) or len(given.compare or ()) > 2:
        parser.error("expected --save FILE, or --compare FILE [FILE]")
    before, *second = [load(path) for path in given.compare] if given.compare else [None]
    set_global_setup_cache(False)
    found = second[0] if second else answers(given.quick)
    if given.save:
        save(found, given.save)
        print(f"{len(found)} answers in {given.save}")
    if before is not None:
        sys.exit(compare(found, before, given.within) > 0)


if __name__ == "__main__":
    main()
