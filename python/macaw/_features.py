"""Columns of tables as features: a number, or an indicator a word, the same in each table."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ._safetensors import Array
from ._tables import Column, column_of, columns_of, no_column, owners_of, pick
from .errors import DataError

Missing = Literal["mean", "indicator"]

_MOST_WORDS = 1000
_FEW_WORDS = 20
# As in files (data/csv.cc).
_OWNER = re.compile(
    "(client|user|device|writer|speaker|subject|patient|participant|customer|owner|hospital)"
    "(|id|name|no|number)|uid|pid"
)
_ROW_NUMBER = re.compile(r"|Unnamed: 0(\.\d+)?")


@dataclass
class _Feature:
    """What becomes of a column: a number, or an indicator a word."""

    name: str
    words: list[Any] | None = None  # of a category
    mean: float = 0.0  # over the training rows; without test= over all, as they are cut off later
    gaps: bool = False

    def titles(self, missing: Missing | None) -> list[str]:
        if self.words is None:
            titles = [str(self.name)]
        else:
            titles = [f"{self.name}={word}" for word in self.words]
        return [*titles, f"{self.name} is missing"] if self._says_gaps(missing) else titles

    def _says_gaps(self, missing: Missing | None) -> bool:
        return self.gaps and missing == "indicator"

    def arrays(self, column: Column, missing: Missing | None, what: str) -> list[Array]:
        gaps = column.gaps
        if gaps.any() and missing is None:
            raise DataError(
                f'{what}: column "{self.name}" has no value in {int(gaps.sum())} of {len(gaps)} '
                f'rows, first in row {int(np.flatnonzero(gaps)[0])}; missing="mean" puts the '
                'column\'s mean there, missing="indicator" also adds a column that says where, or '
                "leave the rows out (dropna)"
            )
        if self.words is None:
            numbers = column.numbers()
            found = [np.where(gaps, np.float32(self.mean), numbers)]
        else:
            unknown = set(column.values[~gaps].tolist()) - set(self.words)
            if unknown:
                raise DataError(
                    f'{what}: column "{self.name}" has {sorted(map(str, unknown))[0]!r}, which no '
                    "training row has"
                )
            # A gap of pandas is no word, and compares as neither equal nor unequal.
            found = [np.zeros(len(gaps), bool) for _ in self.words]
            for indicator, word in zip(found, self.words):
                indicator[~gaps] = column.values[~gaps] == word
        if self._says_gaps(missing):
            found.append(gaps)
        return [array.astype(np.float32) for array in found]


@dataclass
class Reader:
    """Reads tables that have the same columns, so that a word is the same indicator in each."""

    label: str | None
    client: str | None
    missing: Missing | None
    features: list[_Feature] = field(default_factory=list)
    words: list[Any] | None = None  # of the labels
    warnings: list[str] = field(default_factory=list)

    @staticmethod
    def of(
        training: Sequence[Any],
        other: Sequence[Any],
        *,
        label: str | None,
        client: str | None,
        features: str | Sequence[str] | None,
        missing: Missing | None,
        what: str = "data",
    ) -> Reader:
        reader = Reader(label, client, missing)
        first = training[0]
        chosen = [features] if isinstance(features, str) else list(features or ())
        for name in (*chosen, *([client] if client else [])):
            pick(first, name, (), "client" if name == client else "features", what)
        names = chosen or [name for name in columns_of(first) if name not in (label, client)]
        if not names:
            raise DataError(f"{what}: the table has no column of features")
        if label is not None and label in names:
            raise DataError(
                f'{what}: features=[…] has the label "{label}": a model would read the answer',
                key="features",
            )
        if not chosen:
            _refuse_no_features(names, what)
        for name in names:
            reader.features.append(_fitted(name, training, other, missing, what))
            if note := _lost(name, training, what):
                reader.warnings.append(note)
            if not any(column_of(table, name, what).words for table in training):
                _refuse_numbers(reader.features[-1], what)
            if not chosen:
                _refuse_names(reader.features[-1], training, what)
        if label is not None:
            columns = [column_of(table, label, what) for table in training]
            if not all(column.is_numbers() for column in columns):
                reader.words = _words(columns, label)
        return reader

    def text(self) -> str:
        """How features are read, as JSON; "" where a word is neither text nor a number."""
        features = [[f.name, f.words, f.mean, f.gaps] for f in self.features]
        try:
            return json.dumps([self.missing, features], default=lambda number: number.item())
        except (AttributeError, TypeError):
            return ""

    @staticmethod
    def of_text(text: str) -> Reader:
        missing, features = json.loads(text)
        return Reader(None, None, missing, [_Feature(*feature) for feature in features])

    def filled(self) -> list[str]:
        """Columns of numbers whose gaps become the mean over the training rows."""
        if self.missing is None:
            return []
        return [str(f.name) for f in self.features if f.gaps and f.words is None]

    def titles(self) -> list[str]:
        return [title for feature in self.features for title in feature.titles(self.missing)]

    def x(self, table: Any, what: str) -> Array:
        there = columns_of(table)
        arrays: list[Array] = []
        for feature in self.features:
            if feature.name not in there:
                raise DataError(
                    f'{what}: the table has no column "{feature.name}", which is a feature of the '
                    f"training rows; it has {', '.join(map(str, there))}"
                )
            column = column_of(table, feature.name, what)
            arrays += feature.arrays(column, self.missing, what)
        return np.stack(arrays, 1)

    def y(self, table: Any, what: str) -> Array:
        assert self.label is not None
        if self.label not in columns_of(table):
            raise no_column(self.label, columns_of(table), "label", what)
        column = column_of(table, self.label, what)
        if column.gaps.any():
            row = int(np.flatnonzero(column.gaps)[0])
            raise DataError(f'{what}: the label "{self.label}" has no value in row {row}')
        if self.words is not None:
            known = {word: number for number, word in enumerate(self.words)}
            unknown = set(column.values.tolist()) - set(known)
            if unknown:
                raise DataError(
                    f'{what}: the label "{self.label}" has {sorted(map(str, unknown))[0]!r}, which '
                    "no training row has"
                )
            return np.array([known[value] for value in column.values], np.int64)
        return column.values if column.values.dtype != object else np.array(column.values.tolist())

    def owners(self, table: Any, what: str) -> dict[str, Array]:
        """The rows of each client, in the order of their first rows."""
        assert self.client is not None
        column = column_of(table, self.client, what)
        if column.gaps.any():
            row = int(np.flatnonzero(column.gaps)[0])
            raise DataError(f'{what}: the client column "{self.client}" has no value in row {row}')
        return owners_of(column.values)

    def note(self) -> str | None:
        made = [f"{f.name} becomes {len(f.words)} indicators" for f in self.features if f.words] + [
            f"gaps in {f.name} become {'0 in all of them' if f.words else 'its mean'}"
            for f in self.features
            if f.gaps
        ]
        return "; ".join(made) or None


def _refuse_no_features(names: Sequence[Any], what: str) -> None:
    """Refuses columns that nobody has chosen and that are hardly meant as features."""
    for name in names:
        if _ROW_NUMBER.fullmatch(str(name)):
            raise DataError(
                f'{what}: column "{name}" seems to number the rows: leave it out with '
                "features=[…], or read the file with index_col=0",
                key="features",
            )
        if _OWNER.fullmatch("".join(filter(str.isalnum, str(name).lower()))):
            raise DataError(
                f'{what}: column "{name}" seems to say whose row it is: give client={str(name)!r}, '
                "or features=[…] with the columns that are features",
                key="client",
            )


def _refuse_numbers(feature: _Feature, what: str) -> None:
    """Refuses a column whose words are numbers but for a few."""
    words = [word for word in feature.words or () if isinstance(word, str)]
    others = [word for word in words if not _is_number(word)]
    if len(words) > 4 * max(len(others), 1):
        listed = ", ".join(map(repr, others[:3])) or "all are text"
        raise DataError(
            f'{what}: column "{feature.name}" has numbers as words, and {listed}: make numbers of '
            f'it, such as pd.to_numeric(df["{feature.name}"], errors="coerce") with missing=…; or '
            'categories, by .astype("category")',
            key="features",
        )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _refuse_names(feature: _Feature, training: Sequence[Any], what: str) -> None:
    """Refuses a column of words that nobody has chosen and that names rows."""
    rows = sum(len(column_of(table, feature.name, what).values) for table in training)
    words = len(feature.words or ())
    if words > _FEW_WORDS and words > rows / 2:
        raise DataError(
            f'{what}: column "{feature.name}" has {words} different words in {rows} rows, so it '
            "seems to name rows: leave it out with features=[…], or name it there if it is meant",
            key="features",
        )


def _fitted(
    name: str, training: Sequence[Any], other: Sequence[Any], missing: Missing | None, what: str
) -> _Feature:
    for table in training:
        if name not in columns_of(table):
            raise no_column(name, columns_of(table), "features", what)
    columns = [column_of(table, name, what) for table in training]
    feature = _Feature(name)
    rest = [column_of(table, name, what) for table in other if name in columns_of(table)]
    feature.gaps = any(bool(column.gaps.any()) for column in (*columns, *rest))
    if all(column.is_numbers() for column in columns):
        there = np.concatenate([column.numbers()[~column.gaps] for column in columns])
        if not len(there) and missing is not None:
            raise DataError(
                f'{what}: column "{name}" has no value in any training row: leave it out',
                key="features",
            )
        feature.mean = float(there.mean(dtype=np.float64)) if len(there) else 0.0
        _refuse_lost(columns, there, name, what)
        return feature
    feature.words = _words(columns, name)
    if len(feature.words) > _MOST_WORDS:
        raise DataError(
            f'{what}: column "{name}" has {len(feature.words)} different words, so it is no '
            f"category; leave it out with features=[…] (at most {_MOST_WORDS} become indicators)"
        )
    mixed = [v for column in columns for v in column.values[~column.gaps] if not _is_word(v)]
    if mixed and all(column.words is None for column in columns):
        kind = type(mixed[0]).__name__
        words = any(_is_word(v) for column in columns for v in column.values[~column.gaps])
        raise DataError(
            f'{what}: column "{name}" has {"words and " if words else ""}{kind}; a column has '
            "numbers, or words, which become indicators"
            + ("" if words else ": make a number of it, such as .astype(float), or days of a date")
        )
    return feature


def _refuse_lost(columns: Sequence[Column], kept: Array, name: str, what: str) -> None:
    """Refuses numbers that differ and are all the same in float32, such as times in seconds."""
    if not len(kept) or kept.min() != kept.max():
        return
    there = [value for column in columns for value in column.values[~column.gaps].tolist()]
    if min(there) != max(there):
        raise DataError(
            f'{what}: column "{name}" has numbers from {min(there)} to {max(there)}, which are all '
            f"{kept[0]:.9g} in float32: subtract a number near them, such as the column's minimum",
            key="features",
        )


def _lost(name: str, training: Sequence[Any], what: str) -> str | None:
    columns = [column_of(table, name, what) for table in training]
    if not all(column.is_numbers() and column.values.dtype != object for column in columns):
        return None
    there = np.concatenate([column.values[~column.gaps] for column in columns])
    return lost_in_float32(there, f'column "{name}"')


def lost_in_float32(values: Array, name: str) -> str | None:
    """What to say of numbers that differ by hardly more than float32 can tell; None: nothing.

    Such are times in seconds within some minutes: near 1.7e9 float32 has steps of 128.
    """
    if values.dtype.kind not in "iuf" or values.dtype == np.float32 or len(values) < 2:
        return None
    deviation = float(values.astype(np.float64).std())
    return lost_of(float(values.min()), float(values.max()), deviation, name)


def lost_of(least: float, most: float, deviation: float, name: str) -> str | None:
    """The same of numbers of which this is known."""
    size = max(abs(least), abs(most))
    if least == most or size > np.finfo(np.float32).max:
        return None
    step = float(np.spacing(np.float32(size)))
    if step <= deviation / 20:
        return None
    return (
        f"{name} has numbers from {least:.12g} to {most:.12g}, and float32, in which a run has "
        f"them, has steps of {step:.3g} there: subtract a number near them, such as the minimum"
    )


def _is_word(value: Any) -> bool:
    return isinstance(value, (str, bytes))


def _words(columns: Sequence[Column], name: str) -> list[Any]:
    """All words of the columns: of a categorical type in its order, then those of the next."""
    if any(column.words is not None for column in columns):
        ordered: dict[Any, None] = {}
        for column in columns:
            own = _present([column], name) if column.words is None else column.words
            ordered.update(dict.fromkeys(own))
        return list(ordered)
    return _present(columns, name)


def _present(columns: Sequence[Column], name: str) -> list[Any]:
    """The words that rows have, sorted."""
    there = {type(v).__name__ for column in columns for v in column.values[~column.gaps]
             if not isinstance(v, Hashable)}  # fmt: skip
    if there:
        raise DataError(
            f"column {name!r} holds {', '.join(sorted(there))}; a column has numbers, or words, "
            "which become indicators"
        )
    return sorted({v for column in columns for v in column.values[~column.gaps]}, key=str)
