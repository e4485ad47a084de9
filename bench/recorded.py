"""Runs that leave entries in the repository (record.py): made once, and made again to compare.

A benchmark has a Work for each run, and makes its tables of the entries, whichever runs are here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic

import frame
from record import Entry, Kind, Record, digest, locked

ANOTHER = ", ANOTHER MODEL"


def arguments(parser: argparse.ArgumentParser, runs: pathlib.Path) -> None:
    """Those of all such benchmarks. `runs`: where their runs are unless --runs says."""
    parser.add_argument("--seeds", dest="repeat", type=int, help="runs of each cell; also --repeat")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="of cells")
    parser.add_argument("--runs", type=pathlib.Path, default=runs, metavar="FOLDER")
    parser.add_argument("--again", action="store_true", help="runs with entries, too")
    parser.add_argument("--check", action="store_true", help="runs with entries, to compare")
    parser.add_argument("--table-only", action="store_true", help="no runs")
    parser.add_argument("--write", action="store_true", help="the tables into the page")


class Cells(Generic[Kind]):
    """The cells of a table as they are now, and their entries."""

    def __init__(self, name: str, record: Record[Kind], settings: Mapping[str, str]) -> None:
        """`settings`: the digest of each cell's settings."""
        self.name, self.record, self.settings = name, record, settings

    def current(self) -> dict[tuple[str, int], Kind]:
        """The entries of cells as they are now."""
        found = self.record.entries().items()
        return {name: one for name, one in found if self.settings.get(one.cell) == one.settings}

    def name_others(self) -> None:
        """Says which entries are not used, and why."""
        used = self.current()
        for name, entry in self.record.entries().items():
            if name not in used:
                known = entry.cell in self.settings
                why = "has other settings now" if known else "is no cell any more"
                say(f"{self.name}: not used: seed {entry.seed} of '{entry.cell}', which {why}")


class Work(Generic[Kind]):
    """A run of a cell, in a folder of its own: that of a changed cell is another one.

    A benchmark says in a subclass what the run is and what its entry has.
    """

    # What decides a model beside the settings: its name, and the field of the entry.
    inputs: ClassVar[Mapping[str, str]] = {
        "data": "data",
        "division": "drawn",
        "arithmetic": "profile",
    }

    def __init__(
        self,
        cells: Cells[Kind],
        cell: str,
        seed: int,
        options: argparse.Namespace,
        runs: pathlib.Path,
        tried: str = "",
    ) -> None:
        """`runs`: a folder; `tried`: of a try, which leaves no entry, what tells it from others."""
        self.cells, self.cell, self.seed, self.options = cells, cell, seed, options
        self.tried = tried
        self.name = f"{cells.name}: {cell}, seed {seed}"
        again = "-again" if options.again or options.check else ""
        of_seed = f"{seed}-{cells.settings[cell][:12]}{tried and '-' + tried}{again}"
        self.folder = runs.resolve() / cells.name / frame.name_of_file(cell) / of_seed
        self.run = self.folder / "run"

    def draw(self) -> tuple[list[str], str]:
        """The settings that the seed decides, and their digest (digest_of_files)."""
        return [], digest("")

    def config(self) -> str:
        """The run's configuration on this machine, as TOML."""
        raise NotImplementedError

    def settings(self) -> Sequence[str]:
        """The run's other settings, as KEY=VALUE, beside its seed and what it draws."""
        raise NotImplementedError

    def entry(self, run: frame.Run, known: Mapping[str, Any]) -> Kind:
        """`known`: the fields that all entries have, beside accuracies."""
        raise NotImplementedError

    def figure(self, entry: Kind) -> str:
        """What the table compares, to be said of a run that has finished."""
        raise NotImplementedError

    def do(self) -> Kind | None:
        """The entry, which is there, or which the run leaves. Another process may have made it.

        None: nothing to check.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            before = None if self.tried else self.cells.current().get((self.cell, self.seed))
            if before is None and self.options.check:
                return None
            return self.make(before)

    def make(self, before: Kind | None) -> Kind:
        """Makes the run, or goes on with one that was cut, and adds its entry."""
        options = self.options
        drawn, digest_of_drawn = self.draw()
        if options.again or options.check:
            if (self.run / "summary.json").exists():
                shutil.rmtree(self.run)
        elif before is not None:
            if before.drawn in (None, digest_of_drawn):
                return before
            say(f"{self.name}: what the seed decides is drawn in another way than recorded: again")
            shutil.rmtree(self.run, ignore_errors=True)
        settings = [f"run.seed={self.seed}", *self.settings(), *drawn]
        run = simulate(options.macaw, self.config(), self.run, settings)
        now = self.entry(run, self.known(run, digest_of_drawn))
        word = compare(before, now, self.inputs)
        say(f"{self.name}: {self.figure(now)}{word}")
        if options.check:
            if word.startswith(ANOTHER):
                raise RuntimeError(f"{self.name}: the same settings, data and arithmetic have "
                                   "given another model")  # fmt: skip
        elif not self.tried:
            self.cells.record.add(now)
        return now

    def known(self, run: frame.Run, drawn: str) -> dict[str, Any]:
        return dict(
            cell=self.cell,
            seed=self.seed,
            settings=self.cells.settings[self.cell],
            drawn=drawn,
            minutes=run.summary["seconds"] / 60,
            model=run.digest,
            macaw=run.summary["program"],
            profile=run.summary["profile"],
            data=run.summary["data_digest"],
            processor=frame.processor(),
            day=time.strftime("%Y-%m-%d"),
        )


def simulate(
    macaw: pathlib.Path, config: str, out: pathlib.Path, settings: Iterable[str]
) -> frame.Run:
    """The run in this folder, unless it has finished: one that was cut goes on."""
    if (out / "summary.json").exists():
        return frame.Run(out)
    if (out / "checkpoints").exists():
        words = [str(macaw.resolve()), "simulate", "--quiet", "--resume", str(out)]
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        file = out.with_suffix(".toml")
        file.write_text(config)
        words = [*frame.command(macaw.resolve(), file, out, settings), "--force"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return frame.Run(out)


def compare(before: Entry | None, now: Entry, inputs: Mapping[str, str]) -> str:
    """What there is to say of the entry before, behind the run's figure."""
    if before is None:
        return ""
    if before.model is None:
        return ", in place of an entry without a model's digest"
    if before.model == now.model:
        return ", the same model"
    differ = [
        word for word, field in inputs.items() if getattr(before, field) != getattr(now, field)
    ]
    if differ:
        return f", another model, of another {' and '.join(differ)}"
    return f"{ANOTHER} than that of {before.macaw}, {before.day}"


def do_all(works: Iterable[Work[Kind]], jobs: int = 1) -> list[Kind]:
    """The entries of all, so many at a time, in this order. The first error ends the program."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(one.do) for one in works]
        for one in concurrent.futures.as_completed(runs):
            if one.exception():
                pool.shutdown(cancel_futures=True)
                sys.exit(str(one.exception()))
    return [found for one in runs if (found := one.result()) is not None]


def when(entries: Iterable[Entry]) -> str:
    days = sorted({one.day for one in entries})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def where(entries: Iterable[Entry]) -> str:
    return ", ".join(sorted({one.processor for one in entries}))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
