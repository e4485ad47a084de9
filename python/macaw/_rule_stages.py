"""The local work of a client: the stages that a rule asks for, and what comes of them.

The programs have this file inside (_rules.py). Users import its classes from macaw.rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from macaw._rule_channels import Array


@dataclasses.dataclass(frozen=True)
class Local:
    """The keys of [local]; lr and steps are the round's."""

    epochs: int
    steps: int
    qsr: float
    batch_size: int
    optimizer: str
    lr: float
    momentum: float
    nesterov: bool
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip_norm: float
    clip: str
    class_weights: Sequence[float]
    label_smoothing: float
    drop_last: bool
    shuffle: bool
    precision: str
    micro_batch: int
    checkpoint: bool


@dataclasses.dataclass(frozen=True)
class StageEnd:
    """The result of the client's earlier stage, counted from 0: a point for a later stage."""

    stage: int


Point = Array | StageEnd


@dataclasses.dataclass(frozen=True, eq=False)
class Train:
    """Local training from `start`, with g <- g + mu * (w - anchor) + v in each step.

    v: pairs of a vector and its factor, which are added. anchor: None for start. local: None for
    the run's; dataclasses.replace(ctx.local, epochs=1) changes it. trainable: names of the tensors
    to train, None for all. losses: "personal" where the trained model stays with the client.
    """

    start: Point
    mu: float = 0.0
    anchor: Point | None = None
    v: Sequence[tuple[Point, float]] = ()
    local: Local | None = None
    trainable: Iterable[str] | None = None
    rows: Literal["train", "validation", "test"] = "train"
    losses: Literal["train", "personal"] = "train"


@dataclasses.dataclass(frozen=True, eq=False)
class Gradient:
    """The mean gradient at a point over all rows. It is the outcome's end."""

    start: Point
    rows: Literal["train", "validation", "test"] = "train"


@dataclasses.dataclass(frozen=True, eq=False)
class Loss:
    """The sums of losses and metrics at a point over all rows."""

    start: Point
    rows: Literal["train", "validation", "test"] = "train"


Stage = Train | Gradient | Loss


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a stage.

    end: the weights after the last step, or the gradient; read-only, valid until conclude returns.
    rate_sum: the learning rates of the steps, added. a_norm1: FedNova's norm of the optimizer.
    examples: rows used, counting repetitions. sums: "examples", "loss", "correct", …
    """

    end: Array
    steps: int
    rate_sum: float
    a_norm1: float
    examples: int
    sums: Mapping[str, float]


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """What a client returns: all channels and metrics of the phase, and its next state.

    Vectors are flat arrays of the channel's size and dtype, torch tensors, or dicts of tensors by
    name. state: all of the schema's, or empty where it does not change.
    """

    up: Mapping[str, Any]
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
