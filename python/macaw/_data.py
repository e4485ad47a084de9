"""Data: arrays, clients, datasets of other libraries, or a path.

What is in memory is written once into a prepared file (docs/guides/data.md), which is named by its
content; runs map it. The same data is found again, whatever it came from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _features, _safetensors, _tables
from ._columns import Columns as Columns  # _simulate takes it from here
from ._paths import path_of
from ._rows import Block, array_of, block_of, joined
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
    missing: _features.Missing | None = None,
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
        blocks, tensors = [block_of(data, "data", columns)], {}
    trained = sum(len(block.y) for block in blocks)
    if test is not None:
        _refuse_no_test(test)
        blocks.append(block_of(test, "test", columns))
        columns.look_at_test([block.y for block in blocks[:-1]], blocks[-1].y)
        rows = trained + len(blocks[-1].y)
        tensors["central_test"] = np.array([trained, rows], np.int64)
    whole = joined(blocks)
    x, y = whole.x, whole.y
    columns.look_at_spread()
    columns.look_at(x, y)
    lengths = {} if whole.lengths is None else {"lengths": whole.lengths}
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
    block = block_of(data, "data", columns)
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
        if isinstance(client, (list, tuple)):  # of which NumPy makes words
            _tables.refuse_gaps(client)
        names = array_of(client, "client")
        if names.ndim == 0:
            raise DataError(
                f"client={client!r} is no column and no array with a client's name a row; where "
                "columns have numbers for names, name them first, df.rename(columns=str)",
                key="client",
            )
        if names.shape != (len(block.y),):
            raise DataError(
                f"client: has shape {list(names.shape)}, and x has {len(block.y)} rows",
                key="client",
            )
        owners = _tables.owners_of(names)
    return {
        name: Block(
            block.x[rows],
            block.y[rows],
            None if block.lengths is None else block.lengths[rows],
            f"client {name}",
        )
        for name, rows in owners.items()
    }


def _clients(
    data: Mapping[Any, Any], columns: Columns
) -> tuple[list[Block], dict[str, Array]]:
    """Blocks in the order train, val, test, each client by client, and where a client's begin."""
    if not data:
        raise DataError("data: there is no client in the dict")
    _tables.refuse_same_names(data)
    blocks: list[Block] = []
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
                block = block_of(part, f"client {name}", columns)
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
