"""Data: arrays, clients, datasets of other libraries, or a path.

What is in memory is written once into a prepared file (docs/guides/data.md), which is named by its
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

from . import _safetensors, _tables, _texts
from ._columns import Columns as Columns  # _simulate takes it from here
from ._columns import plain
from ._paths import path_of
from ._safetensors import Array
from ._warn import warn
from .errors import CacheError, DataError

_SPLITS = ("train", "val", "test")


def cache_folder() -> Path:
    """Where prepared data and initial weights are kept: ``$XDG_CACHE_HOME/macaw``."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:  # no HOME, and the system does not know this user
        raise CacheError(f"the cache has no home folder ({error}): give cache=…") from error
    return Path(base) / "macaw"


def prepare(
    data: Any,
    *,
    test: Any = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    client: Any = None,
    missing: _tables.Missing | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Path:
    """Writes data into a file that every run maps, and returns its path.

    data: ``(x, y)``; a dict from a client's name to ``(x, y)``, or to a dict of ``train``, ``val``
        and ``test``, each ``(x, y)``; a table (a DataFrame of pandas or polars, a Table of Arrow),
        or ``(table, y)``; a PyTorch ``Dataset`` of pairs; a Hugging Face ``Dataset``, or a
        ``DatasetDict`` with ``train`` and ``test``. ``x`` is uint8 (scaled by 1/255), numbers
        (float32), or whole numbers, which are tokens (int32); booleans are 0 and 1. ``y`` is
        classes from 0, or float32 targets. Token rows may be lists of several lengths: they are
        padded with 0 at the end, and layers of sequences (``macaw models``) leave that out. A
        scripted module is given the padding as token 0. Images with channels last become channels
        first.
    test: the central test set, in any of these forms but the dict. Without it, a run sets
        ``data.test_fraction`` of the rows aside, a tenth by default. Of clients of one's own it
        sets none aside by default: ``data_options=dict(test_fraction=0.1)`` is a tenth of all
        their rows, and ``client_test_fraction=0.3`` gives each client test rows of its own (and
        then ``test_fraction`` is a tenth by default, too).
    features, label: columns of a table or a Hugging Face dataset. In a table, numbers and booleans
        are one feature each, and words an indicator each; labels that are words are classes.
    client: whose row it is: a column of the table or dataset, or an array with a name a row.
    missing: what becomes of gaps in a table: "mean", their column's mean; "indicator", also a
        column of 0 and 1 that says where. Without it a gap is an error. A word that is missing is
        none of the indicators.
    """
    columns = Columns(features, label, client, missing)
    path = prepared(data, test, columns, cache)
    for note in columns.warnings:
        warn(note)
    return path


def prepared(
    data: Any, test: Any, columns: Columns, cache: str | os.PathLike[str] | None
) -> Path:
    """What ``prepare`` writes; what there is to say is in `columns` then."""
    folder = path_of(cache, "cache") if cache is not None else cache_folder()
    try:
        return _write(data, test, columns, folder / "data")
    except DataError as error:
        error.key = error.key or ("test" if str(error).startswith("test:") else "data")
        raise


def _write(data: Any, test: Any, columns: Columns, folder: Path) -> Path:
    data, test = _splits_of(data, test, columns)
    columns.check(data, test)
    columns.fit(data, test)
    data = _by_client(data, columns)
    columns.own_clients = isinstance(data, Mapping)
    if isinstance(data, Mapping):
        blocks, tensors = _clients(data, columns)
    else:
        blocks, tensors = [_pair(data, "data", columns)], {}
    trained = sum(len(block.y) for block in blocks)
    if test is not None:
        _refuse_no_test(test)
        blocks.append(_pair(test, "test", columns))
        columns.look_at_test([block.y for block in blocks[:-1]], blocks[-1].y)
        rows = trained + len(blocks[-1].y)
        tensors["central_test"] = np.array([trained, rows], np.int64)
    joined = _joined(blocks)
    x, y = joined.x, joined.y
    columns.look_at(x, y)
    lengths = {} if joined.lengths is None else {"lengths": joined.lengths}
    metadata = {"name": "python"}
    if y.dtype == np.int32 and columns.words:
        metadata["class_names"] = json.dumps(columns.words)
        metadata["classes"] = str(len(columns.words))
    if columns.reader is not None:
        metadata["feature_names"] = json.dumps(columns.reader.titles())
    # In this order every tensor is aligned.
    return _safetensors.write_by_content(
        folder,
        {**tensors, "labels": y, **lengths, "features": x, **_names(data, tensors)},
        metadata,
    )


def _refuse_no_test(test: Any) -> None:
    if isinstance(test, Mapping):
        raise DataError(
            "test: a dict; the central test set is rows of nobody, test=(x, y). A client's own "
            'test rows stand beside its training rows, data={"ann": {"train": …, "test": …}, …}'
        )
    if isinstance(test, (bool, int, float)):
        raise DataError(
            f"test: found {test!r}; it takes rows, test=(x, y). A share of all rows is "
            "data_options=dict(test_fraction=0.1)"
        )


def _splits_of(data: Any, test: Any, columns: Columns) -> tuple[Any, Any]:
    """The training and the test rows of a ``DatasetDict``."""
    kinds = ("DatasetDict", "IterableDatasetDict")
    if not isinstance(data, Mapping) or type(data).__name__ not in kinds:
        return data, test
    if "train" not in data:
        raise DataError(
            f"data: the DatasetDict has no \"train\" but {', '.join(data)}; give one of them, such "
            "as data=splits[\"…\"], test=splits[\"…\"]"
        )
    used = {"train"}
    if test is None and "test" in data:
        test = data["test"]
        used.add("test")
    left = [name for name in data if name not in used]
    note = 'DatasetDict: "train" is trained'
    note += ', and "test" is the test set' if "test" in used else ""
    columns.notes.append(note + (f"; {', '.join(left)} not used" if left else ""))
    return data["train"], test


def _by_client(data: Any, columns: Columns) -> Any:
    """A dict of clients, where a column or an array says whose row each is."""
    client = columns.client
    if client is None:
        return data
    if isinstance(data, Mapping):
        called = columns.called.get("client", "client")
        raise DataError(f"{called}: the data is a dict of clients already", key=called)
    if isinstance(client, str) and _tables.is_dataset(data):
        _tables.pick(data, client, (), columns.called.get("client", "client"), "data")
    block = _pair(data, "data", columns)
    if isinstance(client, str):
        if _tables.is_table(data):
            assert columns.reader is not None
            owners = columns.reader.owners(data, "data")
        elif _tables.is_dataset(data):
            owners = _tables.owners_of(np.asarray(list(data[client]), object))
        else:
            called = columns.called.get("client", "client")
            raise DataError(
                f'{called}: "{client}" names a column, and the data is no table; give client= an '
                "array with a client's name a row",
                key=called,
            )
    else:
        names = _array(client, "client")
        if names.shape != (len(block.y),):
            raise DataError(
                f"client: has shape {list(names.shape)}, and x has {len(block.y)} rows",
                key="client",
            )
        owners = _tables.owners_of(names)
    return {
        name: _Block(
            block.x[rows],
            block.y[rows],
            None if block.lengths is None else block.lengths[rows],
            f"client {name}",
        )
        for name, rows in owners.items()
    }


@dataclass
class _Block:
    """Some rows: features, labels, and the tokens in use of each where rows are padded."""

    x: Array
    y: Array
    lengths: Array | None = None
    what: str = "data"  # whose rows these are, for errors: "data", "test", "client ann"


def _pair(data: Any, what: str, columns: Columns) -> _Block:
    """One block of rows, checked."""
    if isinstance(data, _Block):
        return data
    x: Any
    y: Any
    if (texts := _texts.read(data, what, columns)) is not None:
        x, y = texts
    elif _tables.is_table(data):
        assert columns.reader is not None
        if columns.reader.label is None:
            raise DataError(f"{what}: a table without labels; give (table, y) or label=…")
        x, y = columns.reader.x(data, what), columns.reader.y(data, what)
    elif isinstance(data, (tuple, list)) and len(data) == 2 and not _is_pair_of_rows(data):
        x, y = data
        if _tables.is_table(x):
            assert columns.reader is not None
            x = columns.reader.x(x, what)
    elif _tables.is_dataset(data):
        column, label = columns.of(data, what)
        x, y = _images(data[column]), data[label]
        if len(x) and isinstance(x[0], str):
            raise DataError(
                f'{what}: column "{column}" has texts; a run takes tokens: give lists of whole '
                "numbers, such as a tokenizer's input_ids"
            )
    elif type(data).__name__ == "DataLoader" and hasattr(data, "dataset"):
        raise DataError(f"{what}: a DataLoader; give its rows, loader.dataset")
    elif hasattr(data, "__array__") or hasattr(data, "detach"):
        raise DataError(
            f"{what}: x alone, an array of shape {list(data.shape)}; give it with its labels, "
            f"{what if what in ('data', 'test') else '…'}=(x, y)"
        )
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        x, y = _stacked((data[i] for i in range(len(data))), what)
        columns.look_again(data, x)
    elif isinstance(data, Iterable):
        x, y = _stacked(data, what)
    else:
        raise DataError(
            f"{what}: expected (x, y), a dict of clients, a table, a torch or Hugging Face "
            f"dataset, or a path; got {type(data).__name__}"
        )
    padded, lengths = _padded(x, what)
    features, labels = _checked(
        _array(padded, f"{what}: x"), _array(y, f"{what}: y"), what, columns
    )
    return _Block(features, labels, lengths, what)


def _padded(x: Any, what: str) -> tuple[Any, Array | None]:
    """Rows of tokens of several lengths as rows of one length, and the lengths; else x itself."""
    if not isinstance(x, (list, tuple)):
        return x, None
    try:
        rows = [np.asarray(plain(row)) for row in x]
    except ValueError:  # a row that is no array, or cannot be one; _array says so
        return x, None
    lengths = np.array([len(row) if row.ndim == 1 else -1 for row in rows], np.int32)
    tokens = all(row.dtype.kind in "iu" or not row.size for row in rows)
    if not tokens or lengths.min(initial=0) < 0 or len(set(lengths.tolist())) < 2:
        return x, None
    padded = np.zeros((len(rows), lengths.max()), np.int64)
    for line, row in zip(padded, rows):
        line[: len(row)] = row
    if padded.min() < 0 or padded.max() >= 2**31:
        wrong = int(np.flatnonzero(((padded < 0) | (padded >= 2**31)).any(1))[0])
        raise DataError(
            f"{what}: row {wrong} of x has a token below 0, or one that int32 cannot hold"
        )
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
        ys.append(_array(row[1], f"{what}: the label of item {number}"))
        if number == 0 and xs[0].ndim > 1 and ys[0].shape == xs[0].shape[:1]:
            raise DataError(
                f"{what}: item 0 has {len(ys[0])} rows with their labels, so the items seem to be "
                "clients: give a dict, data={name: (x, y), …}"
            )
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


def _array(value: Any, what: str) -> Array:
    try:
        return np.asarray(plain(value))
    except DataError as error:
        raise DataError(f"{what} is {error}") from None
    except ValueError as error:  # rows of different shapes
        raise DataError(f"{what}: the rows are not of one shape ({error})") from error


def _checked(x: Array, y: Array, what: str, columns: Columns) -> tuple[Array, Array]:
    if x.dtype == object:
        kinds = sorted({type(value).__name__ for value in x.flat})
        advice = (
            f"x holds Python objects ({', '.join(kinds)}); give numbers of one type, such as "
            'x.astype("float32")'
            if x.ndim > 1
            else "the rows of x are not of one shape"
        )
        raise DataError(f"{what}: {advice}")
    if x.dtype.kind in "US":
        raise DataError(
            f"{what}: x has texts; a run takes tokens: give lists of whole numbers, such as a "
            "tokenizer's input_ids"
        )
    if x.ndim < 2:
        raise DataError(
            f"{what}: x has shape {list(x.shape)}; it needs rows and at least one axis of features"
        )
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        one_hot = y.ndim == 2 and len(y) > 0 and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all()
        advice = "; it is one-hot: give y.argmax(1)" if one_hot else ""
        raise DataError(
            f"{what}: y has shape {list(y.shape)}; it needs one label a row{advice}"
        )
    if len(x) != len(y):
        raise DataError(f"{what}: x has {len(x)} rows and y has {len(y)}")
    if len(x) == 0:
        raise DataError(f"{what}: it has no rows")
    return _features(_channels_first(x, columns), what, columns), _labels(y, what)


def _channels_first(x: Array, columns: Columns) -> Array:
    """Images with channels last, as the files of runs have them turned (docs/guides/data.md)."""
    if x.ndim != 4 or x.shape[1] <= 4 or x.shape[3] > 4:
        return x
    turned = np.ascontiguousarray(np.moveaxis(x, 3, 1))
    note = f"x has channels last, {list(x.shape[1:])}; turned to {list(turned.shape[1:])}"
    if note not in columns.notes:
        columns.notes.append(note)
    return turned


def _features(x: Array, what: str, columns: Columns) -> Array:
    whole = x.dtype.kind in "iu" and x.dtype != np.uint8
    if whole and not columns.tokens:
        note = (
            f"x is {x.dtype}: read as numbers, because the model has no embedding of tokens; "
            "data=macaw.prepare((x, y)) keeps them as tokens"
        )
        if note not in columns.notes:
            columns.notes.append(note)
            columns.hints[note] = "model"
        kept = x.astype(np.float32)
    elif x.dtype == np.bool_:
        kept = x.astype(np.float32)
    elif x.dtype in (np.uint8, np.float32, np.int32):
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
        large = np.isfinite(np.asarray(x[row], np.float64)).all()
        why = "that float32 cannot hold" if large else "that is not finite (NaN or infinity)"
        raise DataError(f"{what}: row {row} of x has a value {why}")
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
            f"{what}: y is {y.dtype}; it must be classes (integers) or targets (floats); of words "
            "make numbers by np.unique(y, return_inverse=True)[1]"
        )
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise DataError(f"{what}: y is {y[row]} at row {row}; targets must be finite")
    with np.errstate(over="ignore"):
        kept = y.astype(np.float32)
    if not np.isfinite(kept).all():
        row = int(np.flatnonzero(~np.isfinite(kept))[0])
        raise DataError(
            f"{what}: y is {y[row]} at row {row}, beyond what float32 holds (3.4e38): give smaller "
            "targets, such as y / y.std()"
        )
    return kept


def _as_int32(array: Array, what: str) -> Array:
    narrow = array.astype(np.int32)
    if not np.array_equal(narrow, array):
        raise DataError(f"{what} is {array.dtype} and has values that int32 cannot hold")
    return narrow


def _clients(
    data: Mapping[Any, Any], columns: Columns
) -> tuple[list[_Block], dict[str, Array]]:
    """Blocks in the order train, val, test, each client by client, and where a client's begin."""
    if not data:
        raise DataError("data: there is no client in the dict")
    _tables.refuse_same_names(data)
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


def _names(data: Any, tensors: Mapping[str, Array]) -> dict[str, Array]:
    if "train_offsets" not in tensors:
        return {}
    names = [str(name).encode() for name in data]
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
        _refuse_unlike(first, other)
    if len(blocks) == 1:
        return first
    lengths = [block.lengths for block in blocks if block.lengths is not None]
    return _Block(
        np.concatenate([block.x for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        np.concatenate(lengths) if lengths else None,
    )


def _refuse_unlike(first: _Block, other: _Block) -> None:
    """Refuses rows and labels of other shapes or types than the first ones."""
    if other.x.shape[1:] != first.x.shape[1:]:
        raise DataError(
            f"{other.what}: rows of x have shape {list(other.x.shape[1:])}, and those of "
            f"{first.what} have {list(first.x.shape[1:])}"
        )
    if other.x.dtype != first.x.dtype:
        kind = "float32" if np.float32 in (first.x.dtype, other.x.dtype) else first.x.dtype
        raise DataError(
            f"{other.what}: x is {other.x.dtype}, and that of {first.what} is {first.x.dtype}: "
            f'give both in one type and scale, such as x.astype("{kind}")'
        )
    if other.y.dtype != first.y.dtype:
        names = {np.dtype(np.int32): "classes (whole numbers)", np.dtype(np.float32): "targets"}
        raise DataError(
            f"{other.what}: y is {names[other.y.dtype]}, and that of {first.what} is "
            f"{names[first.y.dtype]}: give both as one of them, y.astype(int) or "
            'y.astype("float32")'
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
        long.append(_Block(x, block.y, lengths, block.what))
    return long
