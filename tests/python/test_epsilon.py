"""``privacy=dict(epsilon=…)``: what a run spends is no more than what was asked."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import unittest
from typing import Any
from unittest import mock

import macaw
from macaw import _privacy
from macaw._configuration import keys_of
from macaw._program import program
from support import TestCase, rows

PRIVATE: dict[str, Any] = {"epsilon": 8, "clip": 1.0, "delta": 1e-3}


class Private(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ignore_warnings()

    def private(self, name: str, **changes: Any) -> dict[str, Any]:
        given = {"model": ["linear 3"], "rounds": 5, "cohort": 10, "privacy": PRIVATE}
        return self.job(name, **{**given, **changes})

    def few(self) -> dict[str, Any]:
        """Sixty clients, half of which have one row."""
        x, y = rows()
        ends = list(itertools.accumulate((1, 6) * 30, initial=0))
        return {f"c{i}": (x[b:e], y[b:e]) for i, (b, e) in enumerate(itertools.pairwise(ends))}


class Spent(Private):
    def test_is_no_more_where_clients_have_no_rows(self) -> None:
        empty = macaw.dirichlet(0.05, 300, min_size=0)
        one = {"data": self.few(), "partition": None}
        for number, changes in enumerate((
            {"partition": empty}, {"partition": macaw.lognormal(3.0, 300, min_size=0)},
            {"partition": empty, "cohort": 0.1}, {"partition": empty, "cohort": 290},
            {"partition": macaw.iid(60), "data_options": {"client_test_fraction": 0.5}},
            *({**one, "data_options": options} for options in (
                {}, {"val_fraction": 0.5}, {"client_test_fraction": 0.5}, {"test_fraction": 0.3},
                {"central_val_fraction": 0.3})),
        )):  # fmt: skip
            with self.subTest(changes=str(changes)[:200]):
                run = macaw.simulate(**self.private(f"run{number}", **changes))
                spent = run.summary["privacy"]["epsilon"]
                self.assertLessEqual(spent, 8.0)
                self.assertGreater(spent, 7.5)  # the number of clients is right, and not a bound

    @unittest.skipIf(sys.version_info < (3, 11), "needs tomllib")
    def test_is_of_the_file_that_a_configuration_names_from_its_folder(self) -> None:
        config = self.folder / "elsewhere/run.toml"
        config.parent.mkdir()
        macaw.prepare(self.few(), cache=self.folder).rename(config.parent / "rows.safetensors")
        config.write_text('[data]\nsource = "prepared"\npath = "rows.safetensors"\n')
        private = self.private("run", data=None, partition=None, config=config)
        run = macaw.simulate(**private)
        self.assertIn("of 60 clients", str(run.said))
        self.assertLessEqual(run.summary["privacy"]["epsilon"], 8.0)

    def test_beyond_what_was_asked_is_an_error(self) -> None:
        def too_little(_: Any) -> tuple[float, float]:
            return 0.3, 1e-3

        with mock.patch.object(_privacy, "_noise_of", too_little):
            with self.assertRaisesRegex(macaw.RunError, "8 was asked for, and .* spent") as caught:
                macaw.simulate(**self.private("run"))
            self.assertEqual(caught.exception.folder, str(self.folder / "run"))
            with self.assertRaisesRegex(macaw.RunError, "8 was asked for"):
                for _ in macaw.stream(**self.private("stream")):
                    pass
            given = self.private("sweep")
            del given["seed"]
            with self.assertRaisesRegex(macaw.RunError, "8 was asked for"):
                macaw.sweep(**given, seeds=[1], progress=False)

    def test_of_each_row_of_a_sweep_is_what_was_asked_for_it(self) -> None:
        promise = _privacy.Promise("", {1.0: 2.5, 8.0: 0.9})
        promise.keep(1.0, 2.5, "")
        promise.keep(7.9, 0.9, "")
        promise.keep(None, None, "")
        with self.assertRaises(macaw.RunError):
            promise.keep(7.9, 2.5, "")


class TrainingClients(Private):
    def test_that_are_not_known_are_asked_for(self) -> None:
        for changes in (
            {"partition": {"scheme": "iid", "clients": 100, "train_together": True}},
            {"local": {"batch_size": 40, "drop_last": True}},
            {"data_options": {"heldout_clients": 0.2}}, {"data": "synthetic", "partition": None},
        ):  # fmt: skip
            with self.subTest(changes=changes):
                with self.assertRaisesRegex(macaw.ConfigError, "is not known before") as caught:
                    macaw.simulate(**self.private("run", **changes))
                self.assertEqual(caught.exception.key, "privacy.epsilon")

    def test_of_all_usual_partitions_are_all_clients(self) -> None:
        said = json.loads(subprocess.check_output([program(), "keys", "--json"]))
        named = {"auto", "natural", "histogram", "file"}
        schemes = {each["name"] for each in said["partitions"]} - named
        self.assertEqual(schemes, set(_privacy._DIVIDES))
        for scheme in sorted(schemes):
            with self.subTest(scheme):
                partition = {"scheme": scheme, "clients": 250}
                if scheme not in ("iid", "sorted", "shards", "k-classes"):
                    partition["concentration"] = 0.05
                given = self.private("run", partition=partition)
                run = macaw.simulate(**{**given, "overwrite": True})
                self.assertIn("each of 250 clients", str(run.said))  # as the program counts
                self.assertLessEqual(run.summary["privacy"]["epsilon"], 8.0)

    def test_of_a_configuration_that_cannot_be_run_are_not_counted(self) -> None:
        for partition in ({"scheme": "dirichlett"}, {"scheme": "iid", "clients": 10**6,
                                                     "min_size": 0, "alpha": 3}):  # fmt: skip
            with self.assertRaises(macaw.ConfigError) as caught:
                macaw.simulate(**self.private("run", partition=partition))
            self.assertTrue((caught.exception.key or "").startswith("partition."), partition)

    def test_that_differ_between_seeds_are_refused(self) -> None:
        given = self.private("sweep", partition=macaw.dirichlet(0.05, 300, min_size=0))
        del given["seed"]
        with self.assertRaisesRegex(macaw.ConfigError, "differs between the seeds .1: ") as caught:
            macaw.sweep(**given, seeds=[1, 2], progress=False)
        self.assertEqual(caught.exception.key, "privacy.epsilon")
        fixed = macaw.dirichlet(0.05, 300, min_size=0, seed=1)
        keys = keys_of({**given, "partition": fixed, "data_options": {"seed": 1}}, [1, 2])
        self.assertIn("privacy.noise", keys.settings)


if __name__ == "__main__":
    unittest.main()
