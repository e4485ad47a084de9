"""What a module's outputs are: logits, as a run takes them, or probabilities already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _modules, _safetensors, _trace

# Operations that change the shape alone: what came before them is looked at.
_SHAPES = (
    *("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Alias", "Transpose", "T"),
    *("Permute", "Select", "Slice", "Clone", "ToCopy", "AsStrided"),
)
_ENDS = {"Softmax": "softmax", "SafeSoftmax": "softmax", "Sigmoid": "sigmoid"}


def note(module: Any, x: Any, settings: Mapping[str, Any], own_loss: bool) -> str | None:
    """Says that the module ends with what the run's loss applies itself; None: it does not.

    module: a ``torch.nn.Module``, or the text of the last layer. x: two rows as the module gets
    them, or None. own_loss: the clients train by a loss of the caller's.

    ``LogSoftmax`` is not named: the loss applies it again, which changes nothing.
    """
    end = module.split()[0].capitalize() if isinstance(module, str) else _end_of(module, x)
    task = _task(settings)
    if (
        end not in _ENDS
        or task in ("regression", "reconstruction")
        or (task is None and end == "Sigmoid")
    ):
        return None
    who = "the run's evaluation takes" if own_loss else "the run's loss and evaluation take"
    why = "accuracy and test loss are wrong" if own_loss else "it trains slowly and ends worse"
    name = _ENDS[end]
    return (
        f"model: its outputs are those of {name}, and {who} logits, to which they apply softmax "
        f"(of one output: sigmoid): with both, {why}. Leave the last {name} out; "
        f"torch.{name}(net(x){', 1' if name == 'softmax' else ''}) gives probabilities after "
        "the run"
    )


def shape_of(module: Any, x: Any) -> tuple[int, ...] | None:
    """The shape of the module's logits for these rows; None where it makes none."""
    import torch

    with _modules.untouched(module), torch.no_grad():
        module.eval()
        try:
            logits = _trace.logits_of(module(x.to(next(module.parameters()).device)))
        except Exception:  # said where the module is read
            return None
    return tuple(logits.shape) if torch.is_tensor(logits) else None


def classes_in(settings: Mapping[str, Any]) -> int:
    """How many classes the labels of the prepared data show."""
    labels = _safetensors.read(Path(settings["data.path"]))["labels"]
    return int(labels.max()) + 1 if labels.size else 0


def is_regression(settings: Mapping[str, Any]) -> bool:
    return bool(_task(settings) == "regression")


def _task(settings: Mapping[str, Any]) -> Any:
    """ "regression", another task, or None where nothing says it before the run."""
    if "run.task" in settings:
        return settings["run.task"]
    if settings.get("data.source") != "prepared" or "data.path" not in settings:
        return None
    labels = _safetensors.read(Path(settings["data.path"]))["labels"]
    return "regression" if labels.dtype == np.float32 else "classification"


def _end_of(module: Any, x: Any) -> str | None:
    """The operation that makes the logits, by the name that autograd has for it."""
    import torch

    if x is None:
        return _last_layer(module)
    with _modules.untouched(module), torch.enable_grad():
        module.eval()
        try:
            parameter = next(module.parameters())
            logits = _trace.logits_of(module(x.to(parameter.device)))
        except Exception:  # said where the module is read
            return None
        node = logits.grad_fn if torch.is_tensor(logits) else None
        while node is not None:
            name = node.name().partition("Backward")[0]
            if name not in _SHAPES or not node.next_functions:
                return str(name)
            node = node.next_functions[0][0]
    return None


def _last_layer(module: Any) -> str | None:
    """The class of the last layer of a Sequential."""
    kind = type(module).__name__
    if kind == "Sequential" and len(module) > 0:
        return _last_layer(module[-1])
    return kind
