"""Tokenised texts as rows: lists of token ids, or rows and datasets with ``input_ids``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _tables
from ._columns import Columns, first_of, plain
from ._safetensors import Array
from .errors import DataError

_IDS, _MASK = "input_ids", "attention_mask"
_SEGMENTS = "token_type_ids"
_LEFT_OUT = -100  # a label that no loss counts, of Hugging Face


def read(data: Any, what: str, columns: Columns) -> tuple[list[Array], Any] | None:
    """Rows of tokens, and their labels; None: the data is no such thing.

    Labels are classes where the data has them. Otherwise, and where its labels are the tokens
    themselves, a row predicts its tokens: x is all of them but the last one, which is y.
    """
    if _tables.is_dataset(data):
        if _IDS not in data.column_names or columns.features not in (None, _IDS):
            return None
        label = _label_in(data.column_names, what, columns)
        column = {
            name: list(data[name]) for name in (_IDS, _MASK, label) if name in data.column_names
        }
        segments = list(data[_SEGMENTS]) if _SEGMENTS in data.column_names else ()
        _say_unused(data.column_names, label, segments, columns)
        return _rows(column[_IDS], column.get(_MASK), column.get(label), what, columns)
    first = first_of(data)
    if first is None:
        return None
    if hasattr(first, "keys") and _IDS in first:
        rows = [data[i] for i in range(len(data))]
        label = _label_in(list(first.keys()), what, columns)
        masks = _column(rows, _MASK, what) if _MASK in first else None
        labels = _column(rows, label, what) if label is not None else None
        segments = _column(rows, _SEGMENTS, what) if _SEGMENTS in first else ()
        _say_unused(list(first.keys()), label, segments, columns)
        return _rows(_column(rows, _IDS, what), masks, labels, what, columns)
    if isinstance(data, list) and all(_is_tokens(row) for row in data):
        return _rows(data, None, None, what, columns)
    return None


def _label_in(there: Sequence[Any], what: str, columns: Columns) -> Any:
    """The column of labels: the one that was asked for, or a usual one; None: there is none."""
    if columns.label is None:
        return next((name for name in ("labels", *_tables.LABELS) if name in there), None)
    columns.refuse_labels()
    if columns.label in there:
        return columns.label
    raise _tables.no_column(columns.label, there, columns.called.get("label", "label"), what)


def _say_unused(
    there: Sequence[Any], label: Any, segments: Sequence[Any], columns: Columns
) -> None:
    """Says what the rows have beside tokens and labels. A model that is told segments misses
    them."""
    used = {_IDS, _MASK, label, *columns.drop}
    if isinstance(columns.client, str):
        used.add(columns.client)
    left = [str(name) for name in there if name not in used]
    if _SEGMENTS in left and any(_array(row).any() for row in segments):
        left.remove(_SEGMENTS)
        warning = (
            f"{_SEGMENTS} of the rows is not used: a run gives the model {_IDS} alone, so all "
            "tokens are of one segment"
        )
        if warning not in columns.warnings:
            columns.warnings.append(warning)
    note = f"{', '.join(left)} not used: a run takes {_IDS} and labels"
    if left and note not in columns.notes:
        columns.notes.append(note)


def _column(rows: Sequence[Any], name: str, what: str) -> list[Any]:
    for number, row in enumerate(rows):
        if name not in row:
            raise DataError(f"{what}: row {number} has no {name!r}, which row 0 has")
    return [row[name] for row in rows]


def _is_tokens(row: Any) -> bool:
    if isinstance(row, list):
        return len(row) > 0 and all(isinstance(token, (int, np.integer)) for token in row)
    return getattr(row, "ndim", 0) == 1 and np.asarray(plain(row)).dtype.kind in "iu"


def _rows(
    ids: Sequence[Any], masks: Sequence[Any] | None, labels: Any, what: str, columns: Columns
) -> tuple[list[Array], Any]:
    tokens = [_array(row) for row in ids]
    if masks is not None:
        tokens = [
            _used(row, _array(mask), i, what) for i, (row, mask) in enumerate(zip(tokens, masks))
        ]
    if labels is not None and not _are_texts(labels):
        return tokens, labels
    for number, row in enumerate(tokens):
        if len(row) < 2:
            raise DataError(
                f"{what}: row {number} has {len(row)} tokens; one that predicts the next token "
                "needs two"
            )
        if labels is not None:
            _refuse_own_labels(row, _array(labels[number]), len(_array(ids[number])), number, what)
    columns.next_tokens = True
    return [row[:-1] for row in tokens], np.array([row[-1] for row in tokens])


def _array(row: Any) -> Array:
    return np.asarray(plain(row))


def _are_texts(labels: Iterable[Any]) -> bool:
    return any(np.ndim(plain(label)) > 0 for label in labels)


def _used(row: Array, mask: Array, number: int, what: str) -> Array:
    """The tokens that a mask lets through, which stand at the beginning."""
    count = int(mask.sum())
    if mask[:count].all():
        return row[:count]
    raise DataError(
        f"{what}: row {number} is padded on the left, or has gaps; give the tokens alone, or "
        'tokenizer(…, padding_side="right")'
    )


def _refuse_own_labels(row: Array, labels: Array, length: int, number: int, what: str) -> None:
    """Labels other than the tokens themselves, such as of a prompt that is left out.

    length: of the row with its padding.
    """
    if labels.shape != (length,) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{what}: the labels of row {number} are {labels.dtype}{list(labels.shape)} for "
            f"{length} tokens; a row has one label, a class or a target, or its tokens themselves",
            key="label",
        )
    rest = labels[len(row) :]
    if np.array_equal(labels[: len(row)], row) and (rest == _LEFT_OUT).all():
        return
    raise DataError(
        f"{what}: the labels of row {number} are not its tokens ({_LEFT_OUT} leaves some out?): a "
        "run counts every token but the first; leave the labels out, or train by train=f or "
        "macaw.patch(trainer)"
    )
