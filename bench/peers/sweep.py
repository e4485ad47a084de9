"""The runs: what every system is told to do, in which order, and what is kept of each run."""

import dataclasses
import json
import os
import pathlib
import statistics
import time

import macaw
import measure
from environments import Environments, Unavailable
from jobs import LR, Job
from roster import System

RUN_LIMIT_S = 300
RESERVE_S = 30  # for comparing the models at the end
CONTROLLED = {  # one thread a worker, and nothing that phones home or writes elsewhere
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclasses.dataclass
class Reference:
    """What Macaw did with client records on: the cohorts of all, and the models to compare with."""

    cohorts: list
    steps: list  # local steps of each of those rounds
    round_s: float
    models: dict  # rounds done -> file


@dataclasses.dataclass(frozen=True)
class Run:
    """One timed run; the timed part begins when the warm-up rounds are done."""

    repetition: int
    rounds: int  # timed ones
    rounds_per_s: float
    steps_per_s: float
    start_s: float  # from the start of the process to the start of the first round
    first_round_s: float
    peak_pss: int
    load: float
    wall_s: float


class Left(Exception):
    """A run that did not come about; the text says why."""


class Sweep:
    """Runs systems on jobs below `folder`, within `minutes`. One at a time, nothing in parallel."""

    def __init__(
        self,
        program: macaw.Program,
        environments: Environments,
        inputs: pathlib.Path,
        folder: pathlib.Path,
        checked: int,
        macaw_seconds: float,
        minutes: float,
    ):
        self._program = program
        self._environments = environments
        self._inputs = inputs
        self._folder = folder
        self._checked = checked
        self._macaw_seconds = macaw_seconds
        self._deadline = time.time() + 60 * minutes - RESERVE_S
        self._expected: dict = {}  # (job, system) -> seconds the next run may take
        self.models: dict = {}  # job -> rounds done -> system -> file
        self.digests: dict = {}  # job -> the digests of Macaw's models after equally many rounds

    def reference(self, job: Job, rounds: int) -> Reference:
        """Macaw, untimed: one round, the checked ones, and `rounds` of them for the cohorts."""
        models = {}
        for count in sorted({1, self._checked, rounds}):
            out = self._folder / f"{job.name}-reference-{count}"
            self._macaw(job, out, count, slots=2, records=True)
            models[count] = out / "model.safetensors"
        times = macaw.times(out)
        recent = times[-11:]
        pace = [b - a for a, b in zip(recent, recent[1:])]
        return Reference(macaw.cohorts(out), macaw.steps(out), statistics.median(pace), models)

    def repeat(self, job: Job, system: System, reference: Reference, repetition: int) -> Run:
        """One run of one system. A peer's first also trains the checked rounds and keeps models."""
        left = self._deadline - time.time()
        expected = self._expected.get((job.name, system.name), 0)
        if left < max(expected, 5):
            raise Left("no time left")
        try:
            run = (self._run_macaw if system.is_macaw else self._run_peer)(
                job, system, reference, repetition
            )
        except (OSError, KeyError, ValueError, IndexError) as error:
            raise Left(f"its results could not be read: {error!r}") from error
        rounds = system.warm + (run.rounds if system.is_macaw else job.timed * system.pace)
        self._expected[job.name, system.name] = (
            3 + run.start_s + run.first_round_s + rounds / run.rounds_per_s
        )
        return run

    def _run_macaw(self, job: Job, system: System, reference: Reference, repetition: int) -> Run:
        rounds = int(self._macaw_seconds / reference.round_s)
        rounds = system.warm + min(max(rounds, job.timed), 20000)
        out = self._folder / f"{job.name}-{system.name}"
        measured = self._macaw(job, out, rounds, system.workers)
        self.digests.setdefault(job.name, set()).add(macaw.summary(out)["model_digest"])
        return self._count(system, repetition, macaw.times(out), macaw.steps(out), measured)

    def _macaw(self, job: Job, out: pathlib.Path, rounds: int, slots: int, records: bool = False):
        command = self._program.command(job, self._inputs, out, rounds, slots, records)
        measured = measure.run(
            command, {**os.environ, **CONTROLLED}, out.with_suffix(".log"), RUN_LIMIT_S
        )
        if measured.failure:
            raise Left(measured.failure)
        return measured

    def _run_peer(self, job: Job, system: System, reference: Reference, repetition: int) -> Run:
        try:
            self._environments.python(system.environment)
        except Unavailable as error:
            raise Left(str(error)) from error
        first = repetition == 1
        rounds = max(self._checked, system.rounds(job)) if first else system.rounds(job)
        scratch = self._folder / f"{job.name}-{system.name}"
        scratch.mkdir(parents=True, exist_ok=True)
        task = scratch / "task.json"
        told = self.task(job, reference.cohorts[:rounds])
        told |= {"workers": system.workers, "kept": [1, self._checked] if first else []}
        told |= {"result": str(scratch / "times.json"), "scratch": str(scratch)}
        task.write_text(json.dumps(told))
        (scratch / "times.json").unlink(missing_ok=True)
        command = system.command(self._environments.path(system.environment), task)
        # HOME: Flower and FedML keep things there.
        home = {"HOME": str(scratch), "FLWR_HOME": str(scratch / "flwr")}
        limit = min(RUN_LIMIT_S, self._deadline + RESERVE_S - time.time())
        measured = measure.run(
            command, {**os.environ, **CONTROLLED, **home}, scratch / "log", limit
        )
        if measured.failure:
            raise Left(measured.failure)
        if first:
            for count in (1, self._checked):
                self.models.setdefault(job.name, {}).setdefault(count, {})[system.name] = (
                    scratch / f"model-{count}.npy"
                )
        times = json.loads((scratch / "times.json").read_text())["times"]
        return self._count(system, repetition, times, reference.steps, measured)

    def task(self, job: Job, cohorts: list) -> dict:
        """What systems/shared.py reads, but for what differs between the systems."""
        return {
            "job": job.name,
            "batch": job.batch,
            "lr": LR,
            "workers": 1,
            "cohorts": cohorts,
            "kept": [],
            "data": str(self._inputs / f"{job.data}.safetensors"),
            "initial": str(self._inputs / f"init-{job.name}.safetensors"),
            "result": "",
            "scratch": "",
        }

    @staticmethod
    def _count(
        system: System, repetition: int, times: list, steps: list, measured: measure.Measured
    ) -> Run:
        span = times[-1] - times[system.warm]
        rounds = len(times) - 1 - system.warm
        return Run(
            repetition=repetition,
            rounds=rounds,
            rounds_per_s=rounds / span,
            steps_per_s=sum(steps[system.warm : len(times) - 1]) / span,
            start_s=times[0] - measured.started,
            first_round_s=times[1] - times[0],
            peak_pss=measured.peak_pss,
            load=measured.load,
            wall_s=measured.wall_s,
        )
