"""Two processes whose module FSDP divides, and what macaw does with it: for test_divided.py.

    python divided_ranks.py RANK FOLDER

Each writes what it has seen to FOLDER/RANK.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as group
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor

from macaw._divided import DividedWeights
from macaw._weights import Weights

KINDS = ("whole", "fsdp1", "fsdp2")
MU, RATE = 0.5, 0.1


class Net(torch.nn.Module):
    """With a weight of two names, one that is frozen, and buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.frozen = torch.nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(2), persistent=False)

    def forward(self, tokens: Any) -> Any:
        self.seen += 1
        return self.head(self.frozen(self.norm(self.embed(tokens))))


RUN = ("embed.weight", "norm.weight", "norm.bias", "norm.running_mean")  # what the run knows


def drawn(seed: int) -> dict[str, Any]:
    """Vectors of the run."""
    random = np.random.default_rng(seed)
    shapes = {name: tuple(tensor.shape) for name, tensor in Net().state_dict().items()}
    return {name: random.normal(size=shapes[name]).astype(np.float32) for name in RUN}


def made(kind: str) -> Any:
    torch.manual_seed(0)
    net = Net()
    if kind == "fsdp1":
        return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))
    return fully_shard(net) if kind == "fsdp2" else net


def of_rank(rank: int, vectors: dict[str, Any]) -> dict[str, Any]:
    """As serve(…, sharded=True) gives them."""
    if rank == 0:
        return {name: array.copy() for name, array in vectors.items()}
    zero = np.zeros((), np.float32)
    return {name: np.broadcast_to(zero, array.shape) for name, array in vectors.items()}


def turn(kind: str, rank: int, gathered: list[str]) -> dict[str, Any]:
    """Two turns of two steps with a correction, and what is there after each."""
    module = made(kind)
    weights = (Weights if kind == "whole" else DividedWeights)(module)
    found: dict[str, Any] = {"moved": []}
    for round_ in (1, 2):
        task = SimpleNamespace(
            mu=MU, anchor=of_rank(rank, drawn(2)), trainable=None,
            correction=of_rank(rank, drawn(3)),
        )  # fmt: skip
        given = of_rank(rank, drawn(round_))
        weights.load(given, task)
        found["moved"].append(module.seen.tolist())
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=RATE)
        for _ in range(2):
            optimizer.zero_grad()
            module(torch.tensor([0, 1, 2, 3, 4, 4])).square().mean().backward()
            weights.correct(task)
            optimizer.step()
        with torch.no_grad():
            module.eval()(torch.tensor([0, 1]))  # leaves a root of FSDP2 whole
            module.train()
        gathered.clear()
        ends = weights.taken(given)
        found[str(round_)] = {name: array.tolist() for name, array in ends.items()}
        found["gathered"] = list(gathered)
    return found


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = group.FileStore(str(folder / "store"), 2)
    group.init_process_group("gloo", store=store, rank=rank, world_size=2)
    gathered: list[str] = []
    whole = DTensor.full_tensor

    def noting(tensor: Any, **named: Any) -> Any:
        gathered.append(list(tensor.shape))
        return whole(tensor, **named)

    DTensor.full_tensor = noting
    found = {kind: turn(kind, rank, gathered) for kind in KINDS}
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
