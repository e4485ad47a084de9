"""Modules of many kinds: three rounds of each equal PyTorch's, or it is refused by name."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import numpy as np

import macaw
from support import TestCase, needs, rows

try:
    import torch
    from torch import nn
    from torch.nn import functional

    class Body(nn.Module):
        """A layer in a module of one's own: flat rows in, three logits out."""

        def __init__(self, layer: Any, width: int, shape: tuple[int, ...] = (8,)) -> None:
            super().__init__()
            self.layer, self.head, self.shape = layer, nn.Linear(width, 3), shape

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x.reshape((x.size(0), *self.shape)))
            return self.head(torch.flatten(y, 1))

    class Recurrent(nn.Module):
        def __init__(self, layer: Any, width: int) -> None:
            super().__init__()
            self.r, self.head = layer, nn.Linear(width, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, _ = self.r(x.reshape(x.size(0), 4, 2))
            return self.head(y[:, -1])

    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(2, 1, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.reshape(x.size(0), 4, 2)
            return self.head(torch.flatten(self.attention(y, y, y)[0], 1))

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.a(torch.tanh(self.a(x)))))

    class Listed(nn.Module):
        """A list of its own parameters, as recurrent layers have one."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.randn(8, 8) / 3)
            self.second = nn.Parameter(torch.randn(3, 8) / 3)
            self.weights = [self.first, self.second]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.linear(
                torch.tanh(functional.linear(x, self.weights[0])), self.weights[1]
            )

    class Constants(nn.Module):
        """Buffers, one of which no state dict has."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 3)
            self.register_buffer("mu", torch.randn(8), persistent=False)
            self.register_buffer("sigma", torch.rand(8) + 1)
            self.register_buffer("order", torch.arange(7, -1, -1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(((x - self.mu) / self.sigma)[:, self.order])

    class Adapted(nn.Module):
        """A frozen body with an adapter of rank 2."""

        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
            self.down = nn.Parameter(torch.randn(2, 8) / 3)
            self.up = nn.Parameter(torch.randn(8, 2) / 3)
            self.body.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.body(x) + x @ self.down.t() @ self.up.t()))

    class Unscriptable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, **_: Any) -> Any:
            steps = [lambda y: torch.tanh(self.a(y)), self.head]
            for step in steps:
                x = step(x)
            return type("Output", (), {"logits": x})()

    class TwoModes(Unscriptable):
        def forward(self, x: torch.Tensor, **_: Any) -> Any:
            return self.head((lambda y: self.a(y) if self.training else y)(x))

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.ModuleList([nn.ModuleList([nn.Linear(8, 8), nn.Tanh()])] * 2)
            self.table = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(2)])
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for inner in self.steps:
                for layer in inner:
                    x = layer(x)
            for scale in self.table:
                x = x * scale
            return self.head(x)
except ImportError:
    pass


def hooked() -> Any:
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    net[0].register_forward_hook(lambda _, __, y: y * 2)
    return net


def with_tied_layers() -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    net[2].weight = net[0].weight
    return net


def with_shared_layers() -> Any:
    act, inner = nn.Tanh(), nn.Linear(8, 8)
    return nn.Sequential(inner, act, inner, act, nn.Linear(8, 3))


def with_shared_activation() -> Any:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), act, nn.Linear(8, 3))


def frozen() -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    net[0].requires_grad_(False)
    return net


def reparametrized() -> Any:
    norm = getattr(nn.utils.parametrizations, "weight_norm", nn.utils.weight_norm)
    return nn.Sequential(norm(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3))


IMAGE = (1, 2, 4)
# How a run takes it: as layers, a script or a trace.
EQUAL: dict[str, tuple[str, Any]] = {
    "shared activation": ("5 layers", with_shared_activation),
    "shared layer": ("scripted", with_shared_layers),
    "tied layers": ("scripted", with_tied_layers),
    "frozen layer": ("scripted", frozen),
    "hook": ("scripted|traced", hooked),
    "parametrized": ("traced", reparametrized),
    "tied": ("scripted", lambda: Tied()),
    "used twice": ("scripted", lambda: Twice()),
    "list of parameters": ("scripted", lambda: Listed()),
    "buffers": ("scripted", lambda: Constants()),
    "adapter": ("scripted", lambda: Adapted()),
    "logits of an object": ("traced", lambda: Unscriptable()),
    "lists of lists": ("scripted|traced", lambda: Nested()),
    "rnn": ("scripted", lambda: Recurrent(nn.RNN(2, 5, batch_first=True), 5)),
    "lstm": ("scripted", lambda: Recurrent(nn.LSTM(2, 5, 2, batch_first=True), 5)),
    "lstm, both ways": (
        "scripted", lambda: Recurrent(nn.LSTM(2, 5, batch_first=True, bidirectional=True), 10)),
    "lstm, projected": (
        "scripted", lambda: Recurrent(nn.LSTM(2, 5, batch_first=True, proj_size=3), 3)),
    "gru": ("scripted", lambda: Recurrent(nn.GRU(2, 5, batch_first=True), 5)),
    "attention": ("scripted|traced", lambda: Attentive()),
    "encoder": ("scripted|traced", lambda: Body(
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 8, (2, 4))),
    "conv1d": ("scripted", lambda: Body(nn.Conv1d(2, 3, 2), 9, (2, 4))),
    "conv2d with groups": ("scripted", lambda: Body(nn.Conv2d(2, 4, 2, groups=2), 4, (2, 2, 2))),
    "transposed": ("scripted", lambda: Body(nn.ConvTranspose2d(1, 2, 2), 30, IMAGE)),
    "batch norm of images": ("scripted", lambda: Body(
        nn.Sequential(nn.Conv2d(1, 2, (2, 3)), nn.BatchNorm2d(2, eps=1e-3)), 4, IMAGE)),
    "instance norm": ("scripted", lambda: Body(nn.InstanceNorm2d(1, affine=True), 8, IMAGE)),
    "layer norm": ("scripted", lambda: Body(nn.LayerNorm((2, 4)), 8, IMAGE)),
    "prelu": ("scripted", lambda: Body(nn.Sequential(nn.Linear(8, 8), nn.PReLU(8)), 8)),
    "activations": ("scripted", lambda: Body(nn.Sequential(
        nn.Linear(8, 8), nn.SiLU(), nn.ELU(), nn.Softplus(), nn.GELU("tanh"), nn.Hardswish()), 8)),
    "pools": ("scripted", lambda: Body(nn.Sequential(
        nn.AdaptiveAvgPool2d((2, 3)), nn.MaxPool2d(2, 1, padding=1)), 12, IMAGE)),
    "float64": ("2 layers", lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)).double()),
    "float64, scripted": ("scripted", lambda: Tied().double()),
}  # fmt: skip


def odd_parameter(dtype: Any) -> Any:
    net = Tied()
    net.odd = nn.Parameter(torch.ones(2, dtype=dtype))
    return net


REFUSED: dict[str, tuple[str, Any]] = {
    "momentum=None": ("1 is BatchNorm1d.*momentum=None", lambda: nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 3))),
    "max_norm": ("0 is Embedding.*max_norm", lambda: nn.Sequential(
        nn.Embedding(9, 4, max_norm=0.5), nn.Flatten(), nn.Linear(32, 3))),
    "bfloat16": ("0.weight is bfloat16.*net.float", lambda: nn.Sequential(
        nn.Linear(8, 3)).bfloat16()),
    "float16": ("0.weight is float16.*net.float", lambda: nn.Sequential(nn.Linear(8, 3)).half()),
    "complex": ("odd is complex64", lambda: odd_parameter(torch.complex64)),
    "all frozen": ("requires_grad=True", lambda: nn.Linear(8, 3).requires_grad_(False)),
    "lazy": ("call net", lambda: nn.Sequential(nn.LazyLinear(3))),
    "dropout of channels": ("layer.1 is Dropout2d.*p=0.4.*torch.nn.Dropout", lambda: Body(
        nn.Sequential(nn.Conv2d(1, 2, 1), nn.Dropout2d(0.4)), 16, IMAGE)),
    "dropout between layers": ("r is LSTM.*dropout=0.4", lambda: Recurrent(
        nn.LSTM(2, 5, 2, dropout=0.4, batch_first=True), 5)),
    "two modes": ("torch.jit.script refuses.*one mode", lambda: TwoModes()),
    "wrong width": ("layer 1, Linear.*fails on an input of shape .2, 6.", lambda: nn.Sequential(
        nn.Linear(8, 6), nn.Linear(7, 3))),
    "wrong shape": ("Body fails on an input of shape .2, 8.", lambda: Body(nn.Linear(9, 3), 3)),
}  # fmt: skip


def torch_trains(net: Any, x: Any, y: Any, rate: float, rounds: int) -> list[float]:
    """A step of SGD a round, on all rows. Returns the losses before each."""
    like = next(p for p in net.parameters() if p.requires_grad)
    inputs, labels = torch.from_numpy(x).to(like.dtype), torch.from_numpy(y)
    losses = []
    net.train()
    for _ in range(rounds):
        outputs = net(inputs)
        loss = functional.cross_entropy(getattr(outputs, "logits", outputs), labels)
        trained = [p for p in net.parameters() if p.requires_grad]
        with torch.no_grad():
            for parameter, gradient in zip(trained, torch.autograd.grad(loss, trained)):
                parameter -= rate * gradient
        losses.append(loss.item())
    return losses


@needs("torch")
class Modules(TestCase):
    def setUp(self) -> None:
        super().setUp()
        torch.manual_seed(5)

    def job_of(self, net: Any, **more: Any) -> dict[str, Any]:
        x, y = rows(60)
        job = {"partition": macaw.iid(1), "cohort": 1, "rounds": 3, "overwrite": True, "test": None}
        local = {"epochs": 1, "batch_size": 60, "lr": 0.2}
        data = {"data": (x, y), "data_options": {"test_fraction": 0}}
        return self.job("run", model=net, local=local, **{**job, **data, **more})

    def takes(self, make: Any, how: str) -> None:
        torch.manual_seed(5)
        net = make()
        torch.manual_seed(5)
        reference = make()
        run = macaw.simulate(**self.job_of(net))
        said = dict(run.said)
        self.assertRegex(run.said[0][1], how)
        self.assertRegex(said["check"], "losses, gradients and two steps equal")
        x, y = rows(60)
        losses = torch_trains(reference, x, y, 0.2, 3)
        np.testing.assert_allclose([row["train_loss"] for row in run.rows], losses, rtol=1e-5)
        state, expected = run.model(), reference.state_dict()
        self.assertEqual(list(state), list(expected))
        for name, value in expected.items():
            if name.endswith("num_batches_tracked"):
                continue
            error = (state[name] - value).abs().max().item()
            self.assertLess(error, 1e-5 * max(1.0, value.abs().max().item()), name)
        net.load_state_dict(state)

    def test_are_trained_as_in_pytorch(self) -> None:
        for name, (how, make) in EQUAL.items():
            with self.subTest(name):
                try:
                    self.takes(make, how)
                except macaw.MissingBackendError as error:
                    self.skipTest(str(error))

    def test_are_trained_as_in_pytorch_when_they_are_traced(self) -> None:
        names = ("tied", "used twice", "list of parameters", "buffers", "adapter", "lstm", "gru")
        for name in (*names, "attention", "conv1d", "layer norm", "float64, scripted"):
            with (
                self.subTest(name),
                mock.patch.object(torch.jit, "script", side_effect=RuntimeError("not today")),
            ):
                try:
                    self.takes(EQUAL[name][1], "traced.*not today")
                except macaw.MissingBackendError as error:
                    self.skipTest(str(error))

    def test_that_no_run_can_train_are_refused_by_name(self) -> None:
        for name, (said, make) in REFUSED.items():
            with self.subTest(name), self.assertRaisesRegex(macaw.ModelError, said):
                macaw.simulate(**self.job_of(make()))
        self.assertFalse((self.folder / "run").exists())

    def test_drop_by_a_stream_of_the_runs_seed(self) -> None:
        class Drops(Unscriptable):
            def forward(self, x: torch.Tensor, **_: Any) -> Any:
                return self.head((lambda y: functional.dropout(y, 0.5, self.training))(x))

        layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        encoder = nn.TransformerEncoderLayer(2, 1, 8, dropout=0.3, batch_first=True)
        for name, net, said in [
            ("script", Body(layer, 8), "losses and gradients equal"),
            ("attention", Body(encoder, 8, (4, 2)), "losses and gradients equal"),
            ("trace", Drops(), "losses in evaluation mode equal"),
        ]:
            with self.subTest(name):
                try:
                    run = macaw.simulate(**self.job_of(net))
                except macaw.MissingBackendError as error:
                    self.skipTest(str(error))
                self.assertIn(said, dict(run.said)["check"])
                again = macaw.simulate(**self.job_of(net, out=self.folder / "again"))
                self.assertEqual(again.digest, run.digest)
                other = macaw.simulate(**self.job_of(net, out=self.folder / "other", seed=8))
                self.assertNotEqual(other.digest, run.digest)  # one client: by its masks alone

    def test_of_frozen_tensors_send_the_others_alone(self) -> None:
        net = Adapted()
        try:
            run = macaw.simulate(**self.job_of(net))
        except macaw.MissingBackendError as error:
            self.skipTest(str(error))
        sent = macaw.Run(run.folder).model()
        self.assertEqual(sorted(sent), ["down", "head.bias", "head.weight", "up"])

    def test_with_an_unused_parameter_are_told_so(self) -> None:
        net = Tied()
        net.odd = nn.Parameter(torch.ones(2))
        try:
            run = macaw.simulate(**self.job_of(net))
        except macaw.MissingBackendError as error:
            self.skipTest(str(error))
        self.assertIn("odd gets no gradient", dict(run.said)["check"])


if __name__ == "__main__":
    unittest.main()
