"""As much of wandb as macaw.track uses: its calls are in wandb.jsonl of the store."""

from __future__ import annotations

from typing import Any

import store


class Run:
    def log(self, values: dict[str, Any], step: int) -> None:
        store.append("wandb.jsonl", call="log", values=values, step=step)

    def finish(self, exit_code: int = 0) -> None:
        store.append("wandb.jsonl", call="finish", exit_code=exit_code)


def init(**arguments: Any) -> Run:
    store.append("wandb.jsonl", call="init", **arguments)
    return Run()


def finish() -> None:
    pass
