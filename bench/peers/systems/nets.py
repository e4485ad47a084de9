"""The models in PyTorch, for every system that is built on it."""

import torch
from torch import nn


def network(task) -> nn.Sequential:
    """The job's model with the task's initial weights; parameter names are those of the file."""
    net = LAYERS[task.job]()
    net.load_state_dict({name: torch.from_numpy(array) for name, array in task.initial.items()})
    return net


def tensors(task):
    """(features, labels) over the mapped file."""
    return torch.from_numpy(task.features), torch.from_numpy(task.labels)


def _logistic():
    return nn.Sequential(nn.Linear(60, 10))


def _lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def _two_convolutions(channels: int, side: int):
    """For images of `side` pixels."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * (side // 2 - 2) ** 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


LAYERS = {
    "logistic": _logistic,
    "lenet5": _lenet5,
    "simple_cnn": lambda: _two_convolutions(1, 28),
    "pfl_cnn": lambda: _two_convolutions(3, 32),
}
