"""Lightning's Trainer as a client: macaw.patch(trainer)."""

from __future__ import annotations

import copy
import importlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from ._divided import refuse_old_torch, reshard
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

# What modules usually call the run's metrics, where macaw.patch(metrics=…) does not say it.
_USUAL = {
    "loss": ("val_loss", "valid_loss", "validation_loss", "eval_loss", "test_loss", "loss"),
    "accuracy": ("val_accuracy", "val_acc", "valid_acc", "eval_accuracy", "accuracy", "acc"),
    "mae": ("val_mae", "mae"),
}
# The same of a training_step that takes its steps by itself, and returns no loss.
_USUAL_TRAINED = ("train_loss", "training_loss", "loss")


class Patched:
    def __init__(
        self, trainer: Any, *, data: DataFunction | None, local: bool, metrics: dict[str, str]
    ) -> None:
        kinds = [base.__name__ for base in type(trainer.strategy).__mro__]
        if "DeepSpeedStrategy" in kinds:
            raise ArgumentError(
                "macaw.patch: the trainer divides its model by DeepSpeed, of which a turn gets no "
                "whole tensors: take FSDPStrategy, ModelParallelStrategy or DDP"
            )
        self.divides = "FSDPStrategy" in kinds or "ModelParallelStrategy" in kinds
        if self.divides:
            refuse_old_torch()
            self._keep_the_wrapper(trainer.strategy)
        self._trainer, self._data, self._local, self._names = trainer, data, local, metrics
        self.corrects = True
        self.module: Any = None
        self._loaders: dict[str, Any] = {}
        self._served: set[str] = set()
        self._fit = trainer.fit
        self._progress = copy.deepcopy(trainer.fit_loop.state_dict())
        self._callbacks: list[tuple[Any, Any]] = []
        self._report: Any = None

    def take_over(self, serve: Callable[[], None]) -> None:
        def fit(
            model: Any,
            train_dataloaders: Any = None,
            val_dataloaders: Any = None,
            datamodule: Any = None,
            ckpt_path: Any = None,
            **_: Any,
        ) -> None:
            if ckpt_path:
                raise ArgumentError(
                    "trainer.fit(ckpt_path=…): the model of a turn is the run's; leave it out"
                )
            self.module = model
            self._take_loaders(train_dataloaders, val_dataloaders, datamodule)
            self._report = self._add_report()
            self._correct_behind_the_clip()
            self._callbacks = [
                (callback, copy.deepcopy(callback.state_dict()))
                for callback in self._trainer.callbacks
            ]
            serve()

        self._trainer.fit = fit

    @property
    def evaluates(self) -> bool:
        return self._data is not None or self._loaders["val"] is not None

    def prepare(self, seed: int) -> None:
        os.environ["PL_GLOBAL_SEED"] = str(seed)  # of Lightning's DistributedSampler

    def train(self, task: Any, turn: Turn) -> tuple[int, int, dict[str, float], Rates]:
        trainer, loop = self._trainer, self._trainer.fit_loop
        loader = rows_of(task, self._data, self._loaders["train"], self._served)
        if (there := _rows_in(loader)) is not None:
            refuse_other_count(task, there)
        self._begin_anew()
        report = self._report
        report.begin(turn, task.mu, task.local["lr"] if self._local else None)
        if not self.divides:  # else the strategy divides the module first
            turn.begin()
        with ExitStack() as stack:
            if is_trial(task):  # an epoch of a batch, so that callbacks find what they look at
                one = {"limit_train_batches": 1, "limit_val_batches": 1, "num_sanity_val_steps": 0}
                stack.enter_context(changed(trainer, **one))
                stack.enter_context(changed(loop, max_epochs=1))
            elif self._local:
                steps = task.local["steps"] or -1
                epochs = task.local["epochs"] if steps < 0 else -1
                stack.enter_context(changed(loop, max_epochs=epochs))
                stack.enter_context(changed(loop.epoch_loop, max_steps=steps))
            self._fit(self.module, loader, self._loaders["val"])
        if not self.divides:
            turn.end()
        rows, losses = over_ranks([report.rows, report.losses], self._device())
        if report.rows > 0 and not report.told and not self.module.automatic_optimization:
            raise RuntimeError(
                "training_step returns no loss and logs none that is known here: return it, or "
                'self.log("train_loss", …)'
            )
        loss = losses / max(rows, 1) if report.told else math.nan
        return int(rows), trainer.global_step, {"loss": loss}, report.rates

    def evaluate(self, task: Any, turn: Turn) -> tuple[int, dict[str, float]]:
        own = self._loaders["train" if task.split == "train" else "val"]
        loader = _part(rows_of(task, self._data, own, self._served), task)
        if self.divides:
            self._report.coming = turn
        else:
            turn.begin()
        found: dict[str, float] = {}
        for metrics in self._trainer.validate(self.module, loader, verbose=False):
            found.update(metrics)
        if self.divides:
            reshard(self._trainer.strategy.model)
        means = {}
        for mean, usual in _USUAL.items():
            names = (self._names[mean],) if mean in self._names else usual
            there = next((name for name in names if name in found), None)
            if there is not None:
                means[mean] = found[there]
        if "loss" not in means:
            raise KeyError(
                "validation_step logs no loss that is known here; it logs "
                f'{", ".join(found) or "nothing"}: self.log("val_loss", …), or '
                'macaw.patch(trainer, metrics={"loss": "its name there"})'
            )
        # A rank logs what its own rows give, or the same as all with sync_dist=True.
        sums = over_ranks([1.0, *map(float, means.values())], self._device())
        return task.end - task.begin, dict(zip(means, (x / sums[0] for x in sums[1:])))

    def name(self) -> str:
        import torch

        package = importlib.import_module(_package(self._trainer))
        kind = type(self.module).__name__
        return f"{kind} of Lightning {package.__version__}, torch {torch.__version__}"

    def _device(self) -> Any:
        return self._trainer.strategy.root_device

    def _take_loaders(self, train: Any, val: Any, datamodule: Any) -> None:
        if hasattr(train, "train_dataloader"):  # a LightningDataModule in the second place
            datamodule, train = train, None
        if datamodule is not None:
            datamodule.trainer = self._trainer
            datamodule.prepare_data()
            datamodule.setup("fit")
            train, val = datamodule.train_dataloader(), _loader_of(datamodule, "val_dataloader")
        if train is None and self._data is None:
            train = self.module.train_dataloader()
        if val is None:
            val = _loader_of(self.module, "val_dataloader")
        self._loaders = {"train": train, "val": val}

    def _begin_anew(self) -> None:
        """Epochs, steps and callbacks count from 0. Each fit makes its optimizers by itself."""
        self._trainer.should_stop = False
        loop = self._trainer.fit_loop
        loop.load_state_dict(copy.deepcopy(self._progress))
        for part in _loops(loop):  # it is no restart
            for name in ("_restarting", "_loaded_from_state_dict", "_resuming_from_checkpoint"):
                if hasattr(part, name):
                    setattr(part, name, False)
        for callback, state in self._callbacks:
            callback.load_state_dict(copy.deepcopy(state))

    def _correct_behind_the_clip(self) -> None:
        """As everywhere: the gradient is clipped, and then corrected."""
        module = getattr(self.module, "_orig_mod", self.module)  # of torch.compile
        report = self._report
        clip = module.configure_gradient_clipping

        def clip_and_correct(*given: Any, **named: Any) -> None:
            clip(*given, **named)
            report.correct()

        module.configure_gradient_clipping = clip_and_correct

    def _keep_the_wrapper(self, strategy: Any) -> None:
        """FSDPStrategy would wrap the module of each fit, and what it has divided is no whole."""
        wrap: Callable[[Any], Any] = getattr(strategy, "_setup_model", lambda module: module)
        wrapped: dict[int, Any] = {}

        def wrap_once(module: Any) -> Any:
            if id(module) not in wrapped:
                wrapped[id(module)] = wrap(module)
            return wrapped[id(module)]

        strategy._setup_model = wrap_once

    def _add_report(self) -> Any:
        base = importlib.import_module(_package(self._trainer)).Callback
        patched = self

        class Report(base):  # type: ignore[misc,valid-type]
            """Counts rows, losses and rates of a turn, and adds the rule's correction. Of a module
            that is divided, it also says when that is done."""

            coming: Turn | None = None  # which begins when the module is divided

            def begin(self, turn: Turn, mu: float, rate: float | None) -> None:
                self.turn, self.rate = turn, rate
                self.rows, self.losses, self.told = 0, 0.0, False
                self.rates = Rates(mu)
                self.coming = turn if patched.divides else None

            def on_fit_start(self, trainer: Any, _: Any) -> None:
                if self.coming is not None:
                    self.coming.begin(trainer.strategy.model)
                    self.coming = None

            on_validation_start = on_fit_start

            def on_train_end(self, *_: Any) -> None:
                if patched.divides:  # until the strategy takes the module from the devices
                    self.turn.end()

            def on_train_start(self, trainer: Any, _: Any) -> None:
                if self.rate is None:
                    return
                schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
                for optimizer in trainer.optimizers:
                    set_rate(optimizer, schedules, self.rate)

            def on_train_batch_end(
                self, trainer: Any, module: Any, outputs: Any, batch: Any, *_: Any
            ) -> None:
                rows = size_of(batch)
                self.rows += rows
                loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
                if loss is None and not module.automatic_optimization:
                    loss = _logged(trainer.callback_metrics)
                if loss is not None:
                    self.told = True
                    self.losses += float(loss) * rows

            def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
                scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
                several = len(trainer.optimizers) > 1
                self.rates.look(None if scaled or several else optimizer)
                self.rates.step()
                if not module.automatic_optimization:  # the module clips by itself, before this
                    self.correct()

            def correct(self) -> None:
                self.turn.correct()

        report = Report()
        self._trainer.callbacks.append(report)
        return report


def _package(trainer: Any) -> str:
    """The package that the trainer is of: `lightning.pytorch` or `pytorch_lightning`."""
    roots = [base.__module__.partition(".")[0] for base in type(trainer).__mro__]
    return "lightning.pytorch" if "lightning" in roots else "pytorch_lightning"


def _logged(metrics: Any) -> Any:
    """The loss of a batch, as training_step has logged it; None: it has not."""
    names = [name + end for name in _USUAL_TRAINED for end in ("_step", "")]
    return next((metrics[name] for name in names if name in metrics), None)


def _loops(loop: Any) -> Iterator[Any]:
    yield loop
    for part in vars(loop).values():
        if hasattr(part, "on_save_checkpoint") and hasattr(part, "load_state_dict"):
            yield from _loops(part)


def _loader_of(thing: Any, name: str) -> Any:
    """What a hook of a module or datamodule gives; None where it is not written."""
    try:
        return getattr(thing, name)()
    except Exception as error:
        if type(error).__name__ in ("MisconfigurationException", "NotImplementedError"):
            return None
        raise


def _rows_in(loader: Any) -> int | None:
    rows: Any = getattr(loader, "dataset", None)
    return len(rows) if hasattr(rows, "__len__") else None


def _part(loader: Any, task: Any) -> Any:
    rows = _rows_in(loader)
    if rows is None:
        return loader
    if task.end > rows:
        raise RuntimeError(
            f"{task.name} has {task.end} {task.split} rows for the run, and the trainer has "
            f"{rows}: the file of data.path must say how many there are"
        )
    if (task.begin, task.end) == (0, rows) and loader.batch_size is not None:
        return loader
    import torch

    return torch.utils.data.DataLoader(
        torch.utils.data.Subset(loader.dataset, range(task.begin, task.end)),
        batch_size=loader.batch_size or 1,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
    )
