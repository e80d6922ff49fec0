"""OPERATIONS: every operation of a backend by name. Types, documentation and tests are made from this table."""

from __future__ import annotations

from typing import NamedTuple

from ..standard.library import RULES
from .binding import ADDED

# By the module of this folder that composes them. A name of the standard that stands here, too, has more arguments.
_COMPOSED = {
    "functions": "block_until_ready compile custom_gradient hessian jacobian numpy_call stop_gradient",
    "random": "random_key random_normal random_permutations random_split random_uniform seed",
    "shapes": """broadcast_size copy_leaves expand_dims linspace_without_last multi_slice pad pad_to repeat stack_leaves
        tile_to unstack""",
    "gathering": "batched_gather_nd gather_nd ravel_multi_index scatter scatter_nd take unravel_index",
    "lists": "bincount boolean_mask histogram indexed_segment_sum nonzero quantile searchsorted unique",
    "grids": "conv fft grid_sample ifft",
    "mathematics": "factorial lstsq matrix_rank sigmoid softplus svd tensordot",
    "inspection": """auto_cast get_sparse_format is_available is_sparse shape size staticshape take_apart to_complex
        to_float to_int32 to_int64 variable""",
}
# Each library's own function, with no other way to compute it; by the rule of the standard for arguments like these.
_NATIVE = {
    "einsum": "subscripts",
    **dict.fromkeys(("eig", "eigvals", "erf", "lgamma"), "real"),
    **dict.fromkeys(("gammainc", "gammaincc"), "real_pair"),
}
# Names without derivatives: their results are integers, conditions or dtypes, or they are not called in a derivative.
_WITHOUT_DERIVATIVES = """
    all any argmax argmin argsort bincount bitwise_and bitwise_invert bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor broadcast_size can_cast count_nonzero equal finfo get_sparse_format greater
    greater_equal iinfo is_available is_sparse isdtype isfinite isinf isnan less less_equal logical_and logical_not
    logical_or logical_xor matrix_rank nonzero not_equal random_key random_permutations random_split
    ravel_multi_index result_type searchsorted seed shape signbit size staticshape take_apart to_int32 to_int64
    unique unique_all unique_counts unique_inverse unique_values unravel_index variable
"""
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
    native = dict.fromkeys(_NATIVE, "mathematics")
    without_derivatives = set(_WITHOUT_DERIVATIVES.split())
    groups = {**{name: "standard" for name in RULES if "." not in name}, **native, **composed}
    rows = {
        name: BackendOperation(
            name,
            group,
            composed.get(name),
            name not in without_derivatives,
            _SIZED_BY_NUMBERS.get(name, ()),
            _NATIVE.get(name, "any"),
        )
        for name, group in groups.items()
    }
    rows.update({name: BackendOperation(name, group) for name, (group, _) in ADDED.items()})
    return dict(sorted(rows.items()))


OPERATIONS = _rows()


# --- Other words for operations, as PhiML's backends have them: each is the operation itself --------------------------

_ALIASES = """
    and_=bitwise_and arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctan2=atan2 arctanh=atanh
    batch_gather=take batched_bincount=bincount batched_gather_1d=take_along_axis cast=astype cumsum=cumulative_sum
    determine_size=broadcast_size disassemble=take_apart div=divide divide_no_nan=safe_divide floordiv=floor_divide
    gamma_inc_l=gammainc gamma_inc_u=gammaincc gather=take gather_1d=take get_default_device=default_device
    greater_or_equal=greater_equal greater_than=greater histogram1d=histogram invert=bitwise_invert
    jit_compile=compile log_gamma=lgamma matrix_rank_dense=matrix_rank matrix_solve_least_squares=lstsq
    mod=remainder mul=multiply mul_matrix_batched_vector=product or_=bitwise_or scatter_1d_scalar=scatter_nd
    scatter_nd_scalar=scatter_nd shift_bits_left=bitwise_left_shift shift_bits_right=bitwise_right_shift
    stop_gradient_tree=stop_gradient sub=subtract transpose=permute_dims xor=bitwise_xor
"""
ALIASES = dict(pair.split("=") for pair in _ALIASES.split())
