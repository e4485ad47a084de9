"""Tables as their libraries give them: gaps, categories, and the same numbers from each."""

from __future__ import annotations

import json
import unittest
from types import SimpleNamespace
from typing import Any

import numpy as np
from test_tables import PEOPLE, WHOLE, Column, DataFrame, Frame, TableCase, column_of

from macaw import _safetensors
from support import needs


def typed(columns: dict[str, list[Any]], types: dict[str, str]) -> Any:
    return DataFrame(columns)


class NAType:
    """As that of pandas: what it is compared with is neither equal to it nor unequal."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


NA = NAType()


class Categories(Column):
    """A categorical column of pandas."""

    def __init__(self, values: list[str], categories: list[str]) -> None:
        super().__init__(column_of(values))
        self.cat = SimpleNamespace(categories=categories)

    def astype(self, kind: type) -> Column:
        return Column(self._values)


def with_categories(y: Categories) -> Any:
    class Own(Frame):
        def __getitem__(self, name: str) -> Column:
            return y if name == "y" else super().__getitem__(name)

    kind = type("DataFrame", (Own,), {"__module__": "pandas.of_a_test"})
    return kind({"n": [0, 1], "y": ["", ""]})


class ATable(TableCase):
    def check_clients(self, frame: Any, categories: Any) -> None:
        """Of words with a gap, and of clients whose categories differ. categories: of words."""
        gaps = {"w": ["b", None, "a"], "y": [0, 1, 0]}
        found = self.read(frame(gaps, {"w": "string"}), missing="indicator")["features"]
        np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
        ann = frame({"w": categories(["v", "u"]), "y": categories(["no", "yes"])}, {})
        bob = frame({"w": categories(["w", "u"]), "y": categories(["maybe", "yes"])}, {})
        path = self.prepare({"ann": ann, "bob": bob})
        file, about = _safetensors.read(path), _safetensors.metadata(path)
        names = [name.removeprefix("w=") for name in json.loads(about["feature_names"])]
        words = [names[row.argmax()] for row in file["features"]]
        self.assertEqual(words, ["v", "u", "w", "u"])
        np.testing.assert_array_equal(file["features"].sum(1), 1)
        classes = json.loads(about["class_names"])
        self.assertEqual([classes[y] for y in file["labels"]], ["no", "yes", "maybe", "yes"])
        self.assertEqual((len(names), len(classes)), (3, 3))
        self.assertIn("'t'", str(self.refused(
            {"ann": {"train": ann, "test": frame({"w": ["t"], "y": ["no"]}, {})}})))  # fmt: skip

    def check(self, frame: Any, of: Any) -> None:
        """A frame of PEOPLE, whatever library it is of. of: makes one from columns."""
        path = self.prepare(frame, label="ill", client="hospital", missing="indicator")
        file, about = _safetensors.read(path), _safetensors.metadata(path)
        mean = np.float32((20.5 + 25 + 30.5) / 3)
        np.testing.assert_array_equal(
            file["features"],  # north, then south
            np.array(
                [[20, 1, 20.5, 0, 0, 1, 0], [40, 0, mean, 1, 0, 1, 0],
                 [30, 0, 25, 0, 1, 0, 0], [50, 1, 30.5, 0, 0, 0, 1]], np.float32,
            ),
        )  # fmt: skip
        self.assertEqual(
            json.loads(about["feature_names"]),
            ["age", "smoker", "bmi", "bmi is missing", "city=Basel", "city=Bern",
             "city is missing"],
        )  # fmt: skip
        np.testing.assert_array_equal(file["labels"], [1, 0, 0, 1])
        self.assertEqual(about["class_names"], '["no", "yes"]')
        self.assertEqual(bytes(file["client_names"]), b"northsouth")
        self.assertIn("bmi", str(self.refused(frame, label="ill", client="hospital")))
        whole = self.read(of(WHOLE), label="ill")
        self.assertEqual(whole["features"].dtype, np.float32)
        np.testing.assert_array_equal(whole["features"], [[20, 1], [30, 0], [40, 0], [50, 1]])

    def test_becomes_numbers_indicators_and_classes(self) -> None:
        self.check(DataFrame(PEOPLE), DataFrame)

        self.check_clients(typed, lambda words: words)

    def test_has_gaps_that_are_neither_equal_nor_unequal(self) -> None:
        frame = DataFrame({"w": ["b", NA, "a"], "y": [0, 1, 0]})
        found = self.read(frame, missing="indicator")["features"]
        np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 1], [1, 0, 0]])

    def test_has_the_categories_of_all_clients_in_their_order(self) -> None:
        ann, bob = Categories(["z", "y"], ["z", "y"]), Categories(["x", "y"], ["y", "x"])
        data = {"ann": with_categories(ann), "bob": with_categories(bob)}
        path = self.prepare(data, label="y")
        self.assertEqual(_safetensors.metadata(path)["class_names"], '["z", "y", "x"]')
        np.testing.assert_array_equal(_safetensors.read(path)["labels"], [0, 1, 2, 1])
        path = self.prepare(data, features=["y"], label="n")
        features = _safetensors.read(path)["features"]
        np.testing.assert_array_equal(features.argmax(1), [0, 1, 2, 1])

    @needs("pandas")
    def test_of_pandas(self) -> None:
        import pandas as pd

        self.check(pd.DataFrame(PEOPLE), pd.DataFrame)
        frame = pd.DataFrame(PEOPLE).astype({"city": "category", "age": "Int64"})
        self.check(frame, pd.DataFrame)
        self.check(frame.astype({"city": "string"}), pd.DataFrame)
        self.check_clients(lambda columns, types: pd.DataFrame(columns).astype(types),
                           pd.Categorical)  # fmt: skip

    @needs("polars")
    def test_of_polars(self) -> None:
        import polars as pl

        self.check(pl.DataFrame(PEOPLE), pl.DataFrame)
        self.check(pl.DataFrame(PEOPLE).with_columns(pl.col("bmi").fill_nan(None)), pl.DataFrame)
        self.check_clients(lambda columns, types: pl.DataFrame(columns),
                           lambda words: pl.Series(words, dtype=pl.Enum(words)))  # fmt: skip

    @needs("pyarrow")
    def test_of_arrow(self) -> None:
        import pyarrow as pa

        self.check(pa.table(PEOPLE), pa.table)
        self.check_clients(lambda columns, types: pa.table(columns),
                           lambda words: pa.array(words).dictionary_encode())  # fmt: skip

    @needs("polars")
    def test_has_the_order_of_an_enumeration_of_polars(self) -> None:
        import polars as pl

        levels = pl.Series(["hi", "lo", "hi"], dtype=pl.Enum(["lo", "hi", "top"]))
        path = self.prepare(pl.DataFrame({"a": [1.0, 2.0, 3.0], "y": levels}))
        self.assertEqual(_safetensors.metadata(path)["class_names"], '["lo", "hi", "top"]')
        np.testing.assert_array_equal(_safetensors.read(path)["labels"], [1, 0, 1])


if __name__ == "__main__":
    unittest.main()
