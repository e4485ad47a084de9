"""What a claim of a paper is, and the scenario in which the programs are held to it."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import frame


@dataclasses.dataclass(frozen=True)
class Made:
    """A run that has finished, and what a metric may ask beside it."""

    run: frame.Run
    macaw: pathlib.Path
    images: pathlib.Path  # a folder with the files of MNIST
    seed: int


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number of a finished run."""

    label: str  # of the page
    higher: bool  # whether more is better
    of: Callable[[Made], float]
    scale: float = 1.0  # of the page: 100 for percent
    digits: int = 1
    exponent: bool = False  # as 1.2e-03
    # Whether two runs are compared by their quotient; otherwise by their difference, as scaled.
    ratio: bool = False
    # Count it up when `of` changes its numbers: the cells are others then.
    version: int = 1

    def words(self, name: str) -> str:
        """What a cell's settings say of it; nothing of the first version."""
        return f"measure {name}" + ("" if self.version == 1 else f", version {self.version}")

    @property
    def form(self) -> str:
        return f".{self.digits}{'e' if self.exponent else 'f'}"


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Data, a model and local work, and the ways to train that are compared on them."""

    name: str
    about: str  # words of the page
    config: str  # TOML; {images} stands for the folder of the images
    ways: Mapping[str, Sequence[str]]  # what each way adds, as KEY=VALUE
    metrics: Mapping[str, Metric]
    # Settings that the seed decides, such as rows that are planted. Files go to the folder.
    drawn: Callable[[int, pathlib.Path, pathlib.Path], Sequence[str]] | None = None


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper says of its rule, as a comparison of two ways of a scenario.

    It is shown if the advantage over the baseline is above `least`: the whole of its 95 % interval
    by Student's t, over the differences (or quotients) of the same seeds.
    """

    rule: str  # as in docs/rules
    paper: str
    place: str  # a table, figure, theorem or algorithm of the paper
    says: str
    scenario: Scenario
    way: str
    metric: str
    # Another way, or a number that the metric has by chance.
    baseline: str | float = "fedavg"
    least: float | None = None  # in the page's unit; default: 0, of quotients 1

    @property
    def name(self) -> str:
        return f"{self.rule}, {self.says}, {self.scenario.name}"

    @property
    def measure(self) -> Metric:
        return self.scenario.metrics[self.metric]

    @property
    def threshold(self) -> float:
        return self.least if self.least is not None else 1.0 if self.measure.ratio else 0.0

    @property
    def ways(self) -> list[str]:
        return [self.way] + ([self.baseline] if isinstance(self.baseline, str) else [])
