"""Which rows of prepared data train in a run, and whose they are.

That follows from the keys of ``[data]`` and ``[partition]`` and from the seed, so `macaw data
export-partition` says it, but where the clients and their rows are those of the file.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import _safetensors
from ._names import in_python
from ._program import environment, program
from ._safetensors import Array
from ._settings import value_of
from ._spaces import Space
from .errors import ConfigError

Of = Literal["train", "client"]  # rows of all clients together, or each client's own

_OF_CLIENTS = ("client_test_fraction", "val_fraction", "heldout_clients")
_CUTS = (*_OF_CLIENTS, "central_val_fraction")
_DECIDE = {f"data.{key}" for key in (*_CUTS, "test_fraction", "seed", "input_shape")}
_NO_CLIENTS = ("test", "validation", "client_test", "central_validation")  # of a partition file


def check_sweep(of: Of | None, varied: Mapping[str, Any], data: Mapping[str, Any] | None) -> None:
    """Refuses a sweep over partitions in which clients' rows are others for each."""
    cuts = any((data or {}).get(cut) for cut in _OF_CLIENTS)
    if of is not None and "partition" in varied and (of == "client" or cuts):
        raise _varies(of, "partition")


def _varies(of: Of, key: str) -> ConfigError:
    return ConfigError(
        f'normalise="{of}" needs the same training rows in all runs of a sweep, and {key} varies: '
        "sweep over one value at a time, or normalise the rows beforehand",
        key="normalise",
    )


@dataclass
class Division:
    """Rows of the prepared file, by client."""

    training: dict[str, Array]
    other: dict[str, Array]  # the clients' own validation and test rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Division) and self._lists() == other._lists()

    def _lists(self) -> dict[str, tuple[bytes, bytes]]:
        empty = np.zeros(0, np.int64)
        return {
            name: (rows.tobytes(), np.sort(self.other.get(name, empty)).tobytes())
            for name, rows in self.training.items()
        }


def of_all_runs(
    settings: Mapping[str, Any],
    of: Of,
    config: str | os.PathLike[str] | None,
    seeds: Sequence[int],
    overrides: Callable[[Mapping[str, Any]], list[str]],
    check: Callable[[], None],
    tensors: Mapping[str, Array],
) -> Division:
    """The division of the rows, which must be the same in all runs of a sweep."""
    varied = [key for key, value in settings.items() if isinstance(value, Space)]
    cuts = cuts_clients(settings, config)
    for key in varied:
        by_clients = key.startswith("partition.") and (of == "client" or cuts)
        if key in _DECIDE or by_clients:
            raise _varies(of, key)
    fixed = {key: value for key, value in settings.items() if key not in varied}
    scheme = value_of(settings, config, "partition.scheme")
    whoever = of == "train" and not cuts and scheme not in ("file", "histogram", "natural")
    if whoever and config is None:
        # What is not cut off trains, whoever has it.
        fixed = {key: value for key, value in fixed.items() if not key.startswith("partition.")}
        fixed |= {"partition.scheme": "iid", "partition.clients": 1, "partition.min_size": 1}
    if _own_clients(settings, config, tensors):
        return _stored(tensors)
    first: Division | None = None
    for seed in seeds:
        try:
            found = _exported({**fixed, "run.seed": seed}, config, overrides)
        except _NotExported as error:
            check()  # the same error, with its key
            raise ConfigError(in_python(f"normalise: {error}"), key="normalise") from None
        if of == "train":  # whose rows these are makes no difference
            found = Division({"": np.sort(np.concatenate(list(found.training.values())))}, {})
        if first is not None and found != first:
            fix = "data_options=dict(seed=1)"
            of_clients = of == "client" or cuts  # then the partition decides, too
            fix += " and partition=macaw.…(seed=1)" if of_clients else ", or test=…"
            raise ConfigError(
                f'normalise="{of}" needs the same training rows in all runs of a sweep, and those '
                f"of seed {seed} are others than those of seed {seeds[0]}: give {fix}",
                key="normalise",
            )
        first = found
    assert first is not None
    return first


def cuts_clients(settings: Mapping[str, Any], config: str | os.PathLike[str] | None) -> bool:
    """Whether a part of each client's rows does not train."""
    return any(value_of(settings, config, f"data.{cut}") for cut in _OF_CLIENTS)


def _own_clients(
    settings: Mapping[str, Any], config: str | os.PathLike[str] | None, tensors: Mapping[str, Array]
) -> bool:
    """Whether the clients are those of the file, with the rows that it gives them."""

    def of(key: str) -> Any:
        return value_of(settings, config, key)

    return keep_their_rows(of("partition.scheme"), lambda key: of(f"data.{key}"), tensors)


def keep_their_rows(
    scheme: str | None, of_data: Callable[[str], Any], tensors: Mapping[str, Array]
) -> bool:
    """Whether a run serves a prepared file's clients as they are. `of_data`: keys of ``[data]``."""
    cuts = _CUTS if "central_test" in tensors else (*_CUTS, "test_fraction")
    own = "train_offsets" in tensors and scheme in (None, "auto", "natural")
    return own and not any(of_data(key) for key in cuts)


def _stored(tensors: Mapping[str, Array]) -> Division:
    names = _names_in(tensors)
    division = Division({}, {})
    for number, name in enumerate(names):
        ranges = {}
        for split in ("train", "val", "test"):
            offsets = tensors.get(f"{split}_offsets")
            begin, end = (0, 0) if offsets is None else offsets[number : number + 2]
            ranges[split] = np.arange(begin, end)
        division.training[name] = ranges["train"]
        division.other[name] = np.concatenate([ranges["val"], ranges["test"]])
    return division


def _names_in(tensors: Mapping[str, Array]) -> list[str]:
    offsets = tensors.get("client_name_offsets")
    if offsets is None:
        return [str(number) for number in range(len(tensors["train_offsets"]) - 1)]
    text = tensors["client_names"].tobytes()
    return [text[begin:end].decode() for begin, end in itertools.pairwise(offsets)]


class _NotExported(Exception):
    """`macaw data export-partition` has said why not."""


def _exported(
    settings: Mapping[str, Any],
    config: str | os.PathLike[str] | None,
    overrides: Callable[[Mapping[str, Any]], list[str]],
) -> Division:
    """What `macaw data export-partition` says of the rows."""
    chosen = {
        key: value
        for key, value in settings.items()
        if key.startswith(("data.", "partition.")) or key == "run.seed"
    }
    source = os.fspath(config) if config is not None else os.fspath(chosen["data.path"])
    with tempfile.TemporaryDirectory(prefix="macaw-rows-") as folder:
        out = Path(folder) / "rows.json"
        done = subprocess.run(
            [program(), "data", "export-partition", source, "--out", out, *overrides(chosen)],
            env=environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise _NotExported(done.stderr.strip().removeprefix("macaw: error: "))
        lists = json.loads(out.read_text())
    held = [lists.get(key, {}) for key in ("validation", "client_test")]
    division = Division({}, {})
    for name, rows in lists.items():
        if name in _NO_CLIENTS:
            continue
        division.training[name] = np.array(rows, np.int64)
        more = [row for split in held for row in split.get(name, ())]
        division.other[name] = np.array(more, np.int64)
    return division


def training_clients(
    settings: Mapping[str, Any],
    config: str | os.PathLike[str] | None,
    overrides: Callable[[Mapping[str, Any]], list[str]],
    check: Callable[[], None],
) -> int | None:
    """How many clients have training rows in a run; None: that is not known before it.

    check: raises the error of a configuration that cannot be run.
    """
    tensors = _prepared(settings, config)
    if tensors is not None and _own_clients(settings, config, tensors):
        return int((np.diff(tensors["train_offsets"]) > 0).sum())
    if config is None and "data.path" not in settings:  # of no file
        return None
    try:
        division = _exported(settings, config, overrides)
    except _NotExported:
        check()
        return None
    return sum(len(rows) > 0 for rows in division.training.values())


def _prepared(
    settings: Mapping[str, Any], config: str | os.PathLike[str] | None
) -> dict[str, Array] | None:
    """The prepared file of a run, which a configuration names from its own folder."""
    path = value_of(settings, config, "data.path")
    if value_of(settings, config, "data.source") != "prepared" or path is None:
        return None
    if config is not None and "data.path" not in settings:
        path = Path(config).parent / path
    return _safetensors.read(Path(path)) if Path(path).is_file() else None
