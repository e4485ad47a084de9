"""``metrics=``: functions of the labels and the scores of the central test rows."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _model, _modules, _names, _own_rows, _safetensors, _trace
from ._division import keep_their_rows
from ._pairs import ADVICE, pairs_all
from ._program import environment, program
from ._safetensors import Array
from ._settings import kept_table
from ._warn import warn
from .errors import ConfigError, Error, RunError

if TYPE_CHECKING:
    from ._callback import OpenRun

_BATCH = 512  # rows; they are evaluated in stored order


class TestScores:
    """Evaluates a module in PyTorch on the test rows of a run, and calls the metrics."""

    __test__ = False  # for pytest: it is no test

    def __init__(
        self, metrics: Mapping[str, Callable[[Any, Any], Any]], model: _model.Model | None
    ) -> None:
        for name, metric in metrics.items():
            _own_rows.refuse_name(name, "metrics")
            if not callable(metric):
                raise ConfigError(
                    f"metrics: {name} is {type(metric).__name__}, and not a function of "
                    '(y, scores); evaluation=dict(metrics=["f1"]) asks for those that Macaw has',
                    key="metrics",
                )
        if model is None or model.module is None:
            raise ConfigError(
                "metrics= needs a torch.nn.Module as the model: it is evaluated in PyTorch; with "
                "other models, on_round= gets run.model() and computes what it likes",
                key="metrics",
            )
        self._metrics = metrics
        self._module = _modules.copy_of(model.module).eval()
        self._rows: tuple[Array, Array] | None = None
        self._tried = False

    def of(self, run: OpenRun) -> dict[str, Any]:
        """The metrics of the round's model; none in a round that is not evaluated."""
        if self._rows is None:
            self._rows = test_rows(run.folder)
        if not any(name.startswith("test_") for name in run.row):
            if run.is_last and not self._tried:
                warn(
                    f"metrics= has no column ({', '.join(self._metrics)}): it is of the common "
                    "model on the central test rows, and this run has not evaluated such a model"
                )
            return {}
        x, y = self._rows
        scores = self._scores(run, x)
        if not self._tried:
            self._try(scores, y)
        found = {}
        for name, metric in self._metrics.items():
            try:
                found[name] = metric(y, scores)
            except Exception as error:
                said = f"metrics: {name}, round {run.round}: {error}"
                error.args = (said,)
                if str(error) != said:  # a class that does not say its arguments
                    raise RunError(said, key="metrics") from error
                raise
        return found

    def _try(self, scores: Array, y: Array) -> None:
        self._tried = True
        if scores.shape != (len(y), 1):
            return
        for name, metric in self._metrics.items():

            def value(outputs: Any, y: Any, metric: Callable[[Any, Any], Any] = metric) -> Any:
                return metric(y, outputs)

            if pairs_all(value, y.dtype.kind in "iu", np.asarray):
                raise ConfigError(f"metrics: {name}: {ADVICE}", key="metrics")

    def _scores(self, run: OpenRun, x: Array) -> Array:
        import torch

        self._module.load_state_dict(run.model())
        where = next(self._module.parameters())
        parts = []
        with torch.no_grad():
            for begin in range(0, len(x), _BATCH):
                batch = torch.from_numpy(x[begin : begin + _BATCH])
                batch = batch.to(where) if batch.is_floating_point() else batch.long()
                outputs = _trace.logits_of(self._module(batch.to(where.device)))
                if outputs is None:
                    raise Error("metrics: the module returns no tensor and no logits")
                parts.append(outputs.float().cpu().numpy())
        return np.concatenate(parts)


def test_rows(folder: Path) -> tuple[Array, Array]:
    """x and y of the central test set, as a model gets them: float32, or tokens."""
    text = (folder / "config.toml").read_text()
    data = kept_table(text, "data")
    with tempfile.TemporaryDirectory(prefix="macaw-rows-") as place:
        path = Path(data["path"]) if data.get("source") == "prepared" else None
        scheme = kept_table(text, "partition").get("scheme")
        if path is not None and not keep_their_rows(scheme, data.get, _safetensors.read(path)):
            division = Path(place) / "division.json"
            _macaw_data("export-partition", folder, division)
            chosen = np.array(json.loads(division.read_text()).get("test", []), np.int64)
        else:
            if path is None:
                path = Path(place) / "rows.safetensors"
                _macaw_data("prepare", folder, path)
            begin, end = _safetensors.read(path).get("central_test", np.zeros(2, np.int64))
            chosen = np.arange(begin, end)
        if len(chosen) == 0:
            raise ConfigError(
                "metrics: the run has no central test rows; give test=(x, y), or "
                "data_options=dict(test_fraction=0.1)",
                key="metrics",
            )
        tensors = _safetensors.read(path)
        x, y = np.array(tensors["features"][chosen]), np.array(tensors["labels"][chosen])
    if x.dtype == np.int32:
        return x, y
    numbers = kept_table(text, "data.normalise")
    mean, std = (
        np.array(numbers.get(key, default), np.float64).reshape(-1, *[1] * (x.ndim - 2))
        for key, default in (("mean", [0.0]), ("std", [1.0]))
    )
    scaled = x.astype(np.float64) * numbers.get("scale", 1.0)
    return ((scaled - mean) / std).astype(np.float32), y


def _macaw_data(command: str, folder: Path, out: Path) -> None:
    done = subprocess.run(
        [program(), "data", command, folder / "config.toml", "--out", out],
        env=environment(), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise Error(_names.in_python(done.stderr.strip().removeprefix("macaw: error: ")))
