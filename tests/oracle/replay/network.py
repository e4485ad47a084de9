"""A small network: its tensors in one flat vector, its outputs, its loss and its gradient by hand."""
from fnmatch import fnmatchcase

import numpy as np

NORM_EPSILON, NORM_MOMENTUM = 1e-5, 0.1  # PyTorch's


def linear(tensors, name, x, _training):
    weight, bias = tensors[name + ".weight"], tensors[name + ".bias"]

    def backward(d):
        return d @ weight, {name + ".weight": d.T @ x, name + ".bias": d.sum(axis=0)}

    return x @ weight.T + bias, backward, {}


def without_bias(tensors, name, x, _training):
    weight = tensors[name + ".weight"]
    return x @ weight.T, lambda d: (d @ weight, {name + ".weight": d.T @ x}), {}


def embedding(tensors, name, x, _training):
    """A row of the table for each token."""
    table = tensors[name + ".weight"]

    def backward(d):
        gradient = np.zeros_like(table)
        np.add.at(gradient, x, d)
        return None, {name + ".weight": gradient}

    return table[x], backward, {}


def adapted(scale):
    """A linear layer with an adapter: x Wᵀ + b + scale · (x Aᵀ) Bᵀ."""
    def layer(tensors, name, x, training):
        out, plain, _ = linear(tensors, name, x, training)
        a, b = tensors[name + ".lora_A.weight"], tensors[name + ".lora_B.weight"]
        inner = x @ a.T

        def backward(d):
            dx, gradients = plain(d)
            d_inner = scale * (d @ b)
            gradients |= {name + ".lora_A.weight": d_inner.T @ x, name + ".lora_B.weight": scale * (d.T @ inner)}
            return dx + d_inner @ a, gradients

        return out + scale * (inner @ b.T), backward, {}
    return layer


def flatten(_tensors, _name, x, _training):
    """Rows are flat already."""
    return x, lambda d: (d, {}), {}


def tanh(_tensors, _name, x, _training):
    out = np.tanh(x)
    return out, lambda d: (d * (1 - out * out), {}), {}


def sigmoid(_tensors, _name, x, _training):
    out = 1 / (1 + np.exp(-x))
    return out, lambda d: (d * out * (1 - out), {}), {}


def relu(_tensors, _name, x, _training):
    return np.maximum(x, 0), lambda d: (d * (x > 0), {}), {}


def batchnorm(tensors, name, x, training):
    """In training by the batch's statistics, by which the running ones move; else by the running ones, as for a
    batch of one row, which has no variance."""
    weight, bias = tensors[name + ".weight"], tensors[name + ".bias"]
    mean, variance, moved = tensors[name + ".running_mean"], tensors[name + ".running_var"], {}
    of_batch = training and len(x) > 1
    if of_batch:
        unbiased = x.var(axis=0, ddof=1)
        moved = {name + ".running_mean": mean + NORM_MOMENTUM * (x.mean(axis=0) - mean),
                 name + ".running_var": variance + NORM_MOMENTUM * (unbiased - variance)}
        mean, variance = x.mean(axis=0), x.var(axis=0)
    deviation = np.sqrt(variance + NORM_EPSILON)
    z = (x - mean) / deviation

    def backward(d):
        dz = d * weight
        if of_batch:
            dz = dz - dz.mean(axis=0) - z * (dz * z).mean(axis=0)
        return dz / deviation, {name + ".weight": (d * z).sum(axis=0), name + ".bias": d.sum(axis=0)}

    return z * weight + bias, backward, moved


def scale(factor):
    def layer(_tensors, _name, x, _training):
        return x * factor, lambda d: (d * factor, {}), {}

    return layer


LAYERS = {"embedding": embedding, "flatten": flatten, "linear": linear, "tanh": tanh, "sigmoid": sigmoid, "relu": relu, "batchnorm": batchnorm}


class Network:
    """Layers as in [model] layers. A model is one vector: the parameters, behind them batch norm's statistics.

    `options`: other keys of [model]. With adapters, what is neither one nor `trained` is frozen."""

    def __init__(self, layers, features, options=None, loss=None):
        options = options or {}
        self.loss = loss or CrossEntropy
        adapters = [rule.split() for rule in options.get("adapters", ())]  # "lora RANK alpha A PATTERN"
        self.layers, parameters, buffers, width, place = [], {}, {}, features, -1
        for layer in layers:
            kind, *size = layer.split()
            if kind == "scale":  # has no place in names
                self.layers.append((scale(float(size[0])), ""))
                continue
            place += 1
            self.layers.append((LAYERS[kind], str(place)))
            if kind == "embedding":
                tokens, width = map(int, size)
                parameters[f"{place}.weight"] = tokens, width
            elif kind == "linear" and size[1:] == ["nobias"]:
                self.layers[-1] = without_bias, str(place)
                parameters[f"{place}.weight"] = int(size[0]), width
                width = int(size[0])
            elif kind == "linear":
                out = int(size[0])
                parameters |= {f"{place}.weight": (out, width), f"{place}.bias": (out,)}
                for _, rank, _, alpha, pattern in adapters:
                    if fnmatchcase(f"{place}.weight", pattern):
                        self.layers[-1] = adapted(float(alpha) / int(rank)), str(place)
                        parameters |= {f"{place}.lora_A.weight": (int(rank), width),
                                       f"{place}.lora_B.weight": (out, int(rank))}
                width = out
            elif kind == "batchnorm":
                parameters |= {f"{place}.weight": (width,), f"{place}.bias": (width,)}
                buffers |= {f"{place}.running_mean": (width,), f"{place}.running_var": (width,)}
        self.outputs = width
        self.shapes = parameters | buffers
        self.last_layer = str(place)
        self.absent = []  # classes whose outputs count as 0 in training, and stay
        self.norms = {name.split(".")[0] for name in buffers}
        self.places, at = {}, 0  # of the tensors in a vector
        for name, shape in self.shapes.items():
            self.places[name] = slice(at, at + int(np.prod(shape)))
            at = self.places[name].stop
        self.parameters = sum(self.places[name].stop - self.places[name].start for name in parameters)
        self.is_parameter = np.arange(at) < self.parameters
        self.free = np.ones(at, bool)  # what is not frozen
        for name, place in self.places.items():
            trained = not adapters or "lora_" in name or any(fnmatchcase(name, p) for p in options["trained"])
            self.free[place] = trained and not any(fnmatchcase(name, p) for p in options.get("frozen", ()))

    def tensors(self, vector):
        return {name: vector[place].reshape(self.shapes[name]) for name, place in self.places.items()}

    def vector(self, tensors):
        """Tensors that are not there are 0."""
        vector = np.zeros(len(self.is_parameter))
        for name, value in tensors.items():
            vector[self.places[name]] = value.ravel()
        return vector

    def group(self, layers):
        """Which elements of a vector belong to these layers."""
        return self.vector({name: np.ones(shape) for name, shape in self.shapes.items()
                            if name.split(".")[0] in layers}).astype(bool)

    def outputs_of(self, model, x):
        tensors = self.tensors(model)
        for layer, name in self.layers:
            x, _, _ = layer(tensors, name, x, False)
        return x

    def representation_of(self, model, x):
        """The input of the last layer."""
        tensors = self.tensors(model)
        for layer, name in self.layers[:-1]:
            x, _, _ = layer(tensors, name, x, False)
        return x

    def gradient(self, model, x, y, pull=None):
        """Of the mean loss, 0 where something is frozen, and the statistics that batch norm has afterwards; each in a
        whole vector. `pull(z)`: the gradient of another loss of each row with respect to the rows' representations z,
        whose mean is added."""
        tensors, backward = self.tensors(model), []
        after = dict(tensors)
        for layer, name in self.layers:
            representation = x
            x, back, moved = layer(tensors, name, x, True)
            backward.append(back)
            for statistic, value in moved.items():
                after[statistic] = value
        if self.absent:
            x = x.copy()
            x[:, self.absent] = 0
        d, gradients = self.loss.slopes(x, y) / len(y), {}
        d[:, self.absent] = 0
        for back in reversed(backward):
            d, of_layer = back(d)
            gradients |= of_layer
            if pull is not None and back is backward[-1]:
                d = d + pull(representation) / len(y)
        return np.where(self.free, self.vector(gradients), 0), self.vector(after)


def probabilities(outputs):
    """One output: of class 1. More: of each class."""
    if outputs.shape[1] == 1:
        return 1 / (1 + np.exp(-outputs))
    p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def targets(outputs, y):
    return y[:, None] if outputs.shape[1] == 1 else np.eye(outputs.shape[1])[y]


def losses(outputs, y):
    """Of each row: −log of its class's probability."""
    if outputs.shape[1] == 1:
        return np.logaddexp(0, np.where(y == 1, -outputs[:, 0], outputs[:, 0]))
    return np.logaddexp.reduce(outputs, axis=1) - outputs[np.arange(len(y)), y]


class CrossEntropy:
    """Of each row, and with respect to its outputs."""
    of_rows = staticmethod(losses)

    @staticmethod
    def slopes(outputs, y):
        return probabilities(outputs) - targets(outputs, y)


class SquaredError:
    """Of one output, without the factor 1/2."""

    @staticmethod
    def of_rows(outputs, y):
        return (outputs[:, 0] - y) ** 2

    @staticmethod
    def slopes(outputs, y):
        return 2 * (outputs - y[:, None])
