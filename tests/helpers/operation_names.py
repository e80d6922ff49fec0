"""The text of backends/operations/names.py, made from the table; run as a script, this writes it."""

from __future__ import annotations

import inspect
import textwrap

from krylix.backends import Backend
from krylix.backends.operations.names import Names
from krylix.backends.operations.table import OPERATIONS
from library import ROOT

PATH = ROOT / "backends/operations/names.py"
HEADER = '''"""Operations as attributes, for editors: written by tests/helpers/operation_names.py."""

from __future__ import annotations

from typing import Any


def _operation(*args: Any, **settings: Any) -> Any: ...


class Names:
    """Operations of OPERATIONS that are no methods of Backend itself."""

'''


def text() -> str:
    """The file as it has to be."""
    own = {
        name for cls in Backend.__mro__ if cls is not Names for name in {**vars(cls), **inspect.get_annotations(cls)}
    }
    names = " ".join(name for name in sorted(OPERATIONS) if name not in own)
    lines = textwrap.wrap(names.replace(" ", " = "), 100, break_long_words=False)
    return HEADER + "".join(f"    {line.strip(' =')} = _operation\n" for line in lines)


if __name__ == "__main__":
    PATH.write_text(text())
