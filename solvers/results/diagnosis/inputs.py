"""Diagnosis of non-finite numbers in b, x0, A and M."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....sparse import Layout
from ...run.outcome import Status
from ..advice import Cause, from_the_start
from .case import Case

_LOOK = ("look for the division or the overflow that made NaN or infinity",)

_MEND = ("mend it", "leave it out")


def not_finite_cause(case: Case) -> list[Cause]:
    """Cause: non-finite inputs, or products that give non-finite numbers."""
    causes = []
    w = case.numbers.worst
    if case.b is None and case.status is Status.DIVERGED and not case.numbers.steps[w]:
        return [from_the_start()]
    if case.right is not None:
        causes += _of_rows("b", *case.right)
    if case.x0 is not None and case.layout is not None:
        causes += _of_rows("x0", case.x0, case.layout)
    causes += _of_matrix(case) or ([] if causes else _of_product(case))
    return causes or _of_preconditioner(case)


def _of_rows(name: str, rows: np.ndarray, layout: Layout) -> list[Cause]:
    bad = ~np.isfinite(rows)
    count = int(bad.sum())
    if not count:
        return []
    system, index = np.unravel_index(int(np.argmax(bad)), bad.shape)
    first = f"{rows[system, index]} at {place(layout, int(system), int(index))}"
    seen = f"{name} is not finite: {first}" if count == 1 else (
        f"{count} of the {bad.size} numbers in {name} are not finite; the first is {first}"
    )  # fmt: skip
    return [Cause(seen, _LOOK)]


def place(layout: Layout, system: int, index: int) -> str:
    """Index of an unknown in the user's arrays; in a container also the number of the array."""
    batch = tuple(int(i) for i in np.unravel_index(system, layout.batch)) if layout.batch else ()
    for number, shape in enumerate(layout.shapes):
        size = int(np.prod(shape, dtype=np.int64))
        if index < size:
            own = tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()
            at = len(batch) if layout.axis is None else layout.axis % (len(batch) + 1)
            return f"{(*batch[:at], *own, *batch[at:])}" + ("" if layout.structure is None else f" of array {number}")
        index -= size
    return f"unknown {index}"


def _of_matrix(case: Case) -> list[Cause]:
    matrix = case.matrix
    if matrix is None:
        return []
    entries = sp.coo_array(matrix) if sp.issparse(matrix) else None
    values = matrix if entries is None else entries.data
    bad = ~np.isfinite(values)
    count = int(bad.sum())
    if not count:
        return []
    first = int(np.argmax(bad))
    where = np.unravel_index(first, bad.shape) if entries is None else [c[first] for c in entries.coords]
    row, column = (int(i) for i in where)
    many = "1 entry" if count == 1 else f"{count} entries"
    verb, which = ("is", "it is") if count == 1 else ("are", "the first is")
    return [
        Cause(f"{many} of A{case.of_which} {verb} not finite: {which} {values.flat[first]} at ({row}, {column})", _LOOK)
    ]


def _of_product(case: Case) -> list[Cause]:
    if case.A_image is None or case.A is None or case.layout is None:
        return []
    image = case.A_image(case.random(11, case.A.shape[1]))
    if np.isfinite(image).all():
        return []
    system, index = np.unravel_index(int(np.argmax(~np.isfinite(image))), image.shape)
    where = place(case.layout, int(system), int(index))
    if case.matrix is None:
        return [
            Cause(
                f"{case.name} x is not finite for an x of finite numbers of size 1: {image[system, index]} at {where}",
                _LOOK,
            )
        ]
    largest = float(np.max(np.abs(case.matrix.data if sp.issparse(case.matrix) else case.matrix)))
    return [
        Cause(
            f"products with A overflow in {case.dtype}: its largest entry is {largest:.1e}",
            ("divide A and b by that number",),
        )
    ]


def _of_preconditioner(case: Case) -> list[Cause]:
    if case.M_image is None or case.A is None or case.layout is None:
        return []
    image = case.M_image(case.random(11, case.A.shape[0]))
    if not np.isfinite(image).all():
        system, index = np.unravel_index(int(np.argmax(~np.isfinite(image))), image.shape)
        return [
            Cause(
                f"the preconditioner makes {image[system, index]} at {place(case.layout, int(system), int(index))} of "
                "a vector of finite numbers",
                _MEND,
            )
        ]
    if not image.any():
        return [Cause("the preconditioner makes zeros of a vector of random numbers", _MEND)]
    return []
