"""Operations by name: `choose_backend(x).sin(x)` finds what the table says, once, on every library."""

import copy
import inspect
import pickle

import pytest

import operation_names
from krylix.backends import get_backend
from krylix.backends.operations.aliases import ALIASES
from krylix.backends.operations.table import OPERATIONS

LIBRARIES = (
    "numpy",
    pytest.param("jax", marks=pytest.mark.needs("jax")),
    pytest.param("torch", marks=pytest.mark.needs("torch")),
    pytest.param("tensorflow", marks=pytest.mark.needs("tensorflow")),
)


def test_annotations_are_those_of_the_table() -> None:
    assert operation_names.PATH.read_text() == operation_names.text(), "run `python tests/helpers/operation_names.py`"


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_name_is_there(library: str) -> None:
    bk = get_backend(library)
    lacking = [name for name in OPERATIONS if not callable(getattr(bk, name))]
    assert not lacking
    assert set(OPERATIONS) <= set(dir(bk))


@pytest.mark.parametrize("library", LIBRARIES)
def test_aliases_are_the_operations_themselves(library: str) -> None:
    bk = get_backend(library)
    for alias, name in ALIASES.items():
        assert getattr(bk, alias) == getattr(bk, name), alias
    assert not set(ALIASES) & set(OPERATIONS)


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
