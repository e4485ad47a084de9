"""Personal rules beside common ones, their floor and their ceiling, three seeds each.

./dev bench personal [SCENARIO...] [--speakers TEXT] [--repeat N] [--rounds N]

Scenarios:
  labels     MNIST, 40 clients with a few digits each (Dirichlet 0.1 over clients), a convolutional
             network with batch norm
  features   MNIST, 40 clients with all digits, in four groups whose images are turned by 0, 90, 180
             and 270 degrees; the same network
  speakers   plays by speaker (--speakers: a text such as tinyshakespeare, where an empty line ends
             a speech and a name with a colon begins one), next character, a block of a transformer; fedbn
             keeps its layer norms

A `macaw sweep` for each. Personal accuracy: each client's own test rows, at the model that the rule
gives the client (the client's own where it has one, else the common one). Common accuracy: the same
rows, at the common model. Worst: the mean over the worst tenth of the clients, personal. All in
percent, mean ± standard deviation over seeds. --write puts the tables into results/personal.md.
Runs that are in --out already are not made again. --rounds: fewer, to try it, not to be written.
--repeat: seeds.
"""

import csv
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys

import frame
from record import digest, locked

sys.path.insert(0, str(frame.ROOT / "tests/oracle"))
from speakers import write as play_by_speaker  # noqa: E402

IMAGES = f"""
[data]
source = "idx"
path = "{frame.ROOT}/examples/data/mnist/t10k-images-idx3-ubyte.gz"
test_fraction = 0.1
client_test_fraction = 0.3
[model]
layers = ["conv 8 5 pad 2", "batchnorm", "relu", "maxpool 2", "conv 16 5 pad 2", "batchnorm",
          "relu", "maxpool 2", "flatten", "linear 10"]
[cohort]
size = 10
[local]
epochs = 2
batch_size = 20
lr = 0.05
[evaluation]
every = 0
clients = true
fine_tune.steps = 20
[partition]
clients = 40
min_size = 40
"""
# Rules with the parameters that differ from their defaults.
RULES = [
    {"name": "fedavg"},
    {"name": "fedprox", "fedprox.mu": 0.1},
    {"name": "scaffold"},
    {"name": "fedbn"},
    {"name": "fedrep"},
    {"name": "ditto", "ditto.lambda": 0.1},
]


@dataclasses.dataclass(frozen=True)
class Scenario:
    base: str  # the configuration, as text
    rounds: int
    rules: list[dict]
    # Rules that need other settings: a rule, and the keys that differ.
    apart: tuple[tuple[dict, dict], ...] = ()


SCENARIOS = {
    "labels": Scenario(IMAGES + 'scheme = "dirichlet-class"\nconcentration = 0.1\n', 40, RULES),
    "features": Scenario(
        IMAGES.replace("[model]", 'concept_shift = "rotation"\n[model]') + 'scheme = "iid"\n', 24, RULES
    ),
    "speakers": Scenario(
        """
[data]
source = "leaf"
path = "SPEAKERS/train"
test_path = "SPEAKERS/test"
[model]
layers = ["embedding 97 32", "positions", "transformer heads 2 ff 64 causal", "layernorm", "linear 97"]
[cohort]
size = 10
[local]
epochs = 1
batch_size = 20
lr = 0.3
momentum = 0.9
clip_norm = 5.0
[evaluation]
every = 0
clients = true
fine_tune = {steps = 20, lr = 0.1}
""",
        200,
        [{**rule, "fedbn.local": "*norm*"} if rule["name"] == "fedbn" else rule for rule in RULES],
        # A round of pooled is a pass over all rows.
        apart=(({"name": "pooled"}, {"run.rounds": 40}),),
    ),
}
RESULTS, MARK = frame.ROOT / "bench/results/personal.md", "<!-- tables -->"
NAMES = {"tuned": "fedavg, then 20 steps", "local": "local (floor)", "pooled": "pooled (ceiling)"}
ORDER = ["local", "pooled", "fedavg", "fedprox", "scaffold", "fedbn", "fedrep", "ditto", "tuned"]


def toml(value) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value).lower()


def runs_of(scenario: str, options, folder: pathlib.Path) -> list[dict]:
    """The summaries of all runs of a scenario."""
    what = SCENARIOS[scenario]
    base, place = what.base, folder
    if scenario == "speakers":
        if options.speakers is None:
            sys.exit("scenario speakers needs a text: --speakers FILE")
        place = speakers(folder, options.speakers)
        base = base.replace("SPEAKERS", str(place))
    apart = {rule["name"]: (rule, settings) for rule, settings in what.apart}
    baselines = [name for name in ("local", "pooled") if name not in apart]
    rounds = {"run.rounds": what.rounds}
    found = sweep(place / scenario, base, what.rules, baselines, rounds, options)
    for name, (rule, settings) in apart.items():
        out = place / f"{scenario}-{name}"
        found += sweep(out, base, [rule], [], rounds | settings, options)
    return found


def sweep(out: pathlib.Path, base: str, rules: list[dict], baselines: list[str], settings: dict, options) -> list[dict]:
    """The summaries of its runs: each rule and baseline with each seed. Settings: other keys than base's."""
    tables = ", ".join("{" + ", ".join(f"{key} = {toml(value)}" for key, value in rule.items()) + "}" for rule in rules)
    if options.rounds:
        settings = settings | {"run.rounds": options.rounds}
    keys = "".join(f"{key} = [{toml(value)}]\n" for key, value in settings.items())
    file = out.with_suffix(".toml")
    file.write_text(
        f'seeds = {list(range(1, options.repeat + 1))}\nmetric = "clients_test_accuracy"\n'
        f"baselines = {json.dumps(baselines)}\n[keys]\nalgorithm = [{tables}]\n{keys}"
        "[base]\n" + base.replace("\n[", "\n[base.")
    )
    subprocess.run([options.macaw, "sweep", file, "--out", out], check=True, stdout=sys.stderr)
    return [json.loads((run / "summary.json").read_text()) for run in listed(out)]


def listed(out: pathlib.Path) -> list[pathlib.Path]:
    """The runs that the sweep's table names: the folder keeps those of earlier sweeps, too."""
    with (out / "table.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        out / f"runs/{line['configuration']}-seed{seed}"
        for line in lines
        for seed in line["seeds"].split()
    ]


def speakers(folder: pathlib.Path, play: pathlib.Path) -> pathlib.Path:
    """Those with 30 rows or more, 30 % of them test rows."""
    made = folder / f"speakers-{digest(play.read_bytes())[:12]}"
    made.mkdir(exist_ok=True)
    with locked(made):
        if not (made / "whole").exists():
            play_by_speaker(play, made, test=0.3, least=30)
            (made / "whole").touch()
    return made


def rows(summaries: list[dict]) -> dict[str, dict[str, list[float]]]:
    """By rule: personal, common, worst; a value a seed."""
    table: dict[str, dict[str, list[float]]] = {}
    for summary in summaries:
        final, rule = summary["final"], summary["algorithm"]
        own = "clients_test_accuracy"
        shared = final.get("clients_test_global_accuracy", final[own])
        add(table, rule, final[own], None if rule == "local" else shared, final[own + "_worst10"])
        if rule == "fedavg":
            tuned = "clients_test_tuned_accuracy"
            add(table, "tuned", final[tuned], shared, final[tuned + "_worst10"])
    return table


def add(table, rule: str, personal: float, common: float | None, worst: float) -> None:
    row = table.setdefault(rule, {"personal": [], "common": [], "worst": []})
    row["personal"].append(personal)
    row["worst"].append(worst)
    if common is not None:
        row["common"].append(common)


def cell(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def table(name: str, summaries: list[dict]) -> str:
    found = rows(summaries)
    lines = [
        [NAMES.get(rule, rule), *(cell(found[rule][c]) for c in ("personal", "common", "worst"))]
        for rule in ORDER
        if rule in found
    ]
    rounds = {summary["algorithm"]: summary["rounds"] for summary in summaries}
    about = f"{rounds['fedavg']} rounds, 10 clients in each."
    if rounds["pooled"] != rounds["fedavg"]:
        about += f" Pooled: {rounds['pooled']}, each a pass over all rows."
    return f"## {name}\n{about}\n\n" + frame.table(["rule", "personal", "common", "worst tenth"], lines)


def main() -> None:
    parser = frame.parser(__doc__, rounds=0, repeat=3)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--speakers", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=frame.ROOT / "build/personal")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    part = {"SCENARIO": set(options.scenarios) != set(SCENARIOS), "--rounds": bool(options.rounds)}
    frame.refuse_part(parser, options, part)
    folder = options.out / (str(options.rounds) if options.rounds else "full")
    folder.mkdir(parents=True, exist_ok=True)
    tables = [table(name, runs_of(name, options, folder)) for name in options.scenarios]
    print(frame.heading() + "\n\n" + "\n".join(tables))
    if options.write:
        text = RESULTS.read_text().split(MARK)[0]
        RESULTS.write_text(text + MARK + "\n" + "\n".join(tables))


if __name__ == "__main__":
    main()
