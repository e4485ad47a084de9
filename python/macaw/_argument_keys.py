"""Data, partition, algorithm and cohort of a run, each as keys of its configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _data, _names, _rule_file
from . import rules as _rules
from ._settings import add
from .algorithms import Algorithm
from .errors import ConfigError
from .partitions import Partition


def add_data(
    settings: dict[str, Any], data: Any, test: Any, columns: _data.Columns, folder: Path
) -> None:
    if data is None or (isinstance(data, str) and data == "synthetic"):
        _of_no_table(columns)
        if test is not None:
            raise ConfigError("test= has no effect without data= of the same kind", key="test")
        if data is not None:
            settings["data.source"] = data
        return
    if isinstance(data, (str, os.PathLike)):
        path = Path(data)
        if test is not None:
            settings["data.test_path"] = Path(test)
        _of_no_table(columns)
    else:
        path = _data.prepared(data, test, columns, folder)
        settings["data.source"] = "prepared"
    settings["data.path"] = path


def _of_no_table(columns: _data.Columns) -> None:
    """Refuses arguments for tables where the data is a file, whose keys say the same."""
    for name, key in (
        ("label", "label_column"),
        ("client", "client_column"),
        ("features", None),
        ("missing", None),
    ):
        if getattr(columns, name) is not None:
            value = getattr(columns, name)
            text = json.dumps(value) if isinstance(value, str) else "…"
            advice = f": give data_options=dict({key}={text})" if key else ""
            raise ConfigError(f"{name}= is for tables in memory{advice}", key=name)


def add_partition(settings: dict[str, Any], partition: Any, cache: Path) -> None:
    if isinstance(partition, Partition):
        keys = {
            key: value.file_in(cache / "data") if hasattr(value, "file_in") else value
            for key, value in partition.keys.items()
        }
        add(settings, "partition", {"scheme": partition.scheme, **keys})
    elif isinstance(partition, str):
        settings["partition.scheme"] = partition
    elif isinstance(partition, Mapping):
        if partition and all(isinstance(rows, (Sequence, np.ndarray)) and not isinstance(rows, str)
                             for rows in partition.values()):  # fmt: skip
            raise ConfigError(
                "partition: a dict has the keys of [partition], such as scheme; lists of rows by "
                "client are client=, an array with a client's name a row",
                key="partition",
            )
        add(settings, "partition", partition)
    elif isinstance(partition, (list, tuple)):
        raise ConfigError(
            "partition: lists of rows by client are client=, an array with a client's name a row, "
            "such as np.repeat(names, [len(rows) for rows in lists]) for rows in that order",
            key="partition",
        )
    elif partition is not None:
        name = getattr(partition, "__name__", None)
        found = f"the function {name}" if callable(partition) and name else repr(partition)
        raise ConfigError(
            "partition: expected such as macaw.dirichlet(0.3, clients=100) or macaw.iid(100), a "
            f"scheme's name, or a dict of [partition]; found {found}",
            key="partition",
        )


def add_algorithm(settings: dict[str, Any], algorithm: Any, cache: Path) -> None:
    if isinstance(algorithm, type):
        algorithm = _instance_of(algorithm)
    if isinstance(algorithm, _rules.Rule):
        file = os.fspath(_rule_file.file_of(algorithm, cache))
        settings["plugins"] = [*settings.get("plugins", ()), file]
        _add_rule(settings, algorithm)
    elif isinstance(algorithm, Algorithm):
        _add_rule(settings, algorithm)
    elif isinstance(algorithm, str):
        settings["algorithm.name"] = algorithm
    elif algorithm is not None:
        several = isinstance(algorithm, (list, tuple))
        more = "; a sweep compares several, algorithm=macaw.grid([…])" if several else ""
        raise ConfigError(
            "algorithm: expected one such as macaw.FedProx(mu=0.1), its name or a rule of your "
            f"own, got {type(algorithm).__name__}{more}",
            key="algorithm.name",
        )


def _add_rule(settings: dict[str, Any], rule: Any) -> None:
    parameters = rule.parameters()
    for name, value in parameters.items():
        if isinstance(value, Mapping):  # as local.lr_schedule may be; a parameter is one value
            words = " ".join(f"{key} {item}" for key, item in value.items() if key != "kind")
            line = f'{name}="{value.get("kind", "cosine")} {words}"'.replace(' "', '"')
            raise ConfigError(
                f"algorithm: {name} of {rule.name} takes one value and not a dict"
                + (f", such as {line}" if name.endswith("schedule") else ""),
                key=f"algorithm.{rule.name}.{name}",
            )
    settings["algorithm.name"] = rule.name
    add(settings, f"algorithm.{rule.name}", parameters)


def _instance_of(kind: type) -> Any:
    """An algorithm or a rule of this class, with the defaults of its parameters."""
    name = kind.__name__
    if kind in (Algorithm, _rules.Rule) or not issubclass(kind, (Algorithm, _rules.Rule)):
        raise ConfigError(
            f"algorithm: the class {name} is none of an algorithm; expected one such as "
            "macaw.FedProx(mu=0.1), or a class that derives from macaw.rules.Rule",
            key="algorithm.name",
        )
    missing = _names.needed_by(kind)
    if missing:
        given = ", ".join(f"{parameter}=…" for parameter in missing)
        raise ConfigError(
            f"algorithm: {name} is a class whose {', '.join(missing)} has no default; give an "
            f"instance, algorithm={name}({given})",
            key=f"algorithm.{missing[0]}",
        )
    return kind()


def add_cohort(settings: dict[str, Any], cohort: Any) -> None:
    if hasattr(cohort, "tolist"):  # a number of NumPy
        cohort = cohort.tolist()
    if isinstance(cohort, float):
        settings["cohort.fraction"] = cohort
    elif isinstance(cohort, Mapping):
        add(settings, "cohort", cohort)
    elif cohort is not None:
        settings["cohort.size"] = cohort
