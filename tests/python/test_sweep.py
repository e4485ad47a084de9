"""Sweeps from Python: spaces as a sweep file, the table, the runs, errors."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import macaw
from macaw import _groups, rules
from macaw._program import program
from support import SOURCE, TestCase, job, rows


def py_fedprox(**parameters: Any) -> rules.Rule:
    """The rule of examples/rules/py_fedprox.py."""
    folder = str(SOURCE / "examples/rules")
    with mock.patch.object(sys, "path", [folder, *sys.path]):
        from py_fedprox import PyFedProx  # type: ignore[import-not-found]

    rule: rules.Rule = PyFedProx(**parameters)
    return rule


def arguments(folder: Path, name: str, **changes: Any) -> dict[str, Any]:
    given = job(folder, name, **changes)
    del given["seed"]
    return given


class Sweep(TestCase):
    def test_a_grid_with_seeds_has_a_table_runs_and_a_best(self) -> None:
        given = arguments(self.folder, "s", local={"lr": macaw.grid([0.001, 0.1])})
        sweep = macaw.sweep(**given, seeds=[1, 2], progress=False)
        self.assertEqual([row["runs"] for row in sweep.rows], [2, 2])
        self.assertEqual(sweep.best, {"local.lr": 0.1})
        self.assertGreater(sweep.rows[0]["test_accuracy"], sweep.rows[1]["test_accuracy"])
        self.assertEqual(len(sweep.table), 2)
        self.assertEqual(len(sweep.runs), 4)
        # A run of a sweep is the run that simulate() does.
        given.update(local={"lr": 0.1}, seed=2, out=self.folder / "alone")
        alone = macaw.simulate(**given)
        self.assertEqual(alone.digest, sweep.runs["002-seed2"].digest)
        with contextlib.suppress(ImportError):
            import pandas

            self.assertIsInstance(sweep.table, pandas.DataFrame)

    def test_a_rule_of_ones_own_runs_in_this_interpreter(self) -> None:
        """Also where the first python3 of PATH lacks NumPy."""
        other = self.folder / "python3"
        other.write_text("#!/bin/sh\necho 'no NumPy here' >&2\nexit 1\n")
        other.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        given = arguments(self.folder, "s", algorithm=py_fedprox(mu=macaw.grid([0.1, 1.0])))
        with mock.patch.dict(os.environ, PATH=path):
            sweep = macaw.sweep(**given, progress=False)
        self.assertEqual([row["runs"] for row in sweep.rows], [1, 1])

    def test_repeat_is_a_sweep_of_one_configuration(self) -> None:
        given = arguments(self.folder, "s", run={"seed": 5})
        sweep = macaw.sweep(**given, repeat=3, progress=False)
        (row,) = sweep.rows
        self.assertEqual(row["runs"], 3)
        self.assertEqual(list(sweep.runs), ["001-seed5", "001-seed6", "001-seed7"])
        values = [run.summary["final"]["train_loss"] for run in sweep.runs.values()]
        self.assertAlmostEqual(row["train_loss"], sum(values) / 3)
        self.assertGreater(row["std"], 0)
        with self.assertRaisesRegex(macaw.ConfigError, "not both"):
            macaw.sweep(**given, repeat=3, seeds=[1], progress=False)
        with self.assertRaisesRegex(macaw.ConfigError, r"macaw.sweep\(…, repeat=…\)"):
            macaw.simulate(**given, repeat=3)

    def test_a_repeat_of_the_program_is_opened_as_a_sweep(self) -> None:
        macaw.sweep(**arguments(self.folder, "s"), progress=False)  # for its configuration
        out = self.folder / "r"
        subprocess.run(
            [program(), "simulate", self.folder / "s/jobs/001-seed0.toml", "--repeat", "2",
             "--out", out, "--quiet"],
            check=True, capture_output=True,
        )  # fmt: skip
        sweep = macaw.SweepResult(f"{out}-repeat")
        self.assertEqual(list(sweep.runs), ["seed0", "seed1"])
        (group,) = _groups.groups_of(f"{out}-repeat")
        self.assertEqual(
            [run.folder.name for run in group.runs], [f"{out.name}-seed0", f"{out.name}-seed1"]
        )

    def test_objects_and_ranges_vary_too(self) -> None:
        given = arguments(
            self.folder,
            "s",
            algorithm=macaw.choice([macaw.FedAvg(), macaw.FedProx(mu=0.5)]),
            model=macaw.grid([["linear 3"], ["linear 8", "relu", "linear 3"]]),
            local={"lr": macaw.log_uniform(0.01, 1), "epochs": macaw.integers(1, 2)},
        )
        sweep = macaw.sweep(**given, samples=3, sample_seed=5, progress=False)
        self.assertEqual(len(sweep.rows), 6)
        self.assertTrue(all(0.01 <= row["local.lr"] <= 1 for row in sweep.rows))
        again = macaw.SweepResult(self.folder / "s")
        self.assertEqual(again.rows, sweep.rows)

    def test_a_choice_without_samples_is_tried_value_by_value(self) -> None:
        given = arguments(self.folder, "s", cohort=macaw.choice([3, 5]))
        sweep = macaw.sweep(**given, halving={"rounds": [2, 4], "factor": 2}, progress=False)
        self.assertEqual([row["rounds"] for row in sweep.rows], [4, 2])

    def test_a_configuration_file_may_be_the_base(self) -> None:
        run = macaw.simulate(**job(self.folder, "run"))
        sweep = macaw.sweep(
            config=run.folder / "config.toml",
            rounds=2,
            local={"lr": macaw.grid([0.1, 0.2])},
            out=self.folder / "s",
            progress=False,
        )
        self.assertEqual([row["rounds"] for row in sweep.rows], [2, 2])
        self.assertEqual(set(sweep.best), {"local.lr"})

    def test_parameters_of_an_algorithm_vary(self) -> None:
        prox = macaw.FedProx(mu=macaw.grid([0.1, 0.5]))
        both = macaw.grid([macaw.FedAvg(), prox])
        for number, (algorithm, mus) in enumerate([(prox, [0.1, 0.5]), (both, [None, 0.1, 0.5])]):
            given = arguments(self.folder, f"s{number}", algorithm=algorithm, rounds=1)
            sweep = macaw.sweep(**given, progress=False)
            found = [row["algorithm.fedprox.mu"] for row in sweep.rows]
            self.assertEqual(sorted(found, key=lambda mu: mu or 0), mus)
            self.assertNotIn("server_lr", str(sweep.rows))  # its default, in all of them

    def test_ranges_of_an_algorithm_are_drawn(self) -> None:
        space = [macaw.FedAvg(), macaw.FedProx(mu=macaw.log_uniform(0.01, 1))]
        given = arguments(self.folder, "s", algorithm=macaw.grid(space), rounds=1)
        sweep = macaw.sweep(**given, samples=3, progress=False)
        mus = [row["algorithm.fedprox.mu"] for row in sweep.rows]
        self.assertEqual(mus.count(None), 1)  # FedAvg, once
        self.assertEqual(len(set(mus)), 4)
        given["algorithm"] = macaw.grid([*space, macaw.FedProx(mu=0.1)])
        with self.assertRaisesRegex(macaw.ConfigError, "a range for fedprox.mu"):
            macaw.sweep(**{**given, "out": self.folder / "t"}, samples=3, progress=False)

    def test_baselines_are_compared_by_a_metric_that_they_have(self) -> None:
        given = arguments(self.folder, "s", rounds=2, evaluation={"clients": True},
                          data_options={"client_test_fraction": 0.3})  # fmt: skip
        sweep = macaw.sweep(**given, baselines=["local", "pooled"], progress=False)
        self.assertEqual(sweep.result["metric"], "clients_test_accuracy")
        self.assertTrue(all(row["clients_test_accuracy"] is not None for row in sweep.rows))
        given = arguments(self.folder, "t", rounds=2)
        with self.assertRaisesRegex(macaw.ConfigError, "client_test_fraction"):
            macaw.sweep(**given, baselines=["local"], progress=False)

    def test_whole_dicts_vary(self) -> None:
        pairs = [{"lr": 0.1, "epochs": 1}, {"lr": 0.01, "epochs": 3}]
        given = arguments(self.folder, "s", local=macaw.grid(pairs), rounds=2)
        rows = macaw.sweep(**given, progress=False).rows
        found = [{"lr": row["local.lr"], "epochs": row["local.epochs"]} for row in rows]
        self.assertCountEqual(found, pairs)

    def test_an_epsilon_has_a_noise_of_its_own(self) -> None:
        private = {"epsilon": macaw.grid([1, 8]), "clip": 1.0, "delta": 1e-3}
        sweep = macaw.sweep(**arguments(self.folder, "s", privacy=private), progress=False)
        noises = {round(row["epsilon"]): row["privacy.noise"] for row in sweep.rows}
        self.assertEqual(set(noises), {1, 8})
        self.assertGreater(noises[1], noises[8])
        for row in sweep.rows:
            self.assertLessEqual(row["epsilon"], round(row["epsilon"]))
        run = macaw.simulate(**job(self.folder, "r", privacy={**private, "epsilon": 8}))
        self.assertEqual(run.summary["settings"]["privacy.noise"], noises[8])

    def test_an_epsilon_whose_noise_would_differ_is_refused(self) -> None:
        private = {"epsilon": 8, "clip": 1.0}
        partitions = macaw.grid([macaw.iid(10), macaw.iid(20)])
        for changes, said in [
            ({"partition": partitions}, r"partition.clients.*10, 20"),
            ({"rounds": macaw.grid([2, 4])}, "run.rounds"),
            ({"cohort": macaw.grid([{"size": 4}, {"fraction": 0.5}])}, "cohort.size"),
            ({"privacy": {**private, "epsilon": macaw.uniform(1, 8)}}, r"macaw.grid\(\[1"),
            ({"privacy": macaw.grid([private])}, r"dict\(epsilon=macaw.grid"),
        ]:
            given = arguments(self.folder, "s", **{"privacy": private, **changes})
            with self.subTest(said), self.assertRaisesRegex(macaw.ConfigError, said) as caught:
                macaw.sweep(**given, progress=False)
            self.assertEqual(caught.exception.key, "privacy.epsilon")
        settings = macaw._configuration.keys_of(
            {**arguments(self.folder, "s", rounds=None, privacy=private)},
            others=[{"run.rounds": 4}],
        ).settings
        self.assertIn("privacy.noise", settings)  # of the last rung of halving

    def test_a_refused_sweep_leaves_its_folder_as_it_was(self) -> None:
        """Also where the program refuses it, which it does behind all that Python looks at."""
        x, y = rows()
        test = {"test": (x[:50], y[:50]), "normalise": "train"}
        given = arguments(self.folder, "s", rounds=2, local={"lr": macaw.grid([0.1, 0.2])}, **test)
        macaw.sweep(**given, progress=False)

        def files(folder: Path) -> dict[str, bytes]:
            return {
                str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
                for path in folder.rglob("*")
                if path.name != ".lock"  # whose number is the last process that looked
            }

        first = files(given["out"])
        self.assertIn("sweep.toml", first)
        for changes in ({"data": (x + 100, y)}, {"local": {"lr": macaw.grid([0.1, -1.0])}},
                        {"seeds": [1, 1]}):  # fmt: skip
            for out in (given["out"], self.folder / "new/sweep"):
                if out != given["out"] and "data" in changes:
                    continue  # the first sweep of its folder
                with self.subTest(changes=[*changes], out=out.name):
                    with self.assertRaises(macaw.Error) as caught:
                        macaw.sweep(**{**given, **changes, "out": out}, progress=False)
                    self.assertNotIn(".toml", str(caught.exception))
                    self.assertEqual(files(given["out"]), first)
                    self.assertFalse((self.folder / "new").exists())
        self.assertEqual(len(macaw.sweep(**given, progress=False).runs), 2)
        self.assertEqual(set(files(given["out"])), set(first))

    def test_a_folder_is_asked_for(self) -> None:
        given = arguments(self.folder, "s")
        del given["out"]
        with self.assertRaisesRegex(macaw.ArgumentError, "needs out=.*sweeps/first") as caught:
            macaw.sweep(**given)
        self.assertEqual(caught.exception.key, "out")

    def test_values_are_one_list(self) -> None:
        for space in (macaw.grid, macaw.choice):
            with self.assertRaisesRegex(macaw.ArgumentError, r"takes one list.*\(\[0.1, 0.2\]\)"):
                space(0.1, 0.2)
            with self.assertRaisesRegex(macaw.ArgumentError, "takes a list of values"):
                space()

    def test_errors_name_the_key(self) -> None:
        given = arguments(self.folder, "s", local={"learning_rate": macaw.grid([0.1])})
        with self.assertRaises(macaw.ConfigError) as raised:
            macaw.sweep(**given, progress=False)
        self.assertEqual(raised.exception.key, "local.learning_rate")
        self.assertEqual(raised.exception.nearest, "local.lr")
        with self.assertRaises(macaw.ConfigError) as raised:
            macaw.sweep(**arguments(self.folder, "t"), seed=3, progress=False)
        self.assertEqual(raised.exception.nearest, "seeds")
        given = arguments(self.folder, "v", local={"lr": [0.1, 0.2]})
        with self.assertRaisesRegex(macaw.ConfigError, r"^local.lr .*macaw.grid"):
            macaw.sweep(**given, progress=False)  # and no line of a file that nobody has written
        with self.assertRaises(macaw.Error):
            macaw.SweepResult(self.folder / "nothing")


if __name__ == "__main__":
    unittest.main()
