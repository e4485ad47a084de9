"""Runs side by side: which differ in their seeds alone, and what differs between the others."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from . import _ending, _train
from ._program import program
from ._run import Run, columns_of_rows
from ._safetensors import Array
from ._settings import kept_table
from .errors import ArgumentError, Error

ALGORITHM = "algorithm.name"
_COMMAND = "workers.command"  # its digest in `inputs` is that of train= or loss=
# Sections whose keys mean something only beside the key that switches them on.
_SEEDS = ("data.seed", "partition.seed", "model.seed")  # they follow run.seed by default
_SWITCHES = {
    "attack.": "attack.kind",
    "privacy.": "privacy.mechanism",
    "update.": "update.codec",
}


@dataclass
class Group:
    """Runs of one configuration, which differ in their seeds."""

    runs: list[Run]
    #: What of the configuration differs from the other groups: by key; None: it has no such key.
    differs: dict[str, Any] = field(default_factory=dict)
    name: str = ""  # for people: "fedprox, mu 0.1"

    @functools.cached_property
    def columns(self) -> list[dict[str, Array]]:
        """Of each run: a column a metric."""
        return [columns_of_rows(run.rows) for run in self.runs]

    def column(self, metric: str) -> list[tuple[Array, Array]]:
        """Of each run: the rounds in which the metric has a value, and the values."""
        found = []
        for columns in self.columns:
            there = np.isfinite(columns[metric].astype(float))
            found.append((columns["round"][there], columns[metric][there].astype(float)))
        return found


def groups_of(runs: Any) -> list[Group]:
    """The runs as groups, in the order of their first runs.

    runs: a run, a sweep, the folder of either, or several of these; or a dict from a name of one's
        own to such.
    """
    if isinstance(runs, Mapping):
        named = [Group(_runs_in(value), name=str(name)) for name, value in runs.items()]
        _set_differences(named)
        return [group for group in named if group.runs]
    found = _runs_in(runs)
    fixed = _fixed_seeds(found)
    known = all("inputs" in _summary(run) for run in found if _summary(run))
    groups: dict[str, Group] = {}
    for run in found:
        identity = _identity(run, fixed) + (json.dumps(_inputs(run)) if known else "")
        groups.setdefault(identity, Group([])).runs.append(run)
    made = list(groups.values())
    if not made:
        raise ArgumentError("there is no run: give runs, sweeps, or their folders", key="runs")
    _set_differences(made)
    for group in made:
        group.name = _name(group, made)
    return made


def _runs_in(value: Any) -> list[Run]:
    if isinstance(value, Run):
        return [value]
    if isinstance(value, (str, os.PathLike)):
        return _in_folder(Path(value))
    if hasattr(value, "result") and hasattr(value, "folder"):  # a sweep
        return list(value.runs.values())
    if isinstance(value, Iterable):
        return [run for item in value for run in _runs_in(item)]
    raise ArgumentError(
        f"runs: {type(value).__name__} is no run, sweep or folder of one", key="runs"
    )


def _in_folder(folder: Path) -> list[Run]:
    if (folder / "sweep.json").exists():
        # Where the runs are: "runs/", or beside the folder for `macaw simulate --repeat`.
        at = json.loads((folder / "sweep.json").read_text()).get("runs", "runs/")
        found = sorted(path.parent for path in folder.glob(f"{at}*/summary.json"))
        done = [path for path in found if _ending.has_ended(path)]
        return [Run(path.resolve() if ".." in path.parts else path) for path in done]
    return [Run(folder)]


def _summary(run: Run) -> dict[str, Any]:
    run._own_folder()
    try:
        return run.summary
    except Error:  # it goes on
        return {}


def _settings(run: Run) -> dict[str, Any]:
    """The settings that decide a result and differ from their defaults. Seeds are none."""
    summary = _summary(run)
    settings: dict[str, Any] = dict(summary.get("settings") or {})
    if run.is_normalised:  # its numbers are of training rows, which may be others for each seed
        made = run.normalisation
        settings = {
            **{key: v for key, v in settings.items() if not key.startswith("data.normalise.")},
            "data.path": made.source,
            "normalise": made.of,
        }
    return {ALGORITHM: summary.get("algorithm"), **settings}


def _inputs(run: Run) -> dict[str, str]:
    """Digests of the files that decide a result, by key. {}: the run's summary has none."""
    inputs: dict[str, str] = dict(_summary(run).get("inputs") or {})
    if run.is_normalised:  # its data are a file of its own
        inputs.pop("data.path", None)
    return inputs


def _identity(run: Run, fixed: Mapping[str, Sequence[Any]]) -> str:
    """What runs of one configuration have in common. fixed: values that runs have for seeds."""
    summary = _summary(run)
    if not summary:
        return f"folder {run.folder.absolute()}"
    # A seed that equals the run's is left out of the settings, whether it follows that or is fixed.
    seeds = {key: summary["seed"] for key in _SEEDS if summary["seed"] in fixed[key]}
    return json.dumps({**seeds, **_settings(run)}, sort_keys=True)


def _fixed_seeds(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The values of the seeds that are not the run's own."""
    settings = [_settings(run) for run in runs]
    return {key: [each[key] for each in settings if key in each] for key in _SEEDS}


def _set_differences(groups: Sequence[Group]) -> None:
    settings = [_settings_of(group) for group in groups]
    _name_inputs(groups, settings)
    keys = list(dict.fromkeys(key for each in settings for key in each))
    if "normalise" in keys:  # it says what these say
        keys = [key for key in keys if not key.startswith("data.normalise.")]
    missing = object()
    differing = [key for key in keys if len({_text(s.get(key, missing)) for s in settings}) > 1]
    differing = in_order(differing)
    for group, own in zip(groups, settings):
        group.differs = {key: _value(own, key) for key in differing}


def _name_inputs(groups: Sequence[Group], settings: Sequence[dict[str, Any]]) -> None:
    """Puts digests behind the names of files that have one name and other contents."""
    inputs = [_inputs(group.runs[0]) if group.runs else {} for group in groups]
    _name_functions(groups, settings, [files.get(_COMMAND) for files in inputs])
    for key in {key for each in inputs for key in each}:
        digests: dict[Any, set[str]] = {}
        for own, files in zip(settings, inputs):
            digests.setdefault(own.get(key), set()).add(files.get(key, ""))
        for own, files in zip(settings, inputs):
            if key in own and files.get(key) and len(digests[own[key]] - {""}) > 1:
                own[key] = f"{own[key]} ({files[key][:8]})"


def _name_functions(
    groups: Sequence[Group], settings: Sequence[dict[str, Any]], digests: Sequence[str | None]
) -> None:
    """Puts the names of train= and loss= among the settings where these differ: "loss" is
    "focal(gamma=2)", with a digest behind it where functions of one name differ."""
    if len(set(digests)) < 2:
        return
    names = [_functions_of(group) for group in groups]
    for own, named, digest in zip(settings, names, digests):
        if digest is None:
            continue
        alike = {other for there, other in zip(names, digests) if there == named}
        behind = f" ({digest[:8]})" if len(alike - {None}) > 1 else ""
        own.update({role: f"{name}{behind}" for role, name in named.items()})
        if not named:  # the cache of Python has been emptied
            own["function"] = digest[:8]


def _functions_of(group: Group) -> dict[str, Any]:
    """{"loss": "focal(gamma=2)"}; {}: nothing says it any more."""
    config = group.runs[0].folder / "config.toml" if group.runs else None
    if config is None or not config.exists():
        return {}
    command = kept_table(config.read_text(), "workers").get("command")
    named = _train.readable({_COMMAND: command})
    return {} if _COMMAND in named else named


def in_order(keys: Iterable[str]) -> list[str]:
    """The keys in one order, whatever order runs are in: the algorithm, its parameters, the rest as
    `macaw keys` lists them."""
    place = {key: number for number, key in enumerate(_defaults())}
    return sorted(
        keys,
        key=lambda key: (
            key != ALGORITHM, not key.startswith("algorithm."), place.get(key, len(place)), key,
        ),
    )  # fmt: skip


def _settings_of(group: Group) -> dict[str, Any]:
    """The settings of a group's runs, a fixed seed included that one of them leaves out."""
    each = [_settings(run) for run in group.runs]
    seeds = {key: own[key] for own in each for key in _SEEDS if key in own}
    return {**seeds, **each[0]} if each else {}


def _text(value: Any) -> str:
    return repr(value)


def _value(settings: Mapping[str, Any], key: str) -> Any:
    """The value, a default included; None: the run has no such key."""
    if key in settings:
        return settings[key]
    parts = key.split(".")
    if parts[0] == "algorithm" and len(parts) == 3 and parts[1] != settings.get(ALGORITHM):
        return None
    for prefix, switch in _SWITCHES.items():
        if key.startswith(prefix) and key != switch and switch not in settings:
            return None
    return "run" if key in _SEEDS else _defaults().get(key)


@functools.cache
def _defaults() -> dict[str, Any]:
    described = json.loads(subprocess.check_output([program(), "keys", "--json"]))
    found = {key["key"]: key.get("default") for key in described["keys"]}
    for algorithm in described["algorithms"]:
        for parameter in algorithm["parameters"]:
            found[f"algorithm.{algorithm['name']}.{parameter['name']}"] = parameter["default"]
    return found


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key, and more of those that share it: "mu", "local lr"."""
    names = {}
    for key in keys:
        parts = key.split(".")
        alike = [other for other in keys if other.split(".")[-1] == parts[-1]]
        names[key] = parts[-1] if len(alike) == 1 else " ".join(parts[-2:])
    if ALGORITHM in names:
        names[ALGORITHM] = "algorithm"
    return names


def _name(group: Group, groups: Sequence[Group]) -> str:
    run = group.runs[0]
    if not _summary(run):
        return run.folder.name
    if len(groups) == 1:
        return str(_summary(run).get("algorithm") or run.folder.name)
    names = short_names(list(group.differs))
    parts = []
    for key, value in group.differs.items():
        if value is None:
            continue
        parts.append(str(value) if key == ALGORITHM else f"{names[key]} {cell_text(value)}")
    return ", ".join(parts) or str(_summary(run).get("algorithm"))


def cell_text(value: Any) -> str:
    """A value of a key, short, for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(cell_text, value)) if len(value) < 8 else f"{len(value)} values"
    return str(value)


def check_column(metric: str, groups: Sequence[Group], key: str) -> None:
    """Refuses a column that some run does not have, with what was probably meant."""
    for group in groups:
        for run, columns in zip(group.runs, group.columns):
            if metric in columns:
                continue
            there = sorted(columns)
            meant = next(iter(get_close_matches(metric, there, 1, 0.5)), None)
            question = f"; did you mean {meant}?" if meant else "."
            raise ArgumentError(
                f"{key}: {run.folder.name} has no column {metric}{question} It has "
                f"{', '.join(there) or 'no rows yet'}",
                key=key, nearest=meant,
            )  # fmt: skip


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better, by its name, as the programs judge it."""
    name = _without_group(metric.split("_at_best_")[0])
    if name in ("seconds", "left_out", "late", "staleness", "backdoor_success"):
        return False
    if name.startswith("rounds_to_"):
        return False
    if "bytes_" in name or "virtual_seconds" in name:
        return False
    if "clients_test_group_gap_" in name:
        return False
    if name.endswith(("_std", "_gini", "_missing", "_error")):
        return False
    falling = ("loss", "mae", "objective", "perplexity", "_ece", "inertia", "drift", "penalty")
    return not any(word in name for word in falling)


def _without_group(column: str) -> str:
    """The metric of a column of a group (evaluation.groups), whose name may have any words:
    "_accuracy" of "clients_test_group_no_loss_accuracy". Any other column: the whole name."""
    _, group, rest = column.partition("clients_test_group_")
    return "_" + rest.rpartition("_")[2] if group and not rest.startswith("gap_") else column
