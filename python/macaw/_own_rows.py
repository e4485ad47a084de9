"""Numbers that a caller adds to a run's rounds: metrics.own.jsonl beside metrics.jsonl."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._json_rows import row_of
from ._run_columns import COLUMNS, METRICS
from .errors import ArgumentError

FILE = "metrics.own.jsonl"

# Columns of metrics.jsonl (docs/guides/runs.md): families in which a metric has the last place,
# and beginnings of further families.
_FAMILIES = re.compile(
    rf"(train|test|val|test_group\d+)_({'|'.join(METRICS)})"
    r"|(train_client|personal_train|clients|heldout|rule|used_bound)_.*"
)


def write(folder: Path, number: int, values: Mapping[str, Any]) -> None:
    """Adds the values of a round. A later value of the same round and name replaces an earlier."""
    with (folder / FILE).open("a") as file:
        file.write(json.dumps({"round": number, **values}) + "\n")


def forget(folder: Path, number: int) -> None:
    """Removes the values of a round, whose functions are called again."""
    path = folder / FILE
    if not path.exists():
        return
    found = read(folder)
    found.pop(number, None)
    new = folder / f"{FILE}.new"
    new.write_text("".join(json.dumps({"round": n, **found[n]}) + "\n" for n in found))
    new.replace(path)


def read(folder: Path) -> dict[int, dict[str, Any]]:
    """The values by round. A line that a crash has torn is left out."""
    path = folder / FILE
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        if (values := row_of(line)) is not None:
            found.setdefault(values.pop("round"), {}).update(values)
    return found


def refuse_name(name: Any, role: str) -> None:
    """Refuses what is no word, and the name of a column that a run may write itself."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{role}: {name!r} is no word, and a column is called by one", key=role)
    if name in COLUMNS or _FAMILIES.fullmatch(name):
        raise ArgumentError(
            f"{role}: {name} is a column that a run writes itself; choose another name, such as "
            f"own_{name}",
            key=role,
            nearest=f"own_{name}",
        )


def checked(values: Mapping[str, Any], row: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Numbers as JSON has them: what is not finite becomes null, as in metrics.jsonl."""
    if not isinstance(values, Mapping):
        raise ArgumentError(
            f"{role} takes a dict of numbers by name; found {type(values).__name__}", key=role
        )
    found: dict[str, Any] = {}
    for name, value in values.items():
        refuse_name(name, role)
        if name in row:
            raise ArgumentError(
                f"{role}: {name} is a column of this run's own; choose another name", key=role
            )
        if (size := getattr(value, "shape", ())) and math.prod(size) != 1:
            raise ArgumentError(
                f"{role}: {name} is an array of shape {list(size)}, and a column has numbers",
                key=role,
            )
        if hasattr(value, "item"):  # of NumPy or torch
            value = value.item()
        if value is not None and not isinstance(value, (bool, int, float)):
            raise ArgumentError(
                f"{role}: {name} is {type(value).__name__}, and a column has numbers", key=role
            )
        try:
            finite = value is None or math.isfinite(value)
        except OverflowError:
            raise ArgumentError(
                f"{role}: {name} is a whole number beyond what a float holds (1.8e308): log its "
                "logarithm, such as math.log10(value)",
                key=role,
            ) from None
        found[name] = value if finite else None
    return found
