"""Robust rules, which see each client's update and not its weight."""
from fractions import Fraction

import numpy as np

from problem import SEED
from random_stream import RandomStream
from rules import FedAvg


class Robust(FedAvg):
    """`weighted` asks clients for their weights, `alpha`. With `bucket_size`, the updates that a rule sees are means of
    buckets of clients in a random order (Karimireddy, He, Jaggi 2022, algorithm 1); one weighs as its clients together."""
    combine = {"delta": "each", "statistics": "each", "weight": "each"}
    rounds = 0

    def client(self, k, stages, phase):
        weight = {"weight": np.array(self.problem.n[k])} if self.p.get("weighted") else {}
        return super().client(k, stages, phase) | weight

    def combined(self, name, values):
        self.present = list(values)
        return super().combined(name, values)

    def server(self, delta, weight=None):
        self.rounds += 1
        self.weight = np.ones(len(delta)) if weight is None else weight
        self.buckets = self.drawn(len(delta))
        self.alpha = np.array([self.weight[bucket].sum() for bucket in self.buckets])
        self.move(self.estimate(self.means(delta)))

    def drawn(self, clients):
        """By bucket, places in the order of clients' numbers; in the last one are those that are left."""
        size, order = self.p.get("bucket_size", 1), list(range(clients))
        if size > 1:
            RandomStream.of_server(SEED, "buckets", self.rounds).shuffle(order)
        return [order[at:at + size] for at in range(0, clients, size)]

    def means(self, rows):
        return np.array([np.average(rows[bucket], axis=0, weights=self.weight[bucket]) for bucket in self.buckets])

    def statistics(self, change):
        return self.judged(self.means(change))

    def judged(self, change):
        """Of a rule that judges updates by distance, in which statistics have no part: their median."""
        return np.median(change, axis=0)


class Median(Robust):
    def estimate(self, updates):
        return np.median(updates, axis=0)


class TrimmedMean(Robust):
    def estimate(self, updates):
        cut = int(Fraction(str(self.p["beta"])) * len(updates))
        return np.sort(updates, axis=0)[cut:len(updates) - cut].mean(axis=0)

    judged = estimate


class Krum(Robust):
    """Multi-Krum with m > 1."""

    def estimate(self, updates):
        neighbours = len(updates) - self.p["f"] - 2
        squared = ((updates[:, None] - updates[None]) ** 2).sum(axis=2)
        scores = np.sort(squared, axis=1)[:, 1:1 + neighbours].sum(axis=1)  # the first is its own, 0
        self.best = np.argsort(scores, kind="stable")[:self.p.get("m", 1)]
        return updates[self.best].mean(axis=0)

    def judged(self, change):
        return change[self.best].mean(axis=0)


class GeometricMedian(Robust):
    def estimate(self, updates):
        return weiszfeld(updates, self.alpha, self.p["iterations"], self.p["smoothing"])


class Minimiser(Robust):
    """The geometric median by its definition, the minimum of Σ‖Δ_k − z‖: Newton's method, with steps as short as they
    have to be for the sum to become smaller."""

    def estimate(self, updates):
        z = updates.mean(axis=0)
        for _ in range(100):
            apart = z - updates
            distances = np.linalg.norm(apart, axis=1)
            units = apart / distances[:, None]
            slope = units.sum(axis=0)
            if np.linalg.norm(slope) < 1e-13:
                break
            curvature = (1 / distances).sum() * np.eye(len(z)) - (units.T / distances) @ units
            step = np.linalg.solve(curvature, slope)
            while np.linalg.norm(z - step - updates, axis=1).sum() > distances.sum() * (1 + 1e-15):
                step /= 2
            z = z - step
        return z


def weiszfeld(updates, alpha, iterations, smoothing):
    z = np.median(updates, axis=0)
    for _ in range(iterations):
        weights = alpha / np.maximum(smoothing, np.linalg.norm(updates - z, axis=1))
        z = weights @ updates / weights.sum()
    return z


class CenteredClipping(Robust):
    v = 0.0

    def estimate(self, updates):
        for _ in range(self.p["iterations"]):
            apart = updates - self.v
            norms = np.linalg.norm(apart, axis=1, keepdims=True)
            self.v = self.v + (apart * np.minimum(1, self.p["radius"] / norms)).mean(axis=0)
        return self.v


class NormBound(Robust):
    def estimate(self, updates):
        norms = np.linalg.norm(updates, axis=1)
        return (self.alpha * np.minimum(1, self.p["bound"] / norms)) @ updates / self.alpha.sum()


class FLTrust(Robust):
    def estimate(self, updates):
        at = self.present.index(self.p["root"])
        root, others = updates[at], np.delete(updates, at, axis=0)
        norms, length = np.linalg.norm(others, axis=1), np.linalg.norm(root)
        scores = np.maximum(0, others @ root / (norms * length))
        return (scores * length / norms) @ others / scores.sum()

    def judged(self, change):
        return change[self.present.index(self.p["root"])]
