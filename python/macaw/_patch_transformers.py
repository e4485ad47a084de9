"""Hugging Face's Trainer as a client: macaw.patch(trainer)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from ._divided import is_divided, refuse_old_torch
from ._patch import (
    DataFunction,
    Turn,
    changed,
    is_trial,
    over_ranks,
    refuse_other_count,
    rows_of,
    size_of,
)
from ._rates import Rates, set_rate
from .errors import ArgumentError


class Patched:
    def __init__(
        self, trainer: Any, *, data: DataFunction | None, local: bool, metrics: dict[str, str]
    ) -> None:
        _refuse(trainer)
        self._trainer, self._data, self._local, self._names = trainer, data, local, metrics
        self.module = trainer.model
        self.divides = _divides(trainer)
        self.evaluates = data is not None or trainer.eval_dataset is not None
        self._own = trainer.train_dataset, trainer.eval_dataset
        self._served: set[str] = set()
        self._train = trainer.train
        self._given: dict[str, Any] = {}
        # An optimizer that the caller made begins each turn as it was made.
        self._optimizer = trainer.optimizer
        self._scheduler = trainer.lr_scheduler
        self._first = [
            None if part is None else copy.deepcopy(part.state_dict())
            for part in (self._optimizer, self._scheduler)
        ]
        self._turn: Turn | None = None
        self._rows = 0
        self._rates = Rates(0)
        self.corrects = self._add_correction()
        self._add_rates()
        self._count_rows()

    def take_over(self, serve: Callable[[], None]) -> None:
        def train(resume_from_checkpoint: Any = None, **given: Any) -> None:
            if resume_from_checkpoint:
                raise ArgumentError(
                    "trainer.train(resume_from_checkpoint=…): the model of a turn is the run's; "
                    "leave it out"
                )
            self._given = given
            serve()

        self._trainer.train = train

    def prepare(self, seed: int) -> None:
        self._trainer.args.seed = seed
        self._trainer.args.data_seed = seed

    def train(self, task: Any, turn: Turn) -> tuple[int, int, dict[str, float], Rates]:
        trainer, args = self._trainer, self._trainer.args
        rows = rows_of(task, self._data, self._own[0], self._served)
        if hasattr(rows, "__len__"):
            refuse_other_count(task, len(rows))
        self._begin_anew()
        if self._local and self._optimizer is not None:
            given = [] if self._scheduler is None else [self._scheduler]
            set_rate(self._optimizer, given, task.local["lr"])
        self._turn, self._rows, self._rates = turn, 0, Rates(task.mu)
        if not self.divides:  # else the trainer divides its model first, and then says so
            turn.begin()
        with ExitStack() as stack:
            stack.enter_context(changed(trainer, train_dataset=rows))
            if is_trial(task):  # what callbacks look at is there, and nothing is saved
                tested = None if self._own[1] is None else _first(self._own[1], 2)
                unsaved = {"eval_dataset": tested, "_save_checkpoint": lambda *_, **__: None}
                stack.enter_context(changed(trainer, **unsaved))
            stack.enter_context(changed(args, **self._arguments(task)))
            output = self._train(**self._given)
        turn.end()
        self._turn = None
        loss = output.training_loss * self._rows
        count, losses = over_ranks([self._rows, loss], args.device)
        return int(count), output.global_step, {"loss": losses / max(count, 1)}, self._rates

    def evaluate(self, task: Any, turn: Turn) -> tuple[int, dict[str, float]]:
        trainer = self._trainer
        if self.divides:
            self._divide_by_fsdp2()
        turn.begin(trainer.model)
        own = self._own[0] if task.split == "train" else self._own[1]
        rows = _part(rows_of(task, self._data, own, self._served), task)
        with ExitStack() as stack:
            if trainer.compute_metrics is None and "correct" in task.sums:
                counting = {
                    "compute_metrics": _correct_tokens if task.task == "next-token" else _correct,
                    "preprocess_logits_for_metrics": _classes,
                }
                stack.enter_context(changed(trainer, **counting))
            found = trainer.evaluate(eval_dataset=rows)
        names = {"loss": "loss", "accuracy": "accuracy", "mae": "mae", **self._names}
        means = {
            mean: found[key]
            for mean, name in names.items()
            for key in (name, f"eval_{name}")
            if key in found
        }
        return int(found.get("eval_examples", len(rows))), means

    def _divide_by_fsdp2(self) -> None:
        """Before the first training. accelerate does it only together with an optimizer, of which
        an evaluation has none."""
        trainer = self._trainer
        plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
        if getattr(plugin, "fsdp_version", 1) == 2 and not is_divided(trainer.model):
            trainer.create_optimizer()
            prepared = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
            trainer.model, trainer.optimizer = prepared
            trainer.model_wrapped = trainer.model

    def name(self) -> str:
        import torch
        import transformers

        kind = type(self._trainer).__name__
        return f"{kind} of transformers {transformers.__version__}, torch {torch.__version__}"

    def _arguments(self, task: Any) -> dict[str, Any]:
        """The TrainingArguments that a turn changes."""
        changes: dict[str, Any] = {}
        if self._local:
            changes = {
                "learning_rate": task.local["lr"],
                "num_train_epochs": task.local["epochs"],
                "max_steps": task.local["steps"] or -1,
            }
        if is_trial(task):
            changes["max_steps"] = 1
        return changes

    def _begin_anew(self) -> None:
        """Optimizer, schedule and counters as in a trainer that was just made."""
        trainer = self._trainer
        trainer.model_wrapped = trainer.model
        if not self.divides:  # An evaluation before the first training says that it needs no DDP.
            vars(trainer.model).pop("_is_accelerate_prepared", None)
        trainer.optimizer, trainer.lr_scheduler = self._optimizer, self._scheduler
        for part, state in zip((self._optimizer, self._scheduler), self._first):
            if part is not None:
                getattr(part, "state", {}).clear()
                part.load_state_dict(copy.deepcopy(state))
        trainer.state = type(trainer.state)()
        trainer.control = type(trainer.control)()
        for callback in trainer.callback_handler.callbacks:
            if hasattr(callback, "early_stopping_patience_counter"):
                callback.early_stopping_patience_counter = 0

    def _count_rows(self) -> None:
        step = self._trainer.training_step

        def counting(model: Any, inputs: Any, *rest: Any, **given: Any) -> Any:
            self._rows += size_of(inputs)
            return step(model, inputs, *rest, **given)

        self._trainer.training_step = counting

    def _add_correction(self) -> bool:
        """Whether the trainer tells before it steps, which older ones do not."""
        from transformers import TrainerCallback

        if not hasattr(TrainerCallback, "on_pre_optimizer_step") or self._trainer.args.fp16:
            return False
        patched = self

        class Correction(TrainerCallback):  # type: ignore[misc]
            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                if patched._turn is not None:
                    patched._turn.correct()

        self._trainer.add_callback(Correction())
        return True

    def _add_rates(self) -> None:
        from transformers import TrainerCallback

        patched = self

        class Begin(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                if patched.divides and patched._turn is not None:
                    patched._turn.begin(patched._trainer.model_wrapped)

        class Look(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
                patched._rates.look(None if patched._trainer.args.fp16 else optimizer)

            def on_step_end(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
                patched._rates.step()
                self.on_step_begin(optimizer=optimizer)  # what accumulates may tell no beginning

        self._trainer.callback_handler.callbacks.insert(0, Begin())  # others may look at weights
        self._trainer.add_callback(Look())


def _refuse(trainer: Any) -> None:
    if getattr(trainer, "model_init", None) is not None:
        raise ArgumentError(
            "macaw.patch: the trainer makes a model of its own for each training (model_init), and "
            "a turn trains the run's: give Trainer(model=…)"
        )
    if getattr(trainer, "is_deepspeed_enabled", False):
        raise ArgumentError(
            "macaw.patch: the trainer divides its model by DeepSpeed, of which a turn gets no "
            "whole tensors: take FSDP (TrainingArguments(fsdp=…)) or DDP"
        )


def _divides(trainer: Any) -> bool:
    """Whether by FSDP, or because its model came divided."""
    divides = bool(getattr(trainer, "is_fsdp_enabled", False)) or is_divided(trainer.model)
    if divides:
        refuse_old_torch()
    return divides


def _part(rows: Any, task: Any) -> Any:
    if rows is None:
        raise RuntimeError(
            f"the trainer has no rows of {task.split}: give Trainer(eval_dataset=…), or "
            "macaw.patch(trainer, data=f)"
        )
    if isinstance(rows, Mapping):
        raise RuntimeError(
            f"the trainer's eval_dataset is several, {', '.join(map(str, rows))}: give one of them "
            "for a run, or macaw.patch(trainer, data=f)"
        )
    if task.end > len(rows):
        raise RuntimeError(
            f"{task.name} has {task.end} {task.split} rows for the run, and the trainer has "
            f"{len(rows)}: the file of data.path must say how many there are"
        )
    if (task.begin, task.end) == (0, len(rows)):
        return rows
    return _chosen_rows(rows, range(task.begin, task.end))


def _first(rows: Any, count: int) -> Any:
    if isinstance(rows, Mapping):
        return {name: _first(part, count) for name, part in rows.items()}
    if not hasattr(rows, "__len__"):
        return rows
    return _chosen_rows(rows, range(min(count, len(rows))))


def _chosen_rows(rows: Any, numbers: range) -> Any:
    if hasattr(rows, "select"):  # a dataset of Hugging Face
        return rows.select(numbers)
    import torch

    return torch.utils.data.Subset(rows, numbers)


def _classes(logits: Any, _: Any) -> Any:
    """The classes, in place of logits, which would fill the memory."""
    return (logits[0] if isinstance(logits, (tuple, list)) else logits).argmax(-1)


def _correct(found: Any) -> dict[str, float]:
    return {"accuracy": float(np.mean(found.predictions == found.label_ids))}


def _correct_tokens(found: Any) -> dict[str, float]:
    """Of a model of texts, whose output at a position is about the next one."""
    chosen, labels = found.predictions[:, :-1], found.label_ids[:, 1:]
    used = labels != -100
    count = int(used.sum())
    return {"accuracy": float((chosen == labels)[used].sum()) / max(count, 1), "examples": count}
