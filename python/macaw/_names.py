"""Names of other systems for what is asked for here, and errors in the words of Python."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from .errors import ArgumentError, ConfigError, Error

# Arguments of Flower, pfl-research, FedML and scikit-learn, and the line to write here.
_ARGUMENTS = {
    "num_rounds": "rounds=…",
    "n_rounds": "rounds=…",
    "num_clients": "partition=macaw.iid(clients=…)",
    "n_clients": "partition=macaw.iid(clients=…)",
    "num_supernodes": "partition=macaw.iid(clients=…)",
    "clients": "partition=macaw.iid(clients=…)",
    "alpha": "partition=macaw.dirichlet(concentration=…, clients=…)",
    "strategy": "algorithm=macaw.FedAvg()",
    "aggregator": "algorithm=macaw.FedAvg()",
    "fraction_fit": "cohort=… (a float is a fraction of all clients)",
    "fraction_train": "cohort=… (a float is a fraction of all clients)",
    "cohort_size": "cohort=…",
    "clients_per_round": "cohort=…",
    "min_fit_clients": "cohort=…",
    "lr": "local=dict(lr=…)",
    "learning_rate": "local=dict(lr=…)",
    "eta": "local=dict(lr=…)",
    "epochs": "local=dict(epochs=…)",
    "local_epochs": "local=dict(epochs=…)",
    "batch_size": "local=dict(batch_size=…)",
    "optimizer": 'local=dict(optimizer="adam")',
    "momentum": "local=dict(momentum=…)",
    "weight_decay": "local=dict(weight_decay=…)",
    "random_state": "seed=…",
    "random_seed": "seed=…",
    "n_jobs": "workers=dict(slots=…)",
    "num_workers": "workers=dict(slots=…)",
    "max_iter": "rounds=…",
    "verbose": "progress=True",
    "repeat": "macaw.sweep(…, repeat=…)",
    "repeats": "macaw.sweep(…, repeat=…)",
    "seeds": "macaw.sweep(…, seeds=[…])",
    "X": "data=(x, y)",
    "x": "data=(x, y)",
    "y": "data=(x, y)",
    "dataset": "data=…",
    "train_data": "data=…",
    "test_data": "test=…",
    "valset": "test=…",
    "target": "label=…",
    "device": 'workers=dict(backend="cuda")',
    "fit": "train=function",
    "train_fn": "train=function",
    "client_fn": "train=function",
    "loss_fn": "loss=function",
    "criterion": "loss=function",
    "evaluate_fn": "on_round=function (run.model() is the round's), or metrics=dict(…)",
    "callbacks": "on_round=function",
    "dropna": 'missing="mean", or data=df.dropna()',
    "epsilon": "privacy=dict(epsilon=…)",
    "lora": "peft=LoraConfig(…)",
    "peft_config": "peft=LoraConfig(…)",
    "compression": 'update=dict(codec=["topk 0.01"])',
    "compressor": 'update=dict(codec=["topk 0.01"])',
    "quantization": 'update=dict(codec=["bits 8"])',
}
# Keys that are so common that they are arguments, too.
_SHORT = {"task": "run", "dtype": "run", "track": "run", "checkpoint_every": "run"}

_PARAMETERS = {
    "alpha": "concentration",
    "beta": "concentration",
    "num_clients": "clients",
    "n_clients": "clients",
    "num_partitions": "clients",
    "n_partitions": "clients",
    "num_shards_per_partition": "shards_per_client",
    "num_classes_per_partition": "classes_per_client",
    "random_state": "seed",
    "proximal_mu": "mu",
    "prox_mu": "mu",
    "server_learning_rate": "server_lr",
    "eta": "server_lr",
    "server_momentum": "momentum",
}


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a run; names of other systems are refused with the line to write."""
    left = dict(given)
    for name, table in _SHORT.items():
        if left.get(name) is not None:
            left[table] = {**(left.get(table) or {}), name: left[name]}
        left.pop(name, None)
    for name, value in left.items():
        if value is not None and name in _ARGUMENTS:
            meant = _ARGUMENTS[name]
            raise ConfigError(f"unknown argument {name}; did you mean {meant}?", key=name,
                              nearest=meant)  # fmt: skip
    return left


def embeds(model: Any, run: Any) -> bool:
    """Whether the model takes tokens, as far as can be seen; True where it cannot."""
    if isinstance(run, Mapping) and run.get("task") == "next-token":
        return True
    if isinstance(model, str):
        return model.startswith("char_")
    if isinstance(model, Sequence):
        return any(str(layer).startswith("embedding") for layer in model)
    if hasattr(model, "modules"):
        return any("Embedding" in type(layer).__name__ for layer in model.modules())
    return True


def refuse_unknown(
    title: str, known: Sequence[str], given: Iterable[str], of: str = "macaw."
) -> None:
    """An ArgumentError for the first of `given` that is unknown, with what was probably meant.

    of: the module that has the function or class; empty for one of the caller's own.
    """
    for key in given:
        if key in known:
            continue
        if title == "resume":
            raise ArgumentError(_of_the_run(key, known), key=key)
        meant = _PARAMETERS.get(key)
        if meant not in known:
            meant = next(iter(get_close_matches(key, known, 1)), None)
        question = f"; did you mean {meant}?" if meant else ";"
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise ArgumentError(
            f"{of}{title} has no argument {key}{question} {there}", key=key, nearest=meant
        )


def needed_by(function: Callable[..., Any]) -> list[str]:
    """The parameters that a call must give: those that have no default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a function of C
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]


def _of_the_run(key: str, known: Sequence[str]) -> str:
    """Why a resume does not take this argument."""
    takes = f"macaw.resume takes {', '.join(known)}"
    if key in ("train", "loss", "evaluate"):
        return (
            f"{takes}: a run goes on with the {key}= that it began with, whose file is part of the "
            f"run; leave {key}= out. With another function it is another run: macaw.simulate(…)"
        )
    return (
        f"{takes}, and not {key}: everything else is the run's own, RUN/config.toml. With other "
        "values it is another run: macaw.simulate(…)"
    )


_Function = TypeVar("_Function", bound=Callable[..., Any])


def checked(function: _Function) -> _Function:
    """The same function; a wrong call is an ArgumentError that names what was probably meant."""
    signature = inspect.signature(function)
    known = list(signature.parameters)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        refuse_unknown(function.__name__, known, given)
        try:
            signature.bind(*args, **given)
        except TypeError as error:
            there = ", ".join(known)
            raise ArgumentError(f"macaw.{function.__name__}: {error}; it has {there}") from None
        return function(*args, **given)

    return call  # type: ignore[return-value]


def unknown_name(name: str, there: Sequence[str]) -> str | None:
    """The name in this package that was probably meant."""
    theirs = {
        "run": "simulate", "run_simulation": "simulate", "start_simulation": "simulate",
        "fit": "simulate", "train": "simulate", "load": "Run", "GridSearchCV": "sweep",
        "DirichletPartitioner": "dirichlet", "IidPartitioner": "iid",
        "ShardPartitioner": "shards", "NaturalIdPartitioner": "natural",
        "PathologicalPartitioner": "k_classes", "FederatedAveraging": "FedAvg",
    }  # fmt: skip
    if name in theirs:
        return theirs[name]
    lower = {other.lower(): other for other in there}
    found = lower.get(name.lower()) or lower.get(name.lower().replace("_", ""))
    return found or next(iter(get_close_matches(name, there, 1, 0.7)), None)


# What the program says to its command line, and the same to Python.
_WORDS = (
    ("--resume goes on with it, --force replaces it",
     "macaw.resume(…) goes on with it, overwrite=True replaces it"),
    ("name a new folder, or --force to run in it", "give another out=…, or overwrite=True"),
    (
        "ask for more with --rounds (macaw-server: run.rounds)",
        "ask for more with macaw.resume(…, rounds=…)",
    ),
    ("go on with macaw simulate --resume", "go on with macaw.resume(…)"),
    ("macaw simulate --force, or another folder", "overwrite=True, or another out=…"),
    ("or replace it with --force", "or replace it with overwrite=True"),
    ("which --force would remove", "which overwrite=True would remove"),
    ("name another --out", "give another out=…"),
    ("--out (or run.out) names", "out=… names"),
    ("give this state up with --resume DIR",
     "give this state up with the command macaw simulate --resume DIR"),
    ("--retry-failed tries them again",
     "the command macaw sweep with --retry-failed tries them again"),
    ("the same command tries them again", "the same call tries them again"),
    ("is not a finite number",
     "is not a finite number (of words and gaps: data=pandas.read_csv(…), label=…, missing=…)"),
)  # fmt: skip


def in_python(message: str) -> str:
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return re.sub(r"--set (?=[a-z_]+(\.[a-z_]+)*=)", "", message)


def _of_labels(message: str) -> bool:
    return any(word in message for word in ("regression", "targets", "classes", "needs [1]"))


def explained(error: Error, hints: Mapping[str, str]) -> Error:
    """The error, with what about the data may explain it. hints: by the beginnings of keys."""
    key, said = error.key or "", str(error)
    more = []
    for hint, keys in hints.items():
        if key.startswith(tuple(keys.split())) and ("regression" not in hint or _of_labels(said)):
            more.append(hint)
    if more:
        error.args = (f"{error} ({'; '.join(more)})",)
    return error
