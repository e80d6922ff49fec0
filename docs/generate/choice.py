"""The flow chart of the automatic choice, from the table that decides."""

from __future__ import annotations

import re

from krylix.solvers.choose import ROWS, Row
from page_files import file_of


def flow_chart() -> str:
    """The rows as a list of questions, each with the method if the answer is yes. The style sheet draws arrows."""
    steps = "\n".join(_step(row, last=row is ROWS[-1]) for row in ROWS)
    return f'<ol class="flow" markdown="0">\n{steps}\n</ol>'


def _step(row: Row, last: bool) -> str:
    known = re.sub(r"`([^`]*)`", r"<code>\1</code>", row.known)
    question = "else" if last else known
    kind = f" + {row.preconditioner}" if row.preconditioner else ""
    link = f"methods/{file_of(row.method).removesuffix('.md')}.html"
    method = f'<a href="{link}"><code>{row.method}</code></a>{kind}'
    return (
        f'<li{" class=last" if last else ""}><span class="question">{question}</span>'
        f'<span class="answer">{method}<small>{row.why}</small></span></li>'
    )
