from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import store

from .entities import Metric, Param

EMPTY: dict[str, Any] = {"experiments": [], "runs": []}


class MlflowClient:
    """Refuses what MLflow refuses. log_batch is all or nothing."""

    def __init__(self, uri: str | None = None) -> None:
        self.state = store.load("mlflow.json", EMPTY)
        self.state["uri"] = uri
        self._keep()

    def get_experiment_by_name(self, name: str) -> Any:
        known = self.state["experiments"]
        return SimpleNamespace(experiment_id=str(known.index(name))) if name in known else None

    def create_experiment(self, name: str) -> str:
        self.state["experiments"].append(name)
        self._keep()
        return str(self.state["experiments"].index(name))

    def search_runs(self, ids: list[str], filter_string: str, max_results: int) -> list[Any]:
        match = re.fullmatch(r"tags\.\"([^\"]+)\" = '([^']*)'", filter_string)
        assert match, filter_string
        tag, value = match.groups()
        found = [
            self.get_run(run["id"])
            for run in self.state["runs"]
            if run["experiment"] in ids and run["tags"].get(tag) == value
        ]
        return found[:max_results]

    def get_run(self, run_id: str) -> Any:
        run = self._run(run_id)
        return SimpleNamespace(
            info=SimpleNamespace(run_id=run_id, status=run["status"]),
            data=SimpleNamespace(
                params=dict(run["params"]),
                metrics={metric["key"]: metric["value"] for metric in run["metrics"]},
            ),
        )

    def create_run(
        self, experiment_id: str, start_time: int, tags: dict[str, str], run_name: str
    ) -> Any:
        run_id = f"run-{len(self.state['runs'])}"
        self.state["runs"].append(
            {
                "id": run_id, "experiment": experiment_id, "name": run_name, "began": start_time,
                "tags": tags, "status": "RUNNING", "params": {}, "metrics": [], "artifacts": {},
            }
        )  # fmt: skip
        self._keep()
        return self.get_run(run_id)

    def get_metric_history(self, run_id: str, key: str) -> list[Metric]:
        return [Metric(**metric) for metric in self._run(run_id)["metrics"] if metric["key"] == key]

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), params: Sequence[Param] = ()
    ) -> None:
        assert len(metrics) <= 1000 and len(params) <= 100
        run = self._run(run_id)
        for param in params:
            assert param.key not in run["params"] and len(param.value) <= 6000
            assert re.fullmatch(r"[\w\-. /:]+", param.key, re.ASCII), param.key
            run["params"][param.key] = param.value
        run["metrics"] += [vars(metric) for metric in metrics]
        self._keep()

    def update_run(self, run_id: str, status: str) -> None:
        self._run(run_id)["status"] = status
        self._keep()

    def set_terminated(self, run_id: str, status: str) -> None:
        self.update_run(run_id, status)

    def log_artifact(self, run_id: str, local_path: str) -> None:
        file = Path(local_path)
        self._run(run_id)["artifacts"][file.name] = file.read_text()
        self._keep()

    def _run(self, run_id: str) -> dict[str, Any]:
        (run,) = [run for run in self.state["runs"] if run["id"] == run_id]
        found: dict[str, Any] = run
        return found

    def _keep(self) -> None:
        store.save("mlflow.json", self.state)
