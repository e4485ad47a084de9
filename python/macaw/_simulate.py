"""Simulations: what is asked for as keys of a configuration, and a run's rounds as they come."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _data, _model, _progress, _rule_file
from . import rules as _rules
from ._program import Event, Simulation
from ._run import Row, Run
from .algorithms import Algorithm
from .errors import ConfigError
from .partitions import Partition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import keys as _keys

Path_ = str | os.PathLike[str]

# Arguments that become keys in a way of their own, and those that are no keys at all.
_ARGUMENTS = (
    *("name", "rounds", "seed", "data", "test", "features", "label", "data_options", "partition"),
    *("model", "init", "model_options", "algorithm", "cohort", "local"),
)
_NO_KEYS = ("config", "out", "overwrite", "progress")


class Stream:
    """A run whose rounds are read as they come: ``for row in macaw.stream(...)``.

    A loop that ends early, by ``break`` or by an exception, stops the run; what is done is kept,
    and ``macaw.resume(stream.folder)`` goes on with it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        words: Mapping[str, str],
        model: _model.Model | None,
        progress: bool | None,
    ) -> None:
        self._model = model
        self._progress = _progress.make(progress)
        self._said: list[tuple[str, str]] = []
        #: The run's folder.
        self.folder = Path()
        self.rounds = 0
        self._over = False
        if model is not None and model.said:
            self._say("model", model.said)
        self._simulation = Simulation(arguments, words)
        self._events = self._simulation.events()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Row]:
        try:
            while (row := self._next()) is not None:
                yield row
        finally:
            self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the run if it goes on."""
        self._progress.close()
        self._simulation.close()

    @property
    def run(self) -> Run:
        """The run, as far as it is."""
        return Run(self.folder, model=self._model, said=self._said)

    def finish(self) -> Run:
        """Reads the rounds that are left, and returns the run."""
        try:
            for _ in self:
                pass
        except KeyboardInterrupt:
            # The program has been told by close(), and has kept what is done.
            hint = f'macaw.resume("{self.folder}") goes on'
            raise KeyboardInterrupt(hint) from None
        return self.run

    def _begin(self) -> None:
        for event in self._events:
            if event["event"] == "begun":
                self.folder, self.rounds = Path(event["folder"]), event["rounds"]
                self._progress.begin(self.rounds)
                return
            self._tell(event)

    def _next(self) -> Row | None:
        for event in self._events:
            if event["event"] == "round":
                row: Row = event["row"]
                self._progress.row(row)
                return row
            self._tell(event)
        return None

    def _tell(self, event: Event) -> None:
        if event["event"] == "said":
            self._say(event["what"], event["text"])
        elif event["event"] == "message":
            self._say("message", event["text"])
        elif event["event"] == "result":
            for warning in event["warnings"]:
                self._said.append(("warning", warning))
                warnings.warn(warning, RuntimeWarning, stacklevel=2)

    def _say(self, what: str, text: str) -> None:
        self._said.append((what, text))
        self._progress.say(what, text)


def stream(
    model: Any = None,
    data: Any = None,
    *,
    test: Any = None,
    features: str | None = None,
    label: str | None = None,
    partition: Partition | _keys.Partition | str | None = None,
    algorithm: Algorithm | _rules.Rule | str | None = None,
    cohort: int | float | _keys.Cohort | None = None,
    rounds: int | None = None,
    local: _keys.Local | None = None,
    seed: int | None = None,
    init: Any = None,
    config: Path_ | None = None,
    name: str | None = None,
    out: Path_ | None = None,
    overwrite: bool = False,
    cache: Path_ | None = None,
    progress: bool | None = False,
    model_options: _keys.Model | None = None,
    data_options: _keys.Data | None = None,
    **sections: Unpack[_keys.Sections],
) -> Stream:
    """Begins a simulation, and gives a row of metrics a round, while it runs.

    The arguments are those of ``simulate``.
    """
    given = dict(locals())
    given.update(given.pop("sections"))
    settings, made, folder = keys_of(given)
    arguments = [str(config)] if config is not None else []
    arguments += _overrides(settings)
    if out is not None:
        arguments += ["--out", os.fspath(out)]
    if overwrite:
        arguments.append("--force")
    if not arguments:
        raise ConfigError("nothing is given: simulate needs a model and data, or config=FILE")
    words = words_for(settings, folder)
    return Stream(arguments, words, made, progress)


def simulate(
    model: Any = None,
    data: Any = None,
    *,
    test: Any = None,
    features: str | None = None,
    label: str | None = None,
    partition: Partition | _keys.Partition | str | None = None,
    algorithm: Algorithm | _rules.Rule | str | None = None,
    cohort: int | float | _keys.Cohort | None = None,
    rounds: int | None = None,
    local: _keys.Local | None = None,
    seed: int | None = None,
    init: Any = None,
    config: Path_ | None = None,
    name: str | None = None,
    out: Path_ | None = None,
    overwrite: bool = False,
    cache: Path_ | None = None,
    progress: bool | None = None,
    model_options: _keys.Model | None = None,
    data_options: _keys.Data | None = None,
    **sections: Unpack[_keys.Sections],
) -> Run:
    """Trains a model over simulated clients, and returns the run.

    model: a ``torch.nn.Module``, a list of layers such as ``["flatten", "linear 10"]``, or a name
        (``macaw models``). A ``Sequential`` of layers that Macaw has trains in its fused kernels;
        any other module is scripted for LibTorch, ``macaw[torch]``. Its weights are the first
        model.
    data: ``(x, y)``, a dict of clients, a torch or Hugging Face ``Dataset`` (``macaw.prepare``
        tells what these may be), or the path of a file or folder.
    test: rows of the central test set. Without them, ``data_options=dict(test_fraction=…)`` of
        all rows, a tenth by default.
    features, label: the columns of a Hugging Face dataset.
    partition: who gets which rows, such as ``macaw.dirichlet(0.3, clients=1000)``.
    algorithm: such as ``macaw.FedProx(mu=0.1)``, its name, or a rule of one's own (macaw.rules).
    cohort: clients a round, a fraction of all (a float up to 1), or a dict of ``[cohort]``.
    rounds, seed: of the run.
    local: a dict of ``[local]``: epochs, batch_size, lr, …
    init: weights to start from: a dict of arrays, a safetensors file, or "zero".
    config: a configuration file to start from. What is given here replaces its keys.
    name, out: of the run, and its folder; by default ``runs/NAME``, ``runs/NAME-2``, …
    overwrite: replaces a run that is in the folder already.
    cache: where prepared data is kept.
    progress: a bar; by default in a terminal and in a notebook.
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
) -> Run:
    """Goes on with a run that was interrupted, or with more rounds.

    The result has the same bytes as that of a run that was never interrupted. model: the module
    of the run, for ``run.model()`` as its state dict.
    """
    settings: dict[str, Any] = {}
    _add(settings, "workers", workers or {})
    arguments = ["--resume", os.fspath(folder)]
    if rounds is not None:
        arguments += ["--rounds", str(rounds)]
    arguments += _overrides(settings)
    made = _model.Model({}, "", model, _model.names_of(model)) if model is not None else None
    return Stream(arguments, {}, made, progress).finish()


def keys_of(given: Mapping[str, Any]) -> tuple[dict[str, Any], _model.Model | None, Path]:
    """What the arguments of ``simulate`` say as keys; also the model, and the cache's folder."""
    if _rules.serving:
        raise ConfigError(
            "a run begins while the file of its rule is loaded: put what begins it under "
            'if __name__ == "__main__", or the rule into a file of its own'
        )
    left = {key: given[key] for key in given if key not in _NO_KEYS}
    cache = left.pop("cache", None)
    folder = Path(cache) if cache is not None else _data.cache_folder()
    settings: dict[str, Any] = {}
    own = {key: left.pop(key, None) for key in _ARGUMENTS}
    _add(settings, "", left)
    _add(settings, "run", {"name": own["name"], "rounds": own["rounds"], "seed": own["seed"]})
    options = dict(own["data_options"] or {})
    given = {name: own[name] for name in ("test", "features", "label")}
    _add_data(settings, own["data"], given, options, folder)
    _add(settings, "data", options)
    add_partition(settings, own["partition"])
    made = None
    if own["model"] is not None:
        made = _model.read(own["model"], own["init"], folder / "models")
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
    return settings, made, folder


def words_for(settings: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """What messages have in place of paths in the cache."""
    return {
        str(settings[f"{word}.{key}"]): word
        for word, key in (("data", "path"), ("model", "init"))
        if Path(str(settings.get(f"{word}.{key}"))).is_relative_to(folder)
    }


def to_toml(value: Any) -> str:
    """A value as TOML; paths become absolute."""
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
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return to_toml(value.tolist())
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
    settings: dict[str, Any],
    data: Any,
    given: dict[str, Any],
    options: dict[str, Any],
    folder: Path,
) -> None:
    """Of ``options``, takes the keys that name columns of what is in memory."""
    in_memory = not (data is None or isinstance(data, (str, os.PathLike)))
    if in_memory:
        for key, name in _data.COLUMN_KEYS.items():
            column = options.pop(key, None)
            if column is None:
                continue
            if given.get(name) is not None:
                raise ConfigError(f"{name}= and data.{key} say the same thing: give one of them")
            given[name] = column
        settings["data.source"] = "prepared"
        settings["data.path"] = _data.prepare(data, **given, cache=folder)
        return
    for name in ("features", "label"):
        if given[name] is not None:
            raise ConfigError(
                f"{name}= has no effect without data in memory that has columns; of a csv file "
                "data_options=dict(label_column=…, drop_columns=…) says them",
                key=name,
            )
    if data is None or (isinstance(data, str) and data == "synthetic"):
        if given["test"] is not None:
            raise ConfigError("test= has no effect without data= of the same kind", key="test")
        if data is not None:
            settings["data.source"] = data
        return
    settings["data.path"] = Path(data)
    if given["test"] is not None:
        settings["data.test_path"] = Path(given["test"])


def add_partition(settings: dict[str, Any], partition: Any) -> None:
    if isinstance(partition, Partition):
        _add(settings, "partition", {"scheme": partition.scheme, **partition.keys})
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
    if isinstance(cohort, float):
        settings["cohort.fraction"] = cohort
    elif isinstance(cohort, Mapping):
        _add(settings, "cohort", cohort)
    elif cohort is not None:
        settings["cohort.size"] = cohort
