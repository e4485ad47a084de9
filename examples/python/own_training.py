"""Training code of one's own: a focal loss with AdamW, and a look between two rounds.

    python examples/python/own_training.py [ROUNDS]

Each slot runs train() in a process, which loads this file; so what begins the run stands under
`if __name__ == "__main__"`.
"""

import sys

import numpy as np
import torch
from torch import nn

import macaw


def focal(outputs: torch.Tensor, y: torch.Tensor, gamma: float = 2.0) -> torch.Tensor:
    """Lin et al. 2017: rows that are right already count less."""
    log_p = torch.log_softmax(outputs, 1)[torch.arange(len(y)), y]
    return (-((1 - log_p.exp()) ** gamma) * log_p).mean()


def train(model: nn.Module, rows: macaw.Rows, ctx: macaw.TrainContext) -> nn.Module:
    x, y = rows
    optimizer = torch.optim.AdamW(model.parameters(), lr=ctx.lr)
    for batch in ctx.batches():
        optimizer.zero_grad()
        focal(model(x[batch]), y[batch]).backward()
        ctx.correct(model)  # what the rule adds to the gradients
        optimizer.step()
    return model


def worst_recall(y: np.ndarray, scores: np.ndarray) -> float:
    """Of the class that is found least often."""
    right = scores.argmax(1) == y
    return min(float(right[y == label].mean()) for label in np.unique(y))


def look(run: macaw.OpenRun) -> bool:
    """False stops the run."""
    size = sum(float((tensor**2).sum()) for tensor in run.model().values()) ** 0.5
    run.log({"model_norm": size})
    return run.row["worst_recall"] < 0.8


if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(6000, 20)
    y = (x @ torch.randn(20, 5)).argmax(1)
    run = macaw.simulate(
        model=nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 5)),
        data=(x, y),
        partition=macaw.k_classes(100, classes_per_client=2),
        algorithm=macaw.FedProx(mu=0.01),
        cohort=10,
        rounds=int(sys.argv[1]) if len(sys.argv) > 1 else 100,
        local=dict(epochs=2, batch_size=20, lr=0.003),
        train=train,
        on_round=look,
        metrics={"worst_recall": worst_recall},
    )
    print(run, run.summary["reason"])
