"""Runs from Python: what they are asked for, and what they give."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
import types
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _settings
from macaw._configuration import keys_of
from support import SOURCE, TestCase, needs, rows


class ARun(TestCase):
    def test_has_the_digest_of_the_same_run_from_toml(self) -> None:
        x, y = rows()
        y = y.astype(np.int32)
        # As docs/guides/data.md writes a prepared file.
        header: dict[str, Any] = {}
        at = 0
        for name, kind, tensor in (("labels", "I32", y), ("features", "F32", x)):
            header[name] = {"dtype": kind, "shape": tensor.shape,
                            "data_offsets": [at, at + tensor.nbytes]}  # fmt: skip
            at += tensor.nbytes
        text = json.dumps(header).encode()
        path = self.folder / "mine.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + y.tobytes() + x.tobytes())
        (self.folder / "run.toml").write_text("""
            run = {rounds = 4, seed = 7}
            data = {source = "prepared", path = "mine.safetensors"}
            partition = {scheme = "dirichlet-class", concentration = 0.3, clients = 20}
            model = {layers = ["linear 8", "relu", "linear 3"]}
            algorithm = {name = "fedprox", fedprox = {mu = 0.1}}
            cohort = {size = 5}
            local = {epochs = 2, batch_size = 20, lr = 0.05}
        """)
        program = macaw._program.program()
        out = self.folder / "toml"
        subprocess.run(
            [program, "simulate", "-q", self.folder / "run.toml", "--out", out],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        run = macaw.simulate(
            **self.job(
                "python",
                partition=macaw.dirichlet(0.3, clients=20),
                algorithm=macaw.FedProx(mu=0.1),
                local={"epochs": 2, "batch_size": 20, "lr": 0.05},
            )
        )
        self.assertEqual(run.digest, macaw.Run(out).digest)
        self.assertEqual([row["train_loss"] for row in run.rows],
                         [row["train_loss"] for row in macaw.Run(out).rows])  # fmt: skip
        with_file = macaw.simulate(
            config=self.folder / "run.toml", rounds=4, out=self.folder / "config"
        )
        self.assertEqual(with_file.digest, run.digest)

    def test_is_divided_by_a_histogram(self) -> None:
        counts = np.array([[9, 1, 0], [0, 12, 3], [4, 4, 4], [2, 0, 7]])
        np.save(self.folder / "counts.npy", counts)
        runs = [
            macaw.simulate(**self.job(name, partition=macaw.histogram(given, seed=2), cohort=3))
            for name, given in (
                ("array", counts),
                ("list", counts.tolist()),
                ("floats", counts.astype(np.float32)),
                ("path", self.folder / "counts.npy"),
            )
        ]
        self.assertEqual({run.digest for run in runs}, {runs[0].digest})
        self.assertIn(" 4 clients", dict(runs[0].said)["data"])
        some = macaw.histogram(counts, clients=3, seed=2)
        fewer = macaw.simulate(**self.job("fewer", partition=some, cohort=3))
        self.assertIn(" 3 clients", dict(fewer.said)["data"])
        for wrong in (counts[0], counts - 1, counts + 0.5, "counts"):
            with self.assertRaises((macaw.ConfigError, macaw.DataError)) as raised:
                macaw.simulate(**self.job("wrong", partition=macaw.histogram(wrong)))
            said = str(raised.exception).split(": ")
            self.assertIn("partition.path", (raised.exception.key, *said))

    def test_meets_hostile_clients(self) -> None:
        honest = macaw.simulate(**self.job("honest"))
        attacked = macaw.simulate(
            **self.job("attacked", attack=dict(kind="sign-flip", fraction=0.5, scale=2))
        )
        self.assertGreater(sum(attacked.metrics["rule_attackers"]), 0)
        self.assertNotEqual(attacked.digest, honest.digest)

    def test_keeps_clients_private(self) -> None:
        cohort = dict(size=2, sampling="poisson", weight="uniform")
        privacy = dict(mechanism="gaussian", clip=0.5, noise=1.5, clip_quantile=0.5, count_noise=1)
        job = self.job("private", privacy=privacy) | {"cohort": cohort}
        run = macaw.simulate(**job)
        again = macaw.simulate(**(job | {"out": self.folder / "again", "workers": {"slots": 1}}))
        self.assertEqual(run.digest, again.digest)
        epsilon = list(run.metrics["rule_epsilon"])
        self.assertEqual(epsilon, sorted(epsilon))
        self.assertGreater(epsilon[0], 0)
        self.assertNotEqual(run.rows[0]["rule_clip"], run.rows[-1]["rule_clip"])

    def test_gives_metrics_model_and_summary(self) -> None:
        run = macaw.simulate(**self.job("run", evaluation={"every": 2}))
        self.assertEqual(run.summary["rounds"], 4)
        self.assertEqual(list(run.metrics["round"]), [1, 2, 3, 4])
        accuracy = list(run.metrics["test_accuracy"])
        self.assertTrue(math.isnan(accuracy[0]) and 0 <= accuracy[1] <= 1, accuracy)
        shapes = {name: array.shape for name, array in run.model().items()}
        self.assertEqual(
            shapes, {"0.weight": (8, 8), "0.bias": (8,), "2.weight": (3, 8), "2.bias": (3,)}
        )
        self.assertEqual(run.said[-1], ("run", str(self.folder / "run")))
        self.assertIn("finished, 4 rounds", repr(run))

    def test_of_clusters_takes_labels_that_are_all_zero(self) -> None:
        x = rows()[0] + np.repeat([[-9], [9]], 300, 0).astype(np.float32)
        y = np.zeros(600, int)
        run = macaw.simulate(**self.job(
            "run", model=["linear 2"], data=(x, y), data_options={"classes": 2}, cohort=20,
            partition=macaw.iid(20), algorithm=macaw.KMeans(), rounds=6,
        ))  # fmt: skip
        self.assertEqual(run.model()["0.weight"].shape, (2, 8))
        self.assertIsNone(run.rows[-1]["train_loss"], "nothing is trained")
        self.assertIn("finished, 6 rounds, test_accuracy", repr(run))

    def test_learns(self) -> None:
        run = macaw.simulate(**self.job("run", rounds=60, local={"lr": 0.3}))
        self.assertGreater(run.summary["final"]["test_accuracy"], 0.8)

    def test_streams_its_rows_while_it_runs(self) -> None:
        stream = macaw.stream(**self.job("run"))
        self.assertEqual(stream.rounds, 4)
        seen = [row["round"] for row in stream]
        self.assertEqual(seen, [1, 2, 3, 4])
        self.assertEqual(stream.run.rows[-1]["round"], 4)

    def test_that_is_killed_is_an_error_to_whoever_reads_on(self) -> None:
        stream = macaw.stream(**self.job("run", rounds=1_000_000))
        for _ in stream:
            stream._simulation._process.kill()
            stream._simulation._process.wait()
            break
        with self.assertRaisesRegex(macaw.RunError, "exit code -9 and said nothing"):
            stream.finish()
        stream.close()

    def test_starts_from_given_weights(self) -> None:
        zero = {"0.weight": np.zeros((3, 8), np.float32), "0.bias": np.ones(3, np.float32)}
        run = macaw.simulate(**self.job("run", model=["linear 3"], init=zero, local={"lr": 1e-30}))
        np.testing.assert_array_equal(run.model()["0.bias"], zero["0.bias"])

    def test_takes_clients_paths_and_generated_data(self) -> None:
        x, y = rows(60)
        clients = {f"c{i}": (x[i::6], y[i::6]) for i in range(6)}
        run = macaw.simulate(**self.job("clients", data=clients, partition=None, test=rows(20)))
        self.assertEqual(run.summary["settings"]["data.source"], "prepared")
        path = SOURCE / "examples/data/activity.csv"
        run = macaw.simulate(
            **self.job(
                "path",
                data=path,
                partition=None,
                cohort=0.5,
                model=["linear 4"],
                data_options={"client_column": "user"},
            )
        )
        self.assertEqual(run.summary["settings"]["data.source"], "csv")
        run = macaw.simulate("logistic", "synthetic", cohort=3, rounds=1, out=self.folder / "syn")
        self.assertEqual(run.summary["rounds"], 1)

    def test_that_loses_what_it_knew_warns(self) -> None:
        rng = np.random.default_rng(5)
        x, known = rng.normal(size=(600, 8)).astype(np.float32), rng.normal(size=(8, 3))
        y = np.argmax(x @ known, axis=1)
        weights = {"0.weight": known.T.astype(np.float32), "0.bias": np.zeros(3, np.float32)}
        job = self.job(
            "run",
            model=["linear 3"],
            init=weights,
            data=(x, (y + 1) % 3),
            test=(x, y),
            rounds=9,
            local={"lr": 0.001, "epochs": 5, "lr_schedule": {"kind": "step", "gamma": 3.0}},
        )
        with self.assertWarnsRegex(RuntimeWarning, "test_accuracy ended at"):
            run = macaw.simulate(**job)
        self.assertEqual(run.said[-1][0], "warning")

    def test_of_a_folder_that_is_none_is_refused(self) -> None:
        with self.assertRaisesRegex(macaw.Error, "no run"):
            macaw.Run(self.folder)

    @needs("pandas")
    def test_gives_a_data_frame(self) -> None:
        import pandas

        run = macaw.simulate(**self.job("run"))
        self.assertIsInstance(run.metrics, pandas.DataFrame)
        self.assertEqual(len(run.metrics), 4)

    @needs("matplotlib")
    def test_is_drawn(self) -> None:
        run = macaw.simulate(**self.job("run"))
        run.plot().savefig(self.folder / "run.png")
        self.assertEqual((self.folder / "run.png").read_bytes()[1:4], b"PNG")

    def test_shows_its_progress_when_asked(self) -> None:
        script = "import macaw, sys; macaw.simulate('logistic', 'synthetic', cohort=3, rounds=2, "
        script += "out=sys.argv[1], progress=True)"
        shown = subprocess.run(
            [sys.executable, "-c", script, self.folder / "run"], capture_output=True, text=True,
            env=os.environ, check=True,
        )  # fmt: skip
        self.assertEqual(shown.stdout, "")
        self.assertIn("2/2", shown.stderr)
        self.assertIn("model", shown.stderr)


class ASeed(TestCase):
    def test_of_a_file_is_read_only_where_something_follows_from_it(self) -> None:
        """Python before 3.11 cannot read the file."""
        given = {"config": self.folder / "run.toml", "cache": self.folder}
        with mock.patch.object(_settings, "sys", types.SimpleNamespace(version_info=(3, 10))):
            self.assertEqual(keys_of({**given, "rounds": 4}).settings, {"run.rounds": 4})
            with self.assertRaisesRegex(macaw.ConfigError, "before 3.11") as caught:
                keys_of({**given, "normalise": "train"})
        self.assertEqual(caught.exception.key, "run.seed")

    def test_that_is_no_number_is_refused(self) -> None:
        for changes in ({}, {"normalise": "train"}):
            for seed in ("x", float("inf")):
                with self.assertRaises(macaw.ConfigError) as caught:
                    macaw.simulate(**self.job("run", seed=seed, **changes))
                self.assertEqual(caught.exception.key, "run.seed")


class Values(TestCase):
    def test_are_written_as_toml(self) -> None:
        for value, text in [
            (True, "true"), (3, "3"), (0.1, "0.1"), (1e-08, "1e-08"), (2.0, "2.0"),
            ('a "b" \\', '"a \\"b\\" \\\\"'), ([1, 2.5], "[1, 2.5]"), (("a",), '["a"]'),
            (np.float32(0.5), "0.5"), (np.int64(4), "4"), (np.array([1, 2]), "[1, 2]"),
            (float("inf"), "inf"),
        ]:  # fmt: skip
            self.assertEqual(_settings.to_toml(value), text)
        with self.assertRaises(TypeError):
            _settings.to_toml(object())
