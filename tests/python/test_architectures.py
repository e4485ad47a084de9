"""Architectures of Hugging Face, each from a configuration in a tiny size: what they become, or why
not. bench/architectures.py has more of them, of newer versions, and those of torchvision.
"""

from __future__ import annotations

import sys
import unittest
from typing import Any

import torch

import macaw
from support import SOURCE, TestCase

sys.path.insert(0, str(SOURCE / "bench"))
import tiny_models

# What is compared with the module in its own PyTorch. Where layers drop, two steps are not.
ALL, DROPS = "losses, gradients and two steps", "losses and gradients"
TRACED = {
    "BertForSequenceClassification": DROPS,
    "RobertaForSequenceClassification": DROPS,
    "AlbertForSequenceClassification": DROPS,
    "DistilBertForSequenceClassification": DROPS,
    "GPT2LMHeadModel": DROPS,
    "GPTNeoXForCausalLM": ALL,
    "OPTForCausalLM": DROPS,
    "LlamaForCausalLM": ALL,
    "MistralForCausalLM": ALL,
    "ViTForImageClassification": ALL,
}
REFUSED = {"BloomForCausalLM": "its trace cannot be saved: .*GeLUFunction.*train it in Python"}


def one_step(model: Any, rows: Any, ctx: Any) -> Any:
    """The way out of a refusal: a step in Python, on the token behind each row."""
    x, y = rows
    model.train()
    loss = torch.nn.functional.cross_entropy(model(x).logits[:, -1], y)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return model, {"loss": loss.item()}


class Architectures(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ignore_warnings()

    def tried(self, model: str, **more: Any) -> list[str]:
        make, rows = tiny_models.hugging(model)
        try:
            return tiny_models.tried(make, rows, self.folder / model, **more)
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error

    def test_train_as_they_are(self) -> None:
        for model, compared in TRACED.items():
            with self.subTest(model):
                _, became, found, _ = self.tried(model)
                self.assertRegex(became, "^traced")
                self.assertEqual(found, compared)

    def test_that_no_file_holds_are_refused_and_train_in_python(self) -> None:
        for model, why in REFUSED.items():
            with self.subTest(model):
                _, became, _, _ = self.tried(model)
                self.assertRegex(became, f"^refused: .*{why}")
                make, rows = tiny_models.hugging(model)
                run = macaw.simulate(
                    make(), rows, train=one_step, cohort=2, rounds=1, partition={"clients": 4},
                    out=self.folder / "python", cache=self.folder / "cache", progress=False,
                )  # fmt: skip
                self.assertGreater(run.rows[-1]["train_loss"], 0)

    def test_are_ten_and_more(self) -> None:
        missing = [name for name in tiny_models.HUGGING if name not in {**TRACED, **REFUSED}]
        self.assertEqual(missing, ["Qwen2ForCausalLM", "MambaForCausalLM"], "of newer versions")
        self.assertGreaterEqual(len(TRACED), 10)


if __name__ == "__main__":
    unittest.main()
