"""How data is read: the columns that were asked for, and what there is to say about the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _features, _tables
from ._safetensors import Array
from .errors import ConfigError, DataError

if TYPE_CHECKING:
    from ._normalise import Normalisation
    from ._spread import Spread

# Keys of [data] that name columns, as arguments.
COLUMN_KEYS = {"label_column": "label", "client_column": "client", "drop_columns": "drop"}


class Columns:
    """How data is read: its columns, and what there is to say about it once it is."""

    def __init__(
        self,
        features: str | Sequence[str] | None = None,
        label: str | None = None,
        client: Any = None,
        missing: _features.Missing | None = None,
        *,
        tokens: bool = True,
    ) -> None:
        """tokens: whether whole numbers are tokens, and not numbers."""
        self.features, self.label, self.client = features, label, client
        self.drop: Sequence[str] = ()  # columns that are nothing
        # What the caller calls these, where it is not an argument: "label" -> "data.label_column".
        self.called: dict[str, str] = {}
        self.missing, self.tokens = missing, tokens
        self.words: list[str] = []  # of the classes
        self.own_clients = False  # the data says whose each row is
        self.next_tokens = False  # rows are texts, and y the token behind each
        self.reader: _features.Reader | None = None
        self.normalisation: Normalisation | None = None
        self.spread: Spread | None = None  # of features that are no float32 yet
        self.notes: list[str] = []
        self.warnings: list[str] = []
        # What may explain an error of the run, and the keys that it is about (their beginnings).
        self.hints: dict[str, str] = {}
        if missing not in (None, "mean", "indicator"):
            raise DataError(f'missing is {missing!r}; it is "mean" or "indicator"', key="missing")

    def take(self, options: dict[str, Any]) -> None:
        """Takes the keys of [data] that name columns: in memory they are these arguments."""
        for key, name in COLUMN_KEYS.items():
            column = options.pop(key, None)
            if column is None or (name == "client" and column == "none"):  # as in a file: none
                continue
            if getattr(self, name) not in (None, ()):
                raise ConfigError(
                    f"{name}= and data.{key} say the same thing: give one of them",
                    key=f"data.{key}",
                )
            setattr(self, name, column)
            self.called[name] = f"data.{key}"

    def check(self, data: Any, test: Any) -> None:
        """Refuses the names of columns where nothing has columns, and a feature that is named
        twice."""
        _tables.refuse_lazy(data, "data")
        _tables.refuse_lazy(test, "test")
        if self.features is not None and not isinstance(self.features, str):
            names = list(self.features)
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise DataError(f"features has {twice!r} more than once", key="features")
        if any(map(_has_columns, (data, test))):
            return
        for name in ("features", "label", "drop"):
            column = getattr(self, name)
            if column not in (None, ()):
                called = self.called.get(name, name)
                raise DataError(
                    f"data: {called} = {column!r} names a column, and the data has none: it is for "
                    "a table or a Hugging Face dataset",
                    key=called,
                )

    @staticmethod
    def _held_back(data: Any) -> list[Any]:
        """The tables of clients' validation and test rows."""
        if not isinstance(data, Mapping):
            return []
        divided = [value for value in data.values() if _tables._divided(value)]
        return [t for value in divided for t in _tables.tables_in(value, ("val", "test"))]

    def fit(self, data: Any, test: Any) -> None:
        """Learns the columns of the tables in the data, if there are any."""
        training = _tables.tables_in(data)
        if not training:
            if self.missing is not None:
                raise DataError(
                    "missing is for tables (pandas, polars, Arrow), and the data is none",
                    key="missing",
                )
            return
        paired = isinstance(data, (tuple, list)) or any(
            isinstance(value, (tuple, list)) for value in values_of(data)
        )
        label = None
        if not paired:
            label = self._label_in(training[0], "data")
        self.reader = _features.Reader.of(
            training,
            [*_tables.tables_in(test), *self._held_back(data)],
            label=label,
            client=self.client if isinstance(self.client, str) else None,
            features=self.features or self._kept(training[0], label),
            missing=self.missing,
        )
        if self.reader.words is not None:
            self.words = [str(word) for word in self.reader.words]
        if note := self.reader.note():
            self.notes.append(note)
        self.warnings += self.reader.warnings

    def _kept(self, table: Any, label: str | None) -> list[str] | None:
        """The columns of a table that are features once others are dropped; None: none is."""
        if not self.drop:
            return None
        called = self.called.get("drop", "drop_columns")
        dropped = {_tables.pick(table, name, (), called, "data") for name in self.drop}
        others = {label, self.client if isinstance(self.client, str) else label, *dropped}
        return [name for name in _tables.columns_of(table) if name not in others]

    def of(self, data: Any, what: str) -> tuple[str, str]:
        """The columns of features and labels of a Hugging Face dataset."""
        label = self._label_in(data, what)
        taken = {label, self.client if isinstance(self.client, str) else label, *self.drop}
        rest = [name for name in data.column_names if name not in taken]
        asked = [self.features] if isinstance(self.features, str) else list(self.features or rest)
        if len(asked) > 1 and self.features:
            raise DataError(
                f"{what}: features={asked}, and of a Hugging Face dataset one column is the "
                "features; dataset.to_pandas() is a table, which may have several",
                key="features",
            )
        features = _tables.pick(data, asked[0] if len(asked) == 1 else None, (), "features", what)
        self.words = list(getattr(data.features[label], "names", None) or self.words)
        return features, label

    def _label_in(self, table: Any, what: str) -> Any:
        """The column of labels."""
        self.refuse_labels()
        called = self.called.get("label", "label")
        return _tables.pick(table, self.label, _tables.LABELS, called, what)

    def refuse_labels(self) -> None:
        """Refuses labels in place of the name of their column."""
        if hasattr(self.label, "__array__"):
            raise DataError(
                "label names a column of the data, and here it is an array: give the labels beside "
                "the features, data=(x, y)",
                key="label",
            )

    def look_again(self, data: Any, x: Sequence[Array]) -> None:
        """Notices a dataset that gives another row when it is asked again."""
        for number in range(min(3, len(x))):
            again = np.asarray(plain(data[number][0]))
            if again.shape != x[number].shape or not np.array_equal(again, x[number]):
                note = (
                    f"item {number} of the dataset is another one each time (random transforms): "
                    "its rows are read once and stay as they are; a run draws anew with "
                    "data_options=dict(augment=dict(pad_crop=…))"
                )
                if note not in self.warnings:
                    self.warnings.append(note)
                return

    def look_at_test(self, trained: Sequence[Array], tested: Array) -> None:
        """Notices classes of the test set that no training row has."""
        if self.next_tokens or self.words:
            return
        if any(y.dtype != np.int32 or not len(y) for y in (*trained, tested)):
            return
        most = max(int(y.max()) for y in trained)
        if tested.max() > most:
            note = f"test has class {tested.max()}, and no training row has one above {most}"
            self.warnings.append(note)
            self.hints[note] = "model run.task"

    def look_at_spread(self) -> None:
        """Notices a column that float32 hardly tells apart, over the rows of all clients."""
        if self.spread is not None and (said := self.spread.lost()) is not None:
            self.warnings.append(said)

    def look_at(self, x: Array, y: Array) -> None:
        """What is likely a mistake, for warnings and for errors of the run."""
        if x.dtype == np.uint8 and x.max(initial=0) <= 1:
            self.warnings.append(
                "x is uint8 with values 0 and 1 alone, and uint8 is scaled by 1/255; for 0 and 1 "
                'give x.astype("float32")'
            )
        if self.next_tokens:
            return
        if y.dtype == np.int32 and not self.words and y.min() >= 1:
            self.warnings.append(
                f"no row has class 0: y is {y.min()} to {y.max()}, and classes count from 0; "
                f"give y - {y.min()}"
            )
            self.hints[self.warnings[-1]] = "model run.task"
        if y.dtype == np.float32 and np.array_equal(y, np.round(y)) and len(np.unique(y)) <= 100:
            hint = "y is float, which is read as targets of a regression; for classes give "
            self.hints[hint + "y.astype(int)"] = "model run.task partition"
        if y.dtype == np.int32:
            hint = "y is whole numbers, which are read as classes; for targets of a regression "
            self.hints[hint + 'give y.astype("float32")'] = "run.task"


def _has_columns(data: Any) -> bool:
    if isinstance(data, Mapping):
        return any(map(_has_columns, data.values()))
    if _tables.tables_in(data) or _tables.is_dataset(data):
        return True
    return hasattr(first_of(data), "keys")  # rows are dicts


def first_of(data: Any) -> Any:
    """The first item of a list or a torch Dataset; None: the data is something else, or empty."""
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or hasattr(data, "dtype"):
        return None
    known = isinstance(data, (Mapping, str)) or _tables.is_table(data)
    return None if known or len(data) == 0 else data[0]


def values_of(data: Any) -> list[Any]:
    return list(data.values()) if isinstance(data, Mapping) else []


def plain(value: Any) -> Any:
    """A tensor as an array; bfloat16, which NumPy lacks, as float32. Raises DataError."""
    if isinstance(value, np.ma.MaskedArray):
        raise DataError("a masked array; give its values and what stands in gaps, x.filled(…)")
    if not hasattr(value, "detach"):
        return value
    if getattr(value, "is_meta", False):
        raise DataError("a tensor on the device meta, which holds no values")
    layout = str(getattr(value, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise DataError(f"a tensor of layout {layout}; give x.to_dense()")
    host = value.detach().cpu()
    return (host.float() if str(host.dtype) == "torch.bfloat16" else host).numpy()
