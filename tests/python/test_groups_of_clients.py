"""Groups of clients, IFCA's models and how far clients move: columns against NumPy."""

from __future__ import annotations

import json
import unittest
from typing import Any

import numpy as np

import macaw
from macaw._groups import higher_is_better
from support import TestCase


def two_kinds() -> dict[str, Any]:
    """Twelve clients; what is the likeliest class for one kind is the unlikeliest for the other."""
    rng = np.random.default_rng(5)
    truth = rng.normal(size=(6, 3))
    owners = {}
    for n in range(12):
        kind = ("left", "right")[n % 2]
        x = rng.normal(size=(60, 6)).astype(np.float32)
        y = np.argmax(x @ (truth if n % 2 == 0 else -truth), axis=1)
        owners[f"{kind}-{n}"] = {"train": (x[:40], y[:40]), "test": (x[40:], y[40:])}
    return owners


def outputs(model: Any, x: Any) -> Any:
    weight, bias = (np.asarray(model[name], np.float64) for name in ("0.weight", "0.bias"))
    return x.astype(np.float64) @ weight.T + bias


def choice_of(models: Any, owner: Any) -> int:
    """IFCA's: the model with the least loss on the client's training rows."""
    x, y = owner["train"]
    of_models = [outputs(model, x) for model in models]
    losses = [np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]) for z in of_models]
    return int(np.argmin(losses))


class Columns(TestCase):
    def test_of_a_group_are_judged_by_their_metric(self) -> None:
        for name in ("loss", "gloss", "mae", "bytes_x", "x_group_gap_y", "virtual_seconds_std"):
            start = f"clients_test_group_{name}_"
            self.assertTrue(higher_is_better(start + "accuracy"), name)
            self.assertTrue(higher_is_better(start + "accuracy_at_best_test_loss"), name)
            self.assertFalse(higher_is_better(start + "loss"), name)
            self.assertFalse(higher_is_better(start + "ece"), name)
            self.assertTrue(higher_is_better(start + "balanced_accuracy"), name)
        self.assertTrue(higher_is_better("clients_test_worst_group_accuracy"))
        self.assertFalse(higher_is_better("clients_test_worst_group_loss"))
        self.assertFalse(higher_is_better("clients_test_group_gap_accuracy"))


    def test_of_a_rule_that_measures_errors_fall(self) -> None:
        for name in ("rule_inertia", "rule_error", "rule_update_error", "rule_drift_max",
                     "l2_penalty", "rule_inertia_at_best_val_accuracy"):  # fmt: skip
            self.assertFalse(higher_is_better(name), name)
        self.assertTrue(higher_is_better("rule_update_agreement"))


class Contributions(TestCase):
    def test_have_the_names_of_the_clients(self) -> None:
        data = {name: owner["train"] for name, owner in two_kinds().items()}
        test = next(iter(two_kinds().values()))["test"]
        for name, rows, named in (("named", data, True), ("numbers", data["left-0"], False)):
            run = macaw.simulate(**self.job(
                name, model=["linear 3"], data=rows, test=test, cohort=3,
                partition=None if named else macaw.iid(4), rounds=4,
                evaluation={"leave_one_out": 2, "unlearn": [3, 0, 1]},
            ))  # fmt: skip
            lines, names = run.contributions, list(data)
            self.assertGreater(len(lines[-1]["unlearned_client"]), 0)
            self.assertEqual([len(line["client"]) for line in lines], [0, 3, 0, 3])
            for line in lines:
                for of, key in (("client", "name"), ("unlearned_client", "unlearned_name")):
                    self.assertEqual(key in line, named and of in line)
                    if key in line:
                        self.assertEqual(line[key], [names[client] for client in line[of]])


class GroupsOfClients(TestCase):
    def run_of(self, name: str, **changes: Any) -> Any:
        arguments = dict(model=["linear 3"], data=two_kinds(), partition=None, cohort=12,
                         rounds=12, local={"epochs": 2, "batch_size": 10, "lr": 0.3},
                         evaluation={"clients": True, "central": False})  # fmt: skip
        return macaw.simulate(**self.job(name, **(arguments | changes)))

    def test_have_the_metrics_of_their_rows(self) -> None:
        evaluation = {"clients": True, "central": False,
                      "groups": ["left=left-*", "right=right-*"]}  # fmt: skip
        plain, run = self.run_of("plain"), self.run_of("groups", evaluation=evaluation)
        self.assertEqual(plain.summary["model_digest"], run.summary["model_digest"])
        final, accuracy = run.summary["final"], {}
        for kind in ("left", "right"):
            rows = [owner["test"] for name, owner in two_kinds().items() if name.startswith(kind)]
            right = [outputs(run.model(), x).argmax(1) == y for x, y in rows]
            accuracy[kind] = np.concatenate(right).mean()
            self.assertAlmostEqual(final[f"clients_test_group_{kind}_accuracy"], accuracy[kind])
            self.assertEqual(final[f"clients_test_group_{kind}_clients"], 6)
        worst, best = sorted(accuracy.values())
        self.assertAlmostEqual(final["clients_test_worst_group_accuracy"], worst)
        self.assertAlmostEqual(final["clients_test_group_gap_accuracy"], best - worst)

    def test_have_the_metrics_that_are_asked_for(self) -> None:
        evaluation = {"clients": True, "central": False,
                      "metrics": ["f1", "balanced_accuracy", "ece"],
                      "groups": ["left=left-*", "right=right-*"]}  # fmt: skip
        run = self.run_of("asked", evaluation=evaluation, algorithm=macaw.IFCA(clusters=2))
        models, final = run.models(), run.summary["final"]
        rows: dict[str, list[Any]] = {"left": [], "right": [], "0": [], "1": []}
        for name, owner in two_kinds().items():
            x, y = owner["test"]
            chosen = choice_of(models, owner)
            found = [outputs(models[chosen], x), y]
            rows[name.split("-")[0]].append(found)
            rows[str(chosen)].append(found)
        recalls, calibration = {}, {}
        for key, of_clients in rows.items():
            z, y = (np.concatenate(part) for part in zip(*of_clients))
            hit = z.argmax(1) == y
            recalls[key] = np.mean([hit[y == c].mean() for c in np.unique(y)])
            top = (np.exp(z).T / np.exp(z).sum(1)).max(0)
            bins = np.minimum(np.ceil(top * 15), 15)
            errors = [abs((hit - top)[bins == b].sum()) for b in np.unique(bins)]
            calibration[key] = sum(errors) / len(y)
        for kind in ("left", "right"):
            start = f"clients_test_group_{kind}_"
            self.assertAlmostEqual(final[start + "balanced_accuracy"], recalls[kind])
            self.assertAlmostEqual(final[start + "ece"], calibration[kind], 4)
            self.assertGreater(final[start + "f1"], 0)
        for j in ("0", "1"):
            self.assertAlmostEqual(final[f"clients_test_model{j}_balanced_accuracy"], recalls[j])
        best, worst = sorted([calibration["left"], calibration["right"]])
        self.assertAlmostEqual(final["clients_test_worst_group_ece"], worst, 4)
        self.assertAlmostEqual(final["clients_test_group_gap_ece"], worst - best, 4)

    def test_ifca_finds_them_and_tests_each_client_at_its_model(self) -> None:
        run = self.run_of("ifca", algorithm=macaw.IFCA(clusters=2))
        models, final = run.models(), run.summary["final"]
        self.assertEqual(len(models), 2)
        for name, values in run.model().items():
            np.testing.assert_array_equal(values, models[0][name])
        chosen, right = {}, []
        for name, owner in two_kinds().items():
            chosen[name] = choice_of(models, owner)
            x, y = owner["test"]
            right.append(outputs(models[chosen[name]], x).argmax(1) == y)
        self.assertAlmostEqual(final["clients_test_accuracy"], np.concatenate(right).mean())
        written = json.loads((run.folder / "clients_evaluated.json").read_text())["clients_test"]
        self.assertEqual(sorted(written["model"]), sorted(chosen.values()))
        for j in (0, 1):
            self.assertEqual(final[f"clients_test_model{j}_clients"],
                             sum(model == j for model in chosen.values()))  # fmt: skip
        # The paper's claim in small: the kinds are found, and models of their own are better.
        kinds = {(name.split("-")[0], model) for name, model in chosen.items()}
        self.assertEqual(len(kinds), 2, "each kind has a model of its own")
        together = self.run_of("fedavg").summary["final"]["clients_test_accuracy"]
        self.assertGreater(final["clients_test_accuracy"], together + 0.1)

    def test_updates_are_told(self) -> None:
        plain = self.run_of("without")
        evaluation = {"clients": True, "central": False, "updates": True}
        run = self.run_of("with", evaluation=evaluation)
        self.assertEqual(plain.summary["model_digest"], run.summary["model_digest"])
        final = run.summary["final"]
        self.assertGreaterEqual(final["rule_drift_max"], final["rule_drift_mean"])
        self.assertGreaterEqual(final["rule_drift_mean"], final["rule_update_norm"])
        self.assertLess(final["rule_update_agreement"], 1)
        self.assertLess(final["rule_update_cosine"], 1)
        # The mean of squares is at least the square of the mean.
        self.assertGreaterEqual(final["rule_update_cosine"] ** 2, final["rule_update_agreement"])


if __name__ == "__main__":
    unittest.main()
