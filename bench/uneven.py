"""Rounds on uneven hardware, end to end: two worker processes of one slot, one emulated to take
three times as long, 100 of 1000 Synthetic(1,1) clients a round; each scheduling policy in turn, several
times over. Prints milliseconds a round, and beside the bound: the work that the workers report, in seconds of
the fast slot, divided by the speeds of both.

    bench/uneven.py [--rounds 50] [--repetitions 5] [--keep FOLDER]

Every client's turn is lengthened by sleeping, so that the slots do not compete for cores: at
`--stretch 20` a turn takes 20 times its work, 60 times on the slow slot.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLICIES = ["planned_stealing", "longest_first", "random", "round_robin"]
WARM = 5  # rounds in which times are not known yet


def simulate(policy: str, options, folder: pathlib.Path) -> tuple[list, str]:
    """Of each round after the warm-up its milliseconds and its bound, and the digest of the model."""
    fast, slow = options.stretch, 3 * options.stretch
    command = [options.macaw, "simulate", str(ROOT / "examples/synthetic.toml"), "--out", str(folder)]
    for setting in (
        f"run.rounds={options.rounds + WARM}",
        "cohort.size=100",
        "evaluation.every=0",
        "workers.processes=2",
        "workers.slots=1",
        f"workers.slowdown=[{float(fast)}, {float(slow)}]",
        f"scheduler.policy={policy}",
    ):
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{policy}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    times, work = [], {}
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "part":
            slow_one = event["worker"].endswith("1")
            share = event["seconds"] / (3 if slow_one else 1)
            work[event["round"]] = work.get(event["round"], 0) + share
        if event["event"] == "round" and event["round"] > WARM:
            bound = work[event["round"]] / (1 + 1 / 3)
            times.append((1e3 * event["seconds"], event["seconds"] / bound))
    return times, json.loads((folder / "summary.json").read_text())["model_digest"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--stretch", type=float, default=20)
    parser.add_argument("--macaw", default=str(ROOT / "build/bin/macaw"))
    parser.add_argument("--keep", help="a folder for the runs; default: they are removed")
    options = parser.parse_args()
    rounds, digests = {policy: [] for policy in POLICIES}, set()
    with tempfile.TemporaryDirectory() as scratch:
        base = pathlib.Path(options.keep or scratch)
        for repetition in range(options.repetitions):
            for policy in POLICIES:
                times, digest = simulate(policy, options, base / f"{policy}-{repetition}")
                rounds[policy] += times
                digests.add(digest)
    print(f"{options.repetitions} x {options.rounds} rounds each, interleaved; stretch {options.stretch:g}")
    best = statistics.median(time for time, _ in rounds["planned_stealing"])
    for policy, times in rounds.items():
        spent = sorted(time for time, _ in times)
        ratios = sorted(ratio for _, ratio in times)
        print(
            f"{policy:18} median {statistics.median(spent):8.1f} ms a round, mean "
            f"{statistics.mean(spent):8.1f}, x {statistics.median(spent) / best:.2f}; of the bound: "
            f"median {statistics.median(ratios):.3f}, 95th percentile "
            f"{ratios[int(0.95 * len(ratios))]:.3f}"
        )
    print("all models are the same" if len(digests) == 1 else f"MODELS DIFFER: {digests}")


if __name__ == "__main__":
    main()
