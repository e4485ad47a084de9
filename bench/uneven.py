"""Rounds on uneven hardware, by scheduling policy.

    ./dev bench uneven [--rounds N] [--repeat N]

Two worker processes of one slot, one emulated to take three times as long, 100 of 1000 Synthetic(1,1) clients a round.
Prints milliseconds a round, and the ratio to the bound: the work that the workers report, in seconds of the fast
slot, divided by the speeds of both. Every client's turn is lengthened by sleeping, so that the slots do not
compete for cores: at `--stretch 20` a turn takes 20 times its work, 60 times on the slow slot.
"""

import pathlib
import statistics
import tempfile

import frame

POLICIES = ["planned_stealing", "longest_first", "random", "round_robin"]
WARM = 5  # rounds in which times are not known yet


def bounds(run: frame.Run) -> dict[int, float]:
    """Of each round: the seconds that it needs at least."""
    work: dict[int, float] = {}
    for part in run.events("part"):
        share = part["seconds"] / (3 if part["worker"].endswith("1") else 1)
        work[part["round"]] = work.get(part["round"], 0) + share
    return {number: seconds / (1 + 1 / 3) for number, seconds in work.items()}


def main() -> None:
    parser = frame.parser(__doc__, rounds=50, repeat=5)
    parser.add_argument("--stretch", type=float, default=20)
    told = parser.parse_args()
    settings = ["cohort.size=100", "evaluation.every=0", "workers.processes=2", "workers.slots=1"]
    settings += [
        f"run.rounds={told.rounds + WARM}",
        f"workers.slowdown=[{told.stretch}, {3 * told.stretch}]",
    ]
    with tempfile.TemporaryDirectory() as folder:

        def measure(policy: str) -> tuple[float, float, str]:
            """The median round: milliseconds and the ratio to its bound; the model's digest."""
            run = frame.simulate(
                told.macaw, frame.ROOT / "examples/synthetic.toml", pathlib.Path(folder) / policy,
                [*settings, f"scheduler.policy={policy}"],
            )  # fmt: skip
            least = bounds(run)
            rounds = [row for row in run.events("round") if row["round"] > WARM]
            ratios = (row["seconds"] / least[row["round"]] for row in rounds)
            took = statistics.median(row["seconds"] for row in rounds)
            return 1e3 * took, statistics.median(ratios), run.digest

        found = frame.in_turn(POLICIES, told.repeat, measure)
    frame.same(digest for runs in found.values() for _, _, digest in runs)
    print(frame.heading() + "\n")
    print(
        frame.beside(
            {policy: [ms for ms, _, _ in runs] for policy, runs in found.items()}, "ms a round", 1
        )
    )
    rows = [
        (policy, frame.middle([ratio for _, ratio, _ in runs], 3)) for policy, runs in found.items()
    ]
    print(frame.table(["", "÷ bound"], rows))


if __name__ == "__main__":
    main()
