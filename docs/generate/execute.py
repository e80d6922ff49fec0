"""Run the code on pages whose fences say so, and put what it prints beside it.

The fences are those of markdown-exec: `exec="true"`, `source="above"` (or `below`, nothing: no source),
`session="NAME"`, `result="LANGUAGE"` for what is printed as code, `html="true"` for what is printed as HTML; else it is
Markdown. Lines that end in `# markdown-exec: hide` run, and are not shown. Each page runs in a process of its own, as
settings such as JAX's double precision are those of a process.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from places import ROOT, WORK

FENCE = re.compile(r'^(?P<indent> *)```python (?P<options>[^\n]*exec="true"[^\n]*)\n(?P<code>.*?)^(?P=indent)```$',
    re.MULTILINE | re.DOTALL)  # fmt: skip
_HIDDEN = "# markdown-exec: hide"
_OPTION = re.compile(r'(\w+)="([^"]*)"')
_CACHE = WORK.parent / "executed"


def pages(source: Path) -> None:
    """Execute all pages in the folder, as many at a time as there are processors.

    Raises:
        SystemExit: a block failed.
    """
    todo = [page for page in sorted(source.rglob("*.md")) if FENCE.search(page.read_text())]
    library = _library()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [error for error in pool.map(lambda page: _page(page, library), todo) if error]
    if failed:
        sys.exit("\n".join(failed))


def _page(page: Path, library: str) -> str | None:
    """Replace a page by what becomes of it; the error if it fails."""
    text = page.read_text()
    kept = _CACHE / f"{hashlib.sha256((library + text).encode()).hexdigest()}.md"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as elsewhere:
            command = [sys.executable, str(Path(__file__).resolve()), str(page)]
            run = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
        if run.returncode:
            return f"{page.name}: {run.stderr[-3000:]}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(run.stdout)
    page.write_text(kept.read_text())
    return None


def _library() -> str:
    """A digest of the library: what was executed with another one is executed again."""
    folders = (ROOT / name for name in ("backends", "sparse", "solvers", "src/krylix"))
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    files += [Path(__file__), Path(__file__).with_name("pictures.py")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def executed(page: Path) -> str:
    """The text of a page with what its blocks print.

    Raises:
        RuntimeError: a block failed.
    """
    text, sessions, parts, end = page.read_text(), {}, [], 0
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        parts += [text[end : match.start()], _block(match, sessions, f"{page}:{line}")]
        end = match.end()
    return "".join([*parts, text[end:]])


def _block(match: re.Match[str], sessions: dict[str, dict[str, Any]], where: str) -> str:
    options = dict(_OPTION.findall(match["options"]))
    code = textwrap.dedent(match["code"])
    space = sessions.setdefault(options.get("session", where), {"__name__": "__main__"})
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, where, "exec"), space)
    except BaseException as error:
        raise RuntimeError(f"the block at {where} failed:\n{traceback.format_exc()}") from error
    result = printed.getvalue().rstrip()
    if result and options.get("html") == "true":
        result = f'<div class="picture">\n{result}\n</div>'
    elif result and "result" in options:
        result = f"```{options['result']} {{.result}}\n{result}\n```"
    code = "".join(line for line in code.splitlines(keepends=True) if not line.rstrip().endswith(_HIDDEN))
    shown = f"```python\n{code.rstrip()}\n```" if "source" in options else ""
    parts = [shown, result] if options.get("source") != "below" else [result, shown]
    return textwrap.indent("\n\n".join(part for part in parts if part), match["indent"])


if __name__ == "__main__":
    try:
        text = executed(Path(sys.argv[1]))
    except RuntimeError as error:
        sys.exit(str(error))
    sys.stdout.write(text)
