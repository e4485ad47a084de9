"""metrics.csv in the run's folder: a table for pandas and spreadsheets."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from ._track_run import NO_ROUND, Facts, Row


class CsvTracker:
    """A column for each of metrics.jsonl; "nan" is what is not finite.

    The first rows of a run lack columns that come later, such as those of evaluations. Then the
    file is replaced by one in which the earlier rows have empty cells.
    """

    package = ""

    def __init__(self) -> None:
        self._path = Path()
        self._columns: list[str] = []  # as in the file's first line

    def open(self, facts: Facts) -> int:
        self._path = facts.folder / "metrics.csv"
        if not self._path.exists():
            return NO_ROUND
        with self._path.open(newline="", encoding="utf-8") as file:
            text = file.read()
        whole = text[: text.rfind("\n") + 1]  # a crash can tear the last line
        os.truncate(self._path, len(whole.encode()))
        lines = list(csv.reader(whole.splitlines()))
        if not lines or lines[0][:1] != ["round"]:
            os.truncate(self._path, 0)
            return NO_ROUND
        self._columns = lines[0]
        last = lines[-1][0]
        if len(lines) == 1:
            return NO_ROUND
        if not last.isdecimal():
            what = f'its last line begins with "{last}" and not with a round'
            raise ValueError(f"{self._path} was changed: {what}; remove the file")
        return int(last)

    def deliver(self, rows: list[Row]) -> None:
        known = self._columns or ["round"]
        new = [name for row in rows for name in row.values if name not in known]
        columns = known + list(dict.fromkeys(new))
        cells: list[dict[str, object]] = [{"round": row.round, **row.values} for row in rows]
        if columns == self._columns:
            self._write(self._path, "a", cells)
            return
        earlier: list[dict[str, object]] = []
        if self._columns:
            with self._path.open(newline="", encoding="utf-8") as file:
                earlier = [dict(row) for row in csv.DictReader(file)]
        self._columns = columns
        wider = self._path.with_suffix(".csv.next")
        self._write(wider, "w", [dict(zip(columns, columns, strict=True)), *earlier, *cells])
        os.replace(wider, self._path)

    def close(self, _end: str, /) -> None:
        pass

    def _write(self, path: Path, mode: str, rows: list[dict[str, object]]) -> None:
        with path.open(mode, newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, lineterminator="\n").writerows(rows)
