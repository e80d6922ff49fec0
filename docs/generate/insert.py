"""Parts of hand-written pages that are generated: `<!-- generated: NAME -->` stands where they go."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import choice
import measured
from places import DOCS

_MARK = re.compile(r"^<!-- generated: ([\w ]+) -->$", re.MULTILINE)


def _vortex_street() -> str:
    words = "The vortex street behind a cylinder; each time step solves for a pressure"
    return f"![{words}](pictures/vortex_street.png)" if (DOCS / "pictures/vortex_street.png").exists() else ""


PARTS: dict[str, Callable[[], str]] = {
    "flow chart": choice.flow_chart,
    "times beside peers": measured.beside_peers,
    "vortex street": _vortex_street,
}


def into(source: Path) -> None:
    """Fill in the marks on all pages.

    Raises:
        KeyError: a page names a part that there is not.
    """
    for page in source.rglob("*.md"):
        text = page.read_text()
        if _MARK.search(text):
            page.write_text(_MARK.sub(lambda match: PARTS[match[1]](), text))
