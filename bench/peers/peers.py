#!/usr/bin/env python3
"""Macaw beside other federated simulators: the same arrays, cohorts and settings, interleaved.

Makes the peers' environments under .deps/peers when they are missing, checks that everybody
trains the same model, and writes results.json, table.md and table.svg to --out. A peer that
cannot be had or fails is left out with the reason. Exits 1 when losses do not agree. What is
compared and how: bench/README.md.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import macaw
import measure
import report
from environments import Environments, Unavailable
from jobs import JOBS, LR
from roster import SYSTEMS, chosen
from sweep import CONTROLLED, Left, Sweep

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOLERANCE = 1e-3  # of the mean loss, against Macaw's model after equally many rounds


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = f"jobs ({', '.join(JOBS)}) and systems ({', '.join(SYSTEMS)}); none: the usual ones"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument(
        "--repetitions", type=int, help="interleaved sweeps, as far as the time allows (default: 3)"
    )
    parser.add_argument(
        "--minutes", type=float, help="time for all runs, environments apart (default: 19)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="1 repetition, 2.8 minutes, few rounds, quick starters"
    )
    parser.add_argument(
        "--checked", type=int, help="losses are compared after round 1 and this (default: 20)"
    )
    parser.add_argument("--backend", default="auto", help="Macaw's workers.backend (default: auto)")
    parser.add_argument(
        "--macaw", type=pathlib.Path, default=ROOT / "build/bin/macaw", help="the program"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "runs/peers", help="folder of the results"
    )
    parser.add_argument(
        "--deps", type=pathlib.Path, default=ROOT / ".deps/peers", help="environments and arrays"
    )
    told = parser.parse_args()
    usual = (1, 2.8, 4) if told.quick else (3, 19.0, 20)
    told.repetitions = told.repetitions or usual[0]
    told.minutes = told.minutes or usual[1]
    told.checked = told.checked or usual[2]
    jobs = [JOBS[name] for name in JOBS if name in told.names] or [
        job for job in JOBS.values() if job.usual
    ]
    try:
        systems = chosen([name for name in told.names if name not in JOBS], told.quick)
    except ValueError as error:
        parser.error(str(error))
    return told, jobs, systems


def arrays_folder(deps: pathlib.Path) -> pathlib.Path:
    """Named after what makes the arrays, so that a change of it makes new ones."""
    texts = [(HERE / name).read_bytes() for name in ("inputs.py", "jobs.py")]
    return deps / f"data-{hashlib.sha256(b''.join(texts)).hexdigest()[:12]}"


def prepare(environments: Environments, systems: list, inputs: pathlib.Path) -> dict:
    """Environments and arrays; the versions of what is installed, by system."""
    versions = {}
    for system in systems:
        if system.is_macaw:
            continue
        try:
            environments.python(system.environment)
            versions[system.name] = environments.versions(system.environment)
        except Unavailable as error:
            say(f"without {system.name}: {error}")
    command = [environments.python("numpy"), HERE / "inputs.py", inputs]
    subprocess.run(command, check=True, env={**os.environ, **CONTROLLED})
    return versions


def compare(environments: Environments, sweep: Sweep, job, reference, folder: pathlib.Path) -> dict:
    """By rounds done and system: loss, difference to Macaw's, distance of the weights, verdict."""
    models = {
        count: {"macaw": str(reference.models[count])}
        | {name: str(path) for name, path in files.items()}
        for count, files in sweep.models.get(job.name, {}).items()
    }
    if not models:
        return {}
    spec = folder / f"{job.name}-compare.json"
    spec.write_text(json.dumps(sweep.task(job, reference.cohorts[:1]) | {"models": models}))
    command = [environments.python("torch"), HERE / "compare.py", spec]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **CONTROLLED})
    if done.returncode != 0:
        raise Left(f"the models could not be compared: {done.stderr.strip().splitlines()[-1]}")
    checks = json.loads(done.stdout)
    for rows in checks.values():
        for row in rows.values():
            row["difference"] = abs(row["loss"] - rows["macaw"]["loss"])
            row["agrees"] = row["difference"] <= TOLERANCE  # false for NaN, too
    return checks


def machine() -> dict:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    name = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release(),
    }


def one_run(sweep: Sweep, job, system, reference, repetition: int, cell: dict) -> None:
    """Adds a run, or why there is none, to the system's cell of the table."""
    where = f"{repetition} {job.name} {system.name}"
    if cell["failures"] and not cell["runs"]:
        return  # it does not work: once is enough
    try:
        run = sweep.repeat(job, system, reference, repetition)
    except Left as reason:
        cell["failures"].append(str(reason))
        say(f"{where}: left out: {reason}")
        return
    cell["runs"].append(dataclasses.asdict(run))
    say(
        f"{where}: {run.rounds_per_s:.4g} rounds/s, {run.steps_per_s:.5g} steps/s, "
        f"start {run.start_s:.1f} s, load {run.load:.1f}"
    )


def run_all(told, jobs, systems, environments, inputs) -> dict:
    """The sweeps: every repetition goes through all jobs, every job through all systems."""
    folder = told.out / "work"
    folder.mkdir(parents=True, exist_ok=True)
    program = macaw.Program(told.macaw, told.backend)
    seconds = 2.0 if told.quick else 4.0  # of Macaw's timed rounds
    sweep = Sweep(program, environments, inputs, folder, told.checked, seconds, told.minutes)
    results = {job.name: {"title": job.title, "systems": {}} for job in jobs}
    references = {}
    for repetition in range(1, told.repetitions + 1):
        for job in jobs:
            here = [system for system in systems if job.name in system.jobs]
            if job.name not in references:
                rounds = [system.rounds(job) for system in here if not system.is_macaw]
                references[job.name] = sweep.reference(job, max([told.checked, *rounds]))
            for system in here:
                empty = {"framework": system.framework, "runs": [], "failures": []}
                cell = results[job.name]["systems"].setdefault(system.name, empty)
                one_run(sweep, job, system, references[job.name], repetition, cell)
    for job in jobs:
        result = results[job.name]
        result["profile"] = macaw.summary(folder / f"{job.name}-reference-1")["profile"]
        result["same_bytes"] = len(sweep.digests.get(job.name, ())) == 1
        try:
            result["checks"] = compare(environments, sweep, job, references[job.name], folder)
        except (Left, Unavailable) as reason:
            result["checks"], result["unchecked"] = {}, str(reason)
    return results


def main() -> None:
    told, jobs, systems = arguments()
    measure.adopt_orphans()
    deps = told.deps.resolve()
    environments, inputs = Environments(deps, say), arrays_folder(deps)
    told.out, told.macaw = told.out.resolve(), told.macaw.resolve()
    try:
        versions = prepare(environments, systems, inputs)
        began = time.time()
        results = {
            "date": time.strftime("%Y-%m-%d %H:%M"),
            "machine": machine(),
            "versions": versions,
            "settings": {
                "lr": LR,
                "checked": told.checked,
                "tolerance": TOLERANCE,
                "backend": told.backend,
            },
            "jobs": run_all(told, jobs, systems, environments, inputs),
        }
    except (Left, Unavailable, subprocess.CalledProcessError) as error:
        sys.exit(f"peers: Macaw's own runs or the arrays failed: {error}")
    results["seconds"] = round(time.time() - began)
    (told.out / "results.json").write_text(json.dumps(results, indent=1))
    agreed = report.write(results, told.out)
    say(f"results.json, table.md and table.svg are in {told.out}")
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
