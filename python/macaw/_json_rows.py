"""Files with a JSON object a line, whose last line a crash may have torn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import Error

Row = dict[str, Any]


def row_of(line: str | bytes) -> Row | None:
    """None: the line is no whole row."""
    try:
        row = json.loads(line)
    except ValueError:  # torn in a character, too
        return None
    return row if isinstance(row, dict) else None


def rows_of(file: Path) -> list[Row]:
    """All rows but a torn last one. A row before it that is none is an error: nothing tears it."""
    lines = file.read_bytes().splitlines()
    rows = [row_of(line) for line in lines]
    wrong = next((number for number, row in enumerate(rows) if row is None), len(rows))
    if wrong < len(rows) - 1:
        raise Error(f"{file} is damaged: line {wrong + 1} is no row; look at the disk")
    return [row for row in rows if row is not None]
