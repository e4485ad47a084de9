"""Wrong calls: each is an exception that names what is wrong, and what was probably meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import macaw
from support import TestCase, rows


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

    def test_nothing(self) -> None:
        with self.assertRaisesRegex(macaw.ConfigError, "model and data"):
            macaw.simulate()


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
