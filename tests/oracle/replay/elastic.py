"""HeteroFL: clients of smaller width train a part of the model, each number of which is averaged over those who have it."""
import copy
import math

import numpy as np

from local_work import train
from network import Network
from problem import CLIENTS, FEATURES, MODELS
from rules import Rule


def narrow(layers, rate, scaled):
    """The same layers with ⌈rate·n⌉ hidden channels, whose outputs are divided by the rate."""
    found, last = [], max(i for i, layer in enumerate(layers) if layer.startswith("linear"))
    for i, layer in enumerate(layers):
        kind, *size = layer.split()
        hidden = kind == "linear" and i < last
        found.append(f"linear {math.ceil(rate * int(size[0]))}" if hidden else layer)
        if hidden and scaled and rate < 1:
            found.append(f"scale {1 / rate!r}")
    return found


class HeteroFL(Rule):
    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.rates = [float(rate) for rate in self.p["rates"].split()]
        shares = [int(share) for share in self.p.get("shares", "").split()] or [1] * len(self.rates)
        self.ends = np.cumsum(shares) * CLIENTS // sum(shares)  # "fix": of the clients of each rate
        self.networks = [Network(narrow(MODELS[problem.model], rate, self.p.get("scaler", True)), FEATURES)
                         for rate in self.rates]
        self.places = [self.places_of(network) for network in self.networks]

    def places_of(self, network):
        """Where the numbers of the narrow model are in the whole one."""
        places = []
        for name, shape in network.shapes.items():
            whole = self.problem.network
            numbers = np.arange(len(whole.is_parameter))[whole.places[name]].reshape(whole.shapes[name])
            places.append(numbers[tuple(slice(extent) for extent in shape)].ravel())
        return np.concatenate(places)

    def round(self, turns, attack=None):
        assert attack is None
        moved, weight = np.zeros_like(self.x), np.zeros_like(self.x)
        for k, stages in turns.items():
            level = int(np.searchsorted(self.ends, k, side="right"))
            places = self.places[level]
            problem = copy.copy(self.problem)
            problem.network = copy.copy(self.networks[level])
            absent = set(range(self.problem.classes)) - set(self.problem.batch(k)[1].tolist())
            if self.p.get("mask", True):
                problem.network.absent = sorted(absent)
            end = train(problem, self.x[places], k, stages[0], self.local)
            held = np.zeros_like(self.x)
            held[places] = self.problem.n[k]
            if self.p.get("mask", True):
                for tensor in ("weight", "bias"):
                    name = f"{self.problem.network.last_layer}.{tensor}"
                    rows = held[self.problem.network.places[name]].reshape(self.problem.network.shapes[name])
                    rows[sorted(absent)] = 0
            delta = np.zeros_like(self.x)
            delta[places] = end - self.x[places]
            moved, weight = moved + held * delta, weight + held
        step = np.divide(moved, weight, out=np.zeros_like(moved), where=weight > 0)
        parameters = self.problem.network.is_parameter
        self.x = self.x + np.where(parameters, self.p.get("server_lr", 1.0), 1.0) * step

    def result(self):
        rate = self.p.get("evaluate", 1.0)
        if rate == 1:
            return self.x
        scaled = self.p.get("scaler", True)
        network = Network(narrow(MODELS[self.problem.model], rate, scaled), FEATURES)
        places = self.places_of(network)
        alone = np.zeros_like(self.x)
        alone[places] = self.x[places]
        if scaled:  # the slice has been trained with the factor, which an evaluation has not
            for i, layer in enumerate(MODELS[self.problem.model]):
                if layer.startswith("linear") and str(i) != network.last_layer:
                    for tensor in ("weight", "bias"):
                        alone[self.problem.network.places[f"{i}.{tensor}"]] /= rate
        tests = self.problem.x[self.problem.test]
        assert np.allclose(self.problem.network.outputs_of(alone, tests), network.outputs_of(self.x[places], tests))
        return alone
