#!/usr/bin/env python3
"""Is Macaw's FedAvg what plain PyTorch computes?

Both train LeNet-5 on the committed MNIST images from the same initial weights, on the split that
`macaw data export-partition` writes, with batches in stored order and the cohorts of clients.jsonl.
Compared: the model after one round, the test loss after the last, and the accuracy that PyTorch
gets from Macaw's final file. Exits 1 when a figure is off. Needs torch, safetensors and numpy.
"""
import argparse, gzip, json, pathlib, subprocess, sys, tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy

ROOT = pathlib.Path(__file__).resolve().parents[2]
LR, BATCH, EPOCHS = 0.035, 10, 1
CONFIG = f"""
[run]
client_records = true
[data]
source = "idx"
path = "{ROOT}/examples/data/mnist/t10k-images-idx3-ubyte.gz"
[partition]
scheme = "dirichlet-class"
concentration = 0.5
clients = 100
[model]
name = "lenet5"
init = "init.safetensors"
[cohort]
size = 10
[local]
epochs = {EPOCHS}
batch_size = {BATCH}
lr = {LR}
shuffle = false
"""


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def idx(name, header):
    data = gzip.decompress((ROOT / "examples/data/mnist" / name).read_bytes())
    return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)


def train(model, x, y):
    for _ in range(EPOCHS):
        for rows in torch.arange(len(y)).split(BATCH):
            loss = cross_entropy(model(x[rows]), y[rows])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for w, g in zip(model.parameters(), gradients):
                    w -= LR * g


def fedavg(model, x, y, split, cohorts):
    """The model's weights after each round."""
    for cohort in cohorts:
        start = {k: v.clone() for k, v in model.state_dict().items()}
        mean = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in start.items()}
        examples = sum(len(split[client]) for client in cohort)
        for client in cohort:
            model.load_state_dict(start)
            train(model, x[split[client]], y[split[client]])
            for k, v in model.state_dict().items():
                mean[k] += v.double() * len(split[client]) / examples
        model.load_state_dict({k: v.float() for k, v in mean.items()})
        yield {k: v.clone() for k, v in model.state_dict().items()}


def rate(model, x, y):
    with torch.no_grad():
        outputs = model(x)
    return cross_entropy(outputs.double(), y).item(), (outputs.argmax(1) == y).double().mean().item()


def flat(weights):
    return torch.cat([v.double().flatten() for _, v in sorted(weights.items())])


def simulate(macaw, folder, rounds):
    out = folder / f"rounds-{rounds}"
    subprocess.run([macaw, "simulate", folder / "truth.toml", "--rounds", str(rounds), "--out", out, "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    return out


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--macaw", default=ROOT / "build/bin/macaw", help="the program")
    arguments.add_argument("--rounds", type=int, default=20)
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ok = True

    def check(what, value, bound):
        nonlocal ok
        good = value <= bound  # false for NaN, too
        ok = ok and good
        print(f"{what:<62} {value:9.2e}  (at most {bound:g}){'' if good else '  OFF'}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = lenet5()
        initial = {k: v.clone() for k, v in model.state_dict().items()}
        save_file(initial, folder / "init.safetensors")
        (folder / "truth.toml").write_text(CONFIG)
        subprocess.run([arguments.macaw, "data", "export-partition", folder / "truth.toml",
                        "--out", folder / "split.json"], check=True, stdout=subprocess.DEVNULL)
        one, last = (simulate(arguments.macaw, folder, rounds) for rounds in (1, arguments.rounds))

        split = json.loads((folder / "split.json").read_text())
        x = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).float() / 255
        y = idx("t10k-labels-idx1-ubyte.gz", 8).long()
        test = x[split["test"]], y[split["test"]]
        records = rows_of(last / "clients.jsonl")
        cohorts = [[str(r["client"]) for r in records if r["round"] == n + 1] for n in range(arguments.rounds)]

        history = list(fedavg(model, x, y, split, cohorts))
        difference = flat(load_file(one / "model.safetensors")) - flat(history[0])
        change = flat(history[0]) - flat(initial)
        check("round 1: |difference of the models| / |change|", (difference.norm() / change.norm()).item(), 1e-5)
        check("round 1: largest difference / largest change",
              (difference.abs().max() / change.abs().max()).item(), 1e-5)

        told = rows_of(last / "metrics.jsonl")[-1]
        loss, accuracy = rate(model, *test)
        print(f"after {arguments.rounds} rounds: test loss {loss:.6f} (PyTorch) {told['test_loss']:.6f} (Macaw), "
              f"accuracy {accuracy:.4f} and {told['test_accuracy']:.4f}")
        check(f"round {arguments.rounds}: relative difference of the test loss", abs(told["test_loss"] / loss - 1), 1e-2)
        model.load_state_dict(load_file(last / "model.safetensors"))
        loss, accuracy = rate(model, *test)
        check("Macaw's final file in PyTorch: difference of the accuracy", abs(accuracy - told["test_accuracy"]), 1e-12)
        check("Macaw's final file in PyTorch: relative difference of the loss", abs(loss / told["test_loss"] - 1), 1e-5)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
