"""A model whose outputs are probabilities already is told of; one that gives logits is not."""

from __future__ import annotations

import unittest
import warnings
from typing import Any

import numpy as np
import own_functions as own

import macaw
from support import TestCase, needs, rows

try:
    import torch
    from torch import nn
    from torch.nn import functional

    class Functional(nn.Module):
        """Ends with a function, and not with a layer."""

        def __init__(self, end: Any, outputs: int = 3) -> None:
            super().__init__()
            self.layer, self.end = nn.Linear(8, outputs), end

        def forward(self, x: Any) -> Any:
            return self.end(self.layer(x))

    class Texts(nn.Module):
        """A class for each text, or for each of its positions."""

        def __init__(self, classes: int, per_position: bool) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(50, 4), nn.Linear(4, classes)
            self.per_position = per_position

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            return self.head(x if self.per_position else x.mean(1))

except ImportError:
    pass


class Outputs(TestCase):
    def warned(self, model: Any, **changes: Any) -> list[str]:
        """What is said of the outputs, before anything is run."""
        columns = macaw._configuration.keys_of(self.job("run", model=model, **changes)).columns
        return [text for text in columns.warnings if "logits" in text]

    @needs("torch")
    def test_of_softmax_and_sigmoid_are_told_of(self) -> None:
        layer = nn.Linear(8, 3)
        for model, word in [
            (nn.Sequential(layer, nn.Softmax(1)), "torch.softmax(net(x), 1)"),
            (nn.Sequential(layer, nn.Sequential(nn.Sigmoid())), "torch.sigmoid(net(x))"),
            (Functional(lambda y: functional.softmax(y, 1).view(-1, 3)), "softmax"),
            (lambda: nn.Sequential(nn.Linear(8, 3), nn.Softmax(1)), "softmax"),
        ]:
            with self.subTest(word):
                (said,) = self.warned(model, check_model=False)
                self.assertIn(word, said)
        x, y = rows()
        (said,) = self.warned(nn.Sequential(nn.Linear(8, 1), nn.Sigmoid()), data=(x, y > 1))
        self.assertIn("sigmoid", said)
        (said,) = self.warned(nn.Sequential(layer, nn.Softmax(1)), loss=own.cross_entropy)
        self.assertIn("evaluation", said)

    def test_of_a_list_of_layers_are_told_of(self) -> None:
        (said,) = self.warned(["linear 3", "sigmoid"])
        self.assertIn("sigmoid", said)
        self.assertEqual(self.warned(["sigmoid", "linear 3"]), [])

    @needs("torch")
    def test_that_a_loss_may_take_are_not(self) -> None:
        x = rows()[0]
        layer = nn.Linear(8, 3)
        for model, more in [
            (nn.Sequential(layer), {}),
            (nn.Sequential(layer, nn.LogSoftmax(1)), {}),  # the loss's own changes nothing
            (nn.Sequential(nn.Softmax(1), layer), {}),
            (Functional(lambda y: functional.log_softmax(y, 1)), {}),
            (nn.Sequential(nn.Linear(8, 1), nn.Sigmoid()), {"data": (x, x[:, 0] / 9)}),
            (
                nn.Sequential(layer, nn.Softmax(1)),
                {"train": own.train_module, "evaluate": own.half_right},
            ),
        ]:
            with self.subTest(model):
                self.assertEqual(self.warned(model, **more), [])

    @needs("torch")
    def test_leave_the_module_as_it_was(self) -> None:
        net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3), nn.Softmax(1))
        before = {name: value.clone() for name, value in net.state_dict().items()}
        drawn = torch.random.get_rng_state()
        self.warned(net)
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertTrue(net.training)
        self.assertTrue(torch.equal(torch.random.get_rng_state(), drawn))

    def test_are_a_warning_of_the_run(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = macaw.simulate(**self.job("run", model=["linear 3", "sigmoid"], rounds=1))
        self.assertIn("warning", [what for what, text in run.said if "logits" in text])
        self.assertTrue(any("logits" in str(w.message) for w in caught))


@needs("torch")
class OfTexts(TestCase):
    """The outputs say what a model of tokens is for, and how many classes it has."""

    def settings(self, model: Any, **changes: Any) -> dict[str, Any]:
        rng = np.random.default_rng(2)
        data = rng.integers(0, 9, (60, 5)).astype(np.int32), np.arange(60) % 3
        job = self.job("run", model=model, data=data, **changes)
        return macaw._configuration.keys_of(job).settings

    def test_are_classes_of_each_text(self) -> None:
        settings = self.settings(Texts(7, per_position=False))
        self.assertEqual(settings["run.task"], "classification")
        self.assertNotIn("data.classes", settings, "seven outputs for three classes are a mistake")

    def test_are_the_next_tokens(self) -> None:
        settings = self.settings(Texts(50, per_position=True))
        self.assertEqual(settings["run.task"], "next-token")
        self.assertEqual(settings["data.classes"], 50)

    def test_give_way_to_what_is_given(self) -> None:
        settings = self.settings(
            Texts(50, per_position=True),
            run={"task": "classification"},
            data_options={"classes": 9},
        )
        self.assertEqual(settings["run.task"], "classification")
        self.assertEqual(settings["data.classes"], 9)

    def test_train(self) -> None:
        rng = np.random.default_rng(2)
        x = rng.integers(0, 9, (60, 6)).astype(np.int32)
        x[:, -1] = np.minimum(x[:, -1], 5)  # not every token is the last of a text
        for model, y in ((Texts(3, False), np.arange(60) % 3), (Texts(50, True), x[:, -1])):
            run = macaw.simulate(
                **self.job("run", model=model, data=(x[:, :-1], y), rounds=1, overwrite=True,
                           partition=macaw.iid(4), cohort=2)
            )  # fmt: skip
            self.assertIn("test_accuracy", run.rows[-1])


if __name__ == "__main__":
    unittest.main()
