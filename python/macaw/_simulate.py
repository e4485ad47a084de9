"""Simulations: a run that is begun, read round by round, or gone on with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import _libtorch, _model, _names, _spaces
from . import rules as _rules
from ._callback import Callbacks, Metric, OnRound, left_out
from ._configuration import keys_of, words_for
from ._module_keys import check_model, dtype_of
from ._paths import Path_, path_of
from ._privacy import Promise
from ._run import Run
from ._settings import add, kept_table, overrides
from ._stream import Stream
from ._train import EvaluateFunction, LossFunction, TrainFunction
from ._warn import warn
from .algorithms import Algorithm
from .errors import ConfigError, Error
from .partitions import Partition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import keys as _keys


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
    peft: Any = None,
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
    _spaces.refuse_in_a_run(given)
    settings, made, folder, columns, told, promise = keys_of(given)
    arguments = [str(config)] if config is not None else []
    said = [*told, *dtype_of(settings, made, config), *(("data", note) for note in columns.notes)]
    for text in columns.warnings:
        said.append(("warning", text))
        warn(text)
    arguments += overrides(settings)
    words = words_for(settings, folder)
    try:
        begun = _begun(made, settings, arguments, words, said, given, promise)
        if columns.normalisation is not None:
            columns.normalisation.save(begun.folder)
        return begun
    except Error as error:
        scripted = made is not None and "torchscript" in made.keys
        error = _libtorch.explained(error, scripted)
        raise _names.explained(error, columns.hints) from error.__cause__


def _begun(
    made: _model.Model | None,
    settings: Mapping[str, Any],
    arguments: list[str],
    words: Mapping[str, str],
    said: list[tuple[str, str]],
    given: Mapping[str, Any],
    promise: Promise | None,
) -> Stream:
    config, out, progress = given["config"], given["out"], given["progress"]
    if given["check_model"] and made is not None:
        said += check_model(made, settings, config, words)
    for doubt in dict.fromkeys(made.doubts if made is not None else ()):
        warn(doubt)
    if out is not None:
        arguments += ["--out", os.fspath(out)]
    if given["overwrite"]:
        arguments.append("--force")
    callbacks = Callbacks(given["on_round"], given["metrics"], made)
    return Stream(arguments, words, made, progress, said, callbacks, promise)


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
    peft: Any = None,
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
        Whole numbers are tokens where the model embeds them, and numbers elsewhere. Tokenised
        texts are also a list of lists of tokens, or rows with ``input_ids``.
    test: rows of the central test set. Without them, ``data_options=dict(test_fraction=…)`` of
        all rows, a tenth by default. Clients of one's own (a dict, or ``client=``) keep their rows
        unless it is given, or other rows are set aside: ``client_test_fraction`` gives each client
        test rows of its own, beside a central test set (``test_fraction=0``: none).
    features, label: columns of a table or a Hugging Face dataset; features may be a list.
    client: whose row it is: a column, or an array with a client's name a row.
    missing: what becomes of gaps in a table: "mean" or "indicator"; without it they are an error.
    normalise: "train" gives x mean 0 and deviation 1 over the run's training rows, each column or
        channel for itself; "client" over each client's own. Validation and test rows are scaled by
        the same numbers, which ``run.normalisation`` keeps.
    partition: who gets which rows, such as ``macaw.dirichlet(0.3, clients=1000)``.
    algorithm: such as ``macaw.FedProx(mu=0.1)``, its class or name, or a rule of one's own
        (macaw.rules).
        Without it, 100 clients get equal shares at random; clients of one's own keep their rows.
    cohort: clients a round, a fraction of all (a float up to 1), or a dict of ``[cohort]``.
    rounds, seed: of the run; 1 and 0 by default.
    local: a dict of ``[local]``: epochs, batch_size, lr, …
    train: ``train(model, rows, ctx)`` trains a client in Python instead of ``[local]``; ctx is a
        ``macaw.TrainContext``. It returns the model, (model, metrics), metrics, or None for a
        module that it has trained in place.
    loss: ``loss(outputs, y)``, a tensor of one number, with the steps of ``[local]``.
    evaluate: ``evaluate(model, rows)`` gives ``{"loss": …}`` of rows, beside train or loss.
    on_round: a function of a ``macaw.OpenRun``, called after each round; False stops the run.
    metrics: ``{"name": f}``, with f(y, outputs) over the test rows: columns of ``run.metrics``.
    init: weights to start from: a dict of arrays, a safetensors file, or "zero".
    peft: a configuration of the package peft, such as ``LoraConfig(r=8)``: a copy of the module
        gets these adapters, which alone are trained and sent. ``run.module()`` is that copy.
    config: a configuration file to start from. What is given here replaces its keys.
    name, out: of the run, and its folder; by default ``runs/NAME``, ``runs/NAME-2``, …
    overwrite: replaces a run that is in the folder already.
    cache: where prepared data is kept.
    progress: a bar; by default in a terminal and in a notebook.
    check_model: before the run, compares a module in its own PyTorch with what would be trained:
        losses, gradients and two steps on two batches of the data. What differs is a ModelError.
    model_options, data_options: dicts of ``[model]`` and ``[data]``.
    sections: every other table of a configuration as a dict: ``evaluation=dict(every=5)``,
        ``workers=dict(slots=2)``, ``run=dict(checkpoint_every=1)``, … Of ``privacy=dict(epsilon=8,
        clip=1.0)`` the noise is found; ``delta`` is then a tenth of 1 / clients by default.

    Ctrl-C ends the run in order; ``macaw.resume`` goes on with it. Errors are exceptions of
    ``macaw.errors``.
    """
    given = dict(locals())
    given.update(given.pop("sections"))
    return stream(**given).finish()


@_names.checked
def resume(
    folder: Path_ | Run,
    *,
    rounds: int | None = None,
    model: Any = None,
    progress: bool | None = None,
    workers: _keys.Workers | None = None,
    on_round: OnRound | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> Run:
    """Goes on with a run that was interrupted, or with more rounds. folder: the run's, or the run.

    The result has the same bytes as that of a run that was never interrupted. model: the module
    of the run, for ``run.model()`` as its state dict. on_round, metrics: as for ``simulate``, for
    the rounds that are done from here on, of which some may have been done before; a run that had
    them so far and goes on without says so. A run with train= or loss= goes on with the function
    that it began with; if its file has changed, that is an error.
    """
    settings: dict[str, Any] = {}
    add(settings, "workers", workers or {})
    place = folder._own_folder() if isinstance(folder, Run) else path_of(folder, "folder")
    _refuse_lost(place)
    if metrics and model is None:
        raise ConfigError(
            "metrics= evaluates the run's module in PyTorch, and a run's folder has its weights "
            "alone: macaw.resume(…, model=net, metrics=…)",
            key="model",
        )
    arguments = ["--resume", os.fspath(place)]
    if rounds is not None:
        arguments += ["--rounds", str(rounds)]
    arguments += overrides(settings)
    made = _model.Model({}, "", model, _model.names_of(model)) if model is not None else None
    callbacks = Callbacks(on_round, metrics, made)
    notes = left_out(place, on_round, metrics)
    for note in notes:
        warn(note)
    said = [("note", note) for note in notes]
    if (why := callbacks.catch_up(place, rounds)) is not None:
        warn(f"the run was to end after the round that it had done: {why}; another resume goes on")
        return Run(place, model=made, said=said)
    return Stream(arguments, {}, made, progress, said, callbacks).finish()


def _refuse_lost(folder: Path) -> None:
    """Refuses a folder that is no run, or whose run needs a file that has been deleted."""
    file = folder / "config.toml"
    if not file.exists():
        raise ConfigError(f"{folder} is no run to go on with: it has no config.toml", key="folder")
    text = file.read_text()
    data = kept_table(text, "data")
    lost = Path(data.get("path", file))
    if data.get("source") == "prepared" and not lost.exists():
        raise ConfigError(
            f"{folder} goes on with the rows in {lost}, and that file is gone: macaw.prepare(…) of "
            "the same data writes it again",
            key="data.path",
        )
    command = kept_table(text, "workers").get("command") or [""]
    if "_train_program" in " ".join(command) and not Path(command[-1]).exists():
        raise ConfigError(
            f"{folder} goes on with the function that {command[-1]} names, and that file is gone: "
            "macaw.simulate(…, train=…) of the same function writes it again, in a run of its own",
            key="workers.command",
        )
