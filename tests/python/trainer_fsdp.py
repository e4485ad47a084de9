"""FSDP in trainer_programs.py, on CPUs: what its Trainers want a GPU for is said to be here."""

from __future__ import annotations

from typing import Any

import torch


def be_an_accelerator() -> None:
    """accelerate divides models by FSDP on accelerators alone: now CPUs and gloo are one of them.
    What divides and trains is PyTorch's FSDP all the same."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def hugging_options(version: int) -> dict[str, Any]:
    config = {"version": version, "transformer_layer_cls_to_wrap": ["GPT2Block"]}
    if version == 1:
        config["sync_module_states"] = False  # moves them over GPUs
    return {"fsdp": True, "fsdp_config": config}


def check(model: Any) -> None:
    from macaw._divided import is_divided

    if not is_divided(model):
        raise RuntimeError("the trainer has not divided its model")


def hugging_check() -> Any:
    import transformers

    class MustBeDivided(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
            check(model)

    return MustBeDivided()


def divided(base: Any) -> Any:
    """The module, divided by fully_shard as ModelParallelStrategy wants it."""

    class Divided(type(base)):  # type: ignore[misc]
        def configure_model(self) -> None:
            from torch.distributed.fsdp import FSDPModule, fully_shard

            if not isinstance(self.net, FSDPModule):  # each fit calls this
                fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    return Divided()


def strategy(package: Any, ranks: int, fsdp: int) -> Any:
    """Of Lightning."""
    strategies = package.strategies
    if fsdp == 2:
        return strategies.ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)

    class OnCpu(strategies.FSDPStrategy):  # type: ignore[misc,name-defined]
        """A class of its own, since Lightning refuses FSDPStrategy itself without a GPU, and wraps
        the module for none but a GPU."""

        def _setup_model(self, model: Any) -> Any:
            from torch.distributed.fsdp import FullyShardedDataParallel as Wrapper

            return Wrapper(model, device_id=self.root_device, **self.kwargs)

    return OnCpu(auto_wrap_policy={torch.nn.Linear})


def lightning_check(package: Any) -> Any:
    class MustBeDivided(package.Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, _: Any) -> None:
            check(trainer.strategy.model)

    return MustBeDivided()
