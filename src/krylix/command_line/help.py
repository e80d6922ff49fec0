"""Examples that `--help` shows, and how they are set."""

from __future__ import annotations

import argparse

EXIT_CODES = "exit codes: 0 done; 1 not converged, or no result; 2 the input cannot be used; 130 interrupted (Ctrl-C)"

HELP_EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "solve": (
        ("krylix solve --example bar", "a real matrix that is there already"),
        ("krylix solve A.mtx b.mtx --output x.mtx", "two files, and x to a third one"),
        ("krylix solve A.mtx --method CG --preconditioner amg --rtol 1e-8", "choose how"),
        ("krylix solve A.mtx --explain --plot convergence.png", "why this method, and how it converged"),
        ("krylix solve A.mtx b.mtx --output - --quiet > x.txt", "x to standard output, as text"),
        ("krylix solve A.mtx --json", "for programs"),
    ),
    "compare": (
        ("krylix compare --example bar", "what suits the matrix, the fastest first"),
        ("krylix compare A.mtx b.mtx --plot comparison.png", "and how each one converged"),
        ("krylix compare A.mtx --methods CG,MINRES --preconditioners none,jacobi", "these four"),
        ("krylix compare A.mtx --methods GMRES --time-limit 5 --json", "5 s for each at most, for programs"),
    ),
    "precondition": (
        ("krylix precondition --example bar --kind amg", "what it costs"),
        ("krylix precondition A.mtx --kind ilu --setting levels=1 --output M.npz", "with a setting, to a file"),
    ),
    "inspect": (
        ("krylix inspect --example airfoil", "symmetry, definiteness, band, null space"),
        ("krylix inspect A.mtx --plot A.png", "a picture of the entries"),
        ("krylix inspect A.mtx --preconditioners", "what each preconditioner costs and gains"),
    ),
    "methods": (
        ("krylix methods", "a table"),
        ("krylix methods --json", "for programs"),
    ),
}
"""Command -> lines that can be run, each with what it shows."""


def epilog(command: str) -> str:
    """Examples and exit codes of a command, in lines that stay as they are."""
    lines = [f"  {line}\n      {why}" for line, why in HELP_EXAMPLES[command]]
    return "\n".join(["examples:", *lines, "", EXIT_CODES])


class Formatter(argparse.HelpFormatter):
    """argparse's, but texts of several lines keep them."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in text.splitlines())
