"""What trackers are told of a run: its name, its configuration, its rows, and how it ended.

All of it is read from the run's folder, also while the run goes on.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

NO_ROUND = -1  # before the first round, which may have the number 0

# A row that is read this many seconds after the last look was written meanwhile. The time of any
# other row is in the log of rounds.
_FRESH = 2.0
_ENDS = ("finished", "stopped", "interrupted", "failed")


@dataclass(frozen=True)
class Row:
    """A row of metrics.jsonl. ``values``: the numbers of its columns; NaN is what is not finite."""

    round: int
    time: float  # Unix seconds at which the round was closed
    values: dict[str, float]


@dataclass(frozen=True)
class Facts:
    """What a run is. ``settings``: its config.toml, a dict from "local.lr" to a value."""

    folder: Path
    name: str
    id: str  # random; the same in every session of the run
    settings: dict[str, Any]
    began: float  # Unix seconds


class Tracker(Protocol):
    """Where the rows of a run go. It knows which rows it has, so no row is delivered twice.

    An object is used by one thread. After an error it is dropped, and a new one is opened.
    """

    #: The package that it needs, as pip and Python name it; "": none.
    package: str

    def open(self, facts: Facts) -> int:
        """Opens it. Returns the round of the last row that it has, or NO_ROUND."""
        ...

    def deliver(self, rows: list[Row]) -> None:
        """Takes rows of later rounds, in their order. After an error it has some of them."""
        ...

    def close(self, end: str, /) -> None:
        """The last row was delivered. ``end``: as ``RunFolder.end``. The run may be resumed."""
        ...


class RunFolder:
    """The folder of a run. Any thread. ``program``: `macaw`, which reads the log of rounds."""

    def __init__(self, path: Path, program: str = "macaw") -> None:
        self.path = path
        self._program = program

    def facts(self) -> Facts:
        """Errors name the file that is missing."""
        settings: dict[str, Any] = {}
        _flatten("", _read_toml(self.path / "config.toml"), settings)
        first = next(self._log(), None)
        return Facts(
            folder=self.path,
            name=str(settings.get("run.name", "")),
            id=(self.path / "run-id").read_text().strip(),
            settings=settings,
            began=time.time() if first is None else first["wall_ns"] / 1e9,
        )

    def end(self) -> str:
        """How the last session ended: finished, stopped, interrupted or failed.

        "": it has not, or its server was killed.
        """
        end, epoch = "", None
        if not (self.path / "events.jsonl").exists():
            return end
        with (self.path / "events.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line) if '"event":"run_' in line else {}
                if event.get("event", "").removeprefix("run_") in _ENDS:
                    end, epoch = event["event"].removeprefix("run_"), event["epoch"]
        return end if epoch == int((self.path / "epoch").read_text()) else ""

    def closed(self) -> dict[int, float]:
        """When each round was closed, in Unix seconds. Without the log: nothing."""
        times: dict[int, float] = {}
        began = 0.0
        for record in self._log():
            if record["record"] == "run_opened":
                began = began or record["wall_ns"] / 1e9 - record["t"]
            elif record["last"]:
                times.setdefault(record["round"], began + record["t"])
        return times

    def _log(self) -> Iterator[dict[str, Any]]:
        """The records of the log of rounds that begin a session or close a phase."""
        command = [self._program, "log", str(self.path), "--json"]
        wanted = (b'"record":"run_opened"', b'"record":"closed"')
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if any(kind in line for kind in wanted):
                        yield json.loads(line)
            finally:
                process.kill()


class Rows:
    """Reads the rows of a run, also while it goes on. One thread.

    A server that goes on from a checkpoint cuts rows and writes the same ones again.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._path = run.path / "metrics.jsonl"
        self._offset = 0  # behind the last line that was read
        self._last = NO_ROUND
        self._looked = -math.inf  # when the end of the file was last reached
        self._closed: Mapping[int, float] = {}

    def after(self, last: int, most: int) -> list[Row]:
        """The rows of later rounds than ``last``, at most ``most``. Empty: there are none yet."""
        found: list[tuple[int, dict[str, float]]] = []
        fresh = time.monotonic() - self._looked < _FRESH
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            if file.seek(0, 2) < self._offset or last < self._last:
                self._offset = 0
            file.seek(self._offset)
            while len(found) < most:
                line = file.readline()
                if not line.endswith(b"\n"):  # the rest of the line, or of the run, is to come
                    self._looked = time.monotonic()
                    break
                number, values = self._parse(line)
                self._offset += len(line)
                self._last = number
                if number > last:
                    found.append((number, values))
        return [Row(number, self._time(number, fresh), values) for number, values in found]

    def _parse(self, line: bytes) -> tuple[int, dict[str, float]]:
        try:
            columns = json.loads(line)
            number = int(columns.pop("round"))
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            where = f"{self._path} has no row at byte {self._offset}"
            raise ValueError(f"{where}: the file was damaged") from error
        values = {
            name: math.nan if value is None else value
            for name, value in columns.items()
            if value is None or isinstance(value, (int, float))
        }
        return number, values

    def _time(self, number: int, fresh: bool) -> float:
        if not fresh and number not in self._closed:
            self._closed = self._run.closed()
        return self._closed.get(number, time.time())


def text_of(value: Any) -> str:
    """A setting as a text: 0.1, true, [1, 2]; a text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _flatten(prefix: str, table: Mapping[str, Any], settings: dict[str, Any]) -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            _flatten(f"{prefix}{name}.", value, settings)
        else:
            settings[prefix + name] = value


def _read_toml(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        import tomli as tomllib
    content: dict[str, Any] = tomllib.loads(text)
    return content
