"""Runs one command and watches it from outside: wall time, and the memory of its process tree."""

import ctypes
import dataclasses
import glob
import os
import pathlib
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36


@dataclasses.dataclass(frozen=True)
class Measured:
    """`failure` is empty when the command ended well; otherwise it says why."""

    started: float  # wall clock, seconds
    wall_s: float
    peak_pss: int  # bytes, the largest sum over the tree that was seen
    load: float  # runnable processes of the machine when it started (1-minute load average)
    failure: str


def adopt_orphans() -> None:
    """Processes whose parent dies become our children, so that a tree stays whole (Ray's)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: list, environment: dict, log: pathlib.Path, limit_s: float) -> Measured:
    """Runs to the end, or for `limit_s`; either way nothing that it started is left behind."""
    load, started, peak, stopped = os.getloadavg()[0], time.time(), 0, False
    with log.open("w") as output:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=log.parent,
        )
        while True:
            peak = max(peak, sum(map(_pss, _descendants())))
            try:
                # Looking costs the watched some time, so it gets rarer once the start is over.
                child.wait(timeout=0.25 if time.time() - started < 5 else 1.0)
                break
            except subprocess.TimeoutExpired:
                if time.time() - started > limit_s:
                    stopped = True
                    break
    wall = time.time() - started
    _end(child)
    failure = ""
    if stopped:
        failure = f"stopped after {limit_s:.0f} s"
    elif child.returncode != 0:
        failure = f"exit {child.returncode}: {_last_words(log)}"
    return Measured(started, wall, peak, load, failure)


def _descendants() -> list:
    """Everything below this process."""
    found, ahead = [], [os.getpid()]
    while ahead:
        for path in glob.glob(f"/proc/{ahead.pop()}/task/*/children"):
            try:
                children = list(map(int, pathlib.Path(path).read_text().split()))
            except OSError:
                continue
            found += children
            ahead += children
    return found


def _pss(process: int) -> int:
    try:
        text = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0  # it has just ended
    return next(
        (int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0
    )


def _end(child: subprocess.Popen) -> None:
    """Ends what is left of the tree: asked first, forced two seconds later."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in _descendants():
            try:
                os.kill(process, sign)
            except ProcessLookupError:
                pass
        until = time.time() + 2
        while time.time() < until and _descendants():
            child.poll()
            _reap(child)
            time.sleep(0.02)
    child.wait()
    _reap(child)


def _reap(child: subprocess.Popen) -> None:
    """Takes leave of adopted processes that ended; the child's own status belongs to its Popen."""
    for process in set(_descendants()) - {child.pid}:
        try:
            state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            if state[0] == "Z" and int(state[1]) == os.getpid():
                os.waitpid(process, os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


def _last_words(log: pathlib.Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "error" in line]
    return (told or lines or ["no output"])[-1][:200]
