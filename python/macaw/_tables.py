"""Tables of pandas, polars, Arrow or Hugging Face: what they hold, read by a column's name.

Nothing here imports these libraries; a table is known by its class, and read through its columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from ._safetensors import Array
from .errors import DataError

LABELS = ("label", "labels", "target", "targets", "y", "fine_label")
_LIBRARIES = {"pandas", "polars", "pyarrow", "datasets"}


def is_table(value: Any) -> bool:
    """A DataFrame of pandas or polars, or a Table of Arrow."""
    kind = type(value)
    return kind.__module__.split(".")[0] in _LIBRARIES and kind.__name__ in ("DataFrame", "Table")


def refuse_lazy(data: Any, what: str) -> None:
    """Refuses a query of polars, whose rows are not there yet: alone, with y, or of a client."""
    if isinstance(data, Mapping):
        for value in data.values():
            refuse_lazy(value, what)
    elif isinstance(data, tuple) and data:
        refuse_lazy(data[0], what)
    elif type(data).__module__.split(".")[0] == "polars" and type(data).__name__ == "LazyFrame":
        raise DataError(f"{what}: a LazyFrame of polars has no rows yet; give frame.collect()")


def is_dataset(value: Any) -> bool:
    """A dataset of Hugging Face."""
    return hasattr(value, "column_names") and hasattr(value, "features")


def columns_of(table: Any) -> list[str]:
    # An Arrow table has its columns in `columns`, and their names in `column_names`.
    named = table.column_names if hasattr(type(table), "column_names") else table.columns
    names = list(named)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f'a table has several columns with the name "{twice}": rename them')
    return names


def pick(table: Any, asked: Any, usual: Sequence[str], key: str, what: str) -> Any:
    """The column that was asked for, or the one with a usual name. key: the argument that asks."""
    there = columns_of(table)
    if asked is None:
        found = next((name for name in usual if name in there), None)
        if found is not None:
            return found
        listed = ", ".join(map(str, there))
        raise DataError(
            f"{what}: say with {key}=… which column has the {key}; there are {listed}", key=key
        )
    if isinstance(asked, Hashable) and asked in there:
        return asked
    raise no_column(asked, there, key, what)


def no_column(asked: Any, there: Sequence[Any], key: str, what: str) -> DataError:
    """Names a column that is not there, the one that was probably meant, and all."""
    by_text = {str(name).lower(): name for name in there}
    close = get_close_matches(str(asked).lower(), list(by_text), 1, 0.5)
    meant = by_text[close[0]] if close else None
    question = f"; did you mean {meant!r}?" if close else "."
    return DataError(
        f"{what}: {key}={asked!r} is no column{question} There are {', '.join(map(str, there))}",
        key=key,
        nearest=None if meant is None else str(meant),
    )


@dataclass
class Column:
    """The values of a column. Of words and mixed values they are objects."""

    values: Array
    gaps: Array
    words: list[Any] | None = None  # of a categorical type, in its order

    def numbers(self) -> Array:
        if self.values.dtype == object:
            return np.array([0 if gap else v for v, gap in zip(self.values, self.gaps)], np.float32)
        return self.values.astype(np.float32)

    def is_numbers(self) -> bool:
        if self.words is not None:
            return False
        if self.values.dtype != object:
            return True
        there = self.values[~self.gaps]
        return all(isinstance(v, (bool, int, float, np.bool_, np.number)) for v in there)


def column_of(table: Any, name: str, what: str) -> Column:
    column = table.column(name) if hasattr(type(table), "column") else table[name]
    words = None
    kind = str(getattr(column, "dtype", getattr(column, "type", "")))
    if kind.startswith("Enum"):  # polars
        words = list(column.dtype.categories)
    if hasattr(column, "cat") and hasattr(column.cat, "categories"):  # pandas
        words = list(column.cat.categories)
        column = column.astype(object)
    plain = kind.startswith(("int", "uint", "float", "Int", "UInt", "Float", "double", "bool"))
    if hasattr(column, "to_pylist") and not plain:  # Arrow
        values = _objects(column.to_pylist())
    elif hasattr(column, "to_numpy"):
        values = np.asarray(column.to_numpy())
    else:
        values = np.asarray(list(column))
    if values.ndim != 1:
        raise DataError(f'{what}: column "{name}" has shape {list(values.shape)}; a table has one '
                        "value a row")  # fmt: skip
    if values.dtype.kind in "mM":
        raise DataError(
            f'{what}: column "{name}" is {values.dtype}, a time; make a number of it, such as '
            "df[column].dt.dayofyear"
        )
    if values.dtype.kind == "c":
        raise DataError(
            f'{what}: column "{name}" is complex; give its parts as two columns, .real and .imag'
        )
    if values.dtype.kind in "US":
        values = values.astype(object)
    _refuse_infinite(values, name, what)
    if values.dtype.kind == "f":
        return Column(values, ~np.isfinite(values), words)
    if values.dtype == object:
        return Column(values, np.array([is_gap(v) for v in values], bool), words)
    return Column(values, np.zeros(len(values), bool), words)


def _refuse_infinite(values: Array, name: Any, what: str) -> None:
    """Refuses infinities, which are no gaps: a mean in their place would hide a division by 0."""
    if values.dtype == object:
        infinite = np.array([isinstance(v, (float, np.floating)) and np.isinf(v) for v in values])
    else:
        infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f'{what}: column "{name}" is infinite in {int(infinite.sum())} of {len(values)} rows, '
            f"first in row {int(np.flatnonzero(infinite)[0])}; where that means no value, "
            "df.replace([np.inf, -np.inf], np.nan) makes gaps of it"
        )


def _objects(values: Iterable[Any]) -> Array:
    listed = list(values)
    array = np.empty(len(listed), object)
    array[:] = listed
    return array


def is_gap(value: Any) -> bool:
    """Whether a value is none: None, NA, NaT or no finite number."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and not np.isfinite(value)


def refuse_same_names(names: Iterable[Any]) -> None:
    """Refuses names that differ and have one text, such as 1 and "1", and what is no name.

    Names travel as lines, so none has a line break.
    """
    seen: dict[str, Any] = {}
    for name in names:
        _refuse_no_name(name, "")
        other = seen.setdefault(str(name), name)
        if other != name:
            raise DataError(
                f"client: {other!r} and {name!r} would be one client, {str(name)!r}: name clients "
                "by numbers or by words, not by both",
                key="client",
            )


def _refuse_no_name(name: Any, where: str) -> None:
    if is_gap(name) or not isinstance(name, Hashable):
        raise DataError(
            f"client: {name!r} is no name of a client{where}: leave such rows out, or name whose "
            "they are by a word or a number",
            key="client",
        )
    if not str(name) or "\n" in str(name):
        raise DataError(
            f"client: {str(name)!r} is no name of a client{where}: it is empty or has a line "
            "break; give another, or leave its rows out",
            key="client",
        )


def refuse_gaps(names: Iterable[Any]) -> None:
    """Refuses rows of which nothing says whose they are, by the first of them."""
    for row, name in enumerate(names):
        # NumPy makes the word "nan" of a gap among words.
        gap = isinstance(name, str) and name == "nan"
        _refuse_no_name(None if gap else name, f", in row {row}")


def owners_of(names: Array) -> dict[str, Array]:
    """The rows of each client, in the order of their first rows. names: one a row."""
    if names.dtype.kind == "M":
        gaps = np.isnat(names)
        names = np.datetime_as_string(names, unit="auto").astype(object)
        names[gaps] = None
    if names.dtype.kind == "m":
        raise DataError(
            f"client: is {names.dtype}, and clients are named by words, numbers or dates",
            key="client",
        )
    listed = names.tolist()
    refuse_gaps(listed)
    refuse_same_names(dict.fromkeys(listed))
    owners: dict[str, list[int]] = {}
    for row, name in enumerate(listed):
        owners.setdefault(str(name), []).append(row)
    return {name: np.array(rows) for name, rows in owners.items()}


def _divided(value: Any) -> bool:
    """Whether a client's value has a part for each split."""
    parts = {"train", "val", "test"}
    return isinstance(value, Mapping) and "train" in value and set(value) <= parts


def tables_in(data: Any, splits: Sequence[str] = ("train",)) -> list[Any]:
    """The tables in data: a table, (table, y), or a dict of them; of clients that are divided,
    those of these splits."""
    if is_table(data):
        return [data]
    if _divided(data):
        return [table for split in splits for table in tables_in(data.get(split))]
    if isinstance(data, Mapping):
        return [table for value in data.values() for table in tables_in(value, splits)]
    if isinstance(data, (tuple, list)) and len(data) == 2 and is_table(data[0]):
        return [data[0]]
    return []
