"""The reference: every public name on a page, under the name that users write."""

from __future__ import annotations

from pathlib import Path

from page_files import file_of_title
from public_names import PAGES, Name, all_names
from table_cells import cell

WITH_INHERITED = ("PreparedSolver",)
"""Classes whose methods are in several files."""


def write(folder: Path) -> None:
    """A page for each group of names, and an index of all."""
    folder.mkdir(parents=True, exist_ok=True)
    found = _by_page()
    for order, (page, names) in enumerate(found.items()):
        (folder / file_of_title(page)).write_text(_page(page, names, order))
    (folder / "index.md").write_text(_index(found))


def _by_page() -> dict[str, list[Name]]:
    """The names of each page: first the pages of `krylix`, from the most used one on, then those of other modules."""
    names = all_names()
    found = {page: [name for name in names if name.page == page] for page in PAGES}
    for page, inside in found.items():
        inside.sort(key=lambda name: PAGES[page].index(name.short))
    for name in names:
        if name.page not in PAGES:
            found.setdefault(name.page, []).append(name)
    return found


def _page(title: str, names: list[Name], order: int) -> str:
    heading = f"`{title}`" if title.startswith("krylix.") else title
    return "\n\n".join([f"---\ntitle: {title}\norder: {order}\n---\n\n# {heading}", *map(_entry, names)]) + "\n"


def _entry(name: Name) -> str:
    anchors = "".join(f'<a id="{alias}"></a>' for alias in name.aliases)
    if name.defined is None:
        return f"## `{name.full}` {{ #{name.full} }}\n\n{anchors}\n\n{name.summary}"
    also = f"\n\nAlso `{'`, `'.join(name.aliases)}`." if name.aliases else ""
    anchors = f'<a id="{name.full}"></a>{anchors}'
    options = f"    options:\n      heading: {name.short}\n      toc_label: {name.short}\n      heading_level: 2\n"
    if name.short in WITH_INHERITED:
        options += "      inherited_members: true\n"
    return f"{anchors}\n\n::: {name.defined}\n{options}{also}\n"


def _index(found: dict[str, list[Name]]) -> str:
    lines = ["# Reference", "", "All public names. The rest of the package may change at any time.", ""]
    for page, names in found.items():
        lines += ["", f"## {page}", "", "| name | what it is |", "|---|---|"]
        for name in names:
            lines.append(f"| [`{name.short}`]({file_of_title(page)}#{name.full}) | {cell(name.summary)} |")
    return "\n".join(lines) + "\n"
