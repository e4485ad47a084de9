"""A round's weights in a module of the caller's, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._safetensors import Array


class Weights:
    """The tensors of a run in a module that stays from turn to turn.

    The run may know a part of the module: `net.0.weight` of a LightningModule is `0.weight` of a
    run whose model is `net`. Buffers that the run does not know are put back before each turn, so
    that no client sees what another one has left there.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._places: dict[str, Any] = {}
        self._rest: list[tuple[Any, Any]] = []
        self._trained: set[str] = set()

    def load(self, weights: Mapping[str, Array], trainable: set[str] | None = None) -> None:
        """trainable: the tensors that the turn trains; None: nothing is trained."""
        import torch

        if not self._places:
            self._find(weights)
        with torch.no_grad():
            for name, array in weights.items():
                self._places[name].copy_(torch.from_numpy(np.array(array)))
            for buffer, value in self._rest:
                buffer.copy_(value)
        for name in self._trained:
            self._places[name].requires_grad_(trainable is None or name in trainable)
            self._places[name].grad = None

    def taken(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """What the module holds now, of the run's dtype."""
        return {
            name: np.asarray(self._places[name].detach().cpu().float().numpy(), array.dtype)
            if self._places[name].element_size() < 4
            else np.asarray(self._places[name].detach().cpu().numpy(), array.dtype)
            for name, array in weights.items()
        }

    def correct(self, task: Any) -> None:
        """Adds mu * (w - anchor) + v to the gradients: FedProx, SCAFFOLD, FedDyn, Ditto."""
        import torch

        if task.mu == 0 and task.correction is None:
            return
        with torch.no_grad():
            for name in self._trained:
                place = self._places[name]
                if place.grad is None:
                    continue
                if task.mu != 0:
                    anchor = torch.from_numpy(np.array(task.anchor[name])).to(place)
                    place.grad.add_(place - anchor, alpha=task.mu)
                if task.correction is not None:
                    place.grad.add_(torch.from_numpy(np.array(task.correction[name])).to(place))

    def _find(self, weights: Mapping[str, Array]) -> None:
        parameters = dict(self._module.named_parameters())
        buffers = dict(self._module.named_buffers())
        there = {**parameters, **buffers}
        prefix = _prefix(weights, there)
        for name, array in weights.items():
            place = there.get(prefix + name)
            if place is None or tuple(place.shape) != array.shape:
                found = "none of that name" if place is None else f"{list(place.shape)} there"
                raise TypeError(
                    f"the run's tensor {name} {list(array.shape)} has no place in the trainer's "
                    f"{type(self._module).__name__} ({found}): the run trains another model; "
                    "macaw.model_table(module, path) writes the [model] of this one"
                )
            self._places[name] = place
        missed = [
            name
            for name, parameter in parameters.items()
            if parameter.requires_grad and name.removeprefix(prefix) not in weights
        ]
        if missed:
            raise TypeError(
                f"the trainer trains {', '.join(missed[:3])}{', …' * (len(missed) > 3)}, which the "
                "run's model does not have: freeze it (requires_grad_(False)), or let the run's "
                "[model] have it (macaw.model_table)"
            )
        self._trained = {n for n, place in self._places.items() if place.requires_grad}
        self._rest = [
            (buffer, buffer.detach().clone())
            for name, buffer in buffers.items()
            if name.removeprefix(prefix) not in weights
        ]


def _prefix(weights: Mapping[str, Array], there: Mapping[str, Any]) -> str:
    """What stands before the run's names in the module; empty where nothing fits."""
    first = next(iter(weights))
    for name in there:
        prefix = name.removesuffix(first)
        if name.endswith(first) and all(prefix + other in there for other in weights):
            return prefix
    return ""
