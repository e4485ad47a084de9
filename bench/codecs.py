"""Codecs in real training: accuracy, bytes, and how long what a client sends and fetches takes.

./dev bench codecs [--table NAME] [--images PATH] [--only TEXT] [--rounds N] [--repeat N]
                   [--write]

  population   LeNet-5 on MNIST, 1000 clients with few digits each (Dirichlet 0.3 over clients), 20
               a round. The images are those of examples/mnist10k.toml, or of a folder with the four
               files of MNIST (--images).
  silos        the same, of 10 clients, all of them in each round
  cifar        simple_cnn on CIFAR-10, an .npz of x_train, y_train, x_test, y_test (--images), 100
               clients (Dirichlet 0.5 over clients), 10 a round
  resnet       the same data and clients, a ResNet of eight layers with group norm (LibTorch)

All runs of a table have the same cohorts. A row: accuracy after the last round and the best; bytes
that a client sends and fetches in a round (means over the run); all bytes, and those until the test
accuracy was what the head says; the seconds that both take a client at 1 and at 10 Mbit/s. Means
over seeds. --only: rows whose text contains TEXT. --write puts the table into results/codecs.md.
"""

import pathlib
import statistics
import sys
import tempfile

import frame

# Codec of updates, feedback (and update.adapt), codec of the broadcast.
POPULATION = [
    ([], "auto", []),
    (["topk 0.01"], "none", []),
    (["topk 0.01"], "residual", []),
    (["topk 0.01"], "ef21", []),
    (["topk 0.1"], "none", []),
    (["topk 0.1"], "ef21", []),
    (["topk 0.05", "bits 8"], "none", []),
    (["randomk 0.1"], "none", []),
    (["qsgd 7"], "none", []),
    (["bits 4"], "none", []),
    (["bits 8"], "none", []),
    (["terngrad"], "none", []),
    (["rotate", "terngrad"], "none", []),
    (["bits 2"], "none", []),
    (["rotate", "bits 2"], "none", []),
    (["sign"], "none", []),
    (["sign"], "ef21", []),
    (["rotate", "sign"], "none", []),
    (["rotate", "sign unbiased"], "none", []),
    (["bf16"], "none", []),
    (["powersgd 4"], "none", []),
    (["acpsgd 4"], "none", []),
    (["acpsgd 4"], "residual", []),
    (["powersgd 3"], "none", []),
    (["powersgd 4"], "none, adapt 20", []),
    (["acpsgd 4"], "none, adapt 20", []),
    (["acpsgd 4"], "residual, adapt 20", []),
    ([], "auto", ["bf16"]),
    ([], "auto", ["bits 8"]),
    ([], "auto", ["bits 4"]),
    (["bits 8"], "none", ["bits 8"]),
    (["terngrad"], "none", ["bits 8"]),
    (["terngrad"], "none", ["bits 6"]),
]
SILOS = [
    ([], "auto", []),
    (["bits 4"], "none", ["bits 4"]),
    (["terngrad"], "none", ["bits 2"]),
    (["topk 0.01"], "residual", []),
    (["topk 0.01"], "residual", ["topk 0.01"]),
    (["topk 0.01", "bits 8"], "residual", ["topk 0.05", "bits 8"]),
    (["sign"], "residual", ["sign"]),
    (["acpsgd 3"], "residual", []),
    (["acpsgd 4"], "residual", []),
    (["acpsgd 4"], "residual, adapt 20", []),
    (["acpsgd 4"], "residual", ["bits 4"]),
    (["powersgd 2"], "residual", ["bits 4"]),
]
CIFAR = [
    ([], "auto", []),
    (["bits 4"], "none", []),
    (["terngrad"], "none", []),
    (["topk 0.01"], "residual", []),
    (["acpsgd 4"], "residual", []),
    (["powersgd 4"], "none", []),
    (["bits 4"], "none", ["bits 8"]),
]
RESNET = [
    ([], "auto", []),
    (["powersgd 2"], "none", []),
    (["powersgd 4"], "none", []),
    (["acpsgd 4"], "residual", []),
    (["bits 4"], "none", []),
    (["topk 0.01"], "residual", []),
]
RESNET_LAYERS = [
    "conv 16 3 pad 1 nobias", "groupnorm 2", "relu", "block 16", "block 32 stride 2",
    "block 64 stride 2", "globalavgpool", "flatten", "linear 10",
]  # fmt: skip
TABLES = {
    "population": (POPULATION, 0.9),
    "silos": (SILOS, 0.9),
    "cifar": (CIFAR, 0.5),
    "resnet": (RESNET, 0.5),
}
RESULTS = frame.ROOT / "bench/results/codecs.md"
HEAD = [
    "codec",
    "feedback",
    "broadcast",
    "accuracy",
    "best",
    "kB up",
    "of dense",
    "kB down",
    "MB in all",
]


def listed(codec: list[str]) -> str:
    return "[" + ", ".join(f'"{line}"' for line in codec) + "]"


def settings(update, feedback: str, broadcast, seed: int, options) -> list[str]:
    found = [f"run.seed={seed}", f"run.rounds={options.rounds}", "evaluation.every=5"]
    images = options.images
    if options.table == "population":
        found += ["cohort.size=20", "local.epochs=1"]
    elif options.table == "silos":
        found += ["cohort.size=10", "partition.clients=10", "local.epochs=1", "local.lr=0.05"]
        found += ["local.batch_size=100"]
    else:
        found += ["data.source=npz", f"data.path={images}", "data.test_fraction=0"]
        found += ["partition.clients=100", "partition.concentration=0.5"]
        found += ["cohort.size=10", "local.epochs=1", "local.batch_size=32"]
        if options.table == "cifar":
            found += ["model.name=simple_cnn", "local.lr=0.05"]
        else:
            found += [f"model.layers={listed(RESNET_LAYERS)}", "local.lr=0.1"]
    if images and options.table in ("population", "silos"):
        found += [f"data.path={images}/train-images-idx3-ubyte.gz", "data.test_fraction=0"]
        found += [f"data.test_path={images}/t10k-images-idx3-ubyte.gz"]
    if update:
        feedback, _, adapt = feedback.partition(", adapt ")
        found += [f"update.codec={listed(update)}", f"update.feedback={feedback}"]
        found += [f"update.adapt={adapt}"] if adapt else []
    if broadcast:
        found += [f"broadcast.codec={listed(broadcast)}"]
    return found


def measure(codecs, options, folder: pathlib.Path, goal: float) -> dict[str, float]:
    seeds = []
    for seed in range(1, options.repeat + 1):
        run = frame.simulate(
            options.macaw,
            frame.ROOT / "examples/mnist10k.toml",
            folder / "run",
            settings(*codecs, seed, options),
        )
        sums, clients = run.summary["bytes"], sum(row["clients"] for row in run.metrics())
        to = run.summary["bytes_to"].get(str(goal))
        seeds.append({
            "last": run.summary["final"]["test_accuracy"],
            "best": run.summary["bests"]["test_accuracy"]["value"],
            "up": sums["up"] / clients,
            "down": sums["down"] / clients,
            "all": sums["up"] + sums["down"],
            "to": None if to is None else to["up"] + to["down"],
        })  # fmt: skip
    means = {k: statistics.mean(s[k] for s in seeds) for k in ("last", "best", "up", "down", "all")}
    reached = [s["to"] for s in seeds if s["to"] is not None]
    means["to"] = statistics.mean(reached) if len(reached) == len(seeds) else float("nan")
    return means


def row(codecs, found: dict[str, float], dense: float) -> list[str]:
    update, feedback, broadcast = codecs
    both = found["up"] + found["down"]
    return [
        ", ".join(update) or "none",
        feedback if update else "",
        ", ".join(broadcast) or "none",
        f"{100 * found['last']:.1f}",
        f"{100 * found['best']:.1f}",
        f"{found['up'] / 1e3:.1f}",
        f"1/{dense / found['up']:.1f}" if dense else "–",  # --only left dense updates out
        f"{found['down'] / 1e3:.1f}",
        f"{found['all'] / 1e6:.1f}",
        "–" if found["to"] != found["to"] else f"{found['to'] / 1e6:.1f}",
        *(f"{8 * both / rate:.2f}" for rate in (1e6, 1e7)),
    ]


def main() -> None:
    parser = frame.parser(__doc__, rounds=100, repeat=1)
    parser.add_argument("--table", choices=TABLES, default="population")
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    frame.refuse_part(parser, options, {"--only": bool(options.only)})
    if options.table in ("cifar", "resnet") and not options.images:
        parser.error(f"--table {options.table} needs --images FILE.npz")
    rows, dense = [], 0.0
    chosen, goal = TABLES[options.table]
    about = frame.heading()
    head = [*HEAD, f"to {100 * goal:.0f} %", "s at 1 Mbit/s", "10"]
    with tempfile.TemporaryDirectory() as folder:
        for codecs in chosen:
            if options.only not in ", ".join([*codecs[0], codecs[1], *codecs[2]]):
                continue
            found = measure(codecs, options, pathlib.Path(folder), goal)
            dense = dense or (0.0 if codecs[0] else found["up"])
            rows.append(row(codecs, found, dense))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    table = f"{about}\n\n{frame.table(head, rows)}"
    print(table)
    if options.write:
        frame.write(RESULTS, options.table, table)


if __name__ == "__main__":
    main()
