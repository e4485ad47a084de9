"""A run of Weights & Biases, by the package ``wandb``."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ._track_run import NO_ROUND, Facts, Row

# What the environment says comes first.
_ENVIRONMENT = {
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_META": "true",
}


class WandbTracker:
    """The configuration and a step a row, under an id that is made of the run's.

    Without WANDB_MODE it is offline: files in wandb/ of the run's folder, which `wandb sync` sends
    from wherever the key is. WANDB_MODE=online sends them at once. track/wandb.json has the round
    of the last row that was logged; should it be behind, wandb drops the rows that it has.
    """

    package = "wandb"

    def __init__(self, project: str) -> None:
        self._project = project
        self._run: Any = None
        self._note = Path()

    def open(self, facts: Facts) -> int:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import wandb

        self._note = facts.folder / "track" / "wandb.json"
        wandb.finish()  # what an earlier try may have left
        self._run = wandb.init(
            project=self._project,
            id=facts.id[:12],
            name=facts.name,
            config=facts.settings,
            dir=str(facts.folder),
            mode=None if "WANDB_MODE" in os.environ else "offline",
            resume="allow",
        )
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            return int(json.loads(self._note.read_text())["round"])
        return NO_ROUND

    def deliver(self, rows: list[Row]) -> None:
        for row in rows:
            self._run.log(
                {"round": row.round, "_timestamp": row.time, **row.values}, step=row.round
            )
        next_note = self._note.with_suffix(".next")
        next_note.write_text(json.dumps({"round": rows[-1].round}) + "\n")
        os.replace(next_note, self._note)

    def close(self, end: str, /) -> None:
        self._run.finish(exit_code=0 if end in ("finished", "stopped", "interrupted") else 1)
