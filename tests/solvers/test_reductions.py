"""Reductions over unknowns go through named functions of the backend, which a communicator sums over its members.

`dot`, `dots`, `stack_dots`, `square_norm`, `axpy_norm`, `norm`, `max_abs` and `binary_scale` are such; `sum`, `any`,
`product` and what NumPy calls so are not: each of them below says what it reduces that is the same in all members.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from library import label, library_files

FOLDERS = ("solvers/methods/", "solvers/run/", "solvers/adapters/members.py")
# What runs for whole vectors only: `adapters/members.py` refuses these.
WHOLE = ("solvers/methods/petsc/", "solvers/methods/scipy_methods.py")
UNNAMED = {"sum", "product", "any", "all", "max", "min", "mean", "prod", "norm", "vdot", "dot", "einsum", "matmul"}
NAMED = {"dot", "norm"}  # of `bk`
# How often, by file. `any` asks statuses and conditions (batch, 1), which follow from sums over all members; `sum` and
# `product` are over the vectors of a basis, or their coefficients.
REASONS = {
    "run/loop.py": {"all": 2, "any": 11, "max": 2},  # statuses, iterations, and a number for the log
    "run/by_systems.py": {"all": 1, "max": 1},  # norms of whole systems, which no communicator divides
    "run/checkpoints.py": {"any": 2, "sum": 2},  # counts of iterations
    "run/stopping.py": {"any": 1},
    "run/watch.py": {"any": 1, "max": 2},  # of numbers on the host, one for each system
    "methods/block_cg.py": {"any": 2, "max": 2, "product": 2},  # matrices (k, k) of k systems
    "methods/gmres.py": {"any": 1, "product": 1, "sum": 2},
    "methods/idr.py": {"any": 1, "sum": 2},
    "methods/shared.py": {"max": 1, "min": 1, "product": 1},
    # Of norms, entries of this member, lengths of parts, and what all members are told.
    "adapters/members.py": {"all": 1, "any": 3, "max": 1, "min": 1, "prod": 1, "sum": 3},
}


def reductions(path: Path) -> Iterator[tuple[str, int]]:
    """Calls of such names, and products with `@`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield "@", node.lineno
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "sum":  # Python's others give no number of an array
            yield "sum", node.lineno
        if isinstance(called, ast.Attribute) and called.attr in UNNAMED:
            owner = called.value
            who = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
            if not (who == "communicator" or (who == "bk" and called.attr in NAMED)):
                yield called.attr, node.lineno


def found() -> dict[str, dict[str, list[int]]]:
    places: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in library_files():
        name = label(path)
        if name.startswith(FOLDERS) and not name.startswith(WHOLE):
            for kind, line in reductions(path):
                places[name.removeprefix("solvers/")][kind].append(line)
    return places


def test_no_reduction_that_a_communicator_does_not_see() -> None:
    """A sum over unknowns by another name is the one of this member's part, and members would part ways."""
    counts = {name: {kind: len(lines) for kind, lines in kinds.items()} for name, kinds in found().items()}
    assert counts == REASONS, "use a named reduction of the backend, or count above what is none over unknowns"
