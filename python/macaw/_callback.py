"""``on_round=`` and ``metrics=``: what a caller does between two rounds of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _kept, _model, _own_rows
from ._json_rows import Row
from ._run import Run
from ._scores import TestScores
from ._settings import kept_table
from .errors import ConfigError, Error

#: Called after each round; ``False`` stops the run.
OnRound = Callable[["OpenRun"], Any]
#: ``metric(y, scores)``: a number, of the central test rows.
Metric = Callable[[Any, Any], Any]


FILE = "callbacks.json"  # in a run's folder


def left_out(
    folder: Path, on_round: OnRound | None, metrics: Mapping[str, Metric] | None
) -> list[str]:
    """What a resume says of functions that the run had so far and is not given now.

    The model does not depend on them. Their columns do.
    """
    path = folder / FILE
    if not path.exists():
        return []
    had = json.loads(path.read_text())
    notes = []
    gone = [name for name in had["metrics"] if name not in (metrics or {})]
    if gone:
        given = ", ".join(f'"{name}": …' for name in gone)
        ends, them = ("ends", "it") if len(gone) == 1 else ("end", "them")
        notes.append(
            f"the run had metrics= so far, and goes on without: {', '.join(gone)} {ends} here, and "
            f"the model is the same. macaw.resume(…, model=net, metrics={{{given}}}) goes on with "
            f"{them}"
        )
    if had["on_round"] is not None and on_round is None:
        notes.append(
            f"the run had on_round={had['on_round']} so far, and goes on without: it logs nothing "
            "and stops nothing from here on, and the model is the same. "
            f"macaw.resume(…, on_round={had['on_round']}) goes on with it"
        )
    return notes


def _told(folder: Path) -> int | None:
    """The last round whose functions have returned; None: the run had none, or does not say it."""
    path = folder / FILE
    told: int | None = json.loads(path.read_text()).get("told") if path.exists() else None
    return told


class OpenRun(Run):
    """A run between two of its rounds: what ``on_round`` gets. The run waits while it is called."""

    def __init__(
        self,
        folder: Path,
        row: Row,
        rounds: int,
        model: _model.Model | None,
        said: Sequence[tuple[str, str]],
    ) -> None:
        super().__init__(folder, model=model, said=said)
        #: The round that is done, from 1; its row of metrics; the rounds that the run is to do.
        self.round: int = row["round"]
        self.row: Row = dict(row)
        self.rounds = rounds
        self._why: str | None = None
        self._logged: dict[str, Any] = {}

    @property
    def is_last(self) -> bool:
        """Whether this round is the last one of ``rounds``."""
        return self.round >= self.rounds

    def log(self, values: Mapping[str, Any]) -> None:
        """Adds numbers to the round: columns of ``run.metrics``, from metrics.own.jsonl."""
        self._add(values, "run.log")

    def _add(self, values: Mapping[str, Any], role: str) -> None:
        found = _own_rows.checked(values, self.row, role)
        _own_rows.write(self._own_folder(), self.round, found)
        self._logged.update(found)

    def stop(self, why: str = "on_round asked for it") -> None:
        """Ends the run after this round, in order; ``run.summary["reason"]`` says why.

        ``macaw.resume`` goes on with it.
        """
        self._why = " ".join(str(why).split()) or "on_round asked for it"

    def _tensors(self) -> Any:
        kept = _kept.newest(self._own_folder())
        if kept is None or kept[0] != self.round:
            raise Error(f"{self.folder} has no model of round {self.round}")
        return kept[1]


class Callbacks:
    """What is called after each round. Without any, a run does not wait."""

    def __init__(
        self,
        on_round: OnRound | None,
        metrics: Mapping[str, Metric] | None,
        model: _model.Model | None,
    ) -> None:
        if on_round is not None and not callable(on_round):
            raise ConfigError(
                f"on_round: expected a function, got {type(on_round).__name__}", key="on_round"
            )
        if not isinstance(metrics, (Mapping, type(None))):
            raise ConfigError(
                'metrics: expected functions by name, metrics={"macro_f1": f}; '
                'evaluation=dict(metrics=["f1"]) asks for those that Macaw has',
                key="metrics",
                nearest="evaluation=dict(metrics=[…])",
            )
        self._on_round = on_round
        self._metrics = dict(metrics or {})
        self._model = model
        self._scores: TestScores | None = None
        if self._metrics:
            self._scores = TestScores(self._metrics, model)

    def save(self, folder: Path) -> None:
        """Writes which functions there are, so that a resume without them can say so."""
        if (told := _told(folder)) is None:
            kept = _kept.newest(folder)
            told = kept[0] if kept is not None else 0
        self._write(folder, told)

    def _write(self, folder: Path, told: int) -> None:
        """told: the last round whose functions have returned."""
        called = getattr(self._on_round, "__name__", None) or type(self._on_round).__name__
        names = {"on_round": called if self._on_round is not None else None}
        text = json.dumps({**names, "metrics": list(self._metrics), "told": told})
        new = folder / f"{FILE}.new"
        new.write_text(text + "\n")
        new.replace(folder / FILE)

    def catch_up(self, folder: Path, rounds: int | None) -> str | None:
        """Calls the functions for a round that was done while they did not return, because one
        raised or Python was killed. Returns why the run is not to go on. rounds: as of resume."""
        kept, told = _kept.newest(folder), _told(folder)
        if not self or kept is None or told is None or told >= kept[0]:
            return None
        row = next((row for row in Run(folder)._rows_of_the_run() if row["round"] == kept[0]), None)
        if row is None:
            return None
        _own_rows.forget(folder, kept[0])
        if rounds is None:
            rounds = int(kept_table((folder / "config.toml").read_text(), "run")["rounds"])
        run = OpenRun(folder, row, rounds, self._model, ())
        why = self.after(run)[1]
        return None if run.is_last else why

    def __bool__(self) -> bool:
        return self._on_round is not None or bool(self._metrics)

    def after(self, run: OpenRun) -> tuple[Row, str | None]:
        """The row with what was added to it, and why the run is to stop; None: it goes on."""
        if self._scores is not None:
            values = self._scores.of(run)
            if values:
                run._add(values, "metrics")
                run.row.update(run._logged)
        if self._on_round is not None and _is_false(self._on_round(run)):
            run.stop(run._why or "on_round returned False")
        run.row.update(run._logged)
        self._write(run.folder, run.round)
        return run.row, run._why


def _is_false(answer: Any) -> bool:
    """Whether it is False, also as NumPy and torch have it. None, and any number, is not."""
    if getattr(answer, "shape", None) == ():
        answer = answer.item()
    return answer is False
