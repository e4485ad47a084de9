"""Tables of runs for a paper: what differs, mean and deviation over seeds, the best in bold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _groups
from ._run import Run
from .errors import ArgumentError

_USUAL = ("val_accuracy", "test_accuracy", "clients_test_accuracy")
_USUAL_LOSSES = ("val_loss", "test_loss", "clients_test_loss", "train_loss")
_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


@dataclass
class Cell:
    """A metric of one configuration over its seeds."""

    mean: float | None  # None: it has no value
    std: float | None = None  # of a sample (n - 1); None: one run


def to_latex(
    runs: Any,
    metrics: str | Sequence[str] | None = None,
    *,
    digits: int | None = None,
) -> str:
    """A LaTeX table (booktabs) of runs: a row a configuration, mean ± deviation over its seeds.

    runs: a run, a sweep, the folder of either, or several of these; a dict from names to runs has a
        row for each name.
    metrics: columns of ``run.metrics``, whose last value counts; ``best_`` before one takes each
        run's best round (``best_val_accuracy``), and ``rounds_to_0.9`` is the first round of such
        an accuracy. By default the accuracies of untrained rows, else losses.
    digits: behind the point; by default two of the deviation that are not 0.

    Keys have a column where they differ, and none where all runs are alike: the algorithm first,
    then its parameters, then other keys as `macaw keys` lists them, and metrics last; a cell is
    empty where a configuration has no such key. The best mean of each column is bold. Deviations
    are those of a sample (n - 1), and are left out where a configuration has one run.
    """
    groups = _groups.groups_of(runs)
    values = [[_values_of(run) for run in group.runs] for group in groups]
    chosen = [metrics] if isinstance(metrics, str) else list(metrics or _usual(values))
    for metric in chosen:
        if not any(metric in run for group in values for run in group):
            there = sorted({name for group in values for run in group for name in run})
            raise ArgumentError(
                f"metrics: no run has {metric} in its summary; there are {', '.join(there)}",
                key="metrics",
            )
    cells = [[_cell([run.get(metric) for run in group]) for metric in chosen] for group in values]
    if isinstance(runs, Mapping):
        rows: list[dict[str, Any]] = [{"name": group.name} for group in groups]
    else:
        rows = [group.differs for group in groups]
    counts = [len(group.runs) for group in groups]
    return table(rows, counts, chosen, cells, [_groups.higher_is_better(m) for m in chosen], digits)


def table(
    rows: Sequence[Mapping[str, Any]],
    counts: Sequence[int],
    metrics: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    higher: Sequence[bool],
    digits: int | None = None,
) -> str:
    """rows: what differs, by key; counts: runs of each row; cells: of each row, by metric."""
    there = dict.fromkeys(key for row in rows for key in row)
    keys = [key for key in there if len({repr(row.get(key)) for row in rows}) > 1] or (
        ["name"] if "name" in there else []
    )
    names = _groups.short_names(keys)
    head = [escaped(names[key]) for key in keys]
    lines = [
        ["" if row.get(k) is None else escaped(_groups.cell_text(row[k])) for k in keys]
        for row in rows
    ]
    if len(set(counts)) > 1:
        head.append("runs")
        for line, count in zip(lines, counts):
            line.append(str(count))
    numbers = [all(_is_number(row.get(key)) for row in rows) for key in keys]
    for place, metric in enumerate(metrics):
        head.append(escaped(metric.replace("_", " ")))
        column = [row[place] for row in cells]
        for line, text in zip(lines, _texts(column, higher[place], digits)):
            line.append(text)
    kinds = "".join("r" if number else "l" for number in numbers)
    kinds += "r" * (len(head) - len(keys))
    body = "\n".join(" & ".join(line) + r" \\" for line in lines)
    return (
        "% \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{kinds}}}\n\\toprule\n{' & '.join(head)} \\\\\n\\midrule\n"
        f"{body}\n\\bottomrule\n\\end{{tabular}}\n"
    )


def escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _texts(column: Sequence[Cell], higher: bool, digits: int | None) -> list[str]:
    means = [cell.mean for cell in column if cell.mean is not None]
    if not means:
        return ["" for _ in column]
    best = max(means) if higher else min(means)
    if digits is None:
        digits = _digits(column)
    texts = []
    for cell in column:
        if cell.mean is None:
            texts.append("")
            continue
        mean = f"{cell.mean:.{digits}f}"
        if len(column) > 1 and cell.mean == best:
            mean = rf"\mathbf{{{mean}}}"
        spread = "" if cell.std is None else rf" \pm {cell.std:.{digits}f}"
        texts.append(f"${mean}{spread}$")
    return texts


def _digits(column: Sequence[Cell]) -> int:
    """Digits behind the point that show two of the smallest deviation, or four of a mean."""
    deviations = [cell.std for cell in column if cell.std]
    if deviations:
        return min(6, max(0, 1 - math.floor(math.log10(min(deviations)))))
    largest = max(abs(cell.mean) for cell in column if cell.mean is not None)
    return min(6, max(0, 3 - math.floor(math.log10(largest)))) if largest > 0 else 1


def _cell(values: Sequence[float | None]) -> Cell:
    there = [value for value in values if value is not None]
    if not there or len(there) < len(values):  # a mean of some of the seeds would mislead
        return Cell(None)
    deviation = float(np.std(there, ddof=1)) if len(there) > 1 else None
    return Cell(float(np.mean(there)), deviation)


def _values_of(run: Run) -> dict[str, float]:
    """The names and values that `macaw compare` has, too."""
    summary = run.summary
    values: dict[str, float] = dict(summary["final"])
    for metric, best in (summary.get("bests") or {}).items():
        values[f"best_{metric}"] = best["value"]
        for reported, value in (best.get("report") or {}).items():
            values[f"{reported}_at_best_{metric}"] = value
    for accuracy, round_ in (summary.get("rounds_to") or {}).items():
        values[f"rounds_to_{accuracy}"] = round_
    for way, bytes_ in (summary.get("bytes") or {}).items():
        values[f"total_bytes_{way}"] = bytes_
    for accuracy, ways in (summary.get("bytes_to") or {}).items():
        for way, bytes_ in ways.items():
            values[f"bytes_{way}_to_{accuracy}"] = bytes_
    if "virtual_seconds" in summary:
        values["total_virtual_seconds"] = summary["virtual_seconds"]
        for accuracy, seconds in (summary.get("virtual_seconds_to") or {}).items():
            values[f"virtual_seconds_to_{accuracy}"] = seconds
    values["seconds"] = summary["seconds"]
    return {name: value for name, value in values.items() if value is not None}


def _usual(values: Sequence[Sequence[Mapping[str, float]]]) -> list[str]:
    there = {name for group in values for run in group for name in run}
    for names in (_USUAL, _USUAL_LOSSES):
        found = [name for name in names if name in there]
        if found:
            return found
    raise ArgumentError("metrics: the runs have neither an accuracy nor a loss; name a metric",
                        key="metrics")  # fmt: skip
