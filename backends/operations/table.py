"""OPERATIONS: every operation of a backend by name. Types, documentation and tests are made from this table."""

from __future__ import annotations

from typing import NamedTuple

from ..standard.names import RULES
from .added import ADDED

# By the module of this folder that composes them. A name of the standard that stands here, too, has more arguments.
_COMPOSED = {
    "custom_gradient": "custom_gradient",
    "derivatives": "hessian jacobian",
    "random": "random_key random_normal random_permutations random_split random_uniform seed",
    "whole": "block_until_ready compile numpy_call stop_gradient",
    "shapes": """broadcast_size copy_leaves expand_dims linspace_without_last multi_slice pad pad_to repeat stack_leaves
        tile_to unstack""",
    "gathering": "batched_gather_nd gather_nd ravel_multi_index scatter scatter_nd take unravel_index",
    "lists": "bincount boolean_mask histogram indexed_segment_sum nonzero quantile searchsorted unique",
    "grids": "conv fft grid_sample ifft",
    "products": "tensordot",
    "dense": "lstsq matrix_rank svd",
    "special": "factorial sigmoid softplus",
    "inspection": """auto_cast get_sparse_format is_available is_sparse shape size staticshape take_apart to_complex
        to_float to_int32 to_int64 variable""",
}
# Each library's own function, with no other way to compute it; by the rule of the standard for arguments like these.
_NATIVE = {
    "products": {"einsum": "subscripts"},
    "dense": {"eig": "real", "eigvals": "real"},
    "special": {"erf": "real", "gammainc": "real_pair", "gammaincc": "real_pair", "lgamma": "real"},
}
# Names without derivatives: their results are integers, conditions or dtypes, or they are not called in a derivative.
_WITHOUT_DERIVATIVES = {
    *("all", "any", "argmax", "argmin", "argsort", "bincount", "bitwise_and", "bitwise_invert", "bitwise_left_shift"),
    *("bitwise_or", "bitwise_right_shift", "bitwise_xor", "broadcast_size", "can_cast", "count_nonzero", "equal"),
    *("finfo", "get_sparse_format", "greater", "greater_equal", "iinfo", "is_available", "is_sparse", "isdtype"),
    *("isfinite", "isinf", "isnan", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor"),
    *(
        "matrix_rank",
        "nonzero",
        "not_equal",
        "random_key",
        "random_permutations",
        "random_split",
        "seed",
        "ravel_multi_index",
        "result_type",
        "searchsorted",
        "shape",
        "signbit",
    ),
    *("size", "staticshape", "take_apart", "to_int32", "to_int64", "unique", "unique_all", "unique_counts"),
    *("unique_inverse", "unique_values", "unravel_index", "variable"),
}
# Names whose result has a size that depends on numbers: arguments that say it; None where none does.
_SIZED_BY_NUMBERS: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values")),
    "bincount": ("bins",),
    "boolean_mask": ("new_length",),
    "nonzero": ("length",),
    "repeat": ("new_length",),
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
        rule: what becomes of the dtypes of the arguments of each library's own function; see `standard.promotion`.
    """

    name: str
    group: str
    module: str | None = None
    differentiable: bool = True
    static_needs: tuple[str, ...] | None = ()
    rule: str = "any"


def _rows() -> dict[str, BackendOperation]:
    composed = {name: module for module, names in _COMPOSED.items() for name in names.split()}
    native = {name: group for group, names in _NATIVE.items() for name in names}
    rules = {name: rule for names in _NATIVE.values() for name, rule in names.items()}
    groups = {**{name: "standard" for name in RULES if "." not in name}, **native, **composed}
    rows = {
        name: BackendOperation(
            name,
            group,
            composed.get(name),
            name not in _WITHOUT_DERIVATIVES,
            _SIZED_BY_NUMBERS.get(name, ()),
            rules.get(name, "any"),
        )
        for name, group in groups.items()
    }
    rows.update({name: BackendOperation(name, group) for name, (group, _) in ADDED.items()})
    return dict(sorted(rows.items()))


OPERATIONS = _rows()
