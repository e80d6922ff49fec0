"""Runs cases on virtual devices: `python -m sharded.run DEVICES MODULE [NAME ...]`, with tests/helpers on PYTHONPATH.

A module of this package has a function `cases`, which yields names and cases. Prints a line of JSON for each that was
named, or for all: see `look`.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from fast_compilation import virtual_devices


def main(devices: str, module: str, *names: str) -> None:
    os.environ.update(virtual_devices(int(devices)))
    look = import_module("sharded.cases").look
    for name, case in import_module(f"sharded.{module}").cases():
        if not names or name in names:
            print(json.dumps({"name": name, **look(case)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
