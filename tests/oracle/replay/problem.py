"""Rows made here, which client has them, and a model to train on them."""
import copy
import json

import numpy as np

import metrics
import tensor_file
from network import Network

FEATURES, CLASSES, CLIENTS, TEST_ROWS, BATCH = 7, 4, 21, 120, 6
SEED = 5  # of runs
MODELS = {  # layers, with one output for two classes
    "softmax": [f"linear {CLASSES}"],
    "binary": ["linear 1"],
    "hidden": ["linear 9", "tanh", f"linear {CLASSES}"],
    "image": ["flatten", f"linear {CLASSES}"],  # of one line of pixels
    "norm": ["linear 6", "batchnorm", "relu", f"linear {CLASSES}"],
    "adapted": ["linear 9", "tanh", "linear 6", "relu", f"linear {CLASSES}"],
    "half adapted": ["linear 9", "tanh", f"linear {CLASSES}"],
    "autoencoder": ["linear 3", "tanh", "linear 5", "sigmoid", "linear 4", f"linear {FEATURES}"],
}
TASKS = {"binary": "binary", "autoencoder": "reconstruction"}
OPTIONS = {  # other keys of [model]
    "adapted": {"adapters": ["lora 2 alpha 3 0.*", "lora 4 alpha 2 2.*"], "trained": ["4.*"]},
    "half adapted": {"adapters": ["lora 3 alpha 6 *"], "trained": [], "frozen": ["*.lora_A.weight"]},
}


class Problem:
    """Clients have 5 to 25 rows, so most last batches are ragged and some have one row; mostly few classes; and up to
    12 test rows of their own, one of them none. `train`, `client_test`: rows by client; `test`: nobody's."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model
        folder.mkdir()
        random = np.random.default_rng(3)
        sizes = 5 + random.permutation(CLIENTS)
        sizes[sizes % BATCH == 2] += 1  # of two rows, batch norm may divide by next to nothing: float32 shows it
        tests = np.arange(CLIENTS) % 5 * 2 + 4
        tests[4] = 0
        count = TEST_ROWS + int(sizes.sum() + tests.sum())
        self.x = random.standard_normal((count, FEATURES)).astype(np.float32).astype(float)
        truth = random.standard_normal((FEATURES, CLASSES))
        self.y = np.argmax(self.x @ truth + random.gumbel(size=(count, CLASSES)), axis=1)
        if model == "binary":
            self.y = self.y // 2
        self.classes = int(self.y.max()) + 1
        self.test = np.arange(TEST_ROWS)
        skewed = TEST_ROWS + np.argsort(self.y[TEST_ROWS:] + 0.8 * random.standard_normal(count - TEST_ROWS))
        self.train, self.client_test, at = [], [], 0
        for size, test in zip(sizes, tests):
            rows = random.permutation(skewed[at:at + size + test])
            self.train.append(np.sort(rows[:size]))
            self.client_test.append(np.sort(rows[size:]))
            at += size + test
        self.n = sizes.astype(float)
        self.network = Network(MODELS[model], FEATURES, OPTIONS.get(model))
        start = {name: 0.5 * random.standard_normal(shape) for name, shape in self.network.shapes.items()}
        for norm in self.network.norms:
            start[norm + ".weight"] += 1
            start[norm + ".running_var"] = 1 + start[norm + ".running_var"] ** 2
        self.start = np.float32(self.network.vector(start)).astype(float)  # the same in both types
        self.write()

    def write(self):
        (self.folder / "rows.csv").write_text("".join(
            ",".join([*(f"{v:.9g}" for v in row), str(label)]) + "\n" for row, label in zip(self.x, self.y)))
        division = {str(k): rows.tolist() for k, rows in enumerate(self.train)}
        division["test"] = self.test.tolist()
        division["client_test"] = {str(k): rows.tolist() for k, rows in enumerate(self.client_test) if len(rows)}
        (self.folder / "partition.json").write_text(json.dumps(division))
        tensor_file.write(self.folder / "init.safetensors", self.network.tensors(self.start))

    def settings(self):
        """The keys of a run's configuration that say all this."""
        image = {"data.input_shape": [1, 1, FEATURES]} if self.model == "image" else {}
        options = {f"model.{key}": value for key, value in OPTIONS.get(self.model, {}).items()}
        return image | options | {"data.source": "csv", "data.path": "rows.csv", "partition.scheme": "file",
                "partition.path": "partition.json", "model.layers": MODELS[self.model],
                "model.init": "init.safetensors", "run.task": TASKS.get(self.model, "classification")}

    def together(self):
        """The same, with everybody's training rows at the first client, in the clients' order."""
        pooled = copy.copy(self)
        pooled.train = [np.concatenate(self.train)]
        pooled.n = np.array([self.n.sum()])
        return pooled

    def flipped(self, clients):
        """The same, with labels y → classes − 1 − y in these clients' training rows."""
        changed = copy.copy(self)
        changed.y = self.y.copy()
        for k in clients:
            changed.y[self.train[k]] = self.classes - 1 - self.y[self.train[k]]
        return changed

    def stamped(self, rows, target):
        """The same, with the last pixel of these rows at 1 and the target's label."""
        changed = copy.copy(self)
        changed.x, changed.y = self.x.copy(), self.y.copy()
        changed.x[rows, -1] = 1
        changed.y[rows] = target
        return changed

    def attacked(self, attack, hostile):
        """What is trained on where hostile clients change their rows; with a backdoor, all of them."""
        if attack.get("kind") == "label-flip":
            return self.flipped(hostile)
        if attack.get("kind") == "backdoor":
            return self.stamped(np.concatenate([self.train[k] for k in sorted(hostile)]), attack["target"])
        return self

    def of(self, rows):
        """What the model takes of these rows, and their labels."""
        return self.x[rows], self.y[rows]

    def measured(self, outputs, y):
        """The metrics of rows, by name."""
        return metrics.of_rows(outputs, y, self.classes)

    def batch(self, client, positions=None):
        """Features and labels of a client's training rows at these positions; None: of all."""
        return self.of(self.train[client] if positions is None else self.train[client][positions])

    def gradient(self, model, client, positions=None):
        return self.network.gradient(model, *self.batch(client, positions))[0]

    def loss(self, model, client):
        x, y = self.batch(client)
        return self.network.loss.of_rows(self.network.outputs_of(model, x), y).mean()
