"""NIID-Bench's leader board on CIFAR-10, simple-cnn, ten parties."""

import pathlib
import random

import numpy as np
from frame import name_of_file

from tables.divisions import dirichlet, label_quantity
from tables.niid_bench import CLIENTS, FEDAVG, FEDNOVA, SCAFFOLD, SETTINGS
from tables.table import Cell, Published, Table

CONFIG = (
    """
[run]
name = "niid-cifar"
rounds = 50
[data]
source = "npz"
path = "{data}"
test_fraction = 0
augment.pad_crop = 4
augment.pad_mode = "reflect"
augment.flip = true
"""
    + SETTINGS
)
CHANGES = {
    "padded by zeros": ["data.augment.pad_mode=zeros"],
    "normalised": [
        "data.normalise.mean=[0.4914, 0.4822, 0.4465]",
        "data.normalise.std=[0.2470, 0.2435, 0.2616]",
    ],
    "neither cropped nor mirrored": ["data.augment.pad_crop=0", "data.augment.flip=false"],
}


def cells() -> list[Cell]:
    rules = {
        "FedAvg": FEDAVG,
        "SCAFFOLD": SCAFFOLD,
        "FedProx": ["algorithm.name=fedprox"],
        "FedNova": FEDNOVA,
    }
    # The board's μ differs from row to row.
    published = {
        ("Dirichlet 0.5", "0.001"): (68.2, 69.8, 67.9, 66.8),
        ("2 labels", "0.01"): (49.8, 49.1, 50.7, 46.5),
    }
    found = []
    for (row, mu), figures in published.items():
        for (rule, settings), figure in zip(rules.items(), figures, strict=True):
            more = [f"algorithm.fedprox.mu={mu}"] if rule == "FedProx" else []
            column = f"FedProx, μ = {mu}" if more else rule
            found.append(Cell(row, column, [*settings, *more], Published(figure, seeds=3)))
    # FedAvg with one setting changed, to see what a difference from the board comes from.
    for change, settings in CHANGES.items():
        found.append(Cell("Dirichlet 0.5", f"FedAvg, {change}", [*FEDAVG, *settings], None))
    return found


def labels_of(data: pathlib.Path) -> np.ndarray:
    return np.load(data)["y_train"].astype(np.int64).ravel()


def drawn(cell: Cell, seed: int, data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The division of the rows: its code seeds with 0, 1 and 2."""
    labels = labels_of(data)
    seed -= 1
    if cell.row.startswith("Dirichlet"):
        alpha = float(cell.row.split()[1])
        counts = dirichlet(labels, CLIENTS, alpha, np.random.RandomState(seed))
    else:
        words = random.Random(seed)
        each = int(cell.row.split()[0])
        counts = label_quantity(labels, CLIENTS, each, lambda: words.randint(0, 9))
    file = folder / f"{name_of_file(cell.row)}-{seed}.npy"
    np.save(file, counts)
    return ["partition.scheme=histogram", f"partition.path={file}"]


ABOUT = """
The leader board of [NIID-Bench](https://github.com/Xtra-Computing/NIID-Bench), Li et al.
2022: simple-cnn, ten parties, all in each of 50 rounds; 10 epochs of SGD, batches of 64, rate
0.01, momentum 0.9, weight decay 1e-5, images cropped and mirrored. The test accuracy after
the last round, in percent; the board gives means of three runs without deviations. The
numbers of rows by client and class are drawn as its code draws them, with its seeds. Its SCAFFOLD
weighs models by rows and controls alike, ours both by rows.
"""

TABLE = Table(
    name="niid_cifar",
    title="NIID-Bench: CIFAR-10",
    about=ABOUT,
    data="cifar",
    config=CONFIG,
    cells=cells(),
    metric="last",
    drawn=drawn,
)
