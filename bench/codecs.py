"""Codecs of updates in real training: accuracy, bytes, and how long a client's upload takes.

./dev bench codecs [--images FOLDER] [--test FOLDER] [--only TEXT] [--rounds N] [--repeat N] [--write]

LeNet-5 on MNIST, 1000 clients with a few digits each (Dirichlet 0.3 over clients), 20 a round. The
images are those of examples/mnist10k.toml, or of a folder with the four files of MNIST (--images).
All runs have the same cohorts. A row: accuracy after the last round and the best, bytes of a client's
update (the mean over the run), of all updates, and of those until the test accuracy was 90 %; the
seconds that a client's update takes at 1, 10 and 100 Mbit/s. Means over seeds. --only: rows whose
codec contains TEXT. --write puts the table into results/codecs.md.
"""

import pathlib
import statistics
import sys
import tempfile

import frame

CODECS = [
    ([], "auto"),
    (["topk 0.01"], "none"),
    (["topk 0.01"], "residual"),
    (["topk 0.01"], "ef21"),
    (["topk 0.1"], "none"),
    (["topk 0.1"], "ef21"),
    (["topk 0.05", "bits 8"], "none"),
    (["randomk 0.1"], "none"),
    (["qsgd 7"], "none"),
    (["bits 4"], "none"),
    (["bits 8"], "none"),
    (["terngrad"], "none"),
    (["rotate", "terngrad"], "none"),
    (["bits 2"], "none"),
    (["rotate", "bits 2"], "none"),
    (["sign"], "none"),
    (["sign"], "ef21"),
    (["rotate", "sign"], "ef21"),
    (["bf16"], "none"),
    (["powersgd 4"], "none"),
    (["acpsgd 4"], "none"),
    (["acpsgd 4"], "residual"),
]
RESULTS, MARK = frame.ROOT / "bench/results/codecs.md", "<!-- table -->"
HEAD = ["codec", "feedback", "accuracy", "best", "kB a client", "of dense", "MB up", "MB to 90 %"]
HEAD += ["s at 1 Mbit/s", "10", "100"]


def settings(codec: list[str], feedback: str, seed: int, options) -> list[str]:
    lines = ", ".join(f'"{line}"' for line in codec)
    found = [f"run.seed={seed}", f"run.rounds={options.rounds}", "cohort.size=20", "local.epochs=1"]
    found += ["evaluation.every=5"]
    if codec:
        found += [f"update.codec=[{lines}]", f"update.feedback={feedback}"]
    if options.images:
        found += [f"data.path={options.images}/train-images-idx3-ubyte.gz", "data.test_fraction=0"]
        found += [f"data.test_path={options.images}/t10k-images-idx3-ubyte.gz"]
    return found


def measure(codec: list[str], feedback: str, options, folder: pathlib.Path) -> dict[str, float]:
    seeds = []
    for seed in range(1, options.repeat + 1):
        run = frame.simulate(
            options.macaw,
            frame.ROOT / "examples/mnist10k.toml",
            folder / "run",
            settings(codec, feedback, seed, options),
        )
        up = run.summary["bytes"]["up"]
        seeds.append({
            "last": run.summary["final"]["test_accuracy"],
            "best": run.summary["bests"]["test_accuracy"]["value"],
            "client": up / sum(row["clients"] for row in run.metrics()),
            "up": up,
            "to": run.summary["bytes_to"].get("0.9", {}).get("up"),
        })  # fmt: skip
    means = {k: statistics.mean(s[k] for s in seeds) for k in ("last", "best", "client", "up")}
    reached = [s["to"] for s in seeds if s["to"] is not None]
    means["to"] = statistics.mean(reached) if len(reached) == len(seeds) else float("nan")
    return means


def row(codec: list[str], feedback: str, found: dict[str, float], dense: float) -> list[str]:
    to = "–" if found["to"] != found["to"] else f"{found['to'] / 1e6:.1f}"
    return [
        ", ".join(codec) or "none",
        feedback if codec else "",
        f"{100 * found['last']:.1f}",
        f"{100 * found['best']:.1f}",
        f"{found['client'] / 1e3:.1f}",
        f"1/{dense / found['client']:.1f}",
        f"{found['up'] / 1e6:.1f}",
        to,
        *(f"{8 * found['client'] / rate:.3f}" for rate in (1e6, 1e7, 1e8)),
    ]


def main() -> None:
    parser = frame.parser(__doc__, rounds=100, repeat=1)
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    about = frame.heading()
    rows, dense = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for codec, feedback in CODECS:
            if options.only not in ", ".join(codec):
                continue
            found = measure(codec, feedback, options, pathlib.Path(folder))
            dense = dense or found["client"]
            rows.append(row(codec, feedback, found, dense))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    table = f"{about}\n\n{frame.table(HEAD, rows)}"
    print(table)
    if options.write:
        text = RESULTS.read_text()
        RESULTS.write_text(text[: text.index(MARK) + len(MARK)] + "\n" + table)


if __name__ == "__main__":
    main()
