"""Rules that solve for a model from sums over rows: here from the rows themselves."""
import numpy as np

from problem import SEED
from random_stream import RandomStream
from rules import Rule


class OfRows(Rule):
    """The model is one linear layer: weights, then biases."""

    def set(self, weights, biases):
        self.x = self.problem.network.vector({"0.weight": weights, "0.bias": biases})

    def rows_of(self, clients):
        rows = np.concatenate([self.problem.train[k] for k in clients])
        return self.problem.x[rows], self.problem.y[rows]


class Ridge(OfRows):
    """The minimum of Σ ‖y − W·x − b‖² + λ‖W‖² over the rows of all who have come, by least squares."""

    def round(self, turns, attack=None):
        assert attack is None
        self.came = sorted(set(getattr(self, "came", [])) | set(turns))
        x, y = self.rows_of(self.came)
        centred, targets = x - x.mean(axis=0), np.eye(self.problem.classes)[y]
        penalty = np.sqrt(self.p["lambda"]) * np.eye(x.shape[1])
        weights, *_ = np.linalg.lstsq(
            np.vstack([centred, penalty]),
            np.vstack([targets - targets.mean(axis=0), np.zeros((x.shape[1], targets.shape[1]))]), rcond=None)
        self.set(weights.T, targets.mean(axis=0) - x.mean(axis=0) @ weights)


class KMeans(OfRows):
    """Lloyd's step on the rows of the round's clients; the first one draws centres around their mean, unless they are
    the model's."""

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.started = self.p.get("start") == "model"

    def round(self, turns, attack=None):
        assert attack is None
        centres = self.problem.network.tensors(self.x)["0.weight"].copy()
        x, _ = self.rows_of(turns)
        squared = ((x[:, None] - centres[None]) ** 2).sum(axis=2)
        nearest = squared.argmin(axis=1)
        self.columns = {"rule_inertia": squared.min(axis=1).mean(),
                        "rule_empty": len(centres) - len(set(nearest.tolist())) if self.started else 0}
        if self.started:
            for c in set(nearest.tolist()):
                centres[c] = x[nearest == c].mean(axis=0)
        else:
            stream = RandomStream.of_server(SEED, "centres", 1)
            normal = np.array([stream.normal() for _ in range(centres.size)]).reshape(centres.shape)
            centres, self.started = x.mean(axis=0) + x.std(axis=0) * normal, True
        self.set(centres, -(centres ** 2).sum(axis=1) / 2)


INVERSE = {"tanh": np.arctanh, "sigmoid": lambda h: np.log(h / (1 - h)), "none": lambda h: h}
SLOPE = {"tanh": lambda h: 1 - h * h, "sigmoid": lambda h: h * (1 - h), "none": np.ones_like}
FUNCTION = {"tanh": np.tanh, "sigmoid": lambda z: 1 / (1 + np.exp(-z)), "none": lambda z: z}


class Daef(Rule):
    """An autoencoder, layer by layer from the rows of the round's clients: the encoder by a singular value
    decomposition, the others by least squares (ROLANN), for targets taken back through the activation."""

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.chain = []  # place of each linear layer, and what is behind it
        for layer, place in problem.network.layers:
            kind = layer.__name__
            if kind == "linear":
                self.chain.append([place, "none"])
            else:
                self.chain[-1][1] = kind

    def solved(self, inputs, targets, before, penalty):
        """v and c of each column: the minimum of Σ (f'·(f⁻(target) − v·u − c))² + penalty·(‖v‖² + c²)."""
        u = np.hstack([inputs, np.ones((len(inputs), 1))])
        ridge = np.sqrt(penalty) * np.eye(u.shape[1])
        columns = []
        for target in targets.T:
            slope = SLOPE[before](target)
            rows = np.vstack([slope[:, None] * u, ridge])
            wanted = np.concatenate([slope * INVERSE[before](target), np.zeros(u.shape[1])])
            columns.append(np.linalg.lstsq(rows, wanted, rcond=None)[0])
        return np.array(columns)

    def round(self, turns, attack=None):
        assert attack is None
        x = self.problem.x[np.concatenate([self.problem.train[k] for k in turns])]
        tensors = {name: value.copy() for name, value in self.problem.network.tensors(self.problem.start).items()}
        place, before = self.chain[0]
        first = np.linalg.svd(x, full_matrices=False)[2][:len(tensors[place + ".bias"])]
        largest = np.take_along_axis(first, np.abs(first).argmax(axis=1)[:, None], axis=1)
        tensors[place + ".weight"], tensors[place + ".bias"][:] = first * np.sign(largest), 0
        h = FUNCTION[before](x @ tensors[place + ".weight"].T)
        for place, behind in self.chain[1:-1]:
            weight, bias = tensors[place + ".weight"], tensors[place + ".bias"]
            u = FUNCTION[behind](h @ weight.T + bias)
            tensors[place + ".weight"] = self.solved(u, h, before, self.p["lambda_hidden"])[:, :-1].T
            h, before = FUNCTION[behind](h @ tensors[place + ".weight"].T + bias), behind
        place = self.chain[-1][0]
        columns = self.solved(h, x, "none", self.p["lambda_last"])
        tensors[place + ".weight"], tensors[place + ".bias"] = columns[:, :-1], columns[:, -1]
        self.x = self.problem.network.vector(tensors)
