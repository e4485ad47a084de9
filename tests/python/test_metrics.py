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
        for key in ("leave_one_out", "unlearn"):
            with self.assertRaisesRegex(macaw.Error, key):
                _ = plain.contributions


class OtherMetrics(TestCase):
    def test_are_those_of_the_model(self) -> None:
        rng = np.random.default_rng(2)
        x = rng.normal(size=(900, 8)).astype(np.float32)
        y = np.argmax(x @ rng.normal(size=(8, 7)) + rng.gumbel(size=(900, 7)), axis=1)
        run = macaw.simulate(**self.job(
            "classes", model=["linear 7"], data=(x[:600], y[:600]), test=(x[600:], y[600:]),
            evaluation={"metrics": ["top5", "ece"]}))  # fmt: skip
        model = run.model()
        weight, bias = (np.asarray(model[name], np.float64) for name in ("0.weight", "0.bias"))
        logits = x[600:].astype(np.float64) @ weight.T + bias
        order = np.argsort(-logits, axis=1, kind="stable")
        final = run.summary["final"]
        self.assertEqual(final["test_top5"], np.mean(order[:, :5] == y[600:, None], axis=0).sum())
        power = np.exp(logits - logits.max(1, keepdims=True))
        confidence = 1 / power.sum(1)
        bins = np.ceil(confidence * 15) - 1
        right = order[:, 0] == y[600:]
        ece = sum(
            abs(right[bins == m].sum() - confidence[bins == m].sum()) for m in range(15)
        ) / len(right)  # fmt: skip
        # An output in float32 may be in the next bin: it then moves the error by 1 / 300 at most.
        self.assertAlmostEqual(final["test_ece"], ece, delta=1 / 300)
        self.assertGreater(final["test_ece"], 0)

    def test_r2_is_of_all_rows(self) -> None:
        rng = np.random.default_rng(3)
        x = rng.normal(size=(500, 4)).astype(np.float32)
        y = (x @ rng.normal(size=4) + 5 + rng.normal(size=500)).astype(np.float32)
        owners = {
            f"owner{n}": {"train": (x[n : n + 20], y[n : n + 20]),
                          "test": (x[n + 250 : n + 270], y[n + 250 : n + 270])}
            for n in range(0, 240, 20)
        }  # fmt: skip
        run = macaw.simulate(**self.job(
            "numbers", model=["linear 1"], data=owners, partition=None,
            evaluation={"clients": True, "central": False, "metrics": ["r2"]}))  # fmt: skip
        model = run.model()
        weight, bias = (np.asarray(model[name], np.float64) for name in ("0.weight", "0.bias"))
        found = (x[250:490].astype(np.float64) @ weight.T + bias)[:, 0]
        truth = y[250:490].astype(np.float64)

        def r2(found: Any, truth: Any) -> float:
            return float(1 - ((found - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())

        final = run.summary["final"]
        self.assertAlmostEqual(final["clients_test_r2"], r2(found, truth), delta=1e-6)
        each = [r2(f, t) for f, t in zip(found.reshape(-1, 20), truth.reshape(-1, 20))]
        self.assertAlmostEqual(final["clients_test_r2_mean"], np.mean(each), delta=1e-6)


if __name__ == "__main__":
    unittest.main()
