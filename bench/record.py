"""What finished runs found, kept in the repository: results/…/NAME.jsonl, a line for each run.

A run is named by its cell of a table and its seed; a later one of the same name takes its place.
Lines are sorted by these names, so that two machines' additions merge. Several processes may add.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import tomllib
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar


@dataclasses.dataclass(frozen=True)
class Entry:
    """A finished run. None: not known, of figures that were carried over from a page.

    A benchmark whose table needs more than these accuracies adds fields to it.
    """

    cell: str
    seed: int
    settings: str  # digest_of_settings: the cell as it was
    drawn: str | None  # digest_of_files: what the seed decided, such as a division of the rows
    # Test accuracies, from 0 to 1: of the best round, of the last one, and the mean of the last ten
    # that were evaluated.
    best: float | None
    last: float | None
    tail: float | None
    minutes: float | None
    model: str | None  # digest of the final model
    macaw: str | None  # the program, with its version
    profile: dict[str, str] | None  # whose arithmetic: the same bits are of the same profile
    data: str | None  # digest of the data, and of their division
    processor: str
    day: str

    @property
    def name(self) -> tuple[str, int]:
        return self.cell, self.seed


Kind = TypeVar("Kind", bound=Entry)


class Record(Generic[Kind]):
    """The entries of a table."""

    def __init__(self, file: pathlib.Path, kind: type[Kind]) -> None:
        self.file, self.kind = file, kind

    def entries(self) -> dict[tuple[str, int], Kind]:
        found = {}
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                entry = self.kind(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise SystemExit(
                    f"{self.file}, line {number}: no entry ({error}); git has the last good file"
                ) from None
            found[entry.name] = entry
        return found

    def add(self, entry: Kind) -> None:
        """In place of an earlier one of its name. The file is whole at any time."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.file.parent):
            found = self.entries() | {entry.name: entry}
            lines = [json.dumps(dataclasses.asdict(found[name])) for name in sorted(found)]
            half = self.file.with_suffix(".half")
            half.write_text("".join(line + "\n" for line in lines))
            os.replace(half, self.file)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """One process, and one thread of it, at a time."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def digest(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_settings(config: str, settings: Iterable[str]) -> str:
    """Of a TOML text and KEY=VALUE. Order, comments and spaces do not count."""
    return digest(json.dumps([tomllib.loads(config), sorted(settings)], sort_keys=True))


def digest_of_input(file: pathlib.Path) -> str:
    """As in the "inputs" of a run's summary (cli/config/inputs.cc), of a file up to 64 MiB."""
    data = file.read_bytes()
    text = len(data).to_bytes(8, "little") + data
    return hashlib.blake2b(text, digest_size=32).hexdigest()[:16]


def digest_of_files(settings: Iterable[str], folder: pathlib.Path) -> str:
    """Of KEY=VALUE, where a value in the folder stands for that file's bytes."""
    words = []
    for word in settings:
        key, value = word.split("=", 1)
        path = pathlib.Path(value)
        inside = path.is_absolute() and path.is_relative_to(folder)
        words.append([key, digest(path.read_bytes()) if inside else value])
    return digest(json.dumps(sorted(words)))
