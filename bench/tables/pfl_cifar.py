"""pfl-research's benchmark on CIFAR-10: 1000 users of 50 images, without and with privacy."""

import json
import pathlib
import struct

import numpy as np

from tables.table import Cell, Table

CONFIG = """
[run]
name = "pfl-cifar"
rounds = 1500
[data]
source = "npz"
path = "{data}"
test_fraction = 0
normalise.mean = [0.4914, 0.4822, 0.4465]
normalise.std = [0.2470, 0.2435, 0.2616]
[partition]
clients = 1000
[model]
layers = ["conv 32 3", "relu", "conv 64 3", "relu", "maxpool 2", "dropout 0.25", "flatten",
          "linear 128", "relu", "dropout 0.5", "linear 10"]
[algorithm]
name = "fedavg"
[cohort]
size = 50
weight = "uniform"
[local]
epochs = 1
batch_size = 10
lr = 0.1
[evaluation]
every = 10
"""
# (2, 1e-6) by Rényi divergences, as the benchmark accounts: 1000 of 10⁶ users in each of 3000
# rounds. Delta has to be below 1/population here.
PRIVATE = [
    "privacy.mechanism=gaussian", "privacy.clip=0.4", "privacy.noise=0.727",
    "privacy.noise_cohort=1000", "privacy.population=1000000", "privacy.delta=9.9e-7",
    "cohort.sampling=poisson", "run.rounds=3000",
]  # fmt: skip
SKEWED = ["partition.scheme=dirichlet-client", "partition.concentration=0.1"]
# Glorot's uniform weights, as the benchmark has them; biases are PyTorch's.
SHAPES = {"0": (32, 3, 3, 3), "2": (64, 32, 3, 3), "7": (128, 64 * 14 * 14), "10": (10, 128)}


def first_model(path: pathlib.Path, seed: int) -> None:
    draws, tensors = np.random.default_rng(seed), {}
    for name, shape in SHAPES.items():
        taps = int(np.prod(shape[2:]))
        bound = np.sqrt(6 / ((shape[0] + shape[1]) * taps))
        tensors[f"{name}.weight"] = draws.uniform(-bound, bound, shape)
        near = 1 / np.sqrt(shape[1] * taps)
        tensors[f"{name}.bias"] = draws.uniform(-near, near, shape[:1])
    header, at, body = {}, 0, b""
    for name, value in tensors.items():
        raw = value.astype("<f4").tobytes()
        place = [at, at + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": place}
        at, body = place[1], body + raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def drawn(cell: Cell, seed: int, data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The first model, the same for all cells of a seed."""
    del cell, data
    path = folder / f"first-{seed}.safetensors"
    first_model(path, seed)
    return [f"model.init={path}"]


ABOUT = """
The settings of [pfl-research,
benchmarks/image_classification](https://github.com/apple/pfl-research/tree/main/benchmarks/image_classification):
1000 users of 50 images, 50 a round, one epoch in batches of 10 at rate 0.1, plain means,
Glorot's first weights, dropout; 1500 rounds, and 3000 with skewed classes (Dirichlet 0.1 by
user) or with privacy (clip 0.4, ε = 2 for 1000 of a million users a round). The best test
accuracy of every tenth round, in percent. Its repository has no table of results, so there is
none beside ours. Its cohorts are drawn users with equal sizes; ours are Poisson cohorts where
privacy is on.
"""

TABLE = Table(
    name="pfl_cifar",
    title="pfl-research: CIFAR-10",
    about=ABOUT,
    data="cifar",
    config=CONFIG,
    cells=[
        Cell("IID", "FedAvg", ["partition.scheme=iid"], None),
        Cell("Dirichlet 0.1", "FedAvg", [*SKEWED, "run.rounds=3000"], None),
        Cell("IID, private", "FedAvg", ["partition.scheme=iid", *PRIVATE], None),
        Cell("Dirichlet 0.1, private", "FedAvg", [*SKEWED, *PRIVATE], None),
    ],
    metric="best",
    drawn=drawn,
)
