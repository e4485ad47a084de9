"""Files and folders that a caller names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .errors import ConfigError

Path_ = str | os.PathLike[str]


def path_of(value: Any, argument: str) -> Path:
    """The path that was given as the argument; ConfigError if it is none."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{argument}={value!r}: expected a path, a str or pathlib.Path",
                          key=argument)  # fmt: skip
    return Path(value)
