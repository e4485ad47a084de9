"""Metrics of classes: the columns of a run against the same metrics of its model, in NumPy."""

from __future__ import annotations

import json
import unittest
from typing import Any

import numpy as np

import macaw
from support import TestCase, rows


def auc(scores: Any, positive: Any) -> tuple[float, float]:
    """The share of pairs in the right order, ties half; and the share of pairs in one cell."""
    cells = np.clip(np.floor((scores / 16 + 1) * 2048), 0, 4095)
    above = scores[positive][:, None] - scores[~positive][None, :]
    same = cells[positive][:, None] == cells[~positive][None, :]
    return float(np.mean((above > 0) + 0.5 * (above == 0))), float(np.mean(same))


class MetricsOfClasses(TestCase):
    def test_are_those_of_the_model(self) -> None:
        x, y = rows()
        owners = {
            f"owner{n}": {"train": (x[n : n + 20], y[n : n + 20]),
                          "test": (x[n + 300 : n + 320], y[n + 300 : n + 320])}
            for n in range(0, 300, 20)
        }  # fmt: skip
        run = macaw.simulate(**self.job(
            "run", model=["linear 3"], data=owners, partition=None,
            evaluation={"clients": True, "central": False,
                        "metrics": ["balanced_accuracy", "f1", "auc", "confusion"]}))  # fmt: skip
        model = run.model()
        weight, bias = (np.asarray(model[name], np.float64) for name in ("0.weight", "0.bias"))
        x, y = x[300:].astype(np.float64), y[300:]
        logits = x @ weight.T + bias
        confusion = np.zeros((3, 3), int)
        np.add.at(confusion, (y, logits.argmax(1)), 1)
        right, actual, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
        final = run.summary["final"]
        self.assertAlmostEqual(final["clients_test_balanced_accuracy"], (right / actual).mean(),
                               delta=1e-12)  # fmt: skip
        self.assertAlmostEqual(final["clients_test_f1"],
                               (2 * right / (actual + predicted)).mean(), delta=1e-12)  # fmt: skip
        power = np.exp(logits)
        others = power.sum(1, keepdims=True) - power
        each = [auc(np.log(power[:, c] / others[:, c]), y == c) for c in range(3)]
        exact, tied = np.mean(each, axis=0)
        # Outputs in float32 may be in the next cell: a thousandth of the pairs is generous.
        self.assertAlmostEqual(final["clients_test_auc"], exact, delta=tied / 2 + 1e-3)
        written = json.loads((run.folder / "confusion.json").read_text())["clients_test"]
        self.assertEqual(written["confusion"], confusion.tolist())
        self.assertEqual(list(run.metrics["clients_test_f1"])[-1], final["clients_test_f1"])
        # A client's balanced accuracy is over the classes that it has.
        recalls = []
        for n in range(0, 300, 20):
            hits, labels = logits[n : n + 20].argmax(1) == y[n : n + 20], y[n : n + 20]
            recalls.append(np.mean([hits[labels == c].mean() for c in np.unique(labels)]))
        self.assertAlmostEqual(final["clients_test_balanced_accuracy_mean"], np.mean(recalls),
                               delta=1e-12)  # fmt: skip


class Contributions(TestCase):
    def test_are_differences_of_the_test_metrics(self) -> None:
        x, y = rows()
        job = self.job("run", data=(x[:400], y[:400]), test=(x[400:], y[400:]),
                       evaluation={"leave_one_out": 2})  # fmt: skip
        run = macaw.simulate(**job)
        self.assertEqual([line["round"] for line in run.contributions], [2, 4])
        for line in run.contributions:
            self.assertEqual(len(line["client"]), 5)
            loss = run.rows[line["round"] - 1]["test_loss"]
            for without, delta in zip(line["test_loss"], line["delta_test_loss"], strict=True):
                self.assertEqual(loss - without, delta)
        plain = macaw.simulate(**{**job, "out": run.folder.parent / "plain", "evaluation": {}})
        self.assertEqual(plain.digest, run.digest)
        with self.assertRaisesRegex(macaw.Error, "leave_one_out"):
            _ = plain.contributions


if __name__ == "__main__":
    unittest.main()
