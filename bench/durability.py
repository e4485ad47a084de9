#!/usr/bin/env python3
"""What it costs that accepted commits outlive the server: rounds with server.durability "commit" and "checkpoint" in turn.

    ./dev bench durability [--rounds N] [--pairs N]

Softmax regression on Synthetic(1,1), 100 clients a round, two processes of one slot, no evaluation: rounds so short that
the price shows. Beside it what the disk takes for as many bytes as a round's parts, written and fdatasync'ed, twice: once
for the parts, once for the records. Both kinds of runs must end with the same model. Needs what ./dev build makes; a
minute.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTINGS = ("evaluation.every=0", "workers.processes=2", "workers.slots=1", "run.checkpoint_every=100000")


def run(told, folder, durability):
    out = folder / durability
    shutil.rmtree(out, ignore_errors=True)
    command = [told.bin / "macaw", "simulate", ROOT / "examples/synthetic.toml", "--rounds", str(told.rounds), "--quiet",
               "--out", out, "--set", f"server.durability={durability}"]
    subprocess.run(command + [part for s in SETTINGS for part in ("--set", s)], check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((out / "summary.json").read_text())
    return 1000 / summary["rounds_per_second"], summary["model_digest"], summary["parameters"]


def disk(folder, size, times=200):
    """Milliseconds for two writes that are waited for, of `size` bytes and of 2 kB."""
    took = []
    parts, records = (os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("parts", "records"))
    for _ in range(times):
        began = time.perf_counter()
        os.write(parts, b"x" * size)
        os.fdatasync(parts)
        os.write(records, b"x" * 2000)
        os.fdatasync(records)
        took.append(1000 * (time.perf_counter() - began))
    os.close(parts), os.close(records)
    return statistics.median(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk to measure (default: the temporary folder)")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="macaw_bench_", dir=told.folder) as name:
        folder = pathlib.Path(name)
        times = {"checkpoint": [], "commit": []}
        digests = set()
        for _ in range(told.pairs):
            for durability in times:
                milliseconds, digest, parameters = run(told, folder, durability)
                times[durability].append(milliseconds)
                digests.add(digest)
        if len(digests) != 1:
            sys.exit("the runs end with different models")
        raw = disk(folder, 2 * 8 * parameters)
        extra = [commit - checkpoint for checkpoint, commit in zip(times["checkpoint"], times["commit"])]
        for durability, values in times.items():
            print(f"{durability:<11} {statistics.median(values):7.3f} ms a round (median of {told.pairs})")
        print(f"difference  {statistics.median(extra):7.3f} ms a round ({min(extra):.3f} to {max(extra):.3f})")
        print(f"raw disk    {raw:7.3f} ms for two writes with fdatasync, {2 * 8 * parameters} and 2000 bytes")


if __name__ == "__main__":
    main()
