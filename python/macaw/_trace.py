"""Modules that torch.jit.script refuses, traced on two rows of the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _modules
from .errors import ModelError

PREFIX = "macaw_net."  # of tensor names, where a module's outputs had to be unpacked


def traced(module: Any, example: Any, refused: str) -> Any:
    """A trace of the module; raises where a trace would not be the module.

    It is traced in training mode. The back end drops in training alone, whatever the trace says.
    """
    import torch

    reason = f"torch.jit.script refuses it ({refused})"
    if example is None:
        raise ModelError(
            f"model: {reason}, and the shape of the data is not known here to trace it: "
            "save torch.jit.trace(net, x[:2]) yourself and give model_options="
            'dict(torchscript="net.pt"), or train with a program of your own (training/README.md)'
        )
    with untouched(module):
        with _modules.dropping_nothing(module):
            one, other = _outputs(module, example, reason)
        if not torch.equal(one, other):
            raise ModelError(
                f"model: {reason}, and a trace would keep one mode: the module computes something "
                "else in training than in evaluation (such as batch norm); make it scriptable, or "
                "train with a program of your own (training/README.md)"
            )
        module.train()
        whole = module if torch.is_tensor(module(example)) else _unpacking(module)
        try:
            return torch.jit.trace(whole, (example,), check_trace=False)
        except Exception as error:
            raise ModelError(f"model: {reason}, and torch.jit.trace, too: {error}") from error


def logits_of(outputs: Any) -> Any:
    """What a run takes as the logits of a module's outputs; None if there is no such thing."""
    import torch

    if torch.is_tensor(outputs):
        return outputs
    if hasattr(outputs, "logits"):  # Hugging Face
        return outputs.logits
    if isinstance(outputs, (tuple, list)) and outputs and torch.is_tensor(outputs[0]):
        return outputs[0]
    return None


def _outputs(module: Any, example: Any, reason: str) -> list[Any]:
    """The logits in training and in evaluation mode, with the same random numbers."""
    import torch

    both = []
    for training in (True, False):
        module.train(training)
        torch.manual_seed(0)
        try:
            logits = logits_of(module(example))
        except Exception as error:
            raise ModelError(
                f"model: the module's forward failed on x of shape {list(example.shape)} and type "
                f"{example.dtype}: {error}",
                key="model",
            ) from error
        if logits is None:
            raise ModelError(
                f"model: {reason}, and its forward returns no tensor; return the logits, or "
                "logits and a representation"
            )
        both.append(logits.detach())
    return both


def _unpacking(module: Any) -> Any:
    import torch

    class Unpacking(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.macaw_net = module

        def forward(self, x: Any) -> Any:
            return logits_of(self.macaw_net(x))

    return Unpacking()


@contextmanager
def untouched(module: Any) -> Iterator[None]:
    """Puts back what a forward pass changes: buffers, modes, gradients, the random generator."""
    import torch

    modes = {layer: layer.training for layer in module.modules()}
    values = [(t, t.detach().clone()) for t in (*module.parameters(), *module.buffers())]
    gradients = [(p, p.grad) for p in module.parameters()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for tensor, value in values:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
        for layer, mode in modes.items():
            layer.training = mode
        for parameter, gradient in gradients:
            parameter.grad = gradient
