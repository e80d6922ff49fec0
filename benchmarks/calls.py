"""`python -m benchmarks.calls`: how many Python functions a small solve calls, and how many files it leads through.

Counted, not timed: the second of two solves of 16 unknowns with CG, in 8 iterations. Calls and files are krylix's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import scipy.sparse as sp

import krylix
from krylix import linear_solve, set_global_setup_cache

from .overhead import system

_FOLDERS = tuple(
    os.path.realpath(os.path.join(os.path.dirname(krylix.__file__), name)) for name in ("backends", "sparse", "solvers")
)
_PRODUCTS = ("product", "_matmul_vector", "_by_loop")  # the function below, SciPy's product, and ours by its loop


class Count:
    """Calls of krylix's Python functions, and its files in the order in which they are reached."""

    def __init__(self) -> None:
        self.calls, self.files, self.before_product = 0, [], None  # type: tuple[int, list[str], int | None]

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        """What `sys.setprofile` calls."""
        if event != "call":
            return
        if frame.f_code.co_name in _PRODUCTS and self.before_product is None:
            self.before_product = len(self.files)
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(_FOLDERS):
            self.calls += 1
            if file not in self.files:
                self.files.append(file)


def counted(call: Callable[[], Any]) -> Count:
    """The second call: the first one fills caches."""
    call()
    count = Count()
    sys.setprofile(count.hook)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def main() -> None:
    A, b = system()
    sparse = sp.csr_array(A)

    def product(x: Any) -> Any:
        return A @ x

    print("| CG, NumPy, 8 iterations | calls | files before the first product | files |")
    print("|-------------------------|-------|--------------------------------|-------|")
    set_global_setup_cache(False)
    for name, operator in {"function": product, "csr_array": sparse}.items():
        found = counted(lambda M=operator: linear_solve(M, b, method="CG"))  # type: ignore[misc]
        print(f"| {name:<23} | {found.calls:<5} | {found.before_product:<30} | {len(found.files):<5} |")


if __name__ == "__main__":
    main()
