"""A run of MLflow, by the package ``mlflow``."""

from __future__ import annotations

import os
import re
from typing import Any

from ._track_run import NO_ROUND, Facts, Row, text_of

# What MLflow takes in one call (documentation of its REST API, "Log Batch").
_MOST_METRICS, _MOST_PARAMETERS, _MOST_VALUE = 1000, 100, 6000
_EVERY_ROW = "clients"
_RUN_TAG = "macaw.run_id"
_STATUS = {
    "finished": "FINISHED",
    "stopped": "FINISHED",
    "interrupted": "KILLED",
    "failed": "FAILED",
}
# A delivery tries again by itself. What the environment says comes first.
_ENVIRONMENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class MlflowTracker:
    """Every key as a parameter, rows in batches, config.toml and summary.json as artifacts.

    The run's tag macaw.run_id finds it again, so a run that goes on goes on there. ``uri``: as
    MLFLOW_TRACKING_URI; "": what that says, or MLflow's default. Secrets are MLflow's own
    variables: MLFLOW_TRACKING_TOKEN, or _USERNAME and _PASSWORD.
    """

    package = "mlflow"

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri = uri
        self._experiment = experiment
        self._client: Any = None
        self._id = ""
        self._facts: Facts | None = None

    def open(self, facts: Facts) -> int:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        self._facts = facts
        self._client = MlflowClient(self._uri or None)
        run = self._find_or_create(facts)
        self._id = run.info.run_id
        self._send_parameters(facts, set(run.data.params))
        if run.info.status != "RUNNING":
            self._client.update_run(self._id, status="RUNNING")
        # What MLflow has counts: a call that was given up may have had its effect. A row is in one
        # call, so a column that every row has tells; of others some rows have no value.
        names = [_EVERY_ROW] if _EVERY_ROW in run.data.metrics else list(run.data.metrics)
        steps = [
            metric.step
            for name in names
            for metric in self._client.get_metric_history(self._id, name)
        ]
        return max(steps, default=NO_ROUND)

    def deliver(self, rows: list[Row]) -> None:
        from mlflow.entities import Metric

        batch: list[Metric] = []
        for row in rows:
            if len(batch) + len(row.values) > _MOST_METRICS:
                self._client.log_batch(self._id, metrics=batch)
                batch = []
            at = int(row.time * 1000)
            batch += [
                Metric(_name_for(name), float(value), at, row.round)
                for name, value in row.values.items()
            ]
        self._client.log_batch(self._id, metrics=batch)

    def close(self, end: str, /) -> None:
        assert self._facts is not None
        for name in ("config.toml", "summary.json"):
            file = self._facts.folder / name
            if file.exists():
                self._client.log_artifact(self._id, str(file))
        if end:
            self._client.set_terminated(self._id, status=_STATUS[end])

    def _find_or_create(self, facts: Facts) -> Any:
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is None:
            experiment_id = self._client.create_experiment(self._experiment)
        else:
            experiment_id = experiment.experiment_id
        tagged = f"tags.\"{_RUN_TAG}\" = '{facts.id}'"
        found = self._client.search_runs([experiment_id], tagged, max_results=1)
        if found:
            return self._client.get_run(found[0].info.run_id)
        return self._client.create_run(
            experiment_id,
            start_time=int(facts.began * 1000),
            tags={_RUN_TAG: facts.id, "mlflow.source.name": "macaw"},
            run_name=facts.name,
        )

    def _send_parameters(self, facts: Facts, known: set[str]) -> None:
        """A parameter never changes in MLflow: a run that goes on keeps its first ones."""
        from mlflow.entities import Param

        texts = {_name_for(key): text_of(value) for key, value in facts.settings.items()}
        parameters = [
            Param(name, text[:_MOST_VALUE])
            for name, text in texts.items()
            if text and name not in known
        ]
        for begin in range(0, len(parameters), _MOST_PARAMETERS):
            self._client.log_batch(self._id, params=parameters[begin : begin + _MOST_PARAMETERS])


def _name_for(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_\-. /:]", "_", name)
