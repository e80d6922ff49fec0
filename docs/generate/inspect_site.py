"""What must hold for the built pages: links, anchors, public names, nothing from elsewhere, no error shown."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from public_names import all_names

_LOADED = re.compile(
    r"<(?:script|link|img|source|iframe)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//[^\"'> ]+[^>]*>", re.I
)
_IN_STYLE = re.compile(r"(?:url\(|@import\s+)[\"']?https?://[^)\"']+")
_LINK = re.compile(r"<(?:a|img|script|link)\b[^>]*?\s(?:href|src)=[\"']?([^\"'> ]+)", re.I)
_ID = re.compile(r"\s(?:id|name)=[\"']?([^\"'> ]+)")
_CODE = re.compile(r"<code\b.*?</code>", re.DOTALL)
_LISTING = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_WRONG = ('class="error"', "Traceback (most recent call last)", "::: krylix", 'exec="true"')


def errors(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {page: page.read_text() for page in sorted(site.rglob("*.html"))}
    found = [f"{page.relative_to(site)}: {error}" for page, text in pages.items() for error in _of_page(page, text)]
    for style in site.rglob("*.css"):
        found += [f"{style.relative_to(site)}: loads {m[0]}" for m in _IN_STYLE.finditer(style.read_text())]
    return found + _missing_names(site)


def _of_page(page: Path, text: str) -> list[str]:
    prose = _CODE.sub("", text)
    found = [f"shows {wrong}" for wrong in _WRONG if wrong in prose]
    found += [f"shows a backslash: {code}" for code in _CODE.findall(_LISTING.sub("", text)) if r"\|" in code]
    found += [f"loads {m[0]}" for m in _LOADED.finditer(text) if 'rel="canonical"' not in m[0]]
    if page.name != "404.html":
        found += [f"links to {link}" for link in dict.fromkeys(_LINK.findall(text)) if not _leads_somewhere(page, link)]
    return found


def _leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"\w+:", link):
        return True
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path.partition("?")[0]).resolve() if path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return False
    return not anchor or target.suffix != ".html" or anchor in _ids(target)


@cache
def _ids(page: Path) -> frozenset[str]:
    return frozenset(_ID.findall(page.read_text()))


def _missing_names(site: Path) -> list[str]:
    there = {found for page in (site / "reference").rglob("*.html") for found in _ids(page)}
    wanted = {full for name in all_names() for full in (name.full, *name.aliases)}
    return [f"the reference lacks {full}" for full in sorted(wanted - there)]
