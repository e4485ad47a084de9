"""A run from Python beside the same run from the command line: the first round, and rounds/s.

./dev bench from_python [--rounds 200] [--repeat 5]

The job: softmax regression with a hidden layer of 64 on 20,000 rows of 32 numbers, 1000 clients,
100 a round, FedProx. From Python, the time counts from `import macaw`, with NumPy imported, and
the prepared file is written anew each time. The command line has it already.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent.parent
CHILD = """
import sys, time, numpy
began = time.perf_counter()
import macaw
imported = time.perf_counter()
x, y = numpy.load(sys.argv[1] + "/x.npy"), numpy.load(sys.argv[1] + "/y.npy")
loaded = time.perf_counter()
stream = macaw.stream(["linear 64", "tanh", "linear 10"], (x, y), cohort=100,
    rounds=int(sys.argv[3]), partition=macaw.dirichlet(0.3, clients=1000),
    algorithm=macaw.FedProx(mu=0.1), local=dict(epochs=1, batch_size=20, lr=0.1),
    out=sys.argv[2] + "/run", cache=sys.argv[2])
first = None
for row in stream:
    first = first or time.perf_counter()
print(imported - began, first - loaded + imported - began, stream.run.digest)
"""


def job(folder: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 32)).astype(np.float32)
    hidden = np.tanh(x @ rng.normal(size=(32, 64)))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", np.argmax(hidden @ rng.normal(size=(64, 10)), axis=1))


def from_python(folder: Path, rounds: int) -> tuple[float, float, float, str]:
    out = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-c", CHILD, folder, out, str(rounds)]
    said = subprocess.check_output(command, text=True, env={"PYTHONPATH": str(package())})
    imported, first, digest = said.split()
    summary = json.loads((out / "run/summary.json").read_text())
    return float(imported), float(first), summary["rounds_per_second"], digest


def from_the_command_line(folder: Path, like: Path, rounds: int) -> tuple[float, float, str]:
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    began = time.perf_counter()
    command = [package() / "macaw/bin/macaw", "simulate", "--json", like, "--out", out]
    first = None
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b'{"event":"round"') and first is None:
                first = time.perf_counter() - began
    assert first is not None
    summary = json.loads((out / "summary.json").read_text())
    assert summary["rounds"] == rounds
    return first, summary["rounds_per_second"], summary["model_digest"]


def package() -> Path:
    return HERE / "build/python"


def middle(values: list[float]) -> str:
    return f"{statistics.median(values):9.3f}  ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        job(folder)
        python, command = [], []
        for _ in range(options.repeat):  # in turn
            python.append(from_python(folder, options.rounds))
            like = next(folder.glob("*/run/config.toml"))
            command.append(from_the_command_line(folder, like, options.rounds))
        assert {run[-1] for run in python} == {run[-1] for run in command}, "other bytes"
        print(f"median of {options.repeat} (least to most), {options.rounds} rounds")
        print("import macaw, s              ", middle([run[0] for run in python]))
        print("first round, Python, s       ", middle([run[1] for run in python]))
        print("first round, command line, s ", middle([run[0] for run in command]))
        print("rounds/s, Python             ", middle([run[2] for run in python]))
        print("rounds/s, command line       ", middle([run[1] for run in command]))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
