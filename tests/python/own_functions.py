"""Functions that the tests give to runs, in a file that the runs' processes can load."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np


def softmax_regression(model: Any, rows: Any, ctx: Any) -> Any:
    """SGD in NumPy, as `[local]` says, with the rule's correction."""
    x, y = rows
    weight, bias = model["0.weight"], model["0.bias"]
    mu, v, losses, used = ctx.mu, ctx.v, 0.0, 0
    for batch in ctx.batches():
        z = x[batch] @ weight.T + bias
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses -= np.log(p[np.arange(len(batch)), y[batch]]).sum()
        used += len(batch)
        p[np.arange(len(batch)), y[batch]] -= 1
        for name, gradient in (("0.weight", p.T @ x[batch]), ("0.bias", p.sum(0))):
            step = gradient / len(batch) + mu * (model[name] - ctx.anchor[name])
            if v is not None:
                step = step + v[name]
            model[name] -= ctx.lr * step
    return model, {"loss": losses / used, "rows": used}


def in_place(model: Any, rows: Any, ctx: Any) -> None:
    softmax_regression(model, rows, ctx)


def decays(model: Any, rows: Any, ctx: Any) -> None:
    """In place, and by nothing at weights of zero."""
    for array in model.values():
        array *= np.float32(0.9)


def draws(model: Any, rows: Any, ctx: Any) -> Any:
    """Draws from each generator that a run seeds."""
    import random

    noise = ctx.rng.normal() + np.random.normal() + random.random()
    model["0.bias"] += np.float32(0.01 * noise)
    return model, {"loss": 1.0}


def imports_torch_and_draws(model: Any, rows: Any, ctx: Any) -> Any:
    import torch

    model["0.bias"] += torch.randn(model["0.bias"].shape).numpy()
    return model, {"loss": 1.0}


def fails(model: Any, rows: Any, ctx: Any, in_round: int = 2) -> Any:
    if ctx.round == in_round and len(rows) > 2:
        raise ValueError(f"the rows of {ctx.name} are locked")
    model["0.bias"] += np.float32(0.1)
    return {"loss": 1.0}


def ends_once(model: Any, rows: Any, ctx: Any, mark: str = "") -> Any:
    """Kills its process in round 2, the first time."""
    if ctx.round == 2 and not Path(mark).exists():
        Path(mark).touch()
        os._exit(9)
    return softmax_regression(model, rows, ctx)


def ignores_corrections(model: Any, rows: Any, ctx: Any) -> Any:
    return {"loss": 1.0}


def returns(model: Any, rows: Any, ctx: Any, what: str = "") -> Any:
    model["0.bias"] += np.float32(0.1)
    if what == "batches twice":
        for _ in range(2):
            list(ctx.batches())
    return {
        "a word": "no model",
        "no bias": {"0.weight": model["0.weight"]},
        "another shape": {"0.weight": np.zeros((2, 8)), "0.bias": model["0.bias"]},
        "an unknown metric": (model, {"auc": 0.5}),
        "three things": (model, 1, 2),
        "a loss alone": {"loss": 2.0},
        "too many rows": {"loss": 2.0, "rows": 10**9},
        "too many steps": {"loss": 2.0, "steps": 10**7},
        "steps below 0": {"loss": 2.0, "steps": -1},
        "a percentage": {"loss": 2.0, "accuracy": 88.0},
        "one tensor more": {**model, "1.weight": np.zeros((3, 3))},
        "a metric among tensors": {**model, "loss": 2.0},
        "no rows": {"loss": 2.0, "rows": 0},
        "an accuracy alone": (model, {"accuracy": 0.5}),
    }[what]


def returns_as(model: Any, rows: Any, ctx: Any, kind: str = "") -> Any:
    """The same numbers as arrays of another kind."""
    model["0.bias"] += np.float32(0.25)

    def other(array: Any) -> Any:
        if kind == "masked":
            return np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) == 0)
        if kind == "no mask":
            return np.ma.masked_array(array)
        if kind == "list":
            return array.tolist()
        if kind.startswith("torch "):
            import torch

            return torch.from_numpy(array).to(getattr(torch, kind[6:]))
        return array.astype(kind)

    return {name: other(array) for name, array in model.items()}, {"loss": 1.0}


def diverges(model: Any, rows: Any, ctx: Any, loss: str = "nan") -> Any:
    """One client, in round 2."""
    model["0.bias"] += np.float32(0.1)
    return {"loss": float(loss) if ctx.round == 2 and ctx.name == "3" else 1.0}


def half_right(model: Any, rows: Any) -> Any:
    return {"loss": 0.25, "accuracy": 0.5}


def draws_to_evaluate(model: Any, rows: Any) -> Any:
    """What a sample of rows, or dropout, does."""
    import random

    return {"loss": np.random.random() + random.random()}


def far_off(model: Any, rows: Any, loss: str = "nan") -> Any:
    return {"loss": float(loss), "accuracy": 0.5}


def cross_entropy(outputs: Any, y: Any, factor: float = 1.0) -> Any:
    from torch.nn import functional

    return factor * functional.cross_entropy(outputs, y)


def detached(outputs: Any, y: Any) -> Any:
    return cross_entropy(outputs, y).detach()


def train_module(model: Any, rows: Any, ctx: Any) -> Any:
    """What loss=cross_entropy does, by hand."""
    x, y = rows
    optimizer = ctx.optimizer(model.parameters())
    for batch in ctx.batches():
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        ctx.correct(model)
        optimizer.step()
    return model


def leaves_traces(model: Any, rows: Any, ctx: Any) -> Any:
    """Freezes, replaces and marks: the next turn must not see it."""
    assert not hasattr(model, "mark") and model[0].weight.requires_grad
    model.mark = True
    model[0].weight.requires_grad_(False)
    return train_module(model, rows, ctx)


def trains_a_copy(model: Any, rows: Any, ctx: Any) -> None:
    softmax_regression({name: array.copy() for name, array in model.items()}, rows, ctx)


def keeps(model: Any, rows: Any, ctx: Any) -> Any:
    return model


def pairs_all(outputs: Any, y: Any) -> Any:
    return ((outputs - y) ** 2).mean()


def squares(outputs: Any, y: Any) -> Any:
    return ((outputs[:, 0] - y) ** 2).mean()


def trains_pairs(model: Any, rows: Any, ctx: Any) -> Any:
    from torch.nn import functional

    for batch in ctx.batches():
        functional.mse_loss(model(rows.x[batch]), rows.y[batch]).backward()
    return model
