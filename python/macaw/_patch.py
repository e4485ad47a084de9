"""``macaw.patch(trainer)``: a program with a Trainer of its own becomes a client of a run.

The program is started by a worker (``workers.backend = "process"``, docs/guides/own-program.md).
From then on ``trainer.train()``, or ``trainer.fit(…)``, trains as often as the run asks for it.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from . import _client
from ._context import seed_of
from ._divided import DividedWeights
from ._rates import Rates
from ._safetensors import Array
from ._sums import means_in, sums_of_means
from ._weights import Weights
from .errors import ArgumentError

#: ``data(task)``: the rows of ``task.name``, ``task.split``, for programs with several clients.
DataFunction = Callable[[Any], Any]


class Loop(Protocol):
    """A Trainer of another package, as a client needs it."""

    module: Any
    corrects: bool  # whether it calls Turn.correct() before each step
    divides: bool  # whether the ranks divide the module among them (FSDP)
    evaluates: bool

    def prepare(self, seed: int) -> None: ...

    def train(self, task: Any, turn: Turn) -> tuple[int, int, dict[str, float], Rates]:
        """Rows, steps, means over the rows (``loss``, …), and the rates of the steps."""

    def evaluate(self, task: Any, turn: Turn) -> tuple[int, dict[str, float]]:
        """Rows (of texts: tokens), and means over them."""

    def name(self) -> str: ...


class Turn:
    """The weights of one question. The loop says when its module takes them and gives them back:
    one that is divided must be so by then."""

    def __init__(self, weights: Weights, given: dict[str, Array], task: Any) -> None:
        self._weights, self._given, self._task = weights, given, task
        self.ends: dict[str, Array] | None = None

    def begin(self, module: Any = None) -> None:
        """module: with what the loop has put around it."""
        if module is not None:
            self._weights.module = module
        self._weights.load(self._given, self._task if self._task.kind == "train" else None)

    def correct(self) -> None:
        self._weights.correct(self._task)

    def end(self) -> None:
        self.ends = self._weights.taken(self._given)


def program(ranks: int = 1) -> int:
    """Call it first in a program that a worker starts, before PyTorch looks at a GPU.

    Leaves the process the GPUs of its slot (``MACAW_SLOT``), one a rank, and with ``ranks`` > 1
    starts the program again for the ranks 1, 2, …, with what ``torch.distributed`` reads
    (``RANK``, ``WORLD_SIZE``, …). Returns this process's rank.
    """
    start: Callable[[int], int] = _client.program
    return start(ranks)


def ranks_store() -> Any:
    """Where the processes of ``program(ranks=…)`` find each other: a ``torch.distributed`` store
    that no other user of the machine can open.

    A group that is made by it (``init_process_group(…, store=macaw.ranks_store(), rank=…,
    world_size=…)``) before a Trainer is made is the Trainer's, too.
    """
    store: Callable[[], Any] = _client.ranks_store
    return store()


def patch(
    trainer: Any,
    *,
    data: DataFunction | None = None,
    local: bool = False,
    metrics: Mapping[str, str] | None = None,
    name: str | None = None,
) -> None:
    """Makes a program with a ``Trainer`` of Hugging Face or Lightning a client of a run.

    ``trainer.train()``, or ``trainer.fit(…)``, then serves the worker until the run ends: each
    round's model goes into the trainer's, the trainer trains as it always does, with an optimizer
    and a schedule that begin anew, and the model, the rows, the steps and the loss go back. The
    program ends there. Started by hand, it trains as it did.

    data: ``data(task)`` gives the rows of the client ``task.name``: a dataset for Hugging Face, a
        DataLoader for Lightning; ``task.split`` is "train", "validation" or "test". Without it
        there is one client, and its rows are the trainer's.
    local: takes the learning rate, and epochs or steps, from the run's ``[local]``. Otherwise they
        are the trainer's.
    metrics: what the trainer calls the run's metrics: ``{"loss": "val_loss", "accuracy": "acc"}``.
    name: of the program, in the run's summary; put its version there.
    """
    kind = _kind(trainer)
    if "MACAW_SLOT" not in os.environ:
        return
    _refuse_shared_gpus()
    options: dict[str, Any] = {"data": data, "local": local, "metrics": dict(metrics or {})}
    if kind == "transformers":
        from ._patch_transformers import Patched as HuggingFace

        loop: Any = HuggingFace(trainer, **options)
    else:
        from ._patch_lightning import Patched as Lightning

        loop = Lightning(trainer, **options)
    loop.take_over(lambda: serve(loop, name))


def serve(loop: Loop, name: str | None) -> None:
    """Answers the worker until it ends, and ends the program."""
    client = _Client(loop)
    serving: Callable[..., None] = _client.serve
    serving(
        client.train,
        evaluate=client.evaluate if loop.evaluates else None,
        name=name or loop.name(),
        corrections=loop.corrects,
        hidden=(__file__,),
        in_place=True,
        sharded=loop.divides,
    )
    sys.exit(0)


class _Client:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._weights = (DividedWeights if loop.divides else Weights)(loop.module)

    def train(
        self, weights: dict[str, Array], task: Any
    ) -> tuple[dict[str, Array], int, int, dict[str, float], dict[str, float | None]]:
        turn = Turn(self._weights, weights, task)
        self._seed(seed_of(task))
        rows, steps, means, rates = self._loop.train(task, turn)
        if steps == 0:
            raise RuntimeError(
                "the trainer has taken no step: it has no rows, or its epochs and steps are 0"
            )
        sums = sums_of_means(_known(means, task), task.sums, rows, all_of=False)
        assert turn.ends is not None
        return turn.ends, rows, steps, sums, rates.told(steps)

    def evaluate(self, weights: dict[str, Array], task: Any) -> dict[str, float]:
        self._seed(task.client)
        rows, means = self._loop.evaluate(task, Turn(self._weights, weights, task))
        known = _known(means, task)
        for mean in means_in(task.sums):
            if mean not in known:
                raise KeyError(
                    f"the trainer's evaluation has no {mean}, which a run of {task.task} reports; "
                    f"it has {', '.join(means) or 'nothing'}: macaw.patch(trainer, "
                    f'metrics={{"{mean}": "its name there"}})'
                )
        return sums_of_means(known, task.sums, rows, all_of=True)

    def _seed(self, seed: int) -> None:
        import torch

        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        self._loop.prepare(seed % 2**32)


def _known(means: Mapping[str, float], task: Any) -> dict[str, float]:
    """Those that the run takes."""
    return {mean: means[mean] for mean in means_in(task.sums) if mean in means}


def rows_of(task: Any, data: DataFunction | None, own: Any, served: set[str]) -> Any:
    """What data= gives for the task, or the trainer's own rows, which are those of one client."""
    if data is not None:
        return data(task)
    served.add(task.name)
    if len(served) > 1:
        raise RuntimeError(
            f"the trainer has the rows of one client, and {' and '.join(sorted(served))} are asked "
            "for: macaw.patch(trainer, data=f), where f(task) gives the rows of task.name"
        )
    return own


def refuse_other_count(task: Any, count: int) -> None:
    """Refuses rows whose number is not the declared one, by which the client is weighted."""
    if not is_trial(task) and count != task.rows:
        raise RuntimeError(
            f"{task.name} has {task.rows} {task.split} rows for the run, and the trainer has "
            f"{count}: the file of data.path must say how many there are"
        )


def is_trial(task: Any) -> bool:
    """Whether the worker only tries the program: one step of two rows (worker/dry_run.h)."""
    trial = getattr(task, "trial", None)
    if trial is None:  # a worker of 0.1.0 does not say it
        trial = task.local["steps"] == 1 and task.rows <= 2
    return bool(trial)


def size_of(batch: Any) -> int:
    """The rows of a batch: the first axis of its first tensor."""
    if hasattr(batch, "shape"):
        return int(batch.shape[0]) if len(batch.shape) else 0
    if isinstance(batch, Mapping) or hasattr(batch, "items"):
        parts = [value for _, value in batch.items()]
    elif isinstance(batch, (list, tuple)):
        parts = list(batch)
    else:
        return 0
    return next((size for part in parts if (size := size_of(part))), 0)


def over_ranks(numbers: list[float], device: Any) -> list[float]:
    """Their sums over the processes of ``program(ranks=…)``."""
    if "MACAW_RANKS" not in os.environ:
        return numbers
    import torch

    tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(tensor)
    return [float(number) for number in tensor]


@contextmanager
def changed(thing: Any, **values: Any) -> Iterator[None]:
    """The attributes have these values, and then theirs again."""
    kept = {name: getattr(thing, name) for name in values}
    try:
        for name, value in values.items():
            setattr(thing, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(thing, name, value)


def _kind(trainer: Any) -> str:
    for base in type(trainer).__mro__:
        root = base.__module__.partition(".")[0]
        if base.__name__ == "Trainer" and root in (
            "transformers",
            "lightning",
            "pytorch_lightning",
        ):
            return root
    raise ArgumentError(
        f"macaw.patch takes a Trainer of transformers or Lightning, and not {type(trainer)}; a "
        "loop of your own is a function: macaw_client.serve(train) (docs/guides/own-program.md)"
    )


def _refuse_shared_gpus() -> None:
    """Slots that see the same GPUs would all take the first one."""
    torch = sys.modules.get("torch")
    alone = int(os.environ.get("MACAW_SLOTS", 1)) == 1 or "MACAW_RANKS" in os.environ
    if torch is not None and torch.cuda.device_count() > 1 and not alone:
        warnings.warn(
            f"this slot sees {torch.cuda.device_count()} GPUs, and other slots see them, too: "
            "call macaw.program() before the Trainer is made",
            stacklevel=3,
        )
