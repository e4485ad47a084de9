"""macaw.patch: programs with a Trainer of Hugging Face or Lightning as clients, and their ranks.

What surrounds it, and the test that holds it:

| a patched trainer and … | test |
|---|---|
| the trainer alone, from the same weights | test_trains_as_it_does_alone, of both |
| the optimizer's state | the same: it has momentum |
| callbacks, counters | Both.test_stop_early_in_each_turn_anew |
| an optimizer of the caller's | HuggingFace.test_resets_an_optimizer_that_it_was_given |
| rows, steps, losses, evaluation | test_reports_what_the_trainer_reports |
| [local] of the run | test_takes_the_rate_and_epochs_of_the_run |
| FedProx | test_adds_the_correction_of_a_rule |
| clients, workers, a resume | Both.test_have_the_same_bytes_in_two_processes_and_… |
| a fleet | AFleet |
| several processes: DDP, FSDP | Ranks |
| a rank that dies | Ranks.test_start_again_when_one_dies |
| wrong rows, models, trainers | Refusals |
| no worker | Both.test_train_alone_when_started_by_hand |
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trainer_programs as programs

import macaw
from support import BUILD, SOURCE, TestCase

HERE = Path(__file__).parent
ROWS = {
    "hugging": {"features": "int32", "input_shape": [programs.LENGTH], "classes": programs.TOKENS},
    "lightning": {"input_shape": [4], "classes": 3},
}


class TrainerCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        quiet = warnings.catch_warnings()
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def declare(self, kind: str, clients: str, rows: int = programs.TRAINED) -> Path:
        names = [{"name": c, "train": rows, "test": programs.TESTED} for c in clients]
        path = self.folder / "rows.json"
        path.write_text(json.dumps({"clients": names, **ROWS[kind]}))
        return path

    def job_of(self, kind: str, *options: str, clients: str = "a", **changes: Any) -> dict:
        program = [sys.executable, str(HERE / "trainer_programs.py"), kind, *options]
        job = {
            "model": programs.gpt("peft" in options) if kind == "hugging" else programs.net(),
            "data": self.declare(kind, clients),
            "data_options": {"source": "declared"},
            "cohort": len(clients),
            "rounds": 2,
            "seed": 5,
            "evaluation": {"clients": True},
            "workers": {"backend": "process", "command": program, "slots": 1},
            "run": {"task": "next-token"} if kind == "hugging" else {},
            "out": self.folder / "run",
            "cache": self.folder / "cache",
            "overwrite": True,
        }
        return {**job, **changes}

    def run_of(self, kind: str, *options: str, **changes: Any) -> macaw.Run:
        return macaw.simulate(**self.job_of(kind, *options, **changes))

    def assert_near(self, found: Any, expected: Any, tolerance: float = 1e-6) -> None:
        self.assertGreater(len(found), 0)
        for name, tensor in found.items():
            expects = np.asarray(expected[name].detach())
            np.testing.assert_allclose(np.asarray(tensor), expects, atol=tolerance, err_msg=name)


def by_hand(kind: str, turns: int = 2, **changes: Any) -> Any:
    """The model after trainers of their own, one after the other."""
    if kind == "hugging":
        model = programs.gpt()
        for _ in range(turns):
            programs.hugging(model, **changes).train()
        return model.state_dict()
    module = programs.classifier(changes.get("learning_rate", programs.RATE))
    for _ in range(turns):
        trainer = programs.lightning_trainer(changes.get("num_train_epochs", programs.EPOCHS))
        trainer.fit(module, programs.loader("a", "train"))
    return module.net.state_dict()


class HuggingFace(TrainerCase):
    def test_trains_as_it_does_alone(self) -> None:
        run = self.run_of("hugging")
        start = programs.gpt().state_dict()
        self.assert_near(run.model(), by_hand("hugging"))
        moved = [n for n, t in run.model().items() if not np.allclose(t, start[n], atol=1e-3)]
        self.assertGreater(len(moved), 10, "something was learnt")

    def test_resets_an_optimizer_that_it_was_given(self) -> None:
        self.assert_near(self.run_of("hugging", "given").model(), by_hand("hugging"))

    def test_reports_what_the_trainer_reports(self) -> None:
        run = self.run_of("hugging", rounds=6)
        row = run.rows[0]
        alone = programs.hugging(programs.gpt())
        output = alone.train()
        self.assertEqual((row["steps"], row["examples"]), (output.global_step, programs.TRAINED))
        self.assertAlmostEqual(row["train_loss"], output.training_loss, 5)
        self.assertAlmostEqual(row["clients_test_loss"], alone.evaluate()["eval_loss"], 5)
        model = programs.gpt().eval()
        model.load_state_dict(run.model())
        rows = torch.stack([row["input_ids"] for row in programs.texts("a", "test")])
        hits = (model(rows).logits[:, :-1].argmax(-1) == rows[:, 1:]).float().mean().item()
        self.assertAlmostEqual(run.rows[-1]["clients_test_accuracy"], hits, 6)
        self.assertGreater(hits, 0.1)

    def test_takes_the_rate_and_epochs_of_the_run(self) -> None:
        run = self.run_of("hugging", "local", rounds=1, local={"lr": 0.03, "epochs": 3})
        self.assertEqual(run.rows[0]["steps"], 9)
        expected = by_hand("hugging", 1, learning_rate=0.03, num_train_epochs=3)
        self.assert_near(run.model(), expected)
        run = self.run_of("hugging", "local", rounds=1, local={"lr": 0.03, "steps": 5})
        self.assertEqual(run.rows[0]["steps"], 5)

    def test_adds_the_correction_of_a_rule(self) -> None:
        import transformers

        job = {"rounds": 1, "algorithm": macaw.FedProx(mu=0.5)}
        if not hasattr(transformers.TrainerCallback, "on_pre_optimizer_step"):
            with self.assertRaises(macaw.Error) as caught:
                self.run_of("hugging", **job)
            self.assertIn("a correction of the gradients", str(caught.exception))
            return
        model, start = programs.gpt(), programs.gpt()
        anchors = list(start.parameters())

        class Proximal(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                for p, anchor in zip(model.parameters(), anchors):
                    p.grad += 0.5 * (p - anchor).detach()
                return super().step(closure)

        trainer = programs.hugging(model)
        trainer.optimizer = Proximal(
            model.parameters(), lr=programs.RATE, momentum=programs.MOMENTUM
        )
        trainer.train()
        self.assert_near(self.run_of("hugging", **job).model(), model.state_dict())

    def test_trains_adapters_alone(self) -> None:
        run = self.run_of("hugging", "peft")
        start = programs.gpt(adapters=True)
        programs.hugging(start).train()
        again = programs.hugging(start)
        again.train()
        self.assert_near(run.model(), start.state_dict())
        sent = run.rows[0]["bytes_up"]
        self.assertLess(sent, 4 * sum(p.numel() for p in start.parameters()) / 4)


class Lightning(TrainerCase):
    def test_trains_as_it_does_alone(self) -> None:
        run = self.run_of("lightning")
        self.assert_near(run.model(), by_hand("lightning"))
        self.assertFalse(np.allclose(run.model()["0.weight"], programs.net()[0].weight.detach()))

    def test_reports_what_the_trainer_reports(self) -> None:
        run = self.run_of("lightning")
        model = programs.net()
        model.load_state_dict(run.model())
        x, y = programs.vectors("a", "test").tensors
        loss = torch.nn.functional.cross_entropy(model(x), y).item()
        self.assertAlmostEqual(run.rows[-1]["clients_test_loss"], loss, 5)
        hits = (model(x).argmax(1) == y).float().mean().item()
        self.assertAlmostEqual(run.rows[-1]["clients_test_accuracy"], hits, 6)
        self.assertEqual([row["steps"] for row in run.rows], [6, 6])
        self.assertGreater(run.rows[0]["train_loss"], run.rows[1]["train_loss"])

    def test_takes_the_rate_and_epochs_of_the_run(self) -> None:
        run = self.run_of("lightning", "local", rounds=1, local={"lr": 0.03, "epochs": 3})
        self.assertEqual(run.rows[0]["steps"], 9)
        expected = by_hand("lightning", 1, learning_rate=0.03, num_train_epochs=3)
        self.assert_near(run.model(), expected)

    def test_adds_the_correction_of_a_rule(self) -> None:
        run = self.run_of("lightning", rounds=1, algorithm=macaw.FedProx(mu=0.5))
        model, start = programs.net(), programs.net()
        optimizer = programs.sgd(model)
        for _ in range(programs.EPOCHS):
            for x, y in programs.loader("a", "train"):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                for p, anchor in zip(model.parameters(), start.parameters()):
                    p.grad += 0.5 * (p - anchor).detach()
                optimizer.step()
        self.assert_near(run.model(), model.state_dict())


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

    def test_of_what_is_no_trainer(self) -> None:
        with self.assertRaises(macaw.ArgumentError):
            macaw.patch(object())


class AFleet(TrainerCase):
    def test_trains_as_a_simulation_does(self) -> None:
        job = self.job_of("hugging", rounds=2, evaluation={})
        simulated = macaw.simulate(**job)
        table = macaw.model_table(programs.gpt(), self.folder / "model.safetensors")
        (self.folder / "server.toml").write_text(
            f'run.rounds = 2\nrun.seed = 5\nrun.task = "next-token"\n{table}'
            '[cohort]\nsize = 1\n[data]\nsource = "declared"\npath = "rows.json"\n'
        )
        command = json.dumps(job["workers"]["command"])
        (self.folder / "node.toml").write_text(
            f'[data]\nsource = "declared"\npath = "rows.json"\n[workers]\nbackend = "process"\n'
            f"slots = 1\ncommand = {command}\n"
        )
        server = subprocess.Popen(
            [BUILD / "bin/macaw-server", "--config", "server.toml", "--run-dir", "fleet",
             "--listen", f"unix:{self.folder}/s"], cwd=self.folder, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        worker = subprocess.run(
            [BUILD / "bin/macaw-worker", "--config", "node.toml", "--server",
             f"unix:{self.folder}/s", "--name", "silo"], cwd=self.folder, capture_output=True,
            text=True,
        )  # fmt: skip
        self.assertEqual(worker.returncode, 0, worker.stderr)
        self.assertEqual(server.wait(), 0)
        summary = json.loads((self.folder / "fleet/summary.json").read_text())
        self.assertEqual(summary["model_digest"], simulated.digest)


def processes_of(word: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and "trainer_programs" in text:
            found.append(text)
    return found


class Ranks(TrainerCase):
    def test_of_a_loop_of_ones_own_train_one_model(self) -> None:
        folder = SOURCE / "examples/process"
        commands = {"one": ["train.py"], "ddp": ["ranks.py", "2"]}
        if hasattr(torch.distributed, "tensor"):  # PyTorch 2.5 and later
            commands["fsdp"] = ["ranks.py", "2", "--fsdp"]
        runs = {
            name: macaw.simulate(
                "logistic", folder / "rows.json", data_options={"source": "declared"}, cohort=2,
                rounds=2, local={"batch_size": 7, "momentum": 0.5}, evaluation={"clients": True},
                workers={"backend": "process", "command": [sys.executable, *command], "slots": 1,
                         "folder": folder},
                out=self.folder / name, cache=self.folder / "cache",
            )
            for name, command in commands.items()
        }  # fmt: skip
        one = runs.pop("one")
        for name, run in runs.items():
            with self.subTest(name):
                self.assert_near(run.model(), {n: torch.tensor(t) for n, t in one.model().items()})
                for column in ("steps", "train_loss", "train_accuracy", "clients_test_loss"):
                    self.assertAlmostEqual(run.rows[-1][column], one.rows[-1][column], 5, column)

    def test_of_a_trainer_train_one_model(self) -> None:
        for kind in ("hugging", "lightning"):
            with self.subTest(kind):
                run = self.run_of(kind, "ranks=2")
                self.assertEqual(run.rows[0]["left_out"], 0)
                # Ranks have every second batch or row: other orders, and as many steps.
                self.assertEqual(run.rows[0]["steps"], 6)
                alone = self.run_of(kind, out=self.folder / "alone")
                self.assertAlmostEqual(run.rows[-1]["train_loss"], alone.rows[-1]["train_loss"], 1)

    def test_see_the_gpus_of_their_slot(self) -> None:
        code = (
            "import os, threading, macaw; rank = macaw.program({ranks}); "
            "print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('RANK'), flush=True); "
            "rank or [t.join() for t in threading.enumerate() if t.daemon]"  # until others ended
        )
        for ranks, slot, expected in (
            (1, 0, ["4 None"]),
            (1, 5, ["5 None"]),
            (2, 1, ["6,7 0", "6,7 1"]),
            (2, 2, ["4,5 0", "4,5 1"]),
        ):
            program = subprocess.run(
                [sys.executable, "-c", code.format(ranks=ranks)],
                env={**os.environ, "MACAW_SLOT": str(slot), "CUDA_VISIBLE_DEVICES": "4,5,6,7"},
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(sorted(program.stdout.split("\n"))[1:], expected)

    def test_start_again_when_one_dies(self) -> None:
        mark = f"mark={self.folder.name}"
        run = self.run_of("lightning", "ranks=2", "data", "fail=2", mark, rounds=3)
        self.assertEqual([row["left_out"] for row in run.rows], [0, 1, 0])
        self.assertEqual(processes_of(mark), [], "the other ranks have ended")


if __name__ == "__main__":
    unittest.main()
