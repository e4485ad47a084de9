"""Wrong calls: each is an exception that names what is wrong, and what was probably meant."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from test_tables import DataFrame

import macaw
import macaw.keys
from macaw import _names
from support import SOURCE, TestCase, rows


class WrongCalls(TestCase):
    def refused(self, kind: type[macaw.Error], **changes: Any) -> macaw.Error:
        with self.assertRaises(kind) as caught:
            macaw.simulate(**self.job("run", **changes))
        self.assertFalse((self.folder / "run").exists())
        self.assertNotIn("--set", str(caught.exception))
        self.assertNotIn("cache", str(caught.exception))  # where the data was written
        return caught.exception

    def test_a_shape(self) -> None:
        error = self.refused(macaw.ConfigError, model=["conv 4 3", "flatten", "linear 3"])
        self.assertEqual(error.key, "model.layers")
        self.assertIn("[8]", str(error))

    def test_a_type(self) -> None:
        x, y = rows()
        self.assertIn("complex64", str(self.refused(macaw.DataError, data=(x + 1j, y))))
        self.assertEqual(self.refused(macaw.ConfigError, local={"lr": "fast"}).key, "local.lr")

    def test_a_token_that_the_model_does_not_know(self) -> None:
        tokens = np.zeros((300, 6), np.int32)
        tokens[299, 4] = 90
        model = ["embedding 80 8", "lstm 4", "last", "linear 3"]
        error = self.refused(macaw.ConfigError, model=model, data=(tokens, rows()[1][:300]))
        self.assertEqual(error.key, "model.layers")
        self.assertIn("token 90", str(error))
        self.assertIn('"embedding 91 8"', str(error))

    def test_a_value_that_is_not_finite(self) -> None:
        x, y = rows()
        x[41, 0] = np.nan
        self.assertIn("row 41", str(self.refused(macaw.DataError, data=(x, y))))
        self.assertEqual(self.refused(macaw.ConfigError, local={"lr": np.nan}).key, "local.lr")

    def test_weights_that_are_not_finite(self) -> None:
        weights = {"0.weight": np.full((3, 8), np.inf, np.float32)}
        self.assertIn("0.weight", str(self.refused(macaw.ModelError, init=weights)))

    def test_weights_of_another_model(self) -> None:
        weights = {"0.weight": np.zeros((3, 9), np.float32)}
        error = self.refused(macaw.ConfigError, model=["linear 3"], init=weights)
        self.assertIn("0.", str(error))

    def test_too_many_clients(self) -> None:
        error = self.refused(macaw.ConfigError, partition=macaw.iid(clients=5000))
        self.assertEqual(error.key, "partition.clients")
        self.assertIn("5000", str(error))
        self.assertEqual(self.refused(macaw.ConfigError, cohort=21).key, "cohort.size")

    def test_a_value_that_no_key_takes(self) -> None:
        error = self.refused(macaw.ConfigError, local={"lr": object()})
        self.assertEqual(error.key, "local.lr")

    def test_clients_that_are_no_dict(self) -> None:
        x, y = rows()
        error = self.refused(macaw.DataError, data=[(x[:300], y[:300]), (x[300:], y[300:])])
        self.assertIn("give a dict, data={name: (x, y), …}", str(error))
        error = self.refused(macaw.ConfigError, partition={"a": [0, 1], "b": [2, 3]})
        self.assertIn("client=", str(error))

    def test_a_value_that_float32_cannot_hold(self) -> None:
        x, y = rows()
        x = x.astype(np.float64)
        x[41, 0] = 1e300
        error = self.refused(macaw.DataError, data=(x, y))
        self.assertIn("row 41 of x has a value that float32 cannot hold", str(error))

    def test_outputs_and_classes(self) -> None:
        x, y = rows()
        error = self.refused(macaw.ConfigError, model=["linear 7"])
        self.assertIn("if there are classes that no row has, say data.classes = 7", str(error))
        binary = (x, (y > 0).astype(int))
        error = self.refused(macaw.ConfigError, model=["linear 1"], data=binary)
        self.assertIn('one output for two classes is run.task = "binary"', str(error))

    def test_a_folder_that_cannot_be_written(self) -> None:
        (self.folder / "file").write_text("")
        with self.assertRaisesRegex(macaw.ConfigError, "out: .*file.* cannot be written"):
            macaw.sweep(**self.job("run", local={"lr": macaw.grid([0.1])})
                        | {"out": self.folder / "file/sweep", "seed": None})  # fmt: skip

    def test_a_path_that_is_a_number(self) -> None:
        calls = {
            "config": lambda: macaw.simulate(**self.job("run", config=5)),
            "out": lambda: macaw.simulate(**self.job("run", out=5)),
            "cache": lambda: macaw.simulate(**self.job("run", cache=5)),
            "folder": lambda: macaw.Run(5),  # type: ignore[arg-type]
        }
        for argument, call in calls.items():
            with self.assertRaisesRegex(macaw.ConfigError, f"{argument}=5: expected a path"):
                call()

    def test_an_unknown_key(self) -> None:
        error = self.refused(macaw.ConfigError, local={"learning_rate": 0.1})
        self.assertEqual((error.key, error.nearest), ("local.learning_rate", "local.lr"))

    def test_an_unknown_argument(self) -> None:
        error = self.refused(macaw.ConfigError, comm_round=3)
        self.assertEqual(error.nearest, "run.rounds")

    def test_a_value_out_of_range(self) -> None:
        error = self.refused(macaw.ConfigError, local={"lr": -1})
        self.assertEqual(error.key, "local.lr")
        self.assertIn("> 0", str(error))
        error = self.refused(macaw.ConfigError, algorithm=macaw.FedProx(mu=-1))
        self.assertEqual(error.key, "algorithm.fedprox.mu")

    def test_a_whole_number_beyond_64_bits(self) -> None:
        self.assertEqual(self.refused(macaw.ConfigError, seed=2**63).key, "run.seed")
        error = self.refused(macaw.ConfigError, local={"steps": 2**70})
        self.assertIn("local.steps: it has a whole number of more than 64 bits", str(error))
        for changes in ({"seeds": [2**70]}, {"local": {"lr": macaw.grid([0.1, object()])}}):
            job = self.job("sweep", **changes)
            del job["seed"]
            with self.assertRaisesRegex(macaw.ConfigError, "64 bits|no key takes"):
                macaw.sweep(**job)

    def test_an_unknown_name(self) -> None:
        for key, name, nearest in [
            ("algorithm", "fedprxo", "fedprox"),
            ("model", "lenet", "lenet5"),
            ("partition", "dirichlet-clas", "dirichlet-class"),
        ]:
            error = self.refused(macaw.ConfigError, **{key: name})
            self.assertEqual(error.nearest, nearest)

    def test_an_unknown_layer(self) -> None:
        error = self.refused(macaw.ConfigError, model=["liner 3"])
        self.assertEqual(error.key, "model.layers")
        self.assertIn("liner", str(error))

    def test_another_kind_of_model(self) -> None:
        self.assertIn("int", str(self.refused(macaw.ModelError, model=3)))

    def test_a_missing_back_end(self) -> None:
        module = str(self.folder / "libmacaw_none.so")
        error = self.refused(macaw.MissingBackendError, workers={"backend": module})
        self.assertIn(module, str(error))

    def test_a_path_that_is_not_there(self) -> None:
        error = self.refused(macaw.ConfigError, data=Path("/not/there.csv"), partition=None)
        self.assertEqual(error.key, "data.path")
        self.assertIn("/not/there.csv", str(error))

    def test_a_file_that_cannot_be_read(self) -> None:
        file = self.folder / "bad.toml"
        file.write_text("[run]\nrounds = ,\n")
        error = self.refused(macaw.ConfigError, config=file)
        self.assertIn("bad.toml:2", str(error))

    def test_a_file_that_python_reads(self) -> None:
        bad, away = self.folder / "bad.toml", self.folder / "away.toml"
        bad.write_text("[run]\nrounds = ,\n")
        latin = self.folder / "latin.toml"
        latin.write_bytes(b'[run]\nname = "\xe9"\n')
        reads = ({"normalise": "train"}, {"privacy": {"epsilon": 8.0, "clip": 1.0}})
        for more in reads if sys.version_info >= (3, 11) else ():
            for file, words in ((bad, "TOML"), (latin, "TOML"), (away, "No such file")):
                error = self.refused(macaw.ConfigError, config=file, partition=None, **more)
                self.assertEqual(error.key, "config")
                self.assertRegex(str(error), f"{file.name}.*{words}")

    def test_nothing(self) -> None:
        with self.assertRaisesRegex(macaw.ConfigError, "model and data"):
            macaw.simulate()


class Steps(TestCase):
    """Calls that a new user makes, and the line to write that each error has to say."""

    def said(self, **changes: Any) -> str:
        with self.assertRaises(macaw.Error) as caught:
            macaw.simulate(**self.job("run", **changes))
        return str(caught.exception)

    def test_in_a_wrong_direction_say_what_to_write(self) -> None:
        x, y = rows()
        taken = self.folder / "taken"
        macaw.simulate(**self.job("taken"))
        csv = self.folder / "words.csv"
        csv.write_text("a,city,label\n1,Bern,0\n2,Basel,1\n" * 20)
        of_file: dict[str, Any] = {"source": "csv", "label_column": "label"}
        for changes, line in [
            (dict(data=(x, (y > 1).astype(float)), model=["linear 2"]), "y.astype(int)"),
            (dict(run=dict(task="regression")), 'y.astype("float32")'),
            (dict(data=(x, y + 1)), "give y - 1"),
            (dict(data=(x, np.eye(3)[y])), "y.argmax(1)"),
            (dict(data=(x, y.astype(str))), "np.unique(y, return_inverse=True)"),
            (dict(privacy=dict(epsilon=8)), "privacy=dict(epsilon=8, clip=1.0)"),
            (dict(privacy=dict(epsilon=8, clip=1), cohort=None), "cohort=… is missing"),
            (dict(privacy=dict(clip=1)), "privacy=dict(epsilon=8, clip=1.0)"),
            (dict(out=taken), "overwrite=True"),
            (dict(run={"stop.metric": "test_acc", "stop.patience": 3}), "test_accuracy"),
            (dict(data=csv, data_options=of_file), "pandas.read_csv"),
            (dict(data=csv, label="label"), 'data_options=dict(label_column="label")'),
            (dict(data=csv, client="who"), 'data_options=dict(client_column="who")'),
        ]:
            with self.subTest(line), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                self.assertIn(line, self.said(**changes))

    def test_in_the_words_of_other_systems_are_named(self) -> None:
        for name, line in [
            ("num_rounds", "rounds="), ("num_clients", "partition=macaw.iid(clients="),
            ("fraction_fit", "cohort="), ("strategy", "algorithm="), ("random_state", "seed="),
            ("learning_rate", "local=dict(lr="), ("batch_size", "local=dict(batch_size="),
            ("n_jobs", "workers=dict(slots="), ("X", "data=(x, y)"), ("max_iter", "rounds="),
        ]:  # fmt: skip
            with self.subTest(name):
                self.assertIn(f"did you mean {line}", self.said(**{name: 3}))

    def test_in_the_words_of_other_systems_are_none_of_ours(self) -> None:
        known = inspect.signature(macaw.simulate).parameters
        tables = macaw.keys.Sections.__annotations__
        self.assertFalse({*_names._ARGUMENTS, *_names._SHORT} & {*known, *tables})
        for meant in _names._PARAMETERS:
            for function in (macaw.iid, macaw.dirichlet, macaw.shards, macaw.k_classes):
                self.assertNotIn(meant, inspect.signature(function).parameters)

    def test_of_functions_and_names_are_errors_of_ours(self) -> None:
        for wrong, meant in [
            (lambda: macaw.dirichlet(alpha=0.3, clients=10), "concentration"),
            (lambda: macaw.dirichlet(0.3, num_clients=10), "clients"),
            (lambda: macaw.iid(n_partitions=10), "clients"),
            (lambda: macaw.FedProx(proximal_mu=0.1), "mu"),
            (lambda: macaw.FedProx(muu=0.1), "mu"),
            (lambda: macaw.Fedprox, "FedProx"),
            (lambda: macaw.DirichletPartitioner, "dirichlet"),
            (lambda: macaw.GridSearchCV, "sweep"),
            (lambda: macaw.k_classes(10), None),
        ]:
            with self.assertRaises(macaw.Error) as caught:
                wrong()
            self.assertEqual(caught.exception.nearest, meant, caught.exception)
        self.assertFalse(hasattr(macaw, "Fedprox"))
        with self.assertRaises(TypeError):
            macaw.iid(client=10)

    def test_to_the_task_are_taken(self) -> None:
        run = macaw.simulate(**self.job("run", task="classification", dtype="float32"))
        self.assertEqual(run.summary["settings"]["run.task"], "classification")

    def test_with_numbers_of_numpy_are_those_of_python(self) -> None:
        plain = macaw.simulate(**self.job("plain", cohort=0.5, local={"lr": 0.25, "epochs": 2}))
        job = self.job(
            "numpy", rounds=np.int64(4), seed=np.uint8(7), cohort=np.float32(0.5),
            local={"lr": np.float64(0.25), "epochs": np.int32(2), "shuffle": np.bool_(True)},
        )  # fmt: skip
        self.assertEqual(macaw.simulate(**job).digest, plain.digest)

    def test_that_a_run_notes_are_warnings_in_a_script(self) -> None:
        with self.assertWarns(UserWarning) as caught:
            run = macaw.simulate(**self.job("run", algorithm="scaffold"))
        self.assertIn(("note", str(caught.warning)), run.said)


class ACommandLine(TestCase):
    def test_is_not_what_exceptions_speak_of(self) -> None:
        said = "".join(
            re.sub(r'"\s*\n\s*"', "", file.read_text())
            for room in ("cli", "server")
            for file in (SOURCE / room).rglob("*.cc")
        )
        for theirs, ours in _names._WORDS:
            self.assertIn(theirs, said)  # the program does say it
            self.assertEqual(_names.in_python(f"a; {theirs}."), f"a; {ours}.")
        self.assertEqual(
            _names.in_python("one that starts from this model: --set model.init=runs/a/x"),
            "one that starts from this model: model.init=runs/a/x",
        )

    def test_is_not_in_the_errors_of_a_resume(self) -> None:
        run = macaw.simulate(**self.job("run"))
        with self.assertRaisesRegex(macaw.Error, r"macaw\.resume\(…, rounds=…\)") as caught:
            macaw.resume(run.folder)
        self.assertNotIn("--", str(caught.exception))


class Private(TestCase):
    def test_runs_have_the_noise_of_their_epsilon(self) -> None:
        job = {"privacy": {"epsilon": 8, "delta": 1e-3, "clip": 1}, "rounds": 6, "cohort": 5}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            run = macaw.simulate(**self.job("run", **job))
            again = macaw.simulate(**self.job("again", **{**job, "cohort": 0.25}))
        self.assertIn("over 6 rounds of some 5 of 20 clients", str(run.said))
        settings = run.summary["settings"]
        self.assertEqual(settings["cohort.sampling"], "poisson")
        self.assertEqual(settings["cohort.weight"], "uniform")
        spent = run.summary["privacy"]["epsilon"]
        self.assertLessEqual(spent, 8.0)
        self.assertGreater(spent, 7.5)  # no more noise than is needed
        self.assertEqual(again.digest, run.digest)

    def test_runs_of_clients_of_the_data_count_these(self) -> None:
        x, y = rows()
        owners = {f"c{i}": (x[20 * i : 20 * i + 20], y[20 * i : 20 * i + 20]) for i in range(30)}
        settings = macaw._configuration.keys_of(
            self.job("run", data=owners, partition=None, privacy={"epsilon": 8, "clip": 1})
        ).settings
        other = macaw._configuration.keys_of(
            self.job("run", partition=macaw.iid(30), privacy={"epsilon": 8, "clip": 1})
        ).settings
        self.assertEqual(settings["privacy.noise"], other["privacy.noise"])
        self.assertEqual(settings["privacy.mechanism"], "gaussian")

    def test_runs_of_clients_that_nobody_has_counted_are_refused(self) -> None:
        for changes, said in [
            (dict(privacy={"noise": 1.0}), "say the same thing"),
            (dict(rounds=None), "rounds=… is missing"),
            (dict(data_options={"heldout_clients": 0.2}), "macaw privacy --clients … --cohort 5"),
            (dict(privacy={"epsilon": -1}), "found -1"),
        ]:
            privacy = {"epsilon": 8, "clip": 1, **changes.pop("privacy", {})}
            with self.assertRaises(macaw.ConfigError) as caught:
                macaw.simulate(**self.job("run", privacy=privacy, **changes))
            self.assertIn(said, str(caught.exception))
            self.assertEqual(caught.exception.key, "privacy.epsilon")

    def test_runs_name_keys_of_the_call_in_their_errors(self) -> None:
        for wrong, key, nearest in [
            ({"epsilom": 8}, "privacy.epsilom", "privacy.epsilon"),
            ({"noise_multiplier": 1.0}, "privacy.noise_multiplier", "privacy.noise"),
            ({"epsilon": 8, "max_grad_norm": 1}, "privacy.max_grad_norm", "privacy.clip"),
            ({"epsilon": 8, "clip": 1, "delta": 2}, "privacy.delta", None),
            ({"epsilon": 8, "clip": 1, "population": 3}, "privacy.epsilon", None),
            (8, "privacy", None),
        ]:
            with self.subTest(wrong), self.assertRaises(macaw.ConfigError) as caught:
                macaw.simulate(**self.job("run", privacy=wrong))
            self.assertEqual((caught.exception.key, caught.exception.nearest), (key, nearest))
            self.assertNotIn("--", str(caught.exception))

    def test_runs_have_the_usual_delta_of_their_epsilon(self) -> None:
        """A tenth of 1 / clients, as docs/guides/privacy.md says."""
        job = self.job("run", privacy={"epsilon": 8, "clip": 1}, partition=macaw.iid(40))
        settings = macaw._configuration.keys_of(job).settings
        self.assertAlmostEqual(settings["privacy.delta"], 0.1 / 40)

    def test_runs_plan_without_the_stragglers_that_are_dropped(self) -> None:
        def noise(**cohort: Any) -> Any:
            job = self.job("run", privacy={"epsilon": 8, "clip": 1}, cohort=cohort)
            return macaw._configuration.keys_of(job).settings["privacy.noise"]

        dropped = {"straggler_fraction": 0.5, "straggler_policy": "drop"}
        self.assertEqual(noise(size=10, **dropped), noise(size=5))
        self.assertEqual(
            noise(size=10, **{**dropped, "straggler_policy": "partial"}), noise(size=10)
        )
        job = {"privacy": {"epsilon": 8, "delta": 1e-3, "clip": 1}, "rounds": 6}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = macaw.simulate(**self.job("run", cohort={"size": 10, **dropped}, **job))
        self.assertIn("of some 5 of 20 clients", str(run.said))
        self.assertLessEqual(run.summary["privacy"]["epsilon"], 8.0)
        self.assertGreater(run.summary["privacy"]["epsilon"], 7.5)
        with self.assertRaises(macaw.ConfigError) as caught:
            noise(size=10, **{**dropped, "straggler_fraction": 1})
        self.assertEqual(caught.exception.key, "cohort.straggler_fraction")

    def test_runs_take_no_numbers_over_the_rows_of_all(self) -> None:
        x, y = rows()
        table = {**{f"x{i}": x[:, i].tolist() for i in range(8)}, "y": y.tolist()}
        whole = DataFrame(table)
        gaps = DataFrame({**table, "x3": [float("nan"), *table["x3"][1:]]})
        private: dict[str, Any] = {"mechanism": "gaussian", "clip": 1.0, "noise": 1.0}
        private_file = self.folder / "private.toml"
        private_file.write_text('[privacy]\nmechanism = "gaussian"\nclip = 1.0\nnoise = 1.0\n')
        cohort = {"size": 5, "sampling": "poisson", "weight": "uniform"}
        of_table: dict[str, Any] = {"data": gaps, "label": "y"}
        for changes, key, line in [
            ({"normalise": "train"}, "normalise", 'normalise="client"'),
            ({**of_table, "missing": "mean"}, "missing", "df.fillna"),
            ({**of_table, "missing": "indicator"}, "missing", "df.fillna"),
        ]:
            for privacy in (
                {"privacy": private},
                {"privacy": {"epsilon": 8, "clip": 1}},
                {"config": private_file} if sys.version_info >= (3, 11) else {"privacy": private},
            ):
                job = self.job("run", cohort=cohort, **changes, **privacy)
                for begin in (macaw.simulate, macaw.stream):
                    with self.subTest(changes=[*changes], privacy=privacy):
                        with self.assertRaises(macaw.ConfigError) as caught:
                            begin(**job)
                        self.assertEqual(caught.exception.key, key)
                        self.assertIn(line, str(caught.exception))
            for varied in (
                {"mechanism": macaw.grid(["none", "gaussian"]), "clip": 1.0, "noise": 1.0},
                macaw.grid([{"mechanism": "none"}, private]),
            ):
                job = self.job("sweep", cohort=cohort, privacy=varied, **changes)
                del job["seed"]
                with self.subTest(changes=[*changes], sweep=varied):
                    with self.assertRaises(macaw.ConfigError) as caught:
                        macaw.sweep(**job, progress=False)
                    self.assertEqual(caught.exception.key, key)
        for taken in (
            {"normalise": "train"},
            {**of_table, "missing": "mean"},
            {"normalise": "client", "privacy": private},
            {"data": whole, "label": "y", "missing": "mean", "privacy": private},
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                macaw._configuration.keys_of(self.job("run", cohort=cohort, **taken))


class ARunThatFails(TestCase):
    def test_in_a_folder_that_is_taken_says_so(self) -> None:
        macaw.simulate(**self.job("run"))
        with self.assertRaisesRegex(macaw.ConfigError, "run"):
            macaw.simulate(**self.job("run"))
        again = macaw.simulate(**self.job("run", rounds=2, overwrite=True))
        self.assertEqual(again.summary["rounds"], 2)

    def test_leaves_no_process(self) -> None:
        with self.assertRaises(macaw.RunError) as caught:
            macaw.simulate(
                **self.job("run", workers={"backend": "process", "command": ["/bin/false"]})
            )
        self.assertIn("/bin/false", str(caught.exception))
