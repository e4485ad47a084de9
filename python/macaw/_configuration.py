"""The arguments of a run, as keys of its configuration; and what they make: data, weights."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import (
    _check,
    _data,
    _division,
    _model,
    _names,
    _normalise,
    _outputs,
    _peft,
    _privacy,
    _rule_file,
    _safetensors,
    _train,
)
from . import keys as _keys
from . import rules as _rules
from ._paths import Path_, path_of
from ._program import Simulation
from ._settings import add, overrides, value_of
from ._spaces import Space
from .algorithms import Algorithm
from .errors import ConfigError
from .partitions import Partition

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
    _add_data(settings, own["data"], own["test"], columns, folder)
    add(settings, "data", options)
    if given.get("config") is None:
        _refuse_missing(own, settings, models)
    add_partition(settings, own["partition"], folder)
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
            own["model"], own["init"], folder / "models", functools.partial(example, settings),
            seeds or (0,), in_python=_train.wanted(own) or _by_a_program(own["model"], settings),
        )  # fmt: skip
        if made.module is not None:
            _refuse_frozen(own["model_options"] or {})
        add(settings, "model", made.keys)
        if given.get("config") is None:
            _add_outputs(settings, made, columns)
        look_at_outputs(made, settings, own, columns)
    elif own["init"] is not None:
        raise ConfigError(
            "init= has no effect without model=; model_options=dict(init=…) takes a file for the "
            "model of config=",
            key="init",
        )
    add(settings, "model", own["model_options"] or {})
    add_algorithm(settings, own["algorithm"], folder)
    _add_cohort(settings, own["cohort"])
    add(settings, "local", own["local"] or {})
    again = made.again if made is not None else ""
    file = given.get("config") if sys.version_info >= (3, 11) else None  # older ones read no TOML
    if again and not value_of(settings, file, "local.checkpoint"):
        columns.warnings.append(
            f"model: {again}: a traced module keeps its activations, and trains the same numbers; "
            "local=dict(checkpoint=True) computes them again"
        )
    if (done := _privacy.add_noise(settings, given.get("config"), others)) is not None:
        columns.notes.append(done)
    if own["normalise"] is not None:
        _normalise_rows(settings, own["normalise"], columns, given.get("config"), run_seeds, folder)
    told = _train.add(settings, own["train"], own["loss"], own["evaluate"], made, folder)
    return Keys(settings, made, folder, columns, told)


def _by_a_program(model: Any, settings: Mapping[str, Any]) -> bool:
    """Whether a program of the caller's trains the module, and knows it by its own names."""
    if settings.get("workers.backend") != "process" or not hasattr(model, "named_parameters"):
        return False
    return _model.names_itself(model)


def _refuse_frozen(options: Mapping[str, Any]) -> None:
    """Refuses keys that say of a module what it says itself; its adapters are the run's alone."""
    for key in ("frozen",) if "adapters" in options else ("frozen", "trained"):
        if key in options:
            raise ConfigError(
                f"model_options=dict({key}=…) is for lists of layers and names; a module says it "
                "itself: net.body.requires_grad_(False)",
                key=f"model.{key}",
            )


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
    seeds: Sequence[int] | None,
    folder: Path,
) -> None:
    """Standardises the rows of the data. seeds: of the runs, if they are several."""

    def check() -> None:
        fixed = {key: value for key, value in settings.items() if not isinstance(value, Space)}
        file = [str(config)] if config is not None else []
        arguments = [*file, *overrides(fixed), "--check"]
        simulation = Simulation(arguments, words_for(settings, folder))
        try:
            for _ in simulation.events():
                pass
        finally:
            simulation.close()

    made = _normalise.add(
        settings, of, config, seeds or [run_seed(settings, config)], overrides, check
    )
    made.reader = columns.reader
    columns.normalisation = made
    columns.notes.append(made.note())


def example(settings: Mapping[str, Any], module: Any) -> Any:
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


def _add_outputs(settings: dict[str, Any], made: _model.Model, columns: _data.Columns) -> None:
    """What the outputs of a module of texts say of the run.

    One with outputs at each position predicts the next token, and knows more of them than the data
    has; any other classifies the texts.
    """
    if made.module is None or "layers" in made.keys:
        return
    x = example(settings, made.module)
    shape = None if x is None else _outputs.shape_of(made.module, x)
    if shape is None or columns.words or _outputs.is_regression(settings):
        return
    import torch

    if x.dtype != torch.int64:
        return
    if len(shape) == 2:
        settings.setdefault("run.task", "classification" if shape[-1] > 1 else "binary")
        if "lengths" in _safetensors.read(Path(settings["data.path"])):
            columns.warnings.append(
                "the rows differ in length, and a module is not told lengths: it sees padding as "
                "token 0; give a module that leaves it out, such as one whose forward calls "
                "bert(x, attention_mask=(x != 0).long())"
            )
    elif len(shape) == 3 and shape[1] == x.shape[1]:
        settings.setdefault("run.task", "next-token")
        known = _outputs.classes_in(settings)
        more = shape[-1] > known or (columns.next_tokens and shape[-1] == known)
        if settings["run.task"] == "next-token" and more:
            settings.setdefault("data.classes", shape[-1])


def look_at_outputs(
    made: _model.Model,
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    columns: _data.Columns,
) -> None:
    """Notices a model whose outputs are no logits. given: the arguments of the run."""
    if given.get("evaluate") is not None:  # a function of the caller's takes the outputs
        return
    module, x = made.module, None
    if module is None:
        layers = made.keys.get("layers")
        if not layers:
            return
        module = layers[-1]
    else:
        x = example(settings, module)
    note = _outputs.note(module, x, settings, own_loss=_train.wanted(given))
    if note is not None and note not in columns.warnings:
        columns.warnings.append(note)


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
    if config is not None or "model.adapters" in chosen:  # the module is the model without them
        chosen |= {"model.adapters": [], "model.trained": []}
    return [("check", _check.check(made, _for_check(chosen, config), words))]


def _for_check(settings: Mapping[str, Any], config: Path_ | None) -> list[str]:
    """The arguments of the program for _check.check."""
    if config is not None:
        return [str(config), *overrides(settings)]
    chosen = {key: value for key, value in settings.items() if key.startswith(_OF_A_STEP)}
    return overrides({**chosen, "cohort.size": 1, "run.rounds": 1})


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


def _add_cohort(settings: dict[str, Any], cohort: Any) -> None:
    if hasattr(cohort, "tolist"):  # a number of NumPy
        cohort = cohort.tolist()
    if isinstance(cohort, float):
        settings["cohort.fraction"] = cohort
    elif isinstance(cohort, Mapping):
        add(settings, "cohort", cohort)
    elif cohort is not None:
        settings["cohort.size"] = cohort
