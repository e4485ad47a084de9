"""Modules of many kinds: three rounds of each equal PyTorch's, or it is refused by name."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _module_keys, _safetensors
from support import TestCase, needs, rows

try:
    import torch
    import zoo
    from torch import nn
    from torch.nn import functional
    from zoo import IMAGE, Body, Recurrent, Tied
except ImportError:
    pass


def odd_parameter(dtype: Any) -> Any:
    net = Tied()
    net.odd = nn.Parameter(torch.ones(2, dtype=dtype))
    return net


def hooked(register: str) -> Any:
    net = nn.Sequential(nn.Linear(8, 3))
    getattr(net[0].weight, register)(lambda gradient: None)
    return net


def counting() -> Any:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(8, 3)
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.seen.add_(1)
            return self.body(x)

    return Counting()


def replacing() -> Any:
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(8, 3)
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.seen += 1
            return self.body(x) * (1 + self.seen)

    return Replacing()


class Noisy:
    """Made a module's function: noise that no layer tells of."""

    @staticmethod
    def of(net: Any) -> Any:
        class Noise(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.net(x + torch.randn_like(x))

        return Noise()


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
    "no statistics": ("1 is BatchNorm1d.*track_running_stats", lambda: nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3))),
    "hook": ("0.weight has a hook.*register_hook.*train=f", lambda: hooked("register_hook")),
    "sparse": ("0 is Embedding.*sparse=True", lambda: nn.Sequential(
        nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(32, 3))),
    "spectral norm": ("spectral_norm.*train=fn", lambda: nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(8, 3)))),
    "spectral norm, as a parametrization": ("spectral_norm.*train=fn", lambda: nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)))),
    "lazy": ("call net", lambda: nn.Sequential(nn.LazyLinear(3))),
    "random pool": ("layer is FractionalMaxPool2d.*train=fn", lambda: Body(
        nn.FractionalMaxPool2d(2, output_ratio=0.6), 2, (1, 4, 2))),
    "wrong width": ("layer 1, Linear.*fails on an input of shape .2, 6.", lambda: nn.Sequential(
        nn.Linear(8, 6), nn.Linear(7, 3))),
    "wrong shape": ("Body fails on an input of shape .2, 8.", lambda: Body(nn.Linear(9, 3), 3)),
}  # fmt: skip


def torch_trains(net: Any, x: Any, y: Any, rate: float, rounds: int) -> list[float]:
    """A step of SGD a round, on all rows. Returns the losses before each."""
    like = next(p for p in net.parameters() if p.requires_grad)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    inputs = inputs.to(like.dtype) if inputs.is_floating_point() else inputs.long()
    losses = []
    net.train()
    for _ in range(rounds):
        outputs = net(inputs)
        loss = functional.cross_entropy(getattr(outputs, "logits", outputs), labels)
        trained = [p for p in net.parameters() if p.requires_grad]
        with torch.no_grad():
            found = torch.autograd.grad(loss, trained, allow_unused=True)
            for parameter, gradient in zip(trained, found):
                if gradient is not None:
                    parameter -= rate * gradient
        losses.append(loss.item())
    return losses


@contextmanager
def without_scripts() -> Iterator[None]:
    """torch.jit.script takes nothing but what chooses between two traces."""
    script = torch.jit.script

    def refuses(net: Any) -> Any:
        if type(net).__name__ == "Switching":
            return script(net)
        raise RuntimeError("not today")

    with mock.patch.object(torch.jit, "script", side_effect=refuses):
        yield


@needs("torch")
class Modules(TestCase):
    def setUp(self) -> None:
        super().setUp()
        torch.manual_seed(5)

    def job_of(self, net: Any, **more: Any) -> dict[str, Any]:
        job = {"partition": macaw.iid(1), "cohort": 1, "rounds": 3, "overwrite": True, "test": None}
        local = {"epochs": 1, "batch_size": 60, "lr": 0.2}
        data = {"data": rows(60), "data_options": {"test_fraction": 0}}
        return self.job("run", model=net, local=local, **{**job, **data, **more})

    def run_of(self, net: Any, **more: Any) -> macaw.Run:
        try:
            return macaw.simulate(**self.job_of(net, **more))
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error

    def takes(self, make: Any, how: str, **more: Any) -> macaw.Run:
        torch.manual_seed(5)
        net = make()
        torch.manual_seed(5)
        reference = make()
        run = self.run_of(net, **more)
        said = dict(run.said)
        self.assertRegex(run.said[0][1], how)
        self.assertRegex(said["check"], "losses, gradients and two steps equal")
        x, y = more.get("data") or rows(60)
        losses = torch_trains(reference, x, y, 0.2, 3)
        np.testing.assert_allclose([row["train_loss"] for row in run.rows], losses, rtol=1e-5)
        state, expected = run.model(), reference.state_dict()
        self.assertEqual(list(state), list(expected))
        for name, value in expected.items():
            if value.is_floating_point():
                error = (state[name] - value).abs().max().item()
                self.assertLess(error, 1e-5 * max(1.0, value.abs().max().item()), name)
        net.load_state_dict(state)
        return run

    def test_of_torch_are_trained_as_in_pytorch(self) -> None:
        self.takes(lambda: zoo.Means(zoo.LAYERS), "Means scripted")

    def test_of_torch_are_trained_as_in_pytorch_when_they_are_traced(self) -> None:
        if not zoo.MODERN:
            self.skipTest("traces of PyTorch before 2.0 keep the number of rows")
        with without_scripts():
            self.takes(lambda: zoo.Means(zoo.LAYERS), "Means traced in both modes.*not today")

    def test_of_torch_are_trained_as_in_pytorch_in_float64(self) -> None:
        self.takes(lambda: zoo.Means(zoo.LAYERS).double(), "Means scripted")

    def test_that_people_write_are_trained_as_in_pytorch(self) -> None:
        self.takes(lambda: zoo.Means(zoo.OWN), "Means scripted")
        with without_scripts():
            self.takes(lambda: zoo.Means(zoo.OWN), "Means traced, .*not today")
        self.takes(lambda: zoo.MeansOfAny(zoo.OWN | zoo.TRACED), "MeansOfAny traced in both modes")

    def test_with_another_function_in_evaluation_are_traced_in_both_modes(self) -> None:
        for make in (zoo.TwoModes, zoo.UnscriptableNorm):
            self.takes(make, "traced in both modes")

    def doubts_of(self, net: Any, **more: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.run_of(net, **more)
        return [str(warning.message) for warning in caught]

    def test_that_are_traced_are_doubted_only_where_they_are_not_compared(self) -> None:
        class Counts(zoo.Unscriptable):
            def forward(self, x: Any) -> Any:
                warnings.warn("the module's own", stacklevel=1)
                return super().forward(x * int(x.abs().sum() >= 0))

        compared, alone = self.doubts_of(Counts()), self.doubts_of(Counts(), check_model=False)
        self.assertFalse([text for text in compared if "Python integer" in text], compared)
        self.assertEqual(len([text for text in alone if "Python integer" in text]), 1, alone)
        self.assertIn("the module's own", compared)

    def test_that_branch_on_values_are_doubted_also_where_they_are_compared(self) -> None:
        class Branches(zoo.Unscriptable):  # no row that is compared takes the other branch
            def forward(self, x: Any) -> Any:
                return super().forward(x) if bool(x.abs().max() < 1e6) else x

        for more in ({}, {"check_model": False}):
            said = [text for text in self.doubts_of(Branches(), **more) if "Python boolean" in text]
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], r"one branch: forward decides at test_modules.py:\d+ by")
            self.assertIn("torch.where", said[0])

    def test_with_frozen_statistics_are_trained(self) -> None:
        """As those with torchvision's FrozenBatchNorm2d, which has no momentum."""

        class Frozen(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("running_mean", torch.ones(8))
                self.register_buffer("running_var", torch.full((8,), 2.0))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x - self.running_mean) * self.running_var.rsqrt()

        self.run_of(nn.Sequential(Frozen(), nn.Linear(8, 3)))

    def test_that_were_traced_by_hand_with_a_norm_are_told_the_way(self) -> None:
        net = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
        trace = torch.jit.trace(net, torch.randn(4, 8), check_trace=False)
        with self.assertRaisesRegex(macaw.ModelError, r"1 is .*of a trace.*torch.jit.script"):
            self.run_of(trace)

    def test_are_tried_on_rows_that_are_where_they_are(self) -> None:
        for dtype in (np.float32, np.uint8, np.int32):
            features = {"features": np.zeros((3, 8), dtype)}
            file = _safetensors.write_by_content(self.folder, features, {})
            settings = {"data.source": "prepared", "data.path": file}
            x = _module_keys.example(settings, nn.Linear(8, 3, device="meta"))
            self.assertEqual((x.device.type, list(x.shape)), ("meta", [2, 8]))

    def test_with_an_empty_parameter_are_refused_by_its_name(self) -> None:
        net = Tied()
        net.none = nn.Parameter(torch.zeros(0, 3))
        with self.assertRaisesRegex(macaw.ModelError, r"none has the shape \[0, 3\].*leave it out"):
            self.run_of(net)

    def test_whose_weights_are_computed_from_others_are_copied(self) -> None:
        net = nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 5)), nn.ReLU(), nn.Linear(5, 3))
        x, y = rows(50, seed=2)
        run = self.run_of(net, test=(x, y), evaluation={"every": 1},
                          metrics={"own": lambda y, scores: (scores.argmax(1) == y).mean()})
        np.testing.assert_allclose(run.metrics["own"], run.metrics["test_accuracy"], atol=1e-6)
        with torch.no_grad():
            loss = functional.cross_entropy(run.module()(torch.from_numpy(x)), torch.from_numpy(y))
        self.assertAlmostEqual(run.rows[-1]["test_loss"], loss.item(), places=5)

    def test_of_tokens_are_trained_as_in_pytorch(self) -> None:
        class Bag(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bag = nn.EmbeddingBag(9, 4, mode="mean")
                self.words = nn.Embedding(9, 4, padding_idx=2, scale_grad_by_freq=True)
                self.r, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(8, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y, _ = self.r(self.words(x))
                return self.head(torch.cat([self.bag(x), y[:, -1]], 1))

        rng = np.random.default_rng(3)
        x, y = rng.integers(9, size=(60, 6)).astype(np.int32), rng.integers(3, size=60)
        self.takes(Bag, "scripted", data=(x, y), run={"task": "classification"})

    def test_as_layers_are_trained_as_in_pytorch(self) -> None:
        self.takes(zoo.with_shared_activation, "5 layers")
        self.takes(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3)).double(), "2 layers")
        for layers in ((0,), (2,), (0, 2), (2, 4)):
            run = self.takes(lambda layers=layers: zoo.frozen(*layers), "5 layers.*frozen")
            self.assertEqual(run.summary["profile"]["trainer"], "fused")
            state, start = run.model(), self.start(layers)
            for name, value in start.items():
                moved = not torch.equal(state[name], value)
                self.assertEqual(moved, int(name[0]) not in layers, name)

    def start(self, layers: tuple[int, ...]) -> Any:
        torch.manual_seed(5)
        return zoo.frozen(*layers).state_dict()

    def test_that_no_run_can_train_are_refused_by_name(self) -> None:
        for name, (said, make) in REFUSED.items():
            with self.subTest(name), self.assertRaisesRegex(macaw.ModelError, said):
                macaw.simulate(**self.job_of(make()))
        self.assertFalse((self.folder / "run").exists())

    def test_that_count_batches_are_refused_by_the_buffers_name(self) -> None:
        try:
            with self.assertRaisesRegex(macaw.ModelError, "seen is a buffer of int64.*as a float"):
                macaw.simulate(**self.job_of(counting()))
        except macaw.MissingBackendError as error:
            self.skipTest(str(error))

    def test_that_replace_their_buffers_are_told_to_change_them_in_place(self) -> None:
        try:
            with self.assertRaisesRegex(macaw.Error, r"in place \(self\.seen\.add_\(1\)"):
                macaw.simulate(**self.job_of(replacing()))
        except macaw.MissingBackendError as error:
            self.skipTest(str(error))

    def test_of_convolutions_are_told_how_gray_images_are_given(self) -> None:
        images = np.zeros((60, 8, 8), np.uint8), np.arange(60) % 3
        for model in (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)),
            ["conv 2 3", "flatten", "linear 3"],
        ):
            with self.assertRaisesRegex(macaw.Error, r"gray images.*x\[:, None\]"):
                macaw.simulate(**self.job("gray", model=model, data=images))

    def test_that_are_compiled_are_refused(self) -> None:
        if not hasattr(torch, "compile"):
            self.skipTest("PyTorch before 2.0 compiles nothing")
        with self.assertRaisesRegex(macaw.ModelError, "compiled.*_orig_mod"):
            macaw.simulate(**self.job_of(torch.compile(nn.Linear(8, 3))))

    def test_that_draw_other_numbers_are_refused_by_the_ops_name(self) -> None:
        try:
            with self.assertRaisesRegex(macaw.Error, "random numbers .aten::randn_like"):
                macaw.simulate(**self.job_of(Noisy.of(nn.Linear(8, 3))))
        except macaw.MissingBackendError as error:
            self.skipTest(str(error))
        self.assertFalse((self.folder / "run").exists())

    def test_drop_by_a_stream_of_the_runs_seed(self) -> None:
        class Drops(zoo.Unscriptable):
            def forward(self, x: torch.Tensor, **_: Any) -> Any:
                return self.head((lambda y: functional.dropout(y, 0.5, self.training))(x))

        encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True)
        compared = "losses and gradients equal"
        nets = {
            "numbers": lambda: Body(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), 8),
            "in place": lambda: Body(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5, True)), 8),
            "channels": lambda: Body(
                nn.Sequential(nn.Conv2d(1, 4, 1), nn.Dropout2d(0.4)), 32, IMAGE
            ),
            "channels of rows": lambda: Body(nn.Dropout1d(0.4), 8, (4, 2)),
            "channels of cubes": lambda: Body(nn.Dropout3d(0.4), 8, (4, 2, 1, 1)),
            "selu": lambda: Body(nn.Sequential(nn.SELU(), nn.AlphaDropout(0.3)), 8),
            "channels of selu": lambda: Body(nn.FeatureAlphaDropout(0.3), 8, (4, 2)),
            "slopes": lambda: Body(nn.RReLU(), 8),
            "lstm": lambda: Recurrent(nn.LSTM(2, 5, 2, dropout=0.4, batch_first=True), 5),
            "gru": lambda: Recurrent(nn.GRU(2, 5, 3, dropout=0.4, batch_first=True), 5),
            "rnn": lambda: Recurrent(nn.RNN(2, 5, 2, dropout=0.4, bidirectional=True), 10),
            "attention": lambda: Body(encoder, 8, (2, 4)),
        }
        self.seeds(zoo.Means(nets), compared)
        self.seeds(Drops(), "losses in evaluation mode equal")

    def seeds(self, net: Any, said: str) -> None:
        """Two runs with one seed are equal, and one with another is not: one client, all rows."""
        run = self.run_of(net)
        self.assertIn(said, dict(run.said)["check"])
        unchecked = {"check_model": False}
        again = self.run_of(net, out=self.folder / "again", **unchecked)
        self.assertEqual(again.digest, run.digest)
        other = self.run_of(net, out=self.folder / "other", seed=8, **unchecked)
        self.assertNotEqual(other.digest, run.digest)

    def test_of_frozen_tensors_send_the_others_alone(self) -> None:
        sent = macaw.Run(self.run_of(zoo.Adapted()).folder).model()
        self.assertEqual(sorted(sent), ["down", "head.bias", "head.weight", "up"])

    def test_with_an_unused_parameter_are_told_so(self) -> None:
        run = self.run_of(odd_parameter(torch.float32))
        self.assertIn("odd gets no gradient", dict(run.said)["check"])


if __name__ == "__main__":
    unittest.main()
