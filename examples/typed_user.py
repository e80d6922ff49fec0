"""A small typed program: `mypy --strict` and pyright see what solves return.

A rod is heated at one end and cooled along its side. The program solves for its temperature, asks how much more heat a
longer rod gives off, and keeps the numbers of each solve in a typed record. With PyTorch installed it differentiates
the same system by the cooling.
"""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import krylix
from krylix.solvers import MethodName, OnFailure

Vector: TypeAlias = NDArray[np.float64]  # and matrices


@dataclass(frozen=True)
class Run:
    """What is kept of a solve."""

    method: str
    iterations: int
    seconds: float
    heat: float


def rod(cells: int, cooling: float) -> Vector:
    """The matrix of -u'' + cooling u on cells of size 1 / 100, with u fixed at the left end."""
    beside = np.eye(cells, k=1) + np.eye(cells, k=-1)
    return 1e4 * (2 * np.eye(cells) - beside) + cooling * np.eye(cells)


def heated(cells: int) -> Vector:
    """The right-hand side: a temperature of 1 at the left end."""
    b = np.zeros(cells)
    b[0] = 1e4
    return b


def solve(cells: int, method: MethodName = "auto", on_failure: OnFailure = "raise") -> tuple[Vector, Run]:
    """The temperature and a record of how it was found."""
    b = heated(cells)
    result = krylix.linear_solve(rod(cells, 25.0), b, method=method, on_failure=on_failure)
    if not result.converged:
        print(result.message)
    x: Vector = result.x
    seconds = (result.setup_time or 0.0) + (result.solve_time or 0.0)
    return x, Run(result.method, result.iterations, seconds, float(25.0 * 0.01 * x.sum()))


def many_loads(cells: int, loads: list[Vector]) -> list[Vector]:
    """Solutions with factors that are made once."""
    solver: krylix.PreparedSolver = krylix.prepare(rod(cells, 25.0))
    return [solver(load) for load in loads]


def slope_by_torch(cells: int) -> float:
    """The derivative of the heat by the cooling, by PyTorch."""
    import torch

    matrix = torch.tensor(rod(cells, 0.0))
    cooling = torch.tensor(25.0, dtype=torch.float64, requires_grad=True)
    x = krylix.linear_solve(matrix + cooling * torch.eye(cells), torch.tensor(heated(cells))).x
    (slope,) = torch.autograd.grad(0.01 * cooling * x.sum(), cooling)
    return float(slope)


def main() -> None:
    """Compare methods, lengths and loads."""
    methods: list[MethodName] = ["auto", "CG", "MINRES"]
    for method in methods:
        x, run = solve(100, method)
        print(f"{run.method:>12}: {run.iterations:>3} iterations, heat {run.heat:.4f}, end at {x[-1]:.4f}")
    print(f"twice as long: heat {solve(200)[1].heat:.4f}")
    first, second = many_loads(100, [heated(100), np.ones(100)])
    print(f"heated at the end {first.mean():.4f}, everywhere {second.mean():.4f} on average")
    result = krylix.linear_solve(rod(50, 25.0), heated(50), method="CG", on_failure="status")
    print(json.dumps({name: result.to_dict()[name] for name in ("status", "iterations", "converged")}))
    if find_spec("torch") is not None:
        print(f"a unit of cooling more: {slope_by_torch(50):+.4f}")


if __name__ == "__main__":
    main()
