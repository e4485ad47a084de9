"""What travels between the server and the clients of a rule, and what stays: its channels.

The programs have this file inside (_rules.py). Users import its classes from macaw.rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]


class Layout:
    """How a flat vector holds named tensors.

    Parameters come first, then buffers (batch-norm statistics). Each tensor starts at a multiple of
    64 bytes; what lies between two tensors is zero.

    size: elements, those between tensors included. parameters: elements before the buffers.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.dtype: Any = np.dtype(fields["dtype"])
        self.size: int = fields["size"]
        self.parameters: int = fields["parameters"]
        self.entries: list[dict[str, Any]] = fields["entries"]

    def tensors(self, vector: Array) -> dict[str, Array]:
        """The named tensors of a flat vector, as views of it."""
        return {
            e["name"]: vector[e["offset"] : e["offset"] + e["size"]].reshape(e["shape"])
            for e in self.entries
        }

    def zeros(self) -> Array:
        """A flat vector of zeros."""
        return np.zeros(self.size, self.dtype)


@dataclasses.dataclass(frozen=True)
class Down:
    """A vector of the server half that every client receives, under its name there.

    size: None for the model's tensors, else how many float64 numbers. phases: empty for all.
    """

    name: str
    size: int | None = None
    phases: Sequence[int] = ()


@dataclasses.dataclass(frozen=True)
class Up:
    """What every client returns under this name, and how the clients' vectors are combined.

    "weighted_mean" by the run's weights, "mean", "sum" divided by `divisor`, "max", or "collect":
    every client's own. bound: a client with a larger |value| is left out; None for the run's.
    """

    name: str
    reduce: Literal["weighted_mean", "mean", "sum", "max", "collect"] = "weighted_mean"
    size: int | None = None
    divisor: float = 1.0
    bound: float | None = None
    phases: Sequence[int] = ()


@dataclasses.dataclass(frozen=True)
class State:
    """A vector that stays: of a client (Schema.state) or of the server (Schema.server).

    It begins at zero. size: None for the model's tensors, else how many float64 numbers. summed:
    the server keeps the sum of this state over all clients, as SCAFFOLD's c sums all c_i. If a
    client loses its state, the sum would still contain it. So all clients begin anew then, and the
    rule's forget_states() must set its sum back.
    """

    name: str
    size: int | None = None
    summed: bool = False


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number of the rule's own, the column rule_NAME of metrics.jsonl.

    reduce: how the clients' values are combined, as for Up; None where apply() reports it.
    """

    name: str
    reduce: Literal["weighted_mean", "mean", "sum", "max"] | None = "mean"
    bound: float = 2.0**40
    phases: Sequence[int] = ()


@dataclasses.dataclass(frozen=True)
class Schema:
    """What travels and what stays. A plain name stands for a Down or State of the model's tensors.

    The first channel down is the model. Every channel down is a vector of the server half, too;
    `server` names the ones that it keeps to itself, `numbers` its numbers and how they begin.
    """

    down: Sequence[Down | str] = ("model",)
    up: Sequence[Up] = (Up("delta"),)
    state: Sequence[State | str] = ()
    server: Sequence[State | str] = ()
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metrics: Sequence[Metric] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregated:
    """The cohort's result on a channel.

    value: None where nobody contributed to a mean, and for "collect". weight: the sum of the
    weights, or the number of contributions. collected: (client, vector) by client, for "collect".
    """

    value: Array | None
    weight: float
    collected: Sequence[tuple[int, Array]] = ()
