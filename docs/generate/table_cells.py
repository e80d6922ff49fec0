"""Text as a cell of a table in Markdown."""

from __future__ import annotations

import html
import re

_CODE = re.compile(r"`([^`\n]+)`")


def cell(text: str) -> str:
    r"""With its bars as no ends of a cell. In code, where `\|` would be shown as it is, they are an entity."""
    code = _CODE.sub(lambda m: _as_html(m[1]) if "|" in m[1] else m[0], text)
    return code.replace("|", "\\|")


def _as_html(code: str) -> str:
    return f"<code>{html.escape(code, quote=False).replace('|', '&#124;')}</code>"
