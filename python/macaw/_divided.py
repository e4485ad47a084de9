"""A round's weights in a module that several processes divide among them: FSDP, of both kinds.

FSDP2 (``fully_shard``) makes each parameter a DTensor, and keeps its name and shape. FSDP1
(``FullyShardedDataParallel``) joins parameters into flat ones, of which PyTorch's state dicts say
what is in them. Both are of PyTorch, so a GPU or gloo makes no difference here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._safetensors import Array
from ._weights import Weights, array_of_tensor
from .errors import ArgumentError

# What wrappers put into the names of tensors. State dicts of torch.distributed are without it.
_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")


class DividedWeights(Weights):
    """All ranks call each method at once. The arrays of rank 0 count, and it alone gets the ends.

    The module may still be whole: before its trainer divides it.
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        # What this rank has of the rule's vectors, by the run's names.
        self._anchor: dict[str, Any] | None = None
        self._correction: dict[str, Any] | None = None

    def load(self, weights: Mapping[str, Array], task: Any = None) -> None:
        reshard(self.module)
        if not self._names:
            self._find(weights)
        self._anchor = self._correction = None
        if task is not None:
            self._refuse_part(task.trainable)
            # Before the weights: the module itself says which piece of a vector is this rank's.
            if task.correction is not None:
                self._correction = self._pieces_of(task.correction)
            if task.mu != 0:
                self._anchor = self._pieces_of(task.anchor)
        super().load(weights, task)

    def taken(self, weights: dict[str, Array]) -> dict[str, Array]:
        """As `weights`, whose numbers are new then: a tensor at a time, so that rank 0 has the
        whole model once."""
        reshard(self.module)
        inside = {self._names[name]: name for name in weights}
        for name, whole in _whole_tensors(self.module, inside):
            weights[inside[name]][...] = array_of_tensor(whole)
        return weights

    def correct(self, task: Any) -> None:
        import torch

        if self._anchor is None and self._correction is None:
            return
        there = self._parameters()
        with torch.no_grad():
            for name in self._trained:
                place = there[self._names[name]]
                if place.grad is None:
                    continue
                if self._anchor is not None:
                    place.grad.add_(place - self._anchor[name], alpha=task.mu)
                if self._correction is not None:
                    place.grad.add_(self._correction[name])

    def _pieces_of(self, vector: Mapping[str, Array]) -> dict[str, Any]:
        self._set({name: vector[name] for name in self._trained})
        there = self._parameters()
        return {name: there[self._names[name]].detach().clone() for name in self._trained}

    def _set(self, weights: Mapping[str, Array]) -> None:
        arrays = {self._names[name]: array for name, array in weights.items()}
        for names in _tied(self.module):  # FSDP1 would put back what the other name has
            given = next((arrays[name] for name in names if name in arrays), None)
            if given is not None:
                arrays.update(dict.fromkeys(names, given))
        _set_tensors(self.module, arrays)

    def _find(self, weights: Mapping[str, Array]) -> None:
        super()._find(weights)
        joined = self._names.values() - self._tensors().keys()
        if joined:
            raise TypeError(
                f"FSDP has joined {min(joined)} with others into one parameter of no name: set its "
                "use_orig_params=True"
            )

    def _refuse_part(self, trainable: set[str] | None) -> None:
        if trainable is not None and not self._trained <= trainable and _is_flat(self.module):
            raise TypeError(
                "the run's rule trains a part of the model at a time, which FSDP1 joins with the "
                "rest: take FSDP2 (fully_shard, fsdp_version=2), or DDP"
            )

    def _parameters(self) -> dict[str, Any]:
        return {_plain(name): tensor for name, tensor in super()._parameters().items()}

    def _buffers(self) -> dict[str, Any]:
        return {_plain(name): tensor for name, tensor in super()._buffers().items()}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.size()) for name, tensor in _state(self.module).items()}


def is_divided(module: Any) -> bool:
    if _is_flat(module) or any(True for _ in _parts_of_fsdp2(module)):
        return True
    return any(_is_dtensor(parameter) for parameter in module.parameters())


def reshard(module: Any) -> None:
    """FSDP2 leaves a root whole after a forward pass without a backward one: its parameters are
    others then, which no optimizer should get."""
    for part in _parts_of_fsdp2(module):
        part.reshard()


def is_possible() -> bool:
    """From PyTorch 2.6 on."""
    try:
        from torch.distributed.fsdp import FSDPModule  # noqa: F401
    except Exception:  # a ValueError of Debian's PyTorch 1.13 under Python 3.11
        return False
    return True


def refuse_old_torch() -> None:
    import torch

    if not is_possible():
        raise ArgumentError(
            "macaw.patch: the ranks divide the model, and giving it a run's weights takes PyTorch "
            f"2.6 or later; this is {torch.__version__}: train by DDP"
        )


def _set_tensors(module: Any, arrays: Mapping[str, Array]) -> None:
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    with warnings.catch_warnings():
        # Of PyTorch about itself, and about arrays that are read-only and only read.
        warnings.simplefilter("ignore")
        first = torch.distributed.get_rank() == 0
        given = {name: torch.from_numpy(arrays[name]) for name in (arrays if first else ())}
        set_model_state_dict(module, given, options=options)


def _whole_tensors(module: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Of rank 0; nothing of the others. One after the other, and no others are gathered."""
    import torch

    there = _state(module)
    for name in names:
        whole = _whole(there[name])
        if torch.distributed.get_rank() == 0:
            yield name, whole


def _whole(tensor: Any) -> Any:
    """Of rank 0."""
    import torch

    if _is_dtensor(tensor):
        return tensor.full_tensor()
    if not hasattr(tensor, "local_shards"):
        return tensor
    whole = None  # of a ShardedTensor, which FSDP1 makes
    if torch.distributed.get_rank() == 0:
        device = tensor._get_preferred_device()
        whole = torch.empty(tensor.size(), dtype=tensor.dtype, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ranks that have nothing of a small tensor
        tensor.gather(0, whole, dtype=tensor.dtype)
    return whole


def _state(module: Any) -> dict[str, Any]:
    """What this rank has of each tensor."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about its own ShardedTensor
        state: dict[str, Any] = get_model_state_dict(module)
    return state


def _tied(module: Any) -> Iterable[list[str]]:
    """The names of parameters that have several."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(_plain(name))
    return (several for several in names.values() if len(several) > 1)


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _parts_of_fsdp2(module: Any) -> Iterator[Any]:
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    return (part for part in module.modules() if kind is not None and isinstance(part, kind))


def _is_flat(module: Any) -> bool:
    """Whether it is of FSDP1."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    return kind is not None and any(isinstance(part, kind) for part in module.modules())


def _is_dtensor(tensor: Any) -> bool:
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(tensor, kind)
