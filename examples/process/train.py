"""A silo's own PyTorch code as a client of a fleet. It reads its own rows; the fleet never sees them.

Started by macaw-worker (node.toml beside this file). Replace `rows_of` and `model` by yours; the
tensors' names and shapes must be those of the run's model ("0.weight", "0.bias", …: nn.Sequential's).
"""
import os
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sdk/python"))
import macaw_client  # noqa: E402, copy it beside your program instead

torch.set_num_threads(1)  # a process a slot; with GPUs, os.environ["MACAW_SLOT"] says which slot


def rows_of(name, split):
    """The rows of one of your clients: here, numbers that are drawn for it."""
    count = {"train": 60, "test": 20}[split]
    random = np.random.default_rng([sum(name.encode()), split == "test"])
    y = random.integers(0, 10, count)
    x = random.normal(size=(count, 60)) + np.eye(10, 60)[y] * 2
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


model = nn.Sequential(nn.Linear(60, 10))  # the run's model.name = "logistic"


def batches(rows, local, random):
    """As [local] says: so many epochs, or exactly so many steps (one, when the worker tries you)."""
    step, epoch = 0, 0
    while step < local["steps"] if local["steps"] else epoch < local["epochs"]:
        for batch in torch.from_numpy(random.permutation(rows)).split(local["batch_size"] or rows):
            yield batch
            step += 1
            if step == local["steps"]:
                return
        epoch += 1


def train(weights, task):
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    local = task.local
    optimizer = torch.optim.SGD(model.parameters(), lr=local["lr"], momentum=local["momentum"],
                                weight_decay=local["weight_decay"])
    x, y = rows_of(task.name, "train")
    rows, losses, correct, steps = 0, 0.0, 0, 0
    for batch in batches(len(x), local, task.random()):
        outputs = model(x[batch])
        loss = nn.functional.cross_entropy(outputs, y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows, steps = rows + len(batch), steps + 1
        losses += loss.item() * len(batch)
        correct += (outputs.argmax(1) == y[batch]).sum().item()
    return model.state_dict(), rows, steps, {"loss": losses, "correct": correct}


def evaluate(weights, task):
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    x, y = (t[task.begin:task.end] for t in rows_of(task.name, task.split))
    with torch.no_grad():
        outputs = model(x)
    losses = nn.functional.cross_entropy(outputs, y, reduction="sum")
    return {"examples": len(x), "loss": losses.item(),
            "correct": (outputs.argmax(1) == y).sum().item()}


if __name__ == "__main__":
    macaw_client.serve(train, evaluate, name=f"examples/process 1, torch {torch.__version__}")
