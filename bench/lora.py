"""Adapters beside full training: accuracy at equal rounds and at equal bytes.

./dev bench lora [--only TEXT] [--seeds N] [--runs FOLDER] [--again] [--check] [--table-only]
                 [--write] [--speakers PLAY] [--rounds N] [--quick]

Every second speaker of tinyshakespeare is of the base: a transformer of two blocks learns the next
character from their rows (FedAvg, 10 of them a round). The other speakers are the clients, 10 a
round, and begin with the base's model. A row of the table is what they train:

  full          every tensor
  last layer    the last layer alone ([model] trained)
  lora R        adapters of rank R on all linear maps of both blocks, alpha 2R
  + last layer  and the last layer
  A frozen      B alone (FFA-LoRA)
  pissa         the start from the largest singular values
  full, acpsgd  every tensor, in updates of low rank ([update])

Each has the learning rate of its list with the lowest loss on the clients' validation rows, with
the first seed. Accuracy is that of the clients' test rows, in percent, mean ± standard deviation
over seeds. "at equal bytes": of the last evaluation before the clients have sent as many bytes as
`lora 4` sends in all its rounds; a rule that sends more has had fewer rounds by then. The last
column has the megabytes up until the accuracy of `full` less half a percent. A loss at round 0 is
the base's.

A finished run becomes an entry of results/lora.jsonl (record.py), and a run with an entry is not
made again. An entry counts while its way has the settings that it had. Each run has a folder under
--runs, where one that was cut goes on. --only: runs of ways whose name has the text. --again: runs
with entries, too; new entries take their places. --check: makes the runs with entries again, adds
nothing, and ends with 1 if a run from the same base on the same data with the same arithmetic has
another model. The table is made of all entries: --table-only makes no runs, --write puts it into
results/lora.md.

--speakers: another play, where an empty line ends a speech and a name with a colon begins one.
--quick: few rounds, one rate, and without --speakers a play that is made here. Both and --rounds
are tries, which leave no entries; their table is of their runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gzip
import json
import math
import pathlib
import random
import statistics
import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import frame
from record import Entry, Record, digest, digest_of_settings, locked
from recorded import Cells, Work, arguments, do_all, say, simulate, when, where

sys.path.insert(0, str(frame.ROOT / "tests/oracle"))
import speakers

ROUNDS, BASE_ROUNDS, BASE_RATE = 200, 300, 0.3
PLAY = frame.ROOT / "tests/data/public/tinyshakespeare.txt.gz"
ROWS = dict(length=80, test=0.3, least=30)  # of a speaker (speakers.py)
BASE = """
[data]
source = "leaf"
path = "{data}/train"
test_path = "{data}/test"
val_fraction = 0.1
[model]
layers = ["embedding 97 64", "positions", "transformer heads 4 ff 256 causal",
          "transformer heads 4 ff 256 causal", "layernorm", "linear 97"]
[cohort]
size = 10
[local]
epochs = 1
batch_size = 20
momentum = 0.9
clip_norm = 5.0
[evaluation]
every = 5
clients = true
central = false
splits = ["test", "validation"]
"""
SUFFICES = 0.5  # percent below the accuracy of full training
CHOSEN_BY = "clients_val_loss"
ACCURACY, LOSS = "clients_test_accuracy", "clients_test_loss"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    keys: dict
    rates: tuple[float, ...]


def lora(rank: int, *, start: str = "zero", head: bool = False, **keys) -> dict:
    rule = f"lora {rank} alpha {2 * rank} start {start} [23].*"
    rules = [rule.replace("[23]", block) for block in "23"]
    return {"model.adapters": rules} | ({"model.trained": ["5.*"]} if head else {}) | keys


SMALL, LARGE = (0.03, 0.1, 0.3), (0.1, 0.3, 1.0)
WAYS = [
    Way("full", {}, SMALL),
    Way("last layer", {"model.trained": ["5.*"]}, LARGE),
    Way("lora 1", lora(1), LARGE),
    Way("lora 4", lora(4), LARGE),
    Way("lora 16", lora(16), LARGE),
    Way("lora 4 + last layer", lora(4, head=True), LARGE),
    Way("lora 4, A frozen", lora(4, **{"model.frozen": ["*.lora_A.weight"]}), LARGE),
    Way("lora 4, pissa", lora(4, start="pissa"), SMALL),
    Way("full, acpsgd 4", {"update.codec": ["acpsgd 4"]}, SMALL),
]
RESULTS = frame.ROOT / "bench/results/lora.md"
RECORD = frame.ROOT / "bench/results/lora.jsonl"
HEAD = [
    "trained",
    "lr",
    "seeds",
    "kB up a client",
    "accuracy",
    "loss",
    "at equal bytes",
    "rounds",
    "MB until",
]


@dataclasses.dataclass(frozen=True)
class Learned(Entry):
    """A finished run; its accuracies are those of the clients' test rows."""

    base: str | None  # digest of the model that it begins with
    loss: float | None  # on the clients' test rows, of the last evaluation; None: it has diverged
    validation: float | None  # on their validation rows, which chooses the rate
    sent: float  # bytes that a client sends in a round
    # After each evaluation: the round, the bytes up until then, the accuracy. Of an entry that was
    # carried over from a page: what the page says.
    curve: list[list[float]]


def pairs(keys: Mapping[str, Any]) -> list[str]:
    """KEY=VALUE, the value as TOML."""
    return [
        f"{key}={json.dumps(value) if isinstance(value, (str, list)) else value}"
        for key, value in keys.items()
    ]


def made_up_play() -> str:
    """A play of speakers who repeat a few words each, to try the benchmark."""
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshr", k=draw.randint(2, 6))) for _ in range(60)]
    speeches = []
    for _ in range(240):
        who = draw.randrange(24)
        said = " ".join(draw.choices(words[2 * who : 2 * who + 12], k=120))
        speeches.append(f"SPEAKER {who}:\n{said}.")
    return "\n\n".join(speeches) + "\n"


def play(options: argparse.Namespace) -> str:
    if options.speakers is None and options.quick:
        text = made_up_play()
    elif options.speakers is None:
        text = gzip.decompress(PLAY.read_bytes()).decode()
    else:
        text = options.speakers.read_text(encoding="utf-8")
    return text.encode("ascii", "replace").decode().replace("\r\n", "\n")


def make_halves(text: str, folder: pathlib.Path) -> None:
    """The rows of the base's speakers, and those of the clients: folder/base and folder/clients."""
    if (folder / "whole").exists():
        return
    train, test = speakers.make(text, **ROWS)
    if len(train["users"]) < 4:
        sys.exit("fewer than four speakers have 30 rows: is it a play?")
    for first, place in enumerate((folder / "base", folder / "clients")):
        for half, name in ((train, "train"), (test, "test")):
            users = {
                user: (half["user_data"][user]["x"], half["user_data"][user]["y"])
                for user in train["users"][first::2]
                if user in half["user_data"]
            }
            (place / name).mkdir(parents=True, exist_ok=True)
            (place / name / "data.json").write_text(json.dumps(speakers.leaf(users)))
    (folder / "whole").touch()


class Bench:
    """The cells, which are ways at a rate, and the base of their runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.quick = options, options.quick
        self.rounds = 10 if self.quick else options.rounds
        self.seeds = 1 if self.quick else options.repeat
        # Of a try: it leaves no entries.
        whole = not self.quick and self.rounds == ROUNDS and options.speakers is None
        self.tried = "" if whole else "try"
        base_rounds = 4 if self.quick else BASE_ROUNDS
        self.base_keys = {
            "run.rounds": base_rounds, "local.lr": BASE_RATE, "evaluation.every": base_rounds
        }  # fmt: skip
        cells = {
            self.cell(way, rate): self.digest_of(way, rate) for way in WAYS for rate in way.rates
        }
        self.cells = Cells("lora", Record(RECORD, Learned), cells)

    @staticmethod
    def cell(way: Way, rate: float) -> str:
        return f"{way.name}, lr {rate:g}"

    def keys(self, way: Way, rate: float) -> dict:
        return {"run.rounds": self.rounds, "local.lr": rate} | way.keys

    def digest_of(self, way: Way, rate: float) -> str:
        of_base = [f"base {word}" for word in pairs(self.base_keys)]
        of_rows = [f"speakers {word}" for word in pairs(ROWS)]
        return digest_of_settings(BASE, [*pairs(self.keys(way, rate)), *of_base, *of_rows])

    @functools.cached_property
    def folder(self) -> pathlib.Path:
        """The data and the runs of this play."""
        text = play(self.options)
        folder = self.options.runs.resolve() / f"speakers-{digest(text)[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            make_halves(text, folder)
        return folder

    def config(self, half: str) -> str:
        return BASE.replace("{data}", str(self.folder / half))

    @functools.cached_property
    def base(self) -> frame.Run:
        """The run whose model the others begin with: made where one of them is to be made."""
        keys = pairs(self.base_keys)
        folder = self.folder / f"base-{digest_of_settings(BASE, keys)[:12]}"
        folder.mkdir(exist_ok=True)
        with locked(folder):
            return simulate(self.options.macaw, self.config("base"), folder / "run", keys)

    def made(self, ways: list[Way]) -> list[Learned]:
        """The entries of all runs: each rate with the first seed, then the best one with others."""
        known = {} if self.options.again or self.tried else self.chosen(self.entries())
        works = [
            Trained(self, way, rate, 1)
            for way in ways
            for rate in self.rates(way)
            if way.name not in known
        ]
        first = do_all(works)
        chosen = self.chosen(first if self.tried else self.entries())
        others = [
            Trained(self, way, chosen[way.name], seed)
            for seed in range(2, self.seeds + 1)
            for way in ways
        ]
        return first + do_all(others)

    def check(self, ways: list[Way]) -> None:
        """Makes the runs with entries again."""
        entries = self.cells.current()
        do_all(
            Trained(self, way, rate, seed)
            for seed in range(1, self.seeds + 1)
            for way in ways
            for rate in self.rates(way)
            if (self.cell(way, rate), seed) in entries
        )

    def entries(self) -> list[Learned]:
        return list(self.cells.current().values())

    def rates(self, way: Way) -> tuple[float, ...]:
        return way.rates[:1] if self.quick else way.rates

    def chosen(self, entries: Iterable[Learned]) -> dict[str, float]:
        """The rate of each way: that of the lowest validation loss, where all rates have run.

        Figures that were carried over from a page are those of the rate that was chosen there.
        """
        first = {one.cell: one for one in entries if one.seed == 1}
        found = {}
        for way in WAYS:
            cells = {rate: self.cell(way, rate) for rate in self.rates(way)}
            mine = {rate: first[cell] for rate, cell in cells.items() if cell in first}
            carried = [rate for rate, one in mine.items() if one.model is None]
            if carried:
                found[way.name] = carried[0]
            elif len(mine) == len(cells):
                losses = {
                    rate: math.inf if one.validation is None else one.validation
                    for rate, one in mine.items()
                }
                found[way.name] = min(losses, key=lambda rate: losses[rate])
        return found

    def name_lacking(self, entries: list[Learned]) -> None:
        """Says which ways have runs and are not in the table."""
        chosen, seen = self.chosen(entries), {one.cell for one in entries}
        for way in WAYS:
            lacks = [f"{rate:g}" for rate in self.rates(way) if self.cell(way, rate) not in seen]
            if way.name not in chosen and len(lacks) < len(self.rates(way)):
                say(f"lora: '{way.name}' is not in the table before its runs at {', '.join(lacks)}")

    def text_of(self, entries: list[Learned]) -> str:
        """The table of all ways with a rate."""
        found = {}
        for name, rate in self.chosen(entries).items():
            way = next(one for one in WAYS if one.name == name)
            mine = [one for one in entries if one.cell == self.cell(way, rate)]
            found[name] = rate, sorted(mine, key=lambda one: one.seed)
        return table(found)


class Trained(Work[Learned]):
    """A run of a way at a rate."""

    inputs: ClassVar[Mapping[str, str]] = {"base": "base", **Work.inputs}

    def __init__(self, bench: Bench, way: Way, rate: float, seed: int) -> None:
        cell = bench.cell(way, rate)
        super().__init__(bench.cells, cell, seed, bench.options, bench.folder, bench.tried)
        self.bench, self.keys = bench, bench.keys(way, rate)

    def beside(self) -> Iterable[str]:
        return self.bench.cells.settings

    def config(self) -> str:
        return self.bench.config("clients")

    def settings(self) -> list[str]:
        model = self.bench.base.folder / "model.safetensors"
        return pairs(self.keys | {"model.init": str(model)})

    def entry(self, run: frame.Run, known: Mapping[str, Any]) -> Learned:
        rows = run.metrics()
        points = curve(rows)
        found = [accuracy for *_, accuracy in points]
        return Learned(
            best=max(found, default=None),
            last=found[-1] if found else None,
            tail=statistics.mean(found[-10:]) if found else None,
            base=self.bench.base.digest,
            loss=last(rows, LOSS),
            validation=last(rows, CHOSEN_BY),
            sent=sum(row["bytes_up"] for row in rows) / sum(row["clients"] for row in rows),
            curve=points,
            **known,
        )

    def figure(self, entry: Learned) -> str:
        return "diverged" if entry.last is None else f"{100 * entry.last:.1f}"


def last(rows: list[dict], metric: str) -> float | None:
    """Of the last round that was evaluated. A run that has diverged has no loss."""
    found = [row[metric] for row in rows if row.get(metric) is not None]
    return found[-1] if found else None


def curve(rows: list[dict]) -> list[list[float]]:
    """After each evaluation: the round, the bytes up until then, the accuracy."""
    sent, points = 0, []
    for row in rows:
        sent += row["bytes_up"]
        if row.get(ACCURACY) is not None:
            points.append([row["round"], sent, row[ACCURACY]])
    return points


def within(entry: Learned, budget: float) -> tuple[float, float]:
    """The last evaluation with at most so many bytes up: its round, and the accuracy in percent."""
    points = [(turn, 100 * found) for turn, sent, found in entry.curve if sent <= budget]
    return points[-1] if points else (math.nan, math.nan)


def until(entry: Learned, accuracy: float) -> float:
    """The bytes up until the accuracy was reached."""
    return next((sent for _, sent, found in entry.curve if found >= accuracy), math.nan)


def known(value: float | None) -> float:
    return math.nan if value is None else value


def cell(found: Iterable[float], digits: int = 1, *, spread: bool = True) -> str:
    """Mean and standard deviation; a dash where a run lacks it."""
    values = list(found)
    if any(map(math.isnan, values)):
        return "–"
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if spread and values[1:] else text


def table(found: Mapping[str, tuple[float, list[Learned]]]) -> str:
    """Of the rate and the entries of each way."""
    budgets = {one.seed: one.curve[-1][1] for one in found.get("lora 4", (0, []))[1] if one.curve}
    full = [known(one.last) for one in found.get("full", (0, []))[1]]
    target = statistics.mean(full) - SUFFICES / 100 if full else math.inf
    lines = []
    for name, (rate, entries) in found.items():
        line = [name, f"{rate:g}", str(len(entries))]
        line.append(f"{statistics.mean(one.sent for one in entries) / 1e3:.1f}")
        line.append(cell(100 * known(one.last) for one in entries))
        line.append(cell((known(one.loss) for one in entries), 3))
        # A seed that `lora 4` has not had gets what its others send.
        other = statistics.mean(budgets.values()) if budgets else 0
        points = [within(one, budgets.get(one.seed, other)) for one in entries]
        line.append(cell(accuracy for _, accuracy in points))
        line.append(cell((turn for turn, _ in points), 0, spread=False))
        needed = [until(one, target) / 1e6 for one in entries]
        line.append(cell(needed, spread=False))
        lines.append(line)
    return frame.table(HEAD, lines)


def about(entries: list[Learned]) -> str:
    """The command, and when and where the rows were made."""
    seeds = max(one.seed for one in entries)
    command = f"./dev bench lora --seeds {seeds} --write"
    return f"`{command}`; {when(entries)}, {where(entries)}, beside other work"


def main() -> None:
    parser = frame.parser(__doc__, rounds=ROUNDS, repeat=3)
    parser.add_argument("--speakers", type=pathlib.Path, metavar="PLAY")
    parser.add_argument("--quick", action="store_true")
    arguments(parser, frame.ROOT / "build/lora")
    options = parser.parse_args()
    bench = Bench(options)
    compared = options.again or options.check or options.table_only or options.write
    if bench.tried and compared:
        parser.error("--quick, --rounds and --speakers are for tries, which leave no entries")
    ways = [way for way in WAYS if all(text in way.name for text in options.only)]
    if not ways:
        parser.error(f"no row's name contains {' and '.join(map(repr, options.only))}")
    if bench.tried:
        print(frame.heading() + "\n\n" + bench.text_of(bench.made(ways)))
        return
    if options.check:
        bench.check(ways)
    elif not options.table_only:
        bench.made(ways)
    bench.cells.name_others()
    entries = bench.entries()
    bench.name_lacking(entries)
    if not bench.chosen(entries):
        say("lora: no way has its runs yet")
        return
    text = f"{about(entries)}\n\n{bench.text_of(entries)}"
    print(text)
    if options.write:
        frame.write(RESULTS, "lora", text)


if __name__ == "__main__":
    main()
