"""What the columns that [evaluation] adds cost: the quick start with each of them and without.

./dev bench evaluated [--only TEXT] [--rounds N] [--repeat N] [--every N]

The runs of a family take turns, and its first is the one without. Columns: milliseconds of a round
from the first to the last, and milliseconds of processors, of all processes and from their start,
by rounds; each as a median with its range, and the median of the turns' ratios to the one
without. Where other programs run, too, processors' time says more. `--every`: rounds between
evaluations; the quick start has 5. All runs of one algorithm must end with the same model.
"""

import pathlib
import resource
import statistics
import sys
import tempfile

import frame

GROUPS = 'evaluation.groups=["few=?","some=??","most=*"]'  # by numbers, which are the names here
CLIENTS = ["data.client_test_fraction=0.2", "evaluation.clients=true"]


def asked(*words: str) -> str:
    return "evaluation.metrics=[{}]".format(",".join(f'"{word}"' for word in words))


# The family, and its ways with their settings.
FAMILIES = {
    "central test set": {
        "without": [],
        "updates": ["evaluation.updates=true"],
        **{word: [asked(word)] for word in
           ("top5", "ece", "balanced_accuracy", "f1", "auc", "confusion")},
        "top5, ece, f1 and auc": [asked("top5", "ece", "f1", "auc")],
    },
    "clients' test rows": {
        "without": CLIENTS,
        "groups": [*CLIENTS, GROUPS],
        "top5, ece and f1": [*CLIENTS, asked("top5", "ece", "f1")],
        "groups, top5, ece and f1": [*CLIENTS, GROUPS, asked("top5", "ece", "f1")],
        "auc": [*CLIENTS, asked("auc")],
    },
}  # fmt: skip


def processors() -> float:
    """Seconds that programs of ours have computed, of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(ways: dict[str, list[str]], options, folder: pathlib.Path) -> list[list[str]]:
    digests = []
    common = [f"run.rounds={options.rounds}", f"evaluation.every={options.every}"]

    def measure(way: str) -> tuple[float, float]:
        before = processors()
        run = frame.simulate(options.macaw, frame.ROOT / "examples/quickstart.toml",
                             folder / "run", common + ways[way])  # fmt: skip
        digests.append(run.digest)
        ends = run.ends()
        wall = (ends[-1] - ends[0]) / (len(ends) - 1)
        print(f"  {way}: {1e3 * wall:.1f} ms a round", file=sys.stderr, flush=True)
        return 1e3 * wall, 1e3 * (processors() - before) / options.rounds

    found = frame.in_turn(list(ways), options.repeat, measure)
    frame.same(digests)
    rows = []
    for way, figures in found.items():
        row = [way]
        for which in (0, 1):
            values = [figure[which] for figure in figures]
            first = [figure[which] for figure in found["without"]]
            ratio = statistics.median(a / b for a, b in zip(values, first))
            row += [frame.middle(values, 1), f"{ratio:.3f}"]
        rows.append(row)
    return rows


def main() -> None:
    parser = frame.parser(__doc__, rounds=40, repeat=5)
    parser.add_argument("--only", action="append", default=[], help="ways with this in their names")
    parser.add_argument("--every", type=int, default=5)
    options = parser.parse_args()
    print(frame.heading() + "\n")
    with tempfile.TemporaryDirectory() as name:
        for family, ways in FAMILIES.items():
            chosen = {
                way: settings
                for way, settings in ways.items()
                if not options.only or way == "without" or any(text in way for text in options.only)
            }
            if len(chosen) == 1:
                continue
            rows = compare(chosen, options, pathlib.Path(name))
            head = [family, "ms a round", "ratio", "processors, ms a round", "ratio"]
            print(frame.table(head, rows), flush=True)


if __name__ == "__main__":
    main()
