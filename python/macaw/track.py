"""Hands the rows of a run to trackers: TensorBoard, MLflow, Weights & Biases, a CSV table.

    python3 -m macaw.track FOLDER --to mlflow,csv [--mlflow-uri URI]

`macaw simulate` (by ``run.track``) and `macaw track` start it as a process of its own. It reads the
run's folder, so it neither slows nor fails the run, and it delivers old runs as well. Each tracker
has a thread, so none waits for another.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ._track_csv import CsvTracker
from ._track_mlflow import MlflowTracker
from ._track_run import NO_ROUND, Rows, RunFolder, Tracker
from ._track_tensorboard import TensorBoardTracker
from ._track_wandb import WandbTracker

LOOK_EVERY = 0.5  # seconds, for new rows
RETRY_AFTER = 1.0  # seconds; doubles with each failure in a row, up to …
RETRY_AT_MOST = 60.0
_ROWS_AT_ONCE = 200
_LONGEST_REASON = 300  # characters of an error of a package

Say = Callable[[str], None]


class Delivery(threading.Thread):
    """Delivers the rows of a run to one tracker.

    ``over``: is set once no further rows will be written. Two deliveries to the same tracker of a
    run exclude each other, also those of two processes.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Tracker],
        run: RunFolder,
        over: threading.Event,
        say: Say,
    ) -> None:
        super().__init__(name=f"track-{name}", daemon=True)
        self.done = False  # everything is delivered
        self.given_up = False  # and said why
        self._tracker_name = name
        self._make = make
        self._run_folder = run
        self._over = over
        self._say = say
        self._rows = Rows(run)
        self._tracker: Tracker | None = None
        self._delivered = NO_ROUND
        self._lock: int | None = None
        self._reason = ""  # why the newest try failed

    def run(self) -> None:
        try:
            self._deliver()
        finally:
            if self._lock is not None:
                os.close(self._lock)

    def say_left(self) -> None:
        """Says what is not delivered. For another thread, when the time is up."""
        left = self.left() or "the run's end"
        reason = self._reason or "it has not answered in time"
        self._say(
            f"{self._tracker_name}: not delivered: {left} ({reason}); "
            f"{self._command()} delivers the rest"
        )

    def left(self) -> str:
        """ "12 rows"; "": none. Only the tracker knows what an earlier process has delivered."""
        count = 0
        with contextlib.suppress(OSError, ValueError):
            count = len(Rows(self._run_folder).after(self._delivered, sys.maxsize))
        most = "up to " if self._delivered == NO_ROUND else ""
        return f"{most}{count} row{'' if count == 1 else 's'}" if count else ""

    def _deliver(self) -> None:
        failures = 0
        while True:
            last = self._over.is_set()  # before rows are read: then there are no more
            try:
                self._step(last)
            except Missing as error:
                self.given_up = True
                self._say(
                    f"{self._tracker_name}: {error}, so its rows are not delivered; "
                    f"{self._command()} delivers them later"
                )
                return
            except Exception as error:  # a package may raise anything
                self._reason = _reason(error)
                self._tracker = None
                if failures == 0:
                    left = self.left() or "the run's end"
                    self._say(f"{self._tracker_name}: {left} must wait: {self._reason}")
                pause = RETRY_AFTER * 2 ** min(failures, 10)
                failures += 1
                if last:
                    time.sleep(RETRY_AFTER)
                else:
                    self._over.wait(min(pause, RETRY_AT_MOST))
                continue
            if failures > 0:
                self._say(f"{self._tracker_name}: deliveries go on")
            failures, self._reason = 0, ""
            if last:
                self.done = True
                return
            self._over.wait(LOOK_EVERY)

    def _step(self, last: bool) -> None:
        package = self._make().package
        if package and importlib.util.find_spec(package) is None:
            raise Missing(f"{sys.executable} has no {package} (pip install {package})")
        if self._tracker is None:
            # Nothing is made for a run that never finishes a round.
            if not self._rows.after(NO_ROUND, 1):
                return
            self._open()
        assert self._tracker is not None
        while rows := self._rows.after(self._delivered, _ROWS_AT_ONCE):
            self._tracker.deliver(rows)
            self._delivered = rows[-1].round
        if last:
            self._tracker.close(self._run_folder.end())

    def _open(self) -> None:
        if self._lock is None:
            self._lock = _lock(self._run_folder.path / "track" / f"{self._tracker_name}.lock")
        tracker = self._make()
        try:
            self._delivered = tracker.open(self._run_folder.facts())
        except ModuleNotFoundError as error:
            package = error.name or tracker.package
            raise Missing(f"{sys.executable} has no {package} (pip install {package})") from error
        self._tracker = tracker

    def _command(self) -> str:
        return f"`macaw track {self._run_folder.path} --to {self._tracker_name}`"


class Missing(Exception):
    """A package is not installed. Trying again does not help."""


def _lock(path: Path) -> int:
    path.parent.mkdir(exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise RuntimeError(f"another process delivers its rows ({path} is locked)") from None
    return lock


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:_LONGEST_REASON]
    return text or type(error).__name__


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m macaw.track",
        description="Hand a run's rows to trackers. What a tracker has is not delivered again.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the run's folder")
    parser.add_argument(
        "--to", required=True, help="which trackers: tensorboard, mlflow, wandb, csv; with commas"
    )
    parser.add_argument("--mlflow-uri", default="", help="default: MLFLOW_TRACKING_URI")
    parser.add_argument("--mlflow-experiment", default="macaw")
    parser.add_argument("--wandb-project", default="macaw")
    parser.add_argument("--macaw", default="macaw", help="the program, which reads the run's log")
    parser.add_argument("--say", type=int, default=2, help="the descriptor of its messages")
    parser.add_argument(
        "--until", type=int, help="a descriptor: rows are followed until its other end is closed"
    )
    parser.add_argument(
        "--at-most", type=float, default=30.0, help="seconds to wait for trackers at the end"
    )
    return parser.parse_args(arguments)


def _makers(options: argparse.Namespace) -> dict[str, Callable[[], Tracker]]:
    return {
        "csv": CsvTracker,
        "mlflow": lambda: MlflowTracker(options.mlflow_uri, options.mlflow_experiment),
        "tensorboard": TensorBoardTracker,
        "wandb": lambda: WandbTracker(options.wandb_project),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 once everything is delivered, 1 if something is left, 2 for wrong arguments."""
    options = _options(arguments)
    mutex = threading.Lock()

    def say(line: str) -> None:
        with mutex, contextlib.suppress(OSError):  # nobody listens any more
            os.write(options.say, f"{line}\n".encode())

    makers = _makers(options)
    names = sorted(set(options.to.split(",")))
    for name in names:
        if name not in makers:
            say(f'there is no tracker "{name}"; there are {", ".join(sorted(makers))}')
            return 2
    over = threading.Event()
    run = RunFolder(options.folder, options.macaw)
    deliveries = [Delivery(name, makers[name], run, over, say) for name in names]
    for delivery in deliveries:
        delivery.start()
    if options.until is not None:
        while os.read(options.until, 1):
            pass
    over.set()
    deadline = time.monotonic() + options.at_most
    for delivery in deliveries:
        delivery.join(max(0.0, deadline - time.monotonic()))
    late = [delivery for delivery in deliveries if delivery.is_alive()]
    for delivery in late:
        delivery.say_left()
    if late:
        os._exit(1)  # a call of a package that hangs must not hold the process
    return 0 if all(delivery.done for delivery in deliveries) else 1


if __name__ == "__main__":
    sys.exit(main())
