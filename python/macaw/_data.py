"""Data: arrays, clients, datasets of other libraries, or a path.

What is in memory is written once into a prepared file (data/README.md), which is named by its
content; runs map it. The same data is found again, whatever it came from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import _safetensors
from ._safetensors import Array
from .errors import DataError

_SPLITS = ("train", "val", "test")
#: Keys of [data] that name columns. In memory they are what ``prepare`` is told.
COLUMN_KEYS = {"label_column": "label", "client_column": "client", "drop_columns": "drop"}
_LABELS = ("label", "labels", "target", "targets", "y", "fine_label")


def cache_folder() -> Path:
    """Where prepared data and initial weights are kept: ``$XDG_CACHE_HOME/macaw``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "macaw"


def prepare(
    data: Any,
    *,
    test: Any = None,
    features: str | None = None,
    label: str | int | None = None,
    client: str | int | None = None,
    drop: Sequence[str | int] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Path:
    """Writes data into a file that every run maps, and returns its path.

    data: ``(x, y)``; a dict from a client's name to ``(x, y)``, or to a dict of ``train``, ``val``
        and ``test``, each ``(x, y)``; a PyTorch ``Dataset`` of pairs; a Hugging Face ``Dataset``;
        a ``DataFrame`` of numbers.
        ``x`` is uint8, float32 or int32 tokens, a row an example; ``y`` is classes from 0, or
        float32 targets. Token rows may be lists of several lengths: they are padded with 0 at
        the end, and layers of sequences (``macaw models``) leave that out. A scripted module is
        given the padding as token 0.
    test: the central test set, in any of these forms but the dict. Without it, a run sets
        ``data.test_fraction`` of the rows aside; of a dict of clients it sets none aside, and
        ``data_options=dict(client_test_fraction=0.3)`` gives each client test rows of its own
        (and then ``data.test_fraction`` counts, too).
    features, label, client, drop: the columns of a dataset that has columns (``client``: whose row
        it is; ``drop``: neither). Other data has none, and refuses them. In ``simulate``,
        ``data_options`` gives the last three as ``label_column``, ``client_column`` and
        ``drop_columns``.
    """
    folder = Path(cache) if cache is not None else cache_folder()
    try:
        return _write(data, test, _Columns(features, label, client, drop or ()), folder / "data")
    except DataError as error:
        error.key = error.key or ("test" if str(error).startswith("test") else "data")
        raise


def _write(data: Any, test: Any, columns: _Columns, folder: Path) -> Path:
    names: list[str] = []
    if isinstance(data, Mapping):
        if columns.client is not None:
            raise DataError(
                f"client_column = {columns.client!r} has no effect: the dict says whose rows "
                "they are",
                key="data.client_column",
            )
        names = [str(name) for name in data]
        blocks, tensors = _clients(data, columns)
    elif columns.client is not None:
        names, block, offsets = _by_client(data, columns)
        blocks, tensors = [block], {"train_offsets": offsets}
    else:
        blocks, tensors = [_pair(data, "data", columns)], {}
    trained = sum(len(block.y) for block in blocks)
    if test is not None:
        blocks.append(_pair(test, "test", columns))
        rows = trained + len(blocks[-1].y)
        tensors["central_test"] = np.array([trained, rows], np.int64)
    if not columns.used:
        columns.refuse("data")
    joined = _joined(blocks)
    x, y = joined.x, joined.y
    lengths = {} if joined.lengths is None else {"lengths": joined.lengths}
    metadata = {"name": "python"}
    if y.dtype == np.int32 and columns.words:
        metadata["class_names"] = json.dumps(columns.words)
        metadata["classes"] = str(len(columns.words))
    # In this order every tensor is aligned.
    return _safetensors.write_by_content(
        folder,
        {**tensors, "labels": y, **lengths, "features": x, **_names(names)},
        metadata,
    )


@dataclass
class _Block:
    """Some rows: features, labels, and the tokens in use of each where rows are padded."""

    x: Array
    y: Array
    lengths: Array | None = None


class _Columns:
    """The columns of a dataset that has columns, and the words of its classes once known."""

    def __init__(
        self,
        features: str | None,
        label: str | int | None,
        client: str | int | None,
        drop: Sequence[str | int],
    ) -> None:
        self.features, self.label, self.drop = features, label, drop
        self.client = None if client == "none" else client  # as in a file: no column says it
        self.words: list[str] = []
        self.used = False  # whether some of the data has columns

    def refuse(self, what: str) -> None:
        """Refuses whatever names a column, of data that has none."""
        for key, given in (
            ("features", self.features),
            ("label", self.label),
            ("data.client_column", self.client),
            ("data.drop_columns", list(self.drop) or None),
        ):
            if given is not None:
                raise DataError(
                    f"{what}: {key} = {given!r} names a column, and this data has none: it is for "
                    "a Hugging Face dataset, a DataFrame or a csv file (a dict of clients says "
                    "whose rows they are)",
                    key=key,
                )

    def place(self, name: str | int, key: str, there: Sequence[Any], what: str) -> Any:
        """The column that is meant: by its name, or by its number from 0."""
        if name in there:
            return name
        if str(name).isdecimal() and int(name) < len(there):
            return there[int(name)]
        names = ", ".join(map(str, there))
        raise DataError(f"{what}: {key}={name!r} is no column; there are {names}", key=key)

    def of(self, there: Sequence[Any], what: str) -> tuple[Any, list[Any]]:
        """The column of the label and those that are left for the features."""
        self.used = True
        label = next((name for name in _LABELS if name in there), None)
        if self.label is not None:
            label = self.place(self.label, "label", there, what)
        if label is None:
            raise DataError(
                f"{what}: say with label=… which column has the label; there are "
                f"{', '.join(map(str, there))}",
                key="label",
            )
        others = {label}
        if self.client is not None and what == "data":
            others.add(self.place(self.client, "data.client_column", there, what))
        elif self.client in there:  # a test set may say whose rows they were
            others.add(self.client)
        for name in self.drop:
            others.add(self.place(name, "data.drop_columns", there, what))
        return label, [name for name in there if name not in others]

    def feature(self, rest: Sequence[Any], there: Sequence[Any], what: str) -> Any:
        """The one column that has the features."""
        name = self.features or (rest[0] if len(rest) == 1 else None)
        if name not in there:
            raise DataError(
                f"{what}: say with features=… which column has the features; there are "
                f"{', '.join(map(str, there))}",
                key="features",
            )
        return name


def _is_hugging_face(data: Any) -> bool:
    return hasattr(data, "column_names") and hasattr(data, "features")


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def _frame(data: Any, what: str, columns: _Columns) -> tuple[Array, Array]:
    there = list(data.columns)
    label, rest = columns.of(there, what)
    if columns.features is not None:
        rest = [columns.feature(rest, there, what)]
    try:
        x = data[rest].to_numpy(dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what}: the columns {', '.join(map(str, rest))} are not all numbers ({error})"
        ) from error
    return x, data[label].to_numpy()


def _by_client(data: Any, columns: _Columns) -> tuple[list[str], _Block, Array]:
    """Clients' names in the order of their first rows, the rows client by client, and where each
    client's begin and end."""
    if not (_is_hugging_face(data) or _is_frame(data)):
        columns.refuse("data")
    there = list(data.column_names if _is_hugging_face(data) else data.columns)
    column = columns.place(columns.client or 0, "data.client_column", there, "data")
    block = _pair(data, "data", columns)
    owners = [str(owner) for owner in data[column]]
    names = list(dict.fromkeys(owners))
    number = {name: place for place, name in enumerate(names)}
    client = np.array([number[owner] for owner in owners], np.int64)
    order = np.argsort(client, kind="stable")
    lengths = None if block.lengths is None else block.lengths[order]
    ends = np.cumsum(np.bincount(client, minlength=len(names)))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    return names, _Block(block.x[order], block.y[order], lengths), offsets


def _pair(data: Any, what: str, columns: _Columns) -> _Block:
    """One block of rows, checked."""
    if isinstance(data, (tuple, list)) and len(data) == 2 and not _is_pair_of_rows(data):
        x, y = data
    elif _is_hugging_face(data):
        there = list(data.column_names)
        label, rest = columns.of(there, what)
        x, y = _images(data[columns.feature(rest, there, what)]), data[label]
        columns.words = list(getattr(data.features[label], "names", None) or columns.words)
    elif _is_frame(data):
        x, y = _frame(data, what, columns)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        x, y = _stacked((data[i] for i in range(len(data))), what)
    elif isinstance(data, Iterable):
        x, y = _stacked(data, what)
    else:
        raise DataError(
            f"{what}: expected (x, y), a dict of clients, a torch or Hugging Face dataset, or a "
            f"path; got {type(data).__name__}"
        )
    padded, lengths = _padded(x, what)
    features, labels = _checked(_array(padded, f"{what}: x"), _array(y, f"{what}: y"), what)
    return _Block(features, labels, lengths)


def _padded(x: Any, what: str) -> tuple[Any, Array | None]:
    """Rows of tokens of several lengths as rows of one length, and the lengths; else x itself."""
    if not isinstance(x, (list, tuple)):
        return x, None
    try:
        rows = [np.asarray(_plain(row)) for row in x]
    except ValueError:  # a row that is no array; _array says so
        return x, None
    lengths = np.array([len(row) if row.ndim == 1 else -1 for row in rows], np.int32)
    tokens = all(row.dtype.kind in "iu" or not row.size for row in rows)
    if not tokens or lengths.min(initial=0) < 0 or len(set(lengths.tolist())) < 2:
        return x, None
    padded = np.zeros((len(rows), lengths.max()), np.int64)
    for line, row in zip(padded, rows):
        line[: len(row)] = row
    if padded.min() < 0 or padded.max() >= 2**31:
        row = int(np.flatnonzero(((padded < 0) | (padded >= 2**31)).any(1))[0])
        raise DataError(f"{what}: row {row} of x has a token below 0, or one that int32 cannot hold")
    return padded.astype(np.int32), lengths


def _is_pair_of_rows(data: Sequence[Any]) -> bool:
    """Two examples, each (x, y), and not one x and one y."""
    return all(isinstance(row, tuple) and len(row) == 2 for row in data)


def _stacked(rows: Iterable[Any], what: str) -> tuple[list[Array], list[Any]]:
    xs, ys = [], []
    for number, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) != 2:
            raise DataError(f"{what}: item {number} is {type(row).__name__}; each must be (x, y)")
        xs.append(_array(row[0], f"{what}: item {number}"))
        ys.append(np.asarray(_plain(row[1])))
    if not xs:
        raise DataError(f"{what}: it has no rows")
    return xs, ys


def _images(column: Any) -> Any:
    """Pictures as [channels, height, width]; anything else as it is."""
    rows = list(column)
    if not rows or not hasattr(rows[0], "getbands"):
        return rows
    arrays = [np.asarray(picture) for picture in rows]
    return [a[None] if a.ndim == 2 else np.moveaxis(a, -1, 0) for a in arrays]


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _array(value: Any, what: str) -> Array:
    try:
        return np.asarray(_plain(value))
    except ValueError as error:  # rows of different shapes
        raise DataError(f"{what}: the rows are not of one shape ({error})") from error


def _checked(x: Array, y: Array, what: str) -> tuple[Array, Array]:
    if x.dtype == object:
        raise DataError(f"{what}: the rows of x are not of one shape")
    if x.ndim < 2:
        raise DataError(
            f"{what}: x has shape {list(x.shape)}; it needs rows and at least one axis of features"
        )
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{what}: y has shape {list(y.shape)}; it needs one label a row")
    if len(x) != len(y):
        raise DataError(f"{what}: x has {len(x)} rows and y has {len(y)}")
    if len(x) == 0:
        raise DataError(f"{what}: it has no rows")
    return _features(x, what), _labels(y, what)


def _features(x: Array, what: str) -> Array:
    if x.dtype == np.bool_:
        return x.astype(np.uint8)
    if x.dtype in (np.uint8, np.float32, np.int32):
        kept = x
    elif x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a value beyond float32 is refused below
            kept = x.astype(np.float32)
    elif x.dtype.kind in "iu":
        kept = _as_int32(x, f"{what}: x")
    else:
        raise DataError(f"{what}: x is {x.dtype}; it must be uint8, float32 or int32 (tokens)")
    if kept.dtype == np.float32 and not np.isfinite(kept).all():
        row = int(np.flatnonzero(~np.isfinite(kept.reshape(len(kept), -1)).all(1))[0])
        raise DataError(f"{what}: row {row} of x has a value that is not finite (NaN or infinity)")
    return kept


def _labels(y: Array, what: str) -> Array:
    if y.dtype == np.bool_:
        return y.astype(np.int32)
    if y.dtype.kind in "iu":
        labels = _as_int32(y, f"{what}: y")
        if labels.min() < 0:
            row = int(np.flatnonzero(labels < 0)[0])
            raise DataError(f"{what}: y is {labels[row]} at row {row}; classes count from 0")
        return labels
    if y.dtype.kind != "f":
        raise DataError(
            f"{what}: y is {y.dtype}; it must be classes (integers) or targets (floats)"
        )
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"{what}: y is {y[row]} at row {row}; targets must be finite")
    return y.astype(np.float32)


def _as_int32(array: Array, what: str) -> Array:
    narrow = array.astype(np.int32)
    if not np.array_equal(narrow, array):
        raise DataError(f"{what} is {array.dtype} and has values that int32 cannot hold")
    return narrow


def _clients(
    data: Mapping[Any, Any], columns: _Columns
) -> tuple[list[_Block], dict[str, Array]]:
    """Blocks in the order train, val, test, each client by client, and where a client's begin."""
    if not data:
        raise DataError("data: there is no client in the dict")
    blocks: list[_Block] = []
    tensors: dict[str, Array] = {}
    at = 0
    for split in _SPLITS:
        offsets = [at]
        for name, rows in data.items():
            part = rows.get(split) if isinstance(rows, Mapping) else rows
            if isinstance(rows, Mapping) and not set(rows) <= set(_SPLITS):
                raise DataError(
                    f"client {name}: has {', '.join(rows)}; it may have train, val, test"
                )
            if part is not None and (split == "train" or isinstance(rows, Mapping)):
                block = _pair(part, f"client {name}", columns)
                blocks.append(block)
                at += len(block.y)
            offsets.append(at)
        if split == "train" or offsets[-1] > offsets[0]:
            tensors[f"{split}_offsets"] = np.array(offsets, np.int64)
    return blocks, tensors


def _names(clients: Sequence[str]) -> dict[str, Array]:
    if not clients:
        return {}
    names = [name.encode() for name in clients]
    offsets = np.cumsum([0, *map(len, names)], dtype=np.int64)
    return {
        "client_names": np.frombuffer(b"".join(names), np.uint8),
        "client_name_offsets": offsets,
    }


def _joined(blocks: Sequence[_Block]) -> _Block:
    if any(block.lengths is not None for block in blocks):
        blocks = _as_long_as_the_longest(blocks)
    first = blocks[0]
    for other in blocks[1:]:
        if other.x.shape[1:] != first.x.shape[1:] or other.x.dtype != first.x.dtype:
            raise DataError(
                f"data: some rows are {list(first.x.shape[1:])} of {first.x.dtype} and others "
                f"{list(other.x.shape[1:])} of {other.x.dtype}"
            )
        if other.y.dtype != first.y.dtype:
            raise DataError(f"data: some labels are {first.y.dtype} and others {other.y.dtype}")
    if len(blocks) == 1:
        return first
    lengths = [block.lengths for block in blocks if block.lengths is not None]
    return _Block(
        np.concatenate([block.x for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        np.concatenate(lengths) if lengths else None,
    )


def _as_long_as_the_longest(blocks: Sequence[_Block]) -> list[_Block]:
    """The same blocks of tokens with rows of one length, all of them with lengths."""
    longest = max(block.x.shape[1] for block in blocks)
    long = []
    for block in blocks:
        x, width, lengths = block.x, block.x.shape[1], block.lengths
        if lengths is None:
            lengths = np.full(len(x), width, np.int32)
        if x.ndim == 2:  # other shapes are refused where blocks are joined
            x = np.pad(x, ((0, 0), (0, longest - width)))
        long.append(_Block(x, block.y, lengths))
    return long
