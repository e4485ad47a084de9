"""Whether a run has ended: its summary says so, unless that is of an earlier session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._json_rows import row_of

#: Bytes that are read at first: a file has a row a round, and the last one is enough.
_TAIL = 1 << 16


def has_ended(folder: Path) -> bool:
    """Whether it has a summary, and no row that is newer (cli/results/ending.h)."""
    found = summary(folder)
    return found is not None and newer_row(folder, found) is None


def run_id(folder: Path) -> str | None:
    """Which run the folder holds, also after a resume; None: it has not begun."""
    try:
        return (folder / "run-id").read_text().strip()
    except FileNotFoundError:
        return None


def summary(folder: Path) -> dict[str, Any] | None:
    """What summary.json says, of whichever session; None: there is none."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def newer_row(folder: Path, summary: dict[str, Any]) -> int | None:
    """The round of the last row where the summary does not know it; None: it knows all rows.

    A run that gets more rounds keeps its summary until it has ended again.
    """
    known = summary.get("final_round", summary.get("rounds"))
    last = _last_row(folder / "metrics.jsonl")
    return last if last is not None and known is not None and last > known else None


def _last_row(file: Path) -> int | None:
    """The round of the last row that is whole: a crash may have cut one off."""
    if not file.exists():
        return None
    size, tail = file.stat().st_size, _TAIL
    while True:
        with file.open("rb") as rows:
            rows.seek(max(0, size - tail))
            lines = rows.read().splitlines()
        for line in reversed(lines):
            row = row_of(line)
            if row is not None and isinstance(row.get("round"), int):
                return int(row["round"])
        if tail >= size:
            return None
        tail *= 2
