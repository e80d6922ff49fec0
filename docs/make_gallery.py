"""The gallery of the examples: `docs/gallery.md` from their docstrings, and the pictures that it shows.

python docs/make_gallery.py                         the page
python docs/make_gallery.py --pictures [NAME ...]   runs all examples, or those named, and stores what they draw
python docs/make_gallery.py --vortex-street         the picture of the first page: a longer run, which takes minutes

An example called NAME.py draws NAME.png, into the folder in which it runs.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures"
VORTEX_STREET = PICTURES / "vortex_street.png"
MOST_BYTES, MOST_BYTES_IN_FRONT = 60_000, 150_000
_WIDTH = 1000  # pixels
_HEAD = """# Gallery

Each example is a script that checks its own answer, and ends with an error if that is wrong: `python examples/NAME.py`.
What it draws goes to `NAME.png` in the current folder.

![Vortices behind a cylinder](pictures/vortex_street.png)

The vortex street is drawn by [pressure_projection.py](../examples/pressure_projection.py) `--long`: in every time step
one linear system for the pressure.
"""


class Example(NamedTuple):
    """Attributes:
    name: of the file, without ending.
    title: first sentence of the docstring.
    text: its second paragraph, and what goes on with its last sentence.
    """

    name: str
    title: str
    text: str

    @property
    def picture(self) -> Path:
        return PICTURES / f"{self.name}.webp"


def examples() -> list[Example]:
    """All examples, by name."""
    return [_example(path) for path in sorted((ROOT / "examples").glob("*.py"))]


def _example(path: Path) -> Example:
    title, *paragraphs = (ast.get_docstring(ast.parse(path.read_text())) or path.stem).split("\n\n")
    return Example(path.stem, title.replace("\n", " ").rstrip("."), _whole(paragraphs))


def _whole(paragraphs: list[str]) -> str:
    """The first paragraph, and those after it until a sentence ends: formulas stand in paragraphs of their own."""
    last = next((i for i, text in enumerate(paragraphs) if not text.rstrip().endswith((",", ":"))), len(paragraphs) - 1)
    return "\n\n".join(paragraphs[: last + 1])


def page() -> str:
    """The page: pictures first, then a table of the examples that draw none."""
    lines, others = [_HEAD], ["## Without a picture", "", "| example | about |", "|---|---|"]
    for example in examples():
        link = f"[{example.name}.py](../examples/{example.name}.py)"
        if not example.picture.exists():
            others.append(f"| {link} | {example.title} |")
            continue
        alt = example.title.replace("`", "")
        picture = f"![{alt}](pictures/{example.picture.name})"
        lines.append(f"## {example.title}\n\n{picture}\n\n{example.text}\n\n{link}\n")
    return "\n".join([*lines, *others, ""])


def run(name: str, *options: str) -> bytes | None:
    """Run an example in an empty folder, and return the picture that it draws."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # idle ones cost time
    environment = {**os.environ, **threads, "MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *options]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        drawn = Path(folder) / f"{name}.png"
        return drawn.read_bytes() if drawn.exists() else None


def store(content: bytes, path: Path, most: int) -> None:
    """Write a picture in the form that the name says, as good as it can be in so many bytes.

    Raises:
        ValueError: it is too large in any quality.
    """
    import io

    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    if path.suffix == ".png":
        image.save(path, optimize=True)
        if path.stat().st_size > most:
            image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        tries = [0]
    else:
        height = round(image.height * min(1, _WIDTH / image.width))
        image = image.resize((min(_WIDTH, image.width), height), Image.Resampling.LANCZOS)
        tries = [90, 80, 70, 60, 50]
    for quality in tries:
        if quality:
            image.save(path, quality=quality, method=6)
        if path.stat().st_size <= most:
            return
    raise ValueError(f"{path} has {path.stat().st_size} bytes; expected at most {most}.")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description="Make the gallery of the examples.")
    parser.add_argument("--pictures", nargs="*", metavar="NAME", help="run all examples, or these, and store pictures")
    parser.add_argument("--vortex-street", action="store_true", help="run the long form of pressure_projection.py")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    names = [] if options.pictures is None else options.pictures or [example.name for example in examples()]
    for name in names:
        drawn = run(name)
        if drawn is not None:
            store(drawn, PICTURES / f"{name}.webp", MOST_BYTES)
    if options.vortex_street:
        drawn = run("pressure_projection", "--long")
        if drawn is not None:
            store(drawn, VORTEX_STREET, MOST_BYTES_IN_FRONT)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
