"""The commands `macaw`, `macaw-server` and `macaw-worker` of a Python environment.

They are the programs in the package. This module imports nothing of it, so that they start at
once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def _become(name: str) -> NoReturn:
    # Rules and trackers in Python run in this environment, too.
    os.environ.setdefault("MACAW_PYTHON", sys.executable)
    program = Path(__file__).parent / "macaw" / "bin" / name
    os.execv(program, [name, *sys.argv[1:]])


def macaw() -> NoReturn:
    _become("macaw")


def server() -> NoReturn:
    _become("macaw-server")


def worker() -> NoReturn:
    _become("macaw-worker")
