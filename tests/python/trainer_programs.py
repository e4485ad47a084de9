"""Programs with a Trainer of their own, as people write them: clients of trainer_case.py.

    python trainer_programs.py KIND [OPTION…]

KIND: hugging, lightning. OPTIONS: data (rows of several clients), local (rate and epochs of the
run), given (an optimizer of the caller's), adam, clip, newer (transformers), peft, ranks=N,
fsdp=1 or 2 (which kind divides the model), shuffle, stop (early), checkpoint (activations),
rows=COUNT (to train), fail=ROUND, manual (steps by the module, and the name of the loss), alone
(rank 0 logs the accuracy).
"""

from __future__ import annotations

import os
import sys
import tempfile
import types
import warnings
from typing import Any

import numpy as np
import torch
import trainer_fsdp

warnings.simplefilter("ignore")
TOKENS, LENGTH = 20, 7
EPOCHS, RATE, BATCH, MOMENTUM = 2, 0.1, 4, 0.9
TRAINED, TESTED = 10, 6
CLIP = 0.2


# ---- Hugging Face: a small GPT-2


def gpt(adapters: bool = False, seed: int | None = 0) -> Any:
    """seed: None draws from torch as it is."""
    import transformers

    if seed is not None:
        torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=TOKENS, n_embd=8, n_layer=1, n_head=2, n_positions=LENGTH + 1, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    masks = [name for name, b in model.named_buffers() if b.dtype == torch.bool]
    model._ddp_params_and_buffers_to_ignore = masks  # gloo of PyTorch 1.13 sends no booleans
    if adapters:
        import peft

        model = peft.get_peft_model(model, lora())
    return model


def lora(**more: Any) -> Any:
    import peft

    usual = {"task_type": "CAUSAL_LM", "target_modules": ["c_attn"], "fan_in_fan_out": True}
    return peft.LoraConfig(**{"r": 2, **usual, **more})


def texts(client: str, split: str) -> list[dict[str, Any]]:
    """Numbers that count up, from where the client begins; a model learns that soon."""
    count = {"train": TRAINED, "test": TESTED}[split]
    random = np.random.default_rng([*client.encode(), split == "test"])
    first = random.integers(0, TOKENS, (count, 1))
    rows = torch.from_numpy((first + np.arange(LENGTH + 1)) % TOKENS)
    return [{"input_ids": row, "labels": row} for row in rows]


class WithMomentum:
    """A Trainer whose optimizer has a state, so that one which is not reset is seen."""

    def create_optimizer(self, *_: Any) -> Any:
        if self.optimizer is None:
            self.optimizer = sgd(self.model, self.args.learning_rate)
        tell_before_steps(self)
        return self.optimizer


def tell_before_steps(trainer: Any) -> None:
    """As transformers from 4.46 on does it; the one of trainers.lock has no such event."""
    import transformers

    if not hasattr(transformers.TrainerCallback, "stands_for_newer"):
        return
    optimizer, step = trainer.optimizer, trainer.optimizer.step

    def told(_: Any, *given: Any, **named: Any) -> Any:
        trainer.callback_handler.call_event(
            "on_pre_optimizer_step", trainer.args, trainer.state, trainer.control
        )
        return step(*given, **named)

    optimizer.step = types.MethodType(told, optimizer)  # schedules want a method


def be_newer() -> None:
    import transformers

    base = transformers.TrainerCallback
    if not hasattr(base, "on_pre_optimizer_step"):
        base.on_pre_optimizer_step = lambda *_, **__: None
        base.stands_for_newer = True


class InOrder:
    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def saving() -> dict[str, Any]:
    """Five epochs of which the best counts; early stopping wants all of it."""
    import transformers

    old = hasattr(transformers.TrainingArguments, "evaluation_strategy")
    return {
        "num_train_epochs": 5, "evaluation_strategy" if old else "eval_strategy": "epoch",
        "save_strategy": "epoch", "load_best_model_at_end": True, "save_total_limit": 1,
        "metric_for_best_model": "eval_loss",
    }  # fmt: skip


def stopper() -> Any:
    """Stops after two epochs: the second one is not better by ten."""
    import transformers

    return transformers.EarlyStoppingCallback(1, early_stopping_threshold=10.0)


def counter(model: Any) -> Any:
    """Fails where the first block of the model does not pass twice a step: to checkpoint it."""
    import transformers

    passes = []
    block = next(m for m in model.modules() if type(m).__name__ == "GPT2Block")
    block.register_forward_pre_hook(lambda m, _: passes.append(1) if m.training else None)

    class Counter(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            passes.clear()

        def on_train_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if len(passes) != 2 * state.global_step:
                raise RuntimeError(f"{len(passes)} passes in {state.global_step} steps")

    return Counter()


def sgd(model: Any, rate: float = RATE) -> Any:
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=rate, momentum=MOMENTUM)


def hugging(
    model: Any, client: str = "a", *, shuffle: bool = False, given: Any = None, ranks: int = 1,
    fsdp: int = 0, **more: Any,
) -> Any:  # fmt: skip
    import transformers

    old = int(transformers.__version__.split(".")[0]) < 5
    options = {
        "num_train_epochs": EPOCHS, "learning_rate": RATE, "lr_scheduler_type": "constant",
        "per_device_train_batch_size": BATCH // ranks, "report_to": [], "save_strategy": "no",
        "logging_strategy": "no", "disable_tqdm": True, "no_cuda" if old else "use_cpu": True,
        **more,
    }  # fmt: skip
    if ranks > 1:
        options["ddp_backend"] = "gloo"
    if fsdp:
        options.update(trainer_fsdp.hugging_options(fsdp))
    arguments = transformers.TrainingArguments(tempfile.mkdtemp(), **options)
    if fsdp:
        trainer_fsdp.be_an_accelerator()
    bases = (WithMomentum, *(() if shuffle else (InOrder,)), transformers.Trainer)
    kind = type("Trainer", bases, {})
    return kind(
        model=model,
        args=arguments,
        train_dataset=texts(client, "train"),
        eval_dataset=texts(client, "test"),
        optimizers=(given, None),
    )


# ---- Lightning: a linear layer inside the module, so that the run's names are a part of its own


def lightning() -> Any:
    try:
        import lightning.pytorch as package
    except ImportError:
        import pytorch_lightning as package
    # Debian's PyTorch 1.13 cannot import what this looks for under Python 3.11.
    hook = "_register_sharded_tensor_state_dict_hooks_if_available"
    if hasattr(package.LightningModule, hook):
        setattr(package.LightningModule, hook, lambda _: None)
    return package


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3))


def vectors(client: str, split: str) -> Any:
    count = {"train": TRAINED, "test": TESTED}[split]
    random = np.random.default_rng([*client.encode(), split == "test"])
    y = random.integers(0, 3, count)
    x = random.normal(size=(count, 4)) + 2 * np.eye(3, 4)[y]
    return torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def loader(client: str, split: str, batch: int = BATCH, shuffle: bool = False) -> Any:
    return torch.utils.data.DataLoader(vectors(client, split), batch_size=batch, shuffle=shuffle)


def classifier(rate: float = RATE, adam: bool = False) -> Any:
    class Classifier(lightning().LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Any) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, _: int) -> Any:
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:
            outputs = self(batch[0])
            self.log("val_loss", torch.nn.functional.cross_entropy(outputs, batch[1]))
            self.log("val_acc", (outputs.argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters()) if adam else sgd(self, rate)

    return Classifier()


def manual(name: str) -> Any:
    """A module with two optimizers, whose steps are its own; it logs its loss by this name."""

    class Manual(type(classifier())):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, number: int) -> None:
            loss = super().training_step(batch, number)
            both = self.optimizers()
            for optimizer in both:
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in both:
                optimizer.step()
            self.log(name, loss)

        def configure_optimizers(self) -> Any:
            weight, bias = self.net.parameters()
            return torch.optim.SGD([weight], lr=RATE), torch.optim.Adam([bias], lr=RATE)

    return Manual()


def telling_alone() -> Any:
    """A module whose rank 0 logs the accuracy for all, as with metrics of torchmetrics."""

    class TellingAlone(type(classifier())):  # type: ignore[misc]
        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))
            if self.trainer.is_global_zero:
                self.log("val_acc", 0.25, rank_zero_only=True)

    return TellingAlone()


def lightning_trainer(epochs: int = EPOCHS, ranks: int = 1, fsdp: int = 0, **more: Any) -> Any:
    strategy = "ddp" if ranks > 1 else "auto"
    if fsdp:
        strategy = trainer_fsdp.strategy(lightning(), ranks, fsdp)
    return lightning().Trainer(
        max_epochs=epochs, accelerator="cpu", devices=ranks, logger=False,
        strategy=strategy, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **more,
    )  # fmt: skip


# ---- the programs


def main(kind: str, *options: str) -> None:
    import macaw

    words = dict(option.partition("=")[::2] for option in options)
    ranks, fsdp = int(words.get("ranks", 1)), int(words.get("fsdp", 0))
    rank = macaw.program(ranks)
    torch.set_num_threads(1)
    if "rows" in words:
        global TRAINED
        TRAINED = int(words["rows"])
    shuffle = "shuffle" in words

    def failing(task: Any) -> None:
        if words.get("fail") == str(getattr(task, "round", None)) and rank == ranks - 1:
            os._exit(3)

    if kind == "hugging":
        if "newer" in words:
            be_newer()
        more = saving() if "stop" in words else {}
        model = gpt("peft" in words)
        again = {"gradient_checkpointing": True} if "checkpoint" in words else {}
        if again and "peft" in words:
            model.enable_input_require_grads()  # as the pages of peft ask for
        given = sgd(model) if "given" in words else None
        if "adam" in words:
            given = torch.optim.Adam(model.parameters())
        trainer = hugging(
            model, shuffle=shuffle, given=given, ranks=ranks, fsdp=fsdp, **more, **again
        )
        if more:
            trainer.add_callback(stopper())
        if again:
            trainer.add_callback(counter(model))
        if fsdp:
            trainer.add_callback(trainer_fsdp.hugging_check())

        def rows(task: Any) -> Any:
            failing(task)
            return texts(task.name, task.split)

        data = rows if "data" in words or "fail" in words else None
        macaw.patch(trainer, data=data, local="local" in words)
        trainer.train()
        print("trained alone:", trainer.state.global_step)
        return

    def batches(task: Any) -> Any:
        failing(task)
        return loader(task.name, task.split, BATCH // ranks, shuffle and task.split == "train")

    more: dict[str, Any] = {}
    if "stop" in words:
        stop = lightning().callbacks.EarlyStopping("val_loss", min_delta=10.0, patience=1)
        more = {"epochs": 5, "callbacks": [stop]}
    if "clip" in words:
        more["gradient_clip_val"] = CLIP
    if fsdp:
        more["callbacks"] = [trainer_fsdp.lightning_check(lightning())]
    trainer = lightning_trainer(ranks=ranks, fsdp=fsdp, **more)
    data = batches if "data" in words or "fail" in words else None
    macaw.patch(trainer, data=data, local="local" in words)
    module = manual(words["manual"]) if "manual" in words else classifier(adam="adam" in words)
    module = telling_alone() if "alone" in words else module
    module = trainer_fsdp.divided(module) if fsdp == 2 else module
    trainer.fit(module, loader("a", "train", BATCH // ranks, shuffle), loader("a", "test"))
    print("trained alone:", trainer.global_step)


if __name__ == "__main__":
    main(*sys.argv[1:])
