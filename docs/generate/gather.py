"""All hand-written pages in one folder, with links that hold there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from places import DOCS, ROOT, SOURCE

ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/benchmarks.md": "measurements.md",  # with budgets of the developers; the site's benchmarks.md is generated
    "tests/README.md": "tests.md",
}
"""Pages of the repository that the site has under another name."""
ALIASES = {"README.md": "index.md", "SECURITY.md": "contributing.md"}
"""Files that links lead to, and the page of the site that stands for them."""
_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(\))")
_PICTURES = {".png", ".svg", ".webp"}
_LEFT_OUT = {"generate", "assets", "benchmarks"}
_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)


def pages() -> dict[Path, Path]:
    """Each page of the repository that the site has, and its place in the site."""
    own = (page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in _LEFT_OUT)
    return {page: page.relative_to(DOCS) for page in sorted(own)} | {
        ROOT / page: Path(place) for page, place in ELSEWHERE.items()
    }


def gather() -> None:
    """Start the folder of the site's sources anew."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page, place in pages().items():
        (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / place).write_text(with_links(page, place))
    shutil.copytree(DOCS / "assets", SOURCE / "assets")
    for picture in (path for path in DOCS.rglob("*") if path.suffix in _PICTURES):
        (SOURCE / picture.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, SOURCE / picture.relative_to(DOCS))


def with_links(page: Path, place: Path) -> str:
    """The text of a page, its links those of the site. Code is left alone."""
    text, parts, end = page.read_text(), [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(lambda m: _moved(m, page, place), text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(lambda m: _moved(m, page, place), text[end:])])


def _moved(match: re.Match[str], page: Path, place: Path) -> str:
    if page == DOCS / "index.md" and match[2] == "benchmarks.md":
        return match[0]
    target = (page.parent / match[2]).resolve()
    moved = site_place(target)
    if moved is None:
        return match[0]
    relative = Path(os.path.relpath(moved, place.parent)).as_posix()
    return f"{match[1]}{relative}{match[3] or ''}{match[4]}"


def site_place(target: Path) -> Path | None:
    """Where the site has this file of the repository; None for what it has not."""
    inside = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else ""
    if inside in ELSEWHERE or inside in ALIASES:
        return Path(ELSEWHERE.get(inside) or ALIASES[inside])
    if inside.startswith("examples/") and inside.endswith(".py"):
        return Path("examples") / f"{target.stem}.md"
    return target.relative_to(DOCS) if target.is_relative_to(DOCS) else None
