#!/usr/bin/env python3
"""How speed and memory grow: tables for bench/results/scaling.md.

    ./dev bench scaling [cohort] [population] [slots] [model] [rounds] [--quick] [--out FILE]

cohort      clients a round, 10 to 10,000: a round's time should grow with them and a client's not
population  1e3 to 1e7 clients, 100 a round, generated on demand: both should stay the same
slots       1, 2 and 4 on this machine's cores
model       1e3 to 1e8 parameters: folding and moving them, beside memcpy
rounds      2,000 rounds of the logistic job: memory every 200 rounds should stay the same

Every figure is the median over the rounds of one run (its first tenth left out); run it on a quiet
machine. Needs nothing but Python and what ./dev build makes.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "examples" / "synthetic.toml"
PARTS = ("cohort", "population", "slots", "model", "rounds")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rows")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/scaling.md")
    told = parser.parse_args()
    if unknown := set(told.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}")
    told.parts = told.parts or list(PARTS)
    return told


def rows(path: pathlib.Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


def processes_below(parent: int) -> list:
    found, ahead = [], [parent]
    while ahead:
        process = ahead.pop()
        for children in pathlib.Path("/proc").glob(f"{process}/task/*/children"):
            try:
                ahead += map(int, children.read_text().split())
            except OSError:
                continue
        found.append(process)
    return found


def memory(process: int) -> dict:
    """Pss and Pss_Anon in MiB; zeros for a process that has just ended."""
    try:
        lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        lines = []
    values = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return {key: int(values.get(key, 0)) / 1024 for key in ("Pss", "Pss_Anon")}


class Run:
    """One `macaw simulate`, finished; `samples` are (rounds done, MiB of all its processes)."""

    def __init__(self, told, rounds: int, *settings: str, sample_every: int = 0):
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="macaw-scaling-"))
        out = scratch / "run"
        changes = ["evaluation.every=0", "run.checkpoint_every=1000000", *settings]
        command = [told.bin / "macaw", "simulate", CONFIG, "--out", out, "--rounds", str(rounds)]
        command += ["--quiet"] + [part for change in changes for part in ("--set", change)]
        self.samples = []
        try:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while process.poll() is None:
                if sample_every:
                    self._sample(process.pid, out / "metrics.jsonl", sample_every)
                time.sleep(0.01 if sample_every else 0.05)
            if process.returncode != 0:
                sys.exit(f"scaling: {' '.join(map(str, command))} failed ({process.returncode})")
            self._read(out)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _sample(self, process: int, metrics: pathlib.Path, every: int):
        try:
            done = metrics.read_bytes().count(b"\n")
        except OSError:
            return
        if done < every * (len(self.samples) + 1):
            return
        all_of_them = [memory(p) for p in processes_below(process)]
        self.samples.append((done, sum(m["Pss"] for m in all_of_them)))

    def _read(self, out: pathlib.Path):
        ends = [row["t"] for row in rows(out / "events.jsonl") if row["event"] == "round"]
        metrics = rows(out / "metrics.jsonl")
        summary = json.loads((out / "summary.json").read_text())
        skip = max(1, len(ends) // 10)
        times = [b - a for a, b in zip(ends[skip - 1 :], ends[skip:])]
        self.round_s = statistics.median(times)
        self.clients = statistics.mean(row["clients"] for row in metrics[skip:])
        self.steps_per_s = sum(row["steps"] for row in metrics[skip:]) / (ends[-1] - ends[skip - 1])
        self.server_mib = summary["peak_memory_bytes"]["server"] / 2**20
        self.worker_mib = sum(summary["peak_memory_bytes"]["workers"]) / 2**20


def table(heads: list, lines: list) -> str:
    text = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines]) + "\n"


def measured(run: Run) -> list:
    return [
        f"{1e3 * run.round_s:.2f}",
        f"{1 / run.round_s:.1f}",
        f"{1e6 * run.round_s / run.clients:.1f}",
        f"{run.steps_per_s:,.0f}",
        f"{run.server_mib:.0f}",
        f"{run.worker_mib:.0f}",
    ]


HEADS = ["ms a round", "rounds/s", "µs a client", "steps/s", "server MiB", "worker MiB"]
SMALL = ("data.synthetic.max_size=110", "data.resident=true")  # about 80 rows a client


def cohort(told) -> str:
    lines = []
    for size in (10, 100, 1000) if told.quick else (10, 30, 100, 300, 1000, 3000, 10000):
        count = max(20, min(1000, 100000 // size))
        told_of = ("data.synthetic.clients=20000", f"cohort.size={size}", *SMALL)
        lines.append([f"{size:,}", *measured(Run(told, count, *told_of))])
    return "20,000 clients of 50 to 110 rows, resident; 2 slots.\n\n" + table(
        ["clients a round", *HEADS], lines
    )


def population(told) -> str:
    lines = []
    for count in (10**3, 10**5) if told.quick else (10**3, 10**4, 10**5, 10**6, 10**7):
        told_of = (f"data.synthetic.clients={count}", "data.resident=false")
        lines.append([f"{count:,}", *measured(Run(told, 100, *told_of))])
    return (
        "100 clients a round, whose rows are made when they are needed (most of the time).\n\n"
        + table(["population", *HEADS], lines)
    )


def slots(told) -> str:
    lines = []
    for count in (1, 2, 4):
        told_of = ("data.resident=true", f"workers.slots={count}")
        lines.append([str(count), *measured(Run(told, 100 if told.quick else 400, *told_of))])
    return f"The logistic job, 100 clients a round, {os.cpu_count()} cores.\n\n" + table(
        ["slots", *HEADS], lines
    )


def model(told) -> str:
    text = []
    largest = "1e6" if told.quick else "1e8"
    for line in (["bench_fold"], ["bench_transfer"], ["bench_transfer", "send"]):
        command = [line[0], largest, *line[1:]]
        done = subprocess.run(
            [told.bin / command[0], *command[1:]], capture_output=True, text=True, check=True
        )
        text.append(f"`{' '.join(command)}`:\n\n```\n{done.stdout.rstrip()}\n```\n")
    return "\n".join(text)


def flat(told) -> str:
    count = 400 if told.quick else 2000
    run = Run(told, count, "data.resident=true", sample_every=count // 10)
    first, last = run.samples[0][1], run.samples[-1][1]
    return (
        f"{count:,} rounds of the logistic job, PSS of all processes together. "
        f"Last against first: {last - first:+.1f} MiB.\n\n"
        + table(
            ["rounds done", "MiB"], [[f"{done:,}", f"{mib:.1f}"] for done, mib in run.samples]
        )
    )


SECTIONS = {
    "cohort": ("Clients a round", cohort),
    "population": ("Population", population),
    "slots": ("Slots", slots),
    "model": ("Model size: folding and moving", model),
    "rounds": ("Rounds: memory", flat),
}


def main():
    told = arguments()
    processor = next(
        line.split(":", 1)[1].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "CPU implementer"))
    )
    text = [
        "# Scaling",
        f"`./dev bench scaling {' '.join(told.parts)}`, {time.strftime('%Y-%m-%d %H:%M')}, "
        f"{os.cpu_count()} cores of {processor}, {platform.system()} {platform.release()}; "
        f"load at the start {os.getloadavg()[0]:.1f}.\n",
    ]
    for part in told.parts:
        title, section = SECTIONS[part]
        body = section(told)
        print(f"## {title}\n\n{body}", flush=True)
        text.append(f"## {title}\n\n{body}")
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text("\n".join(text))
    print(f"written to {told.out}")


if __name__ == "__main__":
    main()
