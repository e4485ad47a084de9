"""A rule in Python beside the built-in: rounds/s, and microseconds a client.

./dev bench python_rule [--rounds 30] [--repeat 3]

FedProx as `examples/rules/py_fedprox.py` and as the built-in, in turn, on two slots, without
evaluation: LeNet-5 on MNIST, 100 clients a round, and softmax regression, whose rounds are hardly
anything but the rule. Microseconds a client: the difference of the two times, over the clients, times
the slots. Both must end with the same digest.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent.parent
MACAW = HERE / os.environ.get("MACAW_BUILD", "build") / "bin/macaw"
JOBS = {"lenet5": ("lenet5", 1), "logistic": ("logistic", 10)}  # model, times the rounds
SLOTS, COHORT = 2, 100


def run(folder: Path, model: str, rule: str, rounds: int) -> tuple[float, str]:
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    settings = {
        "model.name": model,
        "algorithm.name": rule,
        f"algorithm.{rule}.mu": "0.1",
        "plugins": json.dumps([str(HERE / "examples/rules/py_fedprox.py")]),
        "cohort.size": COHORT,
        "local.epochs": 1,
        "evaluation.every": 0,
    }
    if rule == "fedprox":
        del settings["plugins"]
    command = [MACAW, "simulate", HERE / "examples/mnist10k.toml", "--quiet", "--out", out]
    command += ["--rounds", str(rounds), "--processes", "1", "--slots", str(SLOTS)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    environment = {"MACAW_PYTHON": sys.executable, **os.environ}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    summary = json.loads((out / "summary.json").read_text())
    return summary["rounds_per_second"], summary["model_digest"]


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--repeat", type=int, default=3)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for job, (model, times) in JOBS.items():
            rates: dict[str, list[float]] = {"fedprox": [], "py_fedprox": []}
            digests = set()
            for _ in range(options.repeat):
                for rule, rate in rates.items():
                    speed, digest = run(Path(folder), model, rule, options.rounds * times)
                    rate.append(speed)
                    digests.add(digest)
            assert len(digests) == 1, digests
            ours, python = (statistics.median(rate) for rate in rates.values())
            cost = (1 / python - 1 / ours) / COHORT * SLOTS * 1e6
            print(f"{job}: built-in {ours:.1f} rounds/s, Python {python:.1f} "
                  f"({python / ours:.2f} x), {cost:.0f} us a client; same digest")  # fmt: skip


if __name__ == "__main__":
    main()
