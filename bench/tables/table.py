"""What a published table is: its settings, its cells, and the figures that stand in the paper."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Published:
    """A figure as it was published: mean and deviation over so many seeds."""

    mean: float
    deviation: float | None = None
    seeds: int = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """A figure of a table, and how it is made."""

    row: str  # the setting, such as the division of the data
    column: str  # the rule
    settings: Sequence[str]  # KEY=VALUE
    published: Published | None  # None: of ours alone, such as a variant with one setting changed
    last: bool = False  # it runs after all others of its seed

    @property
    def name(self) -> str:
        return f"{self.row}, {self.column}"


@dataclasses.dataclass(frozen=True)
class Table:
    name: str
    title: str
    about: str  # source and settings, as text of the page
    data: str  # what it needs: "images" (the four files of MNIST) or "cifar" (an .npz)
    config: str  # the run's configuration, as TOML
    cells: Sequence[Cell]
    metric: str  # of the test accuracies: the "best", the "last", "tail": the mean of the last ten
    # Settings of a cell that the seed decides, such as a division of the rows that is drawn as the
    # paper's code draws it. Files go to the folder.
    drawn: Callable[[Cell, int, pathlib.Path, pathlib.Path], Sequence[str]] | None = None
