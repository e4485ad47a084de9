"""Modules that torch.jit.script refuses, traced on two rows of the data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _modules
from .errors import ModelError

# The way out for a module that is for Python alone.
_IN_PYTHON = (
    "train it in Python: loss=f, with f(outputs, y), keeps the steps of [local], and train=f, with "
    "f(model, rows, ctx), has its own"
)

# Of a doubt that no comparison on some rows settles.
_BRANCH = "model: a trace keeps one branch"

PREFIX = "macaw_net."  # of tensor names, where the module is inside one of ours


def traced(module: Any, example: Any, refused: str) -> Any:
    """A trace of the module; raises where it cannot be traced.

    A trace keeps the mode in which it was made: training, since the back end drops in training
    alone, whatever the trace says. A module that computes something else in evaluation, such as
    batch norm, is traced in both modes. The two traces have the same tensors, and the mode chooses.
    """
    import torch

    reason = f"torch.jit.script refuses it ({refused})"
    if example is None:
        raise ModelError(
            f"model: {reason}, and the shape of the data is not known here to trace it: "
            "save torch.jit.trace(net, x[:2]) yourself and give model_options="
            'dict(torchscript="net.pt"), or train with a function of your own (train=fn)'
        )
    with _modules.untouched(module):
        with _modules.dropping_nothing(module):
            one, _, other = _outputs(module, example, reason)
        module.train()
        whole = module if torch.is_tensor(module(example)) else _unpacking(module)
        trained = _trace(whole, example, reason)
        # What differs may be random alone: then the second trace is not needed, and does no harm.
        if torch.equal(one, other):
            return trained
        module.eval()
        return torch.jit.script(_switching(trained, _trace(whole, example, reason)))


@contextmanager
def holding_doubts(doubts: list[str]) -> Iterator[None]:
    """Collects the texts of PyTorch's ``TracerWarning`` in place of showing them: a run compares
    its model with the module, and refuses it where they differ. Other warnings are shown."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", torch.jit.TracerWarning)
        yield
    for found in caught:
        if issubclass(found.category, torch.jit.TracerWarning):
            doubts.append(_doubt(found, Path(torch.__file__).parent))
        else:
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)


def is_of_a_branch(doubt: str) -> bool:
    """Whether the doubt is that other rows may take another branch of forward."""
    return doubt.startswith(_BRANCH)


def _doubt(found: warnings.WarningMessage, torch_folder: Path) -> str:
    """What is to say of a ``TracerWarning``. PyTorch's own layers look at shapes alone."""
    text = str(found.message)
    own = torch_folder not in Path(found.filename).parents
    if not (own and text.startswith("Converting a tensor to a Python boolean")):
        return text
    return (
        f"{_BRANCH}: forward decides at {Path(found.filename).name}:{found.lineno} by a tensor, "
        "which is treated as a Python boolean of the two rows with which it was traced; all other "
        "rows take the same branch, and the comparison with your module looks at a few rows alone. "
        "If it decides by values, and not by shapes, write it with torch.where, or train it in "
        "Python (loss=f)"
    )


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(":")


def own_name(name: str) -> str:
    """A module's own name of a tensor of its trace."""
    while name.startswith(PREFIX):
        name = name.removeprefix(PREFIX)
    return name


def _trace(module: Any, example: Any, reason: str) -> Any:
    import torch

    try:
        return torch.jit.trace(module, (example,), check_trace=False)
    except Exception as error:
        raise ModelError(
            f"model: {reason}, and torch.jit.trace, too: {first_line(error)}; {_IN_PYTHON}",
            key="model",
        ) from error


def save(trace: Any, buffer: Any, refused: str) -> None:
    """Saves a trace; a function of torch.autograd.Function is in no file."""
    import torch

    try:
        torch.jit.save(trace, buffer)
    except Exception as error:
        raise ModelError(
            f"model: torch.jit.script refuses it ({refused}), and its trace cannot be saved: "
            f"{first_line(error)}; {_IN_PYTHON}",
            key="model",
        ) from error


def save_script(module: Any, example: Any, buffer: Any) -> None:
    """Scripts the module; raises also where its script compiles and does not run, and where
    LibTorch would not find the logits in what it returns."""
    import torch

    script = torch.jit.script(module)
    if example is not None:
        with _modules.untouched(module), torch.no_grad():
            found = script(example)
        logits = logits_of(found)
        if logits is None:
            keys = f" of {', '.join(map(str, found))}" if isinstance(found, Mapping) else ""
            raise ModelError(
                f"model: its forward returns {type(found).__name__}{keys}, and a run needs logits: "
                'return the tensor alone, first in a tuple, or as "logits" of a dict',
                key="model",
            )
        pair = isinstance(found, tuple) and len(found) == 2 and all(map(torch.is_tensor, found))
        if logits is not (found[0] if pair else found):
            raise TypeError(f"its script returns {type(found).__name__}")
    torch.jit.save(script, buffer)


def logits_of(outputs: Any) -> Any:
    """What a run takes as the logits of a module's outputs; None if there is no such thing."""
    import torch

    if torch.is_tensor(outputs):
        return outputs
    if hasattr(outputs, "logits"):  # Hugging Face
        return outputs.logits
    if isinstance(outputs, Mapping):
        return outputs.get("logits")
    if isinstance(outputs, (tuple, list)) and outputs and torch.is_tensor(outputs[0]):
        return outputs[0]
    return None


def _outputs(module: Any, example: Any, reason: str) -> list[Any]:
    """The logits in training mode twice, with other random numbers, and in evaluation mode."""
    import torch

    found = []
    for seed, training in enumerate((True, True, False)):
        module.train(training)
        torch.manual_seed(seed)
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
                f"model: {reason}, and its forward returns no tensor; return the logits, alone, "
                'first in a tuple, or as "logits" of a dict'
            )
        found.append(logits.detach())
    return found


def _unpacking(module: Any) -> Any:
    import torch

    class Unpacking(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.macaw_net = module

        def forward(self, x: Any) -> Any:
            return logits_of(self.macaw_net(x))

    return Unpacking()


def _switching(trained: Any, evaluated: Any) -> Any:
    """Two traces of one module, for its two modes."""
    import torch

    class Switching(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.macaw_net = trained  # first, so that tensors have its names
            self.macaw_evaluated = evaluated

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                return self.macaw_net(x)
            return self.macaw_evaluated(x)

    return Switching()
