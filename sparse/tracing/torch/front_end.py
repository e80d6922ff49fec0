"""What PyTorch adds to tracing: its functions as linear maps, their values for a known input, their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from ....backends import get_backend
from ....backends.torch.tensors import NUMPY_DTYPE, TORCH_DTYPE, transforming
from ...errors import UnsupportedOperation
from ..engine.coefficients import largest
from ..front_end import FrontEnd, Linearised, Shaped, Traced, arguments, check_dtypes, matrix_dtype, sample_of_all
from ..messages import no_tensor
from .interpreter import StepInterpreter
from .recorder import record


class TorchFunction(NamedTuple):
    """A function that can be called again.

    Attributes:
        function: of the input.
        structure: the container of the input.
        device: of its tensors.
    """

    function: Callable[[Any], Any]
    structure: Any
    device: torch.device

    def __call__(self, leaves: Sequence[np.ndarray]) -> list[Any]:
        """The arrays that it returns for NumPy arrays."""
        with torch.inference_mode(False), torch.enable_grad():
            tensors = [torch.tensor(leaf, device=self.device) for leaf in leaves]
            image = self.function(tree_unflatten(tensors, self.structure))
        bk = get_backend("torch")
        return [bk.to_numpy(x) for x in tree_flatten(image)[0] if isinstance(x, torch.Tensor)]


def trace_function(
    function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
) -> Traced:
    """See `FrontEnd.trace`. The function runs once, on random numbers."""
    refuse_transformations()
    leaves, structure = tree_flatten(tree_map(_tensor, like))
    inputs = [Shaped(tuple(leaf.shape), _dtype(leaf)) for leaf in leaves]
    check_dtypes(inputs, "the input")
    device = next((leaf.device for leaf in leaves if leaf.device.type != "meta"), torch.device("cpu"))
    with torch.inference_mode(False):
        points = [_point(leaf, device, k) for k, leaf in enumerate(leaves)]
    made, found = record(lambda x: function(x, *args, **kwargs), tree_unflatten(points, structure))
    outputs = [x for x in found if isinstance(x, torch.Tensor)]
    if not outputs or any(not isinstance(x, torch.Tensor) and x is not None for x in found):
        raise TypeError(no_tensor(found))
    bk = get_backend("torch")
    check_dtypes([Shaped(tuple(x.shape), _dtype(x)) for x in outputs], "an output")
    interpreter = StepInterpreter(bk, made, keep_zeros)
    results = [result for result in interpreter.run(arguments(bk, inputs)) if result is not None]

    def pack(arrays: Sequence[Any]) -> Any:
        given = [torch.tensor(a.copy(), device=device) if isinstance(a, np.ndarray) else a for a in arrays]
        rest = iter([a.to(x.dtype) for a, x in zip(given, outputs)])
        return tree_unflatten([None if x is None else next(rest) for x in found], made.structure)

    return Traced(
        bk,
        TorchFunction(lambda x: function(x, *args, **kwargs), structure, device),
        tuple(results),
        tuple(inputs),
        (),
        pack,
        inputs[0].shape if structure.is_leaf() else None,
        tuple(outputs[0].shape) if made.structure.is_leaf() else None,
        matrix_dtype([*inputs, *(Shaped(tuple(x.shape), _dtype(x)) for x in outputs)]),
        interpreter.precision,
        next((leaf for leaf in leaves if leaf.device.type != "meta"), None),
    )


def refuse_transformations() -> None:
    """Refuse to trace inside a transformation of torch, in which tensors have no values of their own."""
    if transforming() or forward_ad._current_level >= 0 or torch.compiler.is_compiling():
        raise UnsupportedOperation(
            "A function cannot be traced inside torch.func.grad, vmap, jvp or torch.compile. Make the matrix outside, "
            "or solve with the function itself instead of its matrix."
        )


def _tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype not in TORCH_DTYPE:
        raise TypeError(f"like has the dtype {array.dtype}, which torch does not know. Give a float or complex one.")
    return torch.empty(array.shape, dtype=TORCH_DTYPE[array.dtype])


def _dtype(x: torch.Tensor) -> np.dtype:
    return NUMPY_DTYPE[x.dtype]


def _point(like: torch.Tensor, device: torch.device, number: int) -> torch.Tensor:
    """Random numbers, where the function does what it does nearly everywhere."""
    rng, shape = np.random.default_rng(number), tuple(like.shape)
    values = rng.random(shape) - 0.5
    if like.dtype.is_complex:
        values = values + 1j * (rng.random(shape) - 0.5)
    return torch.as_tensor(values, dtype=like.dtype, device=device)


# --- the front end ----------------------------------------------------------------------------------------------------

_NO_FORWARD = "torch has no forward derivative of this function"


class TorchFrontEnd(FrontEnd):
    """Functions of torch are recorded as ATen calls, which are followed one by one."""

    trace = staticmethod(trace_function)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        """By the function itself, of other numbers than those that it was recorded with."""
        if not watch:
            return traced.program(leaves), 0.0
        with _Largest() as seen:
            return traced.program(leaves), seen.value

    sample = sample_of_all

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        x = tree_map(_array, x)

        def derivative(tangent: Any) -> Any:
            try:
                return torch.func.jvp(lambda y: f(y, *args, **kwargs), (x,), (tangent,))[1]
            except (RuntimeError, NotImplementedError) as error:
                raise UnsupportedOperation(f"{_NO_FORWARD}: {error}") from error

        return derivative, x

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        leaves, structure = tree_flatten(tree_map(_array, x))

        def derivative(cotangent: Any) -> Any:
            own = [leaf.detach().requires_grad_() for leaf in leaves]
            image = tree_leaves(f(tree_unflatten(own, structure), *args, **kwargs))
            # torch's cotangents are conjugated
            given = [c.conj() for c in tree_leaves(cotangent)]
            found = torch.autograd.grad(image, own, given, create_graph=True, allow_unused=True)
            both = zip(leaves, found)
            return tree_unflatten([torch.zeros_like(x) if g is None else g.conj() for x, g in both], structure)

        return derivative, f(tree_unflatten(leaves, structure), *args, **kwargs)

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """Did it fail at an `autograd.Function`, or an operator, without a forward derivative?"""
        return _NO_FORWARD in str(error)


class _Largest(TorchDispatchMode):
    """The largest number that came up."""

    value = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type != "meta":
                self.value = max(self.value, _size(x.detach()))
        return out


def _size(x: torch.Tensor) -> float:
    if not (x.is_floating_point() or x.is_complex()) or x._is_zerotensor():
        return 0.0
    return largest(x.resolve_conj().resolve_neg().cpu().numpy())


def _array(leaf: Any) -> torch.Tensor:
    array = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(np.asarray(leaf))
    if not (array.is_floating_point() or array.is_complex()):
        raise TypeError(f"x has the dtype {array.dtype}; expected a floating or complex one. Give x.double().")
    return array


FRONT_END: FrontEnd = TorchFrontEnd()
