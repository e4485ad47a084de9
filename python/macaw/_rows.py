"""A block of rows: features and labels, made of what a caller gives, and checked.

Whatever it came from, a block has uint8, float32 or int32 (tokens) features and int32 or float32
labels; blocks are joined where all have one type and shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _tables, _texts
from ._columns import Columns, plain
from ._features import lost_in_float32
from ._safetensors import Array
from ._spread import Spread
from .errors import DataError


@dataclass
class Block:
    """Some rows: features, labels, and the tokens in use of each where rows are padded."""

    x: Array
    y: Array
    lengths: Array | None = None
    what: str = "data"  # whose rows these are, for errors: "data", "test", "client ann"


def block_of(data: Any, what: str, columns: Columns) -> Block:
    """One block of rows, checked."""
    if isinstance(data, Block):
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
    padded, lengths = _padded(x, what, columns)
    features, labels = _checked(
        array_of(padded, f"{what}: x"), array_of(y, f"{what}: y"), what, columns
    )
    return Block(features, labels, lengths, what)


def _padded(x: Any, what: str, columns: Columns) -> tuple[Any, Array | None]:
    """Rows of tokens of several lengths as rows of one length, and the lengths; else x itself.

    Tokens of one length have lengths, too: those of another client, or of the test set, may be
    longer. `joined` drops them where all blocks have one length.
    """
    if not isinstance(x, (list, tuple)):
        return x, None
    try:
        rows = [np.asarray(plain(row)) for row in x]
    except ValueError:  # a row that is no array, or cannot be one; array_of says so
        return x, None
    lengths = np.array([len(row) if row.ndim == 1 else -1 for row in rows], np.int32)
    tokens = all(row.dtype.kind in "iu" or not row.size for row in rows)
    if not rows or not tokens or lengths.min() < 0:
        return x, None
    if lengths.min() == lengths.max():
        bytes_ = any(row.dtype == np.uint8 for row in rows)
        return x, lengths if columns.tokens and not bytes_ else None
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
        xs.append(array_of(row[0], f"{what}: item {number}"))
        ys.append(array_of(row[1], f"{what}: the label of item {number}"))
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


def array_of(value: Any, what: str) -> Array:
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
        raise DataError(f"{what}: y has shape {list(y.shape)}; it needs one label a row{advice}")
    if len(x) != len(y):
        raise DataError(f"{what}: x has {len(x)} rows and y has {len(y)}")
    if len(x) == 0:
        raise DataError(f"{what}: it has no rows")
    return _features(_channels_first(x, columns), what, columns), _labels(y, what, columns)


def _channels_first(x: Array, columns: Columns) -> Array:
    """Images with channels last, as the files of runs have them turned (docs/guides/data.md).

    Their height and width are above 4: small maps of many channels, [8, 4, 4], stay as they are.
    """
    if x.ndim != 4 or min(x.shape[1:3]) <= 4 or x.shape[3] > 4:
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
    changed = kept.dtype == np.float32 and x.dtype != np.float32 and x.dtype.kind in "iuf"
    if changed and x.ndim == 2:
        own, all_ = Spread.of(x), columns.spread
        if own is not None and all_ is not None and len(own.mean) == len(all_.mean):
            own = all_.with_(own)
        columns.spread = own  # blocks of several widths are refused where they are joined
    return kept


def _warn_of_targets(y: Array, columns: Columns) -> None:
    """Warns once, whatever the number of clients, of targets that float32 hardly tells apart."""
    label = columns.reader.label if columns.reader is not None else None
    name = "y" if label is None else f'column "{label}"'
    lost = lost_in_float32(y, name)
    if lost and not any(said.startswith(f"{name} has numbers") for said in columns.warnings):
        columns.warnings.append(lost)


def _labels(y: Array, what: str, columns: Columns) -> Array:
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
    _warn_of_targets(y, columns)
    return kept


def _as_int32(array: Array, what: str) -> Array:
    narrow = array.astype(np.int32)
    if not np.array_equal(narrow, array):
        raise DataError(f"{what} is {array.dtype} and has values that int32 cannot hold")
    return narrow


def joined(blocks: Sequence[Block]) -> Block:
    if any(block.lengths is not None for block in blocks):
        blocks = _as_long_as_the_longest(blocks)
        width = blocks[0].x.shape[1]
        if all(block.lengths is not None and (block.lengths == width).all() for block in blocks):
            blocks = [Block(block.x, block.y, None, block.what) for block in blocks]
    first = blocks[0]
    for other in blocks[1:]:
        _refuse_unlike(first, other)
    if len(blocks) == 1:
        return first
    lengths = [block.lengths for block in blocks if block.lengths is not None]
    return Block(
        np.concatenate([block.x for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        np.concatenate(lengths) if lengths else None,
    )


def _refuse_unlike(first: Block, other: Block) -> None:
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


def _as_long_as_the_longest(blocks: Sequence[Block]) -> list[Block]:
    """The same blocks of tokens with rows of one length, all of them with lengths."""
    longest = max(block.x.shape[1] for block in blocks)
    long = []
    for block in blocks:
        x, width, lengths = block.x, block.x.shape[1], block.lengths
        if lengths is None:
            lengths = np.full(len(x), width, np.int32)
        if x.ndim == 2:  # other shapes are refused where blocks are joined
            x = np.pad(x, ((0, 0), (0, longest - width)))
        long.append(Block(x, block.y, lengths, block.what))
    return long
