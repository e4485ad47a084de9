"""How far a model whose client was taken out (evaluation.unlearn) is from one trained without it.

    ./dev bench unlearned [--only TEXT] [--rounds N] [--repeat N]

20 clients, all of them in each round, of which client 0 is taken out. Jobs: softmax regression on
examples/synthetic.toml, one epoch a round; a network with a hidden layer on MNIST's 10,000 test
images, a few digits a client, ten local steps of ten rows. Each is run for 1, 2, 5, 20 and 50
rounds (--rounds: at most), with three rules and two local rates, and each run is trained again by
`macaw replay --without 0`. --repeat: seeds. --only: jobs or ways with this in their names.

First table: |unlearned - retrained| / |run - retrained| of the final models, the median over seeds
and the range. 0: as trained again; 1: no nearer than the run's own model. Second: the medians of
the loss on the central test set, in which the client's rows stay: run / unlearned / retrained.
After one round the model must have the bytes of the one that was trained again.
"""

import dataclasses
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import frame

CLIENT, CLIENTS = 0, 20
ROUNDS = [1, 2, 5, 20, 50]
COMMON = [f"cohort.size={CLIENTS}", "evaluation.every=0", f"evaluation.unlearn=[{CLIENT}]",
          "workers.processes=1", "workers.slots=1"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Job:
    config: str
    settings: list[str]
    rates: list[float]


JOBS = {
    "synthetic": Job("synthetic.toml", [f"data.synthetic.clients={CLIENTS}"], [0.001, 0.01]),
    "MNIST": Job(
        "mnist10k.toml",
        [f"partition.clients={CLIENTS}", "local.steps=10",
         'model.layers=["flatten", "linear 32", "relu", "linear 10"]'],
        [0.01, 0.1],
    ),
}  # fmt: skip
RULES = {
    "FedAvg": ["algorithm.name=fedavg"],
    "FedAvgM": ["algorithm.name=fedavgm"],
    "SCAFFOLD": ["algorithm.name=scaffold"],
}


@dataclasses.dataclass(frozen=True)
class Found:
    distance: float  # relative
    losses: tuple[float, float, float]  # of the run, unlearned, retrained


def retrain(macaw: pathlib.Path, run: frame.Run, out: pathlib.Path) -> tuple[frame.Run, float]:
    """The run without the client, and the relative distance that the replay tells."""
    words = [macaw, "replay", run.folder, "--without", str(CLIENT), "--out", out, "--force",
             "--quiet"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    told = re.search(r"^distance +(\S+) from the run's model, (\S+) from ", done.stdout, re.M)
    if done.returncode != 0 or told is None:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    of_run, of_unlearned = map(float, told.groups())
    return frame.Run(out), of_unlearned / of_run


def measure(macaw: pathlib.Path, config: pathlib.Path, settings: list[str], rounds: int) -> Found:
    settings = [*COMMON, *settings, f"run.rounds={rounds}"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = frame.simulate(macaw, config, folder / "run", settings)
        again, distance = retrain(macaw, run, folder / "without")
        line = frame.lines(folder / "run/contributions.jsonl")[-1]
        if rounds == 1:
            frame.same([line["unlearned_model"][0], again.digest])
        before, after = (one.metrics()[-1]["test_loss"] for one in (run, again))
        return Found(distance, (before, line["unlearned_test_loss"][0], after))


def ways(only: list[str]) -> Iterator[tuple[str, pathlib.Path, list[str]]]:
    """Its name, its configuration, and what differs there."""
    for name, job in JOBS.items():
        for rule, settings in RULES.items():
            for rate in job.rates:
                way = f"{name}, {rule}, {rate}"
                if not only or any(text in way for text in only):
                    config = frame.ROOT / "examples" / job.config
                    yield way, config, [*job.settings, *settings, f"local.lr={rate}"]


def main() -> None:
    parser = frame.parser(__doc__, rounds=max(ROUNDS))
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    about = frame.heading()
    rounds = [count for count in ROUNDS if count <= options.rounds]
    seeds = range(1, options.repeat + 1)
    distances, losses = [], []
    for way, config, settings in ways(options.only):
        distances.append([way])
        losses.append([way])
        for count in rounds:
            found = [
                measure(options.macaw, config, [*settings, f"run.seed={seed}"], count)
                for seed in seeds
            ]
            distances[-1].append(frame.middle([one.distance for one in found]))
            middles = (statistics.median(of) for of in zip(*(one.losses for one in found)))
            losses[-1].append(" / ".join(f"{loss:.3f}" for loss in middles))
        print("  ".join(distances[-1]), file=sys.stderr, flush=True)
    print(about + "\n")
    heads = ["1 round" if count == 1 else f"{count} rounds" for count in rounds]
    print(frame.table(["relative distance", *heads], distances))
    print(frame.table(["test loss", *heads], losses))


if __name__ == "__main__":
    main()
