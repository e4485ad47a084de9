"""``peft=``: a model's adapters, of which a run trains and sends nothing else."""

from __future__ import annotations

import copy
from typing import Any

from . import _model, _modules
from ._spaces import Space
from .errors import ConfigError, ModelError


def with_adapters(model: Any, config: Any, seed: int) -> Any:
    """The model with the adapters of a configuration of peft, such as LoraConfig.

    A module is copied, and stays as it is; its adapters are drawn from the seed. A function that
    makes modules is called once, with torch seeded by 0: what is frozen is the same in all runs.
    """
    _check(model, config)
    if _model.is_factory(model):
        return _Made(model, config)
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _wrapped(_modules.copy_of(model), config)


def _check(model: Any, config: Any) -> None:
    if type(config).__module__.partition(".")[0] != "peft":
        raise ConfigError(
            f"peft={config!r}: it is a configuration of the package peft, such as "
            'peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"])',
            key="peft",
        )
    if not hasattr(model, "named_parameters") and not _model.is_factory(model):
        raise ModelError(
            f"model: peft= is for a torch.nn.Module, and this is {type(model).__name__}", key="peft"
        )
    if hasattr(model, "peft_config"):
        raise ModelError("model: it has adapters of peft already: leave peft= out", key="peft")


def of_a_sweep(model: Any, config: Any) -> Any:
    """The model of a sweep, or its values, with adapters that are drawn from each run's seed.

    Several configurations are values of the model.
    """
    if config is None:
        return model
    if isinstance(config, Space) and isinstance(model, Space):
        raise ConfigError("peft: a sweep varies the model or its adapters, not both", key="peft")
    if isinstance(config, Space):
        return Space(config.kind, tuple(_of_each_seed(model, c) for c in config.values))
    if isinstance(model, Space):
        return Space(model.kind, tuple(_of_each_seed(m, config) for m in model.values))
    return _of_each_seed(model, config)


def _of_each_seed(model: Any, config: Any) -> _Made:
    _check(model, config)
    return _Made(model, config)


class _Made:
    """Makes copies of one module, whose adapters are drawn from torch as it is then seeded."""

    def __init__(self, model: Any, config: Any) -> None:
        self._base = _model.made_by(model) if _model.is_factory(model) else copy.deepcopy(model)
        self._config = config

    def __call__(self) -> Any:
        return _wrapped(copy.deepcopy(self._base), self._config)


def _wrapped(module: Any, config: Any) -> Any:
    from peft import get_peft_model

    if not isinstance(getattr(module, "config", None), dict) and not hasattr(module, "config"):
        module.config = {"model_type": "custom"}  # of a module that is not Hugging Face's
    try:
        return get_peft_model(module, copy.deepcopy(config))
    except ValueError as error:  # no target_modules, or none of these names
        raise ModelError(f"model: peft refuses it: {error}", key="peft") from error
