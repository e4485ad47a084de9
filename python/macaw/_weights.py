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
        # Of the run's tensors, by their names in the module. A trainer that moves its module to a
        # GPU replaces buffers, so tensors are looked up in each turn.
        self._names: dict[str, str] = {}
        self._rest: dict[str, Any] = {}  # what buffers hold that the run does not know
        self._trained: set[str] = set()

    def load(self, weights: Mapping[str, Array], trainable: set[str] | None = None) -> None:
        """trainable: the tensors that the turn trains; None: nothing is trained."""
        import torch

        if not self._names:
            self._find(weights)
        there = self._tensors()
        with torch.no_grad():
            for name, array in weights.items():
                there[self._names[name]].copy_(torch.from_numpy(np.array(array)))
            for name, value in self._rest.items():
                self._put_back(name, value, there.get(name))
        for name in self._trained:
            place = there[self._names[name]]
            place.requires_grad_(trainable is None or name in trainable)
            place.grad = None

    def taken(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """What the module holds now, of the run's dtype."""
        there = self._tensors()
        ends = {}
        for name, array in weights.items():
            end = there[self._names[name]].detach().cpu()
            ends[name] = np.asarray(
                (end.float() if end.element_size() < 4 else end).numpy(), array.dtype
            )
        return ends

    def correct(self, task: Any) -> None:
        """Adds mu * (w - anchor) + v to the gradients: FedProx, SCAFFOLD, FedDyn, Ditto."""
        import torch

        if task.mu == 0 and task.correction is None:
            return
        there = self._tensors()
        with torch.no_grad():
            for name in self._trained:
                place = there[self._names[name]]
                if place.grad is None:
                    continue
                if task.mu != 0:
                    anchor = torch.from_numpy(np.array(task.anchor[name])).to(place)
                    place.grad.add_(place - anchor, alpha=task.mu)
                if task.correction is not None:
                    place.grad.add_(torch.from_numpy(np.array(task.correction[name])).to(place))

    def _tensors(self) -> dict[str, Any]:
        return {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}

    def _put_back(self, name: str, value: Any, there: Any) -> None:
        if there is not None and there.shape == value.shape:
            there.copy_(value)
            return
        owner, _, buffer = name.rpartition(".")  # a turn has made one of another shape
        value = value.clone() if there is None else value.clone().to(there.device)
        setattr(self._module.get_submodule(owner), buffer, value)

    def _find(self, weights: Mapping[str, Array]) -> None:
        parameters = dict(self._module.named_parameters())
        buffers = dict(self._module.named_buffers())
        there = {**parameters, **buffers}
        prefix = _prefix(weights, there)
        names = {name: prefix + name for name in weights}
        for name, array in weights.items():
            place = there.get(names[name])
            if place is None or tuple(place.shape) != array.shape:
                found = "none of that name" if place is None else f"{list(place.shape)} there"
                raise TypeError(
                    f"the run's tensor {name} {list(array.shape)} has no place in the trainer's "
                    f"{type(self._module).__name__} ({found}): the run trains another model; "
                    "macaw.model_table(module, path) writes the [model] of this one"
                )
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
        self._trained = {name for name, inside in names.items() if there[inside].requires_grad}
        self._names = names
        self._rest = {
            name: buffer.detach().clone()
            for name, buffer in buffers.items()
            if name.removeprefix(prefix) not in weights
        }


def _prefix(weights: Mapping[str, Array], there: Mapping[str, Any]) -> str:
    """What stands before the run's names in the module; empty where nothing fits."""
    first = next(iter(weights))
    for name in there:
        prefix = name.removesuffix(first)
        if name.endswith(first) and all(prefix + other in there for other in weights):
            return prefix
    return ""
