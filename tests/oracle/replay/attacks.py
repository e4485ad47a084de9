"""What hostile clients send. Each attack is around any rule, on the updates that a client sends."""
from statistics import NormalDist

import numpy as np

SCALES = {"label-flip": 1.0, "sign-flip": 1.0, "scaling": 10.0, "inner-product": 0.5, "backdoor": 1.0}


# What clients send beside their updates, and honestly.
BESIDE = ("statistics", "weight", "tau", "h", "power", "square", "loss")


class Attack:
    def __init__(self, kind, hostile, scale=None, z=None, noise=0.0, perturbation="std", **of_rows):
        """`noise`, of a free-rider, is the run's own to draw: here it sends zeros. `of_rows`: problem.py's."""
        self.kind, self.hostile, self.z, self.perturbation = kind, hostile, z, perturbation
        self.scale = SCALES.get(kind) if scale is None else scale

    def trains(self, client):
        return self.kind != "free-rider" or client not in self.hostile

    def __call__(self, sent, cohort, weights):
        """`sent` by client and name, honestly: what arrives. `weights`, by name: with which the server combines."""
        honest = [k for k in cohort if k not in self.hostile]
        assert honest, "a round of hostile clients alone is not looked at here"
        arrives = {k: dict(sent[k]) for k in honest}
        for k in set(cohort) - set(honest):
            for name in sent[honest[0]]:
                values = np.array([sent[h][name] for h in honest])
                weight = np.array([w for h, w in zip(cohort, weights[name]) if h in honest])
                own = sent[k][name] if k in sent else np.zeros_like(values[0])
                lie = self.honestly if name in BESIDE else self.lie
                arrives.setdefault(k, {})[name] = lie(own, values, weight / weight.sum(), len(cohort))
        return {k: arrives[k] for k in cohort}

    def lie(self, own, honest, weight, count):
        """For `own`, of which the honest clients send `honest`."""
        if self.kind in ("label-flip", "scaling", "backdoor"):
            return self.scale * own
        if self.kind == "mimic":
            return honest[0]
        if self.kind in ("min-max", "min-sum"):
            return farthest(self.kind, self.perturbation, honest)
        if self.kind == "sign-flip":
            return -self.scale * own
        if self.kind == "free-rider":
            return own
        mean = np.tensordot(weight, honest, 1)
        if self.kind == "inner-product":
            return -self.scale * mean
        deviation = np.sqrt(np.tensordot(weight, (honest - mean) ** 2, 1))
        z = largest_z(count, count - len(honest)) if self.z is None else self.z
        return mean - z * deviation

    def honestly(self, own, honest, weight, _count):
        """One's own, or the honest mean where nothing is one's own."""
        if self.kind in ("inner-product", "alie"):
            return np.tensordot(weight, honest, 1)
        if self.kind in ("min-max", "min-sum"):
            return honest.mean(axis=0)
        return honest[0] if self.kind == "mimic" else own


def farthest(kind, perturbation, honest):
    """Shejwalkar and Houmansadr 2021: mean + γp with the largest γ for which it stays as near to the honest updates as
    these are to each other; each bound is a quadratic equation for γ."""
    mean = honest.mean(axis=0)
    p = {"std": -honest.std(axis=0), "unit": -mean / np.linalg.norm(mean), "sign": -np.sign(mean)}[perturbation]
    squared = ((honest[:, None] - honest[None]) ** 2).sum(axis=2)
    step = p @ p
    if kind == "min-sum":
        gamma = np.sqrt((squared.sum(axis=1).max() - ((honest - mean) ** 2).sum()) / (len(honest) * step))
    else:
        along = (mean - honest) @ p
        left = squared.max() - ((honest - mean) ** 2).sum(axis=1)
        gamma = ((np.sqrt(along ** 2 + step * left) - along) / step).min()
    return mean + gamma * p


def largest_z(n, m):
    """Baruch et al. 2019: the largest z with Φ(z) < (n − m − s)/(n − m), s = ⌊n/2 + 1⌋ − m; here from 0 to 3."""
    s = n // 2 + 1 - m
    share = (n - m - s) / (n - m)
    return 3.0 if share >= 1 else min(3.0, max(0.0, NormalDist().inv_cdf(share)))
