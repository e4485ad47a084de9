#!/usr/bin/env python3
"""What client states cost a run, and what a million of them do to it.

    bench/state_rounds.py cost      lenet5, 100 clients a round: SCAFFOLD with its states in memory, on disk (warm; with
                                    the page cache dropped all the time and a tier of 1 MB), in Redis, beside FedAvg
    bench/state_rounds.py million   SCAFFOLD, logistic (610 parameters), 1,000,000 clients, 1000 a round, on disk, until
                                    every client has written once; then `macaw state verify`
    bench/state_rounds.py large     SCAFFOLD, lenet5 (247 kB a state), 10,000 clients, 500 a round, on disk

Needs build/bin (./dev build) and Python 3.11. The variants of `cost` run turn by turn, so that other load hits all of
them. A round counts from the close of one to the close of the next; the first five are left out.
"""
import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 5  # rounds


def children_of(pid):
    """The processes of a run: itself and its children."""
    pids = [pid]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()[1]) == pid:
                pids.append(int(entry))
        except (OSError, ValueError):
            pass  # it has just ended
    return pids


def memory(pids):
    """Proportional set size and the part of it that no file backs, in bytes."""
    pss = own = 0
    for pid in pids:
        try:
            for line in open(f"/proc/{pid}/smaps_rollup"):
                key, _, rest = line.partition(":")
                if key == "Pss":
                    pss += 1024 * int(rest.split()[0])
                elif key == "Pss_Anon":
                    own += 1024 * int(rest.split()[0])
        except (OSError, ValueError):
            pass
    return pss, own


def drop_page_cache(folder, stop):
    """Keeps the pages of state files out of the page cache, as far as they are written."""
    while not stop.wait(0.02):
        for path in folder.glob("*.states"):
            try:
                fd = os.open(path, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
            except OSError:
                pass


def simulate(options, out, config, settings, cold=False, watch=False):
    """One run: times of its rounds, and its peak memory if watched."""
    shutil.rmtree(out, ignore_errors=True)
    command = [options.macaw, "simulate", str(config), "--quiet", "--out", str(out)]
    for setting in settings + options.set:
        command += ["--set", setting]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stop = threading.Event()
    if cold:
        threading.Thread(target=drop_page_cache, args=(out / "state", stop), daemon=True).start()
    pss = own = 0
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if watch:
            now = memory(children_of(process.pid))
            pss, own = max(pss, now[0]), max(own, now[1])
        time.sleep(0.25)
    stop.set()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
    ends = [e["t"] for e in map(json.loads, open(out / "events.jsonl")) if e["event"] == "round"]
    return {"cpu": used.ru_utime + used.ru_stime,  # of all its processes
            "ends": ends, "seconds": [b - a for a, b in zip(ends, ends[1:])], "pss": pss, "own": own,
            "summary": json.load(open(out / "summary.json"))}


def load():
    return f"load {' '.join(open('/proc/loadavg').read().split()[:3])}, {os.cpu_count()} cores"


def write_images(folder, count):
    """IDX files with noise for pixels: what a step costs does not depend on the picture."""
    folder.mkdir()
    for name, rows in (("train", count), ("t10k", 1000)):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, rows, 28, 28) + os.urandom(rows * 28 * 28))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, rows) + bytes(i % 10 for i in range(rows)))


def lenet5(scratch, rounds, clients, images, cohort, epochs):
    """A configuration in which each client has so many images."""
    write_images(scratch / "images", clients * images)
    config = scratch / "lenet5.toml"
    config.write_text(f"""[run]
name = "lenet5"
rounds = {rounds}
seed = 1
[data]
source = "idx"
path = "{scratch / 'images'}"
[partition]
scheme = "iid"
clients = {clients}
[model]
name = "lenet5"
[cohort]
size = {cohort}
[local]
epochs = {epochs}
batch_size = 20
lr = 0.01
[evaluation]
every = 0
""")
    return config


def cost(options, scratch):
    clients, images = options.clients or 1000, 60
    config = lenet5(scratch, options.rounds, clients, images, 100, options.epochs)
    scaffold = ["algorithm.name=scaffold"]
    variants = {
        "fedavg (stateless)": (["algorithm.name=fedavg"], False),
        "scaffold, memory": (scaffold + ["state.store=memory"], False),
        "scaffold, disk": (scaffold, False),
        "scaffold, disk, tier of 1 MB": (scaffold + ["state.cache_mb=1"], False),
        "scaffold, disk, cold, tier of 1 MB": (scaffold + ["state.cache_mb=1"], True),
        "scaffold, redis (spawn)": (scaffold + ["state.store=redis", "state.url=spawn"], False),
        "scaffold, redis, tier of 1 MB": (
            scaffold + ["state.store=redis", "state.url=spawn", "state.cache_mb=1"], False),
    }
    times = {name: [] for name in variants}
    print(f"lenet5, {options.epochs} local epochs of {images} images in batches of 20, 100 of {clients} clients a round, "
          f"{options.rounds} rounds, {options.repeats} times; {load()}")
    cpu = {name: [] for name in variants}
    for _ in range(options.repeats):
        for name, (settings, cold) in variants.items():
            run = simulate(options, scratch / "run", config,
                           settings + ["workers.processes=1", f"workers.slots={options.slots}"], cold)
            times[name].append(run["seconds"][WARM_UP:])
            cpu[name].append(run["cpu"])
    for what, of in (("median round", statistics.median), ("shortest round", min)):
        best = {name: min(of(turn) for turn in turns) for name, turns in times.items()}
        stateless, in_memory = best["fedavg (stateless)"], best["scaffold, memory"]
        print(f"{what + ' of the best turn':38}{'ms':>10}{'/ fedavg':>10}{'/ memory':>10}   turns")
        for name, turns in times.items():
            print(f"{name:38}{1e3 * best[name]:10.1f}{best[name] / stateless:10.3f}{best[name] / in_memory:10.3f}   "
                  + " ".join(f"{1e3 * of(turn):.1f}" for turn in turns))
    # Other load makes rounds longer and hardly takes more of a processor; starting is in it.
    least = {name: min(seconds) for name, seconds in cpu.items()}
    print(f"{'processor time of the whole run':38}{'s':>10}{'/ fedavg':>10}{'/ memory':>10}")
    for name, seconds in least.items():
        print(f"{name:38}{seconds:10.2f}{seconds / least['fedavg (stateless)']:10.3f}"
              f"{seconds / least['scaffold, memory']:10.3f}")


def rate(ends, first, last):
    """Rounds a second over a stretch, by its median round."""
    return 1 / statistics.median(b - a for a, b in zip(ends[first:last], ends[first + 1:last + 1]))


def shortest(ends, first):
    return min(b - a for a, b in zip(ends[first:first + 50], ends[first + 1:first + 51]))


def report_scale(options, scratch, config, settings):
    begin = time.monotonic()
    run = simulate(options, scratch / "run", config, settings, watch=True)
    seconds, ends = time.monotonic() - begin, run["ends"]
    early, late = rate(ends, 10, 60), rate(ends, len(ends) - 51, len(ends) - 1)
    over_early = 50 / (ends[60] - ends[10])
    over_late = 50 / (ends[-1] - ends[-51])
    print(f"{len(ends)} rounds in {seconds:.0f} s; {load()}")
    print(f"the shortest of 50 rounds: {1e3 * shortest(ends, 10):.0f} ms after round 10, "
          f"{1e3 * shortest(ends, len(ends) - 51):.0f} ms at the end")
    print(f"rounds/s after round 10: {early:.2f} (with checkpoints {over_early:.2f}); at the end: {late:.2f} "
          f"({over_late:.2f}); ratio {late / early:.3f} ({over_late / over_early:.3f})")
    print(f"peak memory of all processes: PSS {run['pss'] / 1e6:.0f} MB, of which {run['own'] / 1e6:.0f} MB no file backs; "
          f"server {run['summary']['peak_memory_bytes']['server'] / 1e6:.0f} MB")
    begin = time.monotonic()
    for command in ("ls", "verify"):
        print(f"$ macaw state {command}")
        print(subprocess.run([options.macaw, "state", command, str(scratch / "run")], check=True, text=True,
                             stdout=subprocess.PIPE).stdout, end="")
    print(f"read and verified in {time.monotonic() - begin:.0f} s; state_digest of the run "
          f"{run['summary']['state_digest']}")


def million(options, scratch):
    clients = options.clients or 1_000_000
    rounds = options.rounds if options.rounds_given else clients // 1000
    report_scale(options, scratch, ROOT / "examples/synthetic.toml", [
        f"data.synthetic.clients={clients}", "algorithm.name=scaffold", "cohort.size=1000", "cohort.sampling=sweep",
        f"run.rounds={rounds}", "evaluation.every=0", "workers.processes=1", f"workers.slots={options.slots}"])


def large(options, scratch):
    config = lenet5(scratch, options.rounds, options.clients or 10_000, 10, 500, 1)
    report_scale(options, scratch, config, ["algorithm.name=scaffold", "cohort.sampling=sweep", "workers.processes=1",
                                            f"workers.slots={options.slots}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "million", "large"])
    parser.add_argument("--macaw", default=os.environ.get("MACAW", str(ROOT / "build/bin/macaw")))
    parser.add_argument("--scratch", help="a folder with room (million: 4 GB, large: 6 GB)")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run")
    options = parser.parse_args()
    options.rounds_given = options.rounds is not None
    options.rounds = options.rounds or {"cost": 40, "million": 1000, "large": 100}[options.what]
    if not os.access(options.macaw, os.X_OK):
        sys.exit(f"{options.macaw} is missing; ./dev build makes it")
    scratch = Path(tempfile.mkdtemp(prefix="macaw-state-", dir=options.scratch))
    try:
        {"cost": cost, "million": million, "large": large}[options.what](options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
