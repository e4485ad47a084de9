"""What would be trained is compared with the module before a run, in the module's own PyTorch."""

from __future__ import annotations

import dataclasses
import unittest
from typing import Any
from unittest import mock

import macaw
from macaw import _layers, _model
from support import TestCase, needs, rows

try:
    import torch
    from torch import nn
except ImportError:
    pass


def images() -> tuple[Any, Any]:
    x, y = rows(200)
    return x.reshape(200, 1, 2, 4).repeat(4, 2).repeat(2, 3), y


@needs("torch")
class WhatTrains(TestCase):
    def setUp(self) -> None:
        super().setUp()
        torch.manual_seed(3)

    def run_of(self, net: Any, **more: Any) -> macaw.Run:
        job = self.job("run", model=net, rounds=1, overwrite=True, partition=macaw.iid(4), cohort=2)
        return macaw.simulate(**(job | more))

    def said(self, net: Any, **more: Any) -> str:
        return dict(self.run_of(net, **more).said)["check"]

    def test_is_the_module(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
        self.assertRegex(self.said(net), "losses, gradients and two steps equal .*back end fused")

    def test_is_left_as_it_was(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)).eval()
        before = {name: value.clone() for name, value in net.state_dict().items()}
        drawn = torch.random.get_rng_state()
        self.run_of(net)
        self.assertTrue(torch.equal(torch.random.get_rng_state(), drawn))
        self.assertFalse(net[0].training)
        self.assertIsNone(net[0].weight.grad)
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)

    def test_is_the_module_for_every_task(self) -> None:
        x, y = rows()
        self.said(nn.Sequential(nn.Linear(8, 1)), data=(x, y.astype("float32")))
        self.said(nn.Sequential(nn.Linear(8, 1)), data=(x, y > 1), run={"task": "binary"})

    def test_is_compared_without_dropout(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.3), nn.Linear(6, 3))
        self.assertRegex(self.said(net), "losses and gradients equal.*the rest is random")

    def planted(self, net: Any, change: Any, names: Any = None, **more: Any) -> str:
        """The refusal of a run whose converter has a fault."""
        real = _layers.layers_of

        def faulty(module: Any) -> Any:
            found = real(module)
            assert not isinstance(found, str), found
            return change(found)

        real_names = _layers.names_of
        with (
            mock.patch.object(_model, "layers_of", faulty),
            mock.patch.object(_layers, "names_of", names or real_names),
            self.assertRaises(macaw.ModelError) as caught,
        ):
            self.run_of(net, **more)
        self.assertIn("check_model=False", str(caught.exception))
        self.assertFalse((self.folder / "run").exists())
        return str(caught.exception)

    @staticmethod
    def replaced(old: str, new: str) -> Any:
        def change(layers: list[Any]) -> list[Any]:
            swap = [dataclasses.replace(x, text=x.text.replace(old, new)) for x in layers]
            assert swap != layers, layers
            return swap

        return change

    def test_is_refused_if_a_layer_is_left_out(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
        self.assertIn("loss of row 0", self.planted(net, lambda x: [*x[:3], x[4]]))

    def test_is_refused_if_a_layer_is_another_one(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
        self.planted(net, self.replaced("relu", "tanh"))

    def test_is_refused_if_weights_change_places(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        real = _layers.names_of

        def swapped(layers: Any) -> dict[str, str]:
            names = real(layers)
            names["0.weight"], names["2.weight"] = names["2.weight"], names["0.weight"]
            return names

        self.planted(net, lambda x: x, names=swapped)

    def test_is_refused_if_pools_or_windows_differ(self) -> None:
        net = nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 3)
        )
        self.planted(net, self.replaced("maxpool", "avgpool"), data=images())
        self.assertIn("equal", self.said(net, data=images()))

    def test_is_refused_if_statistics_move_otherwise(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6, momentum=0.3), nn.Linear(6, 3))
        with mock.patch.object(_layers, "_norm", lambda _: True):
            text = self.planted(net, lambda x: x)
        self.assertIn("1.running_mean after the first step", text)

    def test_is_refused_if_a_norm_has_another_epsilon(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6, eps=0.1), nn.Linear(6, 3))
        with mock.patch.object(_layers, "_norm", lambda _: True):
            self.planted(net, lambda x: x)

    def test_is_refused_if_dropout_is_left_out(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.3), nn.Linear(6, 3))
        self.assertIn("drops at random", self.planted(net, lambda x: [x[0], x[2]]))

    def test_is_refused_if_a_hook_is_left_out(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
        net[0].register_forward_hook(lambda _, __, y: y * 2)
        with mock.patch.object(_layers, "_more_than_its_class", lambda _: None):
            self.planted(net, lambda x: x)

    def test_is_refused_if_a_frozen_tensor_is_trained(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
        net[0].weight.requires_grad_(False)
        with mock.patch.object(_layers, "_more_than_its_class", lambda _: None):
            self.assertIn("0.weight", self.planted(net, lambda x: x))

    def test_is_refused_if_tied_weights_come_apart(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        net[2].weight = net[0].weight
        with mock.patch.object(_layers, "_shared", lambda _: None):
            self.assertIn("gradient of 0.weight", self.planted(net, lambda x: x))

    def test_is_not_compared_if_that_is_asked(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
        change = self.replaced("relu", "tanh")
        real = _layers.layers_of
        with mock.patch.object(_model, "layers_of", lambda module: change(real(module))):
            run = self.run_of(net, check_model=False)
        self.assertNotIn("check", dict(run.said))


if __name__ == "__main__":
    unittest.main()
