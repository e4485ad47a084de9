"""Flower's baseline niid_bench, MNIST: four rules, five divisions of the rows among ten clients.

Its README.md has the figures: the best test accuracy of 50 rounds, mean and deviation of 3 seeds.
"""

import gzip
import pathlib

import numpy as np
from frame import name_of_file

from tables.divisions import dirichlet, label_quantity
from tables.niid_bench import CLIENTS, FEDAVG, FEDNOVA, SCAFFOLD, SETTINGS
from tables.table import Cell, Published, Table

CONFIG = (
    """
[run]
name = "niid"
rounds = 50
[data]
source = "idx"
path = "{data}/train-images-idx3-ubyte.gz"
test_path = "{data}/t10k-images-idx3-ubyte.gz"
test_fraction = 0
"""
    + SETTINGS
)
# Their fedprox is the best of four μ, 0.001, 0.01, 0.1 and 1; 0.01 is its default.
FEDPROX = ["algorithm.name=fedprox", "algorithm.fedprox.mu=0.01"]
RULES = {
    "FedAvg": FEDAVG,
    "SCAFFOLD": SCAFFOLD,
    "FedProx": FEDPROX,
    "FedNova": FEDNOVA,
}
PUBLISHED = {
    "1 label": [(19.33, 11.82), (9.93, 0.12), (51.79, 26.75), (52.58, 14.08)],
    "Dirichlet 0.5": [(98.89, 0.07), (99.07, 0.06), (99.02, 0.02), (98.03, 0.06)],
    "2 labels": [(96.86, 0.30), (96.92, 0.52), (96.85, 0.15), (96.65, 0.39)],
    "3 labels": [(97.86, 0.34), (97.91, 0.10), (97.85, 0.06), (97.62, 0.07)],
    "IID": [(99.09, 0.05), (99.06, 0.15), (99.16, 0.04), (99.05, 0.06)],
}


def beside(published: dict[str, list[tuple[float, float]]]) -> list[Cell]:
    """A cell for each figure: mean and deviation by setting, of the rules in their order."""
    found = []
    for row, figures in published.items():
        for (rule, settings), figure in zip(RULES.items(), figures, strict=True):
            found.append(Cell(row, rule, settings, Published(*figure, seeds=3), row == "IID"))
    return found


def cells() -> list[Cell]:
    found = beside(PUBLISHED)
    # The page's figure is that of the best of four μ. It does not say of which.
    for row, mu in (
        ("Dirichlet 0.5", "0.001"),
        ("Dirichlet 0.5", "0.1"),
        ("Dirichlet 0.5", "1"),
        ("2 labels", "0.001"),
        ("3 labels", "0.001"),
        ("IID", "0.001"),
        ("IID", "0.1"),
        ("1 label", "0.001"),
        ("1 label", "0.1"),
        ("1 label", "1"),
    ):
        settings = ["algorithm.name=fedprox", f"algorithm.fedprox.mu={mu}"]
        figures = dict(zip(RULES, PUBLISHED[row], strict=True))["FedProx"]
        published = Published(*figures, seeds=3)
        found.append(Cell(row, f"FedProx, μ = {mu}", settings, published, True))
    # One setting changed at a time, where our figure may be off theirs.
    for rule, change in (
        ("FedAvg", "local.momentum=0"),
        ("SCAFFOLD", "local.momentum=0"),
        ("SCAFFOLD", "algorithm.scaffold.option=1"),
        ("SCAFFOLD", "local.epochs=1"),
    ):
        words = change.removeprefix("local.").removeprefix("algorithm.scaffold.")
        name = f"{rule}, {words.replace('=', ' = ')}"
        found.append(Cell("1 label", name, [*RULES[rule], change], None, True))
    return found


def labels_of(images: pathlib.Path) -> np.ndarray:
    with gzip.open(images / "train-labels-idx1-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)


def divided(cell: Cell, seed: int, labels: np.ndarray, folder: pathlib.Path) -> list[str]:
    """The division of the rows."""
    if cell.row == "IID":
        return ["partition.scheme=iid", f"partition.clients={CLIENTS}"]
    seed += 41  # their seed is 42
    draws = np.random.default_rng(seed)
    if cell.row.startswith("Dirichlet"):
        counts = dirichlet(labels, CLIENTS, float(cell.row.split()[1]), draws)
    else:
        each = int(cell.row.split()[0])
        counts = label_quantity(labels, CLIENTS, each, lambda: int(draws.choice(10, 1)[0]))
    file = folder / f"{name_of_file(cell.row)}-{seed}.npy"
    np.save(file, counts)
    return ["partition.scheme=histogram", f"partition.path={file}"]


def drawn(cell: Cell, seed: int, images: pathlib.Path, folder: pathlib.Path) -> list[str]:
    return divided(cell, seed, labels_of(images), folder)


ABOUT = """
[Flower, baselines/niid_bench](https://github.com/adap/flower/tree/main/baselines/niid_bench),
after Li et al. 2022, *Federated Learning on Non-IID Data Silos*. Ten clients, all in each of
50 rounds; 10 epochs of SGD, batches of 64, rate 0.01, momentum 0.9, weight decay 1e-5; two
5x5 convolutions (6, 16) without padding, then 120 and 84; pixels from 0 to 1. The best test
accuracy of all rounds, in percent. The rows by client and class are drawn as the baseline's
code draws them, with its seed 42 and the next ones. FedProx has its default μ = 0.01; the
published figure is that of the best of 0.001, 0.01, 0.1 and 1.
"""

TABLE = Table(
    name="flower_mnist",
    title="Flower's niid_bench: MNIST",
    about=ABOUT,
    data="images",
    config=CONFIG,
    cells=cells(),
    metric="best",
    drawn=drawn,
)
