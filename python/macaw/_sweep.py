"""Sweeps: many configurations and seeds, as `macaw sweep` runs them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from . import _data, _division, _libtorch, _model, _peft, _spaces, _sweep_file, _train
from ._argument_keys import add_algorithm, add_partition
from ._configuration import keys_of, run_seed, words_for
from ._module_keys import check_model, dtype_of, example, look_at_outputs
from ._names import in_python
from ._paths import Path_, path_of
from ._program import environment, program
from ._settings import add
from ._spaces import Space
from ._sweep_result import SweepResult
from ._warn import warn
from .errors import ArgumentError, ConfigError, Error, RunError

FILE = "sweep.toml"  # in the folder of a sweep


def sweep(
    model: Any = None,
    data: Any = None,
    *,
    out: Path_ | None = None,
    seeds: Sequence[int] | None = None,
    repeat: int | None = None,
    baselines: Sequence[Literal["local", "pooled"]] | None = None,
    samples: int | None = None,
    sample_seed: int | None = None,
    metric: str | None = None,
    mode: Literal["max", "min"] | None = None,
    report: Sequence[str] | None = None,
    halving: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    cores: int | None = None,
    memory: float | None = None,
    config: Path_ | None = None,
    progress: bool | None = None,
    **arguments: Any,
) -> SweepResult:
    """Runs many configurations with many seeds, side by side, and compares them.

    The arguments are those of ``macaw.simulate``. A model, an algorithm, a partition, any dict and
    any value in one may be ``macaw.grid([...])``, ``macaw.choice([...])``, ``macaw.uniform(a, b)``,
    ``macaw.log_uniform(a, b)`` or ``macaw.integers(a, b)``. Data and test rows are the same in all.

    out: the sweep's folder. The same call goes on with a sweep that was interrupted.
    seeds: each configuration runs once with each. Splits, partition and the weights of layer lists
        follow the seed unless they have one of their own (``partition=dict(seed="run")`` takes back
        that of a file). A module that is given as an object has the same weights in every seed;
        a function that makes it, ``model=lambda: Net()``, is called for each.
    repeat: so many seeds from the configuration's own on, instead of ``seeds``. Without values to
        try, that is ``macaw simulate --repeat``: one configuration, its mean and deviation.
    baselines: run beside the configurations, and are never the best: each client for itself, all
        rows in one place.
    samples, sample_seed: how often ranges are drawn, and the seed of the draws.
    metric, mode: what decides which is best; by default the accuracy on validation rows
        (``data_options=dict(central_val_fraction=0.1)``), and without them on test rows.
    report: columns shown beside the metric, such as the accuracy on test rows; by default that one,
        where validation rows decide.
    halving: ``dict(rounds=[10, 30, 90], factor=3)``: only the best go on to more rounds.
    jobs, cores, memory: runs at a time, and cores and gigabytes of all together.
    progress: a line a run on standard error; by default in a terminal.

    A run that fails is a row of the table. Errors of the configuration are exceptions before the
    first run.
    """
    if out is None:
        raise ArgumentError(
            'macaw.sweep needs out=, the folder of its runs, such as out="sweeps/first": the same '
            "call goes on with a sweep that was interrupted",
            key="out",
        )
    folder = path_of(out, "out")
    _check_arguments(arguments, seeds, data)
    cache = arguments.get("cache")
    cache_folder = path_of(cache, "cache") if cache is not None else _data.cache_folder()
    functions = {role: arguments.get(role) for role in ("train", "loss")}
    several = {role: space for role, space in functions.items() if isinstance(space, Space)}
    arguments |= {role: space.values[0] for role, space in several.items()}
    varied: dict[str, Any] = {}
    run_settings = {f"run.{key}": value for key, value in dict(arguments.get("run") or {}).items()}
    if repeat is not None:
        seeds = _repeated(seeds, repeat, run_seed(run_settings, config))
    own_seeds = list(seeds) if seeds is not None else [run_seed(run_settings, config)]
    model = _peft.of_a_sweep(model, arguments.pop("peft", None))
    _note_weights(model, own_seeds)

    drawn = samples is not None
    for name, add_object in _objects_in(arguments).items():
        varied |= _sweep_file.tables_of(name, arguments.pop(_ARGUMENTS.get(name, name)), add_object,
                             cache_folder, drawn)  # fmt: skip
    _division.check_sweep(arguments.get("normalise"), varied, arguments.get("data_options"))
    plugins = _sweep_file.plugins_of(varied)
    models = model.values if isinstance(model, Space) else ()
    rounds = {"run.rounds": max(halving["rounds"])} if halving and "rounds" in halving else {}
    keys = keys_of(
        {"config": config, "model": None if models else model, "data": data, **arguments},
        own_seeds,
        others=[{**rounds, **each} for each in _sweep_file.combinations(varied)],
        models=models,
    )
    settings = keys.settings
    varied_models: list[_model.Model] = []

    def add_model(settings_of_it: dict[str, Any], item: Any, cache: Path) -> None:
        made = _model.read(
            item, None, cache / "models", functools.partial(example, settings), own_seeds,
            _train.wanted(arguments),
        )  # fmt: skip
        varied_models.append(made)
        add(settings_of_it, "model", made.keys)
        look_at_outputs(made, settings, arguments, keys.columns)

    if models:
        varied |= _sweep_file.tables_of("model", model, add_model, cache_folder, drawn)
    if _train.wanted(arguments) and any(made.module is not None for made in varied_models):
        raise ConfigError(
            "model: a sweep with train= or loss= takes one module; sweep over models one by one",
            key="model",
        )
    for role, space in several.items():
        evaluate, made = arguments.get("evaluate"), keys.model
        commands = [
            _train.command(
                value if role == "train" else None, value if role == "loss" else None, evaluate,
                made, cache_folder,
            )[0]
            for value in space.values
        ]  # fmt: skip
        settings["workers.command"] = Space(space.kind, tuple(commands))
    if plugins:  # of all rules, whichever a run has
        settings["plugins"] = list(dict.fromkeys([*settings.get("plugins", ()), *plugins]))
    for made in [keys.model, *varied_models]:
        dtype_of(settings, made, config)
    for note in keys.columns.warnings:
        warn(note)
    if arguments.get("check_model", True):
        fixed = {key: value for key, value in settings.items() if not isinstance(value, Space)}
        fixed["run.seed"] = own_seeds[0]
        for made in [keys.model, *varied_models] if keys.model is not None else varied_models:
            try:
                check_model(made, fixed, config, words_for(settings, cache_folder))
            except Error as error:
                scripted = "torchscript" in made.keys
                raise _libtorch.explained(error, scripted) from error.__cause__
    for made in [keys.model, *varied_models]:
        for doubt in dict.fromkeys(made.doubts if made is not None else ()):
            warn(doubt)
    top: dict[str, Any] = {"seeds": seeds, "baselines": baselines, "samples": samples}
    top |= {"sample_seed": sample_seed, "metric": metric, "mode": mode, "report": report}
    top |= {"jobs": jobs, "cores": cores, "memory": memory}
    for key, value in (halving or {}).items():
        top[f"halving.{key}"] = value
    text = _sweep_file.text_of(top, {**settings, **varied}, drawn, config)
    if progress is None:
        progress = sys.stderr.isatty()
    with _aside(folder, text) as (file, accepted):

        def begin() -> None:
            accepted()
            if keys.columns.normalisation is not None:
                keys.columns.normalisation.save(folder)

        _run(file, folder, begin, progress, words_for(settings, cache_folder))
    result = SweepResult(folder)
    if keys.promise is not None:
        for row in result.rows:
            keys.promise.keep(row.get("epsilon"), row.get("privacy.noise"), str(folder))
    return result


# Arguments that are called otherwise than the table of a configuration that they are.
_ARGUMENTS = {"data": "data_options", "model": "model_options"}


def _check_arguments(arguments: Mapping[str, Any], seeds: Any, data: Any) -> None:
    """Refuses arguments that no sweep takes, with what to write."""
    _spaces.refuse_fixed({**arguments, "data": data})
    if arguments.get("seed") is not None:
        raise ConfigError("a sweep takes seeds=[...], not seed", key="run.seed", nearest="seeds")
    if seeds is not None and (isinstance(seeds, str) or not isinstance(seeds, Iterable)):
        raise ConfigError(f"seeds: give a list, seeds=[1, 2, 3]; found {seeds!r}", key="seeds")
    for role in ("on_round", "metrics"):
        if arguments.get(role) is not None:
            raise ConfigError(
                f"{role}= is for macaw.simulate: the runs of a sweep are processes of their own",
                key=role,
            )


def _objects_in(arguments: Mapping[str, Any]) -> dict[str, Callable[..., None]]:
    """The arguments that are spaces of objects or of whole dicts, and what adds the keys of one."""
    found: dict[str, Callable[..., None]] = {}
    for argument, value in arguments.items():
        if not isinstance(value, Space):
            continue
        if argument in _OBJECTS:
            found[argument] = _OBJECTS[argument]
        elif all(isinstance(item, Mapping) for item in value.values):
            table = {own: name for name, own in _ARGUMENTS.items()}.get(argument, argument)
            found[table] = functools.partial(_add_table, table)
    return found


def _add_table(table: str, settings: dict[str, Any], item: Mapping[str, Any], _: Path) -> None:
    if table == "privacy" and "epsilon" in item:
        raise ConfigError(
            "privacy is a grid of dicts, and the noise of an epsilon is found for one: write "
            "privacy=dict(epsilon=macaw.grid([…]), clip=…)",
            key="privacy.epsilon",
        )
    add(settings, table, item)


def _repeated(seeds: Sequence[int] | None, repeat: int, first: int) -> list[int]:
    if seeds is not None:
        raise ConfigError("give seeds=[...] or repeat=N, not both", key="repeat", nearest="seeds")
    if not isinstance(repeat, int) or repeat < 1:
        raise ConfigError(f"repeat must be a whole number from 1, found {repeat!r}", key="repeat")
    return list(range(first, first + repeat))


def _note_weights(model: Any, seeds: Sequence[int]) -> None:
    """Says that deviations do not cover the initial weights of a module."""
    models = model.values if isinstance(model, Space) else [model]
    fixed = [type(item).__name__ for item in models if _model.has_fixed_weights(item)]
    if len(seeds) < 2 or not fixed:
        return
    warn(
        f"model: {', '.join(fixed)} has the same initial weights in every seed, so deviations do "
        f"not cover them; give a function that makes it, model=lambda: {fixed[0]}(...)"
    )


_OBJECTS: dict[str, Callable[..., None]] = {
    "algorithm": add_algorithm,
    "partition": add_partition,
}


@contextmanager
def _aside(folder: Path, text: str) -> Iterator[tuple[Path, Callable[[], None]]]:
    """The sweep's file beside the one that an earlier sweep may have left in the folder, and what
    puts it in its place. A folder that has not got it is as it was."""
    made = [above for above in (folder, *folder.parents) if not above.exists()]
    file = folder / f".sweep-{os.getpid()}-{secrets.token_hex(4)}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise ConfigError(f"out: {error.filename} cannot be written: {error.strerror}",
                          key="out") from None  # fmt: skip

    def accept() -> None:
        file.replace(folder / FILE)

    try:
        yield file, accept
    finally:
        file.unlink(missing_ok=True)
        for empty in made:
            with contextlib.suppress(OSError):  # it has got something
                empty.rmdir()


def _run(
    file: Path,
    folder: Path,
    begin: Callable[[], None],
    progress: bool,
    words: Mapping[str, str],
) -> None:
    """begin: called once the program has taken the folder for this sweep."""
    command: list[Any] = [program(), "sweep", "--json", file, "--out", folder]
    error: dict[str, Any] | None = None
    # In a session of its own, so that Ctrl-C reaches this process alone, which passes it on.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment(), start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "begun":
                    begin()
                elif event["event"] == "error":
                    error = event
                elif event["event"] == "said" and event["what"] == "warning":
                    warn(event["text"])
                elif event["event"] == "run" and event["state"] == "failed":
                    why = in_python(event["why"] or "it failed")
                    warn(f"{event['name']} is not in the table: {why}", RuntimeWarning)
                elif progress and event["event"] == "run":
                    value = event["state"] if event["value"] is None else f"{event['value']:.4f}"
                    over = event["done"] + event["failed"]
                    print(f"{over} of {event['runs']}  {event['name']}  {value}", file=sys.stderr)
        except BaseException as interruption:
            os.kill(process.pid, signal.SIGINT)
            process.wait()
            if isinstance(interruption, KeyboardInterrupt) and not interruption.args:
                interruption.args = (f"the same macaw.sweep(…, out={str(folder)!r}) goes on",)
            raise
    if error is not None:
        message = error["message"]
        for text, word in words.items():
            message = message.replace(text, word)
        # What was given here is in a file that the caller has not written.
        message = re.sub(rf"^{re.escape(str(file.absolute()))}(:\d+)?: ", "", message)
        message = in_python(message.replace(file.name, FILE))
        if re.search(r", found \[", message):
            message += "; macaw.grid([…]) tries each of several values"
        if error["code"] == 2:
            raise ConfigError(message, key=error["key"] or None, nearest=error["meant"] or None)
        raise RunError(message, folder=str(folder), key=error["key"] or None)
    if process.returncode != 0:
        raise RunError(f"macaw sweep ended with exit code {process.returncode}", folder=str(folder))
