"""Adapters beside full training: accuracy at equal rounds and at equal bytes.

./dev bench lora --speakers TEXT [--only TEXT] [--rounds N] [--repeat N] [--quick] [--write]

TEXT is a play such as tinyshakespeare, where an empty line ends a speech and a name with a colon
begins one. Every second speaker is of the base: a transformer of two blocks learns the next
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
the base's. Runs that are in --out already are not made again. --quick: few rounds, one rate, and
without --speakers a play that is made here. --write puts the table into results/lora.md.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import statistics
import sys

import frame

sys.path.insert(0, str(frame.ROOT / "tests/oracle"))
import speakers

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
RESULTS, MARK = frame.ROOT / "bench/results/lora.md", "<!-- tables -->"
HEAD = "# Adapters beside full training\n\n`./dev bench lora --speakers PLAY --write`\n\n"


def toml(value) -> str:
    return json.dumps(value) if isinstance(value, (str, list)) else str(value)


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


def halves(options, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The data of the base's speakers and that of the clients."""
    places = {name: folder / name for name in ("base", "clients")}
    if all((place / "test/data.json").exists() for place in places.values()):
        return places
    text = options.speakers.read_text(encoding="utf-8") if options.speakers else made_up_play()
    text = text.encode("ascii", "replace").decode().replace("\r\n", "\n")
    train, test = speakers.make(text, length=80, test=0.3, least=30)
    if len(train["users"]) < 4:
        sys.exit(f"{options.speakers}: fewer than four speakers have 30 rows: is it a play?")
    for first, place in enumerate(places.values()):
        for half, name in ((train, "train"), (test, "test")):
            users = {
                user: (half["user_data"][user]["x"], half["user_data"][user]["y"])
                for user in train["users"][first::2]
                if user in half["user_data"]
            }
            (place / name).mkdir(parents=True, exist_ok=True)
            (place / name / "data.json").write_text(json.dumps(speakers.leaf(users)))
    return places


class Bench:
    def __init__(self, options, folder: pathlib.Path) -> None:
        self.options, self.folder = options, folder
        self.data = halves(options, folder)

    def run(self, name: str, half: str, keys: dict) -> frame.Run:
        """A run on one half of the speakers, unless it is there."""
        out = self.folder / "runs" / name
        if not (out / "summary.json").exists():
            config = self.folder / f"{half}.toml"
            config.write_text(BASE.format(data=self.data[half]))
            words = [f"{key}={toml(value)}" for key, value in keys.items()]
            frame.simulate(self.options.macaw, config, out, words)
        return frame.Run(out)

    def base(self) -> pathlib.Path:
        rounds = 4 if self.options.quick else 300
        keys = {"run.rounds": rounds, "local.lr": 0.3, "evaluation.every": rounds}
        return self.run("base", "base", keys).folder / "model.safetensors"

    def one(self, way: Way, rate: float, seed: int) -> frame.Run:
        name = f"{way.name}-{rate}-{seed}".replace(" ", "-").replace(",", "")
        common = {"run.rounds": self.options.rounds, "run.seed": seed, "local.lr": rate}
        start = {"model.init": str(self.base())}
        return self.run(name, "clients", common | start | way.keys)

    def all(self, way: Way) -> tuple[float, list[frame.Run]]:
        """The rate of the lowest validation loss, and its runs."""
        rates = way.rates[:1] if self.options.quick else way.rates
        losses = {rate: last(self.one(way, rate, 1), CHOSEN_BY) for rate in rates}
        rate = min(losses, key=lambda r: losses[r])
        return rate, [self.one(way, rate, seed) for seed in range(1, self.options.repeat + 1)]


def last(run: frame.Run, metric: str) -> float:
    """Of the last round that was evaluated. A run that has diverged has no loss."""
    found = [row[metric] for row in run.metrics() if row.get(metric) is not None]
    return found[-1] if found else float("inf")


def curve(run: frame.Run) -> list[tuple[int, float, float]]:
    """After each evaluation: the round, the bytes up until then, the accuracy."""
    sent, points = 0, []
    for row in run.metrics():
        sent += row["bytes_up"]
        if row.get(ACCURACY) is not None:
            points.append((row["round"], sent, row[ACCURACY]))
    return points


def within(run: frame.Run, budget: float) -> tuple[int, float] | None:
    """The last evaluation with at most so many bytes up: its round and accuracy."""
    points = [(turn, accuracy) for turn, sent, accuracy in curve(run) if sent <= budget]
    return points[-1] if points else None


def until(run: frame.Run, accuracy: float) -> float | None:
    """The bytes up until the accuracy was reached."""
    return next((sent for _, sent, found in curve(run) if found >= accuracy), None)


def cell(values: list[float], digits: int = 1) -> str:
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def trained(run: frame.Run) -> float:
    """Kilobytes that a client sends in a round."""
    rows = run.metrics()
    return sum(row["bytes_up"] for row in rows) / sum(row["clients"] for row in rows) / 1e3


def table(found: dict[str, tuple[float, list[frame.Run]]]) -> str:
    budgets = [curve(run)[-1][1] for run in found["lora 4"][1]] if "lora 4" in found else None
    target = None
    if "full" in found:
        reached = statistics.mean(curve(run)[-1][2] for run in found["full"][1])
        target = reached - SUFFICES / 100
    lines = []
    for name, (rate, runs) in found.items():
        ends = [curve(run)[-1] for run in runs]
        line = [name, f"{rate:g}", f"{statistics.mean(map(trained, runs)):.1f}"]
        line.append(cell([100 * accuracy for *_, accuracy in ends]))
        line.append(cell([last(run, LOSS) for run in runs], 3))
        points = [within(run, b) for run, b in zip(runs, budgets)] if budgets else []
        if points and None not in points:
            line.append(cell([100 * accuracy for _, accuracy in points]))
            line.append(f"{statistics.mean(turn for turn, _ in points):.0f}")
        else:
            line += ["–", "–"]
        needed = [until(run, target) for run in runs] if target is not None else [None]
        line.append("–" if None in needed else f"{statistics.mean(needed) / 1e6:.1f}")
        lines.append(line)
    heads = [
        "trained",
        "lr",
        "kB up a client",
        "accuracy",
        "loss",
        "at equal bytes",
        "rounds",
        "MB until",
    ]
    return frame.table(heads, lines)


def main() -> None:
    parser = frame.parser(__doc__, rounds=200, repeat=3)
    parser.add_argument("--speakers", type=pathlib.Path, metavar="TEXT")
    parser.add_argument("--only", default="", help="rows whose name contains it")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=frame.ROOT / "build/lora")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.speakers is None and not options.quick:
        sys.exit("it needs a play: --speakers FILE (--quick makes one up)")
    if options.quick:
        options.rounds, options.repeat = 10, 1
    folder = options.out / ("quick" if options.quick else str(options.rounds))
    folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options, folder)
    ways = [way for way in WAYS if options.only in way.name]
    if not ways:
        sys.exit(f"no row's name contains '{options.only}'")
    text = table({way.name: bench.all(way) for way in ways})
    print(frame.heading() + "\n\n" + text)
    if options.write:
        head = RESULTS.read_text().split(MARK)[0] if RESULTS.exists() else HEAD
        RESULTS.write_text(head + MARK + "\n" + text)


if __name__ == "__main__":
    main()
