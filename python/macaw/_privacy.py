"""``privacy=dict(epsilon=8)``: the noise that is enough, as `macaw privacy` finds it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _safetensors
from ._program import program
from ._settings import value_of
from .errors import ConfigError

_DEFAULT_CLIENTS = 100  # of a partition that does not say how many
# What the promise is about: rounds whose clients are drawn one by one and count alike.
_NEEDED = {
    "privacy.mechanism": "gaussian",
    "cohort.sampling": "poisson",
    "cohort.weight": "uniform",
}


def add_noise(settings: dict[str, Any], config: str | os.PathLike[str] | None) -> str | None:
    """Replaces ``privacy.epsilon`` by the noise that is enough. Returns what was done, if anything.

    Errors: where clients, clients a round or rounds are not known before the run (ConfigError with
    the command to type).
    """
    epsilon = settings.pop("privacy.epsilon", None)
    if epsilon is None:
        return None
    if "privacy.noise" in settings:
        raise ConfigError(
            "privacy.epsilon and privacy.noise say the same thing: give one of them",
            key="privacy.epsilon",
        )
    clients = _clients(settings, config)
    population = value_of(settings, config, "privacy.population")
    known = {
        "clients": clients,
        "cohort": _cohort(settings, config, clients),
        "rounds": value_of(settings, config, "run.rounds"),
        "population": population,
        "epsilon": epsilon,
        "delta": value_of(settings, config, "privacy.delta"),
    }
    needed = ("clients", "cohort", "rounds", "epsilon")
    if not all(_is_number(known[name]) for name in needed):
        arguments = " ".join(
            f"--{name} {known[name] if _is_number(known[name]) else '…'}" for name in needed
        )
        raise ConfigError(
            "privacy.epsilon: how many clients there are, in all and a round, and how many rounds, "
            f"must be known before the run. `macaw privacy {arguments}` says the noise: "
            "privacy=dict(noise=…)",
            key="privacy.epsilon",
        )
    noise, delta = _noise_of(known)
    settings["privacy.noise"] = noise
    settings["privacy.delta"] = delta
    added = []
    for key, value in _NEEDED.items():
        if value_of(settings, config, key) is None:
            settings[key] = value
            added.append(f'{key} = "{value}"')
    also = f"; {', '.join(added)}" if added else ""
    return (
        f"privacy: epsilon {epsilon:g} at delta {delta:.3g}, over {known['rounds']} rounds of some "
        f"{known['cohort']} of {population or clients} clients: privacy.noise = {noise:.4g}{also}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _clients(settings: Mapping[str, Any], config: str | os.PathLike[str] | None) -> int | None:
    """How many clients train; None: it is not known before the run."""
    scheme = value_of(settings, config, "partition.scheme") or "auto"
    held_out = value_of(settings, config, "data.heldout_clients")
    if held_out or value_of(settings, config, "local.drop_last") or scheme in ("file", "histogram"):
        return None
    if value_of(settings, config, "data.source") == "prepared" and scheme in ("auto", "natural"):
        tensors = _safetensors.read(Path(value_of(settings, config, "data.path")))
        if "train_offsets" in tensors:
            return int((np.diff(tensors["train_offsets"]) > 0).sum())
    elif scheme in ("auto", "natural"):  # the file's own clients
        return None
    count = value_of(settings, config, "partition.clients") or _DEFAULT_CLIENTS
    return int(count) if _is_number(count) else None


def _cohort(
    settings: Mapping[str, Any], config: str | os.PathLike[str] | None, clients: int | None
) -> Any:
    size = value_of(settings, config, "privacy.noise_cohort")
    size = size or value_of(settings, config, "cohort.size")
    fraction = value_of(settings, config, "cohort.fraction")
    if size is None and _is_number(fraction) and clients is not None:
        return max(1, int(fraction * clients + 0.5))
    return size


def _noise_of(known: Mapping[str, Any]) -> tuple[float, float]:
    arguments = [f"--{name}={value}" for name, value in known.items() if value is not None]
    done = subprocess.run([program(), "privacy", *arguments], capture_output=True, text=True)
    found = {
        name: re.search(rf"^{name} = (\S+)$", done.stdout, re.MULTILINE)
        for name in ("noise", "delta")
    }
    noise, delta = found["noise"], found["delta"]
    if done.returncode != 0 or noise is None or delta is None:
        text = done.stderr.strip().removeprefix("macaw: error: ")
        raise ConfigError(f"privacy.epsilon: {text}", key="privacy.epsilon")
    return float(noise[1]), float(delta[1])
