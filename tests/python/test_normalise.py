"""normalise=: mean 0 and deviation 1 over training rows, whatever becomes of the others."""

from __future__ import annotations

import json
import subprocess
import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from test_data import Splits
from test_tables import DataFrame

import macaw
from macaw import _division, _groups, _safetensors, _settings
from support import TestCase, needs, rows


def wide(count: int = 600, seed: int = 1) -> tuple[Any, Any]:
    """Rows whose columns have other means and deviations; the last one is constant."""
    x, y = rows(count, seed)
    x = x * np.array([1, 10, 100, 0.1, 1, 1, 1, 0], np.float32)
    return x + np.array([0, 5, -700, 3, 0, 0, 0, 0.1], np.float32), y


def moments(x: Any) -> tuple[Any, Any]:
    x = np.asarray(x, np.float64)
    return x.mean(0), x.std(0)


class Normalised(TestCase):
    def run_of(self, name: str = "run", **changes: Any) -> macaw.Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return macaw.simulate(
                **self.job(name, **{"data": wide(), "normalise": "train", "rounds": 1, **changes})
            )

    def refused(self, *said: str, **changes: Any) -> macaw.Error:
        with self.assertRaises(macaw.Error) as caught:
            self.run_of("refused", **changes)
        for text in said:
            self.assertIn(text, str(caught.exception))
        self.assertFalse((self.folder / "refused").exists())
        return caught.exception

    def exported(self, run: macaw.Run) -> dict[str, Any]:
        """The run's division, by the rows of its prepared file."""
        out = self.folder / "rows.json"
        config = run.folder / "config.toml"
        command = [macaw._program.program(), "data", "export-partition", config, "--force"]
        subprocess.run([*command, "--out", out], check=True, capture_output=True)
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    def batches(self, **changes: Any) -> Any:
        """What the model of such a run gets: the first batch, by --model-step."""
        settings = macaw._configuration.keys_of(self.job("batch", **changes)).settings
        file = self.folder / "step.safetensors"
        arguments = [*macaw._settings.overrides(settings), "--model-step", str(file)]
        simulation = macaw._program.Simulation(arguments, {})
        self.addCleanup(simulation.close)
        for _ in simulation.events():
            pass
        return _safetensors.read(file)["features.0"]

    def training_rows(self, run: macaw.Run, x: Any) -> Any:
        parts = self.exported(run)
        cut = {"test", "validation", "client_test", "central_validation"}
        return x[sorted(row for name, own in parts.items() if name not in cut for row in own)]

    def check(self, run: macaw.Run, training: Any) -> None:
        mean, std = moments(training)
        found = run.normalisation
        np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-6)
        constant = np.ptp(training, 0) == 0
        np.testing.assert_array_equal(np.isinf(found.std), constant)
        np.testing.assert_allclose(found.std[~constant], std[~constant], rtol=1e-6)
        self.assertEqual(found.rows, len(training))

    def test_leaves_out_the_rows_that_are_cut_off_for_tests(self) -> None:
        for name, options in [
            ("test", {}),
            ("validation", {"central_val_fraction": 0.2}),
            ("clients", {"client_test_fraction": 0.3, "val_fraction": 0.1}),
            ("held out", {"heldout_clients": 0.25}),
        ]:
            with self.subTest(name):
                x, y = wide()
                run = self.run_of(name, data=(x, y), data_options=options)
                training = self.training_rows(run, x)
                self.assertLess(len(training), 0.95 * len(x))
                self.check(run, training)

    def test_scales_test_rows_by_the_numbers_of_training_rows(self) -> None:
        x, y = wide()
        run = self.run_of(test=(x[:200] * 3 + 7, y[:200]))
        self.check(run, x)
        outside = self.run_of("outside", test=(x[:200], y[:200]))
        np.testing.assert_array_equal(run.normalisation.mean, outside.normalisation.mean)
        # Rows that are prepared the same way give the test loss that the run has.
        ready = run.normalisation.apply(x)
        test = run.normalisation.apply(x[:200] * 3 + 7)
        by_hand = self.run_of("hand", data=(ready, y), test=(test, y[:200]), normalise=None)
        self.assertAlmostEqual(
            by_hand.rows[-1]["test_loss"], run.rows[-1]["test_loss"], places=4
        )

    def test_gives_the_model_rows_of_mean_0_and_deviation_1(self) -> None:
        x, y = wide(64)
        batch = self.batches(data=(x, y), normalise="train", test=(x, y), cohort=1,
                             partition=macaw.iid(1), local={"batch_size": 64})  # fmt: skip
        self.assertTrue(np.isfinite(batch).all())
        np.testing.assert_allclose(batch[:, -1], 0, atol=1e-20)
        self.assertLess(np.abs(batch.mean(0)).max(), 1.5)  # of the batch's own rows
        self.assertLess(np.abs(batch).max(), 6)

    def test_of_each_client_takes_its_own_training_rows(self) -> None:
        rng = np.random.default_rng(3)
        owners = {
            "ann": {"train": (rng.normal(50, 2, (40, 3)), rng.integers(2, size=40)),
                    "test": (rng.normal(90, 2, (10, 3)), rng.integers(2, size=10))},
            "bob": {"train": (rng.normal(-5, 9, (30, 3)), rng.integers(2, size=30))},
        }  # fmt: skip
        data = {name: {k: (x.astype(np.float32), y) for k, (x, y) in parts.items()}
                for name, parts in owners.items()}  # fmt: skip
        run = self.run_of(data=data, normalise="client", model=["linear 2"], cohort=2,
                          partition=None, test=data["ann"]["test"])  # fmt: skip
        found = run.normalisation
        for name, parts in data.items():
            mean, std = moments(parts["train"][0])
            np.testing.assert_allclose(found.clients[name][0], mean, rtol=1e-6)
            np.testing.assert_allclose(found.clients[name][1], std, rtol=1e-6)
        together = np.concatenate([parts["train"][0] for parts in data.values()])
        self.check(run, together)
        stored = _safetensors.read(self.file_of(run))["features"]
        self.assertLess(abs(stored[:40].mean()), 1e-5)  # ann's training rows
        np.testing.assert_allclose(stored[40:70].std(0), 1, rtol=1e-5)
        ann = found.apply(data["ann"]["test"][0], client="ann")
        np.testing.assert_array_equal(stored[70:80], ann)
        np.testing.assert_array_equal(stored[80:], found.apply(data["ann"]["test"][0]))
        with self.assertRaisesRegex(macaw.Error, "ann, bob"):
            found.apply(together, client="zoe")

    def file_of(self, run: macaw.Run) -> Path:
        for line in (run.folder / "config.toml").read_text().splitlines():
            if line.startswith("path = ") and ".safetensors" in line:
                return Path(json.loads(line.removeprefix("path = ")))
        raise AssertionError("no data.path")

    def test_of_each_client_follows_the_partition(self) -> None:
        x, y = wide()
        run = self.run_of(data=(x, y), normalise="client",
                          data_options={"client_test_fraction": 0.25})  # fmt: skip
        parts = self.exported(run)
        stored = _safetensors.read(self.file_of(run))["features"]
        checked = 0
        for name, own in parts["client_test"].items():
            training = parts[name]
            np.testing.assert_allclose(stored[training].mean(0), 0, atol=2e-5)
            mean, std = moments(x[training])
            varies = np.ptp(x[training], 0) > 0
            expected = (x[own].astype(np.float64) - mean)[:, varies] / std[varies]
            np.testing.assert_allclose(stored[own][:, varies], expected, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(stored[own][:, ~varies], 0)
            checked += 1
        self.assertGreater(checked, 10)

    def test_of_all_does_not_follow_the_partition(self) -> None:
        """Whose rows train makes no difference, as every scheme gives each to somebody."""
        said = json.loads(subprocess.check_output([macaw._program.program(), "keys", "--json"]))
        named = {"auto", "natural", "histogram", "file"}
        file = macaw.prepare(wide(), cache=self.folder)
        settings = {"data.source": "prepared", "data.path": file}

        def training(scheme: str, clients: int) -> list[int]:
            keys = {"partition.scheme": scheme, "partition.clients": clients, "run.seed": 7}
            division = _division._exported({**settings, **keys}, None, _settings.overrides)
            return sorted(row for rows in division.training.values() for row in rows.tolist())

        everybody = training("iid", 1)
        for scheme in sorted({each["name"] for each in said["partitions"]} - named):
            self.assertEqual(training(scheme, 20), everybody, scheme)

    def test_of_images_takes_those_with_channels_last_as_the_run_did(self) -> None:
        rng = np.random.default_rng(6)
        x = rng.normal([1, 50, -9], [1, 5, 0.1], (120, 8, 8, 3)).astype(np.float32)
        y = rng.integers(3, size=120)
        model = ["conv 2 3", "flatten", "linear 3"]
        run = self.run_of(data=(x, y), test=(x[:20], y[:20]), model=model)
        ready = run.normalisation.apply(x)
        self.assertEqual(ready.shape, (120, 3, 8, 8))
        np.testing.assert_allclose(ready.mean((0, 2, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(ready.std((0, 2, 3)), 1, atol=1e-4)
        first = np.ascontiguousarray(np.moveaxis(x, 3, 1))
        np.testing.assert_array_equal(run.normalisation.apply(first), ready)

    def test_scales_clients_that_do_not_train_by_all_training_rows(self) -> None:
        rng = np.random.default_rng(5)
        data = {f"c{i}": (rng.normal(5, 2, (40, 3)).astype(np.float32), rng.integers(2, size=40))
                for i in range(5)}  # fmt: skip
        x = np.concatenate([own for own, _ in data.values()])
        run = self.run_of(
            data=data, normalise="client", model=["linear 2"], cohort=2, partition=None,
            data_options={"heldout_clients": 0.4, "client_test_fraction": 0.2},
        )  # fmt: skip
        parts = self.exported(run)
        idle = [name for name in data if not parts.get(name)]
        self.assertEqual(len(idle), 2)
        found = run.normalisation
        stored = _safetensors.read(self.file_of(run))["features"].reshape(len(x), -1)
        for name in idle:
            np.testing.assert_array_equal(found.clients[name], (found.mean, found.std))
            own = parts["client_test"][name]
            self.assertGreater(len(own), 30)
            np.testing.assert_array_equal(stored[own], found.apply(x[own]))
            self.assertGreater(stored[own].std(), 0.5)

    def test_of_a_table_is_of_each_column(self) -> None:
        rng = np.random.default_rng(2)
        age = rng.normal(50, 12, 300)
        columns: dict[str, list[Any]] = {
            "age": [float(a) if i % 10 else None for i, a in enumerate(age)],
            "city": ["Bern" if a > 45 else "Basel" for a in age],
            "hospital": ["north" if i % 3 else "south" for i in range(300)],
            "ill": ["yes" if a > 50 else "no" for a in age],
        }
        test = DataFrame({name: values[:30] for name, values in columns.items()})
        run = self.run_of(
            data=DataFrame(columns), test=test, label="ill", client="hospital", cohort=2,
            missing="indicator", model=["linear 2"], partition=None,
        )  # fmt: skip
        raw = _safetensors.read(self.file_of(run))  # of north, of south, of the test set
        self.assertEqual(raw["features"].shape, (330, 4))  # age, is missing, two cities
        self.check(run, raw["features"][:300])
        self.assertIn("4 columns", str(run.said))
        # New rows of such a table: a gap and words become what they became in the run.
        new = DataFrame({name: columns[name][:3] for name in ("age", "city")})
        expected = run.normalisation.apply(raw["features"][300:303])
        np.testing.assert_array_equal(run.normalisation.apply(new), expected)
        with self.assertRaisesRegex(macaw.Error, "no column \"city\""):
            run.normalisation.apply(DataFrame({"age": [1.0]}))
        with self.assertRaisesRegex(macaw.Error, "which no training row has"):
            run.normalisation.apply(DataFrame({"age": [1.0], "city": ["Chur"]}))

    def test_of_a_dataset_dict_is_of_its_training_rows(self) -> None:
        x, y = wide()
        run = self.run_of(data=Splits(train=(x[:400], y[:400]), test=(x[400:] * 9, y[400:])))
        self.check(run, x[:400])

    def test_of_images_is_of_each_channel_and_keeps_the_bytes(self) -> None:
        rng = np.random.default_rng(4)
        x = rng.integers(0, 200, (300, 3, 4, 4), dtype=np.uint8)
        x[:, 1] //= 4
        y = rng.integers(3, size=300)
        run = self.run_of(data=(x, y), test=(x, y), model=["flatten", "linear 3"])
        channels = x.transpose(0, 2, 3, 1).reshape(-1, 3) / 255
        np.testing.assert_allclose(run.normalisation.mean, channels.mean(0), rtol=1e-6)
        np.testing.assert_allclose(run.normalisation.std, channels.std(0), rtol=1e-6)
        self.assertEqual(_safetensors.read(self.file_of(run))["features"].dtype, np.uint8)
        numbers = r"mean = \[0\.\d+, *0\.\d+, *0\.\d+\]"
        self.assertRegex((run.folder / "config.toml").read_text(), numbers)

    def test_of_a_series_is_of_what_each_position_has(self) -> None:
        rng = np.random.default_rng(5)
        x = rng.normal([0, 100], [1, 30], (200, 6, 2)).astype(np.float32)
        y = rng.integers(2, size=200)
        for of in ("train", "client"):
            run = self.run_of(of, data=(x, y), test=(x, y), normalise=of, partition=macaw.iid(4),
                              cohort=2, model=["flatten", "linear 2"])  # fmt: skip
            np.testing.assert_allclose(run.normalisation.mean, x.mean((0, 1)), rtol=1e-4, atol=1e-5)
            stored = _safetensors.read(self.file_of(run))["features"]
            self.assertEqual(stored.shape, (400, 6, 2))
            self.assertLess(np.abs(stored).max(), 7)

    def test_counts_the_channels_of_the_shape_that_a_run_gives_its_rows(self) -> None:
        x = np.random.default_rng(6).normal(3, 2, (200, 12)).astype(np.float32)
        run = self.run_of(data=(x, x[:, 0] > 3), data_options={"input_shape": [3, 2, 2]},
                          test=(x, x[:, 0] > 3), model=["flatten", "linear 2"])  # fmt: skip
        self.assertEqual(run.normalisation.mean.shape, (3,))
        np.testing.assert_allclose(run.normalisation.mean, x.reshape(200, 3, 4).mean((0, 2)), 1e-5)
        for made in (run.normalisation, macaw.Run(run.folder).normalisation):
            applied = made.apply(x)
            self.assertEqual(applied.shape, (200, 3, 2, 2))
            np.testing.assert_allclose(applied.mean((0, 2, 3)), 0, atol=1e-6)
            np.testing.assert_array_equal(made.apply(x.reshape(200, 3, 2, 2)), applied)

    def test_of_images_that_a_run_takes_apart_turns_them_as_it_did(self) -> None:
        x = np.random.default_rng(6).normal(3, 2, (200, 5, 6, 3)).astype(np.float32)
        y = x[:, 0, 0, 0] > 3
        run = self.run_of(data=(x, y), data_options={"input_shape": [90]}, test=(x, y),
                          model=["linear 2"])  # fmt: skip
        applied, first = run.normalisation.apply(x), np.moveaxis(x, 3, 1).reshape(200, 90)
        self.assertEqual(applied.shape, (200, 90))
        np.testing.assert_allclose(applied, (first - first.mean(0)) / first.std(0), atol=1e-4)

    def test_leaves_runs_with_other_seeds_one_configuration(self) -> None:
        runs = [self.run_of(f"{of} {seed}", normalise=of, seed=seed)
                for seed in (1, 2) for of in ("train", "client", None)]  # fmt: skip
        self.assertNotEqual(runs[0].normalisation.mean[1], runs[3].normalisation.mean[1])
        found = [(group.name, len(group.runs)) for group in _groups.groups_of(runs)]
        self.assertEqual(found, [("normalise train", 2), ("normalise client", 2), ("fedavg", 2)])

    def test_goes_with_a_configuration_file(self) -> None:
        x, _ = wide()
        plain = self.run_of("plain", normalise=None, data_options={"central_val_fraction": 0.2})
        text = (plain.folder / "config.toml").read_text().splitlines()
        numbers = ("scale =", "mean =", "std =", "[data.normalise]")
        file = self.folder / "base.toml"
        file.write_text("\n".join(line for line in text if not line.startswith(numbers)))
        for of in ("train", "client"):
            run = self.run_of(of, config=file, normalise=of, partition=None, seed=None,
                              cohort=None, model=None)  # fmt: skip
            self.check(run, self.training_rows(plain, x))

    def test_is_the_same_after_a_resume(self) -> None:
        whole = self.run_of("whole", rounds=4, normalise="client")
        self.run_of("parts", rounds=2, normalise="client")
        parts = macaw.resume(self.folder / "parts", rounds=4)
        self.assertEqual(parts.digest, whole.digest)
        np.testing.assert_array_equal(parts.normalisation.mean, whole.normalisation.mean)

    def test_is_found_again_and_goes_away_with_its_run(self) -> None:
        for of in ("train", "client"):
            self.run_of(of, normalise=of)
            before = sorted((self.folder / "cache/data").iterdir())
            self.run_of(of + " again", normalise=of)
            self.assertEqual(sorted((self.folder / "cache/data").iterdir()), before)
        plain = self.run_of("train", normalise=None, overwrite=True)
        self.assertFalse(plain.is_normalised)
        with self.assertRaisesRegex(macaw.Error, "without normalise"):
            _ = plain.normalisation

    def test_is_refused_where_there_is_no_mean_or_another(self) -> None:
        x, y = wide()
        tokens = np.ones((300, 6), np.int32)
        model = ["embedding 80 8", "mean", "linear 3"]
        self.refused("tokens", data=(tokens, y[:300]), model=model, task="classification")
        self.refused("in memory", data="synthetic", partition=None, model=["linear 10"])
        self.refused("in memory", data=macaw.prepare((x, y), cache=self.folder))
        self.refused("mean", data_options={"normalise": {"mean": [0.0]}})
        self.assertEqual(self.refused('"train" or "client"', normalise="test").key, "normalise")
        # An error of the partition keeps its key.
        error = self.refused("5000", partition=macaw.iid(5000))
        self.assertEqual(error.key, "partition.clients")

    def test_whole_numbers_that_are_no_tokens_have_a_mean(self) -> None:
        x = np.random.default_rng(1).integers(0, 90, (300, 5))
        run = self.run_of(data=(x, x[:, 0] > 40), test=(x, x[:, 0] > 40), model=["linear 2"])
        np.testing.assert_allclose(run.normalisation.mean, x.mean(0), rtol=1e-6)

    def test_in_a_sweep_needs_the_same_rows_in_all_runs(self) -> None:
        x, y = wide()
        given = self.job("s", data=(x, y), normalise="train", rounds=1)
        del given["seed"]
        with self.assertRaisesRegex(macaw.ConfigError, r"data_options=dict\(seed=1\)"):
            macaw.sweep(**given, seeds=[1, 2], progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sweep = macaw.sweep(**given, seeds=[1, 2], data_options={"seed": 1}, progress=False)
            self.check(sweep.runs["001-seed1"], self.training_rows(sweep.runs["001-seed2"], x))
        options = {"client_test_fraction": 0.2, "seed": 1}
        with self.assertRaisesRegex(macaw.ConfigError, r"and partition=macaw\.…\(seed=1\)"):
            macaw.sweep(**given, seeds=[1, 2], data_options=options, progress=False)
        of_clients = {**given, "normalise": "client", "out": self.folder / "c"}
        for varied in (macaw.grid([macaw.iid(5), macaw.iid(6)]),
                       {"scheme": "iid", "clients": macaw.grid([5, 6])}):  # fmt: skip
            with self.assertRaisesRegex(macaw.ConfigError, "varies"):
                macaw.sweep(**{**of_clients, "partition": varied}, progress=False)

    @needs("torch")
    def test_is_what_the_module_is_compared_with(self) -> None:
        from torch import nn

        run = self.run_of(model=nn.Sequential(nn.Linear(8, 3)), normalise="train")
        self.assertIn("equal the module's own", str(run.said))


if __name__ == "__main__":
    unittest.main()
