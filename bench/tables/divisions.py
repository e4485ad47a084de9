"""How papers' code divides rows among clients: how many rows of each class a client gets.

The draws are those of the code, in its order, so that a seed gives the paper's numbers. Which rows
they are is drawn by `partition.scheme = "histogram"`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def dirichlet(labels: np.ndarray, clients: int, alpha: float, draws: Any) -> np.ndarray:
    """NIID-Bench's. Per class, the clients' shares ~ Dirichlet(alpha); a client that has its even
    share of all rows gets none of the classes that follow. Again until each has 10 rows.

    draws: a numpy Generator or RandomState."""
    classes = int(labels.max()) + 1
    while True:
        counts = np.zeros((clients, classes), np.int64)
        for k in range(classes):
            rows = np.flatnonzero(labels == k)
            draws.shuffle(rows)  # the code shuffles before it draws shares
            shares = draws.dirichlet(np.repeat(alpha, clients))
            shares = shares * (counts.sum(1) < len(labels) / clients)
            cuts = (np.cumsum(shares / shares.sum()) * len(rows)).astype(int)[:-1]
            counts[:, k] = np.diff(np.concatenate([[0], cuts, [len(rows)]]))
        if counts.sum(1).min() >= 10:
            return counts


def label_quantity(
    labels: np.ndarray, clients: int, each: int, draw: Callable[[], int]
) -> np.ndarray:
    """NIID-Bench's #C = each. Client i has class i and each - 1 others; the clients of a class
    share its rows evenly. draw: another class."""
    classes = int(labels.max()) + 1
    has = np.zeros((clients, classes), bool)
    for client in range(clients):
        has[client, client % classes] = True
        while has[client].sum() < each:
            has[client, draw()] = True
    counts = np.zeros((clients, classes), np.int64)
    for k in range(classes):
        rows, owners = int((labels == k).sum()), np.flatnonzero(has[:, k])
        for place, owner in enumerate(owners):  # as numpy.array_split: the first ones get one more
            counts[owner, k] = rows // len(owners) + (place < rows % len(owners))
    return counts


def two_digits(labels: np.ndarray, seed: int) -> np.ndarray:
    """FedProx's MNIST: 1000 devices, device i with the digits i and i + 1 (mod 10), five rows of
    each, and of the rest by shares ~ LogNormal(0, 2)."""
    draws = np.random.RandomState(seed)
    there = np.bincount(labels, minlength=10)
    counts = np.zeros((1000, 10), np.int64)
    for device in range(1000):
        for digit in (device % 10, (device + 1) % 10):
            counts[device, digit] += 5
    used = counts.sum(0)
    shares = draws.lognormal(0, 2.0, (10, 100, 2))
    shares *= (there - 1000)[:, None, None] / shares.sum((1, 2), keepdims=True)
    for device in range(1000):
        for j in range(2):
            digit = (device + j) % 10
            more = int(shares[digit, device // 10, j])
            if used[digit] + more < there[digit]:
                counts[device, digit] += more
                used[digit] += more
    return counts
