"""Features at mean 0 and deviation 1, by the training rows of a run (_division.py).

Test and validation rows are never part of a mean; they are scaled by the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import _division, _features, _files, _safetensors, _tables
from ._division import Division, Of
from ._safetensors import Array
from ._settings import value_of
from .errors import ArgumentError, ConfigError, DataError

FILE = "normalisation.npz"  # in a run's folder
_NO_DEVIATION = 1e30  # stands for infinity where a key takes no infinity
_CHUNK = 1 << 22  # numbers that are looked at together


@dataclass
class Normalisation:
    """How a run's rows were standardised: ``(x - mean) / std``. ``apply`` does it to other rows.

    of: whose training rows the numbers are of: "train", all of them together; "client", also each
        client's own.
    rows: how many training rows there were.
    axis: of a row, the axis that has a mean each: its columns or channels. None: one mean for all.
    mean, std: over all training rows, float64 [columns], in the units of x; of bytes, of x / 255.
        std is infinite where a column is constant, so that it becomes 0.
    clients: from a client's name to its (mean, std); empty for "train".
    """

    of: Of
    rows: int
    axis: int | None
    scale: float
    mean: Array
    std: Array
    clients: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    #: The name of the prepared file with the rows as they were given.
    source: str = ""
    #: How a table becomes columns; None: the data was no table.
    reader: _features.Reader | None = None
    #: The shape of a row as it was given (images with their channels first), and as the model got
    #: it, by data.input_shape. None: of a run that did not keep them.
    given: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None

    def apply(self, x: Any, client: Any = None) -> Array:
        """Rows as the run's model got them, float32.

        x: rows of the shape that the run's data had, such as ``x_test``, or that its model got (of
            images with channels last the result has them first, and with ``data.input_shape`` it
            has that shape, as the model got them); or a table with the columns of the run's table,
            whose words and gaps become the same numbers.
        client: whose rows these are. Without it, the numbers of all training rows are taken, as
            they are for the central test set.
        """
        if _tables.is_table(x):
            if self.reader is None:
                raise DataError(
                    "normalisation: x is a table, and the run's data was none: give its numbers as "
                    "an array",
                    key="x",
                )
            x = self.reader.x(x, "x")
        x = np.asarray(x)
        if x.dtype.kind not in "uifb":
            raise DataError(f"normalisation: x is {x.dtype}; it must be numbers", key="x")
        mean, std = self.mean, self.std
        if client is not None:
            if str(client) not in self.clients:
                there = ", ".join([*self.clients][:6]) or 'none, as it was normalise="train"'
                raise ArgumentError(
                    f"normalisation: the run has no numbers of client {client!r}; it has {there}",
                    key="client",
                )
            mean, std = self.clients[str(client)]
        x = self._as_the_model_got_it(x, len(mean))
        return _standard(x, mean, std, self.axis, self.scale)

    def _as_the_model_got_it(self, x: Array, columns: int) -> Array:
        if x.shape[1:] == self.shape:
            return x
        if x.ndim == 4 and x.shape[1:] != self.given:  # images, which the run turned, too
            turned = np.moveaxis(x, 3, 1)
            last = self.axis == 0 and x.shape[1] != columns == x.shape[3]
            if last or turned.shape[1:] == self.given:
                x = turned
        if self.shape is not None and x.shape[1:] == self.given:
            return x.reshape(len(x), *self.shape)
        return x

    def save(self, folder: Path) -> None:
        """Writes the numbers into the folder of a run or a sweep."""
        clients = list(self.clients.values())
        with _files.replacing(folder / FILE) as file:
            np.savez(
                file,
                of=self.of,
                rows=self.rows,
                axis=-1 if self.axis is None else self.axis,
                scale=self.scale,
                source=self.source,
                reader="" if self.reader is None else self.reader.text(),
                given=self.given or (),
                shape=self.shape or (),
                mean=self.mean,
                std=self.std,
                clients=np.array(list(self.clients), str),
                client_mean=np.array([mean for mean, _ in clients]),
                client_std=np.array([std for _, std in clients]),
            )

    @staticmethod
    def load(path: Path) -> Normalisation:
        with np.load(path) as file:
            names = file["clients"].tolist()
            own = zip(file["client_mean"], file["client_std"])
            axis = int(file["axis"])
            of: Of = "client" if str(file["of"]) == "client" else "train"
            return Normalisation(
                of, int(file["rows"]), None if axis < 0 else axis, float(file["scale"]),
                file["mean"], file["std"], dict(zip(names, own)),
                str(file["source"]),
                _features.Reader.of_text(reader) if (reader := str(file["reader"])) else None,
                *(tuple(file[name].tolist()) or None if name in file else None
                  for name in ("given", "shape")),
            )  # fmt: skip

    def note(self) -> str:
        """What was done, for people."""
        what = (
            "numbers, all alike" if self.axis is None else f"{len(self.mean)} columns or channels"
        )
        text = f"x has mean 0 and deviation 1 over the {self.rows} training rows ({what})"
        if self.of == "client":
            text = (
                f"each client's x has mean 0 and deviation 1 over its own training rows ({what}); "
                f"rows of no client are scaled by all {self.rows} training rows"
            )
        constant = int(np.isinf(self.std).sum())
        return text + (f"; {constant} of them constant, which become 0" if constant else "")


def add(
    settings: dict[str, Any],
    of: Of,
    config: str | os.PathLike[str] | None,
    seeds: Sequence[int],
    overrides: Callable[[Mapping[str, Any]], list[str]],
    check: Callable[[], None],
) -> Normalisation:
    """Standardises the prepared rows of a run, by keys or by another prepared file.

    settings: of the run; ``data.path`` is a prepared file. seeds: of the runs, if they are several:
        all must have the same training rows. overrides: settings as arguments of the program.
    check: raises the error of a configuration that cannot be run.
    """
    if of not in ("train", "client"):
        raise ConfigError(f'normalise is {of!r}; it is "train" or "client"', key="normalise")
    for key in settings:
        if key.startswith("data.normalise."):
            raise ConfigError(
                f"normalise= and {key} say the same thing: give one of them", key="normalise"
            )
    file = settings.get("data.path")
    if settings.get("data.source") != "prepared" or file is None:
        raise ConfigError(
            "normalise= is for rows in memory; of a file, data_options=dict(normalise=dict("
            "mean=[…], std=[…])) says the numbers",
            key="normalise",
        )
    tensors = _safetensors.read(Path(file))
    x = tensors["features"]
    if x.dtype == np.int32:
        raise DataError(
            "normalise: x is tokens, whole numbers that the model embeds, and they have no mean: "
            "leave normalise= out",
            key="normalise",
        )
    division = _division.of_all_runs(settings, of, config, seeds, overrides, check, tensors)
    shape = value_of(settings, config, "data.input_shape") or list(x.shape[1:])
    if np.prod(shape) != np.prod(x.shape[1:]):
        check()
    given = x.shape[1:]
    x = x.reshape([len(x), *shape])
    axis = _axis_of(shape, x.dtype)
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    training = np.sort(np.concatenate(list(division.training.values())))
    mean, std = _moments(x, training, axis, scale)
    made = Normalisation(of, len(training), axis, scale, mean, std, source=Path(file).name,
                         given=given, shape=tuple(shape))  # fmt: skip
    if of == "client":
        made.clients = {
            # One that does not train is scaled by the numbers of all training rows.
            name: _moments(x, rows, axis, scale) if len(rows) else (mean, std)
            for name, rows in division.training.items()
        }
    if of == "train" and (axis is None or axis == 0):
        settings["data.normalise.mean"] = mean.tolist()
        settings["data.normalise.std"] = np.where(np.isinf(std), _NO_DEVIATION, std).tolist()
    else:
        settings["data.path"] = _rewritten(Path(file), tensors, made, division, shape)
    return made


def _axis_of(shape: Sequence[int], dtype: Any) -> int | None:
    """The axis of a row that has a mean each: columns, channels, or what each position has."""
    if len(shape) == 2:  # an image of bytes without channels, or a series of measurements
        return None if dtype == np.uint8 else 1
    return 0


def _moments(x: Array, rows: Array, axis: int | None, scale: float) -> tuple[Array, Array]:
    """Mean and deviation (of all rows: n) of each column or channel, float64."""
    columns = 1 if axis is None else x.shape[axis + 1]
    if not len(rows):  # nobody trains
        return np.zeros(columns), np.full(columns, np.inf)
    if x.dtype == np.uint8:
        mean, std = _moments_of_bytes(x, rows, axis, columns)
        return mean * scale, std * scale
    over = tuple(place for place in range(x.ndim) if axis is None or place != axis + 1)
    count = len(rows) * int(np.prod(x.shape[1:])) / columns
    total, least, most = np.zeros(columns), np.full(columns, np.inf), np.full(columns, -np.inf)
    for chunk in _chunks(x, rows):
        total += chunk.sum(over, dtype=np.float64)
        least = np.minimum(least, chunk.min(over))
        most = np.maximum(most, chunk.max(over))
    mean = total / count
    wide = mean.reshape([-1 if place == (axis or 0) + 1 else 1 for place in range(x.ndim)])
    square = np.zeros(columns)
    for chunk in _chunks(x, rows):
        square += np.square(chunk - wide).sum(over)
    constant = least == most
    mean = np.where(constant, least, mean)
    return mean, np.where(constant, np.inf, np.sqrt(square / count))


def _moments_of_bytes(
    x: Array, rows: Array, axis: int | None, columns: int
) -> tuple[Array, Array]:
    """The same of bytes, by how often there is each of the 256."""
    counts = np.zeros((columns, 256))
    for chunk in _chunks(x, rows):
        apart = chunk[None] if axis is None else np.moveaxis(chunk, axis + 1, 0)
        for column, own in enumerate(apart):
            counts[column] += np.bincount(own.ravel(), minlength=256)
    values = np.arange(256.0)
    weights = counts / counts.sum(1, keepdims=True)
    mean = weights @ values
    square = (weights * np.square(values - mean[:, None])).sum(1)
    return mean, np.where((counts > 0).sum(1) == 1, np.inf, np.sqrt(square))


def _chunks(x: Array, rows: Array) -> Iterator[Array]:
    many = max(1, _CHUNK // max(1, int(np.prod(x.shape[1:]))))
    for begin in range(0, len(rows), many):
        yield x[rows[begin : begin + many]]


def _standard(x: Array, mean: Array, std: Array, axis: int | None, scale: float) -> Array:
    if axis is not None:
        width = x.shape[axis + 1] if x.ndim > axis + 1 else 0
        if width != len(mean):
            raise DataError(
                f"normalisation: x has shape {list(x.shape)}; axis {axis + 1} must have the "
                f"{len(mean)} columns of the run's rows",
                key="x",
            )
        shape = [-1 if place == axis + 1 else 1 for place in range(x.ndim)]
        mean, std = mean.reshape(shape), std.reshape(shape)
    made: Array = ((x.astype(np.float64) * scale - mean) / std).astype(np.float32)
    return made


def _rewritten(
    file: Path, tensors: Mapping[str, Array], made: Normalisation, division: Division,
    shape: Sequence[int],
) -> Path:  # fmt: skip
    """The prepared file with standardised rows, as a file of its own."""
    stored = tensors["features"]
    x = stored.reshape([len(stored), *shape])
    new = np.empty(x.shape, np.float32)
    many = max(1, _CHUNK // max(1, int(np.prod(shape))))
    for begin in range(0, len(x), many):  # rows of no client, too
        part = slice(begin, begin + many)
        new[part] = _standard(x[part], made.mean, made.std, made.axis, made.scale)
    for name, (mean, std) in made.clients.items():
        rows = np.concatenate([division.training[name], division.other.get(name, _NONE)])
        new[rows] = _standard(x[rows], mean, std, made.axis, made.scale)
    changed = {**tensors, "features": new.reshape(stored.shape)}
    return _safetensors.write_by_content(file.parent, changed, _safetensors.metadata(file))


_NONE = np.zeros(0, np.int64)
