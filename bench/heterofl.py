"""HeteroFL: clients of five widths train one model, beside models of one width.

./dev bench heterofl [--images FOLDER] [--division iid|classes] [--network small|paper]
                     [--rounds N] [--seeds N] [--only TEXT] [--write]

The settings of Diao et al. 2021 for MNIST: 100 clients, ten a round, five epochs of batches of ten,
SGD at 0.01 with momentum 0.9, decay 5e-4 and a clip at 1; equal shares of rows, or of two classes
each (--division classes). Rates are 1 (a), 0.5 (b), 0.25 (c), 0.125 (d) and 0.0625 (e). The images
are those of examples/mnist10k.toml, of which 1,000 are for testing, or of a folder with the four
files of MNIST (--images). --network paper: four convolutions with 64 to 512 channels and batch
norm, which LibTorch trains; small: two convolutions and a hidden layer without a norm. The paper
has 200 rounds (400 with --division classes), and static batch norm, which is left out here.

A row: clients' rates; test accuracy of the whole model at the end and at best, and of the narrowest
that is trained (of the same run, tested with zeros around and the scaler in its weights); bytes that a client sends in a round,
KB; seconds here, of the first run. Medians of the seeds. --write: into results/heterofl.md.
"""

import pathlib
import statistics
import sys
import tempfile
import time

import frame

NETWORKS = {
    "small": [
        "conv 16 5 pad 2", "relu", "maxpool 2", "conv 32 5 pad 2", "relu", "maxpool 2", "flatten",
        "linear 128", "relu", "linear 10",
    ],
    "paper": [
        *(word for channels in (64, 128, 256) for word in
          (f"conv {channels} 3 pad 1", "batchnorm", "relu", "maxpool 2")),
        "conv 512 3 pad 1", "batchnorm", "relu", "globalavgpool", "flatten", "linear 10",
    ],
}  # fmt: skip


def of(rates: str, *settings: str) -> list[str]:
    keys = [f'rates="{rates}"', *settings]
    return ["algorithm.name=heterofl", *(f"algorithm.heterofl.{key}" for key in keys)]


ALL = "1 0.5 0.25 0.125 0.0625"
# The way, its narrowest rate, and its settings.
WAYS = [
    ("a: FedAvg", 1.0, ["algorithm.name=fedavg"]),
    ("a and e, dynamic", 0.0625, of("1 0.0625", "assign=dynamic")),
    ("a to e, dynamic", 0.0625, of(ALL, "assign=dynamic")),
    ("a to e, fix", 0.0625, of(ALL)),
    ("a to e, fix, without the scaler", 0.0625, of(ALL, "scaler=false")),
    ("b alone", 0.5, of("0.5", "scaler=false")),
    ("e alone", 0.0625, of("0.0625", "scaler=false")),
]  # fmt: skip
HEAD = ["clients", "whole", "best", "narrowest", "KB up", "s here"]
RESULTS = frame.ROOT / "bench/results/heterofl.md"


def configuration(options) -> str:
    images = options.images or frame.ROOT / "examples/data/mnist"
    first = "train" if options.images else "t10k"
    scheme = "iid" if options.division == "iid" else "k-classes"
    lines = [
        "[run]", 'name = "heterofl"', f"rounds = {options.rounds}",
        "[data]", 'source = "idx"', f'path = "{images}/{first}-images-idx3-ubyte.gz"',
        f'test_path = "{images}/t10k-images-idx3-ubyte.gz"' if options.images
        else "test_fraction = 0.1",
        "[partition]", f'scheme = "{scheme}"', "clients = 100",
        "[model]", f"layers = {NETWORKS[options.network]!r}".replace("'", '"'),
        "[cohort]", "size = 10", 'weight = "uniform"',
        "[local]", "epochs = 5", "batch_size = 10", "lr = 0.01", "momentum = 0.9",
        "weight_decay = 5e-4", "clip_norm = 1",
        "[evaluation]", f"every = {max(1, options.rounds // 20)}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def measure(narrowest: float, way: list[str], options, folder: pathlib.Path) -> dict[str, float]:
    """The median over seeds of each figure."""
    of_seeds = []
    for seed in range(1, options.repeat + 1):
        settings = [f"run.seed={seed}", *way]
        began = time.monotonic()
        run = frame.simulate(options.macaw, folder / "heterofl.toml", folder / "run", settings)
        here = time.monotonic() - began
        sent = sum(row.get("bytes_up", 0) for row in run.metrics())
        found = {
            "whole": run.summary["final"]["test_accuracy"],
            "best": run.summary["bests"]["test_accuracy"]["value"],
            "sent": sent / run.summary["rounds"] / 10,
            "here": here,
        }
        found["narrowest"] = found["whole"]
        if narrowest < 1:
            settings.append(f"algorithm.heterofl.evaluate={narrowest}")
            run = frame.simulate(options.macaw, folder / "heterofl.toml", folder / "run", settings)
            found["narrowest"] = run.summary["final"]["test_accuracy"]
        of_seeds.append(found)
    return {key: statistics.median(found[key] for found in of_seeds) for key in of_seeds[0]}


def main() -> None:
    parser = frame.parser(__doc__, rounds=40, repeat=1)
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--division", choices=["iid", "classes"], default="iid")
    parser.add_argument("--network", choices=list(NETWORKS), default="small")
    parser.add_argument("--seeds", dest="repeat", type=int, help="runs of each way; also --repeat")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    frame.refuse_part(parser, options, {"--only": bool(options.only)})
    about, rows = frame.heading(), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "heterofl.toml").write_text(configuration(options))
        for way, narrowest, settings in WAYS:
            if options.only and not any(text in way for text in options.only):
                continue
            found = measure(narrowest, settings, options, folder)
            accuracies = (f"{100 * found[key]:.2f}" for key in ("whole", "best", "narrowest"))
            rows.append([way, *accuracies, f"{found['sent'] / 1e3:.1f}", f"{found['here']:.0f}"])
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    table = f"{about}\n\n{frame.table(HEAD, rows)}"
    print(table)
    if options.write:
        frame.write(RESULTS, f"{options.division}-{options.network}", table)


if __name__ == "__main__":
    main()
