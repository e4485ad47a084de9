"""Rules with models of the clients' own, and the two baselines."""
import numpy as np

from local_work import train
from rules import FedAvg


class Pooled(FedAvg):
    """One client with everybody's rows."""

    def __init__(self, problem, local, **parameters):
        super().__init__(problem.together(), local, **parameters)


class Personal(FedAvg):
    """`state` holds, by client, what `macaw state export` writes under `kept`: a whole model, or x's group."""

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.group = problem.network.free

    def own(self, k):
        """The client's model: x, with its own group in it."""
        return np.where(self.group, self.state.get(k, self.x), self.x)

    def tested(self, _k, kept, common):
        """The model with which a client's rows are tested, by what it keeps."""
        return np.where(self.group, kept, common)

    def without_group(self, k):
        """What a client sends that has trained `state[k]`."""
        return {"delta": self.delta(k, np.where(self.group, self.x, self.state[k]))}


class Alone(Personal):
    """`local`: its client's model starts as the initial one, and nothing is sent."""
    kept = "own"

    def round(self, turns, attack=None):
        for k, stages in turns.items():
            self.state[k] = train(self.problem, self.own(k), k, stages[0], self.local)


class Ditto(Personal):
    kept = "personal"

    def client(self, k, stages, phase):
        self.state[k] = train(self.problem, self.own(k), k, stages[1], self.local, mu=self.p["lambda"], anchor=self.x)
        return super().client(k, stages, phase)


class FedBN(Personal):
    """Batch norm's weights and statistics stay."""
    kept = "group"

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.group = problem.network.group(problem.network.norms)

    def client(self, k, stages, _phase):
        self.state[k] = train(self.problem, self.own(k), k, stages[0], self.local)
        return self.without_group(k)


class FedPer(FedBN):
    """The last layer stays."""

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.group = problem.network.group({problem.network.last_layer})


class FedRep(Personal):
    """The last layer stays. It is trained first, then the layers before it."""
    kept = "group"

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.group = problem.network.group({problem.network.last_layer})

    def client(self, k, stages, _phase):
        with_head = train(self.problem, self.own(k), k, stages[0], self.local, trainable=self.group)
        self.state[k] = train(self.problem, with_head, k, stages[1], self.local, trainable=~self.group)
        return self.without_group(k)


class PFedMe(Personal):
    """For each batch K steps of θ along g(θ) + λ(θ − w), and one of w along λ(w − θ). Statistics are θ's own."""
    kept = "personal"

    def client(self, k, stages, _phase):
        theta, pull = self.x.copy(), self.p["lambda"]

        def direction(w, _g, batch):
            nonlocal theta
            for _ in range(self.p["personal_steps"]):
                g, statistics = self.problem.network.gradient(theta, *self.problem.batch(k, batch))
                step = g + self.local.decay * theta + pull * (theta - w)
                theta = np.where(self.problem.network.is_parameter, theta - self.p["personal_lr"] * step, statistics)
            return pull * (w - theta)
        w = train(self.problem, self.x, k, stages[0], self.local, direction=direction)
        self.state[k] = theta
        return {"delta": self.delta(k, w)}


class APFL(Personal):
    """v along α·g(v̄) with v̄ = αv + (1 − α)y, y along g(y); α once a turn along ⟨v − y, g(v̄)⟩."""
    kept = "personal"

    def __init__(self, problem, local, **parameters):
        super().__init__(problem, local, **parameters)
        self.alpha = {}

    def client(self, k, stages, _phase):
        v, alpha = self.own(k), self.alpha.get(k, self.p["alpha"])

        def direction(y, g, batch):
            nonlocal v, alpha
            mixed = self.mixed(alpha, v, y)
            at_mixed, statistics = self.problem.network.gradient(mixed, *self.problem.batch(k, batch))
            of_own = np.where(self.problem.network.is_parameter, at_mixed + self.local.decay * mixed, 0)
            before, apart = alpha, v - y
            if batch is stages[0][0]:
                alpha = np.clip(alpha - self.p.get("alpha_lr", 0.0) * (apart @ of_own), 0, 1)
            v = np.where(self.problem.network.is_parameter, v - self.local.lr * before * of_own, statistics)
            return g + self.local.decay * y
        y = train(self.problem, self.x, k, stages[0], self.local, direction=direction)
        self.state[k] = v
        self.alpha[k] = alpha
        return {"delta": self.delta(k, y)}

    def tested(self, k, kept, common):
        return self.mixed(self.alpha[k], kept, common) if self.alpha[k] > 0 else common

    def mixed(self, alpha, v, y):
        """v̄, whose statistics v keeps."""
        return np.where(self.problem.network.is_parameter, alpha * v + (1 - alpha) * y, v)


def fine_tuned(problem, model, client, local, steps, batch_size):
    """After so many steps on the client's rows in stored order (local.shuffle = false), epoch by epoch."""
    rows = np.arange(len(problem.train[client]))
    batches = [rows[at:at + batch_size] for at in range(0, len(rows), batch_size)]
    if problem.network.norms and len(batches) > 1 and len(batches[-1]) == 1:  # no variance: it joins the one before
        batches[-2:] = [np.concatenate(batches[-2:])]
    epochs = -(-steps // len(batches))
    return train(problem, model, client, (batches * epochs)[:steps], local)
