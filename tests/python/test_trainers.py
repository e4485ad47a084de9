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
| … and an optimizer of the caller's | HuggingFace.test_takes_the_rate_of_the_run_with_… |
| FedProx | test_adds_the_correction_of_a_rule; clipped gradients: Lightning.…_behind_the_clip |
| SCAFFOLD, FedNova | Both.test_tell_the_rates_…, Lightning.test_scaffold_…; Adam: Refusals |
| a module that moves to a GPU | AModule |
| clients, workers, a resume | Both.test_have_the_same_bytes_in_two_processes_and_… |
| a fleet | AFleet |
| several processes: DDP, FSDP | Ranks |
| a rank that dies | Ranks.test_start_again_when_one_dies |
| gradient_checkpointing | HuggingFace.test_computes_activations_again_… |
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
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import trainer_programs as programs

import macaw
from macaw._rates import Rates, set_rate
from macaw._weights import Weights
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


class Losses(programs.lightning().Callback):
    """Notes the loss that is logged for each batch."""

    def __init__(self, into: list[float]) -> None:
        self.into = into

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.into.append(float(trainer.callback_metrics["train_loss"]))


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

    def test_takes_the_rate_of_the_run_with_an_optimizer_that_it_was_given(self) -> None:
        run = self.run_of("hugging", "local", "given", local={"lr": 0.03, "epochs": 2})
        self.assert_near(run.model(), by_hand("hugging", learning_rate=0.03))

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
        self.assert_near(self.run_of("hugging", "newer", **job).model(), model.state_dict())

    def test_trains_adapters_alone(self) -> None:
        run = self.run_of("hugging", "peft")
        start = programs.gpt(adapters=True)
        programs.hugging(start).train()
        again = programs.hugging(start)
        again.train()
        self.assert_near(run.model(), start.state_dict())
        sent = run.rows[0]["bytes_up"]
        self.assertLess(sent, 4 * sum(p.numel() for p in start.parameters()) / 4)

    def test_computes_activations_again_where_its_arguments_ask_for_it(self) -> None:
        """The program itself counts the passes of a block, and fails where they are not two."""
        for options in ([], ["peft"], ["ranks=2"]):
            run = self.run_of("hugging", "checkpoint", *options)
            self.assertEqual(run.digest, self.run_of("hugging", *options).digest, options)

    def test_refuses_the_key_of_the_other_back_ends(self) -> None:
        with self.assertRaises(macaw.Error) as caught:
            self.run_of("hugging", local={"checkpoint": True})
        self.assertIn("gradient_checkpointing=True", str(caught.exception))


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
        run = self.run_of("lightning", "local", rounds=1, local={"lr": 0.1, "steps": 6})
        self.assertEqual(run.rows[0]["steps"], 6, "an epoch has three batches")
        self.assert_near(run.model(), by_hand("lightning", 1))

    def test_takes_the_loss_that_a_module_with_its_own_steps_logs(self) -> None:
        run = self.run_of("lightning", "manual=train_loss")
        module = programs.manual("train_loss")
        losses = []
        for _ in range(2):
            module.configure_callbacks = lambda: [Losses(losses)]
            programs.lightning_trainer().fit(module, programs.loader("a", "train"))
        self.assert_near(run.model(), module.net.state_dict())
        of_a_turn = np.reshape(losses, (2, 6)) @ ([0.2, 0.2, 0.1] * 2)
        np.testing.assert_allclose([row["train_loss"] for row in run.rows], of_a_turn, atol=1e-6)
        with self.assertRaises(macaw.Error) as caught:
            self.run_of("lightning", "manual=g_loss")
        self.assertIn('self.log("train_loss"', str(caught.exception))
        self.assertIn("before the run", str(caught.exception))

    def turn(
        self, model: Any, client: str, correction: Callable[[list[Any]], Any], clip: float = 0
    ) -> None:
        """As the program trains, with something added to each gradient."""
        optimizer = programs.sgd(model)
        parameters = list(model.parameters())
        for _ in range(programs.EPOCHS):
            for x, y in programs.loader(client, "train"):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                if clip:
                    norm = torch.nn.utils.clip_grad_norm_(parameters, clip)
                    self.assertGreater(norm, 1.1 * clip, "or nothing is clipped")
                for p, more in zip(parameters, correction(parameters)):
                    p.grad += more.detach()
                optimizer.step()

    def test_adds_the_correction_of_a_rule(self) -> None:
        run = self.run_of("lightning", rounds=1, algorithm=macaw.FedProx(mu=0.5))
        model, start = programs.net(), list(programs.net().parameters())
        self.turn(model, "a", lambda now: [0.5 * (p - a) for p, a in zip(now, start)])
        self.assert_near(run.model(), model.state_dict())

    def test_adds_the_correction_behind_the_clip(self) -> None:
        run = self.run_of("lightning", "clip", rounds=1, algorithm=macaw.FedProx(mu=5.0))
        model, start = programs.net(), list(programs.net().parameters())
        self.turn(model, "a", lambda now: [5 * (p - a) for p, a in zip(now, start)], programs.CLIP)
        self.assert_near(run.model(), model.state_dict())

    def test_scaffold_divides_by_the_rates_of_the_trainer(self) -> None:
        run = self.run_of(
            "lightning", "data", clients="ab", rounds=3, algorithm=macaw.SCAFFOLD(),
            local={"lr": 0.7, "epochs": 1},
        )  # fmt: skip
        travelled, velocity = 0.0, 0.0
        for _ in range(6):
            velocity = programs.MOMENTUM * velocity + 1
            travelled += programs.RATE * velocity
        x = [p.detach() for p in programs.net().parameters()]
        zeros = [torch.zeros_like(p) for p in x]
        c, own = zeros, {"a": zeros, "b": zeros}
        for _ in range(3):
            ends, before = {}, c
            for client in "ab":
                model = programs.net()
                with torch.no_grad():
                    for p, start in zip(model.parameters(), x):
                        p.copy_(start)
                more = [all_of - mine for all_of, mine in zip(before, own[client])]
                self.turn(model, client, lambda _, more=more: more)
                ends[client] = [p.detach() for p in model.parameters()]
                control = [(s - e) / travelled - m for s, e, m in zip(x, ends[client], more)]
                c = [p + (n - o) / 2 for p, n, o in zip(c, control, own[client])]
                own[client] = control
            x = [(a + b) / 2 for a, b in zip(ends["a"], ends["b"])]
        self.assert_near(run.model(), dict(zip(run.model(), x)), 2e-6)


class AModule(TrainerCase):
    def test_may_have_other_buffers_in_each_turn(self) -> None:
        """As Lightning moves it to a GPU and back."""
        module = torch.nn.BatchNorm1d(3)
        module.register_buffer("seen", torch.zeros(2))
        start = {n: t.numpy().copy() for n, t in module.state_dict().items() if n != "seen"}
        task = SimpleNamespace(mu=1.0, anchor=start, correction=None)
        weights = Weights(module)
        for _ in range(2):
            weights.load(start, {"weight", "bias"})
            self.assertEqual(module.running_mean.abs().sum(), 0)
            self.assertEqual(module.seen.tolist(), [0, 0])
            for name, buffer in module.named_buffers():
                setattr(module, name, buffer.clone())
            module(5 + torch.randn(8, 3)).sum().backward()
            module.seen.fill_(7)
            weights.correct(task)
            ends = weights.taken(start)
            np.testing.assert_array_equal(ends["running_mean"], module.running_mean.numpy())
            self.assertGreater(ends["running_mean"].min(), 0.2)
        module.seen = torch.ones(9)
        weights.load(start)
        self.assertEqual(module.seen.tolist(), [0, 0])

    def test_that_was_refused_is_refused_again(self) -> None:
        weights = Weights(torch.nn.Linear(2, 2))
        for _ in range(2):
            with self.assertRaises(TypeError):
                weights.load({"weight": np.zeros((2, 2)), "bias": np.zeros(3)})


class ARate(TrainerCase):
    def sgd(self, **more: Any) -> Any:
        return torch.optim.SGD([torch.zeros(2, requires_grad=True)], **{"lr": 0.1, **more})

    def norm_of(self, steps: int, mu: float = 0, **more: Any) -> float | None:
        rates, optimizer = Rates(mu), self.sgd(**more)
        for _ in range(steps):
            rates.look(optimizer)
            rates.step()
        return rates.told(steps)["a_norm1"]

    def test_gives_the_norm_that_the_programs_have(self) -> None:
        self.assertEqual(self.norm_of(7), 7)
        self.assertAlmostEqual(self.norm_of(7, momentum=0.9), 23.046721)
        self.assertAlmostEqual(self.norm_of(9, mu=0.5), 7.395011805508)
        self.assertAlmostEqual(self.norm_of(9, mu=0.5, momentum=0.9), 24.018440121133)
        self.assertIsNone(self.norm_of(2, momentum=0.9, dampening=0.5))

    def test_is_added_where_it_changes(self) -> None:
        rates, optimizer = Rates(0), self.sgd(lr=0.3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(2):
            rates.look(optimizer)
            optimizer.step()
            rates.step()
            schedule.step()
        told = rates.told(2)
        self.assertAlmostEqual(told["rate_sum"], 0.45)
        self.assertAlmostEqual(told["a_norm1"], 2)
        self.assertIsNone(rates.told(3)["rate_sum"], "steps that it has not seen")

    def test_is_one_for_all_parameters(self) -> None:
        rates, other = Rates(0), torch.zeros(1, requires_grad=True)
        optimizer = self.sgd()
        optimizer.add_param_group({"params": [other], "lr": 0.2})
        rates.look(optimizer)
        rates.step()
        self.assertIsNone(rates.told(1)["a_norm1"])
        other.requires_grad_(False)
        rates = Rates(0)
        rates.look(optimizer)
        rates.step()
        self.assertEqual(rates.told(1)["rate_sum"], 0.1)

    def test_of_the_run_keeps_a_schedule_that_has_begun(self) -> None:
        optimizer = self.sgd(lr=0.2)
        warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4))
        set_rate(optimizer, [warm], 0.4)
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.1)
        optimizer.step()
        warm.step()
        self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.2)


class Both(TrainerCase):
    def test_tell_the_rates_of_their_steps(self) -> None:
        task = SimpleNamespace(
            name="a", split="train", rows=programs.TRAINED, mu=0, correction=None,
            local={"steps": 0},
        )  # fmt: skip
        for momentum, norm in ((0.0, 6.0), (0.9, 17.82969)):  # 60 - 10 Σ 0.9^k
            for kind in ("hugging", "lightning"):
                with self.subTest(kind, momentum=momentum):
                    rates = self.rates_of(kind, momentum, task)
                    self.assertAlmostEqual(rates["rate_sum"], 6 * programs.RATE)
                    self.assertAlmostEqual(rates["a_norm1"], norm, 5)

    def rates_of(self, kind: str, momentum: float, task: Any) -> dict:
        if kind == "hugging":
            from macaw._patch_transformers import Patched

            model = programs.gpt()
            optimizer = torch.optim.SGD(model.parameters(), programs.RATE, momentum)
            trainer = programs.hugging(model, given=optimizer)
            loop = Patched(trainer, data=None, local=False, metrics={})
        else:
            from macaw._patch_lightning import Patched

            model = programs.classifier()
            model.configure_optimizers = lambda: torch.optim.SGD(
                model.parameters(), programs.RATE, momentum
            )
            trainer = programs.lightning_trainer()
            loop = Patched(trainer, data=None, local=False, metrics={})
            loop.take_over(lambda: None)
            trainer.fit(model, programs.loader("a", "train"))
        _, steps, _, rates = loop.train(task, Weights(model))
        self.assertEqual(steps, 6)
        return rates.told(steps)

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
