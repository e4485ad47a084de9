"""MOON from Python: which numbers are a row's representation."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

import macaw
from support import TestCase, needs

try:
    import torch
    from torch import nn
except ImportError:
    pass

RULE: dict[str, Any] = {"cohort": 20, "rounds": 3, "workers": {"backend": "torch"}}


def pair(before_relu: bool = False) -> Any:
    """A module that returns logits and the hidden units, after or before the ReLU."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.body = nn.Linear(8, 8)
            self.head = nn.Linear(8, 3)
            self.before_relu = before_relu

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.body(x)
            active = torch.relu(hidden)
            return self.head(active), hidden if self.before_relu else active

    return Pair()


@needs("torch")
class Moon(TestCase):
    def trained(self, name: str, model: Any, **rule: Any) -> list[Any]:
        job = self.job(name, model=model, algorithm=macaw.MOON(**rule), **RULE)
        try:
            run = macaw.simulate(**job)
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error
        return [np.asarray(tensor) for tensor in run.model().values()]

    def test_takes_what_a_module_returns_beside_its_logits(self) -> None:
        net = pair()
        layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        for mine, its in zip(layers.parameters(), net.parameters()):
            mine.data.copy_(its.data)
        of_layers = self.trained("layers", layers, mu=5.0)
        of_module = self.trained("module", net, mu=5.0)
        for one, other in zip(of_layers, of_module, strict=True):
            np.testing.assert_array_equal(one, other)
        elsewhere = self.trained("before", pair(before_relu=True), mu=5.0)
        self.assertGreater(abs(elsewhere[0] - of_module[0]).max(), 1e-5)

    def test_without_the_contrast_is_fedavg(self) -> None:
        moon = self.trained("moon", pair(), mu=0.0)
        fedavg = macaw.simulate(
            **self.job("fedavg", model=pair(), algorithm=macaw.FedAvg(), **RULE)
        )
        for one, other in zip(moon, fedavg.model().values(), strict=True):
            np.testing.assert_array_equal(one, np.asarray(other))

    def test_a_module_of_logits_alone_is_refused_in_the_first_round(self) -> None:
        class Logits(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body = nn.Linear(8, 8)
                self.head = nn.Linear(8, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.head(torch.relu(self.body(x)))

        with self.assertRaisesRegex(macaw.Error, r"return \(logits, representation\)"):
            macaw.simulate(**self.job("none", model=Logits(), algorithm=macaw.MOON(), **RULE))
