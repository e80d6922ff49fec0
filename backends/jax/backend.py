"""JAX: eager and inside `jax.jit`; arrays are immutable, so updates make new ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import SingleDeviceSharding

from ..interface.arrays import Array, Spec, native_order, scattered
from ..interface.backend import Backend
from ..interface.control import Kept, as_declared
from ..interface.functions import LinearSystem
from ..interface.kernels import Kernels
from ..settings import exponent_bits, has_pure_programs, real_dtype
from .derivatives.bilinear import bilinear
from .derivatives.functions import differentiated, transpose_function, with_no_derivative, with_rule
from .derivatives.implicit import implicit_solve, refused, without_derivatives
from .host_calls.by_host import by_host, unless_exported
from .host_calls.guard import guarded, rescued
from .kernels import JaxFourier, JaxIndexing, JaxLinalg, JaxRecurrences
from .program import function as programs
from .program.function import called, hiding_constants, recorded, trace
from .sharding.collectives import JaxCollectives
from .sharding.grid_rows import cells_of, on_cells
from .sharding.placement import first_placed, placed_like, with_auto_axes
from .sharding.varying import axes_after, axes_of, is_mapped, runs_all_branches, vary, vary_alike, varying_function
from .sparse import JaxSparse
from .tracing import host_view, is_compiled, is_in_use, is_traced, is_tracing, leniently, value_now
from .vectors import JaxVectors

Condition = Callable[[Any], Any]
Body = Callable[[Any], Any]


class JaxLoops(Backend):
    """The part of the backend about them."""

    def _while_loop(self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
        if is_mapped():
            state = vary_alike(state)
            state = vary(state, axes_after(body, state))
            body = varying_function(body, axes_of(jax.tree.leaves(state)))
        return lax.while_loop(condition, body, state)

    def _bounded_loop(self, condition: Condition, body: Body, state: Any, limits: Sequence[int]) -> Any:
        return self._up_to(condition, body, jnp.zeros((), np.int32), state, limits[0])[1]

    def _stacked_loop(self, condition: Condition, body: Body, state: Any, limits: Sequence[int]) -> Any:
        done, state = jnp.zeros((), np.int32), jax.tree.map(jnp.asarray, state)
        if is_mapped():  # where a scan has to say over which devices its state varies
            states = []
            for limit in limits:
                done, state = self._up_to(condition, body, done, state, limit)
                states.append(state)
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

        def further(carry: Any, limit: Any) -> Any:
            carry = self._up_to(condition, body, carry[0], carry[1], limit)
            return carry, carry[1]

        return lax.scan(further, (done, state), np.asarray(limits, np.int32))[1]

    def for_loop(self, count: int, body: Callable[[Any], Any], state: Any) -> Any:
        if is_mapped():  # where a loop has to say over which devices its state varies
            return self._counted(count, body, state)
        return lax.fori_loop(0, count, lambda _, s: body(s), state)


# --- Materialization in XLA: intermediate results that are computed once and stored, and constants that are split -----

_SMALL = 16384  # numbers that are cut in no time
_MOST_ROWS = 5  # of one array that are read at the same time: seven were in each other's way in the cache


class JaxMemory:
    """Barriers against XLA's rematerialization of cheap operations, and its elementwise splitting of constants."""

    asarray: Callable[..., Array]
    compiled: Callable[..., bool]
    spreads_arrays: Callable[[], bool]

    def uncut(self, x: Array) -> Array:
        few = x.ndim > 1 and x.shape[-2] <= _MOST_ROWS
        return lax.optimization_barrier(x) if few and x.size > _SMALL and is_compiled(x) else x

    def apart(self, x: np.ndarray) -> Any:
        return tuple(map(self.asarray, x)) if x.size > _SMALL and self.compiled() else self.asarray(x)

    def materialize(self, x: Array) -> Any:
        if not is_compiled(x):
            return x
        if self.spreads_arrays():  # XLA's partitioner makes wrong numbers of what is written into a part of a grid
            return on_cells(lax.optimization_barrier, x)
        if not x.size:
            return x
        return _written(x, lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), (0,) * x.ndim)

    def pad_materialized(self, x: Array, before: int, after: int) -> Any:
        if not is_compiled(x) or self.spreads_arrays() or not x.size:
            return self.materialize(lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (before, after, 0)]))
        return _written(jnp.zeros((x.shape[0], before + x.shape[1] + after), x.dtype), x, (0, before))

    def stack_materialized(self, arrays: Sequence[Array]) -> Array:
        if len(arrays) < 2 or not is_compiled(arrays[0]):
            return self.materialize(jnp.stack(arrays))
        found, first = jnp.zeros((len(arrays), *arrays[0].shape), arrays[0].dtype), (0,) * arrays[0].ndim
        for k, x in enumerate(arrays):  # each is written in place, and none fused into what follows
            found = lax.dynamic_update_slice(found, x[None], (k, *first), allow_negative_indices=False)
        return found


def _written(buffer: Array, part: Array, start: Sequence[int]) -> Array:
    """Write a part into `buffer` from `start` on.

    XLA does it in place, and never fuses it into its users. At a constant index it would, so the index is hidden.
    """
    places = tuple(lax.optimization_barrier(np.int32(k)) for k in start)
    return lax.dynamic_update_slice(buffer, part, places, allow_negative_indices=False)


# --- NumPy in the place of a program that JAX would have to compile first; results as those of the program ------------

# Settings of the user's with which he watches operations of JAX, or moves them elsewhere.
_WATCHED = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_default_device")

_enable_x64: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def may_leave_to_host(b: Any, *arrays: Any) -> bool:
    """See `Control.may_leave_to_host`."""
    if jax.device_count() > 1 or jax.default_backend() != "cpu" or is_compiled((b, *arrays)):
        return False
    if any(getattr(jax.config, name, None) for name in _WATCHED):
        return False
    usual = not b.weak_type and isinstance(b.sharding, SingleDeviceSharding)
    return usual and all(map(_is_plain, jax.tree.leaves((b, *arrays))))


def _is_plain(x: Any) -> bool:
    """Does it have values on the CPU, in a currently enabled dtype?"""
    if not isinstance(x, jax.Array):
        return True
    return is_in_use(x) and all(device.platform == "cpu" for device in x.devices())


def results_from_host(arrays: Sequence[np.ndarray], like: Any) -> Sequence[Any]:
    """See `Control.results_from_host`: all in one call, on the device of `like` where somebody has placed that.

    In double precision where `like` is, though the user may have left `jax.enable_x64` since.
    """
    with nullcontext() if is_in_use(like) else _enable_x64(True):
        found: Sequence[Any] = jax.device_put(list(arrays), like.sharding if like.committed else None)
        return found


# --- JAX: eager and inside `jax.jit`; arrays are immutable, so updates make new ones ----------------------------------

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

    def trace(
        self, function: Callable[..., Any], x: Any, args: Sequence[Any]
    ) -> tuple[Callable[..., Any], Sequence[Array]] | None:
        return trace(lambda x: function(x, *args), x)

    bilinear = bilinear
    constant = staticmethod(lax.stop_gradient)
    call_user = staticmethod(called)
    compile_if_faster = staticmethod(programs.compiled)
    without_derivatives = staticmethod(without_derivatives)
    recorded = staticmethod(recorded)
    hiding_constants = staticmethod(hiding_constants)

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
