"""Published tables, made again with our programs, beside the figures of their papers.

./dev bench published [TABLE…] [--images FOLDER] [--cifar FILE] [--seeds N] [--only TEXT]
                      [--jobs N] [--runs FOLDER] [--rounds N] [--again] [--check] [--table-only]
                      [--write]

  flower_mnist  Flower's niid_bench on MNIST: four rules, five divisions among ten clients
  stragglers    FedAvg that drops stragglers, FedAvg, FedProx and FedNova with uneven local work
  niid_cifar    NIID-Bench on CIFAR-10
  flower_cifar  Flower's niid_bench on CIFAR-10
  pfl_cifar     pfl-research's benchmark on CIFAR-10: 1000 clients, without and with central privacy

--images: a folder with the four files of MNIST; --cifar: an .npz of x_train, y_train, x_test,
y_test. A finished run becomes an entry of results/published/TABLE.jsonl (record.py), and a run with
an entry is not made again. An entry counts while its cell has the settings that it had. A run
on other data than those of the entries beside it gets no entry, unless --again says so. Each run
has a folder under --runs, where one that was cut goes on. Seed after seed, so that a table of one
seed comes first. --jobs: runs at a time, a core each. --only: the cell of this name, or all cells
whose row or column has the text. --rounds: tries, which leave no entries.

--check: makes the runs with entries again, adds nothing, and ends with 1 if a run on the same data
with the same arithmetic (summary.json, "profile") has another model. --again: runs with entries,
too; new entries take their places, and it says of each whether the model is the same.

Tables are made of the entries, whichever runs are here: --table-only makes no runs, --write puts
the tables into results/published.md. A row: the published figure (± its deviation over seeds), ours
(mean ± half of the 95 % interval by Student's t), and the difference, with half of its 95 %
interval by Welch's t where both have several seeds.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import statistics
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import frame
from record import Entry, Record, digest_of_files, digest_of_settings
from recorded import Cells, Work, arguments, data_of, do_all, say, when, where
from tables import flower_cifar, flower_mnist, niid_cifar, pfl_cifar, stragglers
from tables.table import Cell, Published, Table

MODULES = (flower_mnist, stragglers, niid_cifar, flower_cifar, pfl_cifar)
TABLES = {module.TABLE.name: module.TABLE for module in MODULES}
RESULTS = frame.ROOT / "bench/results/published.md"
RECORDS = frame.ROOT / "bench/results/published"
HEAD = [
    "setting",
    "rule",
    "published",
    "ours",
    "seeds",
    "difference",
    "equal",
    "last round",
    "minutes",
]


def cells_of(table: Table) -> Cells[Entry]:
    settings = {cell.name: digest_of_settings(table.config, cell.settings) for cell in table.cells}
    return Cells(table.name, Record(RECORDS / f"{table.name}.jsonl", Entry), settings)


class Made(Work[Entry]):
    """A run of a cell of a table."""

    def __init__(self, table: Table, cell: Cell, seed: int, options: argparse.Namespace) -> None:
        tried = f"{options.rounds}-rounds" if options.rounds else ""
        super().__init__(cells_of(table), cell.name, seed, options, options.runs, tried)
        self.table, self.of = table, cell
        self.rows = {"images": options.images, "cifar": options.cifar}[table.data].resolve()

    def draw(self) -> tuple[list[str], str]:
        if self.table.drawn is None:
            return super().draw()
        drawn = list(self.table.drawn(self.of, self.seed, self.rows, self.folder))
        return drawn, digest_of_files(drawn, self.folder)

    def beside(self) -> list[str]:
        mine = data_of(self.of.settings)
        return [cell.name for cell in self.table.cells if data_of(cell.settings) == mine]

    def config(self) -> str:
        return self.table.config.replace("{data}", str(self.rows))

    def settings(self) -> list[str]:
        tried = [f"run.rounds={self.options.rounds}"] if self.options.rounds else []
        return [f"workers.slots={self.options.slots}", *self.of.settings, *tried]

    def entry(self, run: frame.Run, known: Mapping[str, Any]) -> Entry:
        found = [row["test_accuracy"] for row in run.metrics() if "test_accuracy" in row]
        return Entry(
            best=run.summary["bests"]["test_accuracy"]["value"],
            last=found[-1],
            tail=statistics.mean(found[-10:]),
            **known,
        )

    def figure(self, entry: Entry) -> str:
        return f"{figure(self.table, entry):.2f}"


def figure(table: Table, entry: Entry) -> float:
    """The accuracy that the table compares, in percent."""
    found = {"best": entry.best, "last": entry.last, "tail": entry.tail}[table.metric]
    assert found is not None, f"{table.name}: an entry of {entry.cell} lacks {table.metric}"
    return 100 * found


def difference(ours: list[float], published: Published) -> tuple[str, str]:
    """The difference, with half of its 95 % interval by Welch's t, and whether 0 is within."""
    found = statistics.mean(ours) - published.mean
    text = f"{found:+.2f}"
    if len(ours) < 2 or published.deviation is None or published.seeds < 2:
        return text, "–"
    parts = [
        (statistics.variance(ours) / len(ours), len(ours) - 1),
        (published.deviation**2 / published.seeds, published.seeds - 1),
    ]
    square = sum(part for part, _ in parts)
    if square == 0:
        return text, "yes" if math.isclose(found, 0, abs_tol=1e-9) else "no"
    freedom = int(square**2 / sum(part**2 / degrees for part, degrees in parts))
    half = frame.student(max(1, freedom)) * math.sqrt(square)
    return f"{text} ± {half:.2f}", "yes" if abs(found) <= half else "no"


def row(table: Table, cell: Cell, entries: Iterable[Entry]) -> list[str] | None:
    """None where the cell has no entry."""
    mine = sorted((one for one in entries if one.cell == cell.name), key=lambda one: one.seed)
    if not mine:
        return None
    ours = [figure(table, one) for one in mine]
    last = [math.nan if one.last is None else 100 * one.last for one in mine]
    minutes = [one.minutes for one in mine if one.minutes is not None]
    published, beyond, equal = "–", "–", "–"
    if cell.published:
        published = f"{cell.published.mean:.2f}"
        if cell.published.deviation is not None:
            published += f" (± {cell.published.deviation:.2f})"
        beyond, equal = difference(ours, cell.published)
    return [
        cell.row, cell.column, published, frame.spread(ours, 2), str(len(ours)), beyond, equal,
        frame.spread(last, 2), f"{statistics.median(minutes):.1f}" if minutes else "–",
    ]  # fmt: skip


def about(table: Table, entries: Iterable[Entry]) -> str:
    """The command, when and where the rows were made, and whether all of the command have run."""
    mine = list(entries)
    what = {"images": "--images MNIST", "cifar": "--cifar cifar10.npz"}[table.data]
    seeds = max(one.seed for one in mine)
    command = f"./dev bench published {table.name} {what} --seeds {seeds} --write"
    text = f"`{command}`; {when(mine)}, a core of {where(mine)} a run, beside other work"
    if len(mine) < seeds * len({one.cell for one in mine}):
        text += f"; a row with fewer than {seeds} seeds has not had all its runs yet"
    return text


def text_of(table: Table) -> str | None:
    """The table with its words; None without an entry."""
    entries = cells_of(table).current().values()
    rows = [found for cell in table.cells if (found := row(table, cell, entries))]
    if not rows:
        return None
    words = textwrap.fill(
        " ".join(table.about.split()), 180, break_long_words=False, break_on_hyphens=False
    )
    return f"{words}\n\n{about(table, entries)}\n\n{frame.table(HEAD, rows)}"


def make(tables: list[Table], options: argparse.Namespace) -> None:
    """All runs: seed after seed, and of a seed those last that say so."""
    todo = [
        (seed, cell.last, Made(table, cell, seed, options))
        for seed in range(1, options.repeat + 1)
        for table in tables
        for cell in chosen(table, options)
    ]
    todo.sort(key=lambda one: one[:2])  # stable: the tables' order otherwise
    do_all([one for *_, one in todo], options.jobs)


def chosen(table: Table, options: argparse.Namespace) -> list[Cell]:
    """The cells that --only names; a text that is a whole name is that cell's alone."""
    names = {cell.name for cell in table.cells}

    def fits(cell: Cell, text: str) -> bool:
        return cell.name == text if text in names else text in cell.name

    return [cell for cell in table.cells if all(fits(cell, text) for text in options.only)]


def main() -> None:
    parser = frame.parser(__doc__, rounds=0, repeat=3)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--cifar", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1, help="cores of a run")
    arguments(parser, frame.ROOT / "build/published")
    options = parser.parse_args()
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    if options.rounds and (options.again or options.check or options.write):
        parser.error("--rounds is for tries, which are not compared and not written")
    tables = [TABLES[name] for name in options.tables or TABLES]
    if not options.table_only:
        for table in tables:
            if getattr(options, table.data) is None:
                parser.error(f"the table {table.name} needs --{table.data}")
        make(tables, options)
    for table in tables if not options.rounds else []:
        cells_of(table).name_others()
        text = text_of(table)
        if text is None:
            say(f"{table.name}: no run has finished yet")
            continue
        print(f"## {table.title}\n{text}")
        if options.write:
            frame.write(RESULTS, table.name, text)


if __name__ == "__main__":
    main()
