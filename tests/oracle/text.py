"""A transformer on the speakers of a play: Macaw's `char_transformer` beside the same loop in plain PyTorch.

    tests/oracle/text.py PLAY.txt [--rounds N] [--cohort N] [--model char_transformer|char_gru]

Both train the same cohorts from the same weights, on one thread: FedAvg, one local epoch of SGD, batches of 8 rows of 80
characters in stored order, clients weighted by rows. PyTorch has torch.nn.TransformerEncoderLayer with a causal mask.
Prints steps/s of each (Macaw: of whole rounds, weights sent and sums taken; PyTorch: of the local epochs alone), the same
by processor time, for a busy machine (Macaw: of all its processes from their start), the training loss of each round,
and the loss of both final models on all speakers' test rows. Exits 1 where the losses
differ by more than 1e-4 of their size. MACAW_PYTHON chooses the Python, and so PyTorch's version.
"""

import argparse
import inspect
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import speakers
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS, LENGTH, BATCH = 97, 80, 8
CONFIG = """
[run]
client_records = true
checkpoint_every = 100000
[data]
source = "leaf"
path = "{folder}/data"
[partition]
scheme = "natural"
[model]
name = "{model}"
init = "init.safetensors"
[cohort]
size = {cohort}
[local]
epochs = 1
batch_size = {batch}
lr = {lr}
shuffle = false
[evaluation]
every = 0
central = false
[workers]
slots = 1
"""


class Positions(nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight


class CharTransformer(nn.Sequential):
    """Its state dict has the names of `char_transformer`."""

    def __init__(self) -> None:
        blocks = [
            nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(5)
        ]
        ends = nn.LayerNorm(128), nn.Linear(128, TOKENS)
        super().__init__(nn.Embedding(TOKENS, 128), Positions(LENGTH, 128), *blocks, *ends)
        self.mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        # Newer versions then use a kernel that needs no mask.
        told = "is_causal" in inspect.signature(blocks[0].forward).parameters
        self.causal = {"is_causal": True} if told else {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self:
            block = isinstance(layer, nn.TransformerEncoderLayer)
            x = layer(x, src_mask=self.mask, **self.causal) if block else layer(x)
        return x


class CharGru(nn.Sequential):
    def __init__(self) -> None:
        gru = nn.GRU(8, 256, 2, batch_first=True)
        super().__init__(nn.Embedding(TOKENS, 8), gru, nn.Linear(256, TOKENS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self[2](self[1](self[0](x))[0])


MODELS = {"char_transformer": (CharTransformer, 0.1), "char_gru": (CharGru, 0.5)}  # and a rate that trains it


def token(character: str) -> int:
    """As data/vocabulary.h has them."""
    return 1 if character == "\n" else ord(character) - 30 if " " <= character <= "~" else 0


def tensors(user: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [rows, LENGTH], and what follows each of them; -100 where there is only padding."""
    x = torch.zeros(len(user["x"]), LENGTH, dtype=torch.long)
    y = torch.full_like(x, -100)
    for row, (text, after) in enumerate(zip(user["x"], user["y"])):
        codes = torch.tensor([token(c) for c in text + after])
        x[row, : len(text)], y[row, : len(text)] = codes[:-1], codes[1:]
    return x, y


def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction=reduction)


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float) -> tuple[int, float]:
    """An epoch. Returns its steps and the sum of the losses over tokens."""
    optimizer = torch.optim.SGD(net.parameters(), lr)
    steps, total = 0, 0.0
    for inputs, labels in zip(x.split(BATCH), y.split(BATCH)):
        loss = loss_of(net, inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps, total = steps + 1, total + loss.item() * int((labels >= 0).sum())
    return steps, total


def fedavg(net: nn.Module, data: list, cohorts: list, lr: float) -> tuple[list[float], float, float]:
    """The training loss of each round, and steps a second of local work, by the wall clock and of processor time."""
    losses, steps, seconds, busy = [], 0, 0.0, 0.0
    for cohort in cohorts:
        start = {name: value.clone() for name, value in net.state_dict().items()}
        mean = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in start.items()}
        rows = sum(len(data[client][0]) for client in cohort)
        total, tokens = 0.0, 0
        for client in cohort:
            net.load_state_dict(start)
            began, busy_before = time.perf_counter(), time.process_time()
            taken, loss = train(net, *data[client], lr)
            seconds, busy = seconds + time.perf_counter() - began, busy + time.process_time() - busy_before
            steps, total, tokens = steps + taken, total + loss, tokens + int((data[client][1] >= 0).sum())
            for name, value in net.state_dict().items():
                mean[name] += value.double() * (len(data[client][0]) / rows)
        net.load_state_dict({name: value.float() for name, value in mean.items()})
        losses.append(total / tokens)
    return losses, steps / seconds, steps / busy


def test_loss(net: nn.Module, data: list) -> float:
    """Over all rows of all speakers."""
    with torch.no_grad():
        sums = [loss_of(net, x, y, "sum").item() for user in data for x, y in zip(user[0].split(64), user[1].split(64))]
    return sum(sums) / sum(int((y >= 0).sum()) for _, y in data)


def rows_of(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def busy_children() -> float:
    """Seconds of processor time of the child processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def simulate(
    macaw: pathlib.Path, config: pathlib.Path, out: pathlib.Path, rounds: int
) -> tuple[list, list, float, float]:
    """Cohorts and training losses by round, and steps a second: of the rounds, and of all processor time."""
    before = busy_children()
    command = [macaw, "simulate", config, "--rounds", str(rounds), "--out", out, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    busy = busy_children() - before
    metrics = rows_of(out / "metrics.jsonl")
    cohorts: list[list[int]] = [[] for _ in metrics]
    for record in rows_of(out / "clients.jsonl"):
        cohorts[record["round"] - 1].append(record["client"])
    seconds = sum(row["seconds"] for row in rows_of(out / "events.jsonl") if row["event"] == "round")
    steps = sum(row["steps"] for row in metrics)
    return cohorts, [row["train_loss"] for row in metrics], steps / seconds, steps / busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("play", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cohort", type=int, default=10)
    parser.add_argument("--model", choices=MODELS, default="char_transformer")
    parser.add_argument("--macaw", type=pathlib.Path, default=ROOT / "build/bin/macaw")
    told = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind, lr = MODELS[told.model]
    net = kind()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        halves = speakers.write(told.play, folder / "data", LENGTH)
        data, test = ([tensors(user) for user in half["user_data"].values()] for half in halves)
        save_file(net.state_dict(), folder / "init.safetensors")
        text = CONFIG.format(folder=folder, model=told.model, cohort=told.cohort, batch=BATCH, lr=lr)
        (folder / "text.toml").write_text(text)
        cohorts, losses, *paces = simulate(told.macaw, folder / "text.toml", folder / "run", told.rounds)
        their_losses, *their_paces = fedavg(net, data, cohorts, lr)
        weights = sum(value.numel() for value in net.state_dict().values())
        print(f"{told.model}, {weights:,} weights, {len(data)} speakers, {told.rounds} rounds of {told.cohort}, one thread")
        for what, ours, theirs in zip(("steps/s", "steps/s of processor time"), paces, their_paces):
            print(f"{what}: Macaw {ours:.2f}, PyTorch {torch.__version__} {theirs:.2f}: {ours / theirs:.2f} ×")
        for number, (ours, theirs) in enumerate(zip(losses, their_losses), 1):
            print(f"round {number}: training loss {ours:.6f} (Macaw) {theirs:.6f} (PyTorch)")
        theirs = test_loss(net, test)
        net.load_state_dict(load_file(folder / "run/model.safetensors"))
        ours = test_loss(net, test)
        print(f"test loss, by PyTorch: {ours:.6f} (Macaw's model) {theirs:.6f} (PyTorch's model)")
        pairs = [*zip(losses, their_losses), (ours, theirs)]
        sys.exit(0 if all(abs(a - b) <= 1e-4 * b for a, b in pairs) else 1)


if __name__ == "__main__":
    main()
