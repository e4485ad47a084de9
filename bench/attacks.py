"""Robust rules under attack: final accuracy by rule, attack and fraction of hostile clients.

Committed MNIST, 20 clients, all of them in every round, 30 local steps, a network of one hidden layer (50,890
weights). Clients have equal shares (iid), and for the tables "skewed" other ones (dirichlet-class 0.5). Each rule has
one setting for all tables: trimmed_mean and krum are told to expect 30 % of the clients, and median, geometric_median
and centered_clipping hold up to half of them. Rules with "s = 2" judge ten buckets of two clients. fltrust's root is a
client that is honest at every fraction. Needs no package beside Python's own.

  ./dev bench attacks --write                             all tables, into results/attacks.md
  ./dev bench attacks --rules "fedavg;krum" --attacks alie --rounds 10     a part of it, printed only

Runs that are in --out already with the same settings are not made again, so an interrupted table continues.
"""

import functools
import math
import pathlib
import re
import statistics
import subprocess
import sys

import frame
from record import digest_of_settings
from recorded import side_by_side

ROUNDS = 30  # of the page
CLIENTS = 20
FRACTIONS = [0, 0.1, 0.2, 0.3, 0.45, 0.55]
# A rule's parameters, and the largest fraction that it is made for. Behind a comma: what tells it from others.
RULES = {
    "fedavg": ({}, 0.0),
    "median": ({}, 0.45),
    "median, s = 2": ({"bucket_size": 2}, 0.2),
    "trimmed_mean": ({"beta": 0.3}, 0.3),
    "krum": ({"f": 6, "m": 1}, 0.3),
    "krum, s = 2": ({"f": 3, "m": 1, "bucket_size": 2}, 0.15),
    "geometric_median": ({"iterations": 20}, 0.45),
    "centered_clipping": ({"radius": 1.0, "iterations": 3}, 0.45),
    "norm_bound": ({"bound": 1.0}, 0.0),
    "fltrust": ({"root": 0}, 0.55),
}
SKEW = {"partition.scheme": "dirichlet-class", "partition.concentration": 0.5}
# A table: the attack's keys, and other keys of its runs.
ATTACKS = {
    "label-flip": ({}, {}),
    "sign-flip": ({"scale": 10}, {}),
    "scaling": ({"scale": 100}, {}),
    "free-rider": ({"noise": 0.1}, {}),
    "inner-product": ({"scale": 0.5}, {}),
    "alie": ({}, {}),
    "alie, skewed": ({"z": 1.5}, SKEW),
    "inner-product, skewed": ({"scale": 0.5}, SKEW),
    "min-max": ({}, {}),
    "min-sum": ({}, {}),
    "min-max, skewed": ({}, SKEW),
    "mimic, skewed": ({}, SKEW),
    "backdoor": ({"target": 7, "scale": 4}, {}),
}
FAILED = 0.7  # accuracy below this is called a failure
# What ends a run in which a rule has taken no client's update (server/engine/closing.cc).
ALL_LEFT_OUT = r"error: round \d+: all \d+ clients had to be left out; "
MISLED = 0.5  # so is a backdoor's success above this
CONFIG = f"""
[data]
source = "idx"
path = "{frame.ROOT}/examples/data/mnist/t10k-images-idx3-ubyte.gz"
test_fraction = 0.1
[partition]
scheme = "iid"
clients = {CLIENTS}
[model]
layers = ["flatten", "linear 64", "relu", "linear 10"]
[cohort]
size = {CLIENTS}
[local]
steps = 30
batch_size = 20
lr = 0.1
[evaluation]
every = 0
[workers]
processes = 1
slots = 1
"""


def settings_of(rule, attack, fraction, rounds):
    keys, others = ATTACKS[attack]
    parameters, rule = RULES[rule][0], rule.split(",")[0]
    settings = {"algorithm.name": rule, "run.rounds": rounds, "run.checkpoint_every": rounds, "run.seed": 1, **others}
    settings |= {f"algorithm.{rule}.{key}": value for key, value in parameters.items()}
    if fraction > 0:
        settings |= {"attack.kind": attack.split(",")[0], "attack.fraction": fraction}
        settings |= {f"attack.{key}": value for key, value in keys.items()}
    return [f"{key}={value}" for key, value in settings.items()]


class Bench:
    def __init__(self, macaw, folder, rounds):
        self.macaw, self.folder, self.rounds = macaw, folder, rounds
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "base.toml").write_text(CONFIG)

    def last_row(self, rule, attack, fraction):
        """Of the metrics; None: no client's update was taken."""
        name = f"{rule}-{attack}-{fraction}".replace(", ", "-").replace(" = ", "")
        settings = settings_of(rule, attack, fraction, self.rounds)
        out = self.folder / "runs" / f"{name}-{self.rounds}-{digest_of_settings(CONFIG, settings)[:12]}"
        if not (out / "summary.json").exists():
            command = frame.command(self.macaw, self.folder / "base.toml", out, settings) + ["--force"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                if re.search(ALL_LEFT_OUT, done.stderr):
                    return None
                sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return frame.Run(out).metrics()[-1]


def cell(rule, fraction, row):
    """The accuracy, where the model is finite; and of a backdoor its success."""
    accuracy, success = (row or {}).get("test_accuracy"), (row or {}).get("backdoor_success")
    text = "–" if accuracy is None else f"{100 * accuracy:.1f}"
    if success is not None:
        text += f" / {100 * success:.0f}"
    failed = accuracy is None or accuracy < FAILED or (success or 0) > MISLED
    inside = fraction <= RULES[rule][1]
    return f"**{text}**" if failed and inside else f"*{text}*" if failed else text


def deviations(fraction):
    """alie's z where attack.z is not given (algorithms/around/attack.h), the column rule_attack_z."""
    m = math.floor(fraction * CLIENTS + 1e-9)
    wanted = (CLIENTS - m - (math.floor(CLIENTS / 2 + 1) - m)) / (CLIENTS - m)
    return 0.0 if wanted <= 0.5 else min(3.0, statistics.NormalDist().inv_cdf(min(wanted, 0.999)))


def column(attack, fraction):
    """The head of a column; z is the strength of an attack and grows with the fraction."""
    z = f", z = {deviations(fraction):.2g}" if attack == "alie" and fraction > 0 else ""
    return f"{100 * fraction:g} %{z}"


def table(rows, attack, rules):
    parameters = ", ".join(f"{key} = {value}" for key, value in ATTACKS[attack][0].items())
    lines = [
        f"### {attack}" + (f", {parameters}" if parameters else ""),
        "",
        frame.table(
            ["rule", *(column(attack, f) for f in FRACTIONS)],
            ([rule, *(cell(rule, f, rows[rule, attack, f]) for f in FRACTIONS)] for rule in rules),
        ),
    ]
    return lines


def main():
    parser = frame.parser(__doc__, rounds=ROUNDS, repeat=1)
    parser.add_argument("--rules", default=";".join(RULES), help="separated by semicolons")
    parser.add_argument("--attacks", default=";".join(ATTACKS), help="separated by semicolons")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, one slot each")
    parser.add_argument("--out", type=pathlib.Path, default=frame.ROOT / "build/bench-attacks")
    parser.add_argument("--write", action="store_true", help="write results/attacks.md, if the table is whole")
    options = parser.parse_args()
    rules, attacks = options.rules.split(";"), options.attacks.split(";")
    for word, known in [(rule, RULES) for rule in rules] + [(attack, ATTACKS) for attack in attacks]:
        if word not in known:
            sys.exit(f"there is no '{word}' here; known: {', '.join(known)}")
    part = {"--rules": set(rules) != set(RULES), "--attacks": set(attacks) != set(ATTACKS)}
    frame.refuse_part(parser, options, {**part, "--rounds": options.rounds != ROUNDS})
    bench = Bench(options.macaw, options.out, options.rounds)
    jobs = [(rule, attack, f) for attack in attacks for rule in rules for f in FRACTIONS]
    found = side_by_side([functools.partial(bench.last_row, *job) for job in jobs], options.jobs)
    rows = dict(zip(jobs, found, strict=True))
    settings = [
        f"- {rule}"
        + (": " + ", ".join(f"{k} = {v}" for k, v in RULES[rule][0].items()) if RULES[rule][0] else "")
        + f"; made for {100 * RULES[rule][1]:g} %"
        for rule in rules
    ]
    lines = settings + [""] + [line for attack in attacks for line in table(rows, attack, rules)]
    print(frame.heading(), f"{len(jobs)} runs", "", *lines, sep="\n")
    if options.write:
        write(lines, options.rounds)


def write(lines, rounds):
    """Replaces the tables of the page, and leaves the words around them."""
    page = frame.ROOT / "bench/results/attacks.md"
    begin, end = "<!-- tables -->", "<!-- end of tables -->"
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n{rounds} rounds.\n\n" + "\n".join(lines) + f"{end}{after}")


if __name__ == "__main__":
    main()
