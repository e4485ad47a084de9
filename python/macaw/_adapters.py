"""The adapters of a run ([model] adapters), added to the weights of a module that has none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ._safetensors import Array

_A, _B = "lora_A.weight", "lora_B.weight"


def merged(tensors: Mapping[str, Array], rules: Sequence[str]) -> dict[str, Array]:
    """The tensors without adapters, of the model that computes the same: W + (α/r)·B·A.

    rules: ``model.adapters`` of the run.
    """
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith((_A, _B))}
    for name, a in tensors.items():
        if not name.endswith(_A):
            continue
        place = name.removesuffix(_A)
        weight = next(w for w in (f"{place}weight", f"{place}in_proj_weight") if w in plain)
        b, scale = tensors[place + _B].astype(np.float64), _scale(weight, rules)
        change = scale * (b @ a.astype(np.float64))
        kept = plain[weight]
        plain[weight] = (kept.astype(np.float64) + change).astype(kept.dtype)
    return plain


def _scale(weight: str, rules: Sequence[str]) -> float:
    """α/r of the first rule that names the weight."""
    for rule in rules:
        _, rank, *options, glob = rule.split()
        pattern = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob)
        if re.fullmatch(pattern, weight, re.DOTALL):
            given = dict(zip(options[::2], options[1::2]))
            return float(given.get("alpha", rank)) / int(rank)
    raise KeyError(f"no rule of {list(rules)} is for {weight}")
