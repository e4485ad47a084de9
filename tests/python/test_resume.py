"""Runs that are interrupted, and go on to the same bytes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import own_functions as own

import macaw
from support import TestCase, job

ROUNDS = 2000
# Reads three rounds, says where the run is, and waits for its end, which is far away.
SCRIPT = """
import sys, threading, time, macaw
from support import rows
stream = macaw.stream(["linear 8", "relu", "linear 3"], rows(), cohort=5, rounds=int(sys.argv[3]),
    partition=dict(scheme="dirichlet-class", clients=20, min_size=2), out=sys.argv[1], seed=7,
    cache=sys.argv[2], on_round=eval(sys.argv[4]))
rows = iter(stream)
for _ in range(3):
    next(rows)
# Said while finish() reads rounds.
threading.Timer(0.05, print, [stream.folder], dict(flush=True)).start()
stream.finish()
"""


class AnInterruptedRun(TestCase):
    undisturbed: macaw.Run

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.undisturbed = macaw.simulate(**job(Path(folder.name), "run", rounds=ROUNDS))

    def check(self, folder: Path) -> None:
        """Goes on with it, to the bytes of the undisturbed run."""
        self.assertLess(len(macaw.Run(folder).rows), ROUNDS)
        run = macaw.resume(folder)
        self.assertEqual(run.digest, self.undisturbed.digest)
        losses = [row["train_loss"] for row in run.rows]
        self.assertEqual(losses, [row["train_loss"] for row in self.undisturbed.rows])

    def script(self, rounds: int, on_round: str) -> Any:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, self.folder / "run", self.folder / "cache",
             str(rounds), on_round],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent,
        )  # fmt: skip
        self.assertEqual(process.stdout.readline().strip(), str(self.folder / "run"))
        return process

    def test_by_ctrl_c_goes_on(self) -> None:
        process = self.script(ROUNDS, "lambda run: time.sleep(0.02)")
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate()
        self.assertIn(f'macaw.resume("{self.folder / "run"}")', errors)
        self.check(self.folder / "run")

    def test_by_a_killed_python_goes_on(self) -> None:
        process = self.script(10**6, "None")
        process.kill()
        process.communicate()
        with (self.folder / "run/.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until its processes have ended
        done = len(macaw.Run(self.folder / "run").rows)
        run = macaw.resume(self.folder / "run", on_round=lambda run: run.round < done + 20)
        self.assertEqual(run.summary["end"], "stopped")
        for row, undisturbed in zip(run.rows, self.undisturbed.rows, strict=False):
            self.assertEqual(row["train_loss"], undisturbed["train_loss"])

    def read(self) -> macaw.Stream:
        """A run that waits for its reader, so that it is not over when the loop ends."""
        return macaw.stream(**self.job("run", rounds=ROUNDS, on_round=lambda run: None))

    def test_by_the_end_of_a_loop_goes_on(self) -> None:
        stream = self.read()
        for row in stream:
            if row["round"] == 5:
                break
        del row
        stream.close()
        self.check(stream.folder)

    def test_by_an_exception_of_a_loop_goes_on(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.read() as stream:
            for row in stream:
                1 / (row["round"] - 5)
        self.check(stream.folder)


class ASlowReader(TestCase):
    def test_does_not_hold_up_the_rounds(self) -> None:
        stream = macaw.stream(**self.job("run", rounds=ROUNDS))
        rows = iter(stream)
        next(rows)
        with (stream.folder / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until its processes have ended
        self.assertEqual(stream.run.summary["end"], "finished")
        self.assertEqual(len(list(rows)), ROUNDS - 1)

    def test_that_goes_away_ends_the_run(self) -> None:
        stream = macaw.stream(**self.job("run", rounds=10**6))
        folder = stream.folder
        rows = iter(stream)
        next(rows)
        del stream, rows
        with (folder / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.assertEqual(macaw.Run(folder).summary["end"], "interrupted")


class AFinishedRun(TestCase):
    def test_goes_on_with_more_rounds(self) -> None:
        long = macaw.simulate(**self.job("long", rounds=8))
        short = macaw.simulate(**self.job("short", rounds=4))
        self.assertEqual(macaw.resume(short.folder, rounds=8).digest, long.digest)

    def test_is_not_over_while_it_goes_on(self) -> None:
        run = macaw.simulate(**self.job("run", rounds=2))
        seen: list[str] = []

        def look(_: macaw.OpenRun) -> None:
            seen.append(repr(macaw.Run(run.folder)))
            with self.assertRaisesRegex(macaw.Error, r"is of 2 rounds, and it has rows up to .*3"):
                run.summary  # noqa: B018
            self.assertTrue(run.model())

        macaw.resume(run.folder, rounds=3, on_round=look)
        self.assertEqual(seen, [f"<macaw.Run {run.folder}: not over>"])
        self.assertEqual(run.summary["rounds"], 3)

    def test_has_no_fewer_rounds_than_before(self) -> None:
        run = macaw.simulate(**self.job("run"))
        with self.assertRaisesRegex(macaw.ConfigError, "may have more") as caught:
            macaw.resume(run.folder, rounds=2)
        self.assertEqual(caught.exception.key, "run.rounds")

    def test_goes_on_as_it_was_begun(self) -> None:
        run = macaw.simulate(**self.job("run"))
        for name, said in (("train", "leave train= out"), ("cohort", "RUN/config.toml")):
            with self.assertRaisesRegex(macaw.ArgumentError, said) as caught:
                macaw.resume(run, rounds=8, **{name: print})
            self.assertEqual(caught.exception.key, name)

    def test_whose_files_are_gone_says_which(self) -> None:
        with self.assertRaisesRegex(macaw.ConfigError, "none is no run"):
            macaw.resume(self.folder / "none")
        job = dict(model=["linear 3"], train=own.softmax_regression, workers={"slots": 1})
        trained = macaw.simulate(**self.job("trained", rounds=1, **job))
        (spec,) = (self.folder / "cache/train").glob("*.json")
        spec.unlink()
        with self.assertRaisesRegex(macaw.ConfigError, f"function that .*{spec.name}.* is gone"):
            macaw.resume(trained, rounds=2)
        for file in (self.folder / "cache/data").iterdir():
            file.unlink()
        with self.assertRaisesRegex(macaw.ConfigError, "macaw.prepare") as caught:
            macaw.resume(trained, rounds=2)
        self.assertEqual(caught.exception.key, "data.path")
