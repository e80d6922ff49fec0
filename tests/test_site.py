"""The site, without building it: navigation, links, registries and public names fit together."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

from library import ROOT, label

pytest.importorskip("yaml", reason="of requirements/docs.txt")
pytest.importorskip("griffe", reason="of requirements/docs.txt")
GENERATE = ROOT / "docs" / "generate"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GENERATE))


def test_every_page_is_in_the_navigation() -> None:
    import gather
    import navigation

    named = navigation.pages(navigation.configuration()["nav"])
    folders = tuple(page[:-1] for page in named if page.endswith("/*"))
    for page, place in gather.pages().items():
        assert place.as_posix() in named or place.as_posix().startswith(folders), f"{label(page)} is not in mkdocs.yml"


def test_the_navigation_leads_to_pages() -> None:
    import gather
    import navigation

    indices = (f"{folder}/index.md" for folder in ("examples", "reference", "methods", "preconditioners"))
    there = {place.as_posix() for place in gather.pages().values()} | {"benchmarks.md", *indices}
    for page in navigation.pages(navigation.configuration()["nav"]):
        assert page in there or page.endswith("/*"), f"mkdocs.yml names {page}, which is not there"


def test_folders_add_the_pages_that_are_named_nowhere(tmp_path: Path) -> None:
    import navigation

    (tmp_path / "methods").mkdir()
    for name, order in (("index", 0), ("b", 1), ("a", 2)):
        (tmp_path / "methods" / f"{name}.md").write_text(f"---\ntitle: {name}\norder: {order}\n---\n")
    entries = ["methods/index.md", {"Each": ["methods/*"]}]
    assert navigation.filled(entries, tmp_path) == ["methods/index.md", {"Each": ["methods/b.md", "methods/a.md"]}]


def test_links_between_pages() -> None:
    """Of all pages, those in folders too, outside of code."""
    import gather

    for page in gather.pages():
        text = gather._FENCE.sub("", page.read_text())
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text):
            assert (page.parent / target).exists() or _generated(page, target), f"{label(page)} links to {target}"


def _generated(page: Path, target: str) -> bool:
    """Is it a page of the site that a registry makes?"""
    import gather
    from krylix.solvers import METHODS, PRECONDITIONERS
    from page_files import file_of

    places = {f"methods/{file_of(name)}" for name in METHODS}
    places |= {f"preconditioners/{file_of(kind)}" for kind in PRECONDITIONERS}
    places |= {f"{folder}/index.md" for folder in ("methods", "preconditioners", "reference", "examples")}
    place = gather.pages()[page].parent / target
    return (ROOT / place).resolve().relative_to(ROOT).as_posix() in places


def test_every_public_name_is_in_the_reference(tmp_path: Path) -> None:
    import public_names
    import reference

    reference.write(tmp_path)
    text = "".join(page.read_text() for page in tmp_path.glob("*.md"))
    names = public_names.all_names()
    for name in names:
        for full in (name.full, *name.aliases):
            assert f'id="{full}"' in text or f"#{full} }}" in text, full
    known = {full for name in names for full in (name.full, *name.aliases)}
    for module in public_names.modules():
        public = {f"{module.__name__}.{short}" for short in public_names.exported(module)}
        modules = {full for full in public if isinstance(getattr(module, full.rpartition(".")[2]), ModuleType)}
        assert public - modules <= known
    for on_demand in ("krylix.torch.Solve", "krylix.keras.Solve", "krylix.adapters.lineax.LineaxSolver"):
        assert on_demand in known


def test_what_serves_other_folders_is_not_in_the_reference() -> None:
    import public_names

    tested: dict[str, list[str]] = {}
    for node in ast.parse((ROOT / "tests/test_public_names.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("OF_"):
            tested[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    assert [*public_names.SERVES_USERS["krylix.sparse"]] == tested["OF_SPARSE"]
    assert [*public_names.SERVES_USERS["krylix.backends"]] == tested["OF_BACKENDS"]
    known = {full for name in public_names.all_names() for full in (name.full, *name.aliases)}
    assert "krylix.sparse.CSR" in known and "krylix.sparse.asymmetry" not in known


def test_grouped_names_are_public() -> None:
    import krylix
    import public_names

    for page, names in public_names.PAGES.items():
        assert set(names) <= set(krylix.__all__), page


def test_registries_have_formulas() -> None:
    import formulas
    from krylix.solvers import METHODS, PRECONDITIONERS

    assert set(formulas.METHODS) == set(METHODS), "a formula for each method: docs/generate/formulas.py"
    assert set(formulas.PRECONDITIONERS) == set(PRECONDITIONERS)


def test_nothing_is_loaded_from_elsewhere() -> None:
    import navigation

    settings = navigation.configuration()
    assert settings["theme"]["font"] is False
    for key in ("extra_css", "extra_javascript"):
        assert not [file for file in settings[key] if "//" in file]
    for file in (ROOT / "docs" / "assets").glob("*.*"):
        assert not re.search(r"https?://", file.read_text()), label(file)


def test_executed_code(tmp_path: Path) -> None:
    import execute

    page = tmp_path / "page.md"
    page.write_text(
        '=== "A"\n\n    ```python exec="true" source="above" session="s" result="text"\n'
        "    x = 2\n    print(x)\n    ```\n\n"
        '```python exec="true" session="s" html="true"\nprint("<b>", x, "</b>")\n```\n'
    )
    text = execute.executed(page)
    assert "    ```python\n    x = 2" in text and "    2\n    ```" in text  # indented, as the tab is
    assert "<b> 2 </b>" in text and 'exec="true"' not in text
    page.write_text('# A\n\n```python exec="true"\n1 / 0\n```\n')
    with pytest.raises(RuntimeError, match=r"(?s)page.md:4 failed.*ZeroDivisionError"):
        execute.executed(page)


def test_what_the_inspection_finds(tmp_path: Path) -> None:
    import inspect_site

    (tmp_path / "a.html").write_text(
        '<a href="b.html">b</a> <a href="#there">t</a> <b id="there"></b> <a href="a.html#no">n</a>'
        '<script src="https://cdn.org/x.js"></script> <p class="error">'
        r"<code>\|f\|</code> <pre><code>\|</code></pre>"
    )
    found = "\n".join(inspect_site._of_page(tmp_path / "a.html", (tmp_path / "a.html").read_text()))
    assert "links to b.html" in found and "links to a.html#no" in found and "#there" not in found
    assert "cdn.org" in found and 'class="error"' in found
    assert found.count("shows a backslash") == 1 and r"<code>\|f\|</code>" in found


def test_bars_in_cells() -> None:
    from table_cells import cell

    assert cell("min |x| and `a`") == r"min \|x\| and `a`"
    assert cell("`|a| < 1`, `b`") == "<code>&#124;a&#124; &lt; 1</code>, `b`"
