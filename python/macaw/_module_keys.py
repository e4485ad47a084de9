"""What a module says of the run that trains it: its outputs, its dtype, and whether what trains is
the module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _check, _data, _model, _outputs, _safetensors, _train
from ._paths import Path_
from ._settings import overrides
from .errors import ConfigError


def example(settings: Mapping[str, Any], module: Any) -> Any:
    """Two rows as a module gets them, on its device; None where the data is not in memory."""
    import torch

    if settings.get("data.source") != "prepared" or "data.path" not in settings:
        return None
    x = np.array(_safetensors.read(Path(settings["data.path"]))["features"][:2])
    device = next((p.device for p in module.parameters()), None)
    if x.dtype == np.int32:
        return torch.from_numpy(x).long().to(device)
    dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return torch.from_numpy(x / (255 if x.dtype == np.uint8 else 1)).to(device, dtype)


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


def add_outputs(settings: dict[str, Any], made: _model.Model, columns: _data.Columns) -> None:
    """What the outputs of a module of texts say of the run.

    One with outputs at each position predicts the next token, and knows more of them than the data
    has; any other classifies the texts.
    """
    if made.module is None:
        return
    if "layers" in made.keys:
        _look_at_padding(settings, made, columns)
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


def _look_at_padding(
    settings: Mapping[str, Any], made: _model.Model, columns: _data.Columns
) -> None:
    """Notices padded rows that transformer layers of a run mask, and those of the module do not."""
    if settings.get("data.source") != "prepared" or "data.path" not in settings:
        return
    attends = any(line.startswith("transformer") for line in made.keys["layers"])
    if attends and "lengths" in _safetensors.read(Path(settings["data.path"])):
        columns.warnings.append(
            "the rows differ in length: a run's transformer layers leave padding out, and those of "
            "the module attend to it, so net(x) of padded rows is not what was trained. Give rows "
            "of one length, or a module whose forward calls its layers with "
            "src_key_padding_mask=(x == 0)"
        )


def _look_at_targets(
    settings: Mapping[str, Any], given: Mapping[str, Any], columns: _data.Columns
) -> None:
    """Notices classes that are given as floats, of which a run makes a regression."""
    own = _train.wanted(given) or given.get("config") is not None
    if own or "run.task" in settings or not _outputs.is_regression(settings):
        return
    labels = _safetensors.read(Path(settings["data.path"]))["labels"]
    note = (
        "y is float and has 0.0 and 1.0 alone, which trains a regression (mean squared error): for "
        'classes give y.astype(int), and with one output run=dict(task="binary"); '
        'run=dict(task="regression") says that it is meant'
    )
    if np.array_equal(np.unique(labels), [0, 1]) and note not in columns.warnings:
        columns.warnings.append(note)


def look_at_outputs(
    made: _model.Model,
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    columns: _data.Columns,
) -> None:
    """Notices a model whose outputs are no logits, or other targets than are meant.

    given: the arguments of the run.
    """
    _look_at_targets(settings, given, columns)
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


def is_by_a_program(model: Any, settings: Mapping[str, Any]) -> bool:
    """Whether a program of the caller's trains the module, and knows it by its own names."""
    if settings.get("workers.backend") != "process" or not hasattr(model, "named_parameters"):
        return False
    return _model.names_itself(model)


def refuse_frozen(options: Mapping[str, Any]) -> None:
    """Refuses keys that say of a module what it says itself; its adapters are the run's alone."""
    for key in ("frozen",) if "adapters" in options else ("frozen", "trained"):
        if key in options:
            raise ConfigError(
                f"model_options=dict({key}=…) is for lists of layers and names; a module says it "
                "itself: net.body.requires_grad_(False)",
                key=f"model.{key}",
            )
