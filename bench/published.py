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
an entry is not made again. An entry counts while its cell has the settings that it had. Each run
has a folder under --runs, where one that was cut goes on. Seed after seed, so that a table of one
seed comes first. --jobs: runs at a time, a core each. --only: runs of cells whose row or column has
the text. --rounds: tries, which leave no entries.

--check: makes the runs with entries again, adds nothing, and ends with 1 if a run on the same data
with the same arithmetic (summary.json, "profile") has another model. --again: runs with entries,
too; new entries take their places, and it says of each whether the model is the same.

Tables are made of the entries, whichever runs are here: --table-only makes no runs, --write puts
the tables into results/published.md. A row: the published figure (± its deviation over seeds), ours
(mean ± half of the 95 % interval by Student's t), and the difference, with half of its 95 %
interval by Welch's t where both have several seeds.
"""

from __future__ import annotations

import concurrent.futures
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable

import frame
from record import Entry, Record, digest, digest_of_files, digest_of_settings, locked
from tables import flower_cifar, flower_mnist, niid_cifar, pfl_cifar, stragglers
from tables.table import Cell, Published, Table, name_of_file

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


def record_of(table: Table) -> Record:
    return Record(RECORDS / f"{table.name}.jsonl")


def settings_of(table: Table, cell: Cell) -> str:
    return digest_of_settings(table.config, cell.settings)


class Work:
    """A run of a cell, in a folder of its own: that of a changed cell is another one."""

    def __init__(self, table: Table, cell: Cell, seed: int, options) -> None:
        self.table, self.cell, self.seed, self.options = table, cell, seed, options
        self.of = cell.name, seed
        self.name = f"{table.name}: {cell.name}, seed {seed}"
        again = "-again" if options.again or options.check else ""
        tried = f"-{options.rounds}-rounds" if options.rounds else ""
        of_seed = f"{seed}-{settings_of(table, cell)[:12]}{tried}{again}"
        self.folder = options.runs / table.name / name_of_file(cell.name) / of_seed
        self.run = self.folder / "run"
        self.data = {"images": options.images, "cifar": options.cifar}[table.data].resolve()

    def draw(self) -> tuple[list[str], str]:
        """The settings that the seed decides, and their digest."""
        if self.table.drawn is None:
            return [], digest("")
        drawn = list(self.table.drawn(self.cell, self.seed, self.data, self.folder))
        return drawn, digest_of_files(drawn, self.folder)

    def do(self) -> None:
        """Unless another process has done it by then."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            entry = None if self.options.rounds else current(self.table).get(self.of)
            if entry is not None or not self.options.check:
                self.make(entry)

    def make(self, before: Entry | None) -> None:
        """Makes the run, or goes on with one that was cut, and adds its entry."""
        options = self.options
        drawn, digest_of_drawn = self.draw()
        done = (self.run / "summary.json").exists()
        if options.again or options.check:
            if done:
                shutil.rmtree(self.run)
        elif before is not None:
            if before.drawn in (None, digest_of_drawn):
                return
            say(f"{self.name}: what the seed decides is drawn in another way than recorded: again")
            shutil.rmtree(self.run, ignore_errors=True)
        if not (self.run / "summary.json").exists():
            self.simulate(drawn)
        now = self.entry(digest_of_drawn)
        word = "" if options.rounds else compare(before, now)
        say(f"{self.name}: {figure(self.table, now):.2f}{word}")
        if options.check:
            if word.startswith(ANOTHER):
                raise RuntimeError(f"{self.name}: the same settings, data and arithmetic have "
                                   "given another model")
        elif not options.rounds:
            record_of(self.table).add(now)

    def simulate(self, drawn: list[str]) -> None:
        options = self.options
        if (self.run / "checkpoints").exists():
            words = [options.macaw, "simulate", "--quiet", "--resume", self.run]
        else:
            config = self.folder / f"{self.table.name}.toml"
            config.write_text(self.table.config.replace("{data}", str(self.data)))
            settings = [f"run.seed={self.seed}", f"workers.slots={options.slots}"]
            settings += [*self.cell.settings, *drawn]
            if options.rounds:
                settings.append(f"run.rounds={options.rounds}")
            words = [*frame.command(options.macaw, config, self.run, settings), "--force"]
        done = subprocess.run(
            [str(word) for word in words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}"
            )

    def entry(self, drawn: str) -> Entry:
        run = frame.Run(self.run)
        found = [row["test_accuracy"] for row in run.metrics() if "test_accuracy" in row]
        return Entry(
            cell=self.cell.name,
            seed=self.seed,
            settings=settings_of(self.table, self.cell),
            drawn=drawn,
            best=run.summary["bests"]["test_accuracy"]["value"],
            last=found[-1],
            tail=statistics.mean(found[-10:]),
            minutes=run.summary["seconds"] / 60,
            model=run.digest,
            macaw=run.summary["program"],
            profile=run.summary["profile"],
            data=run.summary["data_digest"],
            processor=frame.processor(),
            day=time.strftime("%Y-%m-%d"),
        )


ANOTHER = ", ANOTHER MODEL"


def compare(before: Entry | None, now: Entry) -> str:
    """What there is to say of the entry before, behind the run's figure."""
    if before is None:
        return ""
    if before.model is None:
        return ", in place of an entry without a model's digest"
    if before.model == now.model:
        return ", the same model"
    differ = [
        word
        for word, one, two in (
            ("data", before.data, now.data),
            ("division", before.drawn, now.drawn),
            ("arithmetic", before.profile, now.profile),
        )
        if one != two
    ]
    if differ:
        return f", another model, of another {' and '.join(differ)}"
    return f"{ANOTHER} than that of {before.macaw}, {before.day}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def figure(table: Table, entry: Entry) -> float:
    """The accuracy that the table compares, in percent."""
    found = {"best": entry.best, "last": entry.last, "tail": entry.tail}[table.metric]
    assert found is not None, f"{table.name}: an entry of {entry.cell} lacks {table.metric}"
    return 100 * found


def current(table: Table) -> dict[tuple[str, int], Entry]:
    """The entries of cells as they are now."""
    now = {cell.name: settings_of(table, cell) for cell in table.cells}
    entries = record_of(table).entries().items()
    return {name: entry for name, entry in entries if now.get(entry.cell) == entry.settings}


def name_others(table: Table) -> None:
    """Says which entries are not used, and why."""
    cells, used = {cell.name for cell in table.cells}, current(table)
    for name, entry in record_of(table).entries().items():
        if name not in used:
            why = "has other settings now" if entry.cell in cells else "is no cell any more"
            say(f"{table.name}: not used: seed {entry.seed} of '{entry.cell}', which {why}")


def difference(ours: list[float], published: Published) -> tuple[str, str]:
    """The difference, with half of its 95 % interval by Welch's t, and whether 0 is within."""
    text = f"{statistics.mean(ours) - published.mean:+.2f}"
    if len(ours) < 2 or published.deviation is None or published.seeds < 2:
        return text, "–"
    parts = [
        (statistics.variance(ours) / len(ours), len(ours) - 1),
        (published.deviation**2 / published.seeds, published.seeds - 1),
    ]
    square = sum(part for part, _ in parts)
    if square == 0:
        return text, "yes" if float(text) == 0 else "no"
    freedom = int(square**2 / sum(part**2 / degrees for part, degrees in parts))
    half = frame.student(max(1, freedom)) * math.sqrt(square)
    return f"{text} ± {half:.2f}", "yes" if abs(float(text)) <= half else "no"


def row(table: Table, cell: Cell, entries: Iterable[Entry]) -> list[str] | None:
    """None where the cell has no entry."""
    mine = sorted((one for one in entries if one.cell == cell.name), key=lambda one: one.seed)
    if not mine:
        return None
    ours = [figure(table, one) for one in mine]
    last = [math.nan if one.last is None else 100 * one.last for one in mine]
    published, beyond, equal = "–", "–", "–"
    if cell.published:
        published = f"{cell.published.mean:.2f}"
        if cell.published.deviation is not None:
            published += f" (± {cell.published.deviation:.2f})"
        beyond, equal = difference(ours, cell.published)
    return [
        cell.row, cell.column, published, frame.spread(ours, 2), str(len(ours)), beyond, equal,
        frame.spread(last, 2), f"{statistics.median(one.minutes for one in mine):.1f}",
    ]  # fmt: skip


def about(table: Table, entries: Iterable[Entry]) -> str:
    """The command, and when and where the rows were made."""
    mine = list(entries)
    what = {"images": "--images MNIST", "cifar": "--cifar cifar10.npz"}[table.data]
    seeds = max(one.seed for one in mine)
    days = sorted({one.day for one in mine})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    where = ", ".join(sorted({one.processor for one in mine}))
    command = f"./dev bench published {table.name} {what} --seeds {seeds} --write"
    return f"`{command}`; {when}, a core of {where} a run, beside other work"


def text_of(table: Table) -> str | None:
    """The table with its words; None without an entry."""
    entries = current(table).values()
    rows = [found for cell in table.cells if (found := row(table, cell, entries))]
    if not rows:
        return None
    words = textwrap.fill(
        " ".join(table.about.split()), 180, break_long_words=False, break_on_hyphens=False
    )
    return f"{words}\n\n{about(table, entries)}\n\n{frame.table(HEAD, rows)}"


def work(tables: list[Table], options) -> None:
    """All runs: seed after seed, and of a seed those last that say so."""
    todo = [
        (seed, cell.last, Work(table, cell, seed, options))
        for seed in range(1, options.repeat + 1)
        for table in tables
        for cell in chosen(table, options)
    ]
    todo.sort(key=lambda one: one[:2])  # stable: the tables' order otherwise
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(one.do) for *_, one in todo]
        for one in concurrent.futures.as_completed(runs):
            if one.exception():
                pool.shutdown(cancel_futures=True)
                sys.exit(str(one.exception()))


def chosen(table: Table, options) -> list[Cell]:
    return [cell for cell in table.cells if all(text in cell.name for text in options.only)]


def main() -> None:
    parser = frame.parser(__doc__, rounds=0, repeat=3)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--cifar", type=pathlib.Path)
    parser.add_argument("--seeds", dest="repeat", type=int, help="runs of each cell; also --repeat")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--slots", type=int, default=1, help="cores of a run")
    parser.add_argument("--runs", type=pathlib.Path, default=frame.ROOT / "build/published")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    if options.rounds and (options.again or options.check or options.write):
        parser.error("--rounds is for tries, which are not compared and not written")
    options.runs = options.runs.resolve()
    options.macaw = options.macaw.resolve()
    tables = [TABLES[name] for name in options.tables or TABLES]
    if not options.table_only:
        for table in tables:
            if getattr(options, table.data) is None:
                parser.error(f"the table {table.name} needs --{table.data}")
        work(tables, options)
    for table in tables if not options.rounds else []:
        name_others(table)
        text = text_of(table)
        if text is None:
            say(f"{table.name}: no run has finished yet")
            continue
        print(f"## {table.title}\n{text}")
        if options.write:
            frame.write(RESULTS, table.name, text)


if __name__ == "__main__":
    main()
