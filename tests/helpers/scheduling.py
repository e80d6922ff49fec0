"""`pytest -n 2` hands out whole files, the longest first, so that no process waits long for the last of another."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

# The tests of a file share what was compiled for the first of them. So do those of contracts that solve one system by
# every method, which lie in three files.
ONE_PROGRAM = ("solvers/test_basics.py", "solvers/test_batches.py", "solvers/test_failures.py")

A_TEST = 0.15  # processor seconds, on average
# Of files, where these are far from that for the number of their tests: `pytest -m "not slow" --processor-time`.
SECONDS = {
    "solvers/preconditioners/test_single_precision.py": 100,
    "solvers/test_setup_cache.py": 90,
    "solvers/derivatives/test_tensorflow.py": 85,
    "solvers/preconditioners/test_runtime_choice.py": 75,
    "solvers/methods/test_scipy_cases.py": 70,
    "solvers/preconditioners/test_multigrid.py": 65,
    "adapters/test_lineax_adapter.py": 65,
    "solvers/derivatives/test_tensorflow_closures.py": 50,
    "solvers/test_cached_programs.py": 50,
    "test_documents.py": 45,
    "solvers/preconditioners/test_amg_traced.py": 40,
    "solvers/test_unknown_batch.py": 40,
    "solvers/test_ladder.py": 40,
    "solvers/test_devices.py": 40,
    "sparse/tracing/test_tensorflow_coefficients.py": 30,
    "solvers/derivatives/test_least_squares_derivatives.py": 25,
    "solvers/preconditioners/test_damaged_files.py": 25,
    "sparse/tracing/test_tensorflow_random.py": 20,
    "solvers/test_sharding.py": 20,
    "solvers/preconditioners/test_computed_once.py": 15,
    "sparse/tracing/test_numpy_programs.py": 15,
    "sparse/tracing/test_torch_random.py": 15,
    "test_benchmarks.py": 10,
}


class LongestFirst(LoadFileScheduling):
    """Hands out the file that is expected to take longest."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "one system by every method" if file.endswith(ONE_PROGRAM) else file

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self._seconds), last=False)
        super()._assign_work_unit(node)

    def _seconds(self, scope: str) -> float:
        tests = len(self.workqueue[scope])
        return SECONDS.get(scope.removeprefix("tests/"), A_TEST * tests)
