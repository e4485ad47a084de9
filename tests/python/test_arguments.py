"""Arguments of another kind than the one that is meant: each error has the line to write."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
from own_functions import softmax_regression

import macaw
from macaw import _spaces
from support import TestCase, needs, rows


class MyProx(macaw.rules.Rule):
    """A rule of the caller's whose parameter has no default."""

    mu: float


class Refusals(TestCase):
    def refused(self, **changes: Any) -> macaw.Error:
        with self.assertRaises(macaw.Error) as caught:
            macaw.simulate(**self.job("run", **changes))
        self.assertFalse((self.folder / "run").exists())
        return caught.exception


class Classes(Refusals):
    def test_of_algorithms_stand_for_their_defaults(self) -> None:
        of_class = macaw.simulate(**self.job("class", algorithm=macaw.FedProx))
        named = macaw.simulate(**self.job("named", algorithm="fedprox"))
        self.assertEqual(of_class.digest, named.digest)

    def test_of_rules_without_defaults_say_what_is_missing(self) -> None:
        error = self.refused(algorithm=MyProx)
        self.assertIn("algorithm=MyProx(mu=…)", str(error))
        self.assertEqual(error.key, "algorithm.mu")

    def test_that_are_no_algorithms_are_refused(self) -> None:
        for wrong in (macaw.rules.Rule, macaw.algorithms.Algorithm, dict, 3, [macaw.FedAvg()]):
            self.assertEqual(self.refused(algorithm=wrong).key, "algorithm.name")

    @needs("torch")
    def test_of_rules_are_one_value_each(self) -> None:
        schedule: Any = dict(kind="cosine", floor=0.1)
        error = self.refused(algorithm=macaw.FedAvg(server_lr_schedule=schedule))
        self.assertIn('not a dict, such as server_lr_schedule="cosine floor 0.1"', str(error))
        self.assertEqual(error.key, "algorithm.fedavg.server_lr_schedule")

    def test_of_modules_need_an_instance(self) -> None:
        from torch import nn

        for model, said in [
            (nn.Linear, "model=nn.Linear(…)"),
            (nn.Sequential, "model=nn.Sequential(…)"),
            (lambda k: nn.Linear(8, k), "takes k"),
            ([nn.Flatten(), nn.Linear(8, 3)], "torch.nn.Sequential(*layers)"),
            (nn.Linear(8, 3).state_dict(), "state dict"),
        ]:
            with self.subTest(said):
                error = self.refused(model=model)
                self.assertIn(said, str(error))
                self.assertEqual(error.key, "model")


class Missing(Refusals):
    def test_data_or_model_are_named(self) -> None:
        for name, said in (("data", "data= is missing"), ("model", "model= is missing")):
            error = self.refused(**{name: None})
            self.assertIn(said, str(error))
            self.assertEqual(error.key, name)

    def test_dicts_are_shown(self) -> None:
        for name in ("local", "evaluation", "privacy", "data_options"):
            error = self.refused(**{name: 3})
            self.assertIn(f"{name}=dict(", str(error))
            self.assertEqual(error.key, name)
        for wrong in (10, macaw.iid):
            self.assertIn("macaw.iid(100)", str(self.refused(partition=wrong)))


class Spaces(Refusals):
    def test_in_a_run_name_the_sweep(self) -> None:
        two = macaw.grid([1, 2])
        for changes, line in [
            ({"local": {"lr": two}}, "local=dict(lr=macaw.grid(…))"),
            ({"algorithm": macaw.FedProx(mu=two)}, "algorithm=macaw.FedProx(mu=macaw.grid(…))"),
            ({"algorithm": macaw.grid([macaw.FedAvg()])}, "algorithm=macaw.grid(…)"),
            ({"partition": macaw.dirichlet(two, 10)}, "(concentration=macaw.grid(…))"),
            ({"attack": {"fraction": macaw.uniform(0, 1)}}, "fraction=macaw.uniform(…)"),
            ({"model": macaw.grid([["linear 3"]])}, "model=macaw.grid(…)"),
            ({"train": macaw.grid([softmax_regression])}, "train=macaw.grid(…)"),
            ({"cohort": two}, "cohort=macaw.grid(…)"),
            ({"rounds": macaw.integers(1, 3)}, "rounds=macaw.integers(…)"),
            ({"seed": two}, "seeds=[…]"),
        ]:
            with self.subTest(line):
                said = str(self.refused(**changes))
                self.assertIn("macaw.sweep(…, ", said)
                self.assertIn(line, said)

    def test_of_data_are_for_nobody(self) -> None:
        both = macaw.grid([rows(), rows()])
        for name in ("data", "test", "normalise", "init"):
            for run in (macaw.simulate, macaw.sweep):
                job = self.job("run", **{name: both})
                job.pop("seed")
                with self.assertRaisesRegex(macaw.ConfigError, "for each") as caught:
                    run(**job)
                self.assertEqual(caught.exception.key, name)

    def test_hold_lists(self) -> None:
        for wrong in (3, [], "ab", {"a": 1}):
            with self.assertRaisesRegex(macaw.ArgumentError, r"macaw.grid\(\[a, b\]\)"):
                macaw.grid(wrong)  # type: ignore[arg-type]
        self.assertEqual(macaw.grid(np.array([1, 2])), _spaces.Space("grid", (1, 2)))


class TestRows(Refusals):
    """Rows of the test set that are unlike those that train."""

    def test_are_named_in_errors(self) -> None:
        x, y = rows(60, seed=2)
        for test, said in [
            ((x[:, :7], y), "[7], and those of data have [8]"),
            ((x[:, :, None], y), "[8, 1]"),
            (((x > 0).astype(np.uint8), y), "uint8"),
            ((x, y.astype(float)), "targets"),
            ((x, y[:-1]), "60 rows and y has 59"),
            (x, "test=(x, y)"),
            ({"ann": (x, y)}, '"ann"'),
            (0.1, "data_options=dict(test_fraction=0.1)"),
        ]:
            with self.subTest(said):
                error = self.refused(test=test)
                self.assertIsInstance(error, macaw.DataError)
                self.assertEqual(error.key, "test")
                self.assertRegex(str(error), "^test: ")
                self.assertIn(said, str(error))

    def test_of_a_class_that_nobody_trains_are_warned_of(self) -> None:
        x, y = rows(60, seed=2)
        with self.assertWarnsRegex(UserWarning, "test has class 7, .* above 2"):
            self.refused(test=(x, np.where(y == 2, 7, y)))

    def test_of_clients_are_named_in_errors(self) -> None:
        x, y = rows(60)
        error = self.refused(data={"ann": (x, y), "bob": (x[:, :7], y)}, partition=None)
        self.assertRegex(str(error), "^client bob: .* those of client ann")


@needs("torch")
class OwnMetrics(Refusals):
    def test_have_no_name_that_a_run_writes(self) -> None:
        from torch import nn

        for name in ("test_accuracy", "train_loss", "round", "val_loss", "rule_x", 3):
            error = self.refused(model=nn.Linear(8, 3), metrics={name: lambda y, scores: 1.0})
            self.assertEqual(error.key, "metrics")
            self.assertIn(str(name), str(error))

    def test_are_numbers(self) -> None:
        from torch import nn

        for value, said in ((np.zeros((3, 2)), r"\[3, 2\]"), ("a", "str")):
            job = self.job("run", model=nn.Linear(8, 3), overwrite=True)
            with self.assertRaisesRegex(macaw.ArgumentError, f"^metrics: own .*{said}"):
                macaw.simulate(**job, metrics={"own": lambda y, scores, value=value: value})


if __name__ == "__main__":
    unittest.main()
