"""What chooses and what is reported: validation rows, weights for each seed, the best model."""

from __future__ import annotations

import unittest
import warnings
from typing import Any

import numpy as np

import macaw
from support import TestCase, needs


def net() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


class Validation(TestCase):
    def test_rows_choose_the_round_and_the_test_value_is_reported(self) -> None:
        run = macaw.simulate(**self.job("v", data_options={"central_val_fraction": 0.2}))
        self.assertIn("val_accuracy", run.rows[0])
        best = run.summary["best"]
        self.assertEqual((best["metric"], best["rows"]), ("val_accuracy", "validation"))
        row = next(row for row in run.rows if row["round"] == best["round"])
        self.assertEqual(best["report"]["test_accuracy"], row["test_accuracy"])
        without = macaw.simulate(**self.job("w"))
        self.assertEqual(without.summary["best"]["rows"], "test")

    def test_rows_choose_in_a_sweep(self) -> None:
        given = self.job("s", local={"lr": macaw.grid([0.001, 0.1])})
        del given["seed"]
        options = {"central_val_fraction": 0.2}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sweep = macaw.sweep(**given, data_options=options, seeds=[1, 2, 3], progress=False)
        self.assertFalse([w for w in caught if "of test rows" in str(w.message)])
        self.assertEqual(sweep.result["metric"], "val_accuracy")
        self.assertEqual(sweep.result["report"], ["test_accuracy"])
        for row in sweep.rows:
            self.assertIn("test_accuracy", row)
            self.assertIn("test_accuracy_std", row)
        self.assertIsNotNone(sweep.rows[1]["p_holm"])

    def test_rows_are_missed_by_a_sweep_that_test_rows_decide(self) -> None:
        given = self.job("t", local={"lr": macaw.grid([0.001, 0.1])})
        del given["seed"]
        with self.assertWarnsRegex(UserWarning, "test_accuracy is of test rows"):
            macaw.sweep(**given, progress=False)

    def test_best_model_is_kept_beside_the_last(self) -> None:
        stop = {"stop": {"patience": 50}}
        given = self.job("b", rounds=8, run=stop, local={"lr": 2.5})
        run = macaw.simulate(**given, data_options={"central_val_fraction": 0.2})
        best = run.summary["best_model"]
        self.assertEqual(best["metric"], "val_accuracy")
        given.update(out=self.folder / "at", rounds=best["round"])
        at_best = macaw.simulate(**given, data_options={"central_val_fraction": 0.2})
        self.assertEqual(best["model_digest"], at_best.digest)
        for name, value in run.model(best=True).items():
            np.testing.assert_array_equal(value, at_best.model()[name])
        with self.assertRaisesRegex(macaw.Error, "patience"):
            macaw.simulate(**self.job("none")).model(best=True)


@needs("torch")
class Factory(TestCase):
    def test_makes_other_weights_for_each_seed_and_the_same_for_one(self) -> None:
        import torch

        state = torch.random.get_rng_state()
        digests = {}
        for name, seed in (("a", 1), ("b", 2), ("c", 1)):
            run = macaw.simulate(**self.job(name, model=net, seed=seed, rounds=0))
            digests[name] = run.digest
            torch.manual_seed(seed)
            own = net().state_dict()
            torch.random.set_rng_state(state)
            for key, value in run.model().items():
                np.testing.assert_array_equal(value.numpy(), own[key].numpy())
        self.assertNotEqual(digests["a"], digests["b"])
        self.assertEqual(digests["a"], digests["c"])
        self.assertTrue(torch.equal(torch.random.get_rng_state(), state), "torch's own state stays")

    def test_is_called_for_each_seed_of_a_sweep(self) -> None:
        given = self.job("s", model=lambda: net(), rounds=1)
        del given["seed"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sweep = macaw.sweep(**given, seeds=[1, 2], progress=False)
        self.assertFalse([w for w in caught if "initial weights" in str(w.message)])
        alone = macaw.simulate(**self.job("alone", model=net, seed=2, rounds=1))
        self.assertEqual(sweep.runs["001-seed2"].digest, alone.digest)
        first, second = (sweep.runs[f"001-seed{seed}"].summary["settings"] for seed in (1, 2))
        self.assertEqual(first, second, "runs of one configuration, whatever their seeds")
        again = macaw.sweep(**given, seeds=[1, 2, 3], progress=False)
        self.assertEqual(len(again.runs), 3, "a further seed leaves the others as they are")

    def test_may_vary_in_a_sweep(self) -> None:
        from torch import nn

        models = macaw.grid([net, lambda: nn.Sequential(nn.Linear(8, 3))])
        given = self.job("s", model=models, rounds=1)
        del given["seed"]
        sweep = macaw.sweep(**given, seeds=[1, 2], progress=False)
        self.assertEqual([row["runs"] for row in sweep.rows], [2, 2])

    def test_is_refused_where_it_makes_no_module_or_draws_elsewhere(self) -> None:
        with self.assertRaisesRegex(macaw.ModelError, "made int"):
            macaw.simulate(**self.job("i", model=lambda: 3))

        def careless() -> Any:
            import torch

            made = net()
            noise = torch.from_numpy(np.random.default_rng().normal(size=3).astype(np.float32))
            made[2].bias.data.copy_(noise)
            return made

        with self.assertRaisesRegex(macaw.ModelError, "drawn from torch alone"):
            macaw.simulate(**self.job("x", model=careless, rounds=0))

    def test_is_what_a_module_given_as_an_object_is_not(self) -> None:
        given = self.job("s", model=net(), rounds=1)
        del given["seed"]
        with self.assertWarnsRegex(UserWarning, "same initial weights in every seed"):
            macaw.sweep(**given, seeds=[1, 2], progress=False)


if __name__ == "__main__":
    unittest.main()
