"""The text of backends/operations/names.py, made from the table; run as a script, this writes it."""

from __future__ import annotations

import inspect

from krylix.backends import Backend
from krylix.backends.operations.names import Names
from krylix.backends.operations.table import OPERATIONS
from library import ROOT

PATH = ROOT / "backends/operations/names.py"
HEADER = '''"""Operations as typed attributes, for editors: written by tests/helpers/operation_names.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Names:
    """Operations of OPERATIONS that are no methods of Backend itself."""

'''


def text() -> str:
    """The file as it has to be."""
    own = {
        name for cls in Backend.__mro__ if cls is not Names for name in {**vars(cls), **inspect.get_annotations(cls)}
    }
    return HEADER + "".join(f"    {name}: Callable[..., Any]\n" for name in sorted(OPERATIONS) if name not in own)


if __name__ == "__main__":
    PATH.write_text(text())
