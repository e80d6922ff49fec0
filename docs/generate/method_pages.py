"""A page for each method, and the table of all: from the registry, what the methods declare, and real solves."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import formulas
import model_problems
from docstrings import read
from krylix import linear_solve
from krylix.solvers import METHODS, Method
from krylix.solvers.names import SAME_METHODS
from page_files import file_of
from pictures import show
from table_cells import cell

COLUMNS = ("symmetric", "definite", "rectangular", "complex", "preconditioner", "`jit`", "batch", "derivative", "host")
_AFTER = {
    "symmetric": "A must be symmetric (Hermitian), or symmetric without conjugation, `A^T = A`",
    "definite": "A must be definite, of either sign",
    "rectangular": "takes least-squares problems",
    "complex": "takes complex systems",
    "preconditioner": "takes a preconditioner",
    "`jit`": "inside of `jax.jit`, `tf.function`, `torch.compile`: in the program, by a callback to the host, or with"
    " values of A that are known while it is compiled",
    "batch": "many systems: all in one step, sharing what they found (one A), or one after the other",
    "derivative": "exact derivatives of x",
    "host": "works on the host, on copies of the arrays",
}


def write(folder: Path) -> None:
    """The pages, and `index.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    for order, (name, method) in enumerate(METHODS.items()):
        (folder / file_of(name)).write_text(_page(name, method, order))
    (folder / "index.md").write_text(index())


def facts(method: Method) -> dict[str, str]:
    """A row of the table."""
    compiled = "callback" if method.on_host else "known values" if method.needs_known else "yes"
    return {
        "symmetric": "must be" if method.needs_hermitian else "A^T = A" if method.needs_symmetric else "",
        "definite": "must be" if method.needs_definite else "",
        "rectangular": "yes" if method.least_squares else "",
        "complex": "yes" if method.takes_complex else "no",
        "preconditioner": "yes" if method.takes_preconditioner else "no",
        "`jit`": compiled,
        "batch": "shared" if method.couples_systems else "one by one" if method.on_host else "yes",
        "derivative": "yes",
        "host": "yes" if method.on_host else "",
    }


def index() -> str:
    """The table of all methods."""
    lines = [
        "---\ntitle: All methods\n---\n", "# All methods", "",
        "What each method needs and takes, as the methods themselves declare it; the tests check these facts. "
        "[Methods](../methods.md) compares them in words, [Choose](../choosing.md) says what `auto` takes.", "",
        "| method | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|",
    ]  # fmt: skip
    for name, method in METHODS.items():
        row = facts(method)
        lines.append(f"| [`{name}`]({file_of(name)}) | " + " | ".join(row[column] for column in COLUMNS) + " |")
    lines += ["", *(f"- *{column}*: {meaning}." for column, meaning in _AFTER.items())]
    return "\n".join(lines) + "\n"


def _page(name: str, method: Method, order: int) -> str:
    about, problem = read(type(method)), model_problems.for_method(method)
    right = name in formulas.PRECONDITIONED_FROM_THE_RIGHT
    parts = [
        f"---\ntitle: {name}\norder: {order}\n---\n\n# {name}", method.summary.rstrip(".") + ".",
        formulas.display(formulas.METHODS[name]),
        "With a preconditioner M, A M takes the place of A." if right else "",
        _in_short(method, about.cost, about.source),
        "## What it does" if about.text else "", *about.text,
        "\n".join(f"- Raises `{error}`: {when}" for error, when in about.errors),
        "## Example", _example(name, method),
        "## Convergence", _picture(name, method, problem),
        f"Class: [`krylix.solvers.{type(method).__name__}`](../reference/{_reference(method)}).",
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _reference(method: Method) -> str:
    return f"krylix_solvers.md#krylix.solvers.{type(method).__name__}"


def _in_short(method: Method, cost: str, source: str) -> str:
    """What it needs, costs and comes from, as a table."""
    needs = ["square" if not method.least_squares else "any shape"]
    needs += ["symmetric without conjugation"] * method.needs_symmetric
    needs += ["symmetric (Hermitian)"] * method.needs_hermitian + ["definite"] * method.needs_definite
    needs += ["with products with its transpose"] * method.needs_transpose
    needs += ["a sum of matrices along the axes of a grid"] * method.needs_grid
    needs += ["of few diagonals, in some order"] * method.needs_band
    row = facts(method)
    settings = ", ".join(f"`{f.name}={getattr(method, f.name)!r}`" for f in dataclasses.fields(method))
    aliases = ", ".join(f"`{alias}`" for alias, meant in SAME_METHODS.items() if meant == method.name)
    lines = {
        "A": ", ".join(needs),
        "Complex systems": row["complex"],
        "Preconditioner": row["preconditioner"] + (", symmetric as A is" if method.needs_symmetry else "")
        if method.takes_preconditioner
        else "no",
        "Inside of a compiled function": {"yes": "yes", "callback": "by a callback to the host"}.get(
            row["`jit`"], "yes, where the values of A are known while it is compiled"
        ),
        "Batch": {
            "yes": "all systems in one step, each with its own count",
            "one by one": "one system after the other",
        }.get(row["batch"], "systems with one A share what they find"),
        "Products with A": f"{method.products_per_step} per iteration"
        + (f", {method.products_at_start} at the start" if method.products_at_start else ""),
        "Settings": settings,
        "Cost": cost,
        "Other names": aliases,
        "Source": source,
    }
    rows = [f"| {key} | {cell(value)} |" for key, value in lines.items() if value]
    return "\n".join(["| | |", "|---|---|", *rows])


def _example(name: str, method: Method) -> str:
    code = _code(name, method)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"example of {name}", "exec"), {"__name__": "example"})
    return f"```python\n{code}```\n\n```text {{.result}}\n{printed.getvalue()}```"


def _code(name: str, method: Method) -> str:
    """A system that the method is for, in a few lines."""
    right = "np.ones(1000)"
    if method.least_squares:
        made = "A = sp.random_array((600, 200), density=0.03, rng=np.random.default_rng(1)).tocsr()\n"
        right = "np.ones(600)"
    elif method.needs_grid:
        return (
            "import numpy as np\n\nfrom krylix import linear_solve\n\n\n"
            "def laplace(u):\n    p = np.pad(u, 1)\n"
            "    return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]\n\n\n"
            f'result = linear_solve(laplace, np.ones((100, 100)), method="{name}")\n'
            'print(result.converged, int(result.iterations), f"{float(result.residual_norm):.1e}")\n'
        )
    else:
        first, main, last = (-1.0 if method.needs_symmetry else -1.2), 2.5, -1.0
        main = 0.5 if method.needs_hermitian and not method.needs_definite else main
        main = "2.0 + 0.5j" if method.needs_symmetric else main
        made = (
            f"diagonals = [{first}, {main}, {last}]\n"
            "A = sp.diags_array(diagonals, offsets=[-1, 0, 1], shape=(1000, 1000)).tocsr()\n"
        )
    result = 'print(result.converged, int(result.iterations), f"{float(result.residual_norm):.1e}")\n'
    if method.couples_systems:
        right = "np.random.default_rng(0).standard_normal((16, 1000))"
        result = "print(result.converged.all(), result.iterations.max(), result.x.shape)\n"
    return (
        "import numpy as np\nimport scipy.sparse as sp\n\nfrom krylix import linear_solve\n\n"
        f'{made}result = linear_solve(A, {right}, method="{name}")\n{result}'
    )


def history(method: Method, problem: model_problems.ModelProblem, **settings: object) -> np.ndarray:
    """Relative residual after each iteration; NaN where it is not known."""
    b = problem.b
    if method.couples_systems:
        b = np.random.default_rng(0).standard_normal((8, b.size))
    found = linear_solve(
        problem.A, b, method=method, rtol=1e-10, history=True, on_failure="status", max_iter=1000, **settings
    )
    norms = np.atleast_2d(np.asarray(found.history).T)[0] if np.ndim(found.history) > 1 else np.asarray(found.history)
    return norms / norms[0]


def _picture(name: str, method: Method, problem: model_problems.ModelProblem) -> str:
    if method.factorises:
        return _solution(name, method)
    others = {"CG": "CG", "GMRES": "GMRES", "LSMR": "LSMR"}
    figure, axes = plt.subplots(figsize=(6.4, 3))
    other = next((o for o in others if o != name and _suits(METHODS[o], method)), None)
    for label, one in [(name, method)] + ([(other, METHODS[other])] if other else []):
        norms = history(one, problem)
        steps = np.flatnonzero(np.isfinite(norms))
        axes.semilogy(
            steps, norms[steps], marker="." if len(steps) < 12 else None, lw=1.8 if one is method else 1, label=label
        )
    axes.set(xlabel="iteration", ylabel="relative residual")
    axes.grid(alpha=0.3)
    axes.legend()
    words = f"Convergence of {name} for {problem.words}"
    few = " Where SciPy does not tell the residual of an iteration, there is no point." if method.on_host else ""
    return f"{svg(figure, words)}\n\n{words}, to a relative residual of 1e-10.{few}"


def _suits(other: Method, method: Method) -> bool:
    """Does another method solve the model problem of this one?"""
    if method.least_squares:
        return other.name == "LSMR"
    if method.needs_definite:
        return other.name == "CG"
    return other.name == "GMRES"


def _solution(name: str, method: Method) -> str:
    """Of methods that factorise: there is nothing to see but the solution."""
    n = 40

    def laplace(u: np.ndarray) -> np.ndarray:
        p = np.pad(u, 1)
        return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    b = np.zeros((n, n))
    b[10, 10], b[28, 25] = 1.0, -0.6
    if method.needs_band:
        x = np.linspace(0, 1, 200)
        result = linear_solve(model_problems._line(200), np.sin(9 * x) / 200**2, method=method)
        figure, axes = plt.subplots(figsize=(6.4, 3))
        axes.plot(x, np.asarray(result.x))
        axes.set(xlabel="x", ylabel="u")
        words = "the solution of -u'' = sin(9 x) on 200 points"
    else:
        result = linear_solve(laplace, b, method=method)
        figure, axes = plt.subplots(figsize=(4.2, 3.2))
        size = float(np.abs(result.x).max())
        image = axes.imshow(np.asarray(result.x), cmap="RdBu_r", vmin=-size, vmax=size, origin="lower")
        axes.set(xlabel="x", ylabel="y")
        figure.colorbar(image, label="u")
        words = f"a source and a sink on {n} × {n} points, Poisson's equation"
    return (
        f"{svg(figure, words)}\n\nIt factorises A, so that there is no curve to show: {words}, after "
        f"{int(result.iterations)} iteration with a residual of {float(result.residual_norm):.0e}."
    )


def svg(figure: plt.Figure, words: str) -> str:
    """The figure as a part of a page."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        show(figure, words)
    return f'<div class="picture">\n{printed.getvalue().strip()}\n</div>'
