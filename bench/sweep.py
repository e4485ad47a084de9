"""A sweep whose runs go side by side, beside the same sweep with one run after the other.

./dev bench sweep [--rounds 40] [--repeat 3] [--cores 2]

Twelve runs (two rules, three rates, two seeds) of a hidden layer of 64 on synthetic rows, 200 clients,
20 a round. "together": as many runs at a time as cores, one slot each. "in turn": one run at a time,
with one slot (the same work on one core) and with all cores as slots. All tables have the same bytes.
The load is that of the machine, which others may use.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

MACAW = Path(__file__).parent.parent / "build/bin/macaw"
SWEEP = """
seeds = [1, 2]
metric = "test_loss"
[keys]
algorithm.name = ["fedavg", "scaffold"]
local.lr = [0.003, 0.01, 0.03]
[base]
run.rounds = {rounds}
data.source = "synthetic"
data.synthetic = {{clients = 200, max_size = 500}}
model.layers = ["linear 64", "tanh", "linear 10"]
cohort.size = 20
workers.slots = {slots}
evaluation.every = 10
"""


def sweep(folder: Path, rounds: int, jobs: int, slots: int) -> tuple[float, bytes]:
    place = Path(tempfile.mkdtemp(dir=folder))
    file = place / "sweep.toml"
    file.write_text(SWEEP.format(rounds=rounds, slots=slots))
    began = time.perf_counter()
    command = [MACAW, "sweep", "--quiet", "--jobs", str(jobs), file, "--out", place / "out"]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began, (place / "out/table.csv").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    kinds = {
        "together": (options.cores, 1),
        "in turn, one slot": (1, 1),
        f"in turn, {options.cores} slots": (1, options.cores),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    tables = set()
    folder = Path(tempfile.mkdtemp())
    try:
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for _ in range(options.repeat):
            for kind, (jobs, slots) in kinds.items():  # in turn
                took, table = sweep(folder, options.rounds, jobs, slots)
                seconds[kind].append(took)
                tables.add(table)
        assert len(tables) == 1, "other tables"
        print(f"load after: {os.getloadavg()[0]:.1f}")
        together = statistics.median(seconds["together"])
        for kind, values in seconds.items():
            middle = statistics.median(values)
            spread = f"({min(values):.2f} to {max(values):.2f})"
            print(f"{kind:22} {middle:7.2f} s {spread:18} {middle / together:.2f} of together")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
