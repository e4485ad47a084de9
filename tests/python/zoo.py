"""Modules of many kinds, each from eight numbers a row (or tokens) to three logits."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Body(nn.Module):
    """A layer between two linear ones, so that gradients pass through it."""

    def __init__(self, layer: Any, width: int, shape: tuple[int, ...] = (8,)) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Linear(8, 8), layer, nn.Linear(width, 3)
        self.shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(self.first(x).reshape((x.size(0),) + self.shape))
        return self.head(torch.flatten(y, 1))


class Recurrent(nn.Module):
    def __init__(self, layer: Any, width: int) -> None:
        super().__init__()
        self.r, self.head = layer, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.r(x.reshape(x.size(0), 4, 2))
        return self.head(y[:, -1])


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.RNNCell(2, 4), nn.GRUCell(4, 4), nn.LSTMCell(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.size(0), 4, dtype=x.dtype)
        g, s, m = h, h, h
        for i in range(4):
            h = self.a(x[:, 2 * i : 2 * i + 2], h)
            g = self.b(h, g)
            s, m = self.c(g, (s, m))
        return self.head(s)


class Packed(nn.Module):
    """A recurrent layer over packed sequences of unequal lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.r, self.head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(x.size(0), 4, 2)
        lengths = 2 + (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        packed = nn.utils.rnn.pack_padded_sequence(y, lengths, True, False)
        _, h = self.r(packed)
        return self.head(h[0])


class Attentive(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(2, 1, batch_first=True, **options)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(x.size(0), 4, 2)
        return self.head(torch.flatten(self.attention(y, y, y)[0], 1))


class Pair(nn.Module):
    """A layer of two inputs."""

    def __init__(self, layer: Any, width: int) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Linear(8, 8), layer, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).reshape(x.size(0), 2, 4)
        z = self.layer(y[:, 0], y[:, 1])
        return self.head(z.reshape(x.size(0), -1))


class Sequences(nn.Module):
    """A layer from one sequence to another: nn.Transformer, its decoder."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.first, self.layer, self.head = nn.Linear(8, 16), layer, nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).reshape(x.size(0), 4, 4)
        return self.head(torch.flatten(self.layer(y, torch.flip(y, [1])), 1))


class Unpooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.pool, self.unpool = nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, places = self.pool(self.first(x).unsqueeze(1))
        return self.head(self.unpool(y, places).squeeze(1))


# ---- what people write


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.a(torch.tanh(self.a(x)))))


class Listed(nn.Module):
    """A list of its own parameters, as recurrent layers have one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(8, 8) / 3)
        self.second = nn.Parameter(torch.randn(3, 8) / 3)
        self.weights = [self.first, self.second]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(torch.tanh(functional.linear(x, self.weights[0])), self.weights[1])


class Constants(nn.Module):
    """Buffers, one of which no state dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.register_buffer("mu", torch.randn(8), persistent=False)
        self.register_buffer("sigma", torch.rand(8) + 1)
        self.register_buffer("order", torch.arange(7, -1, -1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(((x - self.mu) / self.sigma)[:, self.order])


class Adapted(nn.Module):
    """A frozen body with an adapter of rank 2."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.down = nn.Parameter(torch.randn(2, 8) / 3)
        self.up = nn.Parameter(torch.randn(8, 2) / 3)
        self.body.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(x) + x @ self.down.t() @ self.up.t()))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([nn.ModuleList([nn.Linear(8, 8), nn.Tanh()])] * 2)
        self.table = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(2)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for inner in self.steps:
            for layer in inner:
                x = layer(x)
        for scale in self.table:
            x = x * scale
        return self.head(x)


class Named(nn.Module):
    """Layers and parameters by name."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleDict({"left": nn.Linear(4, 3), "right": nn.Linear(4, 3)})
        self.scales = nn.ParameterDict({"a": torch.ones(3), "b": torch.ones(3)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.ways["left"](x[:, :4]), self.ways["right"](x[:, 4:])
        return left * self.scales["a"] + right * self.scales["b"]


class Residual(nn.Module):
    """A function of one's own, and a connection around layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
        self.head = nn.Linear(8, 3)

    def swish(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.swish(x + self.inner(x)))


class Unscriptable(nn.Module):
    """Functions in a list, arguments by name, and an object with logits."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        steps = [lambda y: torch.tanh(self.a(y)), self.head]
        for step in steps:
            x = step(x)
        return type("Output", (), {"logits": x})()


class TwoModes(Unscriptable):
    """Another function in training than in evaluation."""

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        return self.head((lambda y: self.a(y) if self.training else y)(x))


class UnscriptableNorm(Unscriptable):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, **_: Any) -> Any:
        logits = self.head((lambda y: torch.relu(self.norm(self.a(y))))(x))
        return type("Output", (), {"logits": logits})()


class Means(nn.Module):
    """Modules side by side: the mean of their logits."""

    def __init__(self, modules: dict[str, Any]) -> None:
        super().__init__()
        named = {"the " + name: make() for name, make in modules.items()}
        self.side = nn.ModuleDict({re.sub("[^a-z0-9]+", "_", n): net for n, net in named.items()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros((x.size(0), 3))
        for net in self.side.values():
            total = total + net(x)
        return total / len(self.side)


class MeansOfAny(Means):
    """The same, of modules that may return an object; only a trace takes it."""

    def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
        outputs = [net(x) for net in self.side.values()]
        return sum(getattr(y, "logits", y) for y in outputs) / len(outputs)


def hooked() -> Any:
    net = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    net[0].register_forward_hook(lambda _, __, y: y * 2)
    return net


def with_tied_layers() -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    net[2].weight = net[0].weight
    return net


def with_shared_layers() -> Any:
    act, inner = nn.Tanh(), nn.Linear(8, 8)
    return nn.Sequential(inner, act, inner, act, nn.Linear(8, 3))


def with_shared_activation() -> Any:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(8, 8), act, nn.Linear(8, 8), act, nn.Linear(8, 3))


def frozen(*layers: int) -> Any:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    for layer in layers:
        net[layer].requires_grad_(False)
    return net


def parametrized() -> Any:
    norm = getattr(nn.utils.parametrizations, "weight_norm", nn.utils.parametrizations.orthogonal)
    return nn.Sequential(norm(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3))


def old_weight_norm() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3))


IMAGE, ROW, CUBE = (1, 2, 4), (2, 4), (1, 2, 2, 2)


def transformer(kind: Any, **options: Any) -> Any:
    return kind(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True, **options)


# Layers of torch.nn that torch.jit.script takes, by family.
LAYERS: dict[str, Any] = {
    "conv1d": lambda: Body(nn.Conv1d(2, 3, 2), 9, ROW),
    "conv1d, dilated": lambda: Body(nn.Conv1d(2, 3, 2, dilation=2, padding="same"), 12, ROW),
    "conv2d, grouped": lambda: Body(nn.Conv2d(2, 4, 2, groups=2), 4, (2, 2, 2)),
    "conv2d, circular": lambda: Body(
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), 16, IMAGE
    ),
    "conv3d": lambda: Body(nn.Conv3d(1, 2, (1, 2, 2)), 4, CUBE),
    "transposed 1d": lambda: Body(nn.ConvTranspose1d(2, 2, 2, stride=2), 16, ROW),
    "transposed 2d": lambda: Body(nn.ConvTranspose2d(1, 2, 2), 30, IMAGE),
    "transposed 3d": lambda: Body(nn.ConvTranspose3d(1, 1, 2), 27, CUBE),
    "unfold": lambda: Body(nn.Unfold((2, 2)), 12, IMAGE),
    "fold": lambda: Body(nn.Fold((2, 3), (2, 2)), 6, (4, 2)),
    "max pool 1d": lambda: Body(nn.MaxPool1d(2), 4, ROW),
    "max pool 2d": lambda: Body(nn.MaxPool2d(2, 1, padding=1), 15, IMAGE),
    "max pool 3d": lambda: Body(nn.MaxPool3d(2), 1, CUBE),
    "average pool 1d": lambda: Body(nn.AvgPool1d(2, 1, 1), 10, ROW),
    "average pool 2d": lambda: Body(nn.AvgPool2d(2, ceil_mode=True), 2, IMAGE),
    "average pool 3d": lambda: Body(nn.AvgPool3d(2), 1, CUBE),
    "power pools": lambda: Body(nn.LPPool2d(2, 2), 2, IMAGE),
    "adaptive pools": lambda: Body(
        nn.Sequential(nn.AdaptiveAvgPool2d((2, 3)), nn.AdaptiveMaxPool2d((2, 2))), 4, IMAGE
    ),
    "pads": lambda: Body(
        nn.Sequential(nn.ReflectionPad1d(1), nn.ReplicationPad1d(1), nn.ConstantPad1d(1, 0.5)),
        20, ROW,
    ),
    "zero pad": lambda: Body(nn.ZeroPad2d(1), 24, IMAGE),
    "relus": lambda: Body(
        nn.Sequential(nn.ReLU6(), nn.Linear(8, 8), nn.LeakyReLU(0.1), nn.Linear(8, 8), nn.ELU()), 8
    ),
    "prelu": lambda: Body(nn.Sequential(nn.Linear(8, 8), nn.PReLU(8)), 8),
    "selu": lambda: Body(nn.Sequential(nn.SELU(), nn.Linear(8, 8), nn.CELU(0.7)), 8),
    "smooth": lambda: Body(
        nn.Sequential(nn.SiLU(), nn.Mish(), nn.Softplus(2.0), nn.GELU("tanh"), nn.Softsign()), 8
    ),
    "hard": lambda: Body(
        nn.Sequential(nn.Hardswish(), nn.Hardtanh(-0.7, 0.9), nn.Hardsigmoid()), 8
    ),
    "shrinks": lambda: Body(nn.Sequential(nn.Tanhshrink(), nn.Softshrink(0.01)), 8),
    "threshold": lambda: Body(nn.Sequential(nn.Threshold(0.1, -0.3), nn.Hardshrink(0.2)), 8),
    "glu": lambda: Body(nn.Sequential(nn.GLU(), nn.LogSigmoid()), 4),
    "softmaxes": lambda: Body(nn.Sequential(nn.Softmax(-1), nn.LogSoftmax(-1), nn.Softmin(-1)), 8),
    "softmax of images": lambda: Body(nn.Softmax2d(), 8, (2, 2, 2)),
    "batch norm 1d": lambda: Body(nn.BatchNorm1d(2, momentum=0.3), 8, ROW),
    "batch norm 2d": lambda: Body(nn.BatchNorm2d(1, eps=1e-3), 8, IMAGE),
    "batch norm 3d": lambda: Body(nn.BatchNorm3d(1, affine=False), 8, CUBE),
    "group norm": lambda: Body(nn.GroupNorm(2, 4, eps=1e-3), 8, (4, 2)),
    "instance norm": lambda: Body(nn.InstanceNorm2d(1, affine=True), 8, IMAGE),
    "instance norm, statistics": lambda: Body(
        nn.InstanceNorm1d(2, track_running_stats=True), 8, ROW
    ),
    "layer norm": lambda: Body(nn.LayerNorm((2, 4)), 8, ROW),
    "response norm": lambda: Body(nn.LocalResponseNorm(2), 8, (4, 2)),
    "rnn": lambda: Recurrent(nn.RNN(2, 5, batch_first=True), 5),
    "rnn, relu": lambda: Recurrent(nn.RNN(2, 5, 2, nonlinearity="relu", batch_first=True), 5),
    "lstm": lambda: Recurrent(nn.LSTM(2, 5, 2, batch_first=True), 5),
    "lstm, both ways": lambda: Recurrent(nn.LSTM(2, 5, batch_first=True, bidirectional=True), 10),
    "lstm, projected": lambda: Recurrent(nn.LSTM(2, 5, batch_first=True, proj_size=3), 3),
    "gru": lambda: Recurrent(nn.GRU(2, 5, batch_first=True, bias=False), 5),
    "cells": lambda: Cells(),
    "packed": lambda: Packed(),
    "attention": lambda: Attentive(),
    "attention, more keys": lambda: Attentive(add_bias_kv=True, add_zero_attn=True),
    "encoder layer": lambda: Body(transformer(nn.TransformerEncoderLayer), 8, ROW),
    "decoder": lambda: Sequences(transformer(nn.TransformerDecoderLayer, activation="gelu")),
    "encoder": lambda: Body(
        nn.TransformerEncoder(transformer(nn.TransformerEncoderLayer), 2), 8, ROW
    ),
    "transformer": lambda: Sequences(
        nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
    ),
    "bilinear": lambda: Pair(nn.Bilinear(4, 4, 5), 5),
    "cosine similarity": lambda: Pair(nn.CosineSimilarity(), 1),
    "pairwise distance": lambda: Pair(nn.PairwiseDistance(), 1),
    "pixel shuffles": lambda: Body(
        nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), 8, (4, 1, 2)
    ),
    "upsample": lambda: Body(
        nn.Sequential(nn.Upsample(scale_factor=2), nn.UpsamplingBilinear2d(size=(3, 3))), 9, IMAGE
    ),
    "unflatten": lambda: Body(
        nn.Sequential(nn.Identity(), nn.Unflatten(1, (2, 4)), nn.Flatten()), 8
    ),
}  # fmt: skip

MODERN = hasattr(torch, "compile")  # PyTorch 2
if MODERN:
    LAYERS["channel shuffle"] = lambda: Body(nn.ChannelShuffle(2), 8, (4, 1, 2))
if hasattr(nn, "RMSNorm"):  # since PyTorch 2.4
    LAYERS["rms norm"] = lambda: Body(nn.RMSNorm(8), 8)

# What people write, that torch.jit.script takes.
OWN: dict[str, Any] = {
    "tied": lambda: Tied(),
    "used twice": lambda: Twice(),
    "shared layer": with_shared_layers,
    "tied layers": with_tied_layers,
    "list of parameters": lambda: Listed(),
    "buffers": lambda: Constants(),
    "adapter": lambda: Adapted(),
    "lists of lists": lambda: Nested(),
    "by name": lambda: Named(),
    "own function": lambda: Residual(),
}

# What only a trace takes.
TRACED: dict[str, Any] = {
    "hook": hooked,
    "parametrized": parametrized,
    "weight norm of before": old_weight_norm,
    "logits of an object": lambda: Unscriptable(),
    "max unpool": lambda: Unpooled(),
    "two modes": lambda: TwoModes(),
    "batch norm": lambda: UnscriptableNorm(),
}
if MODERN:  # before, on GPUs alone
    TRACED["batch norm of many"] = lambda: Body(nn.SyncBatchNorm(2), 8, ROW)
