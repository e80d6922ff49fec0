"""The interface of a backend stays small: what a single function needs is no part of it, unless there is a reason."""

import ast
from collections import defaultdict
from functools import cache

from krylix.backends import Backend
from krylix.backends.interface.cuts import Collectives
from krylix.backends.interface.devices import Devices
from krylix.backends.operations.table import OPERATIONS
from library import label, library_files

# Called in one place only, and yet part of a backend: what it gains there, or why nothing else can do it.
# Times: one thread, n = 1024^2 (blocks: 8 rows of 1024^2 / 4), in the way of the library and by other names.
REASONS = {
    "axpy_block": "in place, by gemm and addmm_: 3.7 ms for 17.6 in NumPy, 28 for 58 in torch",
    "boxes_product": "in place, part by part: five numbers in 3.5 ms for 19, five arrays in 9 for 31 in NumPy",
    "by_parts": "updates and sums of a block while it is in the cache: 8.7 ms for 11.7 in NumPy",
    "compiles_numbers": "only the library knows what it compiles: CG of one system as 31 different kernels for 44",
    "cost_of_step": "of `recurrence`: a step takes JAX 0.1 us, NumPy 2 us, and an accelerator longer than all of them",
    "dia_sample": "in place: five diagonals in 46 ms for 90 in NumPy, 61 for 210 in torch",
    "implicit_root": "JAX's rule for roots: derivatives to every order, for which a run without them pays nothing",
    "hiding_constants": "XLA folds large constants: 6.6 s of processor time to compile a solve on 1024^2 for 9.5",
    "can_ask_host": "only the library knows whether a program can ask before it goes on; solves ask in one place",
    "may_leave_to_host": "only the library knows its settings and who watches: 0.2 s for a first solve of 2",
    "owned": "only the library knows to which of its arrays somebody else may write",
    "one_by_one": "a loop whose length is known only when TensorFlow's graph runs",
    "pad_materialized": "only the library knows how it keeps windows from being computed each: 91 kernels for 124",
    "prefers_diagonals": "only the library knows its kernels: 1.0 ms for 1.6 on the host in torch, in single precision",
    "recorded": "JAX's record of a function, whose Python then runs once and not up to 25 times for each solve",
    "replicated": "only the library knows types that say where a number is the same on all devices",
    "recurrence": "by rows in place in NumPy, in a loop in JAX: 4 ms and 0.8 ms for 40 by passes over arrays of 1024^2",
    "rescued": "a condition around a call of the host, lane by lane under vmap; all that follows the first rung is one",
    "step_active": "NumPy sets finished rows aside and restores them: 5.3 ms a step where a selection took 8.9",
    "derivatives": "what a message tells users of the library to call",
    "enable_double_precision": "only the library knows its switch, and the command line computes in double precision",
    "uncut": "XLA cuts known arrays number by number: 2.4 s to compile a solve on 1024^2 for 4.4",
    "with_auto_axes": "only JAX has meshes whose axes are part of types; solves and `prepare` enter by one function",
    "window": "one negative padding in JAX: 0.20 ms for 0.32 with a padded copy, and a message to one neighbour only",
}
# For users, with tests of their own: test_standard.py calls every function of `xp`, test_operations.py every operation
# by name, test_devices.py these, test_array_api_backend.py `supports`.
FOR_USERS = {"xp", "supports", "float_type", "complex_type", *OPERATIONS, *vars(Devices)}
MESSAGES = set(vars(Collectives))  # between devices, which only the library can send
NAMES = {"bk", "backend", "host", "own", "theirs"}  # of variables and attributes that hold a backend
MAKERS = {"side", "get_backend", "choose_backend", "default_backend"}  # of functions that return one


def public_names() -> set[str]:
    """But for facts (true or false), which stand in the place of a question for the library's name."""
    annotated = {name for cls in Backend.__mro__ for name in getattr(cls, "__annotations__", {})}
    facts = {name for name in dir(Backend) if isinstance(getattr(Backend, name), bool)}
    return {name for name in {*dir(Backend), *annotated} - facts - FOR_USERS - MESSAGES if not name.startswith("_")}


def is_backend(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        node, names = node.func, MAKERS
    else:
        names = NAMES
    return (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)


@cache
def callers() -> dict[str, set[tuple[str, ...]]]:
    """Of each name: the functions outside of backends/ that use it, as (file, class, function, ...)."""
    found: dict[str, set[tuple[str, ...]]] = defaultdict(set)

    def visit(node: ast.AST, where: tuple[str, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = (*where, node.name)
        if isinstance(node, ast.Attribute) and is_backend(node.value):
            found[node.attr].add(where)
        for child in ast.iter_child_nodes(node):
            visit(child, where)

    for path in library_files():
        if not label(path).startswith("backends/"):
            visit(ast.parse(path.read_text()), (label(path),))
    return found


def test_every_name_has_two_callers() -> None:
    """Or stands above with its reason; what one place needs and the other names can do is a function of that place."""
    found = callers()
    few = {name: sorted(found[name]) for name in sorted(public_names() - set(REASONS)) if len(found[name]) < 2}
    listed = "\n".join(f"{name}: {places or 'nowhere'}" for name, places in few.items())
    assert not few, f"fewer than two functions outside of backends/ use\n{listed}"


def test_reasons_are_still_needed() -> None:
    found, known = callers(), public_names()
    gone = {name for name in REASONS if name not in known or len(found[name]) > 1}
    assert not gone, f"take out of REASONS, as they have several callers or are no names of a backend: {sorted(gone)}"
    unused = {name for name in REASONS if not found[name]}
    assert not unused, f"nobody uses {sorted(unused)}"
