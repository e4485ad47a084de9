"""Flower's baseline niid_bench, CIFAR-10: the settings of tables/niid_cifar.py, repeated by others.

Its README.md has the figures: the best test accuracy of 50 rounds, mean and deviation of 3 seeds.
"""

import pathlib

from tables.flower_mnist import beside, divided
from tables.niid_cifar import CONFIG, labels_of
from tables.table import Cell, Table

PUBLISHED = {
    "Dirichlet 0.5": [(62.47, 0.43), (68.08, 0.96), (65.63, 0.08), (63.89, 1.40)],
    "2 labels": [(51.17, 1.09), (49.42, 2.18), (50.44, 0.79), (46.9, 0.66)],
    "3 labels": [(59.11, 0.87), (61.00, 0.91), (59.20, 1.18), (57.83, 0.42)],
    "IID": [(71.32, 0.33), (71.66, 1.13), (71.26, 1.18), (70.69, 1.14)],
    "1 label": [(10.00, 0.00), (10.00, 0.00), (12.71, 0.96), (10.00, 0.00)],
}


def drawn(cell: Cell, seed: int, data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    return divided(cell, seed, labels_of(data), folder)


ABOUT = """
[Flower, baselines/niid_bench](https://github.com/adap/flower/tree/main/baselines/niid_bench): its
repetition of NIID-Bench, with the settings of the table above. The best test accuracy of 50
rounds, in percent. The rows by client and class are drawn as the baseline's code draws them, with
its seed 42 and the next ones. FedProx has its default μ = 0.01; the published figure is that of
the best of 0.001, 0.01, 0.1 and 1.
"""

TABLE = Table(
    name="flower_cifar",
    title="Flower's niid_bench: CIFAR-10",
    about=ABOUT,
    data="cifar",
    config=CONFIG,
    cells=beside(PUBLISHED),
    metric="best",
    drawn=drawn,
)
