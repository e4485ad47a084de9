"""What becomes of data: the prepared file, its name, its refusals."""

from __future__ import annotations

import subprocess
import warnings
from typing import Any, ClassVar

import numpy as np

import macaw
from macaw import _data, _safetensors, _scores
from macaw._columns import Columns
from support import TestCase, needs, rows

# As `datasets` has it, which is known by its name.
Splits = type("DatasetDict", (dict,), {})


class Prepared(TestCase):
    def prepare(self, data: Any, **more: Any) -> Any:
        return macaw.prepare(data, cache=self.folder, **more)

    def info(self, path: Any) -> str:
        program = macaw._program.program()
        return subprocess.check_output([program, "data", "info", path], text=True)

    def test_holds_the_bytes_of_the_arrays(self) -> None:
        x, y = rows()
        file = _safetensors.read(self.prepare((x, y)))
        np.testing.assert_array_equal(file["features"], x)
        np.testing.assert_array_equal(file["labels"], y)
        self.assertEqual(file["labels"].dtype, np.int32)

    def test_is_named_by_its_content_and_written_once(self) -> None:
        x, y = rows()
        first = self.prepare((x, y))
        written = first.stat().st_mtime_ns
        self.assertEqual(self.prepare((x.copy(), y.tolist())), first)
        self.assertEqual(first.stat().st_mtime_ns, written)
        x[3, 2] += 1
        self.assertNotEqual(self.prepare((x, y)), first)
        self.assertEqual(len(list(first.parent.iterdir())), 2)  # and nothing half-written

    def test_of_clients_has_their_names_and_rows(self) -> None:
        x, y = rows(9)
        ann, bob = (x[:4], y[:4]), {"train": (x[4:6], y[4:6]), "test": (x[6:9], y[6:9])}
        path = self.prepare({"ann": ann, "bob": bob}, test=rows(5, seed=2))
        file = _safetensors.read(path)
        np.testing.assert_array_equal(file["train_offsets"], [0, 4, 6])
        np.testing.assert_array_equal(file["test_offsets"], [6, 6, 9])
        np.testing.assert_array_equal(file["central_test"], [9, 14])
        np.testing.assert_array_equal(file["features"][6:9], x[6:9])
        self.assertEqual(bytes(file["client_names"]), b"annbob")
        self.assertRegex(self.info(path), r"clients +2\n.*examples +6\n")

    def test_of_clients_gives_a_central_test_set_where_one_is_asked_for(self) -> None:
        x, y = rows()
        clients = {f"c{n}": (x[n::6], y[n::6]) for n in range(6)}
        owners = np.array([f"c{n % 6}" for n in range(600)])
        given = {"partition": None, "cohort": 6, "rounds": 2}
        plain = macaw.simulate(**self.job("plain", data=clients, **given))
        self.assertNotIn("test_loss", plain.rows[-1])
        cut = {"data_options": {"test_fraction": 0.1}, **given}
        of_dict = macaw.simulate(**self.job("dict", data=clients, **cut))
        by_column = macaw.simulate(**self.job("column", data=(x, y), client=owners, **cut))
        for run in (of_dict, by_column):
            self.assertIn("test_loss", run.rows[-1])
            self.assertEqual(len(_scores.test_rows(run.folder)[1]), 60)
        self.assertNotEqual(of_dict.digest, plain.digest)
        again = macaw.simulate(**self.job("again", data=clients, **cut))
        self.assertEqual(again.digest, of_dict.digest)
        # The numbers of training rows alone, as they are without the rows that are set aside.
        scaled = macaw.simulate(**self.job("scaled", data=clients, normalise="train", **cut))
        self.assertEqual(scaled.normalisation.rows, 540)

    def test_keeps_bytes_tokens_and_targets(self) -> None:
        y = np.arange(4)
        for x, kind in [
            (np.zeros((4, 1, 2, 2), np.uint8), np.uint8),
            (np.zeros((4, 2), bool), np.float32),
            (np.zeros((4, 2), np.int64), np.int32),
            (np.zeros((4, 2), np.float64), np.float32),
        ]:
            self.assertEqual(_safetensors.read(self.prepare((x, y)))["features"].dtype, kind)
        file = _safetensors.read(self.prepare((np.zeros((4, 2)), y / 2)))
        self.assertEqual(file["labels"].dtype, np.float32)

    def test_pads_tokens_and_says_how_many_each_row_has(self) -> None:
        owners = {
            "ann": ([[5, 6], [7]], [1, 0]),
            "bob": {"train": ([[1, 2, 3, 4], []], [0, 0]), "test": ([[9, 9, 9]], [1])},
        }
        path = self.prepare(owners)
        file = _safetensors.read(path)
        self.assertEqual(file["features"].dtype, np.int32)
        np.testing.assert_array_equal(
            file["features"], [[5, 6, 0, 0], [7, 0, 0, 0], [1, 2, 3, 4], [0] * 4, [9, 9, 9, 0]]
        )
        np.testing.assert_array_equal(file["lengths"], [2, 1, 4, 0, 3])
        self.assertRegex(self.info(path), r"examples +4, 7 tokens in use\n")
        ragged = [(np.array([3, 1]), 0), (np.array([2]), 1)]  # a dataset of pairs
        np.testing.assert_array_equal(_safetensors.read(self.prepare(ragged))["lengths"], [2, 1])
        even = _safetensors.read(self.prepare(([[5, 6], [7, 8]], [1, 0])))
        self.assertNotIn("lengths", even)

    def test_refuses_a_client_without_a_name(self) -> None:
        x, y = rows(6)
        one = {"ann\n": (x, y), "bob": (x, y)}
        for data, client in ((one, None), ((x, y), ["ann", ""] * 3)):
            with self.assertRaisesRegex(macaw.DataError, "is no name of a client") as caught:
                self.prepare(data, client=client)
            self.assertEqual(caught.exception.key, "client")

    def test_refuses_rows_of_nobody_by_the_first_of_them(self) -> None:
        x, y = rows(4)
        day = np.datetime64("2026-01-02")
        forms = {
            "a list of words": ["ann", None, "bob", None],
            "words and NaN": ["ann", float("nan"), "bob", "bob"],
            "words that NumPy made": np.array(["ann", "nan", "bob", "bob"]),
            "objects": np.array(["ann", float("nan"), float("nan"), "bob"], object),
            "numbers": np.array([1, np.nan, 2, np.nan]),
            "dates": np.array([day, np.datetime64("NaT"), day, day]),
            "no words": ["ann", "", "bob", ""],
            "lists": np.array(["ann", ["bob"], None, 0], object),
        }
        said = "is no name of a client, in row 1"
        for name, client in forms.items():
            with self.subTest(name), self.assertRaisesRegex(macaw.DataError, said) as found:
                self.prepare((x, y), client=client)
            self.assertEqual(found.exception.key, "client")
        for key in (None, float("nan")):
            with self.assertRaisesRegex(macaw.DataError, "is no name of a client"):
                self.prepare({"ann": (x, y), key: (x, y)})

    @needs("pandas")
    def test_refuses_rows_of_nobody_in_every_form_of_pandas(self) -> None:
        import pandas as pd

        x, y = rows(4)
        for client in (
            pd.array([1, None, 2, 2], dtype="Int64"),
            pd.Categorical(["ann", None, "bob", "ann"]),
            pd.Series(["ann", np.nan, np.nan, "bob"]),
            pd.to_datetime(["2026-01-01", None, None, "2026-01-02"]),
        ):
            with self.assertRaisesRegex(macaw.DataError, "is no name of a client, in row 1"):
                self.prepare((x, y), client=client)

    def test_names_clients_by_dates_as_people_write_them(self) -> None:
        x, y = rows(4)
        days = np.array(["2026-01-02", "2026-01-03"] * 2, "M8[ns]")
        file = _safetensors.read(self.prepare((x, y), client=days))
        self.assertEqual(bytes(file["client_names"]), b"2026-01-022026-01-03")
        with self.assertRaisesRegex(macaw.DataError, "timedelta64.*words, numbers or dates"):
            self.prepare((x, y), client=days - days[0])

    def test_refuses_a_query_that_has_not_been_made(self) -> None:
        lazy = type("LazyFrame", (), {"__module__": "polars.lazyframe.frame"})()
        for data in (lazy, (lazy, [0, 1]), {"ann": lazy}):
            with self.assertRaisesRegex(macaw.DataError, "^data: .*LazyFrame.*collect"):
                self.prepare(data, label="y")
        with self.assertRaisesRegex(macaw.DataError, "^test: .*LazyFrame.*collect"):
            self.prepare(rows(4), test=lazy)

    def test_says_which_columns_of_tokens_it_leaves_out(self) -> None:
        texts = [{"input_ids": [5, 2, 9], "attention_mask": [1, 1, 1], "label": n % 2,
                  "token_type_ids": [0, 1, 1], "text": "a b c"} for n in range(4)]  # fmt: skip
        with self.assertWarnsRegex(UserWarning, "token_type_ids of the rows is not used"):
            self.prepare(texts)
        plain = [{**text, "token_type_ids": [0, 0, 0]} for text in texts]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.prepare(plain)
        columns = Columns()
        _data.prepared(plain, None, columns, self.folder)
        self.assertIn("token_type_ids, text not used", columns.notes[0])

    def test_pads_clients_whose_texts_have_one_length_each(self) -> None:
        clients = {"ann": [[1, 2, 3], [3, 2, 1]], "bob": [[1, 2, 3, 4, 5]]}
        file = _safetensors.read(self.prepare(clients, test=[[2, 3, 4, 5]]))
        np.testing.assert_array_equal(file["lengths"], [2, 2, 4, 3])
        np.testing.assert_array_equal(file["features"][1], [3, 2, 0, 0])
        np.testing.assert_array_equal(file["labels"], [3, 1, 5, 5])
        bytes_ = [np.zeros(3, np.uint8)] * 2
        self.assertEqual(_safetensors.read(self.prepare((bytes_, [0, 1])))["features"].dtype, "u1")

    def test_refuses_targets_that_float32_does_not_hold(self) -> None:
        y = np.array([1.0, 2.0, 1e39, 0.5])
        with self.assertRaisesRegex(macaw.DataError, r"y is 1e\+39 at row 2.*float32"):
            self.prepare((np.zeros((4, 2), np.float32), y))

    def test_refuses_clients_whose_names_become_one(self) -> None:
        x, y = rows(4)
        part = (x[:2], y[:2])
        with self.assertRaisesRegex(macaw.DataError, "1 and '1' would be one client"):
            self.prepare({1: part, "1": part})
        with self.assertRaisesRegex(macaw.DataError, "'2' and 2 would be one client"):
            self.prepare((x, y), client=np.array(["2", 2, "a", 2], object))
        self.prepare((x, y), client=np.array([2, 2, 1, 2], object))

    def test_of_any_dataset_of_pairs_is_that_of_its_arrays(self) -> None:
        class Pairs:
            def __len__(self) -> int:
                return 600

            def __getitem__(self, i: int) -> Any:
                if i >= 600:
                    raise IndexError
                return x[i], int(y[i])

        x, y = rows()
        self.assertEqual(self.prepare(Pairs()), self.prepare((x, y)))

    def test_of_booleans_is_that_of_zeros_and_ones(self) -> None:
        x, y = rows()
        zeros_and_ones = (x > 0.5).astype(np.float32)
        self.assertEqual(self.prepare((x > 0.5, y)), self.prepare((zeros_and_ones, y)))
        with self.assertWarnsRegex(UserWarning, "scaled by 1/255"):
            self.prepare((zeros_and_ones.astype(np.uint8), y))

    def test_of_images_has_their_channels_first_in_every_form(self) -> None:
        x = np.random.default_rng(1).integers(0, 255, (12, 8, 8, 3), dtype=np.uint8)
        y = np.arange(12) % 2
        path = self.prepare((np.moveaxis(x, 3, 1), y))
        self.assertEqual(_safetensors.read(path)["features"].shape, (12, 3, 8, 8))
        for data in ((x, y), list(zip(x, y)), Splits(train=(x, y))):
            self.assertEqual(self.prepare(data), path)
        np.testing.assert_array_equal(
            _safetensors.read(self.prepare({"ann": (x, y)}))["features"],
            _safetensors.read(path)["features"],
        )

    def test_of_small_maps_of_many_channels_stay_as_they_are(self) -> None:
        for shape in ((12, 8, 4, 4), (12, 8, 2, 2), (12, 512, 1, 1)):
            x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
            kept = _safetensors.read(self.prepare((x, np.arange(12) % 2)))["features"]
            np.testing.assert_array_equal(kept, x)

    def test_of_labels_without_class_zero_says_what_to_give(self) -> None:
        x, y = rows()
        with self.assertWarnsRegex(UserWarning, "no row has class 0.*give y - 1"):
            self.prepare((x, y + 1))

    def test_of_a_dict_of_splits_has_its_test_rows_apart(self) -> None:
        x, y = rows(30)
        path = self.prepare(Splits(train=(x[:20], y[:20]), test=(x[20:], y[20:])))
        self.assertEqual(path, self.prepare((x[:20], y[:20]), test=(x[20:], y[20:])))
        with self.assertRaisesRegex(macaw.DataError, '"train"'):
            self.prepare(Splits(validation=(x, y)))

    def test_of_arrays_has_the_clients_that_an_array_names(self) -> None:
        x, y = rows(6)
        path = self.prepare((x, y), client=np.array(["bob", "ann"] * 3))
        self.assertEqual(
            path, self.prepare({"bob": (x[::2], y[::2]), "ann": (x[1::2], y[1::2])})
        )
        for wrong in (["bob"] * 5, "who"):
            with self.assertRaises(macaw.DataError) as caught:
                self.prepare((x, y), client=wrong)
            self.assertEqual(caught.exception.key, "client")

    def test_of_a_dataset_with_random_transforms_says_that_rows_stay(self) -> None:
        class Shifted(list):  # type: ignore[type-arg]
            def __getitem__(self, i: Any) -> Any:
                return x[i] + rng.normal(), int(y[i])

        rng = np.random.default_rng(1)
        x, y = rows(20)
        with self.assertWarnsRegex(UserWarning, "random transforms.*pad_crop"):
            self.prepare(Shifted(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.prepare([(x[i], int(y[i])) for i in range(20)])

    def test_of_a_loader_says_to_give_its_rows(self) -> None:
        loader = type("DataLoader", (), {"dataset": [], "__iter__": lambda _: iter(())})()
        with self.assertRaisesRegex(macaw.DataError, "loader.dataset"):
            self.prepare(loader)

    def test_of_masked_arrays_does_not_lose_the_mask(self) -> None:
        x, y = rows(20)
        masked = np.ma.masked_array(x, mask=x > 0.5)
        for data in ((masked, y), (x, np.ma.masked_array(y, mask=y > 0)), [(masked[0], 1)] * 20):
            with self.assertRaisesRegex(macaw.DataError, r"^data: .*masked array.*x.filled"):
                self.prepare(data)

    @needs("torch")
    def test_of_tensors_without_a_form_in_numpy(self) -> None:
        import torch

        x, y = rows(20)
        half = torch.tensor(x).bfloat16()
        pairs = torch.utils.data.TensorDataset(half, torch.tensor(y))
        self.assertEqual(self.prepare(pairs), self.prepare((half.float().numpy(), y)))
        for tensor, why in ((half.to_sparse(), "to_dense"), (half.to("meta"), "meta")):
            with self.assertRaisesRegex(macaw.DataError, f"^data: x is a tensor .*{why}"):
                self.prepare((tensor, y))

    def test_that_cannot_be_written_is_an_error_that_names_the_cache(self) -> None:
        (self.folder / "file").write_text("")
        with self.assertRaisesRegex(macaw.CacheError, "cache .*file.*cache=") as caught:
            macaw.prepare(rows(), cache=self.folder / "file" / "cache")
        self.assertEqual(caught.exception.key, "cache")

    @needs("torch")
    def test_of_tensors_and_of_a_torch_dataset_is_that_of_their_arrays(self) -> None:
        import torch
        from torch.utils.data import TensorDataset

        x, y = rows()
        tensors = torch.from_numpy(x), torch.from_numpy(y)
        self.assertEqual(self.prepare(tensors), self.prepare((x, y)))
        self.assertEqual(self.prepare(TensorDataset(*tensors)), self.prepare((x, y)))

    @needs("datasets")
    def test_of_a_hugging_face_dataset_has_its_words(self) -> None:
        import datasets

        x, y = rows(12)
        features = datasets.Features(
            x=datasets.Sequence(datasets.Value("float32")),
            label=datasets.ClassLabel(names=["a", "b", "c"]),
        )
        dataset = datasets.Dataset.from_dict({"x": x, "label": y}, features=features)
        path = self.prepare(dataset)
        np.testing.assert_array_equal(_safetensors.read(path)["features"], x)
        self.assertIn(b"class_names", path.read_bytes())
        with self.assertRaisesRegex(macaw.DataError, "label=.*x, label"):
            self.prepare(dataset, label="y")

    def columns(self) -> Any:
        """What a Hugging Face dataset looks like, with three speakers."""

        x, y = rows(12)
        who = [f"s{i % 3}" for i in range(12)]

        class Columns:
            table: ClassVar[dict[str, Any]] = {"x": list(x), "noise": [0] * 12, "y": y, "who": who}
            features: ClassVar[dict[str, Any]] = dict.fromkeys(table)
            column_names: ClassVar[list[str]] = list(table)

            def __len__(self) -> int:
                return 12

            def __getitem__(self, name: str) -> Any:
                return self.table[name]

        return Columns(), x, y

    def test_gives_the_keys_of_columns_to_what_is_in_memory(self) -> None:
        dataset, x, y = self.columns()
        options = {"client_column": "who", "label_column": "y", "drop_columns": ["noise"]}
        more = {"partition": None, "cohort": 2, "rounds": 1, "model": ["linear 3"]}
        of_run = {**options, "test_fraction": 0.0}
        run = macaw.simulate(**self.job("columns", data=dataset, data_options=of_run, **more))
        self.assertIn("3 clients", dict(run.said)["data"])
        # The same as by arguments, which have no drop_columns.
        config = (self.folder / "columns" / "config.toml").read_text()
        owners = np.array([f"s{i % 3}" for i in range(12)])
        self.assertIn(str(self.prepare_in_cache((x, y), client=owners)), config)
        for value, keys in (
            ({"client_column": "who"}, "data.client_column"),
            ({"label_column": "y"}, "data.label_column"),
            ({"drop_columns": ["noise"]}, "data.drop_columns"),
        ):
            for data in (rows(), {"ann": rows(20), "bob": rows(20)}):
                with self.subTest(keys), self.assertRaises(macaw.DataError) as caught:
                    macaw.simulate(**self.job("refused", data=data, data_options=value, **more))
                self.assertEqual(caught.exception.key, keys)
                self.assertIn(keys, str(caught.exception))
        with self.assertRaisesRegex(macaw.ConfigError, "say the same thing"):
            macaw.simulate(
                **self.job("twice", data=dataset, label="y", data_options=options, **more)
            )
        # As in a file: no column says whose row it is.
        nobody = {"client_column": "none"}
        macaw.simulate(**self.job("none", data_options=nobody, rounds=1))

    def prepare_in_cache(self, data: Any, **more: Any) -> Any:
        return macaw.prepare(data, cache=self.folder / "cache", **more)

    def test_without_columns_refuses_what_names_one(self) -> None:
        x, y = rows(12)
        for data in ((x, y), list(zip(x, y)), {"ann": (x, y)}):
            for key, given in (("features", {"features": "x"}), ("label", {"label": "y"})):
                with self.subTest(key), self.assertRaises(macaw.DataError) as caught:
                    self.prepare(data, **given)
                self.assertEqual(caught.exception.key, key)
        # The columns may be those of the test set.
        dataset, _, _ = self.columns()
        self.prepare((x, y), test=dataset, label="y", features="x")

    @needs("pandas")
    def test_of_a_table_drops_columns(self) -> None:
        import pandas

        frame = pandas.DataFrame({"age": range(60), "id": range(60), "ill": [0, 1] * 30})
        options = {"drop_columns": ["id"], "label_column": "ill"}
        run = macaw.simulate(
            **self.job("run", data=frame, data_options=options, model=["linear 2"], cohort=2)
        )
        self.assertEqual(run.model()["0.weight"].shape, (2, 1))

    def test_without_data_refuses_what_is_of_data(self) -> None:
        for given, said in (
            ({"test": rows(5)}, "test="),
            ({"data": "rows.csv", "label": "y"}, "label=.*label_column"),
            ({"label": "y"}, "label="),
            ({"data": "synthetic", "test": rows(5)}, "test="),
            ({"data": "synthetic", "missing": "mean"}, "missing="),
            ({"init": "zero"}, "init="),
        ):
            with self.subTest(said), self.assertRaisesRegex(macaw.ConfigError, said):
                macaw.simulate(config="run.toml", out=self.folder / "run", **given)

    def test_refuses_what_cannot_be_trained_by_name_and_row(self) -> None:
        x, y = rows()
        bad_x, bad_y = x.copy(), y.astype(float)
        bad_x[17, 3], bad_y[5] = np.nan, np.inf
        for data, said in [
            ((x, y[:-1]), "x has 600 rows and y has 599"),
            ((x[:, 0], y), "shape.*600"),
            ((x, np.stack([y, y + 3], 1)), "one label a row"),
            ((x, np.eye(3)[y]), "one-hot: give y.argmax"),
            ((np.array([["a"]] * 600), y), "tokens"),
            ((np.array([[1, "a"]] * 600, object), y), "Python objects .int, str."),
            ((bad_x, y), "row 17 of x"),
            ((x, bad_y), "row 5"),
            ((x.astype(complex), y), "complex"),
            ((x, np.array(["a"] * 600)), "classes"),
            ((x, y - 1), "count from 0"),
            ((x[:0], y[:0]), "no rows"),
            (([[1.0], [1.0, 2.0]], [0, 1]), "one shape"),
            (([[1], [1, 2**40]], [0, 1]), "row 1 of x.*int32"),
            (([[1], [-1, 2]], [0, 1]), "row 1 of x.*below 0"),
            ((np.full((2, 1), 2**40), [0, 1]), "int32"),
            ({}, "no client"),
            ({"ann": (x, y[:3])}, "client ann"),
            ({"ann": {"train": (x, y), "tset": (x, y)}}, "tset"),
            ({"ann": (x, y), "bob": (x[:, :4], y)}, r"bob: .*\[4\].* ann have \[8\]"),
            (3, "int"),
        ]:
            with self.subTest(said), self.assertRaisesRegex(macaw.DataError, said) as caught:
                self.prepare(data)
            self.assertEqual(caught.exception.key, "data")
        with self.assertRaises(macaw.DataError) as caught:
            self.prepare((x, y), test=(x, y[:3]))
        self.assertEqual(caught.exception.key, "test")
        self.assertFalse((self.folder / "data").exists())
