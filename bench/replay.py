#!/usr/bin/env python3
"""Are Macaw's algorithms what their formulas say? A second implementation, in NumPy, repeats them.

Real runs (`macaw simulate --trace`) of softmax regression on data made here: twelve clients with
uneven counts of rows, five a round, two epochs of mini-batches with a ragged last one, momentum
where the rule allows it, weight decay. The trace says which rows each batch had; everything else is
computed again, in double. The final models must agree to 1e-12 in float64 and 1e-5 in float32.
Exits 1 when one does not. Needs numpy.

  python3 bench/replay.py --macaw build/bin/macaw [--only scaffold]
"""
import argparse, json, pathlib, struct, subprocess, sys, tempfile

import numpy as np

ROWS, FEATURES, CLASSES, CLIENTS, COHORT, ROUNDS = 300, 7, 4, 12, 5, 6
LR, DECAY = 0.2, 1e-3
# Label, algorithm, parameters, momentum.
CASES = [
    ("fedavg", "fedavg", {"server_lr": 0.8}, 0.9),
    ("fedprox", "fedprox", {"mu": 0.7}, 0.5),
    ("scaffold I", "scaffold", {"option": 1}, 0.5),
    ("scaffold II", "scaffold", {"option": 2}, 0.0),
    ("scaffold II, momentum", "scaffold", {"option": 2, "server_lr": 0.9}, 0.5),
    ("scaffold II, weighted", "scaffold", {"option": 2, "weighted": True}, 0.0),
    ("fednova", "fednova", {}, 0.9),
    ("fednova, proximal", "fednova", {"mu": 0.6}, 0.4),
    ("feddyn", "feddyn", {"alpha": 0.3}, 0.0),
    ("feddyn, weighted", "feddyn", {"alpha": 0.3, "weighted": True}, 0.5),
    ("mime, sgd", "mime", {"base": "sgd"}, 0.0),
    ("mime, momentum", "mime", {"base": "momentum", "beta1": 0.8}, 0.0),
    ("mime, adam", "mime", {"base": "adam", "epsilon": 0.1}, 0.0),
    ("mimelite", "mimelite", {"base": "momentum"}, 0.0),
]
CONFIG = f"""
[run]
rounds = {ROUNDS}
seed = 5
[data]
source = "csv"
path = "rows.csv"
test_fraction = 0
[partition]
scheme = "file"
path = "partition.json"
[model]
name = "logistic"
init = "init.safetensors"
[cohort]
size = {COHORT}
[local]
epochs = 2
batch_size = 6
lr = {LR}
weight_decay = {DECAY}
[evaluation]
every = 0
splits = ["train"]
"""


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": "F64", "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))


def read_safetensors(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8:8 + length]), raw[8 + length:]
    types = {"F32": np.float32, "F64": np.float64}
    return {name: np.frombuffer(body[slice(*t["data_offsets"])], types[t["dtype"]]).reshape(t["shape"]).astype(np.float64)
            for name, t in header.items() if name != "__metadata__"}


class Problem:
    """Softmax regression; a model is one vector, weights before biases."""

    def __init__(self, folder):
        random = np.random.default_rng(3)
        self.x = random.standard_normal((ROWS, FEATURES)).astype(np.float32).astype(np.float64)
        truth = random.standard_normal((FEATURES, CLASSES))
        self.y = np.argmax(self.x @ truth + random.gumbel(size=(ROWS, CLASSES)), axis=1)
        (folder / "rows.csv").write_text("\n".join(
            ",".join([*(f"{v:.9g}" for v in row), str(label)]) for row, label in zip(self.x, self.y)) + "\n")
        sizes = 5 + random.permutation(np.arange(CLIENTS)) * 3  # 5 to 38 rows: most batches end ragged
        ends = np.cumsum(sizes)
        assert ends[-1] <= ROWS
        order = random.permutation(ROWS)
        self.rows = [np.sort(order[end - size:end]) for size, end in zip(sizes, ends)]
        (folder / "partition.json").write_text(json.dumps({str(k): r.tolist() for k, r in enumerate(self.rows)}))
        start = {"0.weight": 0.3 * random.standard_normal((CLASSES, FEATURES)), "0.bias": random.standard_normal(CLASSES)}
        start = {name: value.astype(np.float32).astype(np.float64) for name, value in start.items()}
        write_safetensors(folder / "init.safetensors", start)
        self.start = self.flat(start)
        self.n = np.array([len(r) for r in self.rows], dtype=np.float64)

    @staticmethod
    def flat(model):
        return np.concatenate([model["0.weight"].ravel(), model["0.bias"]])

    def gradient(self, w, client, positions=None):
        rows = self.rows[client] if positions is None else self.rows[client][positions]
        x, y = self.x[rows], self.y[rows]
        logits = x @ w[:-CLASSES].reshape(CLASSES, FEATURES).T + w[-CLASSES:]
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(y)), y] -= 1
        p /= len(y)
        return np.concatenate([(p.T @ x).ravel(), p.sum(axis=0)])


class Replay:
    """The rules, from their formulas: one method each, called once a round with the cohort's batches."""

    def __init__(self, problem, parameters, momentum):
        self.problem, self.p, self.momentum = problem, parameters, momentum
        self.x = problem.start.copy()
        zero = np.zeros_like(self.x)
        self.c, self.h, self.m, self.v = zero.copy(), zero.copy(), zero.copy(), zero.copy()
        self.state = [zero.copy() for _ in range(CLIENTS)]

    def steps(self, client, batches, mu=0.0, v=0.0, rule=None):
        """Local SGD from x: g + mu (w - x) + v + decay w, then momentum."""
        w, velocity = self.x.copy(), 0.0
        for batch in batches:
            g = self.problem.gradient(w, client, batch)
            d = rule(w, g, batch) if rule else g + mu * (w - self.x) + v + DECAY * w
            velocity = self.momentum * velocity + d
            w -= LR * velocity
        return w

    def a_norm(self, steps, mu=0.0):
        """FedNova's |a|_1: the same optimizer on one weight with the constant gradient 1."""
        value = velocity = 0.0
        for _ in range(steps):
            velocity = self.momentum * velocity + 1 - LR * mu * value
            value += velocity
        return value

    def mean(self, values, clients, weighted=True):
        weights = self.problem.n[clients] if weighted else np.ones(len(clients))
        return np.einsum("k,ki->i", weights, np.array(values)) / weights.sum()

    def fedavg(self, turns, mu=0.0):
        ends = [self.steps(k, batches, mu=mu) - self.x for k, batches in turns.items()]
        self.x = self.x + self.p.get("server_lr", 1.0) * self.mean(ends, list(turns))

    def fedprox(self, turns):
        self.fedavg(turns, mu=self.p["mu"])

    def scaffold(self, turns):
        weighted, changes, ends = self.p.get("weighted", False), [], []
        for k, batches in turns.items():
            y = self.steps(k, batches, v=self.c - self.state[k])
            if self.p["option"] == 1:
                own = self.problem.gradient(self.x, k)
            else:
                own = self.state[k] - self.c + (self.x - y) / (LR * self.a_norm(len(batches)))
            changes.append(own - self.state[k])
            ends.append(y - self.x)
            self.state[k] = own
        clients, n = list(turns), self.problem.n
        self.x = self.x + self.p.get("server_lr", 1.0) * self.mean(ends, clients, weighted)
        shares = n[clients] / n.sum() if weighted else np.full(len(clients), 1 / CLIENTS)
        self.c = self.c + shares @ np.array(changes)

    def fednova(self, turns):
        mu, clients = self.p.get("mu", 0.0), list(turns)
        norms = [self.a_norm(len(batches), mu) for batches in turns.values()]
        directions = [(self.steps(k, b, mu=mu) - self.x) / a for (k, b), a in zip(turns.items(), norms)]
        self.x = self.x + self.mean([[a] for a in norms], clients)[0] * self.mean(directions, clients)

    def feddyn(self, turns):
        alpha, n, moved = self.p["alpha"], self.problem.n, []
        for k, batches in turns.items():
            own = alpha / (CLIENTS * n[k] / n.sum()) if self.p.get("weighted") else alpha
            theta = self.steps(k, batches, mu=own, v=-self.state[k])
            self.state[k] = self.state[k] - own * (theta - self.x)
            moved.append(theta - self.x)
        self.h = self.h - alpha / CLIENTS * np.sum(moved, axis=0)
        self.x = self.x + np.mean(moved, axis=0) - self.h / alpha

    def mime(self, turns, lite=False):
        clients, base, beta1 = list(turns), self.p["base"], self.p.get("beta1", 0.9)
        c = self.mean([self.problem.gradient(self.x, k) for k in clients], clients) + DECAY * self.x

        def update(d):
            if base != "sgd":
                d = (1 - beta1) * d + beta1 * self.m
            return d / (self.p["epsilon"] + np.sqrt(self.v)) if base == "adam" else d

        def rule(k):
            def direction(w, g, batch):
                d = g + DECAY * w
                if not lite:
                    d = d - (self.problem.gradient(self.x, k, batch) + DECAY * self.x) + c
                return update(d)
            return direction

        ends = [self.steps(k, batches, rule=rule(k)) - self.x for k, batches in turns.items()]
        self.x = self.x + self.mean(ends, clients)
        self.m = beta1 * self.m + (1 - beta1) * c
        self.v = 0.99 * self.v + 0.01 * c * c

    def mimelite(self, turns):
        self.mime(turns, lite=True)


def turns_of(run):
    """round -> client -> the positions of each batch, from every worker's trace."""
    rounds = {}
    for file in sorted((run / "trace").iterdir()):
        for line in file.read_text().splitlines():
            turn = json.loads(line)
            for stage in turn["stages"]:
                if stage["kind"] == "train":
                    rounds.setdefault(turn["round"], {})[turn["client"]] = [np.array(b) for b in stage["batches"]]
    return [dict(sorted(rounds[r].items())) for r in sorted(rounds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macaw", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "build/bin/macaw")
    parser.add_argument("--only", default="", help="cases whose label begins with this")
    options = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        problem = Problem(folder)
        (folder / "replay.toml").write_text(CONFIG)
        for label, rule, parameters, momentum in CASES:
            if not label.startswith(options.only):
                continue
            for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
                run = folder / f"{label}-{dtype}".replace(" ", "").replace(",", "-")
                command = [str(options.macaw), "simulate", str(folder / "replay.toml"), "--quiet", "--trace",
                           "--out", str(run)]
                settings = {"run.dtype": dtype, "algorithm.name": rule, "local.momentum": momentum,
                            **{f"algorithm.{rule}.{k}": v for k, v in parameters.items()}}
                for key, value in settings.items():
                    command += ["--set", f"{key}={str(value).lower()}"]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(f"{' '.join(command)}\n{done.stderr}")
                replay, rounds = Replay(problem, parameters, momentum), turns_of(run)
                assert len(rounds) == ROUNDS and all(len(turns) == COHORT for turns in rounds)
                assert any(len({len(b) for b in batches}) > 1 for t in rounds for batches in t.values()), "no ragged batch"
                for turns in rounds:
                    getattr(replay, rule)(turns)
                found = problem.flat(read_safetensors(run / "model.safetensors"))
                moved = np.abs(found - problem.start).max()
                error = np.abs(found - replay.x).max()
                good = error <= tolerance and moved > 0.1
                bad += not good
                print(f"{'ok ' if good else 'BAD'} {label:22} {dtype}  |difference| {error:.1e} (<= {tolerance:g}), "
                      f"the model moved by {moved:.2f}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
