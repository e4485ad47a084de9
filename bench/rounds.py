"""How full slots are and what a round costs besides training, by a run's timeline.

    ./dev bench rounds [--rounds N] [--repetitions N] [--old MACAW] [JOB…]

Jobs: lenet5 (examples/mnist10k.toml, two slots), lenet5-2x1 (two processes of a slot), simple_cnn (1.2 million weights) and
resnet18 (11 million, LibTorch), on the same images. With --old, the programs of another build take turns
with this one's, and the last table has the ratios. Prints the milliseconds of the median round, as `macaw timeline` cuts
it, and medians over the repetitions; nothing else should run.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = ROOT / "examples/mnist10k.toml"
LARGE = ["--set", "cohort.size=8", "--set", "local.steps=2", "--set", "local.batch_size=20"]
JOBS = {
    "lenet5": ["--slots", "2"],
    "lenet5-2x1": ["--processes", "2", "--slots", "1"],
    "simple_cnn": ["--slots", "2", "--set", "model.name=simple_cnn", *LARGE],
    "resnet18": ["--slots", "2", "--set", "model.name=resnet18_gn", *LARGE],
}
PARTS = ["prepare", "hand out", "train", "commit", "apply"]


def parts_of(timeline: list) -> list:
    """Of each round: the milliseconds of its parts."""
    rounds = {}
    for event in timeline:
        if event["ph"] != "X":
            continue
        name, begin = event["name"].split()[0], event["ts"]
        rounds.setdefault(event["args"]["round"], {}).setdefault(name, []).append((begin, begin + event["dur"]))
    parts = []
    for spans in rounds.values():
        (prepare, prepared), (apply, applied) = spans["prepare"][0], spans["apply"][0]
        first, last = min(begin for begin, _ in spans["client"]), max(end for _, end in spans["client"])
        marks = [prepare, prepared, first, last, apply, applied]
        parts.append([(end - begin) / 1e3 for begin, end in zip(marks, marks[1:])])
    return parts


def measure(macaw: pathlib.Path, job: str, rounds: int) -> dict:
    """One run: milliseconds of each part of a round, and the percentage of time that slots are busy."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        rounds = max(3, rounds // 5) if job == "resnet18" else rounds
        command = [macaw, "simulate", SMALL, *JOBS[job], "--rounds", rounds, "--set", "evaluation.every=0"]
        command += ["--out", out, "--quiet"]
        subprocess.run([str(word) for word in command], check=True, capture_output=True, cwd=ROOT)
        told = subprocess.run([str(macaw), "timeline", str(out)], check=True, capture_output=True, text=True).stdout
        parts = parts_of(json.loads((out / "timeline.json").read_text()))
        figures = {name: statistics.median(times) for name, times in zip(PARTS, zip(*parts))}
        figures["besides training"] = statistics.median(sum(times) - times[2] for times in parts)
        busy = re.search(r"busy ([\d.]+) % of the time, ([\d.]+) % while", told)
        figures["busy"], figures["busy while training"] = float(busy[1]), float(busy[2])
        figures["digest"] = json.loads((out / "summary.json").read_text())["model_digest"]
        return figures


def table(results: dict, columns: list) -> None:
    print("| job | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, figures in results.items():
        print(f"| {name} | " + " | ".join(f"{figures[column]:.2f}" for column in columns) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--macaw", type=pathlib.Path, default=ROOT / "build/bin/macaw")
    parser.add_argument("--old", type=pathlib.Path, help="the `macaw` of another build")
    told = parser.parse_args()
    if unknown := set(told.jobs) - set(JOBS):
        sys.exit(f"rounds: no job {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    programs = {"new": told.macaw} | ({"old": told.old} if told.old else {})
    runs = {(job, who): [] for job in told.jobs or JOBS for who in programs}
    for turn in range(told.repetitions):
        for (job, who), figures in sorted(runs.items(), reverse=turn % 2 == 1):
            figures.append(measure(programs[who], job, told.rounds))
    columns = [*PARTS, "besides training", "busy", "busy while training"]
    medians = {
        key: {column: statistics.median(run[column] for run in figures) for column in columns}
        for key, figures in runs.items()
    }
    print("milliseconds of the median round; percent of the time that slots are busy\n")
    table({f"{job} ({who})" if told.old else job: medians[job, who] for job, who in sorted(runs)}, columns)
    if not told.old:
        return
    print("\nnew ÷ old\n")
    ratios = {}
    for job in sorted({job for job, _ in runs}):
        new, old = medians[job, "new"], medians[job, "old"]
        ratios[job] = {column: new[column] / old[column] for column in columns}
        same = {run["digest"] for who in programs for run in runs[job, who]}
        if len(same) > 1:
            print(f"{job}: the models differ", file=sys.stderr)
    table(ratios, columns)


if __name__ == "__main__":
    main()
