"""Operations by name: `choose_backend(x).sin(x)` finds what the table says, once, on every library."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import operation_names
from krylix.backends import get_backend
from krylix.backends.operations.table import ALIASES, OPERATIONS

BACKENDS = ("numpy", "jax", "torch", "tensorflow")


def test_annotations_are_those_of_the_table() -> None:
    assert operation_names.PATH.read_text() == operation_names.text(), "run `python tests/helpers/operation_names.py`"


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_name_is_there(backend: str) -> None:
    bk = get_backend(backend)
    lacking = [name for name in OPERATIONS if not callable(getattr(bk, name))]
    assert not lacking
    assert set(OPERATIONS) <= set(dir(bk))


@pytest.mark.parametrize("backend", BACKENDS)
def test_aliases_are_the_operations_themselves(backend: str) -> None:
    bk = get_backend(backend)
    for alias, name in ALIASES.items():
        assert getattr(bk, alias) == getattr(bk, name), alias
    assert not set(ALIASES) & set(OPERATIONS)


BY_PLACE = {  # what NumPy gives, whose functions take these by place
    "bk.argmax(x, 1, True)": "np.argmax(x, 1, keepdims=True)",
    "bk.argsort(x, 0)": "np.argsort(x, 0)",
    "bk.count_nonzero(x, 1)": "np.count_nonzero(x, 1)",
    "bk.cumsum(x, 0)": "np.cumsum(x, 0)",
    "bk.max(x, 1, True)": "np.max(x, 1, keepdims=True)",
    "bk.mean(x, 0, True)": "np.mean(x, 0, keepdims=True)",
    "bk.ones((2, 1), np.float32)": "np.ones((2, 1), np.float32)",
    "bk.prod(x, 0)": "np.prod(x, 0)",
    "bk.roll(x, 1, 1)": "np.roll(x, 1, 1)",
    "bk.sort(x, 0)": "np.sort(x, 0)",
    "bk.std(x, 1, True)": "np.std(x, 1, keepdims=True)",
    "bk.sum(x, 1, True)": "np.sum(x, 1, keepdims=True)",
    "bk.take_along_axis(x, bk.argsort(x, 1), 1)": "np.sort(x, 1)",
    "bk.tril(x, -1)": "np.tril(x, -1)",
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_settings_by_place(backend: str) -> None:
    """As NumPy and PhiML have them, on every library; `xp` follows the standard, which has names only."""
    bk, x = get_backend(backend), np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for call, expected in BY_PLACE.items():
        found = eval(call, {"bk": bk, "np": np, "x": bk.asarray(x)})
        np.testing.assert_allclose(bk.to_numpy(found), eval(expected, {"np": np, "x": x}), rtol=1e-5, err_msg=call)


def test_other_forms_of_calls_are_named() -> None:
    bk, x = get_backend("numpy"), np.ones((2, 3))
    with pytest.raises(TypeError, match=r"expected two arrays and axes=\("):
        bk.tensordot(x, (1,), x, (1,))
    with pytest.raises(TypeError, match=r"expected while_loop\(condition, body, state, max_iter\)"):
        bk.while_loop(lambda i: i, (1, 2), 3)


def test_a_name_is_found_once() -> None:
    bk = copy.copy(get_backend("numpy"))
    bk.__dict__.pop("sin", None)
    assert bk.sin is bk.__dict__["sin"]


def test_unknown_names_say_the_closest() -> None:
    bk = get_backend("numpy")
    with pytest.raises(AttributeError, match=r"no operation 'arcsinn'. Did you mean arcsin\?"):
        bk.arcsinn  # noqa: B018
    with pytest.raises(AttributeError):
        bk._private  # noqa: B018
    assert pickle.loads(pickle.dumps(bk)) is bk


def test_composed_operations_say_what_they_do() -> None:
    """By a docstring, and with the signature that a user calls."""
    bk = get_backend("numpy")
    for operation in OPERATIONS.values():
        if operation.module is not None:
            function = getattr(bk, operation.name)
            assert inspect.getdoc(function), operation.name
            assert "bk" not in inspect.signature(function).parameters, operation.name
