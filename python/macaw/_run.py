"""A run: its rounds, its model, what it came to."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _model, _safetensors
from .errors import Error, PackageMissingError

if TYPE_CHECKING:
    import os

Row = dict[str, Any]


class Run:
    """A run's folder. Any run can be opened, whatever began it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        model: _model.Model | None = None,
        said: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.folder = Path(folder)
        #: What was said before the first round, and warnings about the result: (what, text).
        self.said = list(said)
        self._model = model
        if not (self.folder / "config.toml").exists():
            raise Error(f"{self.folder} is no run: it has no config.toml")

    @property
    def summary(self) -> dict[str, Any]:
        """Final and best metrics, speed, memory, digests (docs/guides/runs.md)."""
        path = self.folder / "summary.json"
        if not path.exists():
            raise Error(f"{self.folder} has no summary yet: the run has not ended")
        summary: dict[str, Any] = json.loads(path.read_text())
        return summary

    @property
    def digest(self) -> str:
        """Of the final model: runs with the same digest have the same bytes."""
        return str(self.summary["model_digest"])

    @property
    def rows(self) -> list[Row]:
        """A dict a round, as in metrics.jsonl."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def metrics(self) -> Any:
        """A column a metric: a ``pandas.DataFrame``; without pandas a dict of arrays.

        Both are indexed alike: ``run.metrics["test_accuracy"]``. A round without a value has NaN.
        """
        rows = self.rows
        try:
            import pandas
        except ImportError:
            return _columns(rows)
        return pandas.DataFrame(rows)

    def model(self, module: Any = None, *, best: bool = False) -> Any:
        """The final model.

        best: instead the one of the best round, by ``run.stop.metric``; a run with
        ``run.stop.patience`` keeps it, and ``run.summary["best_model"]`` says which round.

        With a ``torch.nn.Module``, given here or to ``simulate``: a state dict that loads into it.
        Otherwise a dict from names to arrays.
        """
        path = self.folder / ("model.best.safetensors" if best else "model.safetensors")
        if best and not path.exists():
            raise Error(
                f"{self.folder} has no best model: a run keeps one that has run.stop.patience, from "
                "its end on"
            )
        if not path.exists():
            raise Error(
                f"{self.folder} has no model yet: a run writes it when it ends, by itself or early "
                "(stream.close(), Ctrl-C)"
            )
        tensors = _safetensors.read(path)
        if module is not None:
            return _model.state_dict(module, tensors, _model.names_of(module))
        if self._model is not None and self._model.module is not None:
            return self._model.state_dict(tensors)
        return tensors

    def plot(self, *metrics: str) -> Any:
        """Draws metrics over rounds with matplotlib, and returns the figure.

        Without names, accuracies where there are any, and losses.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise PackageMissingError(
                "run.plot() draws with matplotlib: pip install matplotlib"
            ) from error
        columns = _columns(self.rows)
        chosen = [list(metrics)] if metrics else _usual(columns)
        figure = Figure(figsize=(5 * len(chosen), 3.5), layout="tight")
        for place, names in enumerate(chosen):
            axes = figure.add_subplot(1, len(chosen), place + 1)
            for name in names:
                there = np.isfinite(columns[name])
                axes.plot(columns["round"][there], columns[name][there], label=name)
            axes.set_xlabel("round")
            axes.legend()
            axes.grid(alpha=0.3)
        figure.suptitle(self.folder.name)
        return figure

    def __repr__(self) -> str:
        try:
            summary = self.summary
        except Error:
            return f"<macaw.Run {self.folder}: not over>"
        final = summary["final"]
        shown = [name for name in ("test_accuracy", "test_loss", "train_loss") if name in final]
        metrics = "".join(f", {name} {final[name]:.4f}" for name in shown)
        return f"<macaw.Run {self.folder}: {summary['end']}, {summary['rounds']} rounds{metrics}>"


def _columns(rows: Sequence[Row]) -> dict[str, _safetensors.Array]:
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, _safetensors.Array] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if all(isinstance(value, (int, float, type(None))) for value in values):
            columns[name] = np.array([np.nan if v is None else v for v in values])
        else:
            columns[name] = np.array(values, dtype=object)
    return columns


def _usual(columns: dict[str, _safetensors.Array]) -> list[list[str]]:
    plots = []
    for word in ("accuracy", "loss"):
        known = (f"val_{word}", f"test_{word}", f"train_{word}")
        names = [name for name in known if name in columns]
        if names:
            plots.append(names)
    return plots or [[name for name in columns if name != "round"][:1]]


def in_notebook() -> bool:
    return "ipykernel" in sys.modules
