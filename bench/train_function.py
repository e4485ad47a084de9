"""What a client costs that a function in Python trains, beside the same work elsewhere.

    ./dev bench train_function [--rounds N] [--repeat N]

LeNet-5's shapes: 50 clients a round with 60 rows of [1, 28, 28], one epoch in batches of 20, one slot.
In turn: `train=` with a module, `loss=`, `train=` with arrays that come back as they are (what the way
to Python costs alone), a program behind workers.command that gives the weights back, and the fused
kernels. Prints the median microseconds of a client's turn, and the ratio to the fused kernels.
"""

import pathlib
import statistics
import sys
import tempfile
from typing import Any

import frame
import numpy as np

PROGRAM = f"""
import sys
sys.path.insert(0, {str(frame.ROOT / "sdk/python")!r})
import macaw_client
macaw_client.serve(lambda weights, task: (None, 1, 1, 0.0))
"""


def step(outputs: Any, y: Any) -> Any:
    from torch.nn import functional

    return functional.cross_entropy(outputs, y)


def train(model: Any, rows: Any, ctx: Any) -> Any:
    x, y = rows
    optimizer = ctx.optimizer(model.parameters())
    for batch in ctx.batches():
        optimizer.zero_grad()
        step(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return model, {"loss": 0.0}


def nothing(model: Any, rows: Any, ctx: Any) -> Any:
    return model, {"loss": 0.0}


def lenet() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def turn(folder: pathlib.Path, name: str, rounds: int, **changes: Any) -> float:
    """Median microseconds of a client's turn, without the first round's."""
    import macaw

    rng = np.random.default_rng(1)
    job: dict[str, Any] = dict(
        data=(rng.normal(size=(6000, 1, 28, 28)).astype(np.float32), rng.integers(10, size=6000)),
        partition=macaw.iid(100), cohort=50, rounds=rounds, evaluation=dict(every=0),
        data_options=dict(test_fraction=0), check_model=False, overwrite=True,
        local=dict(epochs=1, batch_size=20, lr=0.01), workers=dict(slots=1),
    )  # fmt: skip
    job |= changes
    macaw.simulate(**job, out=folder / name, cache=folder / "cache")
    events = frame.Run(folder / name).timeline()
    turns = [e["dur"] for e in events if e["name"].startswith("client ") and e["args"]["round"] > 1]
    return statistics.median(turns)


def main() -> None:
    told = frame.parser(__doc__, rounds=5).parse_args()
    sys.path.insert(0, str(told.macaw.resolve().parents[1] / "python"))
    layers = ["conv 6 5 pad 2", "relu", "maxpool 2", "conv 16 5", "relu", "maxpool 2", "flatten",
              "linear 120", "relu", "linear 84", "relu", "linear 10"]  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "program.py").write_text(PROGRAM)
        command = [sys.executable, str(folder / "program.py")]
        ways: dict[str, dict[str, Any]] = {
            "fused kernels": dict(model=layers),
            "train=, a module": dict(model=lenet(), train=train),
            "loss=": dict(model=lenet(), loss=step),
            "train= that does nothing, a module": dict(model=lenet(), train=nothing),
            "train= that does nothing, arrays": dict(model=layers, train=nothing),
            "workers.command that does nothing": dict(
                model=layers, workers=dict(slots=1, backend="process", command=command)
            ),
        }
        places = {way: f"run-{number}" for number, way in enumerate(ways)}
        found = frame.in_turn(
            list(ways), told.repeat, lambda way: turn(folder, places[way], told.rounds, **ways[way])
        )
        print(frame.heading() + "\n\n" + frame.beside(found, "µs a client", 0))


if __name__ == "__main__":
    main()
