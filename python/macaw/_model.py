"""Models: a name, a list of layers, or a PyTorch module.

A ``Sequential`` of layers that Macaw has becomes a list of layers (_layers.py), which the fused
kernels can train. Any other module is scripted, or traced (_trace.py) where it cannot be scripted,
and LibTorch trains it. Weights go along in each case.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _layers as _layers_file
from . import _libtorch, _modules, _names, _safetensors, _trace
from ._layers import Layer, layers_of
from ._paths import Path_, path_of
from ._trace import first_line
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
    dtype: str | None = None  # run.dtype that the module's tensors ask for
    prefix: str = ""  # of the run's names of a module that is no list of layers
    again: str = ""  # by what the module computes activations again, where its trace does not
    # What PyTorch doubts of the trace, until the run's model has been compared with the module.
    doubts: list[str] = field(default_factory=list)

    def state_dict(self, tensors: Mapping[str, _safetensors.Array]) -> dict[str, torch.Tensor]:
        """The tensors of a run as a state dict that loads into the module."""
        return state_dict(self.module, tensors, self.names)


# Two rows of the data, as a module gets them; None where they are not known.
Example = Callable[[Any], Any]


def read(
    model: Any,
    init: Any,
    folder: Path,
    example: Example = lambda _: None,
    seeds: Sequence[int] = (0,),
    in_python: bool = False,
) -> Model:
    """What the keys of ``[model]`` are for this model. Weights are written into `folder`.

    seeds: of the runs; a function that makes modules is called with torch seeded by each.
    in_python: the module itself is trained (train=, loss=), and a run knows its tensors alone.
    """
    if is_factory(model):
        if init is not None:
            raise ModelError("init: the modules that a function makes bring their own weights")
        return _of_factory(model, folder, example, seeds, in_python)
    if _is_module(model):
        if init is not None:
            raise ModelError("init: a module brings its own weights; load others into it instead")
        dtype = _modules.dtype_of(model)
        _modules.refuse_hooks(model)
        if in_python:
            return _tensors_alone(model, dtype, folder)
        _modules.refuse_odd(model)
        _modules.forward(model, example(model))
        found = layers_of(model)
        if isinstance(found, str):
            made = _scripted(model, found, folder, example)
        else:
            made = _layers(model, found, folder)
        made.dtype = dtype
        return made
    if isinstance(model, str):
        made = Model({"name": model}, "")
    elif isinstance(model, Sequence) and all(isinstance(layer, str) for layer in model):
        made = Model({"layers": list(model)}, "")
    else:
        raise ModelError(
            "model: expected a name, a list of layers, a torch.nn.Module or a function that makes "
            f"one, got {_kind(model)}{_advice(model)}",
            key="model",
        )
    if isinstance(init, Mapping):
        made.keys["init"] = _write_weights(init, folder)
    elif init is not None:
        made.keys["init"] = init if init == "zero" else Path(init)
    return made


def _advice(model: Any) -> str:
    if isinstance(model, Sequence) and len(model) > 0 and all(map(_is_module, model)):
        return " of modules: give torch.nn.Sequential(*layers)"
    if isinstance(model, Mapping):
        return ": of a state dict, give the module that it was loaded into"
    return ""


def is_factory(model: Any) -> bool:
    """Whether the model is a function (or a class) that makes modules."""
    return callable(model) and not _is_module(model)


def has_fixed_weights(model: Any) -> bool:
    """Whether every run of the model starts from the same weights, whatever its seed."""
    return _is_module(model)


def made_by(factory: Callable[[], Any], seed: int = 0) -> Any:
    """A module of the function, with weights drawn from the seed; torch's own state stays."""
    try:
        import torch
    except ImportError as error:
        raise ModelError(
            f"model: {_kind(factory)} makes modules of PyTorch, which is not installed"
        ) from error
    _refuse_arguments(factory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = factory()
    if not _is_module(module):
        raise ModelError(f"model: the function made {_kind(module)}, and not a torch.nn.Module")
    return module


def _refuse_arguments(factory: Callable[[], Any]) -> None:
    """Refuses a class or function that cannot be called without arguments."""
    needed = _names.needed_by(factory)
    if not needed and factory is not sys.modules["torch"].nn.Sequential:
        return
    module = getattr(factory, "__module__", None) or ""
    name = getattr(factory, "__qualname__", type(factory).__name__).split(".")[-1]
    if not isinstance(factory, type):
        raise ModelError(
            f"model: the function {name} takes {', '.join(needed)}; one that makes the module is "
            "called without arguments: give a module, or functools.partial(function, …)",
            key="model",
        )
    name = f"nn.{name}" if module.startswith("torch.nn") else name
    takes = f", which takes {', '.join(needed)}" if needed else ""
    raise ModelError(
        f"model: the class {name}{takes}: give an instance, model={name}(…), or a function that "
        f"makes one for each seed, model=lambda: {name}(…)",
        key="model",
    )


def _of_factory(
    factory: Callable[[], Any],
    folder: Path,
    example: Example,
    seeds: Sequence[int],
    in_python: bool,
) -> Model:
    # The module of seed 0 says what the model is and names the files: one for each seed, which
    # further seeds leave as they are.
    model = read(made_by(factory), None, folder, example, in_python=in_python)
    stem = _weights_file(model, model.module, folder).stem
    made = [made_by(factory, seed) for seed in seeds]
    once, again = made[0].state_dict(), made_by(factory, seeds[0]).state_dict()
    if any(not again[name].equal(value) for name, value in once.items()):
        raise ModelError(
            "model: two calls of the function with one seed give other weights: they are to be "
            "drawn from torch alone, which is seeded for each call"
        )
    for seed, module in zip(seeds, made):
        other_names = not in_python and names_of(module) != model.names
        if other_names or _shapes(module) != _shapes(model.module):
            raise ModelError("model: the function makes another network with another seed")
        if not model.names:
            _refuse_other_frozen(model.module, module)
        weights = _weights_file(model, module, folder)
        path = folder / f"{stem}-{seed}.safetensors"
        if path.exists() and path.read_bytes() != weights.read_bytes():
            raise ModelError(
                f"model: the function's weights with seed {seed} are not those of an earlier call: "
                "they are to be drawn from torch alone, which is seeded for each call. Where they "
                f"are, {path} was damaged: remove it"
            )
        _safetensors.copy(weights, path)
    model.keys["init"] = folder / f"{stem}-{{seed}}.safetensors"
    model.said = model.said.replace("with its weights", "with weights drawn from the run's seed")
    model.module = made[0]
    return model


def _refuse_other_frozen(first: Any, other: Any) -> None:
    """Frozen parameters stay in the file of the module, of which there is one for all seeds."""
    others = dict(other.named_parameters())
    for name, parameter in first.named_parameters():
        if not parameter.requires_grad and not parameter.equal(others[name]):
            raise ModelError(
                f"model: the function draws {name} anew for each seed, and it is frozen: what is "
                "frozen is the same in all runs. Load it in the function, or seed torch before it "
                "is made"
            )


def _shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _weights_file(model: Model, module: Any, folder: Path) -> Path:
    """A module's weights, in a file with the names of the run's tensors."""
    if model.names:
        state = module.state_dict()
        return _write_weights({ours: state[own] for ours, own in model.names.items()}, folder)
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    tensors = {**trained, **dict(module.named_buffers())}
    floats = {model.prefix + name: t for name, t in tensors.items() if t.is_floating_point()}
    return _write_weights(floats, folder)


def names_of(module: Any) -> dict[str, str]:
    """The module's name of each tensor of the run's model file."""
    found = layers_of(module)
    return {} if isinstance(found, str) else _layers_file.names_of(found)


def state_dict(
    module: Any, tensors: Mapping[str, _safetensors.Array], names: Mapping[str, str]
) -> dict[str, torch.Tensor]:
    import torch

    tensors_of_module = module.state_dict(keep_vars=True)
    unsaved = {name for name, _ in module.named_buffers()} - set(tensors_of_module)
    state = OrderedDict((name, value.detach().clone()) for name, value in tensors_of_module.items())
    for name, array in tensors.items():
        own = names.get(name, name)
        if own not in state:
            own = _trace.own_name(name)
        if own in unsaved:  # register_buffer(..., persistent=False): no state dict has it
            continue
        if own not in state or tuple(state[own].shape) != array.shape:
            raise ModelError(
                f"the run's tensor {name} {list(array.shape)} has no place in the module: it is "
                "another model"
            )
        value = torch.from_numpy(np.array(array)).to(state[own])
        for other, tensor in tensors_of_module.items():
            if tensor is tensors_of_module[own]:  # itself, and those that are tied to it
                state[other] = value
    return state


def _layers(module: Any, layers: Sequence[Layer], folder: Path) -> Model:
    names = _layers_file.names_of(layers)
    state = module.state_dict()
    tensors = {ours: _array(state[own], own) for ours, own in names.items()}
    keys = {"layers": [layer.text for layer in layers], "init": _write_weights(tensors, folder)}
    said = f"{type(module).__name__} as {len(layers)} layers, with its weights"
    if frozen := _layers_file.frozen(layers):
        keys["frozen"] = frozen
        said += f", {', '.join(names[name] for name in frozen)} frozen"
    return Model(keys, said, module, names)


def _tensors_alone(module: Any, dtype: str | None, folder: Path) -> Model:
    """Of a module that Python trains: names and shapes, and the weights."""
    said = f"{type(module).__name__} itself, with its weights, in processes of Python"
    model = Model({"tensors": _lines_of(module)}, said, module, dtype=dtype)
    model.keys["init"] = _weights_file(model, module, folder)
    return model


def _lines_of(module: Any) -> list[str]:
    """model.tensors: what is trained and what is a statistic, by name and shape."""
    return [
        " ".join([kind, name, *map(str, tensor.shape)])
        for kind, named in (
            ("parameter", [(n, p) for n, p in module.named_parameters() if p.requires_grad]),
            ("buffer", [(n, b) for n, b in module.named_buffers() if b.is_floating_point()]),
        )
        for name, tensor in named
    ]


def model_table(module: Any, path: Path_) -> str:
    """The table ``[model]`` of a configuration whose clients train this module by programs of
    their own (``workers.backend = "process"``), such as ``macaw.patch(trainer)``.

    Its weights, with which the run begins, are written to `path`, a safetensors file. Frozen
    parameters (``requires_grad_(False)``) are in neither: each program has them.
    """
    if not _is_module(module):
        raise ModelError(f"model: expected a torch.nn.Module, got {_kind(module)}", key="model")
    _modules.dtype_of(module)
    file = path_of(path, "path")
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        os.replace(_weights_file(Model({}, ""), module, Path(folder)), file)
    lines = "".join(f"  {json.dumps(line)},\n" for line in _lines_of(module))
    return f"[model]\ntensors = [\n{lines}]\ninit = {json.dumps(str(path))}\n"


def names_itself(module: Any) -> bool:
    """Whether a run of the module as layers has other names than the module, or is none of layers.

    A program of the caller's that trains the module knows the module's own names alone.
    """
    found = layers_of(module)
    if isinstance(found, str):
        return True
    return any(ours != own for ours, own in _layers_file.names_of(found).items())


def _scripted(module: Any, why: str, folder: Path, example: Example) -> Model:
    import torch

    _libtorch.check()
    buffer = io.BytesIO()
    how, prefix = "scripted", ""
    again: list[str] = []
    doubts: list[str] = []
    with warnings.catch_warnings():
        # PyTorch advises against scripts, and LibTorch trains nothing else.
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        try:
            _trace.save_script(module, example(module), buffer)
        except ModelError:
            raise
        except Exception as error:
            with _modules.keeping_activations(module) as again, _trace.holding_doubts(doubts):
                traced = _trace.traced(module, example(module), first_line(error))
            buffer = io.BytesIO()
            _trace.save(traced, buffer, first_line(error))
            how = "traced"
            if isinstance(traced, torch.jit.RecursiveScriptModule):
                how += " in both modes"
            first = next(name for name, _ in traced.named_parameters())
            prefix = first.removesuffix(_trace.own_name(first))
            why += f"; torch.jit.script refuses it: {first_line(error)}"
    path = _safetensors.write_pieces(folder, ".pt", [buffer.getvalue()])
    said = f"{type(module).__name__} {how}, with its weights, for LibTorch ({why})"
    keys = {"torchscript": path}
    return Model(keys, said, module, prefix=prefix, again=" and ".join(again), doubts=doubts)


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


def _kind(value: Any) -> str:
    return type(value).__name__
