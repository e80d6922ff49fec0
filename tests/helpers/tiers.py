"""Which tests run when: in `pytest`, before a merge, or on demand. `tests/README.md` says what the tiers cover.

A test without a marker is in the default tier, unless its parameters say that it compiles a program which is much like
that of another test: the compiled modes of all methods but some, which stand for the others. A few more of these run in
`merge`, all of them where the test is marked `every_method`, and the rest on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest

TIERS = ("default", "merge", "slow")
_FIRST = "the first solve of a process in each library"
_PROGRAM = "one program of each kind: it is compiled that is tested"
_EAGER = "eager JAX on purpose: each operation is a program"
_PROCESS = "a process of its own"
# Tests of the default tier of which some cell takes more than a processor second, and why; at most 40.
EXPENSIVE = {
    "solvers/test_basics.py::test_solution": _FIRST,
    "solvers/test_preconditioners.py::test_applied_and_transposed": _FIRST,
    "solvers/test_peers.py::test_solution": "the first import of lineax",
    "solvers/derivatives/test_torch.py::test_autograd": "the first derivative of PyTorch",
    "layers/test_torch_graphs.py::test_registration": "the first use of PyTorch's modules",
    "solvers/test_devices.py::test_on_four_devices": _PROCESS,
    "solvers/factors/test_sparse_factors.py::test_rslab_in_a_forked_process": _PROCESS,
    "test_imports.py::test_fresh_interpreter": _PROCESS,
    "test_imports.py::test_works_without_links": _PROCESS,
    "command_line/test_process.py::test_as_a_process": _PROCESS,
    "sparse/tracing/test_jax_coefficients.py::test_traced": _PROGRAM,
    "test_documents.py::test_docstrings": "all code in docstrings",
    "sparse/tracing/test_jax_programs.py::test_programs": "a dozen random programs",
    "solvers/test_batches.py::test_scaled_zero_and_nan_systems": _PROGRAM,
    "solvers/test_trivial.py::test_zero_and_exact_start": _PROGRAM,
    "solvers/test_failures.py::test_limit_of_iterations": _PROGRAM,
    "solvers/test_results.py::test_dtypes_follow_the_inputs": _PROGRAM,
    "solvers/test_results.py::test_history_changes_nothing": _PROGRAM,
    "solvers/test_results.py::test_progress": _PROGRAM,
    "solvers/test_prepare.py::test_in_compiled_functions": _PROGRAM,
    "solvers/test_unknown_batch.py::test_each_system": _PROGRAM,
    "solvers/test_ladder.py::test_climbs": _PROGRAM,
    "solvers/test_ladder.py::test_nothing_is_factorised_on_success": _PROGRAM,
    "solvers/test_on_failure.py::test_only_x_of_failed_systems_differs": _PROGRAM,
    "solvers/test_sparse_batches.py::test_derivatives_jax": _PROGRAM,
    "solvers/test_sparse_batches.py::test_derivatives_tensorflow": _PROGRAM,
    "solvers/test_preconditioners.py::test_gradients_do_not_depend_on_it": _PROGRAM,
    "solvers/derivatives/test_tensorflow.py::test_variables": _PROGRAM,
    "solvers/derivatives/test_tensorflow.py::test_forward_mode_is_refused": _PROGRAM,
    "solvers/gaussian/test_logdet.py::test_estimate": _PROGRAM,
    "solvers/factors/test_banded.py::test_values_that_are_traced": _PROGRAM,
    "solvers/preconditioners/test_amg_traced.py::test_solve_with_traced_values": _PROGRAM,
    "solvers/preconditioners/test_multigrid.py::test_known_and_traced_values": _PROGRAM,
    "solvers/preconditioners/test_runtime_choice.py::test_solves": _PROGRAM,
    "solvers/preconditioners/test_runtime_choice.py::test_which_is_applied": _PROGRAM,
    "solvers/preconditioners/test_single_precision.py::test_values_that_a_program_computes": _PROGRAM,
    "sparse/test_linearity.py::test_affine_functions": _PROGRAM,
    "sparse/test_operators.py::test_everything_of_every_operand": _PROGRAM,
    "solvers/test_transformations.py::test_auto_in_eager_jax": _EAGER,
    "solvers/test_preconditioners.py::test_mapped_over_systems": _EAGER,
}
# One of each kind of program: iterations, factors, and the host.
REPRESENTATIVE = ("CG", "direct", "scipy-CG")
# Methods that differ from another one in the library that factors only: they run in `_MODES_OF_VARIATIONS`.
VARIATIONS = {"sparse-direct": "scipy-direct"}
_MODES_OF_VARIATIONS = (None, "numpy", "jax-jit")
# And those with other loops: with long recurrences, and of least squares.
BEFORE_A_MERGE = (*REPRESENTATIVE, "GMRES", "LSMR")
# JAX compiles what it runs eagerly, too; and what TensorFlow runs eagerly takes as long as a program of others.
COMPILING = ("jax", "jax-jit", "tf", "tf-function", "torch-compile")
# Where the same programs run that `jax-jit`, `tf` and `torch` run: for these methods; the others on demand.
AGAIN = {"jax": ("CG",), "tf-function": ("CG",), "torch-compile": ("CG", "direct")}


def tier(markers: Mapping[str, Any], parameters: Mapping[str, Any], mode: Any = None) -> str:
    """The tier of a test with these markers (by name) and parameters; `mode` is that of a file without a parameter.

    The marker `compiled_by_default(*methods, modes=...)` says which cells of a test compile in the default tier:
    instead of `REPRESENTATIVE` these methods, none where none is named, and of the modes that compile these; with
    `eagerly=True` also eagerly in JAX, beside the same cell in `jit`. The marker `every_method` says that the others
    run before a merge: all in `jit` and eagerly in TensorFlow. Those of `VARIATIONS` run on demand in other modes than
    NumPy and `jit`.
    """
    is_variation = str(parameters.get("method")) in VARIATIONS
    if is_variation and parameters.get("mode", mode) not in _MODES_OF_VARIATIONS:
        return "slow"
    for name in ("slow", "merge"):
        if name in markers:
            return name
    if parameters.get("mode") not in COMPILING:
        return "default"
    mark = markers.get("compiled_by_default")
    methods = REPRESENTATIVE if mark is None else mark.args
    modes = COMPILING if mark is None else mark.kwargs.get("modes", COMPILING if mark.args else ())
    method, mode = parameters.get("method"), parameters["mode"]
    if not isinstance(method, str):  # each dtype is a program; of tests that are not about methods one is enough
        return "default" if mode in modes and parameters.get("dtype") not in _OTHER_DTYPES else "merge"
    stands_for_others = (method in methods and (mark or method in AGAIN.get(mode, methods))) if methods else True
    if stands_for_others and mode in modes:
        return "default"
    named = () if mark is None else mark.args
    if mode in AGAIN:
        return "merge" if method in (*AGAIN[mode], *named) else "slow"
    others = named if mode == "tf" else (*BEFORE_A_MERGE, *named)
    return "merge" if "every_method" in markers or method in others else "slow"


_OTHER_DTYPES = ("complex64", "complex128")


class Cell(NamedTuple):
    """A test that was collected."""

    test: str  # "solvers/test_basics.py::test_solution"
    mode: str | None
    method: str | None
    tier: str
    named: bool  # does the test itself say that this mode compiles by default?
    asked: frozenset[str] = frozenset()  # the methods and modes that the test's own marker names

    def beside_its_twin(self, tier: str | None) -> Cell:
        """Later, where the same program runs in another mode, of `TWINS`, in this tier: a solve on demand."""
        waits = tier == self.tier and (self.tier == "merge" or (self.tier, self.mode) == ("default", "jax"))
        if not waits or (self.named and self.tier == "default"):
            return self
        return self._replace(tier="merge" if self.tier == "default" and self.method is None else "slow")


# What JAX runs eagerly it compiles too, and what TensorFlow traces runs the same operations eagerly.
TWINS = {"jax": "jax-jit", "tf-function": "tf"}

CELLS = pytest.StashKey[list[Cell]]()  # every test that was collected, whether it runs now or not
IMPORTED = pytest.StashKey[list[str]]()  # the frameworks that were imported when they were collected

# Files without a parameter `mode`: what they test, where the parameter `transform` says nothing else.
_MODES = {"test_sensitivity": "numpy", "test_jax": "jax", "test_torch": "torch", "test_tensorflow": "tf"}


def cell(node: str, markers: Mapping[str, Any], parameters: Mapping[str, Any], own: Iterable[Any] = ()) -> Cell:
    """Of a test's id, from `tests/` on; `own` are the markers that are not those of its module."""
    test, method = node.partition("[")[0], parameters.get("method")
    mode = next(
        (m for start, m in _MODES.items() if test.partition("::")[0].rpartition("/")[2].startswith(start)), None
    )
    if mode is not None:
        transform = str(parameters.get("transform", test))
        for word, compiled in (("jit", "jax-jit"), ("graph", "tf-function"), ("test_compile", "torch-compile")):
            mode = compiled if word in transform and compiled.startswith(mode) else mode
    mode = parameters.get("mode", mode)
    method = method if isinstance(method, str) else None
    mark = markers.get("compiled_by_default")
    named = mark is not None and (
        mode in mark.kwargs.get("modes", ()) or (mark.kwargs.get("eagerly", False) and method in AGAIN["jax"])
    )
    marks = (m for m in own if m.name == "compiled_by_default")
    asked = frozenset(name for m in marks for name in (*m.args, *m.kwargs.get("modes", ())))
    found = tier(markers, parameters, mode)
    return Cell(test, mode if isinstance(mode, str) else None, method, found, named, asked)
