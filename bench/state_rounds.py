"""What client states cost a run, and what a million of them do to it.

    ./dev bench state_rounds cost       LeNet-5, 100 clients a round: SCAFFOLD with its states in memory, on disk (with
                                        and without the tier in memory) and in Redis, beside FedAvg
    ./dev bench state_rounds million    SCAFFOLD, logistic (610 parameters), 1,000,000 clients, 1000 a round, on disk,
                                        until every client has written once; then `macaw state verify`. 4 GB in --scratch

A round counts from the end of one to the end of the next; the first five are left out.
"""

import pathlib
import statistics
import subprocess
import tempfile
import time

import frame

WARM = 5  # rounds
SCAFFOLD = ["algorithm.name=scaffold"]
REDIS = [*SCAFFOLD, "state.store=redis", "state.url=spawn"]
STORES = {
    "fedavg, without states": ["algorithm.name=fedavg"],
    "memory": [*SCAFFOLD, "state.store=memory"],
    "disk": SCAFFOLD,
    "disk, tier of 1 MB": [*SCAFFOLD, "state.cache_mb=1"],
    "redis": REDIS,
    "redis, tier of 1 MB": [*REDIS, "state.cache_mb=1"],
}


def cost(told, scratch: pathlib.Path) -> None:
    settings = ["partition.scheme=iid", "partition.clients=150", "cohort.size=100", "local.batch_size=20",
                "evaluation.every=0", "workers.processes=1", f"run.rounds={told.rounds + WARM}",
                f"local.epochs={told.epochs}"]  # fmt: skip

    def measure(store: str) -> float:
        run = frame.simulate(
            told.macaw,
            frame.ROOT / "examples/mnist10k.toml",
            scratch / "run",
            settings + STORES[store],
        )
        ends = run.ends()[WARM - 1 :]
        return 1e3 * statistics.median(b - a for a, b in zip(ends, ends[1:]))

    found = frame.in_turn(list(STORES), told.repeat, measure)
    print(frame.beside(found, "ms of the median round", 1))


def million(told, scratch: pathlib.Path) -> None:
    rounds, peak = told.clients // 1000, 0.0

    def watch(process: int) -> None:
        nonlocal peak
        peak = max(peak, frame.pss(process))

    settings = [f"data.synthetic.clients={told.clients}", "cohort.size=1000", "cohort.sampling=sweep",
                f"run.rounds={rounds}", "evaluation.every=0", "workers.processes=1"]  # fmt: skip
    began = time.monotonic()
    config = frame.ROOT / "examples/synthetic.toml"
    run = frame.simulate(told.macaw, config, scratch / "run", SCAFFOLD + settings, watch)
    ends = run.ends()
    paces = [
        1 / statistics.median(b - a for a, b in zip(ends[first:], ends[first + 1 : first + 51]))
        for first in (min(10, len(ends) // 4), max(0, len(ends) - 51))
    ]
    print(f"{len(ends)} rounds in {time.monotonic() - began:.0f} s; {paces[0]:.2f} rounds/s after round 10, "
          f"{paces[1]:.2f} at the end, ratio {paces[1] / paces[0]:.3f}; peak PSS of all processes {peak:.0f} MB")  # fmt: skip
    for command in ("ls", "verify"):
        print(
            subprocess.check_output([told.macaw, "state", command, run.folder], text=True), end=""
        )


def main() -> None:
    parser = frame.parser(__doc__, rounds=40)
    parser.add_argument("what", choices=["cost", "million"])
    parser.add_argument("--scratch", help="a folder with room for the states")
    parser.add_argument("--epochs", type=int, default=5, help="of cost")
    parser.add_argument("--clients", type=int, default=1_000_000, help="of million")
    told = parser.parse_args()
    print(frame.heading() + "\n")
    with tempfile.TemporaryDirectory(prefix="macaw-state-", dir=told.scratch) as scratch:
        {"cost": cost, "million": million}[told.what](told, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
