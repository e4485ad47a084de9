"""What a train function gets beside the model: a client's rows, and what is said of the turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ._safetensors import Array


class Rows:
    """A client's rows: ``x, y = rows``. Tensors on ``ctx.device`` beside a module, else arrays.

    x: ``[rows, …]``, of the run's dtype and normalised as ``[data]`` says, or tokens.
    y: ``[rows]``, classes as int64, or targets. lengths: of padded rows of tokens, the tokens in
    use; else None. They are the function's own: it may change and keep them.
    """

    def __init__(self, x: Any, y: Any, lengths: Any = None) -> None:
        self.x, self.y, self.lengths = x, y, lengths

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.y))

    def __len__(self) -> int:
        return len(self.y)


class TrainContext:
    """A turn of a client in a round. One for each call; nothing of it outlives the call.

    Before each call ``random``, ``np.random`` and torch are seeded from the run's seed, the round
    and the client, so that a function that draws from them, or from ``rng`` and ``generator``,
    gives the same numbers on any worker, and after a resume.
    """

    #: The round, from 1, and the phase and stage of a rule that has several.
    round: int
    phase: int
    stage: int
    #: The client's number in the run, and its name in the data.
    client: int
    name: str
    #: The run's task: "classification", "binary", "regression", "next-token" or
    #: "reconstruction".
    task: str
    #: ``local.lr`` with the round's schedule in it, and further keys of ``[local]``.
    lr: float
    epochs: int
    batch_size: int  # all rows where the run says 0
    #: All of ``[local]``: ``local["momentum"]``, ``local["steps"]`` of the round, …
    local: dict[str, Any]
    #: Where module and rows are: "cpu", or "cuda" for a GPU, which the slots share out.
    device: str
    #: Names of the tensors that this stage trains. The others stay as they are, whatever is done.
    trainable: frozenset[str]
    #: Whether the rule trains a model of the client's own here.
    personal: bool
    #: What all generators are seeded with: of the run's seed, the round and the client.
    seed: int

    def __init__(self, task: Any, device: str, torch: Any, joins: bool = False) -> None:
        self.round, self.phase, self.stage = task.round, task.phase, task.stage
        self.client, self.name, self.task = task.client, task.name, task.task
        self.local, self.lr = task.local, task.local["lr"]
        self.epochs = task.local["epochs"]
        self.batch_size = task.local["batch_size"] or len(task.y)
        self.device, self.personal = device, task.personal
        self.trainable = frozenset(task.trainable)
        self.seed = seed_of(task)
        self._mu = float(task.mu)
        self._anchor: Mapping[str, Array] = task.anchor
        self._v: Mapping[str, Array] | None = task.correction
        self.has_correction = task.mu != 0 or task.correction is not None
        self.corrected = not self.has_correction  # whether the function has looked at it
        self._torch = torch
        self._rows = len(task.y)
        self._joins = joins  # a last batch of one row to the batch before
        self.steps = 0  # that batches() has given

    @property
    def mu(self) -> float:
        """Of what the rule adds to each gradient (FedProx, SCAFFOLD, FedDyn, Ditto):
        mu·(w − anchor) + v. ``correct`` does it for a module."""
        self.corrected = True
        return self._mu

    @property
    def anchor(self) -> Mapping[str, Array]:
        """Arrays by the names of the model's tensors."""
        return self._anchor

    @property
    def v(self) -> Mapping[str, Array] | None:
        """The same; None: there is none."""
        self.corrected = True
        return self._v

    @cached_property
    def rng(self) -> np.random.Generator:
        """A generator of NumPy for this turn."""
        return np.random.default_rng(self.seed)

    @cached_property
    def generator(self) -> Any:
        """A ``torch.Generator`` for this turn, on the CPU."""
        import torch  # of a model of arrays, too

        return torch.Generator().manual_seed(self.seed)

    def batches(self) -> Iterator[Any]:
        """The rows of each step, as positions in x and y, by ``[local]``: epochs or steps,
        batch_size, shuffle, drop_last. int64 arrays, or tensors beside a module.

        A last batch of one row joins the one before it where the module has buffers of floats:
        batch norm has no variance of one row.

        A turn has these batches once: when all are taken, a further call is an error.
        """
        rows, size = self._rows, self.batch_size
        last = rows - rows % size if self.local["drop_last"] and rows >= size else rows
        ends = [*range(size, last, size), last]
        if self._joins and len(ends) > 1 and last % size == 1:
            del ends[-2]
        steps = self.local["steps"] or len(ends) * self.epochs
        if 0 < steps <= self.steps:
            raise RuntimeError(
                f"ctx.batches() gives the {steps} batches of a turn once, and they are taken: for "
                "further passes take batches of your own, such as ctx.rng.permutation(len(rows)), "
                'and return {"steps": …} beside the model'
            )
        return self._batches([0, *ends], steps)

    def _batches(self, bounds: list[int], steps: int) -> Iterator[Any]:
        rows = self._rows
        while self.steps < steps:
            order = self.rng.permutation(rows) if self.local["shuffle"] else np.arange(rows)
            for begin, end in itertools.pairwise(bounds):
                if self.steps == steps:
                    return
                self.steps += 1
                yield self._positions(order[begin:end])

    def _positions(self, chosen: Array) -> Any:
        return chosen if self._torch is None else self._torch.from_numpy(chosen).to(self.device)

    def optimizer(self, parameters: Iterable[Any]) -> Any:
        """The optimizer of torch that ``[local]`` says: SGD, Adam or AdamW with its options, at
        ``lr``. ``clip_norm`` is not its: ``torch.nn.utils.clip_grad_norm_``."""
        local, optim = self.local, self._torch.optim
        common = {"lr": self.lr, "weight_decay": local["weight_decay"]}
        if local["optimizer"] == "sgd":
            return optim.SGD(
                parameters, momentum=local["momentum"], nesterov=local["nesterov"], **common
            )
        kind = optim.Adam if local["optimizer"] == "adam" else optim.AdamW
        betas = (local["beta1"], local["beta2"])
        return kind(parameters, betas=betas, eps=local["epsilon"], **common)

    def correct(self, module: Any) -> None:
        """Adds the rule's correction to the module's gradients: between backward() and step().

        Does nothing for a rule without one, such as FedAvg. A function that ignores the correction
        of its rule is an error.
        """
        self.corrected = True
        if not self.has_correction:
            return
        torch = self._torch
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if parameter.grad is None or name not in self._anchor:
                    continue
                if self._mu != 0:
                    anchor = torch.from_numpy(np.array(self._anchor[name])).to(parameter)
                    parameter.grad.add_(parameter - anchor, alpha=self._mu)
                if self._v is not None:
                    parameter.grad.add_(torch.from_numpy(np.array(self._v[name])).to(parameter))


def seed_of(task: Any) -> int:
    """53 bits of the run's seed, round, phase, stage and client."""
    words = [task.seed, task.round, task.phase, task.stage, task.client]
    state = np.random.SeedSequence(words).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(11))
