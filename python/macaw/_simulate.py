"""Simulations: what is asked for as keys of a configuration, and a run's rounds as they come."""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from . import (
    _check,
    _data,
    _division,
    _model,
    _names,
    _normalise,
    _privacy,
    _rule_file,
    _safetensors,
    _train,
)
from . import rules as _rules
from ._callback import Callbacks, Metric, OnRound
from ._program import Simulation
from ._run import Run
from ._settings import value_of
from ._stream import Stream
from ._train import EvaluateFunction, LossFunction, TrainFunction
from .algorithms import Algorithm
from .errors import ConfigError, Error
from .partitions import Partition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import keys as _keys

Path_ = str | os.PathLike[str]

# Arguments that become keys in a way of their own, and those that are no keys at all.
_ARGUMENTS = (
    *("name", "rounds", "seed", "data", "test", "features", "label", "client", "missing"),
    "normalise",
    *("data_options", "partition"),
    *("model", "init", "model_options", "algorithm", "cohort", "local"),
    *("train", "loss", "evaluate"),
)
_NO_KEYS = ("config", "out", "overwrite", "progress", "check_model", "on_round", "metrics")


def stream(
    model: Any = None,
    data: Any = None,
    *,
    test: Any = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    client: Any = None,
    missing: Literal["mean", "indicator"] | None = None,
    normalise: Literal["train", "client"] | None = None,
    partition: Partition | _keys.Partition | str | None = None,
    algorithm: Algorithm | _rules.Rule | str | None = None,
    cohort: int | float | _keys.Cohort | None = None,
    rounds: int | None = None,
    local: _keys.Local | None = None,
    train: TrainFunction | None = None,
    loss: LossFunction | None = None,
    evaluate: EvaluateFunction | None = None,
    on_round: OnRound | None = None,
    metrics: Mapping[str, Metric] | None = None,
    seed: int | None = None,
    init: Any = None,
    config: Path_ | None = None,
    name: str | None = None,
    out: Path_ | None = None,
    overwrite: bool = False,
    cache: Path_ | None = None,
    progress: bool | None = False,
    check_model: bool = True,
    model_options: _keys.Model | None = None,
    data_options: _keys.Data | None = None,
    **sections: Unpack[_keys.Sections],
) -> Stream:
    """Begins a simulation, and gives a row of metrics a round, while it runs.

    The arguments are those of ``simulate``.
    """
    given = dict(locals())
    given.update(given.pop("sections"))
    settings, made, folder, columns, told = keys_of(given)
    arguments = [str(config)] if config is not None else []
    said = [*told, *dtype_of(settings, made, config), *(("data", note) for note in columns.notes)]
    for text in columns.warnings:
        said.append(("warning", text))
        warnings.warn(text, UserWarning, stacklevel=2)
    arguments += _overrides(settings)
    words = words_for(settings, folder)
    if not arguments:
        raise ConfigError("nothing is given: simulate needs a model and data, or config=FILE")
    try:
        begun = _begun(made, settings, arguments, words, said, given)
        if columns.normalisation is not None:
            columns.normalisation.save(begun.folder)
        return begun
    except Error as error:
        raise _names.explained(error, columns.hints) from error.__cause__


def _begun(
    made: _model.Model | None,
    settings: Mapping[str, Any],
    arguments: list[str],
    words: Mapping[str, str],
    said: list[tuple[str, str]],
    given: Mapping[str, Any],
) -> Stream:
    config, out, progress = given["config"], given["out"], given["progress"]
    if given["check_model"] and made is not None:
        said += check_model(made, settings, config, words)
    if out is not None:
        arguments += ["--out", os.fspath(out)]
    if given["overwrite"]:
        arguments.append("--force")
    callbacks = Callbacks(given["on_round"], given["metrics"], made)
    return Stream(arguments, words, made, progress, said, callbacks)


def simulate(
    model: Any = None,
    data: Any = None,
    *,
    test: Any = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    client: Any = None,
    missing: Literal["mean", "indicator"] | None = None,
    normalise: Literal["train", "client"] | None = None,
    partition: Partition | _keys.Partition | str | None = None,
    algorithm: Algorithm | _rules.Rule | str | None = None,
    cohort: int | float | _keys.Cohort | None = None,
    rounds: int | None = None,
    local: _keys.Local | None = None,
    train: TrainFunction | None = None,
    loss: LossFunction | None = None,
    evaluate: EvaluateFunction | None = None,
    on_round: OnRound | None = None,
    metrics: Mapping[str, Metric] | None = None,
    seed: int | None = None,
    init: Any = None,
    config: Path_ | None = None,
    name: str | None = None,
    out: Path_ | None = None,
    overwrite: bool = False,
    cache: Path_ | None = None,
    progress: bool | None = None,
    check_model: bool = True,
    model_options: _keys.Model | None = None,
    data_options: _keys.Data | None = None,
    **sections: Unpack[_keys.Sections],
) -> Run:
    """Trains a model over simulated clients, and returns the run.

    model: a ``torch.nn.Module``, a list of layers such as ``["flatten", "linear 10"]``, or a name
        (``macaw models``). A ``Sequential`` of layers that Macaw has trains in its fused kernels;
        any other module is scripted for LibTorch, ``macaw[torch]``. Its weights are the first
        model. A function that makes the module, such as ``lambda: Net()``, is called with torch
        seeded by the run's seed, so that runs with other seeds start from other weights.
    data: ``(x, y)``, a dict of clients, a table of pandas, polars or Arrow, a torch or Hugging Face
        ``Dataset`` (``macaw.prepare`` tells what these may be), or the path of a file or folder.
        Whole numbers are tokens where the model embeds them, and numbers elsewhere.
    test: rows of the central test set. Without them, ``data_options=dict(test_fraction=…)`` of
        all rows, a tenth by default. Clients of one's own (a dict, or ``client=``) keep their rows
        unless it is given; ``client_test_fraction`` gives each client test rows of its own.
    features, label: columns of a table or a Hugging Face dataset; features may be a list.
    client: whose row it is: a column, or an array with a client's name a row.
    missing: what becomes of gaps in a table: "mean" or "indicator"; without it they are an error.
    normalise: "train" gives x mean 0 and deviation 1 over the run's training rows, each column or
        channel for itself; "client" over each client's own. Validation and test rows are scaled by
        the same numbers, which ``run.normalisation`` keeps.
    partition: who gets which rows, such as ``macaw.dirichlet(0.3, clients=1000)``.
    algorithm: such as ``macaw.FedProx(mu=0.1)``, its name, or a rule of one's own (macaw.rules).
    cohort: clients a round, a fraction of all (a float up to 1), or a dict of ``[cohort]``.
    rounds, seed: of the run.
    local: a dict of ``[local]``: epochs, batch_size, lr, …
    train: ``train(model, rows, ctx)`` trains a client in Python instead of ``[local]``; ctx is a
        ``macaw.TrainContext``. It returns the model, (model, metrics), metrics, or None for a
        module that it has trained in place.
    loss: ``loss(outputs, y)``, a tensor of one number, with the steps of ``[local]``.
    evaluate: ``evaluate(model, rows)`` gives ``{"loss": …}`` of rows, beside train or loss.
    on_round: a function of a ``macaw.OpenRun``, called after each round; False stops the run.
    metrics: ``{"name": f}``, with f(y, outputs) over the test rows: columns of ``run.metrics``.
    init: weights to start from: a dict of arrays, a safetensors file, or "zero".
    config: a configuration file to start from. What is given here replaces its keys.
    name, out: of the run, and its folder; by default ``runs/NAME``, ``runs/NAME-2``, …
    overwrite: replaces a run that is in the folder already.
    cache: where prepared data is kept.
    progress: a bar; by default in a terminal and in a notebook.
    check_model: before the run, compares a module in its own PyTorch with what would be trained:
        losses, gradients and two steps on two batches of the data. What differs is a ModelError.
    model_options, data_options: dicts of ``[model]`` and ``[data]``.
    sections: every other table of a configuration as a dict: ``evaluation=dict(every=5)``,
        ``workers=dict(slots=2)``, ``run=dict(checkpoint_every=1)``, …

    Ctrl-C ends the run in order; ``macaw.resume`` goes on with it. Errors are exceptions of
    ``macaw.errors``.
    """
    given = dict(locals())
    given.update(given.pop("sections"))
    return stream(**given).finish()


def resume(
    folder: Path_,
    *,
    rounds: int | None = None,
    model: Any = None,
    progress: bool | None = None,
    workers: _keys.Workers | None = None,
    on_round: OnRound | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> Run:
    """Goes on with a run that was interrupted, or with more rounds.

    The result has the same bytes as that of a run that was never interrupted. model: the module
    of the run, for ``run.model()`` as its state dict. on_round, metrics: as for ``simulate``, for
    the rounds that are done from here on, of which some may have been done before. A run with
    train= or loss= goes on with the function that it began with; if its file has changed, that is
    an error.
    """
    settings: dict[str, Any] = {}
    _add(settings, "workers", workers or {})
    arguments = ["--resume", os.fspath(folder)]
    if rounds is not None:
        arguments += ["--rounds", str(rounds)]
    arguments += _overrides(settings)
    made = _model.Model({}, "", model, _model.names_of(model)) if model is not None else None
    callbacks = Callbacks(on_round, metrics, made)
    return Stream(arguments, {}, made, progress, callbacks=callbacks).finish()


class Keys(NamedTuple):
    """What the arguments of ``simulate`` say."""

    settings: dict[str, Any]  # as keys
    model: _model.Model | None
    cache: Path
    columns: _data.Columns  # of the data, and what there is to say about it
    said: list[tuple[str, str]]  # before the first round


def keys_of(given: Mapping[str, Any], seeds: Sequence[int] | None = None) -> Keys:
    """seeds: of the runs, if they are several."""
    run_seeds = seeds
    if _rules.serving:
        raise ConfigError(
            "a run begins while a run loads this file, for its rule or its train function: put "
            'what begins it under if __name__ == "__main__", or the rule or function into a file '
            "of its own"
        )
    left = _names.arguments({key: given[key] for key in given if key not in _NO_KEYS})
    cache = left.pop("cache", None)
    folder = Path(cache) if cache is not None else _data.cache_folder()
    settings: dict[str, Any] = {}
    own = {key: left.pop(key, None) for key in _ARGUMENTS}
    _add(settings, "", left)
    _add(settings, "run", {"name": own["name"], "rounds": own["rounds"], "seed": own["seed"]})
    seen = own["model"]
    if _model.is_factory(seen):
        seen = _model.made_by(seen)
    tokens = _names.embeds(seen, left.get("run"))
    columns = _data.Columns(
        own["features"], own["label"], own["client"], own["missing"], tokens=tokens
    )
    options = dict(own["data_options"] or {})
    if not (own["data"] is None or isinstance(own["data"], (str, os.PathLike))):
        columns.take(options)
    _add_data(settings, own["data"], own["test"], columns, folder)
    _add(settings, "data", options)
    add_partition(settings, own["partition"], folder)
    made = None
    if own["model"] is not None:
        if seeds is None and _model.is_factory(own["model"]):
            own_seed = (own["model_options"] or {}).get("seed", "run")
            seeds = [run_seed(settings, given.get("config")) if own_seed == "run" else own_seed]
        example = functools.partial(_example, settings)
        made = _model.read(
            own["model"], own["init"], folder / "models", example, seeds or (0,),
            in_python=_train.wanted(own),
        )  # fmt: skip
        if made.module is not None and "frozen" in (own["model_options"] or {}):
            raise ConfigError(
                "model_options=dict(frozen=…) is for lists of layers and names; a module says it "
                "itself: net.body.requires_grad_(False)",
                key="model.frozen",
            )
        _add(settings, "model", made.keys)
    elif own["init"] is not None:
        raise ConfigError(
            "init= has no effect without model=; model_options=dict(init=…) takes a file for the "
            "model of config=",
            key="init",
        )
    _add(settings, "model", own["model_options"] or {})
    add_algorithm(settings, own["algorithm"], folder)
    _add_cohort(settings, own["cohort"])
    _add(settings, "local", own["local"] or {})
    if (done := _privacy.add_noise(settings, given.get("config"))) is not None:
        columns.notes.append(done)
    if own["normalise"] is not None:
        _normalise_rows(settings, own["normalise"], columns, given.get("config"), run_seeds, folder)
    told = _train.add(settings, own["train"], own["loss"], own["evaluate"], made, folder)
    return Keys(settings, made, folder, columns, told)


def _normalise_rows(
    settings: dict[str, Any],
    of: _division.Of,
    columns: _data.Columns,
    config: Path_ | None,
    seeds: Sequence[int] | None,
    folder: Path,
) -> None:
    """Standardises the rows of the data. seeds: of the runs, if they are several."""

    def check() -> None:
        fixed = {key: value for key, value in settings.items() if not hasattr(value, "toml")}
        file = [str(config)] if config is not None else []
        arguments = [*file, *_overrides(fixed), "--check"]
        simulation = Simulation(arguments, words_for(settings, folder))
        try:
            for _ in simulation.events():
                pass
        finally:
            simulation.close()

    made = _normalise.add(
        settings, of, config, seeds or [run_seed(settings, config)], _overrides, check
    )
    made.reader = columns.reader
    columns.normalisation = made
    columns.notes.append(made.note())


def _example(settings: Mapping[str, Any], module: Any) -> Any:
    """Two rows as a module gets them; None where the data is not in memory."""
    import torch

    if settings.get("data.source") != "prepared" or "data.path" not in settings:
        return None
    x = np.array(_safetensors.read(Path(settings["data.path"]))["features"][:2])
    if x.dtype == np.int32:
        return torch.from_numpy(x).long()
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return torch.from_numpy(x / (255 if x.dtype == np.uint8 else 1)).to(dtype)


def dtype_of(
    settings: dict[str, Any], made: _model.Model | None, config: Path_ | None
) -> list[tuple[str, str]]:
    """Sets run.dtype for a module of float64, unless it was given; says so in either case."""
    if made is None or made.dtype is None:
        return []
    if config is None:
        settings.setdefault("run.dtype", made.dtype)
    given = settings.get("run.dtype")
    if given == made.dtype:
        return [("dtype", f"{made.dtype}, as the module's parameters are")]
    given = given or "that of the file"
    text = f"run.dtype is {given}, and the module's parameters are {made.dtype}"
    return [("dtype", text)]


# What decides how a model is trained. The other tables cannot change a step of plain SGD.
_OF_A_STEP = (
    *("data.", "partition.", "model.", "local.optimizer", "workers."),
    *("run.task", "run.dtype", "run.seed"),
)


def check_model(
    made: _model.Model,
    settings: Mapping[str, Any],
    config: Path_ | None,
    words: Mapping[str, str],
) -> list[tuple[str, str]]:
    """Refuses a model that is not its module. Returns what there is to say."""
    if made.module is None or "tensors" in made.keys:  # no module, or what trains is the module
        return []
    keys = {f"model.{key}": value for key, value in made.keys.items()}
    chosen = {**keys, **settings}
    if any(chosen.get(f"model.{key}") != made.keys.get(key) for key in ("init", "torchscript")):
        return [("check", "the run starts from other weights than the module's: not compared")]
    return [("check", _check.check(made, _for_check(chosen, config), words))]


def _for_check(settings: Mapping[str, Any], config: Path_ | None) -> list[str]:
    """The arguments of the program for _check.check."""
    if config is not None:
        return [str(config), *_overrides(settings)]
    chosen = {key: value for key, value in settings.items() if key.startswith(_OF_A_STEP)}
    return _overrides({**chosen, "cohort.size": 1, "run.rounds": 1})


def run_seed(settings: Mapping[str, Any], config: Path_ | None) -> int:
    """``run.seed`` of a run with these keys, some of which may stand in a file."""
    return int(value_of(settings, config, "run.seed") or 0)


def words_for(settings: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """What messages have in place of paths in the cache."""
    return {
        os.path.abspath(settings[f"{word}.{key}"]): word
        for word, key in (("data", "path"), ("partition", "path"), ("model", "init"))
        if Path(str(settings.get(f"{word}.{key}"))).is_relative_to(folder)
    }


def to_toml(value: Any) -> str:
    """A value as TOML; paths become absolute."""
    if hasattr(value, "tolist"):  # a number or an array of NumPy: np.float64 is a float, too
        return to_toml(value.tolist())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, os.PathLike):
        return to_toml(os.path.abspath(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        return text if set(text) & set(".en") else f"{text}.0"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(to_toml, value))}]"
    raise TypeError(f"{value!r} is a {type(value).__name__}, which no key takes")


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    arguments = []
    for key, value in settings.items():
        try:
            arguments += ["--set", f"{key}={to_toml(value)}"]
        except TypeError as error:
            raise ConfigError(f"{key}: {error}", key=key) from error
    return arguments


def _add(settings: dict[str, Any], table: str, values: Mapping[str, Any]) -> None:
    """Adds the keys of a table. What is None is not given."""
    for name, value in values.items():
        key = f"{table}.{name}" if table else name
        if isinstance(value, Mapping):
            _add(settings, key, value)
        elif value is not None:
            settings[key] = value


def _add_data(
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
        _add(settings, "partition", {"scheme": partition.scheme, **keys})
    elif isinstance(partition, str):
        settings["partition.scheme"] = partition
    else:
        _add(settings, "partition", partition or {})


def add_algorithm(settings: dict[str, Any], algorithm: Any, cache: Path) -> None:
    if isinstance(algorithm, _rules.Rule):
        file = os.fspath(_rule_file.file_of(algorithm, cache))
        settings["plugins"] = [*settings.get("plugins", ()), file]
        settings["algorithm.name"] = algorithm.name
        _add(settings, f"algorithm.{algorithm.name}", algorithm.parameters())
    elif isinstance(algorithm, Algorithm):
        settings["algorithm.name"] = algorithm.name
        _add(settings, f"algorithm.{algorithm.name}", algorithm.parameters())
    elif algorithm is not None:
        settings["algorithm.name"] = algorithm


def _add_cohort(settings: dict[str, Any], cohort: Any) -> None:
    if hasattr(cohort, "tolist"):  # a number of NumPy
        cohort = cohort.tolist()
    if isinstance(cohort, float):
        settings["cohort.fraction"] = cohort
    elif isinstance(cohort, Mapping):
        _add(settings, "cohort", cohort)
    elif cohort is not None:
        settings["cohort.size"] = cohort
