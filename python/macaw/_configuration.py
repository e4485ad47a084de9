"""The arguments of a run, as keys of its configuration; and what they make: data, weights."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import (
    _argument_keys,
    _data,
    _division,
    _model,
    _module_keys,
    _names,
    _normalise,
    _peft,
    _privacy,
    _train,
)
from . import keys as _keys
from . import rules as _rules
from ._paths import Path_, path_of
from ._program import Simulation
from ._settings import add, overrides, value_of
from ._spaces import Space
from .errors import ConfigError

# Arguments that become keys in a way of their own, and those that are no keys at all.
_ARGUMENTS = (
    *("name", "rounds", "seed", "data", "test", "features", "label", "client", "missing"),
    "normalise",
    *("data_options", "partition"),
    *("model", "peft", "init", "model_options", "algorithm", "cohort", "local"),
    *("train", "loss", "evaluate"),
)
_NO_KEYS = ("config", "out", "overwrite", "progress", "check_model", "on_round", "metrics")


class Keys(NamedTuple):
    """What the arguments of ``simulate`` say."""

    settings: dict[str, Any]  # as keys
    model: _model.Model | None
    cache: Path
    columns: _data.Columns  # of the data, and what there is to say about it
    said: list[tuple[str, str]]  # before the first round
    promise: _privacy.Promise | None


def keys_of(
    given: Mapping[str, Any],
    seeds: Sequence[int] | None = None,
    others: Sequence[Mapping[str, Any]] = ({},),
    models: Sequence[Any] = (),
) -> Keys:
    """seeds, others, models: of the runs of a sweep, if they are several; keys that they have
    beside these, and their models where `given` has none."""
    run_seeds = seeds
    if _rules.serving:
        raise ConfigError(
            "a run begins while a run loads this file, for its rule or its train function: put "
            'what begins it under if __name__ == "__main__", or the rule or function into a file '
            "of its own"
        )
    for argument in ("config", "out"):
        if given.get(argument) is not None:
            path_of(given[argument], argument)
    left = _names.arguments({key: given[key] for key in given if key not in _NO_KEYS})
    cache = left.pop("cache", None)
    folder = path_of(cache, "cache") if cache is not None else _data.cache_folder()
    settings: dict[str, Any] = {}
    own = {key: left.pop(key, None) for key in _ARGUMENTS}
    _refuse_no_dicts({**own, **left})
    add(settings, "", left)
    add(settings, "run", {"name": own["name"], "rounds": own["rounds"], "seed": own["seed"]})
    if own["peft"] is not None:
        seed = run_seed(settings, given.get("config"))
        own["model"] = _peft.with_adapters(own["model"], own["peft"], seed)
    seen = [_model.made_by(m) if _model.is_factory(m) else m for m in models or [own["model"]]]
    tokens = any(_names.embeds(each, left.get("run")) for each in seen)
    columns = _data.Columns(
        own["features"], own["label"], own["client"], own["missing"], tokens=tokens
    )
    options = dict(own["data_options"] or {})
    if not (own["data"] is None or isinstance(own["data"], (str, os.PathLike))):
        columns.take(options)
    _argument_keys.add_data(settings, own["data"], own["test"], columns, folder)
    add(settings, "data", options)
    if given.get("config") is None:
        _refuse_missing(own, settings, models)
    _argument_keys.add_partition(settings, own["partition"], folder)
    if columns.own_clients and settings.get("partition.scheme", "natural") != "natural":
        columns.warnings.append(
            f"partition: {settings['partition.scheme']} divides the rows anew, so the clients of "
            "the data are not used; leave partition= out to keep them"
        )
    made = None
    if own["model"] is not None:
        if seeds is None and _model.is_factory(own["model"]):
            own_seed = (own["model_options"] or {}).get("seed", "run")
            seeds = [run_seed(settings, given.get("config")) if own_seed == "run" else own_seed]
        made = _model.read(
            own["model"], own["init"], folder / "models",
            functools.partial(_module_keys.example, settings), seeds or (0,),
            in_python=_train.wanted(own) or _module_keys.is_by_a_program(own["model"], settings),
        )  # fmt: skip
        if made.module is not None:
            _module_keys.refuse_frozen(own["model_options"] or {})
        add(settings, "model", made.keys)
        if given.get("config") is None:
            _module_keys.add_outputs(settings, made, columns)
        _module_keys.look_at_outputs(made, settings, own, columns)
    elif own["init"] is not None:
        raise ConfigError(
            "init= has no effect without model=; model_options=dict(init=…) takes a file for the "
            "model of config=",
            key="init",
        )
    add(settings, "model", own["model_options"] or {})
    _argument_keys.add_algorithm(settings, own["algorithm"], folder)
    _argument_keys.add_cohort(settings, own["cohort"])
    add(settings, "local", own["local"] or {})
    again = made.again if made is not None else ""
    file = given.get("config") if sys.version_info >= (3, 11) else None  # older ones read no TOML
    if again and not value_of(settings, file, "local.checkpoint"):
        columns.warnings.append(
            f"model: {again}: a traced module keeps its activations, and trains the same numbers; "
            "local=dict(checkpoint=True) computes them again"
        )

    def without_noise() -> dict[str, Any]:
        return {key: value for key, value in settings.items() if not key.startswith("privacy.")}

    of_runs = run_seeds or ()
    if not of_runs and ("privacy.epsilon" in settings or own["normalise"] is not None):
        of_runs = [run_seed(settings, given.get("config"))]
    promise = _privacy.add_noise(
        settings, given.get("config"), others, of_runs,
        lambda: None if models else _check_run(without_noise(), given.get("config"), folder),
    )  # fmt: skip
    if promise is not None:
        columns.notes.append(promise.note)
    _privacy.refuse_statistics(
        settings, given.get("config"), others,
        normalise=own["normalise"],
        gaps=columns.reader.filled() if columns.reader is not None else (),
    )  # fmt: skip
    if own["normalise"] is not None:
        _normalise_rows(settings, own["normalise"], columns, given.get("config"), of_runs, folder)
    told = _train.add(
        settings, own["train"], own["loss"], own["evaluate"], made, folder,
        given.get("config"),
    )
    return Keys(settings, made, folder, columns, told, promise)


def _refuse_missing(
    own: Mapping[str, Any], settings: Mapping[str, Any], models: Sequence[Any]
) -> None:
    """Without a configuration file, a run has a model and data."""
    no_data = own["data"] is None and not any(key.startswith("data.") for key in settings)
    no_model = own["model"] is None and not (own["model_options"] or models)
    no_model = no_model and not any(key.startswith("model.") for key in settings)
    if no_data and no_model:
        raise ConfigError("nothing is given: a run needs a model and data, or config=FILE")
    if no_data:
        raise ConfigError(
            "data= is missing: (x, y), {name: (x, y), …}, a DataFrame with label=…, a dataset, a "
            'path, or "synthetic"',
            key="data",
        )
    if no_model:
        raise ConfigError(
            'model= is missing: a torch.nn.Module, a list of layers such as ["flatten", '
            '"linear 10"], or a name (the command macaw models lists them)',
            key="model",
        )


# Arguments that are dicts of keys, beside those of macaw.keys.Sections.
_DICTS = {"local": "Local", "data_options": "Data", "model_options": "Model"}


def _refuse_no_dicts(given: Mapping[str, Any]) -> None:
    """Refuses another value where an argument is a dict of keys."""
    for name, value in given.items():
        kind = _DICTS.get(name) or (name.capitalize() if name in _tables() else None)
        if kind is None or value is None or isinstance(value, Mapping):
            continue
        first = next(iter(getattr(_keys, kind).__annotations__))
        raise ConfigError(
            f"{name}= takes a dict of keys, such as {name}=dict({first}=…); found {value!r}",
            key=name,
        )


def _tables() -> set[str]:
    return {name for name in _keys.Sections.__annotations__ if hasattr(_keys, name.capitalize())}


def _normalise_rows(
    settings: dict[str, Any],
    of: _division.Of,
    columns: _data.Columns,
    config: Path_ | None,
    seeds: Sequence[int],
    folder: Path,
) -> None:
    """Standardises the rows of the data. seeds: of the runs."""

    def check() -> None:
        _check_run(settings, config, folder)

    made = _normalise.add(settings, of, config, seeds, overrides, check)
    made.reader = columns.reader
    columns.normalisation = made
    columns.notes.append(made.note())


def _check_run(settings: Mapping[str, Any], config: Path_ | None, folder: Path) -> None:
    """Raises the program's error of a configuration that cannot be run."""
    fixed = {key: value for key, value in settings.items() if not isinstance(value, Space)}
    file = [str(config)] if config is not None else []
    simulation = Simulation([*file, *overrides(fixed), "--check"], words_for(settings, folder))
    try:
        for _ in simulation.events():
            pass
    finally:
        simulation.close()


def run_seed(settings: Mapping[str, Any], config: Path_ | None) -> int:
    """``run.seed`` of a run with these keys, some of which may stand in a file."""
    seed = value_of(settings, config, "run.seed")
    try:
        return int(seed or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"run.seed must be a whole number from 0, found {seed!r}", key="run.seed"
        ) from error


def words_for(settings: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """What messages have in place of paths in the cache."""
    return {
        os.path.abspath(settings[f"{word}.{key}"]): word
        for word, key in (("data", "path"), ("partition", "path"), ("model", "init"))
        if Path(str(settings.get(f"{word}.{key}"))).is_relative_to(folder)
    }
