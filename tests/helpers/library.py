"""The library's source files, as the tests of its layout and layers see them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("backends", "sparse", "solvers")
FACADE = ("command_line", "scipy_like", "adapters", "torch", "keras")  # in src/krylix itself


def library_files() -> list[Path]:
    """Every Python file of the library, once each, without the links in src/krylix."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    facade = [path for folder in ("", *FACADE) for path in (ROOT / "src/krylix" / folder).glob("*.py")]
    return sorted(inside + facade)


def module_name(path: Path) -> str:
    """`sparse/csr.py` -> `krylix.sparse.csr`, `solvers/__init__.py` -> `krylix.solvers`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[2:] if parts[0] == "src" else parts
    return ".".join(["krylix", *parts]).removesuffix(".__init__")


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
