"""Runs of patched trainers: their bytes, several clients, a fleet, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from typing import Any

import torch
import trainer_programs as programs
from trainer_case import HERE, TrainerCase

import macaw
from support import BUILD


class Both(TrainerCase):
    def test_have_the_same_bytes_in_two_processes_and_after_a_resume(self) -> None:
        for kind in ("hugging", "lightning"):
            with self.subTest(kind):
                job = self.job_of(kind, "data", "shuffle", clients="ab", rounds=3)
                whole = macaw.simulate(**job)
                more = {**job["workers"], "processes": 2}
                two = macaw.simulate(**{**job, "workers": more, "out": self.folder / "two"})
                self.assertEqual(two.digest, whole.digest)
                half = {**job, "rounds": 2, "out": self.folder / "half"}
                resumed = macaw.resume(macaw.simulate(**half), rounds=3)
                self.assertEqual(resumed.digest, whole.digest)
                other = macaw.simulate(**{**job, "seed": 6, "out": self.folder / "other"})
                self.assertNotEqual(other.digest, whole.digest, "the order is the run's")

    def test_stop_early_in_each_turn_anew(self) -> None:
        for kind in ("hugging", "lightning"):
            with self.subTest(kind):
                run = self.run_of(kind, "stop", rounds=3)
                self.assertEqual([row["steps"] for row in run.rows], [6, 6, 6])

    def test_train_all_of_a_turn_that_looks_like_a_trial(self) -> None:
        """Two rows and one step, as the worker tries a program before the run."""
        for kind in ("hugging", "lightning"):
            with self.subTest(kind):
                job = self.job_of(kind, "rows=2", rounds=1, local={"steps": 1})
                self.declare(kind, "a", rows=2)
                row = macaw.simulate(**job).rows[0]
                self.assertEqual((row["steps"], row["examples"]), (programs.EPOCHS, 2))

    def test_train_alone_when_started_by_hand(self) -> None:
        for kind in ("hugging", "lightning"):
            environment = {k: v for k, v in os.environ.items() if not k.startswith("MACAW_SLOT")}
            said = subprocess.run(
                [sys.executable, str(HERE / "trainer_programs.py"), kind],
                env=environment, capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            self.assertIn("trained alone: 6", said)


class Refusals(TrainerCase):
    def refused(self, kind: str, *options: str, **changes: Any) -> str:
        with self.assertRaises(macaw.Error) as caught:
            self.run_of(kind, *options, **changes)
        return str(caught.exception)

    def test_of_two_clients_whose_rows_are_one_trainers(self) -> None:
        run = self.run_of("lightning", clients="ab", rounds=1, evaluation={})
        self.assertEqual((run.rows[0]["clients"], run.rows[0]["left_out"]), (1, 1))
        log = (self.folder / "run/logs/worker-0.log").read_text()
        self.assertIn("macaw.patch(trainer, data=f)", log)

    def test_of_rows_that_were_not_declared(self) -> None:
        for kind in ("hugging", "lightning"):
            job = self.job_of(kind, rounds=1)
            self.declare(kind, "a", rows=programs.TRAINED + 1)
            with self.assertRaises(macaw.Error) as caught:
                macaw.simulate(**job)
            self.assertIn("a has 11 train rows", str(caught.exception))
            self.assertIn("the trainer has 10", str(caught.exception))

    def test_of_another_model(self) -> None:
        less = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False))
        text = self.refused("lightning", model=less)
        self.assertIn("which the run's model does not have", text)
        wide = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
        self.assertIn("has no place", self.refused("lightning", model=wide))

    def test_of_rules_that_divide_by_the_rates_of_sgd(self) -> None:
        for kind in ("hugging", "lightning"):
            text = self.refused(kind, "adam", algorithm=macaw.FedNova())
            self.assertIn("the program trains by another optimizer", text)
            self.assertIn("torch.optim.SGD", text)

    def test_of_what_is_no_trainer(self) -> None:
        with self.assertRaises(macaw.ArgumentError):
            macaw.patch(object())


class AFleet(TrainerCase):
    def test_trains_as_a_simulation_does(self) -> None:
        for kind in ("hugging", "lightning"):
            with self.subTest(kind):
                job = self.job_of(kind, rounds=2, evaluation={})
                simulated = macaw.simulate(**job)
                summary = self.fleet_of(kind, job)
                self.assertEqual(summary["model_digest"], simulated.digest)

    def fleet_of(self, kind: str, job: dict[str, Any]) -> dict[str, Any]:
        """The summary of a fleet of one device, whose client is that of the job."""
        table = macaw.model_table(job["model"], self.folder / f"{kind}.safetensors")
        task = "".join(f'{key} = "{value}"\n' for key, value in job["run"].items())
        (self.folder / "server.toml").write_text(
            f"[run]\nrounds = 2\nseed = 5\n{task}{table}"
            '[cohort]\nsize = 1\n[data]\nsource = "declared"\npath = "rows.json"\n'
        )
        command = json.dumps(job["workers"]["command"])
        (self.folder / "node.toml").write_text(
            f'[data]\nsource = "declared"\npath = "rows.json"\n[workers]\nbackend = "process"\n'
            f"slots = 1\ncommand = {command}\n"
        )
        address, fleet = f"unix:{self.folder}/{kind}", f"fleet-{kind}"
        server = subprocess.Popen(
            [BUILD / "bin/macaw-server", "--config", "server.toml", "--run-dir", fleet,
             "--listen", address], cwd=self.folder, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        worker = subprocess.run(
            [BUILD / "bin/macaw-worker", "--config", "node.toml", "--server", address,
             "--name", "silo"], cwd=self.folder, capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(worker.returncode, 0, worker.stderr)
        self.assertEqual(server.wait(), 0)
        return json.loads((self.folder / fleet / "summary.json").read_text())


if __name__ == "__main__":
    unittest.main()
