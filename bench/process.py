"""What a client costs that the owner's own program trains, beside a native one.

    ./dev bench process [--rounds N] [MODEL…]

Each model (default: logistic, lenet5, simple_cnn) trains 100 clients a round on MNIST's shapes, in three runs: a
program that gives the weights back as they are, and one step of batch size 1 by the fused and by the LibTorch back end.
Prints the median milliseconds of a client's turn: what the process back end adds to the time of the owner's code.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT / "sdk/python")!r})
import macaw_client
macaw_client.serve(lambda weights, task: (None, 1, 1, 0.0))
"""
BACKENDS = ["process", "fused", "torch"]


def turn(macaw: pathlib.Path, model: str, backend: str, rounds: int, folder: pathlib.Path) -> float:
    """Median milliseconds of a client's turn, without the first round's."""
    settings = [f"model.name={model}", "evaluation.every=0", "local.steps=1", "local.batch_size=1"]
    settings += [f"workers.backend={backend}", "workers.slots=1"]
    if backend == "process":
        settings += ["data.source=declared", f"data.path={folder}/rows.json"]
        settings += [f"workers.command=['{sys.executable}','{folder}/program.py']"]
    out = folder / f"{model}-{backend}"
    command = [macaw, "simulate", folder / f"{backend}.toml", "--rounds", rounds, "--out", out, "--quiet"]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    events = json.loads((out / "timeline.json").read_text())
    turns = [e["dur"] for e in events if e["name"].startswith("client ") and e["args"]["round"] > 1]
    return statistics.median(turns) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=["logistic", "lenet5", "simple_cnn"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--macaw", type=pathlib.Path, default=ROOT / "build/bin/macaw")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "program.py").write_text(PROGRAM)
        clients = [{"name": f"c{i}", "train": 1} for i in range(100)]
        (folder / "rows.json").write_text(json.dumps({"clients": clients, "input_shape": [1, 28, 28], "classes": 10}))
        mnist = f'[data]\nsource = "idx"\npath = "{ROOT}/examples/data/mnist/t10k-images-idx3-ubyte.gz"\n[partition]\nclients = 100\n'
        for backend in BACKENDS:
            (folder / f"{backend}.toml").write_text(("" if backend == "process" else mnist) + "[cohort]\nsize = 100\n")
        print("milliseconds of a client's turn\n\n| model | " + " | ".join(BACKENDS) + " |\n|---|---|---|---|")
        for model in told.models:
            times = [turn(told.macaw, model, backend, told.rounds, folder) for backend in BACKENDS]
            print(f"| {model} | " + " | ".join(f"{time:.2f}" for time in times) + " |", flush=True)


if __name__ == "__main__":
    main()
