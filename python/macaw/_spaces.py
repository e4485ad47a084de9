"""Spaces: what an argument of ``macaw.sweep`` takes in place of a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .algorithms import Algorithm
from .errors import ArgumentError, ConfigError
from .partitions import Partition
from .rules import Rule


@dataclass(frozen=True)
class Space:
    """What an argument of ``macaw.sweep`` takes: values to try, or a range to draw from."""

    kind: Literal["grid", "choice", "uniform", "log_uniform", "integers"]
    values: tuple[Any, ...]


def grid(values: Sequence[Any] = (), *more: Any) -> Any:
    """Tries each value of the list, with each combination of other grids."""
    return Space("grid", _several("grid", values, more))


def choice(values: Sequence[Any] = (), *more: Any) -> Any:
    """Draws one of the values for each sample; without ``samples`` each is tried, as by grid."""
    return Space("choice", _several("choice", values, more))


def uniform(low: float, high: float) -> Any:
    """Draws a number."""
    return Space("uniform", (low, high))


def log_uniform(low: float, high: float) -> Any:
    """Draws a number whose logarithm is uniform: for rates and the like. low > 0."""
    return Space("log_uniform", (low, high))


def integers(low: int, high: int) -> Any:
    """Draws a whole number; both ends may be drawn."""
    return Space("integers", (low, high))


def _several(kind: str, values: Any, more: tuple[Any, ...]) -> tuple[Any, ...]:
    if more:
        listed = ", ".join(map(repr, (values, *more)))
        raise ArgumentError(
            f"macaw.{kind} takes one list: macaw.{kind}([{listed}])", key="values"
        )
    whole = isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__")
    if whole or not (found := tuple(values)):
        raise ArgumentError(
            f"macaw.{kind} takes a list of values, macaw.{kind}([a, b]); found {values!r}",
            key="values",
        )
    return found


# Arguments of simulate that are one value for all runs of a sweep.
_FIXED = (
    *("data", "test", "features", "label", "client", "missing", "normalise", "init", "config"),
    *("evaluate", "on_round", "metrics", "name", "out", "overwrite", "cache", "progress"),
    "check_model",
)


def refuse_in_a_run(given: Mapping[str, Any]) -> None:
    """A ConfigError for the first space in the arguments of one run, with the line to write."""
    refuse_fixed(given)
    for argument, value in given.items():
        for key, line, space in _spaces_in(argument, value):
            shown = f"macaw.{space.kind}(…)"
            line = "seeds=[…]" if key == "seed" else line.format(shown)
            raise ConfigError(
                f"{key} is {shown}, and a run takes one value: macaw.sweep tries several, "
                f"macaw.sweep(…, {line}, out=…)",
                key=key,
                nearest="macaw.sweep",
            )


def refuse_fixed(given: Mapping[str, Any]) -> None:
    """A ConfigError for an argument that is a space and cannot vary in a sweep."""
    for argument in _FIXED:
        if isinstance(space := given.get(argument), Space):
            raise ConfigError(
                f"{argument} is macaw.{space.kind}(…), and all runs of a sweep have one "
                f"{argument}: call macaw.sweep or macaw.simulate for each",
                key=argument,
            )


def _spaces_in(argument: str, value: Any) -> Iterator[tuple[str, str, Space]]:
    """Each space: its key, and the argument with braces in place of the space."""
    inner: Mapping[Any, Any] = {}
    around = "dict"
    if isinstance(value, Space):
        yield argument, f"{argument}={{}}", value
    elif isinstance(value, Algorithm):
        inner, around = value.parameters(), f"macaw.{type(value).__name__}"
    elif isinstance(value, Rule):
        inner, around = value.parameters(), type(value).__name__
    elif isinstance(value, Partition):
        inner, around = value.keys, "macaw.…"
    elif isinstance(value, Mapping) and argument not in _FIXED:
        inner = value
    for name, part in inner.items():
        for key, line, space in _spaces_in(str(name), part):
            yield f"{argument}.{key}", f"{argument}={around}({line})", space
