"""Accuracy against the clock of the fleet: rounds that wait, over-selection, selection by losses
(Oort, power of choice, UCB), FedBuff, FedAsync.

./dev bench clock [--images FOLDER] [--histogram FILE] [--updates N] [--seeds N] [--only TEXT]
                  [--write]

LeNet-5 on MNIST, clients with phones and networks of the built-in sample (`devices.family =
"phones"`). All ways train the same number of clients' turns (--updates), so a synchronous run of 20
clients a round has a twentieth of the rounds that FedAsync has. The images are those of
examples/mnist10k.toml over 1000 clients, or of a folder with the four files of MNIST (--images);
--histogram: how many of each digit each client has, as an .npy of clients × 10.

A row: steps of the server; accuracy at the end and the best; virtual minutes of the run, and until
the test accuracy was 0.8, 0.9 and 0.95; those until 0.9 as a share of the first row's; mean
staleness; seconds here. With several seeds, means ± half of the 95 % interval by Student's t; the
share of the first row's minutes is of runs with the same seed. --only, which may be given several
times: the ways whose names have this text. --write puts the table into results/clock.md.
"""

import pathlib
import statistics
import sys
import tempfile
import time

import frame

# The way, clients of a step, and its settings.
WAYS = [
    ("rounds of 20", 20, []),
    ("the first 20 of 26", 20, ["cohort.over_selection=1.3"]),
    ("the first 20 of 40", 20, ["cohort.over_selection=2"]),
    ("oort", 20, ["cohort.sampling=oort"]),
    ("oort, the first 20 of 26", 20, ["cohort.sampling=oort", "cohort.over_selection=1.3"]),
    ("power of choice, of 40", 20,
     ["cohort.sampling=power-of-choice", "cohort.candidates=40"]),
    ("power of choice, of 52, the first 20 of 26", 20,
     ["cohort.sampling=power-of-choice", "cohort.candidates=52", "cohort.over_selection=1.3"]),
    ("ucb", 20, ["cohort.sampling=ucb"]),
    ("a deadline of 2 s", 20, ["round.deadline=2", "round.quorum=0.25"]),
    ("buffered, 20 of 60", 20, ["round.mode=buffered", "round.concurrency=60"]),
    ("buffered, 10 of 60", 10, ["round.mode=buffered", "round.concurrency=60"]),
    ("buffered, 20 of 60, no discount", 20,
     ["round.mode=buffered", "round.concurrency=60", "round.discount=0"]),
    ("mixed, of 20", 1, ["round.mode=mixed", "round.concurrency=20", "round.mixing=0.3"]),
]  # fmt: skip
MARKS = ("0.8", "0.9", "0.95")
HEAD = ["way", "steps", "accuracy", "best", "minutes", "to 0.8", "to 0.9", "to 0.95",
        "of the first", "staleness", "s here"]  # fmt: skip
RESULTS = frame.ROOT / "bench/results/clock.md"


def settings(size: int, way: list[str], seed: int, options) -> list[str]:
    rounds = options.updates // size
    found = [f"run.seed={seed}", f"run.rounds={rounds}", f"cohort.size={size}", "local.epochs=2",
             f"evaluation.every={max(1, 100 // size)}", "local.lr=0.05",
             "devices.family=phones"]  # fmt: skip
    if options.images:
        found += [f"data.path={options.images}/train-images-idx3-ubyte.gz", "data.test_fraction=0"]
        found += [f"data.test_path={options.images}/t10k-images-idx3-ubyte.gz"]
    if options.histogram:
        found += ["partition.scheme=histogram", f"partition.path={options.histogram}"]
    return found + way


def measure(size: int, way: list[str], options, folder: pathlib.Path) -> list[dict[str, float]]:
    seeds = []
    for seed in range(1, options.repeat + 1):
        began = time.monotonic()
        run = frame.simulate(
            options.macaw,
            options.config,
            folder / "run",
            settings(size, way, seed, options),
        )
        here = time.monotonic() - began
        staleness = [row["staleness"] for row in run.metrics() if "staleness" in row]
        seeds.append({
            "steps": run.summary["rounds"],
            "last": run.summary["final"]["test_accuracy"],
            "best": run.summary["bests"]["test_accuracy"]["value"],
            "minutes": run.summary["virtual_seconds"] / 60,
            "staleness": statistics.mean(staleness) if staleness else 0,
            "here": here,
            **{m: run.summary["virtual_seconds_to"].get(m, float("nan")) / 60 for m in MARKS},
        })  # fmt: skip
    return seeds


def row(name: str, found: list[dict[str, float]], first: list[dict[str, float]]) -> list[str]:
    of = [f["0.9"] / base["0.9"] for f, base in zip(found, first, strict=True)]

    def column(key: str, digits: int, times: float = 1) -> str:
        return frame.spread([times * seed[key] for seed in found], digits)

    return [
        name, f"{found[0]['steps']}", column("last", 1, 100), column("best", 1, 100),
        column("minutes", 1), *(column(mark, 1) for mark in MARKS), frame.spread(of, 2),
        column("staleness", 1), column("here", 0),
    ]  # fmt: skip


def main() -> None:
    parser = frame.parser(__doc__, rounds=0, repeat=1)
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--histogram", type=pathlib.Path)
    parser.add_argument("--updates", type=int, default=4000, help="clients' turns of each run")
    parser.add_argument("--seeds", dest="repeat", type=int, help="runs of each way; also --repeat")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    frame.refuse_part(parser, options, {"--only": bool(options.only)})
    options.config = frame.ROOT / "examples/mnist10k.toml"
    rows: list[list[str]] = []
    first: list[dict[str, float]] = []
    about = frame.heading()
    with tempfile.TemporaryDirectory() as folder:
        if options.histogram:  # it says how many clients there are
            lines = options.config.read_text().splitlines()
            kept = [
                line for line in lines
                if not line.startswith(("clients =", "min_size =", "concentration ="))
            ]  # fmt: skip
            options.config = pathlib.Path(folder) / "clock.toml"
            data = frame.ROOT / "examples/data"
            options.config.write_text("\n".join(kept).replace('"data/', f'"{data}/'))
        for name, size, way in WAYS:
            if options.only and not any(text in name for text in options.only):
                continue
            found = measure(size, way, options, pathlib.Path(folder))
            first = first or found
            rows.append(row(name, found, first))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    if options.repeat > 1:
        about += f"; seeds 1 to {options.repeat}, mean ± half of the 95 % interval (Student)"
    table = f"{about}\n\n{frame.table(HEAD, rows)}"
    print(table)
    if options.write:
        frame.write(RESULTS, "clock", table)


if __name__ == "__main__":
    main()
