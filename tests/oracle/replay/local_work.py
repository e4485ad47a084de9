"""A client's local steps."""
from dataclasses import dataclass

import numpy as np


@dataclass
class Local:
    """[local]: SGD with momentum and weight decay."""
    lr: float
    momentum: float
    decay: float


def train(problem, start, client, batches, local, mu=0.0, anchor=None, v=0.0, direction=None, trainable=None):
    """Steps along g + μ(w − anchor) + v + decay·w, or along `direction(w, g, batch)`, with momentum.

    `trainable` says which elements move, unless they are frozen; batch norm's statistics move as the batches say."""
    w, velocity = start.copy(), 0.0
    anchor = start if anchor is None else anchor
    for batch in batches:
        g, statistics = problem.network.gradient(w, *problem.batch(client, batch))
        d = direction(w, g, batch) if direction else g + mu * (w - anchor) + v + local.decay * w
        velocity = local.momentum * velocity + d
        moved = np.where(problem.network.is_parameter, w - local.lr * velocity, statistics)
        moves = problem.network.free if trainable is None else problem.network.free & trainable
        w = np.where(moves, moved, w)
    return w


def a_norm(steps, local, mu=0.0):
    """FedNova's ‖a‖₁: the same optimizer on one weight from 0 with the constant gradient −1, divided by η."""
    value = velocity = 0.0
    for _ in range(steps):
        velocity = local.momentum * velocity + 1 - local.lr * mu * value
        value += velocity
    return value
