"""What a run's keys come to: those that are given here, and those of its configuration file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ConfigError


def value_of(settings: Mapping[str, Any], config: str | os.PathLike[str] | None, key: str) -> Any:
    """A key's value, as it is given or as the file has it. None: neither says it."""
    if key in settings:
        return settings[key]
    if config is None:
        return None
    if sys.version_info >= (3, 11):
        import tomllib

        table: Any = tomllib.loads(Path(config).read_text())
    else:
        raise ConfigError(
            f"{key}: Python before 3.11 cannot read it in {os.fspath(config)}: give it as an "
            "argument",
            key=key,
        )
    for part in key.split("."):
        table = table.get(part) if isinstance(table, dict) else None
    return table
