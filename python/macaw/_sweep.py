"""Sweeps: many configurations and seeds, as `macaw sweep` runs them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from . import _data, _division, _figures, _groups, _latex, _model, _train
from ._names import in_python
from ._program import program
from ._run import Run
from ._simulate import (
    Path_,
    add_algorithm,
    add_partition,
    check_model,
    dtype_of,
    keys_of,
    run_seed,
    to_toml,
    words_for,
)
from .algorithms import Algorithm
from .errors import ConfigError, Error, RunError


@dataclass(frozen=True)
class Space:
    """What an argument of ``macaw.sweep`` takes: values to try, or a range to draw from."""

    kind: Literal["grid", "choice", "uniform", "log_uniform", "integers"]
    values: tuple[Any, ...]

    def toml(self) -> str:
        values = f"[{', '.join(map(_value, self.values))}]"
        return values if self.kind == "grid" else f"{{{self.kind} = {values}}}"


def grid(values: Sequence[Any]) -> Any:
    """Tries each value, with each combination of other grids."""
    return Space("grid", tuple(values))


def choice(values: Sequence[Any]) -> Any:
    """Draws one of the values for each sample; without ``samples`` each is tried, as by grid."""
    return Space("choice", tuple(values))


def uniform(low: float, high: float) -> Any:
    """Draws a number."""
    return Space("uniform", (low, high))


def log_uniform(low: float, high: float) -> Any:
    """Draws a number whose logarithm is uniform: for rates and the like. low > 0."""
    return Space("log_uniform", (low, high))


def integers(low: int, high: int) -> Any:
    """Draws a whole number; both ends may be drawn."""
    return Space("integers", (low, high))


class SweepResult:
    """A sweep's folder. Any sweep can be opened, whatever began it."""

    def __init__(self, folder: Path_) -> None:
        self.folder = Path(folder)
        done = subprocess.run(
            [program(), "sweep", "show", "--json", self.folder], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise Error(done.stderr.strip().removeprefix("macaw: error: "))
        #: All that `macaw sweep show --json` says (cli/sweep/table.h).
        self.result: dict[str, Any] = json.loads(done.stdout)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict a configuration, the best first: its values, and mean, std, low, high, p, …

        ``p_holm`` is p by Holm's correction, for all rows together. What the sweep reports beside
        its metric has columns of its own, with ``_std`` behind the name for the deviation.
        """
        metric = self.result["metric"]
        rows = []
        for row in self.result["rows"]:
            low, high = row["interval"] or (None, None)
            against = row["against_best"] or {}
            rows.append(
                {
                    "configuration": row["configuration"],
                    **_train.readable(row["values"]),
                    "rounds": row["rounds"],
                    "runs": sum(run["state"] == "done" for run in row["runs"]),
                    "failed": sum(run["state"] == "failed" for run in row["runs"]),
                    metric: row["mean"],
                    **_reported(row),
                    "std": row["std"],
                    "low": low,
                    "high": high,
                    "minus_best": against.get("difference"),
                    "p": against.get("p"),
                    "p_holm": against.get("p_holm"),
                }
            )
        return rows

    @property
    def table(self) -> Any:
        """``rows`` as a ``pandas.DataFrame``; without pandas the list itself."""
        try:
            import pandas
        except ImportError:
            return self.rows
        return pandas.DataFrame(self.rows)

    def to_latex(self, *, digits: int | None = None) -> str:
        """The table for a paper (booktabs): mean ± deviation over seeds, the best in bold.

        Keys with one value in all rows have no column. digits: behind the point; by default two
        of the deviation that are not 0. ``macaw.to_latex`` takes other metrics.
        """
        rows = self.result["rows"]
        metric = self.result["metric"]
        metrics = [metric, *(name for name in self.result["report"] if name != metric)]
        cells = []
        for row in rows:
            found = {metric: row, **{name: row["report"][name] for name in metrics[1:]}}
            cells.append([_latex.Cell(found[m]["mean"], found[m]["std"]) for m in metrics])
        higher = [self.result["mode"] == "max", *map(_groups.higher_is_better, metrics[1:])]
        counts = [sum(run["state"] == "done" for run in row["runs"]) for row in rows]
        values = [_train.readable(row["values"]) for row in rows]
        keys = sorted(values[0], key=lambda key: key != _groups.ALGORITHM)
        ordered = [{key: row.get(key) for key in keys} for row in values]
        return _latex.table(ordered, counts, metrics, cells, higher, digits)

    def plot(self, y: str | Sequence[str] | None = None, x: str = "round") -> _figures.Plot:
        """Draws a metric, by default the sweep's, a curve a configuration (``macaw.plot``)."""
        metric = str(self.result["metric"]).removeprefix("best_")
        return _figures.plot(self, y or metric, x)

    @property
    def best(self) -> dict[str, Any]:
        """The keys of the best configuration. ``DIR/best.toml`` is all of it."""
        for row in self.result["rows"]:
            if row["configuration"] == self.result["best"]:
                values = _train.readable(row["values"])
                return {key: value for key, value in values.items() if value is not None}
        raise Error(f"{self.folder}: no run is over, so no configuration is the best")

    @property
    def runs(self) -> dict[str, Run]:
        """The runs that are over, by name ("007-seed1")."""
        runs = [run for row in self.result["rows"] for run in row["runs"]]
        return {run["name"]: Run(run["folder"]) for run in runs if run["state"] == "done"}

    def __repr__(self) -> str:
        done, runs = self.result["done"], self.result["runs"]
        return f"<macaw sweep {self.folder}: {done} of {runs} runs done>"


def _reported(row: Mapping[str, Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for metric, value in row["report"].items():
        columns[metric] = value["mean"]
        columns[f"{metric}_std"] = value["std"]
    return columns


def sweep(
    model: Any = None,
    data: Any = None,
    *,
    out: Path_,
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

    The arguments are those of ``macaw.simulate``. Any of them, and any value in their dicts, may be
    ``macaw.grid([...])``, ``macaw.choice([...])``, ``macaw.uniform(a, b)``,
    ``macaw.log_uniform(a, b)`` or ``macaw.integers(a, b)``, but for ``data``.

    out: the sweep's folder. The same call goes on with a sweep that was interrupted.
    seeds: each configuration runs once with each. Splits, partition and the weights of layer lists
        follow the seed unless they have one of their own (``partition=dict(seed="run")`` takes back
        that of a file). A module that is given as an object has the same weights in every seed;
        a function that makes it, ``model=lambda: Net()``, is called for each.
    repeat: so many seeds from the configuration's own on, instead of ``seeds``. Without values to
        try, that is ``macaw simulate --repeat``: one configuration, its mean and deviation.
    baselines: run beside the configurations: each client for itself, everybody's rows in one place.
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
    folder = Path(out)
    cache = arguments.get("cache")
    cache_folder = Path(cache) if cache is not None else _data.cache_folder()
    if arguments.pop("seed", None) is not None:
        raise ConfigError("a sweep takes seeds=[...], not seed", key="run.seed", nearest="seeds")
    for role in ("on_round", "metrics"):
        if arguments.get(role) is not None:
            raise ConfigError(
                f"{role}= is for macaw.simulate: the runs of a sweep are processes of their own",
                key=role,
            )
    functions = {role: arguments.get(role) for role in ("train", "loss")}
    several = {role: space for role, space in functions.items() if isinstance(space, Space)}
    arguments |= {role: space.values[0] for role, space in several.items()}
    varied: dict[str, Any] = {}
    run_settings = {f"run.{key}": value for key, value in dict(arguments.get("run") or {}).items()}
    if repeat is not None:
        seeds = _repeated(seeds, repeat, run_seed(run_settings, config))
    own_seeds = list(seeds) if seeds is not None else [run_seed(run_settings, config)]
    _note_weights(model, own_seeds)

    varied_models: list[_model.Model] = []

    def add_model(settings: dict[str, Any], item: Any, cache: Path) -> None:
        made = _model.read(
            item, None, cache / "models", seeds=own_seeds, in_python=_train.wanted(arguments)
        )
        varied_models.append(made)
        for key, value in made.keys.items():
            settings[f"model.{key}"] = value

    objects = {**_OBJECTS, "model": add_model}
    for name, add in objects.items():
        value = model if name == "model" else arguments.get(name)
        if not isinstance(value, Space):
            continue
        varied |= _tables_of(name, value, add, cache_folder, samples is not None)
        model = None if name == "model" else model
        arguments.pop(name, None)
    if _train.wanted(arguments) and any(made.module is not None for made in varied_models):
        raise ConfigError(
            "model: a sweep with train= or loss= takes one module; sweep over models one by one",
            key="model",
        )
    _division.check_sweep(arguments.get("normalise"), varied, arguments.get("data_options"))
    plugins = _plugins_of(varied)
    keys = keys_of({"model": model, "data": data, **arguments}, own_seeds)
    settings = keys.settings
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
        warnings.warn(note, UserWarning, stacklevel=2)
    if arguments.get("check_model", True):
        fixed = {key: value for key, value in settings.items() if not isinstance(value, Space)}
        fixed["run.seed"] = own_seeds[0]
        for made in [keys.model, *varied_models] if keys.model is not None else varied_models:
            check_model(made, fixed, config, words_for(settings, cache_folder))
    text = _file({**settings, **varied}, samples is not None, config)
    top: dict[str, Any] = {"seeds": seeds, "baselines": baselines, "samples": samples}
    top |= {"sample_seed": sample_seed, "metric": metric, "mode": mode, "report": report}
    top |= {"jobs": jobs, "cores": cores, "memory": memory}
    for key, value in (halving or {}).items():
        top[f"halving.{key}"] = value
    head = "".join(f"{key} = {to_toml(value)}\n" for key, value in top.items() if value is not None)
    folder.mkdir(parents=True, exist_ok=True)
    if keys.columns.normalisation is not None:
        keys.columns.normalisation.save(folder)
    file = folder / "sweep.toml"
    file.write_text(head + text)
    if progress is None:
        progress = sys.stderr.isatty()
    _run(file, folder, progress, words_for(settings, cache_folder))
    return SweepResult(folder)


def _repeated(seeds: Sequence[int] | None, repeat: int, first: int) -> list[int]:
    if seeds is not None:
        raise ConfigError("give seeds=[...] or repeat=N, not both", key="repeat", nearest="seeds")
    if repeat < 1:
        raise ConfigError(f"repeat must be at least 1, found {repeat}", key="repeat")
    return list(range(first, first + repeat))


class _Table(dict[str, Any]):
    """Keys that are set together."""


def _tables_of(
    name: str, space: Space, add: Callable[..., None], cache: Path, drawn: bool
) -> dict[str, Space]:
    """A space of objects as one of tables, whose own spaces are values of theirs or keys beside.

    Of ``grid([FedAvg(), FedProx(mu=grid([0.1, 1]))])`` there are three tables. A range, such as
    ``FedProx(mu=log_uniform(0.01, 1))``, becomes the key ``algorithm.fedprox.mu``, which
    configurations of other algorithms leave out.
    """
    tables: list[_Table] = []
    beside: dict[str, Space] = {}
    for item in space.values:
        table = _table(name, item, add, cache)
        ranges = {k: v for k, v in table.items() if isinstance(v, Space) and not _listed(v, drawn)}
        for key, value in ranges.items():
            _refuse_twice(name, key, item, space)
            # In quotation marks: TOML has no room below a key that has values.
            beside[json.dumps(f"{name}.{key}")] = value
            del table[key]
        tables += _each(table)
    _leave_out_defaults(tables, space.values)
    return {name: Space(space.kind, tuple(tables)), **beside}


def _leave_out_defaults(tables: Sequence[_Table], items: Sequence[Any]) -> None:
    """Drops parameters that are at their default wherever an algorithm has them."""
    for kind in {type(item) for item in items if isinstance(item, Algorithm)}:
        standard = kind()
        for parameter, value in standard.parameters().items():
            key = f"{standard.name}.{parameter}"
            own = [table for table in tables if key in table]
            if all(table[key] == value for table in own):
                for table in own:
                    del table[key]


def _plugins_of(varied: Mapping[str, Space]) -> list[str]:
    """Takes the files of rules out of the tables of algorithms: they are a key of their own."""
    tables = [table for space in varied.values() for table in space.values if type(table) is _Table]
    return [file for table in tables for file in table.pop("plugins", ())]


def _listed(space: Space, drawn: bool) -> bool:
    """Whether each value of the space is tried."""
    return space.kind == "grid" or (space.kind == "choice" and not drawn)


def _refuse_twice(name: str, key: str, item: Any, space: Space) -> None:
    """A key beside the tables is for all tables that have it, so there may be one of them."""
    alike = [other for other in space.values if type(other) is type(item)]
    if len(alike) > 1 or name == "partition":
        raise ConfigError(
            f"{name}: {type(item).__name__} has a range for {key} inside a grid of several: give "
            "the values, macaw.grid([…]), or a sweep of its own",
            key=f"{name}.{key}",
        )


def _each(table: _Table) -> list[_Table]:
    """A table for each combination of the values of its spaces."""
    spaces = [key for key, value in table.items() if isinstance(value, Space)]
    return [
        _Table({**table, **dict(zip(spaces, values))})
        for values in itertools.product(*(table[key].values for key in spaces))
    ]


def _table(name: str, item: Any, add: Callable[..., None], cache: Path) -> _Table:
    settings: dict[str, Any] = {}
    add(settings, item, cache)
    return _Table({key.removeprefix(f"{name}."): value for key, value in settings.items()})


def _note_weights(model: Any, seeds: Sequence[int]) -> None:
    """Says that deviations do not cover the initial weights of a module."""
    models = model.values if isinstance(model, Space) else [model]
    fixed = [type(item).__name__ for item in models if _model.has_fixed_weights(item)]
    if len(seeds) < 2 or not fixed:
        return
    warnings.warn(
        f"model: {', '.join(fixed)} has the same initial weights in every seed, so deviations do "
        f"not cover them; give a function that makes it, model=lambda: {fixed[0]}(...)",
        UserWarning,
        stacklevel=3,
    )


_OBJECTS: dict[str, Callable[..., None]] = {
    "algorithm": add_algorithm,
    "partition": add_partition,
}


def _value(value: Any) -> str:
    if isinstance(value, _Table):
        return f"{{{', '.join(f'{key} = {to_toml(inner)}' for key, inner in value.items())}}}"
    return to_toml(value)


def _file(
    settings: Mapping[str, Any], drawn: bool, config: Path_ | None
) -> str:
    keys: dict[str, str] = {}
    base: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Space):
            kind = "grid" if value.kind == "choice" and not drawn else value.kind
            keys[key] = Space(kind, value.values).toml()
        else:
            base[key] = to_toml(value)
    if config is not None:
        # A base that is a file takes no further keys; one with a single value does not vary.
        keys.update({key: f"[{value}]" for key, value in base.items()})
        base = {}
    lines = [f"base = {to_toml(Path(config))}"] if config is not None else []
    lines += ["", "[keys]", *(f"{key} = {value}" for key, value in keys.items())]
    if config is None:
        lines += ["", "[base]", *(f"{key} = {value}" for key, value in base.items())]
    return "\n".join(lines) + "\n"


def _run(file: Path, folder: Path, progress: bool, words: Mapping[str, str]) -> None:
    command: list[Any] = [program(), "sweep", "--json", file, "--out", folder]
    error: dict[str, Any] | None = None
    # In a session of its own, so that Ctrl-C reaches this process alone, which passes it on.
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "error":
                    error = event
                elif event["event"] == "said" and event["what"] == "warning":
                    warnings.warn(event["text"], UserWarning, stacklevel=3)
                elif progress and event["event"] == "run":
                    value = event["state"] if event["value"] is None else f"{event['value']:.4f}"
                    over = event["done"] + event["failed"]
                    print(f"{over} of {event['runs']}  {event['name']}  {value}", file=sys.stderr)
        except BaseException:
            os.kill(process.pid, signal.SIGINT)
            process.wait()
            raise
    if error is not None:
        message = error["message"]
        for text, word in words.items():
            message = message.replace(text, word)
        message = in_python(message)
        if error["code"] == 2:
            raise ConfigError(message, key=error["key"] or None, nearest=error["meant"] or None)
        raise RunError(message, folder=str(folder), key=error["key"] or None)
    if process.returncode != 0:
        raise RunError(f"macaw sweep ended with exit code {process.returncode}", folder=str(folder))
