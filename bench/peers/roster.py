"""Who takes part, and how each is started.

To add a system: a script in systems/, an entry here, its pins.
"""

import dataclasses
import pathlib

from jobs import JOBS, Job

SCRIPTS = pathlib.Path(__file__).resolve().parent / "systems"


@dataclasses.dataclass(frozen=True)
class System:
    """`warm` rounds are not timed: they pay for lazy starts, compilation and first touches."""

    name: str
    environment: str  # "" for Macaw itself
    script: str
    workers: int
    framework: bool = True  # a federated framework, not a loop written for the occasion
    usual: bool = True  # takes part when nobody is named
    quick: bool = True  # … also in a quick run
    jobs: tuple = tuple(JOBS)
    warm: int = 2
    pace: int = 1  # how many times the job's rounds make a repetition of some seconds

    @property
    def family(self) -> str:
        return self.name.split("-")[0]

    @property
    def is_macaw(self) -> bool:
        return not self.environment

    def rounds(self, job: Job) -> int:
        return self.warm + job.timed * self.pace

    def command(self, environment: pathlib.Path, task: pathlib.Path) -> list:
        """What to run for a task; `environment` is the folder of its venv."""
        python, script = environment / "bin/python", SCRIPTS / self.script
        if self.family == "pfl" and self.workers > 1:
            ranks = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc_per_node={self.workers}",
            ]
            return [python, *ranks, script, task]
        if self.family == "fedml":
            free = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
            # -m mpi4py: an exception in one rank ends them all; FedML alone would hang.
            ranks = ["-np", str(self.workers + 1), python, "-m", "mpi4py", script, task]
            return [environment / "bin/mpirun", *free, *ranks]
        return [python, script, task]


SYSTEMS = {
    system.name: system
    for system in (
        System("macaw-1", "", "", 1, framework=False),
        System("macaw-2", "", "", 2, framework=False),
        System("numpy-1", "numpy", "run_numpy.py", 1, framework=False, jobs=("logistic",), pace=10),
        System("torch-1", "torch", "run_torch.py", 1, framework=False, usual=False),
        System("torch-2", "torch", "run_torch.py", 2, framework=False),
        System("fedjax", "fedjax", "run_fedjax.py", 1),
        System("pfl-1", "pfl", "run_pfl.py", 1, usual=False),
        System("pfl-2", "pfl", "run_pfl.py", 2),
        System("fedml-2", "fedml", "run_fedml.py", 2, quick=False, warm=6),
        System("flower-1", "flower", "run_flower.py", 1, usual=False),
        System("flower-2", "flower", "run_flower.py", 2, quick=False),
    )
}


def chosen(names: list, quick: bool) -> list:
    """The systems of these names (`pfl-1`, or `pfl`: what is usual of it), and always Macaw."""
    unknown = [
        n for n in names if n not in SYSTEMS and n not in {s.family for s in SYSTEMS.values()}
    ]
    if unknown:
        raise ValueError(f"no system {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    if not names:
        return [s for s in SYSTEMS.values() if s.usual and (s.quick or not quick)]
    if not any(name.startswith("macaw") for name in names):
        names = ["macaw", *names]
    return [s for s in SYSTEMS.values() if s.name in names or (s.usual and s.family in names)]
