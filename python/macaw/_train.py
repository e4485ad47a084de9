"""``train=`` and ``loss=``: the keys of a run whose clients a function of the caller's trains.

The run starts a process a slot (_train_program.py), which loads the function and the module, and
gets each client's rows from the worker.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _files, _identity, _model, _modules, _source
from ._paths import Path_
from ._settings import value_of
from .errors import ConfigError, ModelError

#: ``train(model, rows, ctx)``, and what it may return (macaw.simulate).
TrainFunction = Callable[..., Any]
#: ``loss(outputs, y)``: the mean over a batch, as a tensor.
LossFunction = Callable[..., Any]
#: ``evaluate(model, rows)``: means over the rows, ``{"loss": …, "accuracy": …}``.
EvaluateFunction = Callable[..., Any]

_BOOT = "import sys; sys.path.insert(0, {package!r}); from macaw._train_program import main; main()"


# Keys of [local] that are of the loss of a run's task; and with those of clipping, all that neither
# ctx.batches() nor ctx.optimizer() applies.
_OF_THE_LOSS = ("local.class_weights", "local.label_smoothing")
_OF_THE_FUNCTION = ("local.clip_norm", "local.clip", *_OF_THE_LOSS)


def wanted(given: Mapping[str, Any]) -> bool:
    """Whether a function is given that trains."""
    return given.get("train") is not None or given.get("loss") is not None


def add(
    settings: dict[str, Any],
    train: TrainFunction | None,
    loss: LossFunction | None,
    evaluate: EvaluateFunction | None,
    made: _model.Model | None,
    cache: Path,
    config: Path_ | None = None,
) -> list[tuple[str, str]]:
    """Adds the keys of ``[workers]``; returns what there is to say. made: the run's model. config:
    a file that may have further keys."""
    if train is None and loss is None:
        if evaluate is not None:
            raise ConfigError("evaluate= has no effect without train= or loss=", key="evaluate")
        return []
    _check(settings, train, loss, made)
    file = config if sys.version_info >= (3, 11) else None  # older ones read no TOML
    given = [key for key in _OF_THE_FUNCTION if _is_set(value_of(settings, file, key))]
    for key in given if loss is not None else ():
        if key in _OF_THE_LOSS:
            raise ConfigError(f"{key} has no effect beside loss=", key=key)
    settings["workers.backend"] = "process"
    settings["workers.give_rows"] = True
    settings["workers.command"], home = command(train, loss, evaluate, made, cache)
    settings["workers.folder"] = Path.cwd()
    what = "by this loss" if loss is not None else "by this function"
    said = [("train", f"{home.name} of {home.file}: clients are trained {what}, in Python")]
    if train is not None and given:
        keys = ", ".join(given)
        said.append(("note", f"{keys}: the function's own to apply, from ctx.local"))
    return said


def _is_set(value: Any) -> bool:
    """Whether a key has a value other than 0, which turns it off."""
    return value is not None and not (isinstance(value, (int, float)) and value == 0)


def command(
    train: TrainFunction | None,
    loss: LossFunction | None,
    evaluate: EvaluateFunction | None,
    made: _model.Model | None,
    cache: Path,
) -> tuple[list[str], _source.Home]:
    """``workers.command`` for these functions, and where the one that trains is."""
    module = made.module if made is not None else None
    functions = {"train": train, "loss": loss, "evaluate": evaluate}
    functions = {role: function for role, function in functions.items() if function is not None}
    kinds = [] if module is None else {type(layer) for layer in module.modules()}
    homes = _source.homes_of(functions, kinds, cache)
    spec: dict[str, Any] = dict.fromkeys(("train", "loss", "evaluate"))
    spec |= {role: home.keys() for role, home in homes.functions.items()}
    spec["main"] = None if homes.main is None else str(homes.main)
    spec["package"] = getattr(sys.modules["__main__"], "__package__", None)
    spec["path"] = [os.path.abspath(path) for path in sys.path]
    spec["module"] = None if module is None else str(_pickled(module, cache))
    spec["identity"] = _identity.identity_of(homes, module)
    text = json.dumps(spec, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = homes.functions["loss" if loss is not None else "train"]
    path = cache / "train" / f"{home.name}-{digest}.json"
    path = _files.keep(path, text.encode())
    boot = _BOOT.format(package=str(Path(__file__).parent.parent))
    return [sys.executable, "-c", boot, str(path)], home


def _check(
    settings: Mapping[str, Any], train: Any, loss: Any, made: _model.Model | None
) -> None:
    if train is not None and loss is not None:
        raise ConfigError(
            "train= and loss= exclude each other: a train function computes its own loss",
            key="loss",
        )
    backend = settings.get("workers.backend", "process")
    if backend != "process" or "workers.command" in settings:
        key = "workers.backend" if backend != "process" else "workers.command"
        raise ConfigError(
            f"{key}: a run with train= or loss= is trained in Python's processes; leave it out",
            key=key,
        )
    if loss is not None and (made is None or made.module is None):
        raise ConfigError(
            "loss= needs a torch.nn.Module as the model: it gets the module's outputs; with other "
            "models give train=",
            key="loss",
        )


def _pickled(module: Any, cache: Path) -> Path:
    if any(tensor.is_cuda for tensor in (*module.parameters(), *module.buffers())):
        module = _modules.copy_of(module).cpu()
    try:
        text = pickle.dumps(module)
    except Exception as error:
        raise ModelError(
            f"model: {type(module).__name__} cannot be pickled, so that the run's processes could "
            f"load it: {error}; classes and functions that it holds are to stand at the top of a "
            "file",
            key="model",
        ) from error
    path = cache / "train" / f"{hashlib.sha256(text).hexdigest()[:16]}.pickle"
    return _files.keep(path, text)


def readable(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a sweep's configuration, with a function's name in place of its command."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        spec = _spec_of(value) if key == "workers.command" else None
        if spec is None:
            found[key] = value
            continue
        role = "loss" if spec["loss"] else "train"
        arguments = ", ".join(f"{k}={v!r}" for k, v in spec[role]["arguments"].items())
        found[role] = f"{spec[role]['name']}({arguments})" if arguments else spec[role]["name"]
    return found


def _spec_of(command: Any) -> dict[str, Any] | None:
    if not isinstance(command, list) or not command or "_train_program" not in " ".join(command):
        return None
    try:
        spec: dict[str, Any] = json.loads(Path(command[-1]).read_text())
    except OSError:  # the cache has been emptied
        return None
    return spec
