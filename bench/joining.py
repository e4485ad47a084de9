#!/usr/bin/env python3
"""Workers that come and go: how busy the slots stay, and that the result does not notice.

    ./dev bench joining [--rounds N]

Softmax regression, 1000 of 5000 Synthetic(1,1) clients a round, workers of one slot. One begins; a second joins after a
quarter of the rounds, a third after half of them, and after three quarters the first is killed (SIGKILL). Nobody tells the
server: it finds out when nothing has been heard for a lease's time, one second here. Beside it the same run with one
worker, undisturbed: both must end with the same model. Busy is what the parts report of their clients' time. Needs what
./dev build makes; half a minute.
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTINGS = ("data.synthetic.clients=5000", "data.resident=true", "cohort.size=1000", "evaluation.every=0",
            "run.checkpoint_every=1000000", "server.lease_timeout=1", "workers.processes=1", "workers.slots=1")


def effective_config(told, folder, rounds):
    """The whole configuration as a file, as `macaw simulate` writes it."""
    made = folder / "made"
    command = [told.bin / "macaw", "simulate", ROOT / "examples/synthetic.toml", "--rounds", "1", "--quiet", "--out", made]
    subprocess.run(command + [part for s in SETTINGS for part in ("--set", s)], check=True, stdout=subprocess.DEVNULL)
    text = re.sub(r"(?m)^rounds = 1$", f"rounds = {rounds}", (made / "config.toml").read_text(), count=1)
    path = folder / "config.toml"
    path.write_text(text)
    return path


def rounds_done(run):
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def disturbed(told, folder, config):
    """Runs it with workers that come and go; the rounds after which each thing happened."""
    run, address = folder / "disturbed", f"unix:{folder}/fleet"
    log = open(folder / "log", "w")
    start = lambda *command: subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)
    server = start(told.bin / "macaw-server", "--config", config, "--run-dir", run, "--listen", address)
    worker = lambda name: start(told.bin / "macaw-worker", "--config", config, "--server", address, "--name", name)
    workers, happened = [worker("first")], []
    todo = [(told.rounds // 4, "second joins", lambda: workers.append(worker("second"))),
            (told.rounds // 2, "third joins", lambda: workers.append(worker("third"))),
            (told.rounds * 3 // 4, "first is killed", lambda: workers[0].send_signal(signal.SIGKILL))]
    try:
        while server.poll() is None:
            if todo and rounds_done(run) >= todo[0][0]:
                _, what, act = todo.pop(0)
                act()
                happened.append((rounds_done(run), what))
            time.sleep(0.005)
        if server.returncode != 0:
            sys.exit((folder / "log").read_text())
        for one in workers:
            one.wait(timeout=20)
    finally:
        for one in (server, *workers):
            if one.poll() is None:
                one.kill()
    return run, happened


def digest(run):
    return json.loads((run / "summary.json").read_text())["model_digest"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    told = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="macaw-joining-"))
    try:
        config = effective_config(told, folder, told.rounds)
        alone = folder / "alone"
        subprocess.run([told.bin / "macaw", "simulate", config, "--quiet", "--out", alone], check=True,
                       stdout=subprocess.DEVNULL)
        run, happened = disturbed(told, folder, config)
        events = [json.loads(line) for line in open(run / "events.jsonl")]
        ends = [0.0] + [e["t"] for e in events if e["event"] == "round"]
        borders = [0, *(after for after, _ in happened), told.rounds]
        live = [1, 2, 3, 2]
        for first, last, slots, what in zip(borders, borders[1:], live, ["one worker", *(w for _, w in happened)]):
            first = max(first, 1)  # the first round waits for the worker to start
            busy = sum(e["seconds"] for e in events if e["event"] == "part" and first < e["round"] <= last)
            took = [b - a for a, b in zip(ends[first:last], ends[first + 1:last + 1])]
            print(f"rounds {first + 1:4d} to {last:4d}, {what:15s}: {1e3 * statistics.median(took):6.1f} ms a round (median), "
                  f"longest {1e3 * max(took):6.1f}; {slots} slots busy {100 * busy / (slots * sum(took)):5.1f} %, without the "
                  f"longest round {100 * busy / (slots * (sum(took) - max(took))):5.1f} %")
        same = digest(alone) == digest(run)
        print(f"model {digest(run)[:16]}…, {'the same as' if same else 'NOT THAT OF'} the undisturbed run's")
        return 0 if same else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
