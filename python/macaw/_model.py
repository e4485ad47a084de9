"""Models: a name, a list of layers, or a PyTorch module.

A ``Sequential`` of layers that Macaw has becomes a list of layers, which the fused kernels can
train. Any other module is scripted, and LibTorch trains it. Weights go along in both cases.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _safetensors
from .errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import nn

    Module = nn.Module


@dataclass
class Model:
    """What a run is told about its model."""

    keys: dict[str, Any]
    said: str  # for the opening lines: what the module became
    module: Any = None
    # A module's name of each tensor of the run's model file, if they differ.
    names: dict[str, str] = field(default_factory=dict)

    def state_dict(self, tensors: Mapping[str, _safetensors.Array]) -> dict[str, torch.Tensor]:
        """The tensors of a run as a state dict that loads into the module."""
        return state_dict(self.module, tensors, self.names)


def read(model: Any, init: Any, folder: Path, seeds: Sequence[int] = (0,)) -> Model:
    """What the keys of ``[model]`` are for this model. Weights are written into `folder`.

    seeds: of the runs; a factory of modules is called with each.
    """
    if is_factory(model):
        if init is not None:
            raise ModelError("init: a factory's modules bring their own weights")
        return _of_factory(model, folder, seeds)
    if _is_module(model):
        if init is not None:
            raise ModelError("init: a module brings its own weights; load others into it instead")
        found = layers_of(model)
        if isinstance(found, str):
            return _scripted(model, found, folder)
        return _layers(model, found, folder)
    if isinstance(model, str):
        made = Model({"name": model}, "")
    elif isinstance(model, Sequence) and all(isinstance(layer, str) for layer in model):
        made = Model({"layers": list(model)}, "")
    else:
        raise ModelError(
            "model: expected a name, a list of layers, a torch.nn.Module or a function that makes "
            f"one, got {_kind(model)}"
        )
    if isinstance(init, Mapping):
        made.keys["init"] = _write_weights(init, folder)
    elif init is not None:
        made.keys["init"] = init if init == "zero" else Path(init)
    return made


def is_factory(model: Any) -> bool:
    """Whether the model is a function (or a class) that makes modules."""
    return callable(model) and not _is_module(model)


def has_fixed_weights(model: Any) -> bool:
    """Whether every run of the model starts from the same weights, whatever its seed."""
    return _is_module(model)


def _of_factory(factory: Callable[[], Any], folder: Path, seeds: Sequence[int]) -> Model:
    # The module of seed 0 says what the model is, and names the files: one for each seed, which
    # further seeds leave as they are.
    model = read(_made(factory, 0), None, folder)
    scripted = "torchscript" in model.keys
    stem = Path(model.keys["init"] if not scripted else _weights_file(model, folder)).stem
    for seed in seeds:
        path = folder / f"{stem}-{seed}.safetensors"
        weights = _weights_file(read_module(_made(factory, seed), model, folder), folder)
        if path.exists() and path.read_bytes() != weights.read_bytes():
            raise ModelError(
                f"model: the factory's weights with seed {seed} are not those of the call before: "
                "they are to be drawn from torch alone, which is seeded for each call"
            )
        _safetensors.copy(weights, path)
    model.keys["init"] = folder / f"{stem}-{{seed}}.safetensors"
    model.said = model.said.replace("with its weights", "with the weights of the run's seed")
    model.module = _made(factory, seeds[0] if seeds else 0)
    return model


def read_module(module: Any, like: Model, folder: Path) -> Model:
    """The same model with the weights of another module."""
    names = names_of(module)
    if names != like.names or _shapes(module) != _shapes(like.module):
        raise ModelError("model: the factory makes another network with another seed")
    return Model(dict(like.keys), like.said, module, names)


def _shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _weights_file(model: Model, folder: Path) -> Path:
    """The weights of the model's module, in a file with the names of the run's tensors."""
    module = model.module
    if model.names:
        state = module.state_dict()
        return _write_weights({ours: state[own] for ours, own in model.names.items()}, folder)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    floats = {name: value for name, value in tensors.items() if value.is_floating_point()}
    return _write_weights(floats, folder)


def _made(factory: Callable[[], Any], seed: int) -> Any:
    """A module of the factory, whose weights torch draws from the seed; torch's own state stays."""
    try:
        import torch
    except ImportError as error:
        raise ModelError(
            f"model: {_kind(factory)} makes modules of PyTorch, which is not installed"
        ) from error
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = factory()
    if not _is_module(module):
        raise ModelError(f"model: the function made {_kind(module)}, and not a torch.nn.Module")
    return module


def names_of(module: Any) -> dict[str, str]:
    """The module's name of each tensor of the run's model file."""
    found = layers_of(module)
    return {} if isinstance(found, str) else _names(found)


def state_dict(
    module: Any, tensors: Mapping[str, _safetensors.Array], names: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    import torch

    state = OrderedDict((name, value.clone()) for name, value in module.state_dict().items())
    for name, array in tensors.items():
        own = names.get(name, name)
        if own not in state or tuple(state[own].shape) != array.shape:
            raise ModelError(
                f"the run's tensor {name} {list(array.shape)} has no place in the module: it is "
                "another model"
            )
        state[own] = torch.from_numpy(np.array(array)).to(state[own])
    return state


@dataclass(frozen=True)
class _Layer:
    text: str  # as model.layers has it
    prefix: str  # of the module's tensors: "body.0"
    module: Any


def layers_of(module: Any) -> list[_Layer] | str:
    """The layers of a ``Sequential``; or why it cannot be a list of layers."""
    if not _is(module, "Sequential"):
        return f"{type(module).__name__} is no Sequential"
    layers: list[_Layer] = []
    for name, child in module.named_children():
        if _is(child, "Sequential"):
            inner = layers_of(child)
            if isinstance(inner, str):
                return inner
            layers += [_Layer(x.text, f"{name}.{x.prefix}", x.module) for x in inner]
            continue
        if _is(child, "Identity"):
            continue
        text = _text(child)
        if text is None:
            return f"layer {name} is {child}"
        layers.append(_Layer(text, name, child))
    return _misplaced(layers) or layers


def _misplaced(layers: Sequence[_Layer]) -> str | None:
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


def _names(layers: Sequence[_Layer]) -> dict[str, str]:
    names: dict[str, str] = {}
    for number, layer in enumerate(layers):
        for name in layer.module.state_dict():
            if name != "num_batches_tracked":
                names[f"{number}.{name}"] = f"{layer.prefix}.{name}"
    return names


def _layers(module: Any, layers: Sequence[_Layer], folder: Path) -> Model:
    names = _names(layers)
    state = module.state_dict()
    tensors = {ours: _array(state[own], own) for ours, own in names.items()}
    keys = {"layers": [layer.text for layer in layers], "init": _write_weights(tensors, folder)}
    said = f"{type(module).__name__} as {len(layers)} layers, with its weights"
    return Model(keys, said, module, names)


def _scripted(module: Any, why: str, folder: Path) -> Model:
    import torch

    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            # PyTorch 2.11 advises against scripts, and LibTorch trains nothing else.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(torch.jit.script(module), buffer)
    except Exception as error:
        raise ModelError(
            f"model: {why}, so it needs the LibTorch back end, and torch.jit.script refuses it: "
            f"{error}"
        ) from error
    path = _safetensors.write_pieces(folder, ".pt", [buffer.getvalue()])
    said = f"{type(module).__name__} scripted, with its weights, for LibTorch ({why})"
    return Model({"torchscript": path}, said, module)


def _write_weights(tensors: Mapping[str, Any], folder: Path) -> Path:
    arrays = {name: _array(value, name) for name, value in tensors.items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ModelError(f"model: {name} has a value that is not finite")
    return _safetensors.write_by_content(folder, arrays, {})


def _array(value: Any, name: str) -> _safetensors.Array:
    array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    if array.dtype not in (np.float32, np.float64):
        raise ModelError(f"model: {name} is {array.dtype}; float32 and float64 can be trained")
    return array


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _is(module: Any, kind: str) -> bool:
    # Exactly this class: a subclass may compute something else.
    return type(module).__name__ == kind and type(module).__module__.startswith("torch.nn.modules")


def _kind(value: Any) -> str:
    return type(value).__name__
