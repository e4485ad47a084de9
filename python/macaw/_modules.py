"""Modules that no run can train, by what is wrong with them, before PyTorch or a run says it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import ModelError


def dtype_of(module: Any) -> str | None:
    """The dtype of a run that trains this module; refuses tensors that no run can train."""
    import torch

    if type(module).__name__ == "OptimizedModule":
        raise ModelError(
            "model: it is compiled (torch.compile); give the module itself, net._orig_mod"
        )
    trained = 0
    wide = False
    for name, value in module.named_parameters():
        if torch.nn.parameter.is_lazy(value):
            raise ModelError(
                f"model: {name} has no shape yet; call net(x[:2]) once, so that lazy layers know "
                "their inputs"
            )
        if not value.requires_grad:
            continue
        if value.numel() == 0:
            raise ModelError(
                f"model: {name} has the shape {list(value.shape)}, so it is empty, and a run sends "
                "parameters that have values: leave it out, or freeze it with "
                "requires_grad_(False)",
                key="model",
            )
        _real(name, value, "freeze it with requires_grad_(False), or use two real parameters")
        trained += 1
        wide = wide or value.dtype == torch.float64
    for name, value in module.named_buffers():
        if value.is_floating_point():
            _real(name, value, "convert it")
    if trained == 0:
        raise ModelError(
            "model: it has no parameter with requires_grad=True, so there is nothing to train"
        )
    return "float64" if wide else None


def refuse_hooks(module: Any) -> None:
    """Refuses hooks on gradients of parameters: copies and scripts of a module lose them."""
    for name, value in module.named_parameters():
        for register, kept in (
            ("register_hook", value._backward_hooks),
            (
                "register_post_accumulate_grad_hook",
                getattr(value, "_post_accumulate_grad_hooks", None),
            ),
        ):
            if kept:
                raise ModelError(
                    f"model: {name} has a hook on its gradient ({register}), which the clients' "
                    "copies of the module would not have: take it off and train by a function of "
                    "your own (train=f), which registers it on the model that it gets",
                    key="model",
                )


def _real(name: str, value: Any, otherwise: str) -> None:
    import torch

    if value.dtype in (torch.float32, torch.float64):
        return
    kind = str(value.dtype).removeprefix("torch.")
    advice = "convert the module with net.float()" if value.is_floating_point() else otherwise
    raise ModelError(f"model: {name} is {kind}; a run trains float32 or float64: {advice}")


def refuse_odd(module: Any) -> None:
    """Refuses layers whose state a run does not keep from batch to batch."""
    import torch

    for name, layer in module.named_modules():
        here = f"model: {name or 'it'} is {layer}"
        has_statistics = getattr(layer, "running_mean", None) is not None
        traced = isinstance(layer, torch.jit.ScriptModule) and not hasattr(layer, "momentum")
        if has_statistics and traced:
            raise ModelError(
                f"{here}, of a trace, which keeps the mode in which it was made: training or "
                "evaluation would be without its running statistics; give the module itself, or "
                "torch.jit.script(net)",
                key="model",
            )
        # Statistics of a layer without a momentum are frozen.
        if has_statistics and getattr(layer, "momentum", 0) is None:
            raise ModelError(
                f"{here}: its running statistics depend on a count of batches, which a run does "
                "not keep; use a momentum, such as momentum=0.1"
            )
        kind = type(layer).__name__
        if "BatchNorm" in kind and getattr(layer, "running_mean", 0) is None:
            raise ModelError(
                f"{here}: in evaluation its outputs depend on the other rows of a batch, and a run "
                "evaluates rows in batches of its own; leave track_running_stats=True"
            )
        if getattr(layer, "max_norm", None) is not None and hasattr(layer, "num_embeddings"):
            raise ModelError(
                f"{here}: max_norm changes weights in the forward pass, outside the optimizer; "
                "leave max_norm out"
            )
        if getattr(layer, "sparse", False) is True and hasattr(layer, "num_embeddings"):
            raise ModelError(
                f"{here}: its gradients are sparse, which a run does not take; leave sparse=True "
                "out, which changes no number"
            )
        hooks = [type(hook).__name__ for hook in layer._forward_pre_hooks.values()]
        if any("SpectralNorm" in name for name in (kind, *hooks)):
            raise ModelError(
                f"{here}: spectral_norm changes vectors of its own in each forward pass, and a run "
                "does not keep them; train with a function of your own (train=fn or loss=fn)"
            )
        if "FractionalMaxPool" in kind:
            raise ModelError(
                f"{here}: it draws random numbers in a way that no run can repeat; use "
                "torch.nn.MaxPool2d, or train with a function of your own (train=fn)"
            )


def copy_of(module: Any) -> Any:
    """A deep copy, also of a module that keeps tensors which it computes from others, such as the
    weights of torch.nn.utils.weight_norm: deepcopy refuses these, and forward makes them anew."""
    import torch

    memo = {
        id(value): value.detach().clone()
        for layer in module.modules()
        for value in vars(layer).values()
        if torch.is_tensor(value) and value.grad_fn is not None
    }
    return copy.deepcopy(module, memo)


def dropping(module: Any) -> str | None:
    """The first layer that drops at random in training."""
    for name, layer in module.named_modules():
        if any(_rate(layer, rate) > 0 for rate in _rates(layer)) or type(layer).__name__ == "RReLU":
            return f"{name}: {layer}"
        # Recurrent layers drop between layers, so that one layer drops nothing.
        if _rate(layer, "dropout") > 0 and getattr(layer, "num_layers", 2) != 1:
            return f"{name}: dropout={layer.dropout}"
    return None


@contextmanager
def dropping_nothing(module: Any) -> Iterator[None]:
    """Whatever its mode, the layers of the module do not drop, and RReLU has its mean slope."""
    kept: list[tuple[Any, str, float]] = []
    for layer in module.modules():
        still: dict[str, float] = {}
        for rate in ("dropout", *_rates(layer)):
            if _rate(layer, rate) > 0:
                still[rate] = 0.0
        if type(layer).__name__ == "RReLU":
            still["lower"] = still["upper"] = (layer.lower + layer.upper) / 2
        for name, value in still.items():
            kept.append((layer, name, getattr(layer, name)))
            setattr(layer, name, value)
    try:
        yield
    finally:
        for layer, name, value in kept:
            setattr(layer, name, value)


@contextmanager
def keeping_activations(module: Any) -> Iterator[list[str]]:
    """Nothing computes activations again: a pass is the operations that it consists of.

    Gives a list that says afterwards who would have: layers of Hugging Face
    (``gradient_checkpointing_enable()``) and ``torch.utils.checkpoint``.
    """
    from torch.utils.checkpoint import CheckpointFunction

    asked: list[str] = []
    layers = [m for m in module.modules() if getattr(m, "gradient_checkpointing", False) is True]
    if layers:
        asked.append("gradient_checkpointing_enable()")

    def straight(function: Any, _: bool, *given: Any) -> Any:
        if "torch.utils.checkpoint" not in asked:
            asked.append("torch.utils.checkpoint")
        return function(*given)

    own = vars(CheckpointFunction).get("apply")
    for layer in layers:
        layer.gradient_checkpointing = False
    CheckpointFunction.apply = staticmethod(straight)
    try:
        yield asked
    finally:
        for layer in layers:
            layer.gradient_checkpointing = True
        if own is None:
            del CheckpointFunction.apply
        else:
            CheckpointFunction.apply = own


def _rates(layer: Any) -> tuple[str, ...]:
    """The names of the probabilities with which a layer drops numbers, or itself."""
    kind = type(layer).__name__
    if "Dropout" in kind or kind == "StochasticDepth":  # torchvision
        return ("p",)
    return ("drop_prob",) if "DropPath" in kind else ()  # Hugging Face, timm


def _rate(layer: Any, name: str) -> float:
    """A probability that a layer has under this name; 0 if it has none."""
    value = getattr(layer, name, 0)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def forward(module: Any, x: Any) -> None:
    """Calls the module on rows as a run gives them; what fails there is said as such."""
    import torch

    if x is None:
        return
    with untouched(module), torch.no_grad():
        module.eval()
        try:
            if type(module) is torch.nn.Sequential:
                for name, layer in module._modules.items():
                    given, where = x, f"layer {name}, {layer}"
                    x = layer(x)
            else:
                given, where = x, type(module).__name__
                module(x)
        except Exception as error:
            # Gray images are often stored without the axis of their channel.
            flat = given.dim() == 3 and any("Conv2d" in type(m).__name__ for m in module.modules())
            gray = "; gray images have one channel: give x[:, None]" if flat else ""
            raise ModelError(
                f"model: {where} fails on an input of shape {list(given.shape)} and type "
                f"{str(given.dtype).removeprefix('torch.')}, which is what two rows of the data "
                f"become there: {error}{gray}",
                key="model",
            ) from error


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
