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
        self.module = module  # a loop that puts a wrapper around it says so here
        # Of the run's tensors, by their names in the module. A trainer that moves its module to a
        # GPU replaces buffers, so tensors are looked up in each turn.
        self._names: dict[str, str] = {}
        self._rest: dict[str, Any] = {}  # what buffers hold that the run does not know
        self._trained: set[str] = set()

    def load(self, weights: Mapping[str, Array], task: Any = None) -> None:
        """task: a turn that trains the tensors of task.trainable; None: nothing is trained."""
        import torch

        if not self._names:
            self._find(weights)
        there = self._tensors()
        trainable = None if task is None else task.trainable
        with torch.no_grad():
            self._set(weights)
            for name, value in self._rest.items():
                self._put_back(name, value, there.get(name))
        for name in self._trained:
            place = there[self._names[name]]
            place.requires_grad_(trainable is None or name in trainable)
            place.grad = None

    def taken(self, weights: dict[str, Array]) -> dict[str, Array]:
        """What the module holds now, of the run's dtype."""
        there = self._tensors()
        return {
            name: np.asarray(array_of_tensor(there[self._names[name]]), array.dtype)
            for name, array in weights.items()
        }

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

    def _set(self, weights: Mapping[str, Array]) -> None:
        import torch

        there = self._tensors()
        for name, array in weights.items():
            there[self._names[name]].copy_(torch.from_numpy(np.array(array)))

    def _parameters(self) -> dict[str, Any]:
        return dict(self.module.named_parameters())

    def _buffers(self) -> dict[str, Any]:
        return dict(self.module.named_buffers())

    def _tensors(self) -> dict[str, Any]:
        return {**self._parameters(), **self._buffers()}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors that a run may have."""
        return {name: tuple(tensor.shape) for name, tensor in self._tensors().items()}

    def _put_back(self, name: str, value: Any, there: Any) -> None:
        if there is not None and there.shape == value.shape:
            there.copy_(value)
            return
        owner, _, buffer = name.rpartition(".")  # a turn has made one of another shape
        value = value.clone() if there is None else value.clone().to(there.device)
        setattr(self.module.get_submodule(owner), buffer, value)

    def _find(self, weights: Mapping[str, Array]) -> None:
        parameters, buffers, shapes = self._parameters(), self._buffers(), self._shapes()
        prefix = _prefix(weights, shapes)
        names = {name: prefix + name for name in weights}
        for name, array in weights.items():
            shape = shapes.get(names[name])
            if shape != array.shape:
                found = "none of that name" if shape is None else f"{list(shape)} there"
                raise TypeError(
                    f"the run's tensor {name} {list(array.shape)} has no place in the trainer's "
                    f"{type(self.module).__name__} ({found}): the run trains another model; "
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
        self._trained = {
            name
            for name, inside in names.items()
            if inside in parameters and parameters[inside].requires_grad
        }
        self._names = names
        self._rest = {
            name: buffer.detach().clone()
            for name, buffer in buffers.items()
            if name.removeprefix(prefix) not in weights
        }


def array_of_tensor(tensor: Any) -> Array:
    tensor = tensor.detach().cpu()
    array: Array = (tensor.float() if tensor.element_size() < 4 else tensor).numpy()
    return array


def array_given(name: str, value: Any, dtype: Any, *, whole: bool = False) -> Array:
    """A tensor that a train function has returned, of the run's dtype.

    whole: the model's own has whole numbers. Kinds of numbers that the run's dtype cannot stand for
    are refused: casting them would train another model without a word.
    """
    if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
        raise TypeError(
            f"the train function returned {name} with masked values, which a model has not: fill "
            "them, such as value.filled(0)"
        )
    if hasattr(value, "detach"):  # of torch, whose bfloat16 NumPy has not
        value = value.detach().cpu()
        if value.is_floating_point() and value.element_size() < 4:
            value = value.float()
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype == object:
        array = np.array(array.tolist())
    floats = array.dtype.kind == "f" or array.dtype.name.startswith("bfloat")
    if floats or (whole and array.dtype.kind in "biu"):
        return np.asarray(array, dtype)
    advice = "return real numbers" if array.dtype.kind == "c" else "return floats"
    raise TypeError(
        f"the train function returned {name} as {array.dtype}, and the model has "
        f"{np.dtype(dtype)}: {advice}, and cast by astype(…) what is meant to be cast"
    )


def _prefix(weights: Mapping[str, Array], there: Mapping[str, Any]) -> str:
    """What stands before the run's names in the module; empty where nothing fits."""
    first = next(iter(weights))
    for name in there:
        prefix = name.removesuffix(first)
        if name.endswith(first) and all(prefix + other in there for other in weights):
            return prefix
    return ""
