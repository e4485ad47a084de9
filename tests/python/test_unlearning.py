"""evaluation.unlearn against the same computation in NumPy: linear regression, a step a round."""

from __future__ import annotations

import json
import unittest
from typing import Any

import numpy as np

import macaw
from macaw import _safetensors
from support import TestCase

RATE, ROUNDS, WIDTH = 0.1, 8, 5


def clients() -> dict[str, tuple[Any, Any]]:
    """Clients of different sizes, each with a slope of its own."""
    rng = np.random.default_rng(11)
    common = rng.normal(size=WIDTH)
    data = {}
    for k, rows in enumerate((30, 12, 20, 45, 9, 25)):
        x = rng.normal(size=(rows, WIDTH)).astype(np.float32)
        y = x @ (common + 0.5 * rng.normal(size=WIDTH)) + 0.3 * k
        data[f"client{k}"] = (x, y.astype(np.float32))
    return data


Point = tuple[Any, float]  # weights and bias


def step(point: Point, rows: tuple[Any, Any]) -> Point:
    """A step of gradient descent on the mean squared error."""
    x, y = (part.astype(np.float64) for part in rows)
    error = x @ point[0] + point[1] - y
    return point[0] - RATE * 2 * error @ x / len(y), point[1] - RATE * 2 * error.mean()


def mean_of(points: list[Point], weights: list[int]) -> Point:
    total = sum(weights)
    return (
        sum(weight * point[0] for weight, point in zip(weights, points)) / total,
        sum(weight * point[1] for weight, point in zip(weights, points)) / total,
    )


def federated(start: Point, data: dict[str, tuple[Any, Any]]) -> Point:
    """FedAvg of all clients, with a step a round."""
    for _ in range(ROUNDS):
        ends = [step(start, rows) for rows in data.values()]
        start = mean_of(ends, [len(rows[1]) for rows in data.values()])
    return start


def unlearned(start: Point, data: dict[str, tuple[Any, Any]], left_out: str) -> Point:
    """model − Σ_t (step of round t − its step without the client)."""
    model, without = start, start
    names = list(data)
    others = [name for name in names if name != left_out]
    for _ in range(ROUNDS):
        ends = {name: step(model, data[name]) for name in names}
        after = mean_of([ends[n] for n in names], [len(data[n][1]) for n in names])
        alone = mean_of([ends[n] for n in others], [len(data[n][1]) for n in others])
        # after − (after − alone), of this round alone
        without = without[0] + alone[0] - model[0], without[1] + alone[1] - model[1]
        model = after
    return without


def point_of(model: Any) -> Point:
    return np.asarray(model["0.weight"], np.float64)[0], float(np.asarray(model["0.bias"])[0])


def apart(a: Point, b: Point) -> float:
    return max(float(np.abs(a[0] - b[0]).max()), abs(a[1] - b[1]))


class Unlearning(TestCase):
    def run_of(self, name: str, rounds: int, **changes: Any) -> macaw.Run:
        return macaw.simulate(**self.job(
            name, model=["linear 1"], data=clients(), test=next(iter(clients().values())),
            partition=None, cohort=6, rounds=rounds,
            local={"steps": 1, "batch_size": 0, "lr": RATE}, evaluation={"unlearn": [0, 3, 5]},
            **changes,
        ))  # fmt: skip

    def check(self, tolerance: float, **changes: Any) -> None:
        start = point_of(self.run_of("start", 0, **changes).model())
        run, data = self.run_of("run", ROUNDS, **changes), clients()
        model = federated(start, data)
        self.assertLess(apart(point_of(run.model()), model), tolerance)
        line = json.loads((run.folder / "contributions.jsonl").read_text().splitlines()[-1])
        self.assertEqual(line["unlearned_client"], [0, 3, 5])
        self.assertEqual(line["unlearned_rounds"], [ROUNDS] * 3)
        for client in (0, 3, 5):
            kept = _safetensors.read(run.folder / "unlearned" / f"{client}.safetensors")
            expected = unlearned(start, data, f"client{client}")
            self.assertLess(apart(point_of(kept), expected), tolerance)
            # It is neither the model nor that of training without the client.
            others = {name: rows for name, rows in data.items() if name != f"client{client}"}
            self.assertGreater(apart(expected, model), 100 * tolerance)
            self.assertGreater(apart(expected, federated(start, others)), 100 * tolerance)

    def test_is_the_sum_of_the_steps_without_the_client(self) -> None:
        self.check(1e-5)

    def test_is_so_in_double_precision(self) -> None:
        try:
            self.check(1e-12, run={"dtype": "float64"})
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error


if __name__ == "__main__":
    unittest.main()
