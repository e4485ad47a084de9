"""Loss of models on the job's training rows, and how far each is from the first of them.

usage: compare.py SPEC.json > RESULT.json (with PyTorch). SPEC: a task, as the systems get it, and
"models": by rounds done and name, files (.npy: flat, or .safetensors). The first name of each
round is the one compared with; the distance is relative to its way from the initial weights.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "systems"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from nets import network, tensors  # noqa: E402
from shared import Task, by_layer, read_safetensors  # noqa: E402

IMAGES = 1000  # rows looked at where a row is an image: a forward pass of 60,000 takes minutes
CHUNK = 1000


def flat(path: str) -> np.ndarray:
    if path.endswith(".npy"):
        return np.load(path)
    return np.concatenate(
        [np.asarray(t).ravel() for t in by_layer(read_safetensors(path)).values()]
    )


@torch.no_grad()
def mean_loss(net, weights: np.ndarray, features, labels) -> float:
    torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), net.parameters())
    total = 0.0
    for first in range(0, len(labels), CHUNK):
        outputs = net(features[first : first + CHUNK]).double()
        total += torch.nn.functional.cross_entropy(
            outputs, labels[first : first + CHUNK], reduction="sum"
        ).item()
    return total / len(labels)


def main():
    task = Task(sys.argv[1])
    net = network(task)
    features, labels = tensors(task)
    if features.dim() == 4:
        features, labels = features[:IMAGES], labels[:IMAGES]
    start = np.concatenate([a.ravel() for a in task.initial.values()])
    loss_at_start = mean_loss(net, start.copy(), features, labels)
    told = {}
    for count, models in json.loads(pathlib.Path(sys.argv[1]).read_text())["models"].items():
        weights = {name: flat(path) for name, path in models.items()}
        reference = next(iter(weights.values()))
        way = float(np.linalg.norm(reference - start))
        told[count] = {"initial": {"loss": loss_at_start, "distance": 1.0}}
        for name, vector in weights.items():
            distance = float(np.linalg.norm(vector - reference)) / way
            loss = mean_loss(net, vector.copy(), features, labels)
            told[count][name] = {"loss": loss, "distance": distance}
    print(json.dumps(told))


main()
