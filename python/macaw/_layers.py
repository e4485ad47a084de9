"""Which ``Sequential`` is a list of layers, and its lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    text: str  # as model.layers has it
    prefix: str  # of the module's tensors: "body.0"
    module: Any


def layers_of(module: Any) -> list[Layer] | str:
    """The layers of a ``Sequential``; or why it cannot be a list of layers."""
    if not _is(module, "Sequential"):
        return f"{type(module).__name__} is no Sequential"
    found = _inside(module)
    if isinstance(found, str):
        return found
    return _misplaced(found) or _shared(found) or found


def _inside(module: Any) -> list[Layer] | str:
    layers: list[Layer] = []
    if odd := _more_than_its_class(module):
        return f"{type(module).__name__} {odd}"
    for name, child in module._modules.items():  # children() leaves repeated ones out
        if child is None:
            continue
        if odd := _more_than_its_class(child):
            return f"layer {name} {odd}"
        if _is(child, "Sequential"):
            inner = _inside(child)
            if isinstance(inner, str):
                return inner
            layers += [Layer(x.text, f"{name}.{x.prefix}", x.module) for x in inner]
            continue
        if _is(child, "Identity"):
            continue
        text = _text(child)
        if text is None:
            return f"layer {name} is {_shown(child)}"
        layers.append(Layer(text, name, child))
    return layers


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TENSORS = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


def _more_than_its_class(module: Any) -> str | None:
    """What a module computes beside what its class does; None: nothing."""
    for inner in module.modules():
        if any(getattr(inner, hooks, None) for hooks in _HOOKS):
            return "has a hook"
        if "forward" in vars(inner):
            return "has a forward of its own"
    own = {*module._parameters, *module._buffers}
    if own - _TENSORS:
        return f"has a tensor of its own, {sorted(own - _TENSORS)[0]}"
    return None


def _shared(layers: Sequence[Layer]) -> str | None:
    """Which layer has a tensor that is another layer's, too."""
    owners: dict[int, str] = {}
    for layer in layers:
        for name, value in layer.module.state_dict(keep_vars=True).items():
            if id(value) in owners:
                return f"{layer.prefix}.{name} is {owners[id(value)]}, too"
            owners[id(value)] = f"{layer.prefix}.{name}"
    return None


def _misplaced(layers: Sequence[Layer]) -> str | None:
    """Which layer stands where Macaw's means something else; None if all fit."""
    image = False
    for number, layer in enumerate(layers):
        kind = layer.text.split()[0]
        if kind == "embedding" and number > 0:
            return f"layer {layer.prefix} is an Embedding behind other layers"
        if kind == "layernorm" and image:
            return f"layer {layer.prefix} is a LayerNorm of images"
        image = kind in _OF_IMAGES or (image and kind != "flatten")
    return None


def _text(layer: Any) -> str | None:
    for kind, write in _KINDS.items():
        if _is(layer, kind):
            return write(layer)
    return None


def _shown(layer: Any) -> str:
    text = " ".join(str(layer).split())
    return text if len(text) <= 80 else type(layer).__name__


def _one(value: Any) -> int | None:
    """The number that both axes have."""
    if isinstance(value, int):
        return value
    return int(value[0]) if isinstance(value, tuple) and len(set(value)) == 1 else None


def _conv(m: Any) -> str | None:
    kernel, pad, stride = _one(m.kernel_size), _one(m.padding), _one(m.stride)
    plain = _one(m.dilation) == 1 and m.groups == 1 and m.padding_mode == "zeros"
    if not plain or None in (kernel, pad, stride):
        return None
    bias = "" if m.bias is not None else " nobias"
    return f"conv {m.out_channels} {kernel} pad {pad} stride {stride}{bias}"


def _pool(kind: str, m: Any) -> str | None:
    kernel, stride = _one(m.kernel_size), _one(m.stride)
    plain = _one(m.padding) == 0 and not m.ceil_mode and _one(getattr(m, "dilation", 1)) == 1
    if not plain or None in (kernel, stride) or getattr(m, "divisor_override", None) is not None:
        return None
    return f"{kind} {kernel} stride {stride}"


def _norm(m: Any) -> bool:
    own = getattr(m, "momentum", 0.1) == 0.1 and getattr(m, "track_running_stats", True)
    return bool(own and m.eps == 1e-5 and getattr(m, "affine", True))


def _layer_norm(m: Any) -> str | None:
    own = len(m.normalized_shape) == 1 and m.eps == 1e-5 and m.elementwise_affine
    return "layernorm" if own and m.bias is not None else None


def _embedding(m: Any) -> str | None:
    own = m.padding_idx is None and m.max_norm is None and not m.scale_grad_by_freq and not m.sparse
    return f"embedding {m.num_embeddings} {m.embedding_dim}" if own else None


def _transformer(m: Any) -> str | None:
    import torch

    attention = m.self_attn
    drops = {m.dropout.p, m.dropout1.p, m.dropout2.p, attention.dropout}
    own = m.norm_first and attention.batch_first and m.linear1.bias is not None
    if not own or m.activation is not torch.nn.functional.gelu or len(drops) > 1:
        return None
    if not (_layer_norm(m.norm1) and _layer_norm(m.norm2)):
        return None
    text = f"transformer heads {attention.num_heads} ff {m.linear1.out_features}"
    return text + (f" dropout {m.dropout.p}" if m.dropout.p > 0 else "")


_OF_IMAGES = {"conv", "maxpool", "avgpool", "globalavgpool", "groupnorm"}
_KINDS: dict[str, Callable[[Any], str | None]] = {
    "Conv2d": _conv,
    "Linear": lambda m: f"linear {m.out_features}" + ("" if m.bias is not None else " nobias"),
    "MaxPool2d": lambda m: None if m.return_indices else _pool("maxpool", m),
    "AvgPool2d": lambda m: _pool("avgpool", m),
    "AdaptiveAvgPool2d": lambda m: "globalavgpool" if _one(m.output_size) == 1 else None,
    "BatchNorm1d": lambda m: "batchnorm" if _norm(m) else None,
    "BatchNorm2d": lambda m: "batchnorm" if _norm(m) else None,
    "GroupNorm": lambda m: f"groupnorm {m.num_groups}" if _norm(m) else None,
    "Flatten": lambda m: "flatten" if (m.start_dim, m.end_dim) == (1, -1) else None,
    "Dropout": lambda m: f"dropout {m.p}",
    "LayerNorm": _layer_norm,
    "Embedding": _embedding,
    "TransformerEncoderLayer": _transformer,
    "ReLU": lambda _: "relu",
    "GELU": lambda m: "gelu" if m.approximate == "none" else None,
    "Tanh": lambda _: "tanh",
    "Sigmoid": lambda _: "sigmoid",
}


def names_of(layers: Sequence[Layer]) -> dict[str, str]:
    names: dict[str, str] = {}
    for number, layer in enumerate(layers):
        for name in layer.module.state_dict():
            if name != "num_batches_tracked":
                names[f"{number}.{name}"] = f"{layer.prefix}.{name}"
    return names


def frozen(layers: Sequence[Layer]) -> list[str]:
    """The run's names of the parameters that the module does not train."""
    return [
        f"{number}.{name}"
        for number, layer in enumerate(layers)
        for name, parameter in layer.module.named_parameters()
        if not parameter.requires_grad
    ]


def _is(module: Any, kind: str) -> bool:
    # Exactly this class: a subclass may compute something else.
    return type(module).__name__ == kind and type(module).__module__.startswith("torch.nn.modules")
