"""Solves with `over=` in two processes: `mpirun -n 2 python over_processes.py mpi`, or `torch` with RANK, WORLD_SIZE.

The rows of a grid are cut in two parts of different length. Each process prints a line of JSON for each case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cut_problem import FULL, WEIGHTS, N, dense, periodic, star
from krylix import linear_solve, preconditioner, prepare
from mpi_ranks import tell

CUTS = (0, 6, N)
METHODS = {  # sums of numbers in each iteration; a few more are at its start and its end
    "CG": 2, "CG-adaptive": 4, "CG-single-reduction": 1, "block-CG": 5, "COCR": 3, "biCG-stab": 5,
    "biCG-stab(2)": 10, "GMRES": 5, "FGMRES": 5, "IDR(4)": 10, "MINRES": 4, "mixed-CG": 2, "mixed-biCG-stab(2)": 11,
    "auto": 2, "LSMR": 3, "CGLS": 3,
}  # fmt: skip


def with_mpi() -> SimpleNamespace:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD

    def exchanged(u: np.ndarray, ring: bool) -> np.ndarray:
        """u with a row of each neighbour; zeros beyond the ends."""
        rank, size = comm.Get_rank(), comm.Get_size()
        before = rank - 1 if rank or ring else MPI.PROC_NULL
        after = rank + 1 if rank < size - 1 or ring else MPI.PROC_NULL
        before, after = (k if k == MPI.PROC_NULL else k % size for k in (before, after))
        upper, lower = np.zeros((2, 1, u.shape[-1]), u.dtype)
        comm.Sendrecv(np.ascontiguousarray(u[:1]), before, 1, lower, after, 1)
        comm.Sendrecv(np.ascontiguousarray(u[-1:]), after, 2, upper, before, 2)
        return np.concatenate([upper, u, lower])

    from krylix.backends.communicators import MPICommunicator

    return SimpleNamespace(
        comm=comm, rank=comm.Get_rank(), array=np.array, numpy=np.asarray, exchanged=exchanged, joined=np.concatenate,
        zeros=np.zeros_like, reducer=MPICommunicator, close=lambda: None, wrong="i",
    )  # fmt: skip


def with_torch() -> SimpleNamespace:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def sent(rows: Any) -> Any:
        found = torch.empty_like(rows)
        for source in (0, 1):
            dist.send(rows.contiguous(), 1 - rank) if rank == source else dist.recv(found, 1 - rank)
        return found

    class Exchange(torch.autograd.Function):
        """Two rows of the other process, whose derivative goes the other way."""

        @staticmethod
        def forward(rows: Any) -> Any:
            return sent(rows)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, rows: Any) -> Any:
            return Exchange.apply(rows)

    def exchanged(u: Any, ring: bool) -> Any:
        first, last = Exchange.apply(torch.cat([u[:1], u[-1:]])).split(1)
        upper, lower = last, first
        if not ring:
            upper, lower = (0 * upper, lower) if rank == 0 else (upper, 0 * lower)
        return torch.cat([upper, u, lower])

    from krylix.backends.communicators import TorchCommunicator

    return SimpleNamespace(
        comm=dist.group.WORLD, rank=rank, array=lambda x: torch.from_numpy(np.array(x)), exchanged=exchanged,
        numpy=lambda x: x.detach().numpy(), joined=torch.cat, zeros=torch.zeros_like, wrong=3,
        reducer=TorchCommunicator, close=lambda: (dist.barrier(), dist.destroy_process_group()),
    )  # fmt: skip


class Cases:
    """Solves of one process, with what NumPy finds for the whole grid."""

    def __init__(self, library: SimpleNamespace) -> None:
        self.lib, self.rank = library, library.rank
        self.rows = slice(CUTS[self.rank], CUTS[self.rank + 1])
        self.b, self.weights = library.array(FULL[self.rows]), library.array(WEIGHTS[self.rows])
        self.settings = {"over": library.comm, "rtol": 1e-10}
        self.sums = 0
        reduced = library.reducer._reduced

        def counted(own: Any, x: Any, operation: Any) -> Any:
            self.sums += 1
            return reduced(own, x, operation)

        library.reducer._reduced = counted

    def star(self, u: Any, centre: Any = 4.2, ring: bool = False) -> Any:
        v = self.lib.exchanged(u, ring)
        left, right = self.lib.zeros(u[:, :1]), self.lib.zeros(u[:, :1])
        left, right = (u[:, -1:], u[:, :1]) if ring else (left, right)
        w = np.concatenate([left, u, right], 1) if isinstance(u, np.ndarray) else self.lib.joined([left, u, right], 1)
        return centre * u - v[2:] - v[:-2] - w[:, 2:] - w[:, :-2]

    def error(self, x: Any, expected: np.ndarray) -> float:
        part = self.lib.numpy(x) - expected[..., self.rows, :]
        return float(np.abs(part).max(initial=0) / np.abs(expected).max())

    def methods(self, names: list[str]) -> Iterator[dict[str, Any]]:
        exact = solved(dense(star))
        for name in names or METHODS:
            if name in ("LSMR", "CGLS") and isinstance(self.b, np.ndarray):
                continue  # of a function without a transpose
            self.sums = 0
            found = linear_solve(self.star, self.b, method=name, **self.settings)
            sums = self.sums / int(found.iterations)
            yield {"name": name, "error": self.error(found.x, exact), "sums": sums, "expected": METHODS[name]}

    def choices(self) -> Iterator[dict[str, Any]]:
        exact, right = solved(dense(star)), FULL - FULL.mean()
        null = solved(dense(periodic), right)
        here = dense(star).reshape(N, N, N, N)[self.rows, :, self.rows].reshape(self.lib.numpy(self.b).size, -1)

        def cg(A: Any, b: Any, method: str = "CG", **more: Any) -> Any:
            return linear_solve(A, b, method=method, **{**self.settings, **more}).x

        for name, M in (("function as M", lambda r: r / 4), ("chebyshev", "chebyshev")):
            yield {"name": name, "error": self.error(cg(self.star, self.b, preconditioner=M), exact)}
        for kind in ("jacobi", "block-jacobi", "ic"):
            settings = {"block_size": 4} if kind == "block-jacobi" else {}
            M = preconditioner(sp.csr_array(here), kind, like=self.b.reshape(-1), **settings)
            yield {"name": f"{kind} of this part", "error": self.error(cg(self.star, self.b, preconditioner=M), exact)}
        balanced = self.lib.array(right[self.rows])
        ones = self.lib.array(np.ones((1, *right[self.rows].shape)))
        for name, nullspace in (("constant", "constant"), ("null vectors", ones)):
            x = cg(lambda u: self.star(u, 4.0, True), balanced, "MINRES", nullspace=nullspace)
            yield {"name": name, "error": self.error(x, null)}
        affine = cg(lambda u: self.star(u) + self.rank, self.b, "auto")  # no constant part in the first process
        shifted = solved(dense(star), FULL - (np.arange(N) >= CUTS[1])[:, None])
        yield {"name": "affine", "error": self.error(affine, shifted)}
        solver = prepare(self.star, self.b, method="GMRES", preconditioner="chebyshev", **self.settings)
        yield {"name": "prepared", "error": self.error(solver.solve(2 * self.b).x, 2 * exact)}
        wind = dense(lambda u: star(u) + 0.3 * np.roll(u, 1, 1))
        roll = lambda u: self.lib.joined([u[:, -1:].T, u[:, :-1].T]).T  # noqa: E731
        found = linear_solve(lambda u: self.star(u) + 0.3 * roll(u), self.b, **self.settings)
        yield {"name": "not symmetric", "error": self.error(found.x, solved(wind)), "method": found.method}
        saddle = linear_solve(lambda u: self.star(u, 1.03), self.b, **self.settings)
        indefinite = solved(dense(lambda u: star(u, 1.03)))
        yield {"name": "indefinite", "error": self.error(saddle.x, indefinite), "method": saddle.method}
        many = np.stack([FULL, 0 * FULL, 3 * FULL])
        stacked = self.lib.array(many[:, self.rows])
        each = lambda u: self.lib.joined([self.star(v)[None] for v in u])  # noqa: E731
        for method in ("CG", "block-CG"):
            x = cg(each, stacked, method, batch_ndim=1)
            yield {"name": f"batch, {method}", "error": self.error(x, np.stack([exact, 0 * exact, 3 * exact]))}

    def empty(self) -> Iterator[dict[str, Any]]:
        """A part without unknowns, and a LinearOperator with its adjoint."""
        b = self.lib.array(FULL if self.rank == 0 else FULL[:0])
        x = linear_solve(lambda u: star(u) if len(u) else u, b, method="GMRES", **self.settings).x
        expected = solved(dense(star))[slice(None) if self.rank == 0 else slice(0)]
        yield {"name": "no unknowns", "error": float(np.abs(x - expected).max(initial=0))}
        shape = self.b.shape
        A = spl.LinearOperator((self.b.size,) * 2, *[lambda v: self.star(v.reshape(shape)).ravel()] * 2, dtype=float)
        for method in ("CG", "LSMR", "CGLS"):
            x = linear_solve(A, self.b.ravel(), method=method, **self.settings).x.reshape(shape)
            yield {"name": f"LinearOperator, {method}", "error": self.error(x, solved(dense(star)))}

    def derivatives(self) -> Iterator[dict[str, Any]]:
        import torch

        b, weights = (x.clone().requires_grad_() for x in (self.b, self.weights))
        settings = {**self.settings, "rtol": 1e-12}
        x = linear_solve(lambda u: self.star(u) + weights * u, b, method="CG", **settings).x
        (x**3).sum().backward()

        def whole(b: np.ndarray, weights: np.ndarray) -> float:
            return float((np.linalg.solve(dense(star) + np.diag(weights.ravel()), b.ravel()) ** 3).sum())

        rng, step = np.random.default_rng(2), 1e-5
        for name, gradient, given in (("by b", b.grad, 0), ("by what A depends on", weights.grad, 1)):
            v = rng.normal(size=(N, N))
            ends = [[FULL, WEIGHTS], [FULL, WEIGHTS]]
            ends[0][given], ends[1][given] = ends[0][given] - step * v, ends[1][given] + step * v
            expected = (whole(*ends[1]) - whole(*ends[0])) / (2 * step)
            here = torch.sum(gradient * self.lib.array(v[self.rows])).reshape(1)
            torch.distributed.all_reduce(here)
            yield {"name": name, "error": abs(float(here) - expected) / abs(expected)}

    def failures(self) -> Iterator[dict[str, Any]]:
        b, other = self.b, self.rank == 1
        bad = self.lib.array(FULL[self.rows])
        if other:
            bad[0, 0] = np.nan

        def attempt(name: str, A: Any = self.star, b: Any = b, **changes: Any) -> dict[str, Any]:
            settings: dict[str, Any] = {"method": "CG", **self.settings, **changes}
            try:
                found = linear_solve(A, b, **settings)
                return {"name": name, "raised": "", "message": found.message, "status": int(found.status)}
            except Exception as error:
                return {"name": name, "raised": type(error).__name__, "message": str(error)}

        def asked(state: Any) -> bool:
            return other and state.iterations == 5

        def broken(state: Any) -> None:
            if other:
                raise KeyError("callback")

        yield attempt("limit", max_iter=3)
        yield attempt("nan in a part", b=bad)
        yield attempt("status", b=bad, on_failure="status", method="GMRES")
        yield attempt("inconsistent", lambda u: self.star(u, 4.0, True), b + 1.0, max_iter=50)
        yield attempt("shape", lambda u: self.star(u)[: -1 if other else None])
        yield attempt("x0", x0=b[1:] if other else b)
        yield attempt("settings differ", method="MINRES" if other else "CG")
        yield attempt("start differs", x0=b if other else None)
        yield attempt("no vector", b="b" if other else b)
        yield attempt("null vectors", nullspace=b[None])
        yield attempt("direct", method="direct")
        yield attempt("scipy", method="scipy-cg")
        yield attempt("amg", preconditioner="amg")
        yield attempt("matrix", self.lib.array(np.eye(3)), self.lib.array(np.ones(3)))
        yield attempt("matrix_offset", matrix_offset=1.0)
        yield attempt("kind", over=self.lib.wrong)
        yield attempt("callback", callback=asked)
        yield attempt("broken callback", callback=broken)
        yield attempt("time", time_limit=1e-5 if other else 1e3)
        if not isinstance(b, np.ndarray):
            alone = b.clone().requires_grad_(other)
            yield attempt("recorded in one", b=alone)
        yield attempt("good")


def solved(A: np.ndarray, right: np.ndarray = FULL) -> np.ndarray:
    return np.linalg.lstsq(A, right.ravel(), rcond=1e-12)[0].reshape(N, N)


def groups(cases: Cases, library: str, names: list[str]) -> dict[str, Callable[[], Iterator[dict[str, Any]]]]:
    """Those of these names, of which those of methods say which; all, where there are none."""
    found = {"choices": cases.choices, "empty": cases.empty, "derivatives": cases.derivatives}
    del found["empty" if library == "torch" else "derivatives"]
    asked = {name: run for name, run in {**found, "failures": cases.failures}.items() if name in names or not names}
    return {"methods": lambda: cases.methods([name for name in names if name in METHODS]), **asked}


if __name__ == "__main__":
    which, names = sys.argv[1], sys.argv[2:]
    library = with_mpi() if which == "mpi" else with_torch()
    for group, run in groups(Cases(library), which, names).items():
        for case in run():
            tell(library.rank, group=group, **case)
    library.close()
