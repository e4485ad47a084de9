"""A run: its rounds, its model, what it came to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _adapters, _ending, _kept, _model, _modules, _normalise, _own_rows, _safetensors
from ._json_rows import Row, rows_of
from ._names import in_python
from ._normalise import Normalisation
from ._paths import path_of
from ._program import environment, program
from ._settings import kept_table
from .errors import ArgumentError, Error, PackageMissingError

if TYPE_CHECKING:
    import os


class Run:
    """A run's folder. Any run can be opened, whatever began it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        model: _model.Model | None = None,
        said: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.folder = path_of(folder, "folder")
        #: What was said before the first round, and warnings about the result: (what, text).
        self.said = list(said)
        self._model = model
        if not (self.folder / "config.toml").exists():
            raise Error(f"{self.folder} is no run: it has no config.toml")
        self._id = _ending.run_id(self.folder)

    def _lost(self) -> str | None:
        """Why the run's files are not in its folder any more; None: they are."""
        if not (self.folder / "config.toml").exists():
            return "has no run any more: it was removed or moved; macaw.Run(…) opens a moved one"
        there = _ending.run_id(self.folder)
        self._id = self._id or there  # a run that begins writes it with its first round
        if there == self._id:
            return None
        return (
            "holds another run by now, which has replaced this one (overwrite=True): give each its "
            "own name= or out=; macaw.Run(…) opens the one that is there"
        )

    def _own_folder(self) -> Path:
        """The folder, if it still holds this run."""
        if (why := self._lost()) is not None:
            raise Error(f"{self.folder} {why}")
        return self.folder

    @property
    def summary(self) -> dict[str, Any]:
        """Final and best metrics, speed, memory, digests (docs/guides/runs.md)."""
        summary = _ending.summary(self._own_folder())
        if summary is None:
            raise Error(f"{self.folder} has no summary yet: the run has not ended")
        if (last := _ending.newer_row(self.folder, summary)) is not None:
            raise Error(
                f"{self.folder} has not ended: its summary is of {summary['rounds']} rounds, and "
                f"it has rows up to round {last}; go on with macaw.resume(…)"
            )
        return summary

    @property
    def digest(self) -> str:
        """Of the final model: runs with the same digest have the same bytes."""
        return str(self.summary["model_digest"])

    @property
    def rows(self) -> list[Row]:
        """A dict a round, as in metrics.jsonl, with what ``on_round`` and ``metrics=`` add."""
        own = _own_rows.read(self.folder)
        return [{**row, **own.get(row["round"], {})} for row in self._rows_of_the_run()]

    def _rows_of_the_run(self) -> list[Row]:
        """Those of metrics.jsonl alone."""
        file = self._own_folder() / "metrics.jsonl"
        if not file.exists():
            raise Error(f"{self.folder} has no {file.name}: no round is done, or it was removed")
        return rows_of(file)

    @property
    def metrics(self) -> Any:
        """A column a metric: a ``pandas.DataFrame``; without pandas a dict of arrays.

        Both are indexed alike: ``run.metrics["test_accuracy"]``. A round without a value has NaN.
        """
        rows = self.rows
        try:
            import pandas
        except ImportError:
            return columns_of_rows(rows)
        return pandas.DataFrame(rows)

    @property
    def contributions(self) -> list[dict[str, Any]]:
        """A dict a round in which each client was left out once, as in contributions.jsonl; with
        ``evaluation=dict(unlearn=[…])`` a dict for each evaluated round.

        Where the data names its clients, ``"name"`` is a list beside ``"client"``, and
        ``"unlearned_name"`` one beside ``"unlearned_client"``.
        """
        file = self._own_folder() / "contributions.jsonl"
        if not file.exists():
            raise Error(
                f"{self.folder} has no {file.name}: a run writes it with "
                "evaluation=dict(leave_one_out=1), or every how many rounds, or with "
                "evaluation=dict(unlearn=[…]), the clients' numbers"
            )
        lines = rows_of(file)
        done = subprocess.run(
            [program(), "contribution", self.folder, "--json"],
            env=environment(), capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            why = in_python(done.stderr.strip()) or f"it ended with exit code {done.returncode}"
            raise Error(f"macaw contribution cannot say whose the contributions are: {why}")
        clients = json.loads(done.stdout)
        names = {client["client"]: client["name"] for client in clients if "name" in client}
        for line in lines if names else ():
            for key in ("client", "unlearned_client"):
                if key in line:
                    named = [names.get(client, str(client)) for client in line[key]]
                    line[key.replace("client", "name")] = named
        return lines

    @property
    def normalisation(self) -> Normalisation:
        """The numbers of a run with ``normalise=``: ``run.normalisation.apply(x)`` scales new rows.

        A run of a sweep has those of its sweep.
        """
        for folder in (self._own_folder(), self.folder.parent.parent):
            if (folder / _normalise.FILE).exists():
                return Normalisation.load(folder / _normalise.FILE)
        raise Error(f"{self.folder} has no {_normalise.FILE}: the run was without normalise=…")

    @property
    def is_normalised(self) -> bool:
        """Whether the run was begun with ``normalise=``."""
        places = (self._own_folder(), self.folder.parent.parent)
        return any((folder / _normalise.FILE).exists() for folder in places)

    def model(self, module: Any = None, *, best: bool = False) -> Any:
        """The final model; of a run that goes on, or was killed, the newest that it has kept.

        best: instead the one of the best round, by ``run.stop.metric``; a run with
        ``run.stop.patience`` keeps it, and ``run.summary["best_model"]`` says which round.

        With a ``torch.nn.Module``, given here or to ``simulate``: a state dict that loads into it,
        with the adapters of ``model_options=dict(adapters=…)`` added to their weights.
        Otherwise a dict from names to arrays.
        """
        tensors = self._best_tensors() if best else self._tensors()
        own = module if module is not None else self._model and self._model.module
        if own is not None and (rules := self._adapters()):
            tensors = _adapters.merged(tensors, rules)
        if module is not None:
            return _model.state_dict(module, tensors, _model.names_of(module))
        if self._model is not None and self._model.module is not None:
            return self._model.state_dict(tensors)
        return tensors

    def module(self, module: Any = None, *, best: bool = False) -> Any:
        """A copy of the module with the weights of ``model()``, in evaluation mode.

        The module is that given here, or to ``simulate``; with ``peft=`` the one with adapters,
        whose ``save_pretrained(folder)`` and ``merge_and_unload()`` are peft's.
        """
        own = module if module is not None or self._model is None else self._model.module
        if own is None:
            raise ArgumentError(
                "run.module() needs the module: the run was begun without one, or is opened from "
                "its folder; give run.module(net)"
            )
        made = _modules.copy_of(own)
        made.load_state_dict(self.model(module, best=best))
        return made.eval()

    def models(self) -> list[dict[str, Any]]:
        """The final models of a rule that has several (``macaw.IFCA``), in order; of another rule
        the one model alone. Each is a dict from names to arrays.
        """
        folder = self._own_folder() / "models"
        if not folder.is_dir():
            return [self._tensors()]
        count = len(list(folder.glob("*.safetensors")))
        return [_safetensors.read(folder / f"{i}.safetensors") for i in range(count)]

    def _adapters(self) -> list[str]:
        """``model.adapters`` of the run."""
        config = (self._own_folder() / "config.toml").read_text()
        return list(kept_table(config, "model").get("adapters", []))

    def _best_tensors(self) -> Any:
        path = self._own_folder() / "model.best.safetensors"
        if path.exists():
            return _safetensors.read(path)
        raise Error(
            f"{self.folder} has no best model: a run keeps one that has run.stop.patience, from "
            "its end on"
        )

    def _tensors(self) -> Any:
        path = self._own_folder() / "model.safetensors"
        summary = _ending.summary(self.folder)
        ended = -1 if summary is None else summary["rounds"]
        kept = _kept.newest(self.folder)
        if path.exists() and (kept is None or kept[0] <= ended):
            return _safetensors.read(path)
        if kept is not None:
            return kept[1]
        raise Error(
            f"{self.folder} has no model yet: a run keeps one with each checkpoint "
            "(run=dict(checkpoint_every=…)), after each round for on_round=, and when it ends"
        )

    def plot(self, *metrics: str) -> Any:
        """Draws metrics over rounds with matplotlib, and returns the figure.

        Without names, accuracies where there are any, and losses. ``macaw.plot`` draws several.
        """
        try:
            from matplotlib.figure import Figure
            from matplotlib.ticker import MaxNLocator
        except ImportError as error:
            raise PackageMissingError(
                "run.plot() draws with matplotlib: pip install matplotlib"
            ) from error
        columns = columns_of_rows(self.rows)
        chosen = [list(metrics)] if metrics else _usual(columns)
        figure = Figure(figsize=(5 * len(chosen), 3.5), layout="tight")
        for place, names in enumerate(chosen):
            axes = figure.add_subplot(1, len(chosen), place + 1)
            for name in names:
                if name not in columns:
                    meant = next(iter(get_close_matches(name, list(columns), 1, 0.5)), None)
                    question = f"; did you mean {meant}?" if meant else "."
                    raise ArgumentError(
                        f"the run has no column {name}{question} It has {', '.join(columns)}",
                        key=name,
                        nearest=meant,
                    )
                there = np.isfinite(columns[name])
                axes.plot(columns["round"][there], columns[name][there], label=name)
            axes.set_xlabel("round")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.legend(fontsize="small")
            axes.grid(alpha=0.3)
        figure.suptitle(self.folder.name)
        return figure

    def __repr__(self) -> str:
        if (why := self._lost()) is not None:
            return f"<macaw.Run {self.folder}: it {why.partition(':')[0]}>"
        try:
            summary = self.summary
        except Error:
            return f"<macaw.Run {self.folder}: not over>"
        final = summary["final"]
        named = ("test_accuracy", "test_loss", "train_loss")
        shown = {name: final[name] for name in named if final.get(name) is not None}
        rounds = _rounds_of(self.rows, shown)
        texts = []
        for name, value in shown.items():
            earlier = rounds.get(name, summary["rounds"])
            of = f" (round {earlier})" if earlier != summary["rounds"] else ""
            texts.append(f", {name} {value:.4f}{of}")
        metrics = "".join(texts)
        return f"<macaw.Run {self.folder}: {summary['end']}, {summary['rounds']} rounds{metrics}>"


def _rounds_of(rows: Sequence[Row], names: Iterable[str]) -> dict[str, int]:
    """The last round in which each column has a value: a run that was stopped between two
    evaluations has the metrics of an earlier model."""
    return {name: row["round"] for row in rows for name in names if row.get(name) is not None}


def columns_of_rows(rows: Sequence[Row]) -> dict[str, _safetensors.Array]:
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
