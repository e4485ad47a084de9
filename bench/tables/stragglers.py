"""FedProx's setting of uneven local work, on MNIST: 1000 devices of two digits, of which some do a
part of their 20 epochs."""

import gzip
import pathlib

import numpy as np

from tables.divisions import two_digits
from tables.table import Cell, Table

CONFIG = """
[run]
name = "stragglers"
rounds = 100
[data]
source = "idx"
path = "{data}/train-images-idx3-ubyte.gz"
test_path = "{data}/t10k-images-idx3-ubyte.gz"
test_fraction = 0
normalise.mean = [0.1307]
normalise.std = [0.3081]
[model]
name = "logistic"
[cohort]
size = 10
[local]
epochs = 20
batch_size = 10
lr = 0.03
"""
RULES = {
    "FedAvg, stragglers dropped": ["algorithm.name=fedavg", "cohort.straggler_policy=drop"],
    "FedAvg": ["algorithm.name=fedavg"],
    "FedProx, μ = 1": ["algorithm.name=fedprox", "algorithm.fedprox.mu=1"],
    "FedNova": ["algorithm.name=fednova"],
    "FedNova, μ = 1": ["algorithm.name=fednova", "algorithm.fednova.mu=1"],
}


def cells() -> list[Cell]:
    found = []
    for share in ("0", "0.5", "0.9"):
        for rule, settings in RULES.items():
            if share == "0" and "dropped" in rule:  # there is none to drop
                continue
            more = [f"cohort.straggler_fraction={share}"] if share != "0" else []
            row = f"{100 * float(share):.0f} % stragglers"
            found.append(Cell(row, rule, [*settings, *more], None))
    # One setting changed at a time.
    for rule in ("FedAvg", "FedNova"):
        for change in ("cohort.min_rows=30", "local.lr=0.003"):
            words = change.split(".", 1)[1].replace("=", " = ")
            settings = [*RULES[rule], "cohort.straggler_fraction=0.9", change]
            found.append(Cell("90 % stragglers", f"{rule}, {words}", settings, None, True))
    return found


def drawn(cell: Cell, seed: int, images: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The division of the rows, the same for all cells of a seed."""
    del cell
    with gzip.open(images / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    path = folder / f"two_digits-{seed}.npy"
    np.save(path, two_digits(labels, seed))
    return ["partition.scheme=histogram", f"partition.path={path}"]


ABOUT = """
Li et al. 2020, *Federated Optimization in Heterogeneous Networks*, 5.2, and Wang et al. 2020,
*Tackling the Objective Inconsistency Problem*. 1000 devices with two digits each and sizes of
a log-normal law, drawn as [the authors' code](https://github.com/litian96/FedProx) draws
them; logistic regression, 10 devices a round, 20 epochs of SGD in batches of 10 at rate 0.03,
100 rounds. A straggler does 1 to 19 of the epochs, or is dropped. The papers show curves and
no figures, so what is to be made again is the order of the rules. The mean test accuracy of
the last ten rounds, in percent.
"""

TABLE = Table(
    name="stragglers",
    title="Uneven local work: FedProx's stragglers on MNIST",
    about=ABOUT,
    data="images",
    config=CONFIG,
    cells=cells(),
    metric="tail",
    drawn=drawn,
)
