"""OPERATIONS: every operation of a backend by name. Types, documentation and tests are made from this table."""

from __future__ import annotations

from typing import NamedTuple

from ..standard.names import RULES
from .added import ADDED

# By the module of this folder that composes them. A name of the standard that stands here, too, has more arguments.
_COMPOSED = {
    "derivatives": "hessian jacobian",
    "special": "sigmoid softplus",
}
# Each library's own function, with no other way to compute it.
_NATIVE = {
    "special": "erf gammainc gammaincc lgamma",
}
# Names without derivatives: their results are integers, conditions or dtypes.
_WITHOUT_DERIVATIVES = {
    *("all", "any", "argmax", "argmin", "argsort", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or"),
    *("bitwise_right_shift", "bitwise_xor", "can_cast", "count_nonzero", "equal", "finfo", "greater", "greater_equal"),
    *("iinfo", "isdtype", "isfinite", "isinf", "isnan", "less", "less_equal", "logical_and", "logical_not"),
    *("logical_or", "logical_xor", "nonzero", "not_equal", "result_type", "searchsorted", "signbit"),
    *("unique_all", "unique_counts", "unique_inverse", "unique_values"),
}
# Names whose result has a size that depends on numbers: arguments that say it; None where none does.
_SIZED_BY_NUMBERS: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(("unique_all", "unique_counts", "unique_inverse", "unique_values")),
}


class BackendOperation(NamedTuple):
    """An operation of every backend.

    Attributes:
        name: as an attribute of a backend.
        group: of operations that are alike; "standard" for those of the array API standard.
        module: of `backends.operations` that composes it; None where the standard or each library has it.
        differentiable: has the result derivatives?
        static_needs: arguments without which the size of the result depends on numbers, so that compiled functions
            and `vmap` refuse it; None: they always do.
    """

    name: str
    group: str
    module: str | None = None
    differentiable: bool = True
    static_needs: tuple[str, ...] | None = ()


def _rows() -> dict[str, BackendOperation]:
    composed = {name: group for group, names in _COMPOSED.items() for name in names.split()}
    native = {name: group for group, names in _NATIVE.items() for name in names.split()}
    groups = {**{name: "standard" for name in RULES if "." not in name}, **native, **composed}
    rows = {
        name: BackendOperation(
            name, group, composed.get(name), name not in _WITHOUT_DERIVATIVES, _SIZED_BY_NUMBERS.get(name, ())
        )
        for name, group in groups.items()
    }
    rows.update({name: BackendOperation(name, group) for name, (group, _) in ADDED.items()})
    return dict(sorted(rows.items()))


OPERATIONS = _rows()
