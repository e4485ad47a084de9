"""PyTorch modules: as layers or as a script, and back."""

from __future__ import annotations

import io
import unittest
import zipfile
from collections import OrderedDict
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _libtorch, _model
from support import TestCase, needs, rows

try:
    import torch
    from torch import nn
except ImportError:
    pass


def with_libtorch(job: dict[str, Any]) -> macaw.Run:
    """A run that the fused kernels cannot train; skips the test where LibTorch is not built in."""
    try:
        return macaw.simulate(**job)
    except macaw.MissingBackendError as error:
        raise unittest.SkipTest(str(error)) from error


def renamed(script: bytes, old: bytes, new: bytes) -> bytes:
    """The file of a script with other words in its code."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(script)) as given, zipfile.ZipFile(made, "w") as file:
        for item in given.infolist():
            content = given.read(item)
            file.writestr(item, content.replace(old, new) if ".py" in item.filename else content)
    return made.getvalue()


@needs("torch")
class ASequential(TestCase):
    def texts(self, *layers: Any) -> Any:
        found = _model.layers_of(nn.Sequential(*layers))
        return found if isinstance(found, str) else [layer.text for layer in found]

    def test_of_layers_that_we_have_becomes_a_list_of_them(self) -> None:
        self.assertEqual(
            self.texts(
                nn.Conv2d(1, 6, 5, padding=2, stride=1), nn.BatchNorm2d(6), nn.ReLU(),
                nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, bias=False), nn.GroupNorm(2, 8), nn.Tanh(),
                nn.AvgPool2d(3, stride=2), nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                nn.Sequential(nn.Dropout(0.25), nn.Linear(8, 4), nn.Sigmoid()),
                nn.Linear(4, 2, bias=False),
            ),
            [
                "conv 6 5 pad 2 stride 1", "batchnorm", "relu", "maxpool 2 stride 2",
                "conv 8 3 pad 0 stride 1 nobias", "groupnorm 2", "tanh", "avgpool 3 stride 2",
                "globalavgpool", "flatten", "dropout 0.25", "linear 4", "sigmoid",
                "linear 2 nobias",
            ],
        )  # fmt: skip

    def test_with_a_layer_that_means_something_else_is_none(self) -> None:
        class Mine(nn.Linear):
            pass

        for layer in [
            nn.Conv2d(1, 2, (3, 5)), nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(1, 2, 3, dilation=2),
            nn.Conv2d(1, 2, 3, padding="same"), nn.MaxPool2d(2, padding=1),
            nn.MaxPool2d(2, ceil_mode=True), nn.BatchNorm1d(3, eps=1e-3), nn.GELU("tanh"),
            nn.BatchNorm1d(3, affine=False), nn.AdaptiveAvgPool2d(2), nn.Flatten(0), Mine(2, 2),
            nn.LayerNorm([2, 3]), nn.LayerNorm(3, eps=1e-6), nn.Embedding(5, 3),
            nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", norm_first=True),
            nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True),
            nn.TransformerEncoderLayer(4, 2, 8, norm_first=True, batch_first=True),
        ]:  # fmt: skip
            self.assertIsInstance(self.texts(nn.Linear(2, 3), layer), str, layer)

    def test_of_tokens_becomes_a_list_of_layers(self) -> None:
        block = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.assertEqual(
            self.texts(nn.Embedding(11, 8), block, nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 11)),
            ["embedding 11 8", "transformer heads 2 ff 16 dropout 0.1", "layernorm", "gelu",
             "linear 11"],
        )  # fmt: skip
        self.assertIsInstance(self.texts(nn.Embedding(11, 8, padding_idx=0)), str)
        self.assertIsInstance(self.texts(nn.Conv2d(1, 2, 3), nn.LayerNorm(26)), str)
        self.assertIsInstance(self.texts(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LayerNorm(8)), list)

    def test_of_tokens_takes_the_step_that_pytorch_takes(self) -> None:
        torch.manual_seed(1)
        block = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        net = nn.Sequential(
            nn.Embedding(11, 8), block, nn.LayerNorm(8), nn.GELU(), nn.Flatten(), nn.Linear(48, 3)
        ).double()
        rng = np.random.default_rng(2)
        x, y = rng.integers(11, size=(40, 6)).astype(np.int32), rng.integers(3, size=40)
        run = with_libtorch(
            self.job(
                "run", model=net, data=(x, y), test=(x[:5], y[:5]), partition=macaw.iid(1),
                cohort=1, rounds=1, local={"epochs": 1, "batch_size": 40, "lr": 0.5},
                run={"task": "classification", "dtype": "float64"},
            )
        )  # fmt: skip
        loss = nn.functional.cross_entropy(net(torch.from_numpy(x).long()), torch.from_numpy(y))
        loss.backward()
        self.assertAlmostEqual(run.rows[-1]["train_loss"], loss.item(), places=9)
        state = run.model()
        for name, weight in net.named_parameters():
            step = (weight - state[name]) / 0.5
            self.assertLess((step - weight.grad).abs().max().item(), 1e-9, name)

    def test_of_sequences_of_numbers_takes_the_rounds_that_pytorch_takes(self) -> None:
        torch.manual_seed(4)
        net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Flatten(), nn.Linear(35, 3))
        rng = np.random.default_rng(5)
        data = {
            f"sensor {i}": (
                rng.normal(size=(rows, 7, 6)).astype(np.float32),
                rng.integers(3, size=rows),
            )
            for i, rows in enumerate((9, 20, 13))
        }
        test = rng.normal(size=(40, 7, 6)).astype(np.float32), rng.integers(3, size=40)
        # Steps over all rows of a client, so that their order does not matter.
        run = macaw.simulate(
            **self.job(
                "run", model=net, data=data, test=test, partition={"scheme": "natural"},
                cohort=3, rounds=4, local={"epochs": 3, "batch_size": 0, "lr": 0.3},
            )
        )  # fmt: skip
        self.assertEqual(run.summary["profile"]["trainer"], "fused")
        start = {name: value.clone() for name, value in net.state_dict().items()}
        for _ in range(4):
            mean = {name: torch.zeros_like(value) for name, value in start.items()}
            for x, y in data.values():
                net.load_state_dict(start)
                descent = torch.optim.SGD(net.parameters(), lr=0.3)
                for _ in range(3):
                    descent.zero_grad()
                    outputs = net(torch.from_numpy(x))
                    nn.functional.cross_entropy(outputs, torch.from_numpy(y)).backward()
                    descent.step()
                for name, value in net.state_dict().items():
                    mean[name] += value * (len(y) / 42)
            start = mean
        for name, value in run.model().items():
            self.assertLess((value - start[name]).abs().max().item(), 1e-5, name)
        net.load_state_dict(start)
        outputs, labels = net(torch.from_numpy(test[0])), torch.from_numpy(test[1])
        loss = nn.functional.cross_entropy(outputs, labels).item()
        self.assertAlmostEqual(run.summary["final"]["test_loss"], loss, places=5)
        accuracy = (outputs.argmax(1) == labels).float().mean().item()
        self.assertAlmostEqual(run.summary["final"]["test_accuracy"], accuracy, places=6)

    def test_starts_from_its_weights_and_gets_them_back(self) -> None:
        body = OrderedDict(first=nn.Linear(8, 8), act=nn.ReLU())
        net = nn.Sequential(OrderedDict(body=nn.Sequential(body), head=nn.Linear(8, 3)))
        before = {name: value.clone() for name, value in net.state_dict().items()}
        still = macaw.simulate(**self.job("still", model=net, local={"lr": 1e-30}))
        for name, value in still.model().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertIn("3 layers", still.said[0][1])
        run = macaw.simulate(**self.job("run", model=net))
        state = run.model()
        self.assertEqual(list(state), list(before))
        self.assertFalse(torch.equal(state["head.weight"], before["head.weight"]))
        net.load_state_dict(state)
        as_layers = macaw.Run(run.folder).model()
        np.testing.assert_array_equal(as_layers["2.weight"], net.head.weight.detach().numpy())
        # A run that was opened, and no module: the same names come from the module given here.
        self.assertTrue(torch.equal(macaw.Run(run.folder).model(net)["head.bias"], net.head.bias))
        with self.assertRaises(macaw.ModelError):
            run.model(nn.Sequential(nn.Linear(8, 4)))

    def test_has_the_loss_that_pytorch_computes(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        test = rows(100, seed=3)
        run = with_libtorch(self.job("run", model=net, test=test, partition=macaw.iid(20)))
        net.load_state_dict(run.model())
        net.eval()
        x, y = map(torch.from_numpy, test)
        loss = nn.functional.cross_entropy(net(x), y).item()
        self.assertAlmostEqual(run.summary["final"]["test_loss"], loss, places=5)

    def test_with_weights_of_its_own_takes_no_others(self) -> None:
        with self.assertRaises(macaw.ModelError):
            macaw.simulate(**self.job("run", model=nn.Sequential(nn.Linear(8, 3)), init="zero"))


@needs("torch")
class AnotherModule(TestCase):
    def test_that_another_libtorch_does_not_read_names_both_versions(self) -> None:
        class Own(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(8, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.relu(self.layer(x))

        write = _model._safetensors.write_pieces

        def newer(folder: Any, ending: str, pieces: Any) -> Any:
            """As a PyTorch writes it that has an operation which this LibTorch lacks."""
            if ending == ".pt":
                pieces = [renamed(pieces[0], b"torch.relu", b"torch.relu_of_2099")]
            return write(folder, ending, pieces)

        with (
            mock.patch.object(_model._safetensors, "write_pieces", newer),
            mock.patch.object(_libtorch, "installed", lambda: "2.99.0"),
            mock.patch.object(_libtorch, "needed", lambda: "2.11.0"),
            mock.patch.object(_libtorch, "check", lambda: None),
            self.assertRaises(macaw.Error) as caught,
        ):
            with_libtorch(self.job("run", model=Own()))
        said = str(caught.exception)
        for word in ("relu_of_2099", "PyTorch 2.99.0", "LibTorch 2.11.0", "train=fn",
                     "pip install torch==2.11.0", "./dev wheel --torch 2.99.0"):  # fmt: skip
            self.assertIn(word, said)

    def test_is_scripted_and_trained_by_libtorch(self) -> None:
        class Residual(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.head(x + torch.tanh(self.inner(x)))

        net = Residual()
        before = net.head.weight.detach().clone()
        run = with_libtorch(self.job("run", model=net))
        self.assertIn("scripted", run.said[0][1])
        net.load_state_dict(run.model())
        self.assertFalse(torch.equal(net.head.weight, before))

    def test_may_return_a_dict_with_logits(self) -> None:
        class InADict(nn.Module):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.head = nn.Linear(8, 3)
                self.name = name

            def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
                return {self.name: self.head(x), "x": x}

        net, alone = InADict("logits"), nn.Sequential(OrderedDict(head=nn.Linear(8, 3)))
        alone.load_state_dict(net.state_dict())
        options = {"workers": {"backend": "torch"}, "local": {"batch_size": 0}}
        found = with_libtorch(self.job("run", model=net, **options)).model()
        wanted = with_libtorch(self.job("alone", model=alone, **options)).model()
        for name, tensor in wanted.items():
            np.testing.assert_allclose(found[name], tensor, atol=1e-6)
        with self.assertRaisesRegex(macaw.ModelError, "returns dict of scores, x"):
            macaw.simulate(**self.job("refused", model=InADict("scores")))

    def test_may_return_more_than_logits_and_a_representation(self) -> None:
        class Three(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(8, 3)

            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
                return self.head(x), x, 1

        run = with_libtorch(self.job("run", model=Three(), rounds=1))
        self.assertIn("traced", run.said[0][1])

    def test_of_one_output_may_return_a_number_a_row(self) -> None:
        class Squeezed(nn.Module):
            def __init__(self, squeeze: bool) -> None:
                super().__init__()
                self.head = nn.Linear(8, 1)
                self.squeeze = squeeze

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                found = self.head(x)
                return found.squeeze() if self.squeeze else found

        x, y = rows()
        nets, models = [Squeezed(False), Squeezed(True)], []
        nets[1].load_state_dict(nets[0].state_dict())
        for number, net in enumerate(nets):
            job = self.job(str(number), model=net, data=(x, y.astype(np.float32)), partition=None,
                           cohort=10, local={"lr": 0.05, "batch_size": 5})  # fmt: skip
            models.append(with_libtorch(job).model())
        for name, tensor in models[0].items():
            np.testing.assert_array_equal(models[1][name], tensor)

    def test_that_cannot_be_scripted_is_refused_with_the_reason(self) -> None:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(8, 3)

            def forward(self, *x: Any) -> Any:
                return "logits" if len(x) else None

        with self.assertRaisesRegex(macaw.ModelError, "jit.script refuses.*returns no tensor"):
            macaw.simulate(**self.job("run", model=Odd()))
