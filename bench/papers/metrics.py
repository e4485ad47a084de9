"""How what a run has learnt is measured, from its files and by NumPy alone."""

from __future__ import annotations

import functools
import json
import math
import pathlib
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from papers import planted
from papers.claim import Made

LEAST_GAP = 1e-7  # an objective of a model in float32 is not known any nearer
TYPES = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
Of = Callable[[Made], float]


def final(column: str, missing: float = math.nan) -> Of:
    """A column's last value. `missing`: of a model that has no such number, as it has diverged."""

    def of(made: Made) -> float:
        value = made.run.summary["final"].get(column)
        return missing if value is None else value

    return of


def mean(column: str) -> Of:
    """A column's mean over the rounds and their clients."""

    def of(made: Made) -> float:
        rows = made.run.metrics()
        return sum(row[column] for row in rows) / sum(row["clients"] for row in rows)

    return of


def until(column: str, *, above: float = math.inf, below: float = -math.inf) -> Of:
    """Rounds until a column is beyond a number: all rounds, where it never is."""

    def of(made: Made) -> float:
        rows = made.run.metrics()
        for row in rows:
            value = row.get(column)
            if value is not None and (value > above or value < below):
                return float(row["round"])
        return float(rows[-1]["round"])

    return of


def tensors(file: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, about in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            flat = np.frombuffer(data[start + begin : start + end], TYPES[about["dtype"]])
            found[name] = flat.reshape(about["shape"])
    return found


def gap(decay: float) -> Of:
    """A convex objective above its least value, for softmax regression with this weight decay."""

    def of(made: Made) -> float:
        objective = made.run.summary["final"]["train_objective"]
        if objective is None:
            return math.inf
        return max(objective - least_of(made, decay), LEAST_GAP)

    return of


LEAST: dict[tuple[str, int, float], float] = {}


def least_of(made: Made, decay: float) -> float:
    """The least objective over the training rows of a run's data, found once."""
    [bias] = [t for n, t in tensors(made.run.folder / "model.safetensors").items() if t.ndim == 1]
    key = made.run.summary["data_digest"], len(bias), decay
    if key not in LEAST:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.safetensors"
            words = [made.macaw, "data", "prepare", made.run.folder / "config.toml", "--out", file]
            subprocess.run(words, check=True, capture_output=True)
            found = tensors(file)
        rows = int(found["train_offsets"][-1])
        x, y = found["features"][:rows].astype(float), found["labels"][:rows]
        LEAST[key] = least_objective(x.reshape(rows, -1), y, len(bias), decay)
    return LEAST[key]


def least_objective(x: np.ndarray, y: np.ndarray, classes: int, decay: float) -> float:
    """The least of the mean log-loss of softmax regression + decay/2·‖w‖², by Newton's method.

    A class without rows counts, too: the model gives it a probability.
    """
    x = np.hstack([x, np.ones((len(x), 1))])
    width = x.shape[1]
    one_hot = np.eye(classes)[y]

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        z = x @ w.T
        z -= z.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(z).sum(axis=1))
        loss = (log_sum - z[np.arange(len(y)), y]).mean()
        return loss + decay / 2 * (w**2).sum(), np.exp(z - log_sum[:, None])

    w = np.zeros((classes, width))
    value, p = objective(w)
    for _ in range(100):
        gradient = ((p - one_hot).T @ x / len(x) + decay * w).ravel()
        hessian = decay * np.eye(w.size)
        for a in range(classes):
            for b in range(a + 1):
                weight = p[:, a] * ((a == b) - p[:, b])
                block = (x * weight[:, None]).T @ x / len(x)
                at_a, at_b = (slice(c * width, (c + 1) * width) for c in (a, b))
                hessian[at_a, at_b] += block
                if a != b:
                    hessian[at_b, at_a] += block.T
        step = np.linalg.solve(hessian, gradient)
        decrement = gradient @ step
        if decrement < 1e-14:
            break
        rate, step = 1.0, step.reshape(w.shape)
        while objective(w - rate * step)[0] > value - decrement * rate / 4:
            rate /= 2
            if rate < 1e-9:  # no step is any better, to rounding
                return value
        w = w - rate * step
        value, p = objective(w)
    return value


def curvature(made: Made) -> float:
    """The largest eigenvalue of the loss's Hessian at the run's model: small where it is flat.

    Of 2,000 images, for a network of linear layers with ReLU between them.
    """
    x, y = planted.images(made.images)
    rows = np.random.default_rng(0).permutation(len(y))[:2000]
    model = {n: t.astype(float) for n, t in tensors(made.run.folder / "model.safetensors").items()}
    names = sorted(model, key=lambda name: (int(name.split(".")[0]), name.endswith("bias")))
    shapes = [model[name].shape for name in names]
    x, y = x[rows].reshape(len(rows), -1) / 255, y[rows]
    w = np.concatenate([model[name].ravel() for name in names])
    gradient = functools.partial(network_gradient, shapes=shapes, x=x, y=y)
    return largest_eigenvalue(gradient, w)


def largest_eigenvalue(gradient: Callable[[np.ndarray], np.ndarray], w: np.ndarray) -> float:
    """Of the Hessian at w, by Lanczos's method on differences of gradients."""
    steps, h = min(20, w.size), 1e-4
    basis = np.zeros((steps, w.size))
    v = np.random.default_rng(0).standard_normal(w.shape)
    projected = np.zeros((steps, steps))
    for step in range(steps):
        v -= basis[:step].T @ (basis[:step] @ v)
        v -= basis[:step].T @ (basis[:step] @ v)  # once more, for what rounding has left
        basis[step] = v / np.linalg.norm(v)
        v = (gradient(w + h * basis[step]) - gradient(w - h * basis[step])) / (2 * h)
        projected[: step + 1, step] = basis[: step + 1] @ v
    upper = np.triu(projected)
    return float(np.linalg.eigvalsh(upper + np.triu(upper, 1).T)[-1])


def network_gradient(
    w: np.ndarray, shapes: Sequence[tuple[int, ...]], x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Of the mean log-loss, for the weight and the bias of each layer in turn."""
    parts = np.split(w, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    layers = [
        (weight.reshape(shape), bias)
        for weight, bias, shape in zip(parts[::2], parts[1::2], shapes[::2])
    ]
    inputs = [x]
    for weight, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight.T + bias, 0))
    weight, bias = layers[-1]
    z = inputs[-1] @ weight.T + bias
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    back, found = p / len(y), []
    for (weight, _), inside in zip(reversed(layers), reversed(inputs)):
        found += [back.sum(axis=0), (back.T @ inside).ravel()]
        back = (back @ weight) * (inside > 0)
    return np.concatenate(found[::-1])


def recovered(made: Made) -> float:
    """How well the models that clients chose divide them as they were planted: 1 is exactly so.

    The adjusted Rand index, which is 0 by chance.
    """
    found = json.loads((made.run.folder / "clients_evaluated.json").read_text())["clients_test"]
    if "model" not in found:  # of a rule with one model
        return math.nan
    return rand_index(found["model"], [planted.kind_of(client) for client in found["client"]])


def rand_index(first: Sequence[int], second: Sequence[int]) -> float:
    """Hubert and Arabie's adjusted Rand index of two divisions."""

    def pairs(groups: Counter) -> int:
        return sum(math.comb(size, 2) for size in groups.values())

    both, one, other = (pairs(Counter(g)) for g in (zip(first, second), first, second))
    by_chance = one * other / math.comb(len(first), 2)
    most = (one + other) / 2
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)
