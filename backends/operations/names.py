"""Operations as attributes, for editors: written by tests/helpers/operation_names.py."""

from __future__ import annotations

from typing import Any


def _operation(*args: Any, **settings: Any) -> Any: ...


class Names:
    """Operations of OPERATIONS that are no methods of Backend itself."""

    acos = acosh = add = all = arange = argmax = argmin = argsort = asin = asinh = atan = atan2 = atanh = _operation
    auto_cast = batched_gather_nd = bi_conjugate_gradient = bincount = bitwise_and = bitwise_invert = _operation
    bitwise_left_shift = bitwise_or = bitwise_right_shift = bitwise_xor = block_until_ready = _operation
    boolean_mask = broadcast_arrays = broadcast_size = can_cast = ceil = clip = compile = _operation
    conjugate_gradient = conjugate_gradient_adaptive = conv = copy_leaves = copysign = cos = cosh = _operation
    count_nonzero = cumulative_prod = cumulative_sum = custom_gradient = diff = divide = eig = eigvals = _operation
    einsum = empty = empty_like = equal = erf = exp = expand_dims = expm1 = eye = factorial = fft = _operation
    finfo = floor = floor_divide = from_dlpack = gammainc = gammaincc = gather_nd = get_sparse_format = _operation
    greater = greater_equal = grid_sample = hessian = histogram = hypot = ifft = iinfo = imag = _operation
    indexed_segment_sum = is_available = is_sparse = isdtype = isinf = isnan = jacobian = less = _operation
    less_equal = lgamma = linear_solve = linspace = linspace_without_last = log = log10 = log1p = log2 = _operation
    logaddexp = logical_and = logical_not = logical_or = logical_xor = lstsq = matmul = matrix_rank = _operation
    max = mean = meshgrid = min = minimum = moveaxis = multi_slice = multiply = negative = nextafter = _operation
    nonzero = not_equal = numpy_call = ones = ones_like = pad_to = positive = pow = prod = quantile = _operation
    random_key = random_normal = random_permutations = random_split = random_uniform = ravel_multi_index = _operation
    reciprocal = remainder = repeat = result_type = roll = round = scatter = scatter_nd = searchsorted = _operation
    seed = shape = sigmoid = sign = signbit = sin = sinh = size = softplus = sort = square = squeeze = _operation
    stack_leaves = staticshape = std = stop_gradient = subtract = svd = take = take_along_axis = _operation
    take_apart = tan = tanh = tensordot = tile = tile_to = to_complex = to_float = to_int32 = to_int64 = _operation
    tril = triu = trunc = unique = unique_all = unique_counts = unique_inverse = unique_values = _operation
    unravel_index = unstack = var = variable = vecdot = _operation
