"""Runs that leave entries in the repository (record.py): made once, and made again to compare.

A benchmark has a Work for each run, and makes its tables of the entries, whichever runs are here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import frame
from record import Entry, Kind, Record, digest, digest_of_input, locked

ANOTHER = ", ANOTHER MODEL"
Found = TypeVar("Found")


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

    def beside(self) -> Iterable[str]:
        """The cells whose runs of the same seed and drawing have the same data."""
        return [self.cell]

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
        files = {file: digest_of_input(file) for file in self.folder.iterdir() if file.is_file()}
        drawn, digest_of_drawn = self.draw()
        place = self.place(drawn, digest_of_drawn, files)
        if options.again or options.check:
            if (place / "summary.json").exists():
                shutil.rmtree(place)
        elif before is not None:
            if before.drawn in (None, digest_of_drawn):
                return before
            say(f"{self.name}: what the seed decides is drawn in another way than recorded: again")
        settings = [f"run.seed={self.seed}", *self.settings(), *drawn]
        note(place, options.macaw)
        run = simulate(options.macaw, self.config(), place, settings)
        now = self.entry(run, self.known(run, digest_of_drawn))
        if not (options.check or self.tried):
            self.compare_data(now)
        word = compare(before, now, self.inputs)
        say(f"{self.name}: {self.figure(now)}{word}")
        if options.check:
            if word.startswith(ANOTHER):
                raise RuntimeError(f"{self.name}: the same settings, data and arithmetic have "
                                   "given another model")  # fmt: skip
        elif not self.tried:
            self.cells.record.add(now)
        return now

    def place(
        self, drawn: Sequence[str], digest_of_drawn: str, files: Mapping[pathlib.Path, str]
    ) -> pathlib.Path:
        """The run's folder, which names what was drawn: no run of another drawing is taken.

        Earlier runs' folders do not: such a one goes on if it is of this drawing. `files`: what was
        here before the drawing.
        """
        unnamed = self.folder / "run"
        if not drawn:
            return unnamed
        found = self.folder / f"run-{digest_of_drawn[:12]}"
        return unnamed if not found.exists() and is_of(unnamed, drawn, files) else found

    def compare_data(self, now: Kind) -> None:
        """Refuses an entry whose data are not those of the entries beside it."""
        cells = set(self.beside())
        for one in self.cells.current().values():
            if (one.seed, one.drawn) != (now.seed, now.drawn) or one.cell not in cells:
                continue
            if None in (one.data, now.data) or one.data == now.data:
                continue
            words = (f"{self.name}: its data ({str(now.data)[:12]}) are not those of "
                     f"'{one.cell}' ({str(one.data)[:12]}, {one.day})")  # fmt: skip
            if not self.options.again:
                raise RuntimeError(
                    f"{words}, so it gets no entry: give the files that the table was made of, or "
                    "make its runs on these with --again"
                )
            say(f"{words}: make that one --again, too")
            return

    def known(self, run: frame.Run, drawn: str) -> dict[str, Any]:
        noted = run.folder.with_suffix(".json")  # runs of earlier programs have none
        of = json.loads(noted.read_text()) if noted.exists() else {}
        finished = time.localtime((run.folder / "summary.json").stat().st_mtime)
        program, commit = run.summary["program"], of.get("commit")
        return dict(
            cell=self.cell,
            seed=self.seed,
            settings=self.cells.settings[self.cell],
            drawn=drawn,
            minutes=run.summary["seconds"] / 60,
            model=run.digest,
            macaw=f"{program}, {commit}" if commit else program,
            profile=run.summary["profile"],
            data=run.summary["data_digest"],
            processor=of.get("processor") or frame.processor(),
            day=time.strftime("%Y-%m-%d", finished),
        )


def data_of(settings: Iterable[str]) -> list[str]:
    """Those of KEY=VALUE that decide what data a run has."""
    keys = ("data.", "partition.", "attack.")
    return sorted(
        word for word in settings if word.startswith(keys) or word == "algorithm.name=pooled"
    )


def is_of(run: pathlib.Path, drawn: Iterable[str], files: Mapping[pathlib.Path, str]) -> bool:
    """Whether the run in this folder has these settings. `files`: digests of those beside it.

    A run that was cut may have other files now. The program compares its data when it goes on.
    """
    if not (run / "config.toml").exists():
        return False
    config = tomllib.loads((run / "config.toml").read_text())
    done = run / "summary.json"
    inputs = json.loads(done.read_text()).get("inputs") or {} if done.exists() else None
    for word in drawn:
        key, value = word.split("=", 1)
        found: Any = config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if str(found) != value:
            return False
        file = pathlib.Path(value)
        if file.is_absolute() and file.parent == run.parent:
            was = files.get(file) if inputs is None else inputs.get(key)
            if was != digest_of_input(file):
                return False
    return True


def note(place: pathlib.Path, macaw: pathlib.Path) -> None:
    """Writes beside a run that is to be made where it is made and with what program."""
    if not (place / "summary.json").exists():
        words = {"processor": frame.processor(), "commit": commit_of(macaw)}
        place.with_suffix(".json").write_text(json.dumps(words))


def commit_of(program: pathlib.Path) -> str:
    """That of the sources in whose folder the program lies, if git says one; else ""."""
    words = ["git", "-C", str(program.resolve().parent), "describe", "--always", "--dirty",
             "--abbrev=12", "--exclude=*"]  # fmt: skip
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


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
    calls = [one.do for one in works]
    try:
        found = side_by_side(calls, jobs)
    except Exception as error:
        sys.exit(str(error))
    return [one for one in found if one is not None]


def side_by_side(calls: Iterable[Callable[[], Found]], jobs: int) -> list[Found]:
    """What all return, so many at a time. After an error or Ctrl-C no other call begins."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            runs = [pool.submit(call) for call in calls]
            for one in concurrent.futures.as_completed(runs):
                one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [one.result() for one in runs]


def when(entries: Iterable[Entry]) -> str:
    days = sorted({one.day for one in entries})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def where(entries: Iterable[Entry]) -> str:
    return ", ".join(sorted({one.processor for one in entries}))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
