"""A page for each kind of preconditioner, and the table of all: from the registry, made ones and real solves."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import formulas
import model_problems
from docstrings import Read, read
from krylix import linear_solve, preconditioner
from krylix.solvers import METHODS, PRECONDITIONERS, Preconditioner
from krylix.solvers.names import PRECONDITIONER_HINTS
from method_pages import svg
from page_files import file_of
from table_cells import cell

PROBLEMS: dict[str, tuple[Callable[[], model_problems.ModelProblem], str]] = {
    "jacobi": (model_problems.jumps, "CG"),
    "block-jacobi": (model_problems.blocks, "CG"),
    "ssor": (model_problems.poisson, "CG"),
    "chebyshev": (model_problems.poisson, "CG"),
    "ilu": (model_problems.convection, "biCG-stab"),
    "ic": (model_problems.poisson, "CG"),
    "amg": (model_problems.jumps, "CG"),
    "multigrid": (model_problems.jumps, "CG"),
    "fast": (model_problems.smooth, "CG"),
    "cluster": (model_problems.poisson, "CG"),
    "shifted-laplacian": (model_problems.absorbing, "COCR"),
    "schwarz": (model_problems.poisson, "CG"),
}
"""The system on which a kind is shown, and the method; others are shown on Poisson's equation with CG."""
SETTINGS: dict[str, dict[str, int]] = {"block-jacobi": {"block_size": 3}}
"""What a kind needs beside the matrix, on all systems here."""


def write(folder: Path) -> None:
    """The pages, and `index.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "---\ntitle: All preconditioners\n---\n", "# All preconditioners", "",
        "Measured on Poisson's equation, 40 × 40 points: numbers stored and multiplications per application beside the "
        "entries of A, and iterations of CG to 1e-8. [Preconditioners](../preconditioners.md) says which one is for "
        "what.", "",
        "| kind | M | symmetric | stored / nnz(A) | work / nnz(A) | iterations of CG |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    problem = model_problems.poisson()
    for order, (kind, make) in enumerate(PRECONDITIONERS.items()):
        about = read(make)
        (folder / file_of(kind)).write_text(_page(kind, about, make, order))
        M = preconditioner(problem.A, kind, **SETTINGS.get(kind, {}))
        found = linear_solve(problem.A, problem.b, method="CG", preconditioner=M, rtol=1e-8)
        lines.append(
            f"| [`{kind}`]({file_of(kind)}) | {about.summary} | {_symmetric(M)} | {_times(M.memory, M)} |"
            f" {_times(M.work, M)} | {int(found.iterations)} |"
        )
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def _symmetric(M: Preconditioner) -> str:
    return {True: "yes", False: "no", None: "not known"}[M.hermitian]


def _times(number: int | None, M: Preconditioner) -> str:
    return "" if number is None or not M.entries else f"{number / M.entries:.1f}"


def _page(kind: str, about: Read, make: Callable[..., Preconditioner], order: int) -> str:
    problem, method = PROBLEMS.get(kind, (model_problems.poisson, "CG"))
    aliases = ", ".join(f"`{alias}`" for alias, meant in PRECONDITIONER_HINTS.items() if meant == kind)
    takers = [f"[`{name}`](../methods/{file_of(name)})" for name, one in METHODS.items() if one.takes_preconditioner]
    rows = {
        "Cost": about.cost, "Source": about.source, "Known elsewhere as": aliases,
        "Methods": ", ".join(one for one in takers if "scipy-" not in one) + ", and most of SciPy's",
    }  # fmt: skip
    table = [
        "| | |",
        "|---|---|",
        *(f"| {key} | {cell(value)} |" for key, value in rows.items() if value),
    ]
    parts = [
        f"---\ntitle: {kind}\norder: {order}\n---\n\n# {kind}", about.summary + ".",
        formulas.display(formulas.PRECONDITIONERS[kind]), "\n".join(table), *about.text,
        _settings(about, make), _errors(about),
        "## Example", _example(kind, method), "## Convergence", _picture(kind, problem(), method),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _settings(about: Read, make: Callable[..., Preconditioner]) -> str:
    """Each setting with its default, and what the docstring says."""
    said = {name: text for names, text in about.settings for name in names.split(", ")}
    lines = []
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            lines.append(f"- `{name}={parameter.default!r}`" + (f": {said[name]}" if name in said else ""))
    return "\n".join(["## Settings", "", *lines]) if lines else ""


def _errors(about: Read) -> str:
    lines = [f"- `{error}`: {when}" for error, when in about.errors]
    return "\n".join(["## Errors", "", *lines]) if lines else ""


_GRID = (
    "import numpy as np\nimport pyamg\n\nfrom krylix import linear_solve, preconditioner\n\n"
    'A = pyamg.gallery.poisson((60, 60), format="csr")\n'
)
_CONVECTION = (
    "import numpy as np\nimport scipy.sparse as sp\n\nfrom krylix import linear_solve, preconditioner\n\n"
    "line = sp.diags_array([-1.5, 2.5, -1.0], offsets=[-1, 0, 1], shape=(60, 60))\n"
    'A = sp.kronsum(line, line, format="csr")  # convection and diffusion\n'
)
_WAVES = (
    "import numpy as np\nimport pyamg\nimport scipy.sparse as sp\n\nfrom krylix import linear_solve, preconditioner\n\n"
    'A = pyamg.gallery.poisson((60, 60), format="csr")\n'
    "A = A - (0.2 + 0.02j) * sp.eye_array(3600)  # waves with absorption\n"
)
_MATRICES = {"CG": _GRID, "COCR": _WAVES}
"""Method -> the matrix of the example; others are shown on convection."""


def _example(kind: str, method: str) -> str:
    settings = "".join(f", {name}={value}" for name, value in SETTINGS.get(kind, {}).items())
    code = (
        f'{_MATRICES.get(method, _CONVECTION)}M = preconditioner(A, "{kind}"{settings})\nprint(M)\n'
        f'result = linear_solve(A, np.ones(3600), method="{method}", preconditioner=M)\nprint(result.iterations)\n'
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"example of {kind}", "exec"), {"__name__": "example"})
    return f"```python\n{code}```\n\n```text {{.result}}\n{printed.getvalue()}```"


def _made(problem: model_problems.ModelProblem, kind: str | None) -> Preconditioner | None:
    return None if kind is None else preconditioner(problem.A, kind, **SETTINGS.get(kind, {}))


def _picture(kind: str, problem: model_problems.ModelProblem, method: str) -> str:
    figure, axes = plt.subplots(figsize=(6.4, 3))
    for other in dict.fromkeys((kind, "jacobi", None)):
        found = linear_solve(
            problem.A, problem.b, method=method, preconditioner=_made(problem, other), rtol=1e-10, history=True,
            max_iter=300, on_failure="status",
        )  # fmt: skip
        norms = np.asarray(found.history)
        norms = norms[np.isfinite(norms)]
        axes.semilogy(norms / norms[0], lw=1.8 if other == kind else 1, label=other or "none")
    axes.set(xlabel=f"iteration of {method}", ylabel="relative residual")
    axes.grid(alpha=0.3)
    axes.legend()
    words = f"Convergence of {method} with {kind} for {problem.words}"
    return f"{svg(figure, words)}\n\n{words}, to a relative residual of 1e-10 and at most 300 iterations."
