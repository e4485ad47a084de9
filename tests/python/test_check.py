"""What would be trained is compared with the module before a run, in the module's own PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import unittest
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _layers, _model, _trace
from support import TestCase, needs, rows

try:
    import torch
    from torch import nn

    class StochasticDepth(nn.Module):
        """As torchvision's: whole rows of a block are dropped."""

        def __init__(self, p: float) -> None:
            super().__init__()
            self.p = p

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.training or self.p == 0.0:
                return x
            noise = torch.empty([x.size(0), 1], dtype=x.dtype, device=x.device)
            noise = noise.bernoulli_(1.0 - self.p)
            return x * noise.div_(1.0 - self.p)

    class Deep(nn.Module):
        """Norms behind norms, which are steep where a batch has two rows."""

        def __init__(self) -> None:
            super().__init__()
            layers: list[Any] = []
            for _ in range(8):
                layers += [nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()]
            self.body = nn.Sequential(nn.Linear(8, 16), *layers)
            self.head = nn.Linear(16, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))

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

    def test_is_a_module_whose_norms_are_steep(self) -> None:
        self.assertIn("two steps equal", self.said(Deep()))

    def test_is_a_module_that_drops_blocks_at_random(self) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)
                self.drop = StochasticDepth(0.4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.second(x + self.drop(torch.tanh(self.first(x))))

        self.assertIn("losses and gradients equal", self.said(Net()))
        torch.manual_seed(3)
        net = Net()
        self.assertEqual(self.run_of(net).digest, self.run_of(net).digest)

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

    def test_is_the_module_whose_dropout_drops_nothing(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.0), nn.Linear(6, 3))
        self.assertIn("two steps equal", self.said(net))

    def test_is_the_module_with_frozen_statistics(self) -> None:
        class Net(nn.Module):
            def __init__(self, body: Any) -> None:
                super().__init__()
                self.body = body

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.body(x)

        body = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
        for net in (body, Net(body)):
            with self.subTest(type(net).__name__):
                frozen = {"model_options": {"buffers": "server"}}
                self.assertIn("two steps equal", self.said(net, **frozen))
                self.assertTrue(net.training)
                run = self.run_of(net, **frozen)
                mean = next(v for n, v in run.model().items() if n.endswith("running_mean"))
                self.assertEqual(float(np.abs(np.asarray(mean)).max()), 0)

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

    def test_is_refused_if_tied_weights_come_apart(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        net[2].weight = net[0].weight
        with mock.patch.object(_layers, "_shared", lambda _: None):
            self.assertIn("gradient of 0.weight", self.planted(net, lambda x: x))

    # Faults of the converter of layers: what it reads, and what it would have to see there.

    def text_of(self, kind: str, text: str, layer: Any, width: int, **more: Any) -> str:
        """The refusal of a run in which a layer of this kind is always that text."""
        net = nn.Sequential(nn.Linear(8, 8), layer, nn.Linear(width, 3))
        with mock.patch.dict(_layers._KINDS, {kind: lambda _: text}):
            return self.planted(net, lambda x: x, **more)

    def test_is_refused_if_an_activation_is_read_wrongly(self) -> None:
        self.assertIn("loss of row 0", self.text_of("GELU", "gelu", nn.GELU("tanh"), 8))

    def test_is_refused_if_a_norm_is_read_wrongly(self) -> None:
        self.text_of("LayerNorm", "layernorm", nn.LayerNorm(8, eps=0.1), 8)

    def test_is_refused_if_a_bias_is_left_out(self) -> None:
        net = nn.Sequential(nn.Linear(8, 3))
        with mock.patch.dict(
            _layers._KINDS, {"Linear": lambda m: f"linear {m.out_features} nobias"}
        ):
            real = _layers.names_of
            with mock.patch.object(
                _layers, "names_of", lambda x: {k: v for k, v in real(x).items() if "bias" not in k}
            ):
                self.planted(net, lambda x: x, names=_layers.names_of)

    def test_is_refused_if_groups_are_read_wrongly(self) -> None:
        net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.GroupNorm(4, 4), nn.Flatten(), nn.Linear(256, 3))
        self.planted(net, self.replaced("groupnorm 4", "groupnorm 2"), data=images())

    def test_is_refused_if_padding_is_read_wrongly(self) -> None:
        rng = np.random.default_rng(2)
        x, y = rng.integers(5, size=(200, 6)).astype(np.int32), rng.integers(3, size=200)
        net = nn.Sequential(nn.Embedding(5, 4, padding_idx=1), nn.Flatten(), nn.Linear(24, 3))
        with mock.patch.dict(_layers._KINDS, {"Embedding": lambda _: "embedding 5 4"}):
            said = self.planted(net, lambda x: x, data=(x, y), run={"task": "classification"})
        self.assertIn("gradient of 0.weight", said)

    def test_looks_at_the_first_client_that_has_rows_without_padding(self) -> None:
        rng = np.random.default_rng(2)
        x, y = rng.integers(5, size=(40, 6)), rng.integers(3, size=40)
        data = {"short": ([list(row[:3]) for row in x[:20]], y[:20]),
                "whole": ([list(row) for row in x[20:]], y[20:])}  # fmt: skip
        net = nn.Sequential(nn.Embedding(5, 4, padding_idx=1), nn.Flatten(), nn.Linear(24, 3))
        job = dict(data=data, partition=None, cohort=2, run={"task": "classification"})
        with mock.patch.dict(_layers._KINDS, {"Embedding": lambda _: "embedding 5 4"}):
            self.assertIn("gradient of 0.weight", self.planted(net, lambda x: x, **job))

    def test_is_refused_if_frozen_names_are_wrong(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        net[0].requires_grad_(False)
        for names, said in [
            ([], "0.weight after the first step"),
            (["0.weight"], "0.bias after the first step"),
            (["0.weight", "0.bias", "2.bias"], "gradient of 2.bias"),
        ]:
            with self.subTest(names), mock.patch.object(_layers, "frozen", lambda _, n=names: n):
                self.assertIn(said, self.planted(net, lambda x: x))

    # Faults of scripts and traces.

    def other_script(self, change: Any) -> str:
        """The refusal of a run whose script is of a module that was changed on the way."""

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.norm, self.head = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.head(torch.tanh(self.norm(self.a(x))))

        real = _trace.save_script

        def faulty(module: Any, example: Any, buffer: Any) -> None:
            module = copy.deepcopy(module)
            real(change(module) or module, example, buffer)

        with (
            mock.patch.object(_trace, "save_script", faulty),
            self.assertRaises(macaw.ModelError) as caught,
        ):
            self.run_of(Net())
        self.assertIn("check_model=False", str(caught.exception))
        return str(caught.exception)

    def test_is_refused_if_a_script_has_other_weights(self) -> None:
        def change(net: Any) -> None:
            net.head.weight.data *= 1.1

        self.assertIn("loss of row 0", self.other_script(change))

    def test_is_refused_if_a_script_has_frozen_a_tensor(self) -> None:
        def change(net: Any) -> None:
            net.a.bias.requires_grad_(False)

        self.assertIn("trains a.bias", self.other_script(change))

    def test_is_refused_if_a_script_moves_statistics_otherwise(self) -> None:
        def change(net: Any) -> None:
            net.norm.momentum = 0.3

        self.assertIn("norm.running_mean after the first step", self.other_script(change))

    def both_modes(self, fault: Any) -> str:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 3)

            def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
                return self.head((lambda y: self.norm(y))(x))

        real = _trace._switching
        with (
            mock.patch.object(_trace, "_switching", lambda a, b: fault(real, a, b)),
            self.assertRaises(macaw.ModelError) as caught,
        ):
            self.run_of(Net())
        return str(caught.exception)

    def test_is_refused_if_a_trace_keeps_one_mode(self) -> None:
        self.assertIn("loss of row 0", self.both_modes(lambda real, train, _: real(train, train)))
        said = self.both_modes(lambda real, _, evaluate: real(evaluate, evaluate))
        self.assertIn("gradient of", said)

    def test_is_refused_if_two_modes_change_places(self) -> None:
        self.assertIn("loss of row 0", self.both_modes(lambda real, a, b: real(b, a)))

    def test_is_not_compared_if_that_is_asked(self) -> None:
        net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
        change = self.replaced("relu", "tanh")
        real = _layers.layers_of
        with mock.patch.object(_model, "layers_of", lambda module: change(real(module))):
            run = self.run_of(net, check_model=False)
        self.assertNotIn("check", dict(run.said))


if __name__ == "__main__":
    unittest.main()
