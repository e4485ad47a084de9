"""macaw.patch: programs with a Trainer of Hugging Face or Lightning as clients.

| a patched trainer and … | test |
|---|---|
| the trainer alone, from the same weights | test_trains_as_it_does_alone, of both |
| the optimizer's state | the same: it has momentum |
| an optimizer of the caller's | HuggingFace.test_resets_an_optimizer_that_it_was_given |
| rows, steps, losses, evaluation | test_reports_what_the_trainer_reports |
| [local] of the run | test_takes_the_rate_and_epochs_of_the_run |
| … and an optimizer of the caller's | HuggingFace.test_takes_the_rate_of_the_run_with_… |
| FedProx | test_adds_the_correction_of_a_rule; clipped gradients: Lightning.…_behind_the_clip |
| SCAFFOLD, FedNova | Lightning.test_scaffold_…; test_trainer_turns.py; Adam: Refusals |
| gradient_checkpointing | HuggingFace.test_computes_activations_again_… |
| a module that moves to a GPU | AModule of test_trainer_turns.py |
| callbacks, counters | Both.test_stop_early_in_each_turn_anew of test_trainer_runs.py |
| clients, workers, a resume, a fleet, no worker | test_trainer_runs.py |
| wrong rows, models, trainers | Refusals there |
| several processes: DDP, FSDP; one that dies | test_ranks.py |
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import trainer_programs as programs
from trainer_case import TrainerCase

import macaw


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


if __name__ == "__main__":
    unittest.main()
