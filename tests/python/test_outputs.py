"""A model whose outputs are probabilities already is told of; one that gives logits is not."""

from __future__ import annotations

import unittest
import warnings
from typing import Any

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


if __name__ == "__main__":
    unittest.main()
