"""`python -m benchmarks [names]`: measure, and print the table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

# The repository's root, whose sparse/ is not PyData sparse, which some peers look for.
ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]

from .settings import QUICK, Settings, machine, missing, use_threads  # noqa: E402
from .table import as_json, markdown  # noqa: E402

GROUPS = (
    "iteration",
    "overhead",
    "scipy_like",
    "operations",
    "compile",
    "imports",
    "tolerance",
    "blocks",
    "time_steps",
    "lines",
    "gradients",
    "traced",
    "training",
    "tracing",
    "matvec",
    "matvec_tuned",
    "preconditioners",
    "poisson",
    "pressure",
    "helmholtz",
    "auto",
    "choice",
    "factors",
    "cores",
    "media",
    "meshes",
    "scaling",
)
BACKENDS = ("jax", "numpy", "torch", "tensorflow")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which to run, of: {', '.join(GROUPS)} (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one pair each: does everything still run?")
    parser.add_argument("--repeats", type=int, help="pairs per row (default 9)")
    parser.add_argument("--threads", type=int, default=1, help="of each library (default 1)")
    parser.add_argument("--backend", choices=BACKENDS, default="jax", help="for tracing: whose functions (default jax)")
    parser.add_argument("--model", action="store_true", help="scaling: counts, and what they cost on large machines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured, and on what")
    parser.add_argument("--note", default="", help="about the machine, for the file: what else ran on it, say")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.names) - set(GROUPS))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    if given.model and given.names != ["scaling"]:
        parser.error("--model is of scaling alone: python -m benchmarks scaling --model")
    use_threads(given.threads)
    settings = replace(QUICK if given.quick else Settings(), backend=given.backend)
    if given.repeats:
        settings = replace(settings, repeats=given.repeats)
    if given.model:
        from .scaling_model import page

        print(page(settings))
        return
    if not missing("torch"):
        import torch

        torch.set_num_threads(given.threads)

    import krylix

    krylix.set_global_setup_cache(False)  # what is measured again and again is one solve
    clock = "processor time" if given.threads == 1 else "time that passes"
    facts = {"machine": machine(given.threads), "clock": clock, "pairs": settings.repeats, "note": given.note}
    rows, groups, notes = [], [], []
    for name in given.names or GROUPS:
        module = import_module(f".{name}", __package__)
        notes += [module.NOTE] if hasattr(module, "NOTE") else []
        for row in module.rows(settings):
            print(" ".join(cell for cell in row.cells() if cell), file=sys.stderr, flush=True)
            rows.append(row)
            groups.append(name)
            if given.json:  # after each row, so that one that is interrupted is not for nothing
                given.json.write_text(as_json(facts, groups, rows))
    print(f"Measured on {machine(given.threads)}\nMedians of {settings.repeats} alternating pairs.\n")
    print("\n\n".join([markdown(rows), *notes]))


if __name__ == "__main__":
    main()
