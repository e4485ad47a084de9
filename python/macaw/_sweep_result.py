"""What a sweep came to: its table, its best configuration, its runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from . import _ending, _figures, _groups, _latex, _train
from ._paths import Path_, path_of
from ._program import environment, program
from ._run import Run
from .errors import Error


class SweepResult:
    """A sweep's folder. Any sweep can be opened, whatever began it."""

    def __init__(self, folder: Path_) -> None:
        self.folder = path_of(folder, "folder")
        done = subprocess.run(
            [program(), "sweep", "show", "--json", self.folder],
            env=environment(), capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise Error(done.stderr.strip().removeprefix("macaw: error: "))
        #: All that `macaw sweep show --json` says (cli/sweep/table.h).
        self.result: dict[str, Any] = json.loads(done.stdout)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict a configuration, the best first: its values, and mean, std, low, high, p, …

        Baselines come last: they are compared with the best, and are never the best themselves.

        ``p_holm`` is p by Holm's correction, for all rows together. What the sweep reports beside
        its metric has columns of its own, with ``_std`` behind the name for the deviation. Of
        private runs, ``epsilon`` is what they have spent; None where a row is not private.
        """
        metric = self.result["metric"]
        spent = self._spent()
        rows = []
        for row in self.result["rows"]:
            low, high = row["interval"] or (None, None)
            against = row["against_best"] or {}
            rows.append(
                {
                    "configuration": row["configuration"],
                    **_train.readable(row["values"]),
                    metric: row["mean"],
                    "std": row["std"],
                    **_reported(row),
                    **({"epsilon": spent.get(row["configuration"])} if spent else {}),
                    "rounds": row["rounds"],
                    "runs": _done(row),
                    "failed": sum(run["state"] == "failed" for run in row["runs"]),
                    "low": low,
                    "high": high,
                    "minus_best": against.get("difference"),
                    "p": against.get("p"),
                    "p_holm": against.get("p_holm"),
                }
            )
        return rows

    @property
    def failed(self) -> dict[str, str]:
        """Why the runs failed that did, by their names."""
        runs = [run for row in self.result["rows"] for run in row["runs"]]
        return {run["name"]: run["why"] for run in runs if run["state"] == "failed"}

    def _spent(self) -> dict[str, float]:
        """The epsilon of each private configuration, of the seed that has spent most."""
        found: dict[str, float] = {}
        for row in self.result["rows"]:
            done = [Run(run["folder"]) for run in row["runs"] if run["state"] == "done"]
            ended = [run.summary for run in done if _ending.has_ended(run.folder)]
            each = [summary["privacy"]["epsilon"] for summary in ended if "privacy" in summary]
            if each:
                found[row["configuration"]] = max(each)
        return found

    @property
    def table(self) -> Any:
        """``rows`` as a ``pandas.DataFrame``; without pandas the list itself."""
        try:
            import pandas
        except ImportError:
            return self.rows
        return pandas.DataFrame(self.rows)

    def to_latex(self, *, digits: int | None = None) -> str:
        """The table for a paper (booktabs): mean ± deviation over seeds, the best in bold.

        What varies comes first: the algorithm, its parameters, other keys as `macaw keys` lists
        them; then metrics. Keys with one value in all rows have no column. digits: behind the
        point; by default two of the deviation that are not 0. ``macaw.to_latex`` takes other
        metrics.
        """
        rows = self.result["rows"]
        metric = self.result["metric"]
        metrics = [metric, *(name for name in self.result["report"] if name != metric)]
        cells = []
        for row in rows:
            found = {metric: row, **{name: row["report"][name] for name in metrics[1:]}}
            cells.append([_cell(found[m], _done(row)) for m in metrics])
        higher = [self.result["mode"] == "max", *map(_groups.higher_is_better, metrics[1:])]
        counts = [_done(row) for row in rows]
        values = [_train.readable(row["values"]) for row in rows]
        keys = _groups.in_order(dict.fromkeys(key for row in values for key in row))
        ordered = [{key: row.get(key) for key in keys} for row in values]
        return _latex.table(ordered, counts, metrics, cells, higher, digits)

    def plot(self, y: str | Sequence[str] | None = None, x: str = "round") -> _figures.Plot:
        """Draws a metric, by default the sweep's, a curve a configuration (``macaw.plot``)."""
        metric = str(self.result["metric"]).removeprefix("best_")
        return _figures.plot(self, y or metric, x)

    @property
    def best(self) -> dict[str, Any]:
        """The keys of the best configuration. ``DIR/best.toml`` is all of it."""
        for row in self.result["rows"]:
            if row["configuration"] == self.result["best"]:
                values = _train.readable(row["values"])
                return {key: value for key, value in values.items() if value is not None}
        metric = self.result["metric"]
        raise Error(f"{self.folder}: no run has a {metric} yet, so no configuration is the best")

    @property
    def runs(self) -> dict[str, Run]:
        """The runs that are over, by name ("007-seed1")."""
        runs = [run for row in self.result["rows"] for run in row["runs"]]
        return {run["name"]: Run(run["folder"]) for run in runs if run["state"] == "done"}

    def __repr__(self) -> str:
        done, runs = self.result["done"], self.result["runs"]
        return f"<macaw sweep {self.folder}: {done} of {runs} runs done>"


def _done(row: Mapping[str, Any]) -> int:
    return sum(run["state"] == "done" for run in row["runs"])


def _cell(estimate: Mapping[str, Any], done: int) -> _latex.Cell:
    """Empty where only some runs reached a target: a mean of these would mislead."""
    reached = estimate.get("reached", done)
    if reached is None or reached < done:  # None: none of them has a clock
        return _latex.Cell(None)
    return _latex.Cell(estimate["mean"], estimate["std"])


def _reported(row: Mapping[str, Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for metric, value in row["report"].items():
        columns[metric] = value["mean"]
        columns[f"{metric}_std"] = value["std"]
    return columns
