"""A linear operation that a library has and that tracing has no rule for is found here, or has a reason.

Each library is asked what it has: NumPy for the functions that an array may override, JAX for the primitives that it
can transpose, which are the linear ones, PyTorch for the samples that its own tests run over. TensorFlow has no such
list.
"""

from __future__ import annotations

import subprocess
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from krylix import NonlinearError, UnsupportedOperation, matrix_from_function


def is_linear(f: Callable[[np.ndarray], Any], shape: tuple[int, ...]) -> bool:
    """Is it at random points, and not constant?"""
    u, v = np.random.default_rng(0).standard_normal((2, *shape))
    try:
        zero, a, b, both = (np.asarray(f(x)) for x in (np.zeros(shape), u, v, u - 2 * v))
        is_float = all(x.dtype.kind in "fc" for x in (zero, a, b, both))
        return is_float and not np.allclose(a, zero) and np.allclose(both - zero, (a - zero) - 2 * (b - zero))
    except Exception:  # whatever a function does with arguments that are not its own
        return False


# --- NumPy ----------------------------------------------------------------------------------------------------------

NOT_FOLLOWED = {  # by a rule; these functions are evaluated instead
    **dict.fromkeys(
        ["array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "frombuffer", "require"],
        "the array is their `like`, which they only take the type of",
    ),
    **dict.fromkeys(["polyadd", "polyder", "polyint", "polymul", "polysub", "polyval", "vander"], "polynomials"),
    **dict.fromkeys(["nan_to_num", "nancumsum", "nanmean", "nansum"], "linear where nothing is NaN only"),
    **dict.fromkeys(["clip", "nextafter", "real_if_close", "power", "heaviside"], "linear for some numbers only"),
    **dict.fromkeys(["repack_fields", "stack_arrays"], "arrays of records"),
    **dict.fromkeys(["broadcast_arrays", "ix_"], "several arrays at once, most of them views"),
    "correlate": "as `convolve` of the conjugate; rare",
    "ihfft": "linear over the real numbers only",
    "linspace": "grids are made of numbers, not of the unknown",
}


def unknown_to_numpys_tables() -> Iterator[Any]:
    from numpy.testing import overrides

    from krylix.sparse.tracing.numpy.array import VIEWS
    from krylix.sparse.tracing.numpy.rules import call

    known = {*call.FUNCTIONS, *VIEWS, *call.CREATORS, *call.DESCRIPTIONS, *call.WRITERS, *call.UFUNCS}
    found = {*overrides.get_overridable_numpy_array_functions(), *overrides.get_overridable_numpy_ufuncs()}
    yield from (function for function in found if function not in known)


def test_numpy() -> None:
    """A function of one array, or of one array and one that is known."""
    pytest.importorskip("numpy", "2.0")
    missing = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for f in unknown_to_numpys_tables():
            calls: list[Callable[[Any], Any]] = [f, lambda x, f=f: f(x, 2)]
            for c in (np.ones(3), np.eye(4)):
                calls += [lambda x, f=f, c=c: f(x, c), lambda x, f=f, c=c: f(c, x)]
            if any(is_linear(call, shape) for call in calls for shape in ((6,), (3, 4), (4, 4))):
                missing.add(f.__name__)
    assert missing <= set(NOT_FOLLOWED), f"{missing - set(NOT_FOLLOWED)}: a rule, or a reason in NOT_FOLLOWED"
    assert set(NOT_FOLLOWED) <= missing, f"{set(NOT_FOLLOWED) - missing}: have a rule, or are no more"


# --- JAX ------------------------------------------------------------------------------------------------------------

LEFT_OUT = {
    **dict.fromkeys(["io_callback", "pure_callback", "ffi_call", "shard_map"], "tracing cannot look into it"),
    "ragged_dot_general": "its groups are values; a loop over them says the same",
}
PREFIXES = ("bcoo_", "bcsr_", "coo_", "csr_", "todense", "spsolve")  # of jax.experimental.sparse, but for products
DEVICES = ("all_gather", "preduced", "ragged_all", "reduced_vary", "unreduced", "vary_")  # across devices
INNER = ("box_", "new_box", "log_", "new_log", "custom_lin", "edtype", "from_edtype", "to_edtype", "stage", "remat_opt")


def test_jax() -> None:
    pytest.importorskip("jax")

    from krylix.backends.jax.derivatives import bilinear
    from krylix.sparse.tracing.jax.interpreter import _CALLS, _OF_JAX, _WITH_RULES, CONTROL
    from krylix.sparse.tracing.jax.rules import RULES

    known = {*RULES, *CONTROL, *_CALLS, *_WITH_RULES, *_OF_JAX, *LEFT_OUT, bilinear.primitive.name}
    # in a process of its own: packages that other tests import enter primitives of theirs
    ask = "import jax; from jax.interpreters import ad; print(*(p.name for p in ad.primitive_transposes))"
    linear = set(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split())
    missing = {name for name in linear - known if not name.startswith((*PREFIXES, *DEVICES, *INNER))}
    assert not missing, f"{sorted(missing)}: a rule in sparse/tracing/jax/rules/, or a reason in LEFT_OUT"


# --- PyTorch --------------------------------------------------------------------------------------------------------

LINEAR_HERE_ONLY = {  # for the numbers of these samples, or for one number; with the variant, where there are several
    *("clamp_max", "clamp_min", "fmax", "fmin", "maximum", "minimum", "amax", "amin", "median", "nanmedian"),
    *("max.binary", "max.reduction_no_dim", "min.binary", "min.reduction_no_dim", "quantile", "nanquantile"),
    *("fmod", "remainder", "floor_divide", "div.floor_rounding", "round.decimals_3", "nextafter", "threshold"),
    *("hardsigmoid", "softshrink", "hardshrink", "nan_to_num", "unique", "unique_consecutive", "logsumexp", "det"),
    *("logcumsumexp", "smooth_l1_loss", "l1_loss", "nanmean", "nansum", "hinge_embedding_loss", "vander", "prod"),
    *("margin_ranking_loss", "adaptive_max_pool3d", "index_reduce.amax", "index_reduce.prod"),
    *("scatter_reduce.amax", "scatter_reduce.amin", "scatter_reduce.prod"),
}
REASONS = {
    **dict.fromkeys(["dropout", "dropout2d", "alpha_dropout", "normal"], "random"),
    **dict.fromkeys(["max_unpool1d", "max_unpool2d", "max_unpool3d"], "an index of these samples occurs twice"),
    **dict.fromkeys(["resize_", "resize_as_", "as_strided_copy", "view_copy"], "they read memory as something else"),
    **dict.fromkeys(["_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"], "of torch.compile only"),
    "half": "less than single precision",
    "index_reduce.mean": "rare; index_add with a factor says the same",
    "polar": "its factor is complex: multiply by torch.exp(1j * angle)",
}


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The operators of PyTorch's own tests, each with arguments."""
    pytest.importorskip("torch")
    if "expecttest" not in sys.modules:  # which these tests need, but not their list of operators
        stand_in: Any = ModuleType("expecttest")
        stand_in.TestCase, stand_in.assert_expected_inline = unittest.TestCase, None
        monkeypatch.setitem(sys.modules, "expecttest", stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)
    found: list[Any] = module.op_db
    return found


def linear_calls(samples: list[Any]) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """The operators and variants of which a sample is linear, each with the function and a tensor that it takes."""
    import torch

    for info in samples:
        if torch.float64 not in info.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)  # samples are random numbers
        for sample in list(info.sample_inputs("cpu", torch.float64))[:3]:
            x = sample.input
            if not isinstance(x, torch.Tensor) or not 0 < x.numel() < 400:
                continue

            def f(z: Any, info: Any = info, sample: Any = sample) -> Any:
                return info.op(z, *sample.args, **sample.kwargs)

            if is_linear(lambda z, f=f, x=x: f(torch.tensor(z, dtype=x.dtype)).numpy(), tuple(x.shape)):
                yield ".".join(filter(None, (info.name.split(".")[-1], info.variant_test_name))), f, x


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_torch(samples: list[Any]) -> None:
    """Those that are followed have the matrix of the function, too."""
    import torch

    refused: dict[str, str] = {}
    for name, f, x in linear_calls(samples):
        try:
            matrix, bias = matrix_from_function(f, torch.empty(x.shape, dtype=x.dtype))
        except (NonlinearError, UnsupportedOperation, TypeError) as error:
            refused[name] = str(error)
            continue
        u = np.random.default_rng(1).standard_normal(x.shape)
        expected = f(torch.tensor(u, dtype=x.dtype)).numpy()
        found = (matrix.toarray() @ u.reshape(-1)).reshape(expected.shape) + np.asarray(bias)
        most = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max(initial=1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=most, err_msg=name)
    missing = {name: why for name, why in refused.items() if name not in LINEAR_HERE_ONLY and name not in REASONS}
    assert not missing, f"{missing}: a rule in sparse/tracing/torch/rules/, or a reason in REASONS"
    excused = {*LINEAR_HERE_ONLY, *REASONS}
    assert excused <= set(refused), f"{excused - set(refused)}: have a rule, or are no more"
