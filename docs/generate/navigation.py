"""mkdocs.yml with the pages that the build made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from places import BUILT, CONFIGURATION, ROOT, SOURCE

_TITLE = re.compile(r"^(?:title: |# )(.+)$", re.MULTILINE)


def configuration() -> dict[str, Any]:
    """mkdocs.yml as it stands."""
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def write() -> None:
    """The configuration of the build."""
    settings = configuration()
    settings["nav"] = filled(settings["nav"], SOURCE)
    settings["docs_dir"], settings["site_dir"] = SOURCE.name, BUILT.name
    (handler,) = (plugin["mkdocstrings"] for plugin in settings["plugins"] if "mkdocstrings" in plugin)
    python = handler["handlers"]["python"]
    python["paths"] = [str(ROOT / "src")]
    python["options"]["extensions"] = [str(ROOT / "docs/generate/runtime_docstrings.py")]
    CONFIGURATION.write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def filled(entries: list[Any], source: Path, named: frozenset[str] | None = None) -> list[Any]:
    """`folder/*` replaced by the pages of this folder that are named nowhere, in the order of their numbers.

    A page has its number in its header (`order: 3`); the others follow in the order of their titles.

    Args:
        entries: of mkdocs.yml, or of a list in it.
        source: the folder of all pages.
        named: pages of the whole navigation; None where `entries` are the whole.
    """
    named = frozenset(pages(entries)) if named is None else named
    result: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, inside),) = entry.items()
            result.append({title: filled(inside, source, named) if isinstance(inside, list) else inside})
        elif entry.endswith("/*"):
            found = [path.relative_to(source).as_posix() for path in (source / entry[:-2]).glob("*.md")]
            result += sorted(set(found) - named, key=lambda page: _order(source / page))
        else:
            result.append(entry)
    return result


def _order(page: Path) -> tuple[float, str]:
    number = re.search(r"^order: (\d+)$", page.read_text(), re.MULTILINE)
    return (int(number[1]) if number else float("inf"), title_of(page).lower())


def pages(entries: list[Any]) -> list[str]:
    """All pages that are named in a navigation."""
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, dict):
        entries = list(entries.values())
    return [page for entry in entries for page in pages(entry)]


def title_of(page: Path) -> str:
    """The title of a page: that of its header, or its first heading."""
    found = _TITLE.search(page.read_text())
    return found[1] if found else page.stem
