"""Published tables, made again with our programs, beside the figures of their papers.

./dev bench published [TABLE…] [--images FOLDER] [--cifar FILE] [--seeds N] [--only TEXT]
                      [--jobs N] [--runs FOLDER] [--rounds N] [--table-only] [--write]

  flower_mnist  Flower's niid_bench on MNIST: four rules, five divisions among ten clients
  stragglers    FedAvg that drops stragglers, FedAvg, FedProx and FedNova with uneven local work
  niid_cifar    NIID-Bench on CIFAR-10
  pfl_cifar     pfl-research's benchmark on CIFAR-10: 1000 clients, without and with central privacy

--images: a folder with the four files of MNIST; --cifar: an .npz of x_train, y_train, x_test,
y_test. Each run has a folder of its own under --runs: a run that is there is not made again, and
one that was cut goes on. Seed after seed, so that a table of one seed comes first. --jobs: runs at
a time, a core each. --only: cells whose row or column has the text. --table-only: no runs, the
table of those that are there. --write puts the tables into results/published.md.

A row of a table: the published figure (± its deviation over seeds), ours (mean ± half of the 95 %
interval by Student's t), and the difference, with half of its 95 % interval by Welch's t where both
have several seeds.
"""

from __future__ import annotations

import concurrent.futures
import math
import pathlib
import statistics
import subprocess
import sys
import textwrap

import frame
from tables import flower_mnist, niid_cifar, pfl_cifar, stragglers
from tables.table import Cell, Published, Table, name_of_file

TABLES = {
    module.TABLE.name: module.TABLE for module in (flower_mnist, stragglers, niid_cifar, pfl_cifar)
}
RESULTS = frame.ROOT / "bench/results/published.md"
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


def folder_of(table: Table, cell: Cell, seed: int, options) -> pathlib.Path:
    return options.runs / table.name / name_of_file(cell.name) / str(seed)


def finished(folder: pathlib.Path) -> bool:
    return (folder / "summary.json").exists()


def run(table: Table, cell: Cell, seed: int, options) -> None:
    """Makes a run, or goes on with one that was cut."""
    folder = folder_of(table, cell, seed, options)
    if finished(folder):
        return
    if (folder / "checkpoints").exists():
        words = [options.macaw, "simulate", "--quiet", "--resume", folder]
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        data = {"images": options.images, "cifar": options.cifar}[table.data].resolve()
        config = options.runs / table.name / f"{table.name}.toml"
        config.write_text(table.config.replace("{data}", str(data)))
        settings = [f"run.seed={seed}", f"workers.slots={options.slots}", *cell.settings]
        if table.drawn:
            settings += table.drawn(cell, seed, data, options.runs / table.name)
        if options.rounds:
            settings.append(f"run.rounds={options.rounds}")
        words = [*frame.command(options.macaw, config, folder, settings), "--force"]
    done = subprocess.run(
        [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}"
        )
    found = value(table, folder)
    print(f"{table.name}: {cell.name}, seed {seed}: {found:.2f}", file=sys.stderr, flush=True)


def value(table: Table, folder: pathlib.Path) -> float:
    run = frame.Run(folder)
    if table.metric == "best":
        return 100 * run.summary["bests"]["test_accuracy"]["value"]
    found = [100 * row["test_accuracy"] for row in run.metrics() if "test_accuracy" in row]
    return found[-1] if table.metric == "last" else statistics.mean(found[-10:])


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


def row(table: Table, cell: Cell, options) -> list[str] | None:
    """None where no run is finished."""
    folders = [folder_of(table, cell, seed, options) for seed in range(1, options.repeat + 1)]
    folders = [folder for folder in folders if finished(folder)]
    if not folders:
        return None
    ours = [value(table, folder) for folder in folders]
    runs = [frame.Run(folder).summary for folder in folders]
    last = [100 * summary["final"]["test_accuracy"] for summary in runs]
    minutes = [summary["seconds"] / 60 for summary in runs]
    published, beyond, equal = "–", "–", "–"
    if cell.published:
        published = f"{cell.published.mean:.2f}"
        if cell.published.deviation is not None:
            published += f" (± {cell.published.deviation:.2f})"
        beyond, equal = difference(ours, cell.published)
    return [
        cell.row, cell.column, published, frame.spread(ours, 2), str(len(ours)), beyond, equal,
        frame.spread(last, 2), frame.spread(minutes, 1),
    ]  # fmt: skip


def work(tables: list[Table], options) -> None:
    """All runs: seed after seed, and of a seed those last that say so."""
    todo = [
        (seed, cell.last, table, cell)
        for seed in range(1, options.repeat + 1)
        for table in tables
        for cell in chosen(table, options)
    ]
    todo.sort(key=lambda one: one[:2])  # stable: the tables' order otherwise
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(run, table, cell, seed, options) for seed, _, table, cell in todo]
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
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    options.runs = options.runs.resolve()
    options.macaw = options.macaw.resolve()
    tables = [TABLES[name] for name in options.tables or TABLES]
    about = frame.heading()
    if not options.table_only:
        for table in tables:
            if getattr(options, table.data) is None:
                parser.error(f"the table {table.name} needs --{table.data}")
        work(tables, options)
    for table in tables:
        rows = [found for cell in chosen(table, options) if (found := row(table, cell, options))]
        if not rows:
            print(f"{table.name}: no finished runs in {options.runs}", file=sys.stderr)
            continue
        words = textwrap.fill(
            " ".join(table.about.split()), 180, break_long_words=False, break_on_hyphens=False
        )
        text = f"{words}\n\n{about}\n\n{frame.table(HEAD, rows)}"
        print(f"## {table.title}\n{text}")
        if options.write:
            frame.write(RESULTS, table.name, text)


if __name__ == "__main__":
    main()
