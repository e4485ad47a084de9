"""Macaw's side: the configuration of a job, a run of it, and what its run folder says."""

import dataclasses
import json
import pathlib

from jobs import LR, Job

CONFIG = """\
# Written by bench/peers.
[run]
name = "{job.name}"
seed = 1
checkpoint_every = 1000000
client_records = {records}
[data]
source = "prepared"
path = "{data}"
[model]
{model}
init = "{initial}"
[algorithm]
name = "fedavg"
[cohort]
size = {job.cohort}
weight = "examples"
[local]
epochs = 1
batch_size = {job.batch}
lr = {lr}
shuffle = false
[evaluation]
every = 0
[workers]
processes = 1
backend = "{backend}"
"""


def model_of(job: Job) -> str:
    """The line of [model] that says which one."""
    return f"layers = {json.dumps(job.layers)}" if job.layers else f'name = "{job.name}"'


@dataclasses.dataclass(frozen=True)
class Program:
    """The `macaw` to run and the back end to ask it for ("auto" unless the user says otherwise)."""

    path: pathlib.Path
    backend: str

    def command(
        self,
        job: Job,
        inputs: pathlib.Path,
        out: pathlib.Path,
        rounds: int,
        slots: int,
        records=False,
    ):
        """Writes the configuration beside `out`; `records` adds a row a client and round."""
        config = out.with_suffix(".toml")
        config.write_text(
            CONFIG.format(
                job=job,
                model=model_of(job),
                lr=LR,
                backend=self.backend,
                records="true" if records else "false",
                data=inputs / f"{job.data}.safetensors",
                initial=inputs / f"init-{job.name}.safetensors",
            )
        )
        sizes = ["--rounds", rounds, "--slots", slots]
        return [self.path, "simulate", config, *sizes, "--out", out, "--force", "--quiet"]


def rows(path: pathlib.Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


def times(out: pathlib.Path) -> list:
    """When the first round began and when each was closed, by the wall clock.

    Events count from the server's start, which is when it writes `epoch` (to about 10 ms).
    """
    zero = (out / "epoch").stat().st_mtime
    closed = [row for row in rows(out / "events.jsonl") if row["event"] == "round"]
    return [zero + closed[0]["t"] - closed[0]["seconds"]] + [zero + row["t"] for row in closed]


def steps(out: pathlib.Path) -> list:
    """Local steps of each round."""
    return [row["steps"] for row in rows(out / "metrics.jsonl")]


def cohorts(out: pathlib.Path) -> list:
    """The clients of each round, from a run with client records."""
    drawn: dict = {}
    for row in rows(out / "clients.jsonl"):
        drawn.setdefault(row["round"], []).append(row["client"])
    return [drawn[number] for number in sorted(drawn)]


def summary(out: pathlib.Path) -> dict:
    return json.loads((out / "summary.json").read_text())
