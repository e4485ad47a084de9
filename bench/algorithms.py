#!/usr/bin/env python3
"""Federated algorithms side by side, each with the rates that suit it.

Committed MNIST, 100 clients of `dirichlet-class` 0.1 (two or three digits each), 10 a round, five
local epochs. Every algorithm gets the same grid: lr and its own second rate (server_lr, or what the rule has instead)
are each chosen among at least three values by the accuracy on validation clients, who never train.
Then three seeds with the chosen pair: test accuracy (mean ± standard deviation) and rounds to 90 %.
The partition is the same for all seeds (partition.seed = data.seed = 1), so ± is over cohorts, initial weights and batches.
Writes the table, the whole grid and a plot. Needs no package beside Python's own.

  ./dev bench algorithms                    the whole comparison
  ./dev bench algorithms --only fedavg,scaffold --rounds 12 --seeds 1      a minute or two

Runs that are in --out already are not made again, so an interrupted comparison goes on.
"""
import argparse, itertools, json, pathlib, statistics, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LRS = [0.02, 0.05, 0.1]
# What is searched beside lr, and what is fixed. Values from the papers' ranges.
RULES = {
    "fedavg": ("server_lr", [0.5, 1.0, 1.5], {}),
    "fedprox": ("mu", [0.001, 0.01, 0.1], {}),
    "scaffold": ("server_lr", [0.5, 1.0, 1.5], {"weighted": "true"}),
    "fednova": ("server_lr", [0.5, 1.0, 1.5], {}),
    "feddyn": ("alpha", [0.01, 0.03, 0.1], {}),
    "fedadam": ("server_lr", [0.003, 0.01, 0.03], {}),
    "fedyogi": ("server_lr", [0.003, 0.01, 0.03], {}),
    "mime": ("server_lr", [0.5, 1.0, 1.5], {}),
}
CONFIG = f"""
[data]
source = "idx"
path = "{ROOT}/examples/data/mnist/t10k-images-idx3-ubyte.gz"
test_fraction = 0.1
heldout_clients = 0.2
[partition]
scheme = "dirichlet-class"
concentration = 0.1
clients = 100
min_size = 10
[model]
name = "lenet5"
[cohort]
size = 10
[local]
epochs = 5
batch_size = 10
[evaluation]
every = 2
clients = true
[workers]
processes = 1
"""


class Bench:
    def __init__(self, macaw, folder, rounds):
        self.macaw, self.folder, self.rounds = macaw, folder, rounds
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "base.toml").write_text(CONFIG)

    def run(self, rule, lr, second, seed):
        """Rows of metrics.jsonl, from disk where this very run was made before."""
        name, _, fixed = RULES[rule]
        out = self.folder / "runs" / f"{rule}-{lr}-{second}-{seed}-{self.rounds}"
        settings = {"algorithm.name": rule, "local.lr": lr, f"algorithm.{rule}.{name}": second,
                    "run.seed": seed, "run.rounds": self.rounds, "run.checkpoint_every": self.rounds,
                    "data.seed": 1, "partition.seed": 1,
                    **{f"algorithm.{rule}.{key}": value for key, value in fixed.items()}}
        if not (out / "summary.json").exists():
            command = [str(self.macaw), "simulate", str(self.folder / "base.toml"), "--quiet", "--force",
                       "--out", str(out)]
            for key, value in settings.items():
                command += ["--set", f"{key}={value}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return [json.loads(line) for line in open(out / "metrics.jsonl")]


def late(rows, column):
    """Mean over the last quarter of the evaluations: one round of ten clients is a noisy witness."""
    values = [row[column] for row in rows if column in row]
    return statistics.mean(values[-max(1, len(values) // 4):])


def rounds_to(rows, accuracy):
    return next((row["round"] for row in rows if row.get("test_accuracy", 0) >= accuracy), None)


# Told apart by more than colour: no two rules share both dashes and mark.
COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#b8730a", "#6a4c93", "#00838f", "#8d6e63", "#444444"]
DASHES = ["", "7 3", "2 3", "9 3 2 3"]
MARKS = {
    "disc": "M-4,0 a4,4 0 1,0 8,0 a4,4 0 1,0 -8,0",
    "square": "M-4,-4 h8 v8 h-8 z",
}


def spread(wanted, least, low, high):
    """Heights near the wanted ones, in their order, at least `least` apart and within [low, high]."""
    placed = []
    for want in wanted:
        placed.append(max(want, placed[-1] + least if placed else low))
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - least if i + 1 < len(placed) else high)
    return placed


def plot(path, curves, rounds):
    """Test accuracy over rounds: a line per algorithm, mean of its seeds, with their range, named at its end."""
    width, height, left, top, right = 860, 480, 60, 26, 190
    low = 0.2  # of the axis
    x = lambda r: left + (width - left - right) * (r - 1) / max(1, rounds - 1)
    y = lambda a: top + (height - top - 50) * (1 - (max(a, low) - low) / (1 - low))
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for tick in range(2, 11):
        a = tick / 10
        svg.append(f'<line x1="{left}" x2="{width - right}" y1="{y(a):.1f}" y2="{y(a):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(a) + 4:.1f}" text-anchor="end">{"≤ " if a == low else ""}{tick * 10} %</text>')
    for tick in range(0, rounds + 1, max(1, rounds // 5)):
        svg.append(f'<text x="{x(max(1, tick)):.1f}" y="{height - 28}" text-anchor="middle">{max(1, tick)}</text>')
    svg.append(f'<text x="{(left + width - right) / 2:.0f}" y="{height - 8}" text-anchor="middle">round</text>'
               f'<text x="{left}" y="{top - 10}">test accuracy: mean and range of the seeds</text>')
    means = {rule: [(r, statistics.mean(seed[r] for seed in seeds)) for r in seeds[0]]
             for rule, seeds in curves.items()}
    order = sorted(means, key=lambda rule: -means[rule][-1][1])  # as the lines end, from the top down
    heights = spread([y(means[rule][-1][1]) for rule in order], 17, top, height - 50)
    bands, lines = [], []
    for i, (rule, place) in enumerate(zip(order, heights)):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        mark = list(MARKS.values())[i // len(DASHES) % len(MARKS)]
        columns = [(r, [seed[r] for seed in curves[rule]]) for r in curves[rule][0]]
        band = [f"{x(r):.1f},{y(max(c)):.1f}" for r, c in columns]
        band += [f"{x(r):.1f},{y(min(c)):.1f}" for r, c in reversed(columns)]
        bands.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.1"/>')
        points = " ".join(f"{x(r):.1f},{y(a):.1f}" for r, a in means[rule])
        end, last = x(means[rule][-1][0]), means[rule][-1][1]
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>'
            f'<polyline points="{end + 2:.1f},{y(last):.1f} {end + 22:.1f},{place:.1f} {end + 46:.1f},{place:.1f}" '
            f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>'
            f'<path d="{mark}" transform="translate({end + 52:.1f},{place:.1f})" fill="{colour}"/>'
            f'<text x="{end + 62:.1f}" y="{place + 4:.1f}">{rule} {100 * last:.1f} %</text>')
    path.write_text("\n".join(svg + bands + lines + ["</svg>\n"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(RULES), help="algorithms, separated by commas")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--macaw", type=pathlib.Path, default=ROOT / "build/bin/macaw")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench-algorithms")
    options = parser.parse_args()
    rules = options.only.split(",")
    for rule in rules:
        if rule not in RULES:
            sys.exit(f"no algorithm '{rule}' here; known: {', '.join(RULES)}")
    bench, began = Bench(options.macaw, options.out, options.rounds), time.time()
    curves, table, grids = {}, [], []
    for rule in rules:
        name, values, _ = RULES[rule]
        grid = {(lr, second): late(bench.run(rule, lr, second, seed=1), "clients_test_accuracy_mean")
                for lr, second in itertools.product(LRS, values)}
        lr, second = max(grid, key=grid.get)
        grids.append(f"{rule:9} validation accuracy     " + "  ".join(f"{name} {v:g}".rjust(15) for v in values))
        for row in LRS:
            marks = ["*" if (row, v) == (lr, second) else " " for v in values]
            cells = "  ".join(f"{grid[row, v]:.4f}{mark}".rjust(15) for v, mark in zip(values, marks))
            grids.append(f"{'':9} lr {row:<20g} {cells}")
        runs = [bench.run(rule, lr, second, seed) for seed in range(1, options.seeds + 1)]
        final = [late(rows, "test_accuracy") for rows in runs]
        to_90 = [rounds_to(rows, 0.9) for rows in runs]
        spread = statistics.stdev(final) if len(final) > 1 else 0.0
        table.append(f"{rule:9} {lr:<6g} {name} {second:<8g}".ljust(34)
                     + f"{statistics.mean(final):.4f} ± {spread:.4f}   "
                     + " ".join("-" if r is None else str(r) for r in to_90))
        curves[rule] = [{row["round"]: row["test_accuracy"] for row in rows if "test_accuracy" in row}
                        for rows in runs]
        print(table[-1], flush=True)
    plot(options.out / "algorithms.svg", curves, options.rounds)
    report = "\n".join(
        [f"MNIST, 100 clients (20 of them for validation), dirichlet-class 0.1, 10 a round, {options.rounds} rounds, "
         f"seeds 1 to {options.seeds}", f"{'rule':9} {'lr':6} second rate       test accuracy     rounds to 90 %"]
        + table + ["", "The grid, seed 1 (* chosen):"] + grids + ["", f"{time.time() - began:.0f} s"])
    (options.out / "algorithms.txt").write_text(report + "\n")
    print(f"\n{report}\n\n{options.out}/algorithms.txt, algorithms.svg")


if __name__ == "__main__":
    main()
