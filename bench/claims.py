"""Whether each rule does what its paper claims, in small scenarios: a row a claim.

./dev bench claims [--only TEXT] [--seeds N] [--images FOLDER] [--jobs N] [--runs FOLDER]
                   [--rounds N] [--again] [--check] [--table-only] [--write]

A row: what a paper claims and where, the scenario, the metric of the rule and of its baseline
(mean ± standard deviation over seeds), and the rule's advantage with its 95 % interval by
Student's t, over the differences (or quotients) of the same seeds. The verdict is "shown" where the
whole interval is above what the claim asks for, else "not shown".

The images are those of examples/data/mnist, or of another folder with the files of MNIST
(--images). A finished run becomes an entry of results/claims.jsonl (record.py), and a run with an
entry is not made again; entries count while their scenario is as it was. --only: claims whose row
has the text. --rounds: tries, which leave no entries. --check: makes the runs with entries again,
adds nothing, and ends with 1 if a run on the same data with the same arithmetic has another model.
--again: runs with entries, too; without it a run on other images than those of its scenario's
entries gets none. The table is made of the entries: --table-only makes no runs,
--write puts it into docs/claims.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import pathlib
import statistics
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import frame
from papers import drift, evenness, hostile, networks, personal
from papers.claim import Claim, Made, Metric, Scenario
from record import Entry, Record, digest_of_files, digest_of_settings
from recorded import Cells, Work, arguments, data_of, do_all, say, when, where

CLAIMS: list[Claim] = [
    claim for module in (personal, networks, evenness, hostile, drift) for claim in module.CLAIMS
]
RECORD = frame.ROOT / "bench/results/claims.jsonl"
PAGE = frame.ROOT / "docs/claims.md"
IMAGES = frame.ROOT / "examples/data/mnist"
HEAD = ["rule", "claim", "scenario", "metric", "rule's", "baseline's", "advantage", "seeds",
        "verdict"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Measured(Entry):
    """A finished run, with the metrics of its scenario; None: no number."""

    figures: dict[str, float | None]


def cell_of(scenario: Scenario, way: str) -> str:
    return f"{scenario.name}, {way}"


def scenarios_of(claims: Iterable[Claim]) -> list[Scenario]:
    return list({claim.scenario.name: claim.scenario for claim in claims}.values())


def cells_of(claims: Iterable[Claim]) -> Cells[Measured]:
    """Of all ways of the claims' scenarios. Other metrics make another cell of it."""
    settings = {
        cell_of(scenario, way): digest_of_settings(
            scenario.config,
            [*words, *(metric.words(name) for name, metric in scenario.metrics.items())],
        )
        for scenario in scenarios_of(claims)
        for way, words in scenario.ways.items()
    }
    return Cells("claims", Record(RECORD, Measured), settings)


class Trained(Work[Measured]):
    """A run of a way of a scenario."""

    def __init__(
        self,
        cells: Cells[Measured],
        scenario: Scenario,
        way: str,
        seed: int,
        options: argparse.Namespace,
    ) -> None:
        tried = f"{options.rounds}-rounds" if options.rounds else ""
        super().__init__(cells, cell_of(scenario, way), seed, options, options.runs, tried)
        self.scenario, self.way = scenario, way
        self.images = options.images.resolve()

    def draw(self) -> tuple[list[str], str]:
        if self.scenario.drawn is None:
            return super().draw()
        drawn = list(self.scenario.drawn(self.seed, self.images, self.folder))
        return drawn, digest_of_files(drawn, self.folder)

    def beside(self) -> list[str]:
        ways = self.scenario.ways
        mine = data_of(ways[self.way])
        return [cell_of(self.scenario, way) for way in ways if data_of(ways[way]) == mine]

    def config(self) -> str:
        return self.scenario.config.replace("{images}", str(self.images))

    def settings(self) -> list[str]:
        tried = [f"run.rounds={self.options.rounds}"] if self.options.rounds else []
        ways = self.scenario.ways[self.way]
        return ["workers.processes=1", "workers.slots=1", *ways, *tried]

    def entry(self, run: frame.Run, known: Mapping[str, Any]) -> Measured:
        made = Made(run, self.options.macaw, self.images, self.seed)
        found = {name: metric.of(made) for name, metric in self.scenario.metrics.items()}
        figures = {name: value if math.isfinite(value) else None for name, value in found.items()}
        return Measured(best=None, last=None, tail=None, figures=figures, **known)

    def figure(self, entry: Measured) -> str:
        return ", ".join(
            f"{metric.label} {text_of(metric, [known(entry.figures[name])])}"
            for name, metric in self.scenario.metrics.items()
        )


def known(value: float | None) -> float:
    return math.nan if value is None else value


def text_of(metric: Metric, values: list[float]) -> str:
    """Mean ± standard deviation, in the page's unit."""
    if not values or any(map(math.isnan, values)):
        return "–"
    scaled = [metric.scale * value for value in values]
    text = f"{statistics.mean(scaled):{metric.form}}"
    return f"{text} ± {statistics.stdev(scaled):{metric.form}}" if scaled[1:] else text


def advantages(metric: Metric, mine: list[float], others: list[float]) -> list[float]:
    """Of each pair of runs: the difference in the page's unit, or the logarithm of the quotient."""
    sign = 1 if metric.higher else -1
    if metric.ratio:
        return [sign * (math.log(a) - math.log(b)) for a, b in zip(mine, others, strict=True)]
    return [sign * metric.scale * (a - b) for a, b in zip(mine, others, strict=True)]


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, by Student's t; without end where there is one value."""
    middle = statistics.mean(values)
    if len(values) < 2:
        return -math.inf, math.inf
    half = frame.student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return middle - half, middle + half


def verdict(claim: Claim, mine: list[float], others: list[float]) -> tuple[str, str]:
    """The advantage with its interval, and whether all of it is above what the claim asks for."""
    if any(map(math.isnan, [*mine, *others])):
        return "–", "not shown"
    metric = claim.measure
    found = advantages(metric, mine, others)
    low, high = interval(found)
    middle = statistics.mean(found)
    if metric.ratio:
        low, middle, high = (math.exp(min(value, 99)) for value in (low, middle, high))
        text = f"× {middle:.3g} ({low:.3g} to {high:.3g})"
    else:
        digits = metric.digits
        text = f"{middle:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"
    if len(found) < 2:
        return text.split(" (")[0], "one seed"
    return text, "shown" if low > claim.threshold else "not shown"


def of_seeds(claim: Claim, entries: Mapping[tuple[str, int], Measured]) -> list[list[float]]:
    """The metric of the rule and that of the baseline, for each seed that has both."""
    cells = [cell_of(claim.scenario, way) for way in claim.ways]
    seeds = sorted({seed for cell, seed in entries if cell == cells[0]})
    seeds = [seed for seed in seeds if all((cell, seed) in entries for cell in cells)]
    found = [[known(entries[cell, seed].figures[claim.metric]) for seed in seeds] for cell in cells]
    return found if found[1:] else [*found, [float(claim.baseline)] * len(seeds)]


def row(claim: Claim, entries: Mapping[tuple[str, int], Measured]) -> list[str] | None:
    """None where a run is missing."""
    mine, others = of_seeds(claim, entries)
    if not mine:
        return None
    metric = claim.measure
    asked = "" if claim.least is None else asked_for(claim)
    by_chance = not isinstance(claim.baseline, str)
    baseline = (
        f"{metric.scale * others[0]:{metric.form}} (by chance)" if by_chance
        else f"{claim.baseline}: {text_of(metric, others)}"
    )  # fmt: skip
    advantage, said = verdict(claim, mine, others)
    return [
        f"[{claim.rule}](rules/{claim.rule}.md)",
        f"{claim.says}{asked} ({claim.paper}, {claim.place})", claim.scenario.name, metric.label, f"{claim.way}: {text_of(metric, mine)}", baseline,
        advantage, str(len(mine)), said,
    ]  # fmt: skip


def asked_for(claim: Claim) -> str:
    """What a claim asks for beyond any advantage, behind its words."""
    metric, least = claim.measure, claim.threshold
    if metric.ratio:
        return f"; asked: × {least:g}"
    return f"; asked: {least:+.{metric.digits}f}"


def page(claims: list[Claim], entries: Mapping[tuple[str, int], Measured]) -> str | None:
    """The table with its words and its scenarios; None without a whole row."""
    rows = {claim.name: found for claim in claims if (found := row(claim, entries))}
    for claim in claims:
        if claim.name not in rows:
            say(f"claims: no runs yet of '{claim.name}'")
    if not rows:
        return None
    whole = [claim for claim in claims if claim.name in rows]
    cells = {cell_of(claim.scenario, way) for claim in whole for way in claim.ways}
    used = [one for one in entries.values() if one.cell in cells]
    shown = sum(found[-1] == "shown" for found in rows.values())
    minutes = sum(one.minutes or 0 for one in used)
    about = (
        f"`./dev bench claims --seeds {max(one.seed for one in used)} --write`; {when(used)}, a "
        f"core of {where(used)} a run, {len(used)} runs in {minutes:.0f} minutes, beside other "
        f"work. {shown} of {len(rows)} claims are shown."
    )
    scenarios = "\n".join(described(scenario) for scenario in scenarios_of(whole))
    return f"{about}\n\n{frame.table(HEAD, rows.values())}\n### Scenarios\n{scenarios}"


def described(scenario: Scenario) -> str:
    return textwrap.fill(
        f"- **{scenario.name}**: {' '.join(scenario.about.split())}", 180,
        subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def chosen(claims: list[Claim], only: list[str]) -> list[Claim]:
    """Those whose words have all texts."""
    return [
        claim for claim in claims if all(text in f"{claim.name}, {claim.paper}" for text in only)
    ]


def make(claims: list[Claim], options: argparse.Namespace) -> None:
    """The runs of the claims, seed after seed."""
    cells = cells_of(CLAIMS)
    wanted = dict.fromkeys((claim.scenario.name, way) for claim in claims for way in claim.ways)
    known = {scenario.name: scenario for scenario in scenarios_of(claims)}
    works = [
        Trained(cells, known[name], way, seed, options)
        for seed in range(1, options.repeat + 1)
        for name, way in wanted
    ]
    do_all(works, options.jobs)


def main() -> None:
    parser = frame.parser(__doc__, rounds=0, repeat=5)
    parser.add_argument("--images", type=pathlib.Path, default=IMAGES)
    parser.add_argument("--jobs", type=int, default=1)
    arguments(parser, frame.ROOT / "build/claims")
    options = parser.parse_args()
    claims = chosen(CLAIMS, options.only)
    if not claims:
        parser.error(f"no claim's row contains {' and '.join(map(repr, options.only))}")
    if options.rounds and (options.again or options.check or options.write):
        parser.error("--rounds is for tries, which are not compared and not written")
    if not options.table_only:
        make(claims, options)
    if options.rounds:
        return
    cells = cells_of(CLAIMS)
    cells.name_others()
    entries = cells.current()
    text = page(CLAIMS if options.write else claims, entries)
    if text is None:
        return
    print(text)
    if options.write:
        frame.write(PAGE, "claims", text)


if __name__ == "__main__":
    main()
