"""What a round costs besides training, and how full slots are, by a run's timeline.

    ./dev bench rounds [--rounds N] [--repeat N] [--old MACAW] [JOB…]

Jobs: logistic (examples/synthetic.toml: rounds of milliseconds), lenet5 (examples/mnist10k.toml), lenet5-2x1 (the same by
two processes of a slot), simple_cnn (1.2 million weights) and resnet18 (11 million, LibTorch), all on two slots. With
--old, the programs of another build take turns with this one's. Prints the milliseconds of the median round, cut as
`macaw timeline` cuts it: medians over the repetitions.
"""

import pathlib
import re
import statistics
import subprocess
import tempfile

import frame

SMALL = frame.ROOT / "examples/mnist10k.toml"
LARGE = ["workers.slots=2", "cohort.size=8", "local.steps=2", "local.batch_size=20"]
JOBS = {
    "logistic": (frame.ROOT / "examples/synthetic.toml", ["workers.slots=2"]),
    "lenet5": (SMALL, ["workers.slots=2"]),
    "lenet5-2x1": (SMALL, ["workers.processes=2", "workers.slots=1"]),
    "simple_cnn": (SMALL, [*LARGE, "model.name=simple_cnn"]),
    "resnet18": (SMALL, [*LARGE, "model.name=resnet18_gn"]),
}
TIMES = {"logistic": 10, "resnet18": 0.2}  # how many times --rounds
PARTS = ["prepare", "hand out", "train", "commit", "apply"]
COLUMNS = [*PARTS, "besides training", "slots busy, %", "while training, %"]


def parts_of(timeline: list[dict]) -> list[list[float]]:
    """Of each round: the milliseconds of its parts."""
    rounds: dict[int, dict[str, list]] = {}
    for event in timeline:
        if event["ph"] == "X":
            name, begin = event["name"].split()[0], event["ts"]
            spans = rounds.setdefault(event["args"]["round"], {})
            spans.setdefault(name, []).append((begin, begin + event["dur"]))
    parts = []
    for spans in rounds.values():
        (prepare, prepared), (apply, applied) = spans["prepare"][0], spans["apply"][0]
        first = min(begin for begin, _ in spans["client"])
        last = max(end for _, end in spans["client"])
        marks = [prepare, prepared, first, last, apply, applied]
        parts.append([(end - begin) / 1e3 for begin, end in zip(marks, marks[1:])])
    return parts


def measure(macaw: pathlib.Path, job: str, rounds: int) -> tuple[list[float], str]:
    """One run: its figures in the order of COLUMNS, and its model."""
    with tempfile.TemporaryDirectory() as folder:
        config, settings = JOBS[job]
        count = max(3, int(rounds * TIMES.get(job, 1)))
        settings = [*settings, f"run.rounds={count}", "evaluation.every=0"]
        run = frame.simulate(macaw, config, pathlib.Path(folder) / "run", settings)
        told = subprocess.check_output([macaw, "timeline", run.folder], text=True)
        parts = parts_of(run.timeline())
        busy = re.search(r"busy ([\d.]+) % of the time, ([\d.]+) % while", told)
        assert busy is not None, told
        figures = [statistics.median(times) for times in zip(*parts)]
        figures.append(statistics.median(sum(times) - times[2] for times in parts))
        return figures + [float(busy[1]), float(busy[2])], run.digest


def main() -> None:
    parser = frame.parser(__doc__, rounds=40)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--old", type=pathlib.Path, help="the `macaw` of another build")
    told = parser.parse_args()
    if unknown := set(told.jobs) - set(JOBS):
        parser.error(f"no job {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    programs = {"new": told.macaw} | ({"old": told.old} if told.old else {})
    ways = [(job, who) for job in told.jobs or JOBS for who in programs]
    found = frame.in_turn(
        ways, told.repeat, lambda way: measure(programs[way[1]], way[0], told.rounds)
    )
    medians = {
        way: [statistics.median(values) for values in zip(*(figures for figures, _ in runs))]
        for way, runs in found.items()
    }
    print(frame.heading() + "\n")
    rows = [
        (f"{job}, {who}" if told.old else job, *(f"{value:.2f}" for value in medians[job, who]))
        for job, who in ways
    ]
    print(frame.table(["ms of the median round", *COLUMNS], rows))
    if told.old:
        ratios = []
        for job in told.jobs or JOBS:
            frame.same(digest for who in programs for _, digest in found[job, who])
            pairs = zip(medians[job, "new"], medians[job, "old"])
            ratios.append((job, *(f"{new / old:.2f}" for new, old in pairs)))
        print(frame.table(["new ÷ old", *COLUMNS], ratios))


if __name__ == "__main__":
    main()
