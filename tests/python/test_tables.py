"""Tables as data: columns by name, words as indicators and classes, gaps, clients."""

from __future__ import annotations

import datetime
import warnings
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _safetensors
from support import TestCase


def column_of(values: list[Any]) -> Any:
    """A column as pandas gives it: of numbers, or of objects."""
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {bool} or kinds <= {float, int}:
        return np.array(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array


class Column:
    def __init__(self, values: Any) -> None:
        self._values, self.dtype = values, values.dtype

    def to_numpy(self) -> Any:
        return self._values


class Frame:
    """What of a DataFrame is asked for; tests with the libraries themselves are below."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __getitem__(self, name: str) -> Column:
        return Column(column_of(self._columns[name]))


DataFrame = type("DataFrame", (Frame,), {"__module__": "pandas.of_a_test"})


PEOPLE: dict[str, list[Any]] = {
    "age": [20, 30, 40, 50],
    "smoker": [True, False, False, True],
    "bmi": [20.5, 25.0, float("nan"), 30.5],
    "city": ["Bern", "Basel", "Bern", None],
    "hospital": ["north", "south", "north", "south"],
    "ill": ["yes", "no", "no", "yes"],
}
WHOLE = {name: PEOPLE[name] for name in ("age", "smoker", "ill")}


class TableCase(TestCase):
    def prepare(self, data: Any, **more: Any) -> Any:
        return macaw.prepare(data, cache=self.folder, **more)

    def read(self, data: Any, **more: Any) -> Any:
        return _safetensors.read(self.prepare(data, **more))

    def refused(self, data: Any, **more: Any) -> macaw.Error:
        with self.assertRaises(macaw.DataError) as caught:
            self.prepare(data, **more)
        return caught.exception


class ATable(TableCase):
    def test_has_the_columns_that_are_asked_for(self) -> None:
        frame = DataFrame(PEOPLE)
        found = self.read(frame, label="ill", features=["smoker", "age"])["features"]
        np.testing.assert_array_equal(found, [[1, 20], [0, 30], [0, 40], [1, 50]])
        for key, wrong in (("label", "sick"), ("features", ["agee"]), ("client", "clinic")):
            error = self.refused(frame, **({"label": "ill", "missing": "mean"} | {key: wrong}))
            self.assertEqual(error.key, key)
            self.assertIn("age, smoker, bmi", str(error))
        for key, wrong, meant in [
            ("label", "il", "ill"),
            ("features", ["smokr"], "smoker"),
            ("client", "Hosptal", "hospital"),
        ]:
            error = self.refused(frame, **({"label": "ill", "missing": "mean"} | {key: wrong}))
            self.assertEqual((error.key, error.nearest), (key, meant))
            self.assertIn(f"did you mean {meant!r}", str(error))
        self.assertIn("(x, y)", str(self.refused(frame, label=np.zeros(4))))
        self.assertEqual(self.refused(frame).key, "label")  # none has a usual name

    def test_has_each_column_once(self) -> None:
        frame = DataFrame(PEOPLE)
        error = self.refused(frame, label="ill", features=["age", "age"])
        self.assertEqual((error.key, "'age' more than once" in str(error)), ("features", True))

        class Twice(Frame):
            @property
            def columns(self) -> list[str]:
                return ["age", "age", "ill"]

        twice = type("DataFrame", (Twice,), {"__module__": "pandas.of_a_test"})(PEOPLE)
        self.assertIn('several columns with the name "age"', str(self.refused(twice, label="ill")))

    def test_has_the_order_of_an_enumeration(self) -> None:
        class Enum:
            categories = ("low", "high", "highest")

            def __str__(self) -> str:
                return "Enum(categories=['low', 'high', 'highest'])"

        class Levels(Frame):
            def __getitem__(self, name: str) -> Column:
                column = super().__getitem__(name)
                if name == "y":
                    column.dtype = Enum()
                return column

        frame = type("DataFrame", (Levels,), {"__module__": "polars.of_a_test"})
        path = self.prepare(frame({"a": [1.0, 2.0, 3.0], "y": ["high", "low", "high"]}))
        self.assertEqual(_safetensors.metadata(path)["class_names"], '["low", "high", "highest"]')
        np.testing.assert_array_equal(_safetensors.read(path)["labels"], [1, 0, 1])

    def test_has_the_mean_of_its_training_rows_in_gaps(self) -> None:
        frame = DataFrame({"a": [1.0, None, 5.0], "y": [0, 1, 0]})
        test = DataFrame({"a": [None, 100.0], "y": [0, 1]})
        found = self.read(frame, test=test, missing="mean")["features"]
        np.testing.assert_array_equal(found.ravel(), [1, 3, 5, 3, 100])
        clients = {"al": {"train": frame, "test": test}}
        found = self.read(clients, missing="mean")["features"]
        np.testing.assert_array_equal(found.ravel(), [1, 3, 5, 3, 100])
        error = self.refused(frame)
        self.assertIn('column "a" has no value in 1 of 3 rows, first in row 1', str(error))
        self.assertIn('missing="mean"', str(error))
        self.assertEqual(self.refused(frame, missing="zero").key, "missing")
        self.assertEqual(self.refused((np.zeros((2, 1)), [0, 1]), missing="mean").key, "missing")

    def test_has_columns_that_nobody_would_choose(self) -> None:
        for name, key, words in (
            ("user_id", "client", "give client='user_id', or features="),
            ("Patient No", "client", "give client='Patient No'"),
            ("Unnamed: 0", "features", "seems to number the rows"),
        ):
            frame = DataFrame({"a": [1.0, 2.0], name: [3, 4], "y": [0, 1]})
            error = self.refused(frame)
            self.assertEqual(error.key, key)
            self.assertIn(words, str(error))
            # Whoever asks for it gets it.
            found = self.read(frame, features=["a", name])["features"]
            np.testing.assert_array_equal(found, [[1, 3], [2, 4]])

    def test_never_has_its_label_among_the_features(self) -> None:
        frame = DataFrame({"a": [1.0, 2.0], "y": [0, 1]})
        error = self.refused(frame, features=["a", "y"])
        self.assertEqual(error.key, "features")
        self.assertIn('has the label "y"', str(error))

    def test_has_infinities_which_are_no_gaps(self) -> None:
        for values in ([1.0, np.inf], [None, -np.inf]):
            for missing in (None, "mean", "indicator"):
                frame = DataFrame({"a": values, "y": [0, 1]})
                said = str(self.refused(frame, missing=missing))
                self.assertIn('"a" is infinite in 1 of 2 rows, first in row 1', said)

    def test_has_a_column_without_any_value(self) -> None:
        frame = DataFrame({"a": [1.0, 2.0], "b": [np.nan, np.nan], "y": [0, 1]})
        for missing in ("mean", "indicator"):
            error = self.refused(frame, missing=missing)
            self.assertIn('"b" has no value in any training row', str(error))
        self.assertIn("has no value in 2 of 2 rows", str(self.refused(frame)))

    def test_has_numbers_that_float32_cannot_tell_apart(self) -> None:
        seconds = [1_700_000_000 + n for n in range(4)]
        frame = DataFrame({"a": [1.0] * 4, "t": seconds, "y": [0, 1] * 2})
        self.assertIn("from 1700000000 to 1700000003", str(self.refused(frame)))
        frame = DataFrame({"a": [1.0] * 4, "t": [7.0] * 4, "y": [0, 1] * 2})  # equal before, too
        self.assertEqual(self.read(frame)["features"].shape, (4, 2))

    def test_warns_of_numbers_that_float32_hardly_tells_apart(self) -> None:
        seconds = 1.7e9 + 10.0 * np.arange(60)
        y = np.arange(60) % 2
        table = DataFrame({"t": seconds.tolist(), "y": y.tolist()})
        for data, name in ((table, 'column "t"'), ((seconds[:, None], y), "column 0")):
            with self.assertWarnsRegex(UserWarning, f"{name}.*steps of 128"):
                macaw.prepare(data, cache=self.folder)
        parts = {"ann": (seconds[:30, None], y[:30]), "bob": (seconds[30:, None], y[30:])}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            macaw.prepare(parts, cache=self.folder)
        self.assertEqual(len(said), 1, "of all clients together")
        self.assertIn("column 0 of x has numbers from 1700000000 to 1700000590", str(said[0]))
        days = {"ann": (seconds[:, None], y), "bob": (seconds[:, None] - 1e8, y)}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            macaw.prepare(((seconds - seconds[0])[:, None], y), cache=self.folder)
            macaw.prepare(days, cache=self.folder)

    def test_looks_at_its_columns_once_for_all_clients(self) -> None:
        rng = np.random.default_rng(1)
        data = {f"c{n}": (rng.normal(1e9, n + 1, (3, 7)), [0, 1, 0]) for n in range(50)}
        with mock.patch("macaw._spread.lost_of", return_value=None) as looked:
            self.prepare(data)
        self.assertEqual(looked.call_count, 7)
        x = np.concatenate([x for x, _ in data.values()])
        for column, call in enumerate(looked.call_args_list):
            least, most, deviation, _ = call.args
            self.assertEqual((least, most), (x[:, column].min(), x[:, column].max()))
            self.assertAlmostEqual(deviation, x[:, column].std(), delta=1e-6)

    def test_warns_of_targets_that_float32_hardly_tells_apart(self) -> None:
        x = np.arange(60.0)
        y = 1.7e9 + x
        table = DataFrame({"t": x.tolist(), "y": y.tolist()})
        parts = {"ann": (x[:30, None], y[:30]), "bob": (x[30:, None], y[30:])}
        for data, name in ((table, 'column "y"'), ((x[:, None], y), "y"), (parts, "y")):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                macaw.prepare(data, cache=self.folder)
            self.assertEqual(len(said), 1)
            self.assertRegex(str(said[0].message), f"{name} has numbers from 1700.*steps of 128")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            macaw.prepare((x[:, None], y - y[0]), cache=self.folder)

    def test_has_a_column_of_dates(self) -> None:
        days = [datetime.date(2026, 1, 1 + n) for n in range(4)]
        error = str(self.refused(DataFrame({"a": days, "y": [0, 1] * 2})))
        self.assertIn('"a" has date; ', error)
        self.assertIn("make a number of it", error)

    def test_has_a_client_column_with_a_number_for_a_name(self) -> None:
        frame = DataFrame({"a": [1.0, 2.0], 2: ["p", "q"], "y": [0, 1]})
        error = self.refused(frame, client=2)
        self.assertEqual(error.key, "client")
        self.assertIn("df.rename(columns=str)", str(error))

    def test_has_numbers_as_words(self) -> None:
        numbers = [str(n % 9) for n in range(30)]
        numbers[4] = "?"
        frame = DataFrame({"a": numbers, "y": [0, 1] * 15})
        error = self.refused(frame)
        self.assertIn("'?': make numbers of it, such as pd.to_numeric", str(error))

    def test_has_a_column_of_lists(self) -> None:
        frame = DataFrame({"a": [[1], [2]], "y": [0, 1]})
        self.assertIn("column 'a' holds list", str(self.refused(frame)))

    def test_has_numbers_as_names_of_columns(self) -> None:
        frame = DataFrame({0: [1.0, 2.0], 1: [3.0, 4.0]})
        path = self.prepare((frame, np.array([0, 1])))
        about = _safetensors.metadata(path)
        self.assertEqual(about["feature_names"], '["0", "1"]')

    def test_has_words_that_name_rows(self) -> None:
        words = [f"row {n}" for n in range(30)]
        frame = DataFrame({"a": [1.0] * 30, "w": words, "y": [0, 1] * 15})
        self.assertIn("30 different words in 30 rows", str(self.refused(frame)))
        self.assertEqual(self.read(frame, features=["w"])["features"].shape, (30, 30))
        often = DataFrame({"w": words * 2, "y": [0, 1] * 30})
        self.assertEqual(self.read(often)["features"].shape, (60, 30))

    def test_has_the_same_indicators_for_everybody(self) -> None:
        ann, bob = {"c": ["u", "v"], "y": [0, 1]}, {"c": ["w", "u"], "y": [1, 1]}
        found = self.read({"ann": DataFrame(ann), "bob": DataFrame(bob)})["features"]
        np.testing.assert_array_equal(found, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
        error = self.refused(DataFrame(ann), test=DataFrame(bob))
        self.assertIn("'w', which no training row has", str(error))

    def test_may_have_its_labels_beside_it(self) -> None:
        frame = DataFrame({name: WHOLE[name] for name in ("age", "smoker")})
        with_them = self.prepare(DataFrame(WHOLE | {"ill": [1, 0, 0, 1]}), label="ill")
        self.assertEqual(self.prepare((frame, np.array([1, 0, 0, 1]))), with_them)

    def test_with_what_is_no_feature_is_refused_with_its_column(self) -> None:
        times = np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")

        class Dated(Frame):
            def __getitem__(self, name: str) -> Column:
                return Column(times) if name == "day" else super().__getitem__(name)

        dated = type("DataFrame", (Dated,), {"__module__": "pandas.of_a_test"})

        class Waves(Frame):
            def __getitem__(self, name: str) -> Column:
                return Column(np.array([1j, 2])) if name == "a" else super().__getitem__(name)

        waves = type("DataFrame", (Waves,), {"__module__": "pandas.of_a_test"})
        y = [0, 1]
        for frame, said in [
            (dated({"day": [0, 0], "y": y}), '"day" is datetime64.*dayofyear'),
            (DataFrame({"a": [1, "b"], "y": y}), '"a" has words and int'),
            (waves({"a": [0, 0], "y": y}), '"a" is complex'),
            (DataFrame({"id": [f"n{i}" for i in range(1001)], "y": [0] * 1001}), "1001 different"),
            (DataFrame({"a": [1, 2], "y": [0, None]}), '"y" has no value in row 1'),
            (DataFrame({"y": y}), "no column of features"),
        ]:
            with self.subTest(said):
                self.assertRegex(str(self.refused(frame)), said)

    def test_trains(self) -> None:
        rng = np.random.default_rng(1)
        age = rng.integers(20, 70, 300)
        columns = {"age": (age / 50).tolist(), "smoker": (age % 2 == 0).tolist(),
                   "old": ["old" if a > 45 else "young" for a in age]}  # fmt: skip
        run = macaw.simulate(
            **self.job("run", data=DataFrame(columns), model=["linear 2"], rounds=30,
                       partition=macaw.iid(10), label="old", local={"lr": 1.0, "epochs": 3})
        )  # fmt: skip
        self.assertGreater(run.summary["final"]["test_accuracy"], 0.8)


class OfHuggingFace(TestCase):
    """A dataset of `datasets`, which is known by what it has."""

    class Dataset:
        def __init__(self, columns: dict[str, list[Any]]) -> None:
            self._columns = columns
            self.features = dict.fromkeys(columns)

        @property
        def column_names(self) -> list[str]:
            return list(self._columns)

        @property
        def columns(self) -> list[str]:
            return list(self._columns)

        def __getitem__(self, name: str) -> list[Any]:
            return self._columns[name]

    def test_names_the_column_that_was_meant(self) -> None:
        columns = {"pixels": [[1.0, 2.0]] * 4, "speaker": ["a", "b"] * 2, "label": [0, 1] * 2}
        for key, wrong, meant in [
            ("features", "pixel", "pixels"),
            ("label", "lable", "label"),
            ("client", "speakr", "speaker"),
        ]:
            with self.assertRaises(macaw.DataError) as caught:
                macaw.prepare(self.Dataset(columns), cache=self.folder, **{key: wrong})
            self.assertEqual((caught.exception.key, caught.exception.nearest), (key, meant))
        one = {"features": ["pixels"], "client": "speaker"}
        path = macaw.prepare(self.Dataset(columns), cache=self.folder, **one)
        self.assertEqual(_safetensors.read(path)["features"].shape, (4, 2))
        with self.assertRaisesRegex(macaw.DataError, "to_pandas"):
            macaw.prepare(self.Dataset(columns), cache=self.folder, features=["pixels", "speaker"])


class WholeNumbers(TestCase):
    def test_are_numbers_where_the_model_embeds_no_tokens(self) -> None:
        x = np.random.default_rng(1).integers(0, 9, (200, 4))
        y = (x[:, 0] > 4).astype(int)
        run = macaw.simulate(**self.job("run", data=(x, y), model=["linear 2"]))
        self.assertIn("read as numbers", dict(run.said[:1])["data"])
        same = macaw.simulate(
            **self.job("same", data=(x.astype(np.float32), y), model=["linear 2"])
        )
        self.assertEqual(run.digest, same.digest)

    def test_are_tokens_where_it_does(self) -> None:
        x = np.random.default_rng(1).integers(0, 9, (200, 4))
        model = ["embedding 9 4", "mean", "linear 2"]
        job = self.job("run", data=(x, x[:, 0] % 2), model=model, task="classification")
        try:
            run = macaw.simulate(**job)
        except macaw.MissingBackendError:
            return
        self.assertNotIn("read as numbers", str(run.said))
