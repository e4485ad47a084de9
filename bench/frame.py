"""What the benchmarks share: arguments, runs of the programs, turns, memory, and printing.

A benchmark prints its command, its machine and a table: a median with its range, and the ratio to
the first row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

ROOT = pathlib.Path(__file__).resolve().parent.parent
Way = TypeVar("Way")
Figure = TypeVar("Figure")
# The 97.5 % quantile of Student's t with 1, 2, 3, … degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
           2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]  # fmt: skip


def parser(doc: str | None, rounds: int, repeat: int = 3) -> argparse.ArgumentParser:
    """With --macaw, --rounds and --repeat; `doc` is the help's text."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--macaw", type=pathlib.Path, default=ROOT / "build/bin/macaw")
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--repeat", type=int, default=repeat, help="runs of each, in turn")
    return made


def refuse_part(
    parser: argparse.ArgumentParser, options: argparse.Namespace, parts: Mapping[str, bool]
) -> None:
    """--write replaces a whole table. `parts`: whether each option leaves rows of it out."""
    if options.write and (given := [word for word, is_part in parts.items() if is_part]):
        parser.error(
            f"--write replaces the whole table and {' and '.join(given)} makes a part of it: "
            "leave one of them out"
        )


class Run:
    """What a run left in its folder, read."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.summary = json.loads((folder / "summary.json").read_text())
        self.digest: str = self.summary["model_digest"]

    def events(self, kind: str) -> list[dict]:
        return [row for row in lines(self.folder / "events.jsonl") if row["event"] == kind]

    def metrics(self) -> list[dict]:
        return lines(self.folder / "metrics.jsonl")

    def timeline(self) -> list[dict]:
        return json.loads((self.folder / "timeline.json").read_text())

    def ends(self) -> list[float]:
        """When each round ended, seconds."""
        return [row["t"] for row in self.events("round")]


def lines(file: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def command(
    macaw: pathlib.Path, config: pathlib.Path, out: pathlib.Path, settings: Iterable[str]
) -> list[str]:
    words = [macaw, "simulate", config, "--quiet", "--out", out]
    return [str(word) for word in words] + [w for s in settings for w in ("--set", s)]


def simulate(
    macaw: pathlib.Path,
    config: pathlib.Path,
    out: pathlib.Path,
    settings: Iterable[str],
    watch: Callable[[int], None] | None = None,
) -> Run:
    """A run to its end, in place of an older one in `out`. `settings`: KEY=VALUE.

    `watch` is called with the run's process fifty times a second.
    """
    shutil.rmtree(out, ignore_errors=True)
    words = command(macaw, config, out, settings)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        while watch is not None and run.poll() is None:
            watch(run.pid)
            time.sleep(0.02)
        said, _ = run.communicate()
    if run.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {run.returncode}\n{said[-2000:]}")
    return Run(out)


def in_turn(
    ways: Sequence[Way], repeat: int, measure: Callable[[Way], Figure]
) -> dict[Way, list[Figure]]:
    """Measures each way `repeat` times, in turn, so that other load hits all.

    Every second turn goes backwards.
    """
    found: dict[Way, list[Figure]] = {way: [] for way in ways}
    for turn in range(repeat):
        for way in ways if turn % 2 == 0 else list(reversed(ways)):
            found[way].append(measure(way))
    return found


def same(digests: Iterable[str]) -> None:
    """Ends the program if the runs end with different models."""
    if len(different := set(digests)) != 1:
        sys.exit(f"the runs end with different models: {', '.join(sorted(different))}")


def processes(pid: int) -> list[int]:
    """This process and all below it."""
    found, ahead = [], [pid]
    while ahead:
        found.append(ahead.pop())
        for children in pathlib.Path(f"/proc/{found[-1]}/task").glob("*/children"):
            try:
                ahead += map(int, children.read_text().split())
            except OSError:
                pass  # it has just ended
    return found


def pss(pid: int) -> float:
    """MB of memory of a process and all below it, shared pages by their share."""
    total = 0
    for one in processes(pid):
        try:
            text = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue  # it has just ended
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total * 1024 / 1e6


def processor() -> str:
    about = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in about if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> str:
    return (
        f"{len(os.sched_getaffinity(0))} cores of {processor()}, "
        f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}, "
        f"{time.strftime('%Y-%m-%d %H:%M')}"
    )


def heading() -> str:
    """The command and the machine, as a line of a page."""
    name, words = pathlib.Path(sys.argv[0]).stem, sys.argv[1:]
    if "--macaw" in words:  # ./dev adds it
        at = words.index("--macaw")
        del words[at : at + 2]
    return f"`{' '.join(['./dev bench', name, *words])}`; {machine()}"


def name_of_file(text: str) -> str:
    return "".join(c if c.isalnum() or c in ".-=" else "_" for c in text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(text + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def middle(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the range where there are several."""
    text = f"{statistics.median(values):,.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    return text


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t with so many degrees of freedom."""
    return STUDENT[min(freedom, len(STUDENT)) - 1]


def spread(values: Sequence[float], digits: int) -> str:
    """ "12.3" or, of several, "12.3 ± 0.4"; a dash where one is missing."""
    if any(math.isnan(value) for value in values):
        return "–"
    text = f"{statistics.mean(values):.{digits}f}"
    if len(values) == 1:
        return text
    half = student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{text} ± {half:.{digits}f}"


def beside(found: Mapping[str, Sequence[float]], what: str, digits: int = 2) -> str:
    """A table of each way's median, and of its ratios to the first way in the same turn."""
    first = next(iter(found.values()))
    return table(
        ["", what, "ratio"],
        [
            (
                way,
                middle(values, digits),
                f"{statistics.median(a / b for a, b in zip(values, first)):.2f}",
            )
            for way, values in found.items()
        ],
    )


def write(results: pathlib.Path, name: str, table: str) -> None:
    """Replaces the table of this name, which ends at the next heading or at the end."""
    text, mark = results.read_text(), f"<!-- {name} -->\n"
    before, after = text.split(mark)
    rest = after[after.index("\n## ") :] if "\n## " in after else ""
    results.write_text(before + mark + table.rstrip() + "\n" + rest)
