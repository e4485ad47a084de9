"""``privacy=dict(epsilon=8, clip=1)``: the noise that is enough, as `macaw privacy` finds it."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from . import _division
from . import keys as _keys
from ._program import program
from ._settings import overrides, value_of
from ._spaces import Space
from .errors import ConfigError, RunError

Config = str | os.PathLike[str] | None
Check = Callable[[], None]  # raises the error of a configuration that cannot be run
Count = Callable[[Mapping[str, Any], int], "int | None"]  # clients with training rows, by the seed

_DEFAULT_CLIENTS = 100  # of a partition that does not say how many
# Schemes in which every client has partition.min_size rows.
_DIVIDES = (
    *("iid", "shards", "sorted", "dirichlet-class", "dirichlet-client", "dirichlet-quantity"),
    *("k-classes", "lognormal", "power-law"),
)
# Keys by which clients with rows do not train. Those of [cohort] are refused beside a mechanism.
_LEAVE_OUT = ("data.heldout_clients", "local.drop_last", "partition.train_together")
# What the promise is about: rounds whose clients are drawn one by one and count alike.
_NEEDED = {
    "privacy.mechanism": "gaussian",
    "cohort.sampling": "poisson",
    "cohort.weight": "uniform",
}
_OF_ROWS = ("data.", "partition.")
# What the noise follows from, beside epsilon and the division of the rows.
_DECIDE = (
    *_LEAVE_OUT,
    *("cohort.size", "cohort.fraction", "run.rounds"),
    *("cohort.straggler_fraction", "cohort.straggler_policy"),
    *("privacy.noise_cohort", "privacy.population", "privacy.delta"),
)
# Names of Opacus, TensorFlow Privacy and Flower.
_THEIRS = {
    "noise_multiplier": "noise",
    "sigma": "noise",
    "target_epsilon": "epsilon",
    "eps": "epsilon",
    "target_delta": "delta",
    "max_grad_norm": "clip",
    "max_norm": "clip",
    "clip_norm": "clip",
    "clipping_norm": "clip",
    "l2_norm_clip": "clip",
}
# Options of `macaw privacy` as keys.
_OPTIONS = {
    "clients": "partition.clients",
    "cohort": "cohort.size",
    "rounds": "run.rounds",
    "straggler-fraction": "cohort.straggler_fraction",
    "population": "privacy.population",
    "delta": "privacy.delta",
    "epsilon": "privacy.epsilon",
    "noise": "privacy.noise",
}


@dataclass(frozen=True)
class Promise:
    """What was asked for, and what was done for it."""

    note: str
    noises: dict[float, float]  # of each epsilon

    def keep(self, spent: float | None, noise: float | None, folder: str) -> None:
        """Raises if a run has spent more than was asked. noise: that of the run, if there are
        several."""
        epsilons = [e for e, its in self.noises.items() if noise is None or its == noise]
        asked = max(epsilons, default=max(self.noises))
        if spent is not None and spent > asked * (1 + 1e-6):
            raise RunError(
                f"privacy.epsilon: {asked:g} was asked for, and the run has spent {spent:.6g}: "
                "more of its clients were drawn than its noise is for. Do not give its models "
                "away, and report this error",
                folder=folder,
                key="privacy.epsilon",
            )


def add_noise(
    settings: dict[str, Any],
    config: Config,
    others: Sequence[Mapping[str, Any]],
    seeds: Sequence[int],
    check: Check,
) -> Promise | None:
    """Replaces ``privacy.epsilon`` by the noise that is enough. None: there is none to replace.

    A space of epsilons becomes one of noises. others: what configurations of a sweep have beside
    the settings; one noise must fit all of them. seeds: of the runs.

    Errors: a key that ``privacy=`` does not have; no clip; clients, clients a round or rounds that
    are not known before the run, or differ in a sweep (ConfigError).
    """
    _check_keys(settings)
    epsilon = settings.pop("privacy.epsilon", None)
    if epsilon is None:
        _check_mechanism(settings, config)
        return None
    _check(settings, config, epsilon)
    counted: dict[str, int | None] = {}

    def count(whole: Mapping[str, Any], seed: int) -> int | None:
        rows = {key: str(value) for key, value in whole.items() if key.startswith(_OF_ROWS)}
        name = f"{sorted(rows.items())} {seed}"
        if name not in counted:
            keys = {**whole, "run.seed": seed}
            counted[name] = _division.training_clients(keys, config, overrides, check)
        return counted[name]

    whole = _configurations(settings, others)
    known = _one([_known(each, config, seeds, count) for each in whole])
    values = epsilon.values if isinstance(epsilon, Space) else (epsilon,)
    found = [_noise_of({**known, "epsilon": value}) for value in values]
    noises, delta = [noise for noise, _ in found], found[0][1]
    several = isinstance(epsilon, Space)
    settings["privacy.noise"] = Space(epsilon.kind, tuple(noises)) if several else noises[0]
    settings["privacy.delta"] = delta
    dropped = known["straggler-fraction"] or 0.0
    added = []
    for key, value in _NEEDED.items():
        if value_of(settings, config, key) is None:
            settings[key] = value
            added.append(f'{key} = "{value}"')
    also = f"; {', '.join(added)}" if added else ""
    note = (
        f"privacy: epsilon {_listed(values)} at delta {delta:.3g}, over {known['rounds']} rounds "
        f"of some {known['cohort'] * (1 - dropped):.12g} of "
        f"{known['population'] or known['clients']} clients: "
        f"privacy.noise = {_listed(noises)}{also}"
    )
    return Promise(note, dict(zip(map(float, values), noises)))


def refuse_statistics(
    settings: Mapping[str, Any],
    config: Config,
    others: Sequence[Mapping[str, Any]],
    *,
    normalise: str | None,
    gaps: Sequence[str],
) -> None:
    """Refuses numbers over all clients' rows in a run, or a run of a sweep, with a mechanism.

    normalise: the argument. gaps: columns of numbers whose gaps became the column's mean.
    others: as for ``add_noise``.
    """
    if normalise != "train" and not gaps:
        return
    mechanisms = [
        value
        for other in others
        for value in _values(value_of({**settings, **other}, config, "privacy.mechanism"))
    ]
    if all(mechanism in (None, "none") for mechanism in mechanisms):
        return
    why = (
        "over all clients' rows without noise, so that one client could move every row, and "
        "privacy's epsilon would not hold"
    )
    if normalise == "train":
        raise ConfigError(
            f'normalise="train" takes means and deviations {why}: take normalise="client", each '
            "client's own, or numbers that are known from outside, "
            "data_options=dict(normalise=dict(mean=[…], std=[…]))",
            key="normalise",
        )
    raise ConfigError(
        f'missing fills the gaps of "{gaps[0]}" with its mean {why}: fill them before with a '
        f'number that is known from outside, such as df.fillna({{"{gaps[0]}": 0}}), or leave the '
        "column or the rows out",
        key="missing",
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _check_keys(settings: Mapping[str, Any]) -> None:
    """Refuses a key that no ``privacy=`` has, with the one that was probably meant."""
    known = list(_keys.Privacy.__annotations__)
    for key in settings:
        table, _, name = key.partition(".")
        if table != "privacy" or name in known:
            continue
        meant = _THEIRS.get(name) or next(iter(get_close_matches(name, known, 1)), None)
        question = f"; did you mean {meant}?" if meant else "."
        raise ConfigError(
            f"privacy= has no key {name}{question} It has {', '.join(known)}",
            key=key,
            nearest=f"privacy.{meant}" if meant else None,
        )


def _check_mechanism(settings: Mapping[str, Any], config: Config) -> None:
    """Refuses keys that do nothing without a mechanism or an epsilon."""
    given = [key for key in settings if key.startswith("privacy.")]
    if given and value_of(settings, config, "privacy.mechanism") is None:
        raise ConfigError(
            f"{given[0]} has no effect alone: privacy=dict(epsilon=8, clip=1.0) finds the noise "
            'for an epsilon, and privacy=dict(mechanism="gaussian", clip=1.0, noise=1.0) gives it',
            key=given[0],
        )


def _check(settings: Mapping[str, Any], config: Config, epsilon: Any) -> None:
    if "privacy.noise" in settings:
        raise ConfigError(
            "privacy.epsilon and privacy.noise say the same thing: give one of them",
            key="privacy.epsilon",
        )
    if isinstance(epsilon, Space) and epsilon.kind not in ("grid", "choice"):
        raise ConfigError(
            f"privacy.epsilon is macaw.{epsilon.kind}(…), and each epsilon has a noise of its own: "
            "give the values, privacy=dict(epsilon=macaw.grid([1, 2, 4, 8]), clip=1.0)",
            key="privacy.epsilon",
        )
    for value in epsilon.values if isinstance(epsilon, Space) else (epsilon,):
        if not _is_number(value) or not 1e-3 <= value <= 1e6:
            raise ConfigError(
                f"privacy.epsilon must be a number from 0.001 to 1000000, found {value!r}",
                key="privacy.epsilon",
            )
    if value_of(settings, config, "privacy.clip") is None:
        shown = f"{epsilon:g}" if _is_number(epsilon) else "…"
        raise ConfigError(
            "privacy.clip is missing: epsilon says how much noise is enough for updates of at most "
            f"that norm. Write privacy=dict(epsilon={shown}, clip=1.0), and try smaller and larger "
            "clips",
            key="privacy.clip",
        )
    for value in _values(value_of(settings, config, "privacy.delta")):
        if value is not None and not (_is_number(value) and 0 < value < 1):
            raise ConfigError(
                f"privacy.delta must be a number in (0, 1), found {value!r}; by default it is a "
                "tenth of 1 / clients",
                key="privacy.delta",
            )


def _values(value: Any) -> tuple[Any, ...]:
    return value.values if isinstance(value, Space) else (value,)


def _configurations(
    settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The settings of a sweep's configurations, as far as the noise follows from them."""
    for other in others:
        whole = {**settings, **other}
        spaces = {
            key: value
            for key, value in whole.items()
            if isinstance(value, Space) and (key in _DECIDE or key.startswith(_OF_ROWS))
        }
        for values in itertools.product(*(space.values for space in spaces.values())):
            yield {**whole, **dict(zip(spaces, values))}


def _one(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all configurations have in common, which must be everything."""
    for name, value in found[0].items():
        seen = list(dict.fromkeys(known[name] for known in found))
        if len(seen) > 1:
            key = _OPTIONS[name]
            raise ConfigError(
                f"privacy.epsilon: its noise follows from {key}, which varies in this sweep "
                f"({', '.join(map(str, seen))}): run a sweep for each, or give noises, "
                "privacy=dict(noise=macaw.grid([…]), …)",
                key="privacy.epsilon",
            )
        if value is None and name in ("cohort", "rounds"):
            line = "cohort=…" if name == "cohort" else "rounds=…"
            raise ConfigError(
                f"privacy.epsilon: {line} is missing, and the noise follows from it",
                key="privacy.epsilon",
            )
        if value is not None and name in ("cohort", "rounds") and not _is_count(value):
            raise ConfigError(
                f"{_OPTIONS[name]} must be a whole number from 1 where privacy has an epsilon, "
                f"found {value!r}",
                key=_OPTIONS[name],
            )
    known = found[0]
    if known["clients"] is None:
        numbers = f"--cohort {known['cohort']} --rounds {known['rounds']}"
        raise ConfigError(
            "privacy.epsilon: how many clients train is not known before this run. Count them; "
            f"the command `macaw privacy --clients … {numbers} --epsilon …` then says the noise "
            "for privacy=dict(noise=…, delta=…)",
            key="privacy.epsilon",
        )
    return known


def _known(
    settings: Mapping[str, Any], config: Config, seeds: Sequence[int], count: Count
) -> dict[str, Any]:
    clients = _clients(settings, config, seeds, count)
    return {
        "clients": clients,
        "cohort": _cohort(settings, config, clients),
        "rounds": value_of(settings, config, "run.rounds"),
        "straggler-fraction": _dropped(settings, config),
        "population": value_of(settings, config, "privacy.population"),
        "delta": value_of(settings, config, "privacy.delta"),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 1 and value == int(value)


def _clients(
    settings: Mapping[str, Any], config: Config, seeds: Sequence[int], count: Count
) -> int | None:
    """How many clients train; None: it is not known before the run."""

    def of(key: str) -> Any:
        return value_of(settings, config, key)

    if any(of(key) for key in _LEAVE_OUT):
        return None
    whole = of("partition.min_size") != 0 and not _division.cuts_clients(settings, config)
    if of("partition.scheme") in _DIVIDES and whole:
        clients = of("partition.clients") or _DEFAULT_CLIENTS
        return int(clients) if _is_number(clients) else None
    found = {seed: count(settings, seed) for seed in seeds}
    if len(set(found.values())) > 1:
        raise ConfigError(
            "privacy.epsilon: its noise follows from how many clients have training rows, and that "
            f"differs between the seeds ({', '.join(f'{s}: {n}' for s, n in found.items())}): give "
            "partition=macaw.…(seed=1) and data_options=dict(seed=1), or a sweep for each seed",
            key="privacy.epsilon",
        )
    return found[seeds[0]]


def _cohort(settings: Mapping[str, Any], config: Config, clients: int | None) -> Any:
    size = value_of(settings, config, "privacy.noise_cohort")
    if not size:
        size = value_of(settings, config, "cohort.size")
        if _is_count(size) and clients is not None:  # a cohort of everybody is one of all who train
            size = min(size, clients)
    fraction = value_of(settings, config, "cohort.fraction")
    if size is None and _is_number(fraction) and clients is not None:
        return max(1, int(fraction * clients + 0.5))
    return size


def _dropped(settings: Mapping[str, Any], config: Config) -> Any:
    """The share of the drawn clients that does not train; None: all train."""
    if value_of(settings, config, "cohort.straggler_policy") != "drop":
        return None
    fraction = value_of(settings, config, "cohort.straggler_fraction")
    if fraction is None or (_is_number(fraction) and fraction == 0):
        return None
    if not _is_number(fraction) or not 0 <= fraction < 1:
        raise ConfigError(
            "cohort.straggler_fraction must be a number in [0, 1) where privacy has an epsilon and "
            f"stragglers are dropped, found {fraction!r}",
            key="cohort.straggler_fraction",
        )
    return float(fraction)


def _noise_of(known: Mapping[str, Any]) -> tuple[float, float]:
    arguments = [f"--{name}={value}" for name, value in known.items() if value is not None]
    done = subprocess.run([program(), "privacy", *arguments], capture_output=True, text=True)
    found = {
        name: re.search(rf"^{name} = (\S+)$", done.stdout, re.MULTILINE)
        for name in ("noise", "delta")
    }
    noise, delta = found["noise"], found["delta"]
    if done.returncode != 0 or noise is None or delta is None:
        text = done.stderr.strip().removeprefix("macaw: error: ").partition("\n")[0]
        text = re.sub(r"--([\w-]+)", lambda option: _OPTIONS.get(option[1], option[1]), text)
        raise ConfigError(f"privacy.epsilon: {text}", key="privacy.epsilon")
    return float(noise[1]), float(delta[1])
