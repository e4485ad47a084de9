"""What every system's script shares: the task it is given, the mapped arrays, and the clock.

A script is started as `run_X.py TASK.json`. It trains `task.cohorts`, round by round, from
`task.initial`, and tells the clock when the first round begins and whenever a round is done.
Nothing here imports more than NumPy, so that no system pays for another one's library.
"""

import json
import math
import pathlib
import struct
import time

import numpy as np

DTYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64}


def read_safetensors(path: str) -> dict:
    """A file's tensors as arrays over its mapping (copy on write: PyTorch wants it writable)."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensors[name] = np.memmap(
            path,
            DTYPES[entry["dtype"]],
            "c",
            8 + size + entry["data_offsets"][0],
            tuple(entry["shape"]),
        )
    return tensors


def by_layer(tensors: dict) -> dict:
    """In the order of PyTorch's `named_parameters()`: by layer, the weight before the bias."""
    return dict(
        sorted(
            tensors.items(), key=lambda item: (int(item[0].split(".")[0]), item[0].endswith("bias"))
        )
    )


class Task:
    """`cohorts`: a list of clients a round; client c has rows offsets[c] … offsets[c+1]-1."""

    def __init__(self, path: str):
        told = json.loads(pathlib.Path(path).read_text())
        self.path = path
        self.job: str = told["job"]
        self.batch: int = told["batch"]
        self.lr: float = told["lr"]
        self.workers: int = told["workers"]
        self.cohorts: list = told["cohorts"]
        self.kept: list = told["kept"]
        self.result = pathlib.Path(told["result"])
        self.scratch = pathlib.Path(told["scratch"])
        data = read_safetensors(told["data"])
        self.features = data["features"]
        self.labels = np.asarray(data["labels"], dtype=np.int64)
        self.offsets: list = data["train_offsets"].tolist()
        self.clients = len(self.offsets) - 1
        self.initial = by_layer(
            {k: np.array(v) for k, v in read_safetensors(told["initial"]).items()}
        )

    @property
    def rounds(self) -> int:
        return len(self.cohorts)

    def size(self, client: int) -> int:
        return self.offsets[client + 1] - self.offsets[client]

    def batches(self, client: int):
        """(first, end) of the client's batches in stored order, the last as short as it comes."""
        first, end = self.offsets[client], self.offsets[client + 1]
        return [(row, min(row + self.batch, end)) for row in range(first, end, self.batch)]

    def parts(self, cohort: list, workers: int) -> list:
        """Clients for each worker: longest first, each to whoever has least to do so far."""
        parts, load = [[] for _ in range(workers)], [0] * workers
        for client in sorted(cohort, key=self.size, reverse=True):
            worker = load.index(min(load))
            parts[worker].append(client)
            load[worker] += math.ceil(self.size(client) / self.batch)
        return parts


class Clock:
    """Wall-clock times of the rounds' ends; keeps the model after the task's `kept` rounds."""

    def __init__(self, task: Task):
        self._task = task
        self._times: list = []

    def begin(self) -> None:
        """The first round begins now."""
        self._times = [time.time()]

    def round_done(self, weights) -> bool:
        """`weights()` gives the new model's arrays in the order of `by_layer`. True at the end."""
        self._times.append(time.time())
        done = len(self._times) - 1
        if done in self._task.kept:
            flat = [np.asarray(array, dtype=np.float32).ravel() for array in weights()]
            np.save(self._task.result.with_name(f"model-{done}.npy"), np.concatenate(flat))
        if done == self._task.rounds:
            self._task.result.write_text(json.dumps({"times": self._times}))
        return done == self._task.rounds
