"""Problems for what is measured: clients differ more, and rows of other tasks and rows that tie are among them."""
import numpy as np

import metrics
import tensor_file
from network import Network, SquaredError
from problem import CLIENTS, FEATURES, TEST_ROWS, Problem

CLASSES, TOKENS, LENGTH = 8, 9, 6
MODELS = {
    "many": [f"linear {CLASSES} nobias"],      # of more than five classes
    "even": ["linear 1 nobias"],               # of two
    "centres": [f"linear {CLASSES}"],
    "numbers": ["linear 1"],                   # of a regression
    "tokens": [f"embedding {TOKENS} 4", f"linear {TOKENS}"],
}
TASKS = {"even": "binary", "numbers": "regression", "tokens": "next-token"}
ZEROS, ALIKE, NEAR, ONE, NONE = 2, 3, 4, 5, 6  # clients
# The first entry counts: 2 is in "few", 17 in "tens". "none" has no test rows; some clients are in no group.
GROUPS = ["tens=1?", "none=6", "few=5", "few=8", "few=2", "few=3", "late=2*", "late=17"]


class Uneven(Problem):
    """Clients have 1 to 32 training rows and up to 44 test rows. Client ONE has one of each, NONE no test rows. All
    features of ZEROS are 0, so its outputs are equal where the model has no bias. Test labels of ALIKE are equal, those
    of NEAR next to equal."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model
        folder.mkdir()
        random = np.random.default_rng(7)
        sizes, tests = 2 + 3 * random.permutation(CLIENTS) // 2, 3 + random.permutation(2 * CLIENTS)[:CLIENTS]
        sizes[[ONE, 9]], tests[[ONE, NONE, ALIKE, NEAR]] = 1, (1, 0, 3, 2)
        self.test = np.arange(TEST_ROWS)
        self.train, self.client_test, owner, at = [], [], [np.full(TEST_ROWS, -1)], TEST_ROWS
        for k in range(CLIENTS):
            rows = at + random.permutation(sizes[k] + tests[k])
            self.train.append(np.sort(rows[:sizes[k]]))
            self.client_test.append(np.sort(rows[sizes[k]:]))
            owner.append(np.full(len(rows), k))
            at += len(rows)
        self.n, owner = sizes.astype(float), np.concatenate(owner)
        self.draw(random, owner)
        loss = SquaredError if model == "numbers" else None
        self.network = Network(MODELS[model], FEATURES, loss=loss)
        start = self.network.vector({n: 0.5 * random.standard_normal(s) for n, s in self.network.shapes.items()})
        if model == "centres":  # two are one, and the last one is where no row is
            weights = self.network.tensors(start)["0.weight"]
            weights[5], weights[7] = weights[2], 4 * np.eye(FEATURES)[0]
        self.start = np.float32(start).astype(float)
        self.write()

    def draw(self, random, owner):
        count = len(owner)
        self.x = random.standard_normal((count, FEATURES)).astype(np.float32).astype(float)
        if self.model == "centres":
            self.x[:, 0] = np.minimum(self.x[:, 0], 1)
        self.x[owner == ZEROS] = 0
        self.x[:9] = 0
        wanted = self.x @ random.standard_normal((FEATURES, CLASSES)) + random.gumbel(size=(count, CLASSES))
        wanted[np.arange(count), owner % CLASSES] += 1
        self.y = wanted.argmax(axis=1)
        self.y[owner == ZEROS] = np.arange((owner == ZEROS).sum()) % CLASSES
        self.y[:9] = np.arange(9) % CLASSES
        self.classes = CLASSES
        if self.model == "even":
            self.y, self.classes = self.y % 2, 2
        if self.model == "numbers":
            numbers = wanted[:, 0] + 0.3 * owner
            numbers[self.client_test[ALIKE]] = 1.25
            numbers[self.client_test[NEAR]] = 8, 8 + 2 ** -17
            self.y = np.float32(numbers).astype(float)
        if self.model == "tokens":
            self.x = random.integers(0, TOKENS, (count, LENGTH)).astype(np.int32)
            self.lengths = random.integers(1, LENGTH + 1, count).astype(np.int32)
            self.lengths[self.client_test[ONE]] = 1
            often = random.random((count, LENGTH)) < 0.5  # a token is mostly followed by the next one
            for at in range(1, LENGTH):
                self.x[:, at] = np.where(often[:, at], (self.x[:, at - 1] + 1 + owner // 9) % TOKENS, self.x[:, at])
            self.y = ((self.x[np.arange(count), self.lengths - 1] + 1) % TOKENS).astype(np.int32)

    def write(self):
        super().write()
        if self.model == "tokens":
            tensor_file.write(self.folder / "rows.safetensors",
                              {"labels": self.y, "lengths": self.lengths, "features": self.x})

    def settings(self):
        keys = {"data.source": "csv", "data.path": "rows.csv", "partition.scheme": "file",
                "partition.path": "partition.json", "model.layers": MODELS[self.model],
                "model.init": "init.safetensors", "run.task": TASKS.get(self.model, "classification"),
                "evaluation.groups": GROUPS}
        if self.model == "tokens":
            keys |= {"data.source": "prepared", "data.path": "rows.safetensors"}
        return keys | {"evaluation.metrics": self.words()}

    def words(self):
        """Of evaluation.metrics."""
        if self.model in ("numbers", "tokens"):
            return [{"numbers": "r2", "tokens": "perplexity"}[self.model]]
        return ["balanced_accuracy", "f1", "auc", "ece", "confusion"] + ["top5"] * (self.classes > 5)

    def of(self, rows):
        """Of texts: each token in use, and the one behind it."""
        if self.model != "tokens":
            return super().of(rows)
        lines, places = np.nonzero(np.arange(LENGTH) < self.lengths[rows][:, None])
        behind = np.hstack([self.x[rows][:, 1:], np.zeros((len(rows), 1), int)])
        behind[np.arange(len(rows)), self.lengths[rows] - 1] = self.y[rows]
        return self.x[rows][lines, places], behind[lines, places]

    def measured(self, outputs, y):
        kinds = {"numbers": metrics.of_numbers, "tokens": metrics.of_tokens}
        return kinds[self.model](outputs, y) if self.model in kinds else super().measured(outputs, y)
