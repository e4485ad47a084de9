"""Writes what all systems read: one prepared file a data set, one file of initial weights a model.

usage: inputs.py FOLDER (with NumPy). Prepared files are Macaw's form (docs/guides/data.md), mapped by
everybody.
"""

import functools
import json
import pathlib
import struct
import sys

import numpy as np

from jobs import CLIENTS

CLASSES = 10
KINDS = {"float32": "F32", "int32": "I32", "int64": "I64"}

# PyTorch's names and shapes of the models: those of models/named.cc, or of a job's layers.
MODELS = {
    "logistic": {"0": (10, 60)},
    "lenet5": {
        "0": (6, 1, 5, 5),
        "3": (16, 6, 5, 5),
        "7": (120, 400),
        "9": (84, 120),
        "11": (10, 84),
    },
    "simple_cnn": {"0": (32, 1, 3, 3), "2": (64, 32, 3, 3), "6": (128, 9216), "8": (10, 128)},
    "pfl_cnn": {"0": (32, 3, 3, 3), "2": (64, 32, 3, 3), "6": (128, 12544), "8": (10, 128)},
}


def write_safetensors(path: pathlib.Path, tensors: dict) -> None:
    """In the given order, without gaps; the header is padded so that the first starts aligned."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        end = at + tensor.nbytes
        header[name] = {
            "dtype": KINDS[tensor.dtype.name],
            "shape": tensor.shape,
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            tensor.tofile(out)
    part.rename(path)


def write_clients(path: pathlib.Path, features, labels, sizes) -> None:
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    write_safetensors(
        path,
        {"features": features, "train_offsets": offsets, "labels": labels.astype(np.int32)},
    )


def synthetic(random: np.random.Generator):
    """Synthetic(1,1) of the FedProx paper: each client has its own model and feature mean."""
    sizes = np.minimum(random.lognormal(4.0, 2.0, CLIENTS).astype(np.int64) + 50, 2000)
    deviation = np.arange(1, 61) ** -0.6  # the square root of the covariance j^-1.2
    features, labels = [], []
    for size in sizes:
        model_mean, feature_mean = random.normal(size=2)
        weights = random.normal(model_mean, 1.0, (60, CLASSES))
        bias = random.normal(model_mean, 1.0, CLASSES)
        centre = random.normal(feature_mean, 1.0, 60)
        rows = centre + deviation * random.normal(size=(size, 60))
        features.append(rows.astype(np.float32))
        labels.append((rows @ weights + bias).argmax(axis=1))
    return np.concatenate(features), np.concatenate(labels), sizes


def images(random: np.random.Generator, rows=60, shape=(1, 28, 28)):
    """Noisy templates, `rows` a client: what a step costs does not depend on the picture."""
    sizes = np.full(CLIENTS, rows)
    labels = random.integers(0, CLASSES, sizes.sum())
    templates = random.normal(size=(CLASSES, *shape)).astype(np.float32)
    features = random.standard_normal((len(labels), *shape), dtype=np.float32)
    features += templates[labels]
    return features, labels, sizes


def initial(shapes: dict, random: np.random.Generator) -> dict:
    """PyTorch's default: uniform in ±1/√fan_in, weights and biases alike."""
    tensors = {}
    for layer, shape in shapes.items():
        bound = float(np.prod(shape[1:])) ** -0.5
        tensors[f"{layer}.weight"] = random.uniform(-bound, bound, shape).astype(np.float32)
        tensors[f"{layer}.bias"] = random.uniform(-bound, bound, shape[0]).astype(np.float32)
    return tensors


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pictures = functools.partial(images, rows=50, shape=(3, 32, 32))
    sets = {"synthetic": synthetic, "images": images, "pictures": pictures}
    for number, (name, make) in enumerate(sets.items()):
        path = folder / f"{name}.safetensors"
        if not path.exists():
            write_clients(path, *make(np.random.default_rng(number)))
    for number, (name, shapes) in enumerate(MODELS.items()):
        path = folder / f"init-{name}.safetensors"
        if not path.exists():
            write_safetensors(path, initial(shapes, np.random.default_rng(100 + number)))


if __name__ == "__main__":
    main()
