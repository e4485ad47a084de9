"""The law for modules: what trains is the module that was given, or the run is refused.

Before a run, `macaw simulate --model-step` has the run's own back end work on two small batches of
the run's own rows. The same batches go through the module in its own PyTorch. Losses in evaluation
mode, gradients in training mode, and all tensors after each of two steps must be equal.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from . import _model, _modules, _safetensors, _trace
from ._program import Simulation
from ._safetensors import Array
from .errors import ModelError

_EQUAL = 1e-5  # relative to the largest number of a tensor
_LARGE = 20_000_000  # parameters
_SKIPPING = "check_model=False trains it all the same"


def check(made: _model.Model, arguments: Sequence[str], words: Mapping[str, str]) -> str:
    """Refuses a run whose model is not the module. Returns what was found, in a line."""
    with tempfile.TemporaryDirectory(prefix="macaw-check-") as folder:
        file = Path(folder) / "step.safetensors"
        simulation = Simulation([*arguments, "--model-step", str(file)], words)
        try:
            for _ in simulation.events():
                pass
        finally:
            simulation.close()
        about = _safetensors.metadata(file)
        if "skipped" in about:
            return f"the module was not compared with what trains: {about['skipped']}"
        found = _Comparison(made, _safetensors.read(file), about).run()
    made.doubts[:] = filter(_trace.is_of_a_branch, made.doubts)  # few rows settle no branch
    return found


class _Comparison:
    """One module, and what the program made of it."""

    def __init__(
        self, made: _model.Model, ours: Mapping[str, Array], about: Mapping[str, str]
    ) -> None:
        self._made, self._ours, self._about = made, ours, about
        self._random = about["random"] == "1"
        self._worst = 0.0
        self._lost: dict[str, float] = {}  # by the tensor's name

    def run(self) -> str:
        module = self._made.module
        drops = _modules.dropping(module)
        if "layers" in self._made.keys and self._random != (drops is not None):
            whose = "your module" if drops else "the run"
            raise self._refusal(f"{whose} drops at random ({drops}), and the other does not")
        self._random = drops is not None
        # What cannot be copied, such as a handle of C++, is put back itself.
        with contextlib.suppress(Exception):
            module = _modules.copy_of(module)
        without: list[str] = []
        with (
            _modules.untouched(module),
            _deterministic(),
            _modules.dropping_nothing(module),
            _modules.keeping_activations(module),  # as the trace does; gradients are the same
        ):
            self._losses(module)
            what = "losses in evaluation mode"
            if not self._draws(module):
                with _modules.untouched(module):  # a forward pass moves running statistics
                    without = self._gradients(module)
                what = "losses and gradients"
                if not self._random:
                    self._steps(module)
                    what = "losses, gradients and two steps"
        said = (
            f"{what} equal the module's own in PyTorch, to {max(self._worst, 1e-9):.0e} (back end "
            f"{self._about['backend']})"
        )
        if what != "losses, gradients and two steps":
            said += "; the rest is random, and was not compared"
        if without:
            said += f"; {', '.join(without)} gets no gradient"
        return said

    def _begin_training(self, module: Any) -> None:
        """The mode in which the run trains: with model.buffers = "server" batch norms take their
        running statistics, and a scripted module is as in evaluation."""
        module.train()
        if self._about.get("frozen_statistics") != "1":
            return
        if "layers" not in self._made.keys:
            module.eval()
        for layer in module.modules():
            if getattr(layer, "running_mean", None) is not None:
                layer.eval()

    def _draws(self, module: Any) -> bool:
        """Whether the module draws random numbers in training that no layer of it tells of."""
        import torch

        self._begin_training(module)
        x, _ = self._batch(0, module)
        outputs = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            with _modules.untouched(module), torch.no_grad():
                before = {name: value.clone() for name, value in _counters(module).items()}
                outputs.append(_trace.logits_of(module(x)))
                self._refuse_counting(before, _counters(module))
        return not torch.equal(*outputs)

    @staticmethod
    def _refuse_counting(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        import torch

        for name, value in before.items():
            if not torch.equal(value, after[name]):
                kind = str(value.dtype).removeprefix("torch.")
                raise ModelError(
                    f"model: {name} is a buffer of {kind} that forward changes, and a run keeps "
                    "buffers of floats alone, so it would never advance: register it as a float, "
                    "whose mean over the clients goes on",
                    key="model",
                )

    def _losses(self, module: Any) -> None:
        module.eval()
        x, y = self._batch(0, module)
        rows = range(len(y))
        theirs = [self._loss(module, x[i : i + 1], y[i : i + 1]).item() for i in rows]
        for row, (own, other) in enumerate(zip(self._ours["loss"].tolist(), theirs)):
            self._compare(
                np.array(own), np.array(other), max(1.0, abs(other)),
                f"in evaluation mode the loss of row {row} of the first batch",
            )  # fmt: skip

    def _gradients(self, module: Any) -> list[str]:
        import torch

        self._begin_training(module)
        named = _trained(module)
        own = self._named("gradient", module)
        for name, parameter in named.items():
            if not any(parameter is other for other, _ in own.values()):
                raise self._refusal(f"your module trains {name}, and the run does not have it")
        x, y = self._batch(0, module)
        loss = self._loss(module, x, y)
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        theirs = dict(zip(map(id, named.values()), found))
        largest = max(
            (float(g.abs().max()) for g in found if g is not None and g.numel()), default=0
        )
        # What cancels out, such as the gradient of a bias behind a norm, is the rounding of larger
        # numbers alone.
        least = float(torch.finfo(loss.dtype).eps) * largest / 10
        self._lost = {
            name: max(lost, least) for name, lost in self._lost_in_float32(module, x, y).items()
        }
        without = [name for name, g in zip(named, found) if g is None]
        for name, (tensor, gradient) in own.items():
            if not tensor.requires_grad:
                continue
            other = theirs.get(id(tensor))
            expected = np.zeros_like(gradient) if other is None else other.cpu().numpy()
            scale = max(_most(expected), 1e-4 * largest)
            self._compare(
                gradient, expected, scale, f"the gradient of {name}", self._lost.get(name, 0.0)
            )
        return without

    def _lost_in_float32(self, module: Any, x: Any, y: Any) -> dict[str, float]:
        """What float32 alone loses of each gradient: its difference from that in float64."""
        import torch

        named = _trained(module)
        found = torch.autograd.grad(
            self._loss(module, x, y), list(named.values()), allow_unused=True
        )
        narrow = {name: g for name, g in zip(named, found) if g is not None and g.numel()}
        if next(iter(named.values())).dtype == torch.float64:
            return dict.fromkeys(narrow, 0.0)
        size = sum(value.numel() for value in named.values())
        try:
            if size > _LARGE:
                raise ValueError("a copy in float64 would take long")
            double = _modules.copy_of(module).double()
            wide = x.double() if x.is_floating_point() else x
            target = y.double() if y.is_floating_point() else y
            trained = _trained(double)
            exact = torch.autograd.grad(
                self._loss(double, wide, target), list(trained.values()), allow_unused=True
            )
        except Exception:  # also a forward that is written for float32
            return {name: 1e-6 * float(gradient.abs().max()) for name, gradient in narrow.items()}
        there = dict(zip(trained, exact))
        return {
            name: float((gradient.double() - there[name]).abs().max())
            for name, gradient in narrow.items()
        }

    def _steps(self, module: Any) -> None:
        """Each step from the run's weights, so that the second one is compared by itself.

        A norm of two rows is so steep that the rounding of one step is large after the next.
        """
        import torch

        rate = float(self._about["lr"])
        self._begin_training(module)
        for number, step in enumerate(("first", "second")):
            x, y = self._batch(number, module)
            named = _trained(module)
            if number > 0:
                self._take("first", module)
                with _modules.untouched(module):
                    self._lost = self._lost_in_float32(module, x, y)
            before = {id(t): t.detach().clone() for t in (*module.parameters(), *module.buffers())}
            found = torch.autograd.grad(
                self._loss(module, x, y), list(named.values()), allow_unused=True
            )
            with torch.no_grad():
                for parameter, gradient in zip(named.values(), found):
                    if gradient is not None:
                        parameter -= rate * gradient
            for name, (tensor, own) in self._named(step, module).items():
                expected = tensor.detach().cpu().numpy()
                moved = _most(expected - before[id(tensor)].cpu().numpy())
                rounding = 4 * float(np.finfo(own.dtype).eps) * _most(expected)
                rounding += rate * self._lost.get(name, 0.0)
                scale = max(moved, _most(expected) * 1e-2)
                self._compare(
                    own, expected, scale, f"{name} after the {step} step of training", rounding
                )

    def _take(self, step: str, module: Any) -> None:
        """Gives the module the tensors that the run had after a step."""
        import torch

        with torch.no_grad():
            for tensor, own in self._named(step, module).values():
                tensor.copy_(torch.from_numpy(np.array(own)).reshape(tensor.shape))

    def _batch(self, number: int, module: Any) -> tuple[Any, Any]:
        import torch

        x = torch.from_numpy(np.array(self._ours[f"features.{number}"]))
        y = torch.from_numpy(np.array(self._ours[f"labels.{number}"]))
        parameter = next(iter(_trained(module).values()))
        x = x.to(parameter.device, parameter.dtype if x.is_floating_point() else torch.int64)
        return x, y.to(parameter.device, parameter.dtype if y.is_floating_point() else torch.int64)

    def _loss(self, module: Any, x: Any, y: Any) -> Any:
        import torch
        from torch.nn import functional

        try:
            logits = _trace.logits_of(module(x))
            if logits is None:
                raise TypeError("it returns no tensor and no logits")
        except Exception as error:
            raise ModelError(
                f"model: the module's own forward failed on x of shape {list(x.shape)} and type "
                f"{str(x.dtype).removeprefix('torch.')}, which is what the run gives it: {error}",
                key="model",
            ) from error
        task = self._about["task"]
        if task == "regression":
            return functional.mse_loss(logits.reshape(-1), y.to(logits.dtype))
        if task == "reconstruction":
            return functional.mse_loss(logits.flatten(1), x.flatten(1).to(logits.dtype))
        if task == "binary":
            return functional.binary_cross_entropy_with_logits(
                logits.reshape(-1), y.to(logits.dtype)
            )
        if task == "next-token":
            y = torch.cat([x[:, 1:], y[:, None]], 1).reshape(-1)
            logits = logits.reshape(len(y), -1)
        return functional.cross_entropy(logits, y)

    def _named(self, prefix: str, module: Any) -> dict[str, tuple[Any, Array]]:
        """The module's tensors by their own names, and what the program made of each."""
        there = {}
        for place, layer in module.named_modules(remove_duplicate=False):
            for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
                there[f"{place}.{name}" if place else name] = tensor
        found = {}
        for key, array in self._ours.items():
            kind, _, name = key.partition("/")
            if kind != prefix or not name:
                continue
            own = self._made.names.get(name, name)
            if own not in there:
                own = _trace.own_name(own)
            if own not in there:
                raise self._refusal(f"the run trains {name}, and your module has no such tensor")
            found[own] = (there[own], array)
        return found

    def _compare(
        self, ours: Array, theirs: Array, scale: float, what: str, noise: float = 0.0
    ) -> None:
        if not np.isfinite(theirs).all():
            raise self._refusal(f"{what} is not finite in your own module")
        difference = _most(ours.astype(np.float64) - theirs.astype(np.float64))
        if not difference <= _EQUAL * scale + 20 * noise:
            raise self._refusal(
                f"{what} is {_numbers(ours)}, and {_numbers(theirs)} in your own module "
                f"(largest difference {difference:.3g})"
            )
        beyond = max(0.0, difference - 20 * noise)  # what float32 alone does not explain
        self._worst = max(self._worst, beyond / scale if scale > 0 else 0.0)

    def _refusal(self, what: str) -> ModelError:
        return ModelError(
            f"model: what would be trained is not your module ({self._made.said}): {what}; "
            f"{_SKIPPING}",
            key="model",
        )


def _trained(module: Any) -> dict[str, Any]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def _counters(module: Any) -> dict[str, Any]:
    """Buffers of whole numbers, but for those of norms, on which nothing depends."""
    return {
        name: buffer
        for name, buffer in module.named_buffers()
        if not buffer.is_floating_point() and not name.endswith("num_batches_tracked")
    }


def _most(array: Array) -> float:
    return float(np.abs(array).max()) if array.size else 0.0


def _numbers(array: Array) -> str:
    flat = np.ravel(array)[:3]
    text = ", ".join(f"{value:.6g}" for value in flat.tolist())
    return f"{text}, …" if array.size > 3 else text


@contextmanager
def _deterministic() -> Iterator[None]:
    import torch

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        yield
