"""What belongs to a method or a preconditioner besides its code: its export, its rows in the documents, its cost.

And what each of its facts promises, wherever that can be asked of all methods alike.
"""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import krylix
from cells import cast, check_true_residual
from krylix import solvers
from krylix.solvers import METHODS, PRECONDITIONERS, Method
from library import ROOT
from modes import Numbers
from problems import SYSTEMS

every_method = pytest.mark.parametrize("name", METHODS)
every_preconditioner = pytest.mark.parametrize("kind", PRECONDITIONERS)


def names_in_tables(page: str, column: int) -> set[str]:
    """Every `name` in this column of a page's tables; names with a number or another name in them as `name(...)`."""
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    cells = [row.split("|")[column + 1] for row in rows if row.count("|") > column + 1]
    return {_general(name) for cell in cells for name in re.findall(r"`\"?([^`\"]+)\"?`", cell)}


def _general(name: str) -> str:
    return re.sub(r"\(\w+\)$", "(...)", name)


def is_listed(name: str, names: set[str]) -> bool:
    """By its name, or as one of a family: `IDR(4)` by `IDR(s)`, `mixed-CG` by `mixed-...`."""
    return _general(name) in names or (name.startswith("mixed-") and "mixed-..." in names)


def cost_in(documentation: str | None) -> str:
    """What a docstring says of the cost, to the end of the paragraph; one of preconditioners begins with "Stores"."""
    found = re.search(r"(Cost\b|Stores\b).*?(?=\n\s*\n|\Z)", documentation or "", re.DOTALL)
    return found.group() if found else ""


@every_method
def test_method_is_exported_and_found_by_its_name(name: str) -> None:
    method, kind = METHODS[name], type(METHODS[name])
    assert getattr(solvers, kind.__name__, None) is kind, f"solvers/__init__.py does not export {kind.__name__}"
    assert kind.__name__ in solvers.__all__
    again = kind(**settings_of(method))
    assert method.name == name and solvers.find_method(name.upper()) == method == again and hash(method) == hash(again)


@every_method
def test_method_is_documented(name: str) -> None:
    """A row in its page; numbers or vectors stored, and products with A; an algorithm that can be looked up.

    The source of a factorisation of the library itself is the library's documentation.
    """
    assert is_listed(name, names_in_tables("docs/methods.md", 0)), f"{name} has no row in docs/methods.md"
    documentation = inspect.getdoc(type(METHODS[name])) or ""
    cost = cost_in(documentation)
    assert cost, f"the docstring of {type(METHODS[name]).__name__} has no sentence that begins with Cost"
    for word in ("vectors|numbers", "product"):
        assert re.search(word, cost), f"the cost of {name} says nothing of {word.replace('|', ' or ')}: {cost}"
    assert "Source:" in documentation or "SciPy" in documentation or METHODS[name].factorises


def settings_of(method: Method) -> dict[str, object]:
    return {name: getattr(method, name) for name in inspect.signature(type(method)).parameters}


@every_preconditioner
def test_preconditioner_is_documented(kind: str) -> None:
    assert is_listed(kind, names_in_tables("docs/preconditioners.md", 0)), f"{kind} has no row in its page"
    assert kind in (inspect.getdoc(solvers.preconditioner) or ""), f"preconditioner() does not name {kind}"
    cost = cost_in(inspect.getdoc(PRECONDITIONERS[kind]))
    assert re.search("vectors|numbers", cost) and re.search("product|pass|costs", cost), f"{kind}: {cost!r}"


def test_rules_notice_what_is_missing() -> None:
    listed = names_in_tables("docs/methods.md", 0)
    assert is_listed("IDR(7)", listed) and is_listed("mixed-GMRES", listed) and not is_listed("TFQMR", listed)
    assert cost_in("A method.\n\nIt costs little.") == ""
    assert cost_in("A.\n\nCost: 2 vectors\nand more.\n\nB.") == "Cost: 2 vectors\nand more."


# --- facts that can be asked of all methods


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_definite])
def test_others_than_definite_matrices_are_no_false_success(name: str, dtype: str) -> None:
    """`needs_definite` is no licence to be wrong: it solves them, or says that it did not."""
    for key in ("indefinite", "saddle of zeros"):
        matrix = np.kron([[0, 1], [1, 0]], np.eye(6)) if key not in SYSTEMS else SYSTEMS[key].matrix
        b = np.random.default_rng(1).standard_normal((3, len(matrix)))
        A, b = cast(matrix, dtype), cast(b, dtype)
        result = Numbers(krylix.linear_solve(A, b, method=name, on_failure="status"))
        assert np.isfinite(result.x).all()
        check_true_residual(result, matrix, b)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if not (m.needs_transpose or m.factorises)])
def test_products_are_counted_as_declared(name: str) -> None:
    """Of one iteration of one round, and the true residual at its end: calls of the function and the result agree."""
    method, calls = METHODS[name], [0]
    matrix = SYSTEMS["definite"].matrix

    def function(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return x @ matrix.astype(x.dtype).T

    A = krylix.as_operator(function, like=np.ones(len(matrix)))
    made = calls[0]
    b = SYSTEMS["definite"].right_hand_side(seed=2)
    result = krylix.linear_solve(A, b, method=name, max_iter=1, on_failure="status")
    assert int(result.iterations) == 1
    if not (method.on_host or method.lower_precision):
        missed = int(result.attainable > 0)  # 1 product more, to see what the precision allows
        declared = method.products_at_start + method.products_per_step + 1 + missed
        assert int(result.function_evaluations) == declared
    assert calls[0] - made >= int(result.function_evaluations)
