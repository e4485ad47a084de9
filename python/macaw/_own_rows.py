"""Numbers that a caller adds to a run's rounds: metrics.own.jsonl beside metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ArgumentError

FILE = "metrics.own.jsonl"


def write(folder: Path, number: int, values: Mapping[str, Any]) -> None:
    """Adds the values of a round. A later value of the same round and name replaces an earlier."""
    with (folder / FILE).open("a") as file:
        file.write(json.dumps({"round": number, **values}) + "\n")


def read(folder: Path) -> dict[int, dict[str, Any]]:
    """The values by round. A line that a crash has torn is left out."""
    path = folder / FILE
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        found.setdefault(values.pop("round"), {}).update(values)
    return found


def checked(values: Mapping[str, Any], row: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Numbers as JSON has them: what is not finite becomes null, as in metrics.jsonl."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str) or name in row:
            whose = "is a column of the run's own" if name in row else "is no word"
            raise ArgumentError(f"{role}: {name!r} {whose}; choose another name", key=role)
        if hasattr(value, "item"):  # of NumPy or torch
            value = value.item()
        if value is not None and not isinstance(value, (bool, int, float)):
            raise ArgumentError(
                f"{role}: {name} is {type(value).__name__}, and a column has numbers", key=role
            )
        finite = value is None or math.isfinite(value)
        found[name] = value if finite else None
    return found
