"""Code blocks of the pages that are executed when the site is built, in the notation of markdown-exec."""

import ast
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

EXECUTED = re.compile(r"^```python (?=.*exec=)(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


class Block(NamedTuple):
    """A block of code, its lines numbered as in the page, and the session whose names it shares."""

    session: str
    code: str


def executed_blocks(page: Path) -> list[Block]:
    text, found = page.read_text(), []
    for match in EXECUTED.finditer(text):
        options = dict(option.partition("=")[::2] for option in shlex.split(match.group(1)))
        session = options.get("session") or f"{page.stem}-{len(found)}"  # one without a name is by itself
        found.append(Block(session, "\n" * text.count("\n", 0, match.start(2)) + match.group(2)))
    return found


def missing_modules(code: str) -> list[str]:
    """Top-level modules that the code imports, at any depth of it, and that are not installed."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return sorted({top for name in names if find_spec(top := name.partition(".")[0]) is None})
