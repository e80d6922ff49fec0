"""A page for each example: what it is about, its picture, its code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from places import DOCS, ROOT


def write(folder: Path) -> None:
    """The pages, and an index of them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# Examples", "", "Each is a program by itself: `python examples/NAME.py`.", "", "| example | about |"]
    lines.append("|---|---|")
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text()
        title, _, about = (ast.get_docstring(ast.parse(code)) or path.stem).partition("\n")
        (folder / f"{path.stem}.md").write_text(_page(path.stem, title.rstrip("."), about, code))
        lines.append(f"| [{_short(title)}]({path.stem}.md) | {title} |")
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def _short(title: str) -> str:
    """The beginning of a title, for the navigation."""
    return re.split("[:,]", title.rstrip(".").replace("`", ""))[0]


def _page(name: str, title: str, about: str, code: str) -> str:
    found = sorted((DOCS / "pictures").glob(f"{name}.*"))
    picture = f"![{title}](../pictures/{found[0].name})\n\n" if found else ""
    return (
        f"---\ntitle: {json.dumps(_short(title), ensure_ascii=False)}\n---\n\n# {title}\n\n{about.strip()}\n\n{picture}"
        f"`python examples/{name}.py`\n\n```python\n{code.rstrip()}\n```\n"
    )
