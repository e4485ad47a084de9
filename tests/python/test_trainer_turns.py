"""What a turn of a patched trainer is made of: weights in its module, and rates of its steps."""

from __future__ import annotations

import unittest
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import trainer_programs as programs
from trainer_case import TrainerCase

from macaw._patch import Turn
from macaw._rates import Rates, set_rate
from macaw._weights import Weights


class AModule(TrainerCase):
    def test_may_have_other_buffers_in_each_turn(self) -> None:
        """As Lightning moves it to a GPU and back."""
        module = torch.nn.BatchNorm1d(3)
        module.register_buffer("seen", torch.zeros(2))
        start = {n: t.numpy().copy() for n, t in module.state_dict().items() if n != "seen"}
        task = SimpleNamespace(
            mu=1.0, anchor=start, correction=None, trainable={"weight", "bias"}
        )
        weights = Weights(module)
        for _ in range(2):
            weights.load(start, task)
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


class ATurn(TrainerCase):
    def test_tell_the_rates_of_their_steps(self) -> None:
        task = SimpleNamespace(
            kind="train", name="a", split="train", rows=programs.TRAINED, mu=0, correction=None,
            local={"steps": 0}, trainable=None, trial=False,
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
        start = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
        _, steps, _, rates = loop.train(task, Turn(Weights(model), start, task))
        self.assertEqual(steps, 6)
        return rates.told(steps)


if __name__ == "__main__":
    unittest.main()
