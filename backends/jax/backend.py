"""JAX: eager and inside `jax.jit`; arrays are immutable, so updates make new ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from ..interface.arrays import Spec, native_order, scattered
from ..interface.backend import Array
from ..interface.control import Kept, as_declared
from ..interface.kernels import Arrays, Bilinear, Kernels
from ..interface.transformations import LinearSystem
from ..settings import exponent_bits, has_pure_programs, real_dtype
from .along_axes import JaxFourier, JaxRecurrences
from .derivatives.bilinear import bilinear
from .derivatives.differentiated import differentiated
from .derivatives.implicit import implicit_solve, refused, without_derivatives
from .derivatives.transposed import transpose_function
from .derivatives.with_rule import with_no_derivative, with_rule
from .host_calls.by_host import by_host
from .host_calls.exported import unless_exported
from .host_calls.guard import guarded, rescued
from .indexing import JaxIndexing
from .linalg import JaxLinalg
from .loops import JaxLoops
from .memory import JaxMemory
from .on_numpy import may_leave_to_host, results_from_host
from .program.constants import hiding_constants
from .program.function import called, compiled, trace
from .program.recorded import recorded
from .sharding.collectives import JaxCollectives
from .sharding.grid_rows import cells_of
from .sharding.placement import first_placed, placed_like, with_auto_axes
from .sharding.varying import axes_of, is_mapped, runs_all_branches, vary
from .sparse import JaxSparse
from .strict import leniently
from .tracing import host_view, is_compiled, is_traced, is_tracing, value_now
from .vectors import JaxVectors

_handed_over = jax.jit(lambda x: x)  # arguments of programs become arrays in half the time that jnp.asarray takes


def _refuse_export(*_: Array) -> Sequence[Array]:
    raise TypeError(
        "jax.export was given a program that calls the host, as solves with sparse factors do, and an exported program "
        "leaves this process. Give on_failure='nan', for which \"auto\" takes no method of the host, or name a method "
        "that is computed in the library, such as 'biCG-stab(2)'."
    )


class JaxBackend(JaxIndexing, JaxLoops, JaxMemory, JaxRecurrences, JaxCollectives, JaxVectors):
    """JAX arrays and tracers."""

    name = "jax"
    compiles_solves = True
    fuses_elementwise = True
    has_windows = True
    has_pure_arrays = True
    requires_fixed_shapes_when_tracing = True
    prefers_channels_last = True
    derivatives = "jax.vjp and jax.jvp"
    linalg = JaxLinalg()
    fourier = JaxFourier()
    sparse = JaxSparse()

    @property
    def default_float(self) -> np.dtype:
        return self.stored_dtype(np.dtype(np.float64))

    def stored_dtype(self, dtype: np.dtype) -> np.dtype:
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))

    def enable_double_precision(self) -> None:
        jax.config.update("jax_enable_x64", True)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, jax.Array)

    def asarray(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        if dtype == np.bool_ and np.iscomplexobj(x):  # JAX looks at the real part alone
            x = x != 0 if hasattr(x, "dtype") else np.asarray(x) != 0
        x = native_order(x)
        if dtype is None and isinstance(x, np.ndarray):  # while a function is traced JAX would compile a copy
            dtype = self.stored_dtype(x.dtype)
        made = jnp.asarray(x, dtype)
        return made if like is None or isinstance(x, jax.Array) else placed_like(made, like)

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.asarray(x)

    def from_host(self, x: np.ndarray, like: Array | None = None) -> Array:
        if like is not None and like.committed:
            return jax.device_put(x, like.sharding)
        made = _handed_over(x)
        return made if isinstance(made, jax.Array) else self.asarray(x)  # where a user has switched jit off

    def in_host_call(self, x: np.ndarray, like: Array | None = None) -> Array:
        return jax.device_put(x, jax.local_devices(backend="cpu")[0])  # others may wait for the program that calls

    def dtype(self, x: Array) -> np.dtype:
        return np.dtype(x.dtype)

    def astype(self, x: Array, dtype: np.dtype) -> Array:
        return x.astype(dtype)

    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array:
        return jnp.zeros(shape, dtype)

    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array:
        return jnp.full(shape, value, dtype)

    def device(self, x: Array) -> Hashable:
        return None  # jax itself refuses to mix committed devices, and knows about shardings

    def constant_folded(self, x: Array) -> np.ndarray | None:
        x = cells_of(x)
        if is_traced(x) or (isinstance(x, jax.Array) and not (x.is_fully_addressable and len(x.devices()) == 1)):
            return None
        return np.asarray(x)

    def is_concrete(self, x: Array) -> bool:
        x = cells_of(x)
        here = not is_compiled(x) and x.is_fully_addressable  # not on other processes, too
        return here and all(device.platform == "cpu" for device in x.devices())

    def compiled(self, *arrays: Any) -> bool:
        return is_compiled(arrays)

    def in_program(self) -> bool:
        return is_tracing()

    def at_once(self) -> AbstractContextManager[Any]:
        return jax.ensure_compile_time_eval()

    def concrete_value(self, function: Callable[[], Array]) -> np.ndarray | None:
        try:
            with self.at_once():
                value = function()
                return None if is_traced(value) else np.asarray(value)
        except Exception:  # there, what devices tell each other has no value before the program runs
            if not is_mapped():
                raise
            return None

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return jnp.reshape(cells_of(x), shape)

    def add_box(self, x: Array, lo: Sequence[int], part: Array) -> Array:
        return Kernels.add_box(self, x, lo, part) if self.spreads_arrays() else super().add_box(x, lo, part)

    concat = staticmethod(jnp.concatenate)
    stack = staticmethod(jnp.stack)

    def broadcast_to(self, x: Array, shape: Sequence[int]) -> Array:
        return jnp.broadcast_to(x, shape)

    def leaves(self, tree: Any) -> tuple[list[Any], Any]:
        if isinstance(tree, (jax.Array, np.ndarray)):
            return [tree], None
        leaves, structure = jax.tree.flatten(tree)
        if isinstance(tree, (list, tuple)) and all(isinstance(leaf, (int, float, complex)) for leaf in leaves):
            return [jnp.asarray(tree)], None  # nested lists of numbers are one array
        return leaves, structure

    def unleaves(self, structure: Any, leaves: Sequence[Array]) -> Any:
        return leaves[0] if structure is None else jax.tree.unflatten(structure, leaves)

    def unit_in_first_place(self, x: Array) -> Array:
        integer, mask = exponent_bits(np.dtype(x.dtype))
        bits = lax.bitcast_convert_type(x, integer) & np.array(mask, integer)
        return lax.bitcast_convert_type(bits, x.dtype)

    def scatter_numbers(self, n: int, dtype: np.dtype, like: Array) -> Array:
        return scattered(jnp, jnp.arange(1, n + 1, dtype=real_dtype(dtype))).astype(dtype)

    def compiles_numbers(self, x: Array) -> bool:
        return self.compiled(x) and not is_mapped()

    def cond(self, predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
        if runs_all_branches():
            return jax.tree.map(partial(jnp.where, predicate), if_true(*operands), if_false(*operands))
        known = value_now(predicate)
        if known is not None:  # a program of its own would be compiled at each call
            return (if_true if known else if_false)(*operands)
        return lax.cond(predicate, if_true, if_false, *operands)

    def where_needed(self, predicate: Any, function: Callable[[], Sequence[Array]]) -> list[Array]:
        if runs_all_branches() or not self.compiled(predicate):
            return list(function())
        program = jax.make_jaxpr(lambda: list(function()))()  # which tells the shapes
        return lax.cond(
            predicate, jaxpr_as_fun(program), lambda: [jnp.zeros(a.shape, a.dtype) for a in program.out_avals]
        )

    may_leave_to_host = staticmethod(may_leave_to_host)
    results_from_host = staticmethod(results_from_host)

    def host_call(self, function: Callable[..., Any], returns: Sequence[Spec], *arrays: Array) -> tuple[Array, ...]:
        if not self.compiled(arrays):
            return super().host_call(function, returns, *arrays)
        if not returns:
            jax.debug.callback(lambda *values: function(*(np.asarray(v) for v in values)), *arrays, ordered=False)
            return ()
        if self.can_rescue():
            return tuple(unless_exported(partial(by_host, function, returns), _refuse_export, *arrays))
        shapes = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in returns)

        def on_host(*values: Any) -> tuple[np.ndarray, ...]:
            return as_declared(function(*(np.asarray(v) for v in values)), returns)

        found = jax.pure_callback(on_host, shapes, *arrays, vmap_method="sequential")
        return vary(found, axes_of(arrays)) if is_mapped() else found

    _reference = staticmethod(first_placed)

    def can_ask_host(self) -> bool:
        return jax.process_count() == 1 and not is_mapped()

    def can_rescue(self) -> bool:
        return jax.device_count() == 1 and not is_mapped()  # one device would call, and the others wait for ever

    def rescued(
        self,
        failed: Any,
        function: Callable[..., Any],
        found: Sequence[Array],
        *arrays: Array,
        name: Callable[[], str | None] = lambda: None,
    ) -> tuple[Array, ...]:
        if not self.compiled(failed, found, arrays):
            return super().rescued(bool(failed), function, found, *arrays)
        if not self.can_rescue():
            return tuple(found)
        return tuple(rescued(failed, function, found, arrays, name()))

    def sets_up_by_host(self) -> bool:
        return self.can_rescue() and jax.default_backend() == "cpu" and not has_pure_programs()

    def by_host(
        self,
        function: Callable[..., Sequence[np.ndarray]],
        otherwise: Callable[..., Sequence[Array]],
        returns: Sequence[Spec],
        *arrays: Array,
        name: Callable[[], str | None] = lambda: None,
    ) -> list[Array]:
        if not self.compiled(arrays) or not self.sets_up_by_host():
            return list(otherwise(*arrays))
        known = name()
        kept = None if known is None else Kept(known, "need", "This program has outlived the function it was made of.")
        here = partial(by_host, function, returns, kept=kept)
        return unless_exported(here, lambda *arrays: list(otherwise(*arrays)), *arrays)

    @property
    def raises_in_programs(self) -> bool:
        return jax.process_count() == 1  # the others would go on with what they have

    def guard(
        self,
        failed: Any,
        handler: Callable[..., None],
        x: Any,
        *arrays: Array,
        kept: Kept | None = None,
        noted: Any | None = None,
    ) -> Any:
        if not self.compiled(failed, noted, arrays):
            return super().guard(bool(failed), handler, x, *arrays, noted=noted)
        return guarded(failed, handler, x, arrays, kept, noted)

    def diagonal(self, matrix: Array, offset: int = 0) -> Array:
        return jnp.diagonal(matrix, offset, axis1=-2, axis2=-1)

    def implicit_solve(self, system: LinearSystem, b: Array) -> tuple[Array, tuple[Array, ...]]:
        return implicit_solve(system, b, system.grid if self.spreads_arrays() else None)

    has_root_rule = True

    def implicit_root(
        self, f: Callable[[Array], Array], x: Array, solve: Callable[[Callable[[Array], Array], Array], Array]
    ) -> Array:
        return lax.custom_root(f, x, lambda _, x: x, solve)

    def refuse_derivatives(
        self, x: Array, why: str, error: type[Exception] = TypeError, sources: Sequence[Array] = ()
    ) -> Array:
        return refused(x, why, error)

    def without_derivatives(self, x: Array, failed: Array) -> Array:
        return without_derivatives(x, failed)

    def call_user(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        return called(function, x, args)

    def compile_if_faster(self, function: Callable[..., Any], static: tuple[str, ...]) -> Callable[..., Any]:
        return compiled(function, static)

    def trace(
        self, function: Callable[..., Any], x: Any, args: Sequence[Any]
    ) -> tuple[Callable[..., Any], Sequence[Array]] | None:
        return trace(lambda x: function(x, *args), x)

    recorded = staticmethod(recorded)
    hiding_constants = staticmethod(hiding_constants)

    def bilinear(
        self, form: Bilinear, values: Arrays, indices: Arrays, x: Array, transposed: bool = False
    ) -> Array:  # fmt: skip
        return bilinear(self, form, values, indices, x, transposed)

    def constant(self, x: Array) -> Array:
        return lax.stop_gradient(x)

    def _vmap(self, function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
        return jax.vmap(function, in_axes=tuple(axes))

    _leniently = staticmethod(leniently)
    host_view = staticmethod(host_view)
    with_auto_axes = staticmethod(with_auto_axes)
    _differentiated = staticmethod(differentiated)
    _with_rule = staticmethod(with_rule)
    _with_no_derivative = staticmethod(with_no_derivative)
    transpose_function = staticmethod(transpose_function)

    def map_columns(self, function: Callable[[Array], Array], columns: Array) -> Array:
        return jax.vmap(function)(columns)

    def _register(
        self,
        cls: type,
        flatten: Callable[[Any], tuple[Sequence[Array], Hashable]],
        unflatten: Callable[[Any, Sequence[Array]], Any],
    ) -> None:
        jax.tree_util.register_pytree_node(cls, lambda own: flatten(self._own(own)), unflatten)

    def _own(self, container: Any) -> Any:
        """Convert NumPy leaves to arrays of JAX before transformations see them."""
        bk = getattr(container, "bk", self)
        if not (bk.on_host and hasattr(container, "on_backend")):
            return container
        moved = container.on_backend(self, None)
        if moved is None:
            raise TypeError(f"{container!r} has no way to JAX; make it there, of the matrix, or close over it.")
        return moved
