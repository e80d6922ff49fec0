"""Where the pages come from, where they are gathered, and where the site is built."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WORK = ROOT / "build" / "site"
SOURCE = WORK / "source"  # all pages, hand-written and generated, their code executed
CONFIGURATION = WORK / "mkdocs.yml"
BUILT = WORK / "html"  # Zensical builds inside of the folder of its configuration
SITE = ROOT / "site"
