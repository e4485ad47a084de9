"""Rules that send a mean or a sum, from their formulas."""
import numpy as np

from local_work import a_norm, train
from problem import CLIENTS, SEED
from random_stream import RandomStream


def lengths(z):
    """Of the rows; of a row of zeros infinite, so that it has no direction."""
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    return np.where(norms > 0, norms, np.inf)


def unit(z):
    return z / lengths(z)


class Rule:
    """A round: what each client sends, by name (`client`), how that is combined, what the server does (`server`).

    `combine` says how, of each name: "examples", the mean weighted by a client's rows; "clients", the plain mean;
    "population", the sum over N, the number of all clients; "shares", the sum weighted by the client's part of all
    clients' rows; "each": one by one. `state` is what clients keep.

    Batch norm's statistics are apart: the formulas are of parameters, whatever the rule, and x's statistics move by the
    clients' changes, combined as `statistics` says."""
    combine = {"delta": "examples", "statistics": "examples"}
    phases = 1

    def __init__(self, problem, local, **parameters):
        self.problem, self.local, self.p = problem, local, parameters
        self.x = problem.start.copy()
        self.state = {}
        self.columns = {}  # of the last round, what the rule reports beside its model

    def round(self, turns, attack=None):
        """`turns`: by client of the cohort, the batches of each of its stages."""
        for phase in range(self.phases):
            self.moved = {}  # by client, the statistics' changes
            training = {k: stages for k, stages in turns.items() if attack is None or attack.trains(k)}
            sent = {k: self.client(k, stages, phase) for k, stages in training.items()}
            for k, change in self.moved.items():
                sent[k]["statistics"] = change
            if attack is not None:
                sent = attack(sent, list(turns), {name: self.weights(name, list(turns)) for name in self.combine})
            names = next(iter(sent.values())).keys()
            combined = {name: self.combined(name, {k: sent[k][name] for k in turns}) for name in names}
            statistics = combined.pop("statistics", None)
            self.server(**combined)
            if statistics is not None:
                self.x[self.problem.network.parameters:] += self.statistics(statistics)

    def weights(self, name, clients):
        n, how = self.problem.n, self.combine[name]
        if how == "examples":
            return n[clients] / n[clients].sum()
        if how == "shares":
            return n[clients] / n.sum()
        return np.full(len(clients), 1 / (CLIENTS if how == "population" else len(clients)))

    def combined(self, name, values):
        rows = np.array(list(values.values()))
        return rows if self.combine[name] == "each" else np.tensordot(self.weights(name, list(values)), rows, 1)

    def statistics(self, change):
        return change

    def delta(self, k, y):
        """y − x without the statistics, which are put aside."""
        delta, parameters = y - self.x, self.problem.network.parameters
        self.moved[k] = delta[parameters:].copy()
        delta[parameters:] = 0
        return delta

    def trained(self, k, batches, **more):
        return self.delta(k, train(self.problem, self.x, k, batches, self.local, **more))

    def move(self, step):
        self.x = self.x + self.p.get("server_lr", 1.0) * step

    def result(self):
        return self.x


class FedAvg(Rule):
    mu = 0.0

    def client(self, k, stages, _phase):
        delta = self.trained(k, stages[0], mu=self.mu)
        clip = self.p.get("update_clip", 0.0)
        return {"delta": delta * min(1.0, clip / np.linalg.norm(delta)) if clip else delta}

    def server(self, delta):
        self.move(delta)


class Ifca(Rule):
    """Each client trains the model of the least loss on its rows; a model is the mean of its own clients."""

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.models = [self.start(j) for j in range(self.p["clusters"])]

    def start(self, j):
        """Model 0 is the initial model; in the others its numbers are in another order, by tensor, or have noise."""
        network, model = self.problem.network, self.problem.start.copy()
        stream = RandomStream.of_server(SEED, f"model{j}")
        for name, place in network.places.items():
            if j == 0 or "running" in name:
                continue
            values = model[place].tolist()
            if self.p.get("start") == "noise":
                values = [value + self.p["spread"] * stream.normal() for value in values]
            else:
                stream.shuffle(values)
            model[place] = values
        return model

    def losses(self, k):
        return [self.problem.loss(model, k) for model in self.models]

    def round(self, turns, attack=None):
        losses = {k: self.losses(k) for k in turns}
        chosen = {k: losses[k].index(min(losses[k])) for k in turns}  # the first of equals
        took = list(chosen.values())
        self.columns = {f"rule_clients{j}": took.count(j) for j in range(len(self.models))} | {
            "rule_best_loss": np.average([min(losses[k]) for k in turns], weights=self.problem.n[list(turns)])}
        ends = {k: train(self.problem, self.models[chosen[k]], k, stages[0], self.local) for k, stages in turns.items()}
        rate = np.where(self.problem.network.is_parameter, self.p.get("server_lr", 1.0), 1.0)
        for j, model in enumerate(self.models):
            own = [k for k in turns if chosen[k] == j]
            if own:
                mean = np.average([ends[k] - model for k in own], axis=0, weights=self.problem.n[own])
                self.models[j] = model + rate * mean

    def result(self):
        return np.concatenate(self.models)


class FedProx(FedAvg):
    @property
    def mu(self):
        return self.p["mu"]


class GradientDescent(FedAvg):
    def client(self, k, _stages, _phase):
        gradient, statistics = self.problem.network.gradient(self.x, *self.problem.batch(k))
        step = self.local.lr * (gradient + self.local.decay * self.x)
        return {"delta": self.delta(k, np.where(self.problem.network.is_parameter, self.x - step, statistics))}


class FedAvgM(FedAvg):
    m = 0.0

    def server(self, delta):
        self.m = self.p["beta"] * self.m + delta
        self.move(self.m)


class Adaptive(FedAvg):
    """x ← x + η_g·m/(√v + τ), m₋₁ = 0, v₋₁ = τ² or v_init; β₂ᵗ and β₁ᵗ where the bias is corrected."""
    t = 0
    m = 0.0

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.v = self.p.get("v_init", self.p["tau"] ** 2) * np.ones_like(self.x)

    def server(self, delta):
        self.t += 1
        beta1, beta2 = self.p["beta1"], self.p.get("beta2")
        self.m = beta1 * self.m + (1 - beta1) * delta
        self.v = self.second(delta * delta)
        m, v = self.m, self.v
        if self.p.get("bias_correction"):
            m, v = m / (1 - beta1 ** self.t), v / (1 - beta2 ** self.t)
        self.move(m / (np.sqrt(v) + self.p["tau"]))


class FedAdagrad(Adaptive):
    def second(self, square):
        return self.v + square


class FedAdam(Adaptive):
    def second(self, square):
        return self.p["beta2"] * self.v + (1 - self.p["beta2"]) * square


class FedYogi(Adaptive):
    def second(self, square):
        return self.v - (1 - self.p["beta2"]) * square * np.sign(self.v - square)


class QFedAvg(Rule):
    """With L = 1/η: Δ_k = F^q·L(x − y), h_k = q·F^(q−1)·‖L(x − y)‖² + L·F^q, x ← x − ΣΔ_k/Σh_k."""
    combine = {"delta": "clients", "h": "clients", "statistics": "clients"}

    def client(self, k, stages, _phase):
        f, q, lipschitz = self.problem.loss(self.x, k) + 1e-10, self.p["q"], 1 / self.local.lr
        down = -lipschitz * self.trained(k, stages[0])
        return {"delta": f ** q * down, "h": q * f ** (q - 1) * (down @ down) + lipschitz * f ** q}

    def server(self, delta, h):
        self.move(-delta / h)


class FedExP(FedAvg):
    """η_g = max(1, mean ‖Δ‖²/(2(‖mean Δ‖² + ε))); what is evaluated is the mean of the last two x."""
    combine = {**FedAvg.combine, "square": "examples"}
    before = None

    def client(self, k, stages, _phase):
        delta = self.trained(k, stages[0])
        return {"delta": delta, "square": delta @ delta}

    def server(self, delta, square):
        self.before = self.x.copy()
        self.x = self.x + max(1.0, square / (2 * (delta @ delta + self.p["epsilon"]))) * delta

    def result(self):
        return self.x if self.p.get("evaluate") == "x" else (self.x + self.before) / 2


class Term(Rule):
    """Clients weigh by their rows and by e^(t·f) at x."""
    combine = {"delta": "examples", "power": "examples", "statistics": "examples"}

    def client(self, k, stages, _phase):
        power = np.exp(self.p["t"] * self.problem.loss(self.x, k))
        return {"delta": power * self.trained(k, stages[0]), "power": power}

    def server(self, delta, power):
        self.move(delta / power)


class Afl(Rule):
    """x goes down Σλ_i f_i, λ up it and back to the simplex; of the cohort, N/|S| times."""
    combine = {"delta": "clients", "loss": "each", "statistics": "clients"}

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.mixture = np.full(CLIENTS, 1 / CLIENTS)
        self.iterates = []  # without the first x

    def round(self, turns, attack=None):
        self.cohort = list(turns)
        super().round(turns, attack)
        self.iterates.append(self.x.copy())

    def client(self, k, stages, _phase):
        return {"delta": CLIENTS * self.mixture[k] * self.trained(k, stages[0]),
                "loss": self.problem.loss(self.x, k)}

    def server(self, delta, loss):
        self.move(delta)
        up = self.mixture.copy()
        up[self.cohort] += self.p["mixture_lr"] * CLIENTS / len(self.cohort) * loss
        # Σ max(0, λ − τ) = 1: τ by the number of λ that stay, of which one fits.
        largest = np.sort(up)[::-1]
        thresholds = (np.cumsum(largest) - 1) / np.arange(1, CLIENTS + 1)
        self.mixture = np.maximum(0, up - thresholds[np.count_nonzero(largest > thresholds) - 1])

    def result(self):
        return self.x if self.p.get("evaluate") == "x" else np.mean(self.iterates, axis=0)


class FedSAM(FedAvg):
    def client(self, k, stages, _phase):
        def direction(w, g, batch):
            uphill = w + self.p["rho"] * g / np.linalg.norm(g)
            return self.problem.gradient(uphill, k, batch) + self.local.decay * w
        return {"delta": self.trained(k, stages[0], direction=direction)}


class Moon(FedAvg):
    """Each row's loss has μ·(−log softmax(cosines/τ)) of its representation z with those of x, the first, and of the
    client's last model; only z moves."""

    def client(self, k, stages, _phase):
        network, before = self.problem.network, self.state.get(k)

        def direction(w, _g, batch):
            rows, labels = self.problem.batch(k, batch)
            others = [unit(network.representation_of(model, rows)) for model in (self.x, before)]

            def pull(z):
                z1 = unit(z)
                scores = np.exp(np.stack([(z1 * other).sum(axis=1) for other in others]) / self.p["temperature"])
                p = scores / scores.sum(axis=0)
                to_unit = (p[0] - 1)[:, None] * others[0] + p[1][:, None] * others[1]
                across = to_unit - (to_unit * z1).sum(axis=1, keepdims=True) * z1
                return self.p["mu"] / self.p["temperature"] * across / lengths(z)
            return network.gradient(w, rows, labels, pull)[0] + self.local.decay * w
        y = train(self.problem, self.x, k, stages[0], self.local, direction=None if before is None else direction)
        self.state[k] = y
        return {"delta": self.delta(k, y)}


class PerFedAvg(FedAvg):
    """Of each pair of batches the first makes w̃ = w − α·g(w), and the second moves w by its gradient at w̃."""

    def client(self, k, stages, _phase):
        adapted = []

        def direction(w, g, batch):
            if not adapted:
                adapted.append(w - self.p["alpha"] * (g + self.local.decay * w))
                return np.zeros_like(g)
            at = adapted.pop()
            return self.problem.gradient(at, k, batch) + self.local.decay * at
        return {"delta": self.trained(k, stages[0], direction=direction)}


class Scaffold(Rule):
    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        weighted = self.p.get("weighted", False)
        mean = "examples" if weighted else "clients"
        self.combine = {"delta": mean, "statistics": mean, "change": "shares" if weighted else "population"}
        self.c = np.zeros_like(self.x)

    def client(self, k, stages, _phase):
        before = self.state.get(k, 0.0)
        delta = self.trained(k, stages[0], v=self.c - before)
        if self.p["option"] == 1:
            self.state[k] = self.problem.gradient(self.x, k)
        else:
            steps = a_norm(len(stages[0]), self.local)
            self.state[k] = before - self.c - delta / (self.local.lr * steps)
        return {"delta": delta, "change": self.state[k] - before}

    def server(self, delta, change):
        self.move(delta)
        self.c = self.c + change


class FedNova(Rule):
    combine = {"direction": "examples", "tau": "examples", "statistics": "examples"}
    m = 0.0

    def client(self, k, stages, _phase):
        mu = self.p.get("mu", 0.0)
        norm = a_norm(len(stages[0]), self.local, mu)
        delta = self.trained(k, stages[0], mu=mu)
        tau = len(stages[0]) if self.p.get("tau_eff") == "steps" else norm
        return {"direction": delta / norm, "tau": tau}

    def server(self, direction, tau):
        self.m = self.p.get("server_momentum", 0.0) * self.m + tau * direction
        self.move(self.m)


class FedDyn(Rule):
    combine = {"delta": "clients", "sum": "population", "statistics": "clients"}

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.h, self.mean = np.zeros_like(self.x), self.x

    def client(self, k, stages, _phase):
        alpha, n = self.p["alpha"], self.problem.n
        if self.p.get("weighted"):
            alpha /= CLIENTS * n[k] / n.sum()
        before = self.state.get(k, 0.0)
        delta = self.trained(k, stages[0], mu=alpha, v=-before)
        self.state[k] = before - alpha * delta
        return {"delta": delta, "sum": delta}

    def server(self, delta, sum):
        self.h = self.h - self.p["alpha"] * sum
        self.mean = self.x + delta
        self.x = self.mean - self.h / self.p["alpha"]

    def result(self):
        return self.mean if self.p.get("evaluate") == "mean" else self.x


class Mime(Rule):
    combine = {"gradient": "examples", "delta": "examples", "statistics": "examples"}
    phases = 2
    corrected = True

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.m, self.v = np.zeros_like(self.x), np.zeros_like(self.x)

    def gradient(self, w, k, batch=None):
        return self.problem.gradient(w, k, batch) + self.local.decay * w

    def update(self, d):
        """U(d, s): a step of the server's optimizer, whose state the round does not change."""
        if self.p["base"] != "sgd":
            d = (1 - self.p["beta1"]) * d + self.p["beta1"] * self.m
        return d / (self.p["epsilon"] + np.sqrt(self.v)) if self.p["base"] == "adam" else d

    def update_of(self, k, batches):
        def direction(w, g, batch):
            d = g + self.local.decay * w
            return self.update(d - self.gradient(self.x, k, batch) + self.c if self.corrected else d)
        return self.trained(k, batches, direction=direction)

    def client(self, k, stages, phase):
        return {"gradient": self.gradient(self.x, k)} if phase == 0 else {"delta": self.update_of(k, stages[0])}

    def server(self, gradient=None, delta=None):
        if gradient is not None:
            self.c = gradient
        if delta is None:
            return
        self.move(delta)
        beta1, beta2 = self.p.get("beta1", 0.0), self.p.get("beta2", 0.0)
        self.m = beta1 * self.m + (1 - beta1) * self.c
        self.v = beta2 * self.v + (1 - beta2) * self.c * self.c


class MimeLite(Mime):
    phases = 1
    corrected = False

    def client(self, k, stages, _phase):
        return {"gradient": self.gradient(self.x, k), "delta": self.update_of(k, stages[0])}
