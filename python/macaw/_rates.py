"""The learning rates of a turn of somebody else's optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Sgd:
    rate: float
    momentum: float
    nesterov: bool


class Rates:
    """What a rule divides by that counts the steps of SGD: SCAFFOLD's Σ η, FedNova's ‖a‖₁.

    ‖a‖₁ is how far the optimizer takes a weight that starts at 0 and has the constant gradient 1,
    divided by the rate: the number of steps without momentum (Wang et al. 2020, section 4). Where
    the rate changes in the turn, it is their mean.
    """

    def __init__(self, mu: float) -> None:
        """mu: of FedProx's part of the gradient, mu * (w - anchor)."""
        self._mu = mu
        self._now: _Sgd | None = None
        self._known = True  # that every step was one of SGD
        self._steps = 0
        self._sum = 0.0
        self._distance = 0.0
        self._velocity = 0.0

    def look(self, optimizer: Any) -> None:
        """Before a step: its rate is the one that the optimizer has now."""
        self._now = _sgd(optimizer)

    def step(self) -> None:
        self._steps += 1
        if self._now is None:
            self._known = False
            return
        moved = 1.0 - self._mu * self._distance
        if self._now.momentum != 0:
            self._velocity = self._now.momentum * self._velocity + moved
            ahead = moved + self._now.momentum * self._velocity
            moved = ahead if self._now.nesterov else self._velocity
        self._sum += self._now.rate
        self._distance += self._now.rate * moved

    def told(self, steps: int) -> dict[str, float | None]:
        """For the worker, of a turn of that many steps; None: the steps are not those of SGD."""
        if not self._known or self._steps != steps:
            return {"rate_sum": None, "a_norm1": None}
        share = self._distance / self._sum if self._sum != 0 else 1.0
        return {"rate_sum": self._sum, "a_norm1": self._steps * share}


def set_rate(optimizer: Any, schedules: Iterable[Any], rate: float) -> None:
    """The rate of a turn. A schedule that has begun keeps its factor, a warm-up among them."""
    for group in optimizer.param_groups:
        first = group.get("initial_lr")
        group["lr"] = rate * (group["lr"] / first if first else 1.0)
        if first is not None:
            group["initial_lr"] = rate
    for schedule in schedules:
        for part in (schedule, *getattr(schedule, "_schedulers", ())):
            if hasattr(part, "base_lrs"):
                part.base_lrs = [rate] * len(part.base_lrs)


def _sgd(optimizer: Any) -> _Sgd | None:
    """Of torch.optim.SGD, with the same rate for all parameters; None: it is something else."""
    import torch

    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer  # what Accelerate and Lightning put around it
    if type(optimizer) is not torch.optim.SGD:
        return None
    rules = {
        (float(g["lr"]), float(g["momentum"]), bool(g["nesterov"]), g["dampening"])
        for g in optimizer.param_groups
        if any(p.requires_grad for p in g["params"])
    }
    if len(rules) != 1 or any(g.get("maximize") for g in optimizer.param_groups):
        return None
    rate, momentum, nesterov, dampening = rules.pop()
    return _Sgd(rate, momentum, nesterov) if momentum == 0 or dampening == 0 else None
