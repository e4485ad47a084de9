"""The job: LeNet-5 as `model.name = "lenet5"` has it, and the images of a prepared file of Macaw's."""

import json
import pathlib

import numpy
import torch
from torch import nn

EPOCHS, BATCH, LR = 5, 10, 0.1  # of examples/mnist10k.toml


def network():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def training_rows(path):
    """(images, labels) of the only client in the file. Its head is that of safetensors: a size, then JSON."""
    raw = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    tensors = json.loads(raw[8:begin])

    def tensor(name, kind):
        first, end = tensors[name]["data_offsets"]
        return numpy.frombuffer(raw[begin + first : begin + end], kind).reshape(tensors[name]["shape"])

    rows = slice(*tensor("train_offsets", "<i8"))
    images = tensor("features", "u1")[rows].astype("float32") / 255
    return torch.from_numpy(images), torch.from_numpy(tensor("labels", "<i4")[rows].astype("int64"))
