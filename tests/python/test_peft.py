"""peft= and tokenised texts: models of Hugging Face as they are, and what travels of them.

| what | test |
|---|---|
| LoRA, beside peft's own loop | Adapters.test_train_as_in_pefts_own_loop |
| models of Auto… classes, perplexity | FromAConfig.test_have_the_perplexity_of_pefts_loop |
| the guide's lines | FromAConfig.test_runs_as_the_guide_says |
| what is sent and kept | Adapters.test_alone_are_sent |
| seeds, functions that make modules | Adapters.test_are_drawn_from_the_seed |
| sweeps | Adapters.test_of_a_sweep |
| gradient checkpointing | Checkpointing |
| rows of several lengths, with and without labels | Texts |
| wrong configurations, texts, labels | Adapters.test_refused, Texts.test_refused |
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import trainer_programs as programs

import macaw
from support import SOURCE, TestCase

TOKENS = programs.TOKENS


def rows(count: int = 20, seed: int = 0) -> list[list[int]]:
    """Texts of two to eight tokens that count up."""
    random = np.random.default_rng(seed)
    starts, lengths = random.integers(0, TOKENS, count), random.integers(2, 9, count)
    lengths[:4] = 8  # whole rows, on which a run compares the module with what trains
    return [((s + np.arange(n)) % TOKENS).tolist() for s, n in zip(starts, lengths)]


class TextCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ignore_warnings()

    def run_of(self, name: str = "run", **changes: Any) -> macaw.Run:
        job = {
            "model": programs.gpt(),
            "data": rows(),
            "test": rows(6, 1),
            "partition": macaw.iid(clients=1),
            "cohort": 1,
            "rounds": 2,
            "local": {"lr": 0.5, "batch_size": 5, "epochs": 2, "shuffle": False},
            "out": self.folder / name,
            "cache": self.folder / "cache",
            "overwrite": True,
        }
        try:
            return macaw.simulate(**{**job, **changes})
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error


def padded(texts: list[list[int]]) -> tuple[Any, Any]:
    ids = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = labels[row, : len(text)] = torch.tensor(text)
    return ids, labels


def loss_of(model: Any, texts: list[list[int]]) -> Any:
    ids, labels = padded(texts)
    logits = model(input_ids=ids).logits[:, :-1].reshape(-1, TOKENS)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), ignore_index=-100)


def train_by_hand(model: Any, texts: list[list[int]], rate: float = 0.5) -> None:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    for _ in range(4):
        for begin in range(0, len(texts), 5):
            optimizer.zero_grad()
            loss_of(model, texts[begin : begin + 5]).backward()
            optimizer.step()


class Adapters(TextCase):
    def test_train_as_in_pefts_own_loop(self) -> None:
        first = self.run_of("first", rounds=0, peft=programs.lora())
        run = self.run_of(peft=programs.lora())
        model = first.module().train()
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        train_by_hand(model, rows())
        found = run.module().state_dict()
        moved = []
        for name, tensor in model.state_dict().items():
            np.testing.assert_allclose(found[name], tensor, atol=1e-6, err_msg=name)
            if not np.allclose(tensor, start[name], atol=1e-3):
                moved.append(name)
        self.assertTrue(moved and all("lora_" in name for name in moved), moved)
        with torch.no_grad():
            expected = loss_of(model.eval(), rows(6, 1)).item()
        self.assertAlmostEqual(run.rows[-1]["test_loss"], expected, 5)

    def test_alone_are_sent(self) -> None:
        whole, run = self.run_of("whole"), self.run_of(peft=programs.lora())
        self.assertLess(run.rows[0]["bytes_up"], whole.rows[0]["bytes_up"] / 4)
        sent = [name for name in macaw.Run(run.folder).model() if "masked_bias" not in name]
        self.assertTrue(sent and all("lora_" in name for name in sent), sent)

    def test_go_back_to_peft(self) -> None:
        import peft

        run = self.run_of(peft=programs.lora())
        run.module().save_pretrained(self.folder / "adapters")
        loaded = peft.PeftModel.from_pretrained(programs.gpt(), str(self.folder / "adapters"))
        ids, _ = padded(rows(6, 1))
        mine, theirs = (m.eval()(input_ids=ids).logits for m in (run.module(), loaded))
        self.assertTrue(torch.equal(mine, theirs))
        fresh = peft.get_peft_model(programs.gpt(), programs.lora())
        fresh.load_state_dict(run.model())
        self.assertTrue(torch.equal(fresh.eval()(input_ids=ids).logits, mine))

    def test_are_no_model_of_one_file(self) -> None:
        """Their base is in the module, so `macaw model merge` has nothing to fold them into."""
        run, out = self.run_of(peft=programs.lora(), rounds=1), self.folder / "whole.safetensors"
        command = [macaw._program.program(), "model", "merge", run.folder, "--out", out]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("run.module().merge_and_unload()", said.stderr)
        self.assertFalse(out.exists())

    def test_leave_the_given_module_as_it_is(self) -> None:
        model = programs.gpt()
        names = list(model.state_dict())
        self.run_of(model=model, peft=programs.lora())
        self.assertEqual(list(model.state_dict()), names)
        self.assertTrue(all(p.requires_grad for p in model.parameters()))

    def test_are_drawn_from_the_seed(self) -> None:
        def first(name: str, **more: Any) -> Any:
            return self.run_of(name, rounds=0, peft=programs.lora(), **more).model()

        one, same, other = first("one", seed=1), first("same", seed=1), first("other", seed=2)
        name = next(name for name in one if "lora_A" in name)
        self.assertTrue(torch.equal(one[name], same[name]))
        self.assertFalse(torch.equal(one[name], other[name]))
        made = [
            first(f"made-{seed}", seed=seed, model=lambda: programs.gpt(seed=None))
            for seed in (1, 2)
        ]
        self.assertFalse(torch.equal(made[0][name], made[1][name]))

    def test_of_a_sweep(self) -> None:
        ranks = [programs.lora(r=1), programs.lora(r=3)]
        sweep = macaw.sweep(
            programs.gpt(), rows(), test=rows(6, 1), peft=macaw.grid(ranks), cohort=1, rounds=1,
            partition=macaw.iid(clients=1), out=self.folder / "sweep", cache=self.folder / "cache",
            progress=False,
        )  # fmt: skip
        models = [run.model() for run in sweep.runs.values()]
        sizes = sorted(sum(t.size for n, t in m.items() if "lora_" in n) for m in models)
        self.assertEqual(sizes, [32, 96])  # r · (8 + 24)

    def test_of_a_base_that_each_seed_draws_are_refused(self) -> None:
        import peft

        def made() -> Any:
            return peft.get_peft_model(programs.gpt(seed=None), programs.lora())

        with self.assertRaises(macaw.ModelError) as caught:
            self.run_of(model=made, seed=1)
        self.assertIn("it is frozen", str(caught.exception))

    def test_refused(self) -> None:
        for config, model, words in (
            ({"r": 2}, programs.gpt(), "a configuration of the package peft"),
            (programs.lora(), ["linear 3"], "is for a torch.nn.Module"),
            (programs.lora(), programs.gpt(adapters=True), "adapters of peft already"),
            (programs.lora(target_modules=["nowhere"]), programs.gpt(), "nowhere"),
        ):
            with self.assertRaises(macaw.Error) as caught:
                self.run_of(peft=config, model=model)
            self.assertIn(words, str(caught.exception))


class FromAConfig(TextCase):
    """What AutoModelForCausalLM.from_config makes."""

    def configs(self) -> dict[str, Any]:
        import transformers

        llama = transformers.LlamaConfig(
            vocab_size=TOKENS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=16,
        )  # fmt: skip
        return {"gpt2": programs.gpt().config, "llama": llama}

    def test_have_the_perplexity_of_pefts_loop(self) -> None:
        import peft
        from transformers import AutoModelForCausalLM

        names = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"]}
        for kind, config in self.configs().items():
            with self.subTest(kind):
                torch.manual_seed(0)
                job = {
                    "model": AutoModelForCausalLM.from_config(config),
                    "peft": peft.LoraConfig(
                        r=2, target_modules=names[kind], fan_in_fan_out=kind == "gpt2"
                    ),
                    "evaluation": {"metrics": ["perplexity"]},
                }
                model = self.run_of(f"{kind}-0", rounds=0, **job).module().train()
                train_by_hand(model, rows())
                run = self.run_of(kind, **job)
                with torch.no_grad():
                    expected = math.exp(loss_of(model.eval(), rows(6, 1)).item())
                found = [row["test_perplexity"] for row in run.rows]
                self.assertAlmostEqual(found[-1] / expected, 1, 5)
                self.assertNotAlmostEqual(found[0] / found[-1], 1, 3)

    def test_runs_as_the_guide_says(self) -> None:
        import peft
        import transformers

        text = (SOURCE / "docs/guides/models.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        lines = [block for block in blocks if "from_config(" in block or "LlamaConfig(" in block]
        self.assertEqual(len(lines), 2)
        tokens = np.random.default_rng(0).integers(0, 512, (600, 9)).astype(np.int32)
        names = {
            "transformers": transformers,
            "macaw": macaw,
            "AutoModelForCausalLM": transformers.AutoModelForCausalLM,
            "LoraConfig": peft.LoraConfig,
            "tokens": tokens,
            "rows": [{"input_ids": t[: 2 + i % 8].tolist()} for i, t in enumerate(tokens[:120])],
        }
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(self.folder)
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache")):
            for block in lines:
                try:
                    exec(block, names)
                except macaw.MissingBackendError as error:
                    self.skipTest(str(error))
        rounds = names["run"].rows
        self.assertEqual(len(rounds), 20)
        for row in rounds:
            self.assertAlmostEqual(row["test_perplexity"] / math.exp(row["test_loss"]), 1, 5)
        self.assertNotEqual(rounds[-1]["test_perplexity"], rounds[0]["test_perplexity"])
        self.assertTrue((self.folder / "adapters/adapter_config.json").exists())


class Checkpointing(TextCase):
    """gradient_checkpointing_enable() of Hugging Face, and torch.utils.checkpoint."""

    def warned(self, name: str, **changes: Any) -> tuple[macaw.Run, str]:
        run = self.run_of(name, **changes)
        return run, dict(run.said).get("warning", "")

    def test_of_a_traced_module_is_left_out_and_said(self) -> None:
        plain, said = self.warned("plain")
        self.assertNotIn("keeps its activations", said)
        for reentrant in (True, False):
            model = programs.gpt()
            options = {"use_reentrant": reentrant}
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
            run, said = self.warned(f"again-{reentrant}", model=model)
            self.assertIn("gradient_checkpointing_enable(): a traced module keeps its", said)
            self.assertEqual(run.digest, plain.digest)
            self.assertTrue(model.is_gradient_checkpointing, "the module stays as it was given")

    def test_is_a_key_of_the_run(self) -> None:
        local = {"lr": 0.5, "batch_size": 5, "epochs": 2, "shuffle": False}
        model = programs.gpt()
        model.gradient_checkpointing_enable()
        for job in ({}, {"peft": programs.lora()}):
            plain, _ = self.warned("plain", local=local, **job)
            again, said = self.warned(
                "again", local={**local, "checkpoint": True}, **{**job, "model": model}
            )
            self.assertNotIn("keeps its activations", said)
            self.assertEqual(again.digest, plain.digest)

    def test_with_adapters(self) -> None:
        plain, _ = self.warned("plain", peft=programs.lora())
        model = programs.gpt()
        model.gradient_checkpointing_enable()
        run, said = self.warned("again", model=model, peft=programs.lora())
        self.assertIn("keeps its activations", said)
        self.assertEqual(run.digest, plain.digest)

    def test_of_a_module_of_ones_own(self) -> None:
        plain, _ = self.warned("plain", model=Deep(again=False))
        run, said = self.warned("again", model=Deep(again=True))
        self.assertIn("torch.utils.checkpoint", said)
        for name, tensor in plain.model().items():
            np.testing.assert_array_equal(np.asarray(run.model()[name]), np.asarray(tensor))
        from torch.utils.checkpoint import CheckpointFunction

        self.assertNotIn("apply", vars(CheckpointFunction), "it is as it was")

    def test_in_python_computes_again(self) -> None:
        model = programs.gpt()
        model.gradient_checkpointing_enable()
        run, said = self.warned("again", model=model, rounds=1, train=passes_twice)
        self.assertNotIn("keeps its activations", said)
        plain, _ = self.warned("plain", rounds=1, train=passes_once)
        self.assertEqual(run.digest, plain.digest)


def one_step(model: Any, rows: Any, passes: int) -> Any:
    """Fails where the first block does not pass so often."""
    x, y = rows
    passed = []
    hook = model.transformer.h[0].register_forward_pre_hook(lambda *_: passed.append(1))
    loss = torch.nn.functional.cross_entropy(model(x).logits[:, -1], y)
    loss.backward()
    hook.remove()
    if len(passed) != passes:
        raise RuntimeError(f"{len(passed)} passes")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    return model, {"loss": loss.item()}


def passes_once(model: Any, rows: Any, ctx: Any) -> Any:
    return one_step(model, rows, 1)


def passes_twice(model: Any, rows: Any, ctx: Any) -> Any:
    return one_step(model, rows, 2)


class Deep(torch.nn.Module):
    """Two hidden layers, of which the second may be computed again."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = torch.nn.Embedding(TOKENS, 6)
        self.hidden = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh())
        self.last = torch.nn.Linear(12, TOKENS)
        self.again = again

    def forward(self, x: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        h = self.tokens(x)
        h = checkpoint(self.hidden, h) if self.again and self.training else self.hidden(h)
        return self.last(h)


class Texts(TextCase):
    def test_of_several_lengths_train_on_their_tokens_alone(self) -> None:
        model = programs.gpt()
        run = self.run_of(local={"lr": 0.1, "batch_size": 5, "epochs": 2, "shuffle": False})
        train_by_hand(model, rows(), rate=0.1)
        for name, tensor in run.module().named_parameters():
            expected = dict(model.named_parameters())[name].detach()
            np.testing.assert_allclose(tensor.detach(), expected, atol=1e-6, err_msg=name)

    def test_are_the_same_rows_in_any_form(self) -> None:
        texts = rows()
        ids, labels = padded(texts)
        mask = (labels != -100).long()
        whole = [{"input_ids": i, "attention_mask": m, "labels": own}
                 for i, m, own in zip(ids, mask, labels)]  # fmt: skip
        pairs = [t[:-1] for t in texts], np.array([t[-1] for t in texts])
        digests = {
            self.run_of(name, data=data).digest
            for name, data in {
                "lists": texts,
                "arrays": [np.array(t) for t in texts],
                "ids": [{"input_ids": t} for t in texts],
                "padded": whole,
                "dataset": Dataset(input_ids=texts),
                "padded dataset": Dataset(
                    input_ids=ids.tolist(), attention_mask=mask.tolist(), labels=labels.tolist()
                ),
            }.items()
        }
        self.assertEqual(len(digests), 1)
        self.assertEqual(digests, {self.run_of("pairs", data=pairs).digest})

    def test_with_classes_are_classified(self) -> None:
        texts = [{"input_ids": t, "label": len(t) % 3} for t in rows()]
        layers = [f"embedding {TOKENS} 4", "mean", "linear 3"]
        run = self.run_of(data=texts, test=texts[:6], model=layers,
                          local={"lr": 0.1}, run={"task": "classification"})  # fmt: skip
        self.assertIn("accuracy", " ".join(run.rows[-1]))
        pairs = [t["input_ids"] for t in texts], np.array([t["label"] for t in texts])
        again = self.run_of("pairs", data=pairs, test=texts[:6], model=layers,
                            local={"lr": 0.1}, run={"task": "classification"})  # fmt: skip
        self.assertEqual(run.digest, again.digest)

    def test_have_the_labels_of_the_column_that_was_asked_for(self) -> None:
        kinds, task = [len(t) % 3 for t in rows()], {"task": "classification"}
        texts = [{"input_ids": t, "kind": k, "label": 0} for t, k in zip(rows(), kinds)]
        dataset = Dataset(input_ids=rows(), kind=kinds, label=[0] * len(kinds))
        layers = [f"embedding {TOKENS} 4", "mean", "linear 3"]
        job = {"model": layers, "run": task, "label": "kind"}
        pairs = rows(), np.array(kinds)
        digest = self.run_of("pairs", data=pairs, test=pairs, model=layers, run=task).digest
        for name, data in (("rows", texts), ("dataset", dataset)):
            run = self.run_of(name, data=data, test=data, **job)
            self.assertEqual(run.digest, digest)
            for label in ("knid", "labels"):
                with self.assertRaises(macaw.DataError) as caught:
                    self.run_of(name, data=data, test=data, **{**job, "label": label})
                self.assertIn(f"label={label!r} is no column", str(caught.exception))
                self.assertIn("There are input_ids, kind, label", str(caught.exception))

    def test_have_labels_under_the_names_of_tables(self) -> None:
        kinds, task = [len(t) % 3 for t in rows()], {"task": "classification"}
        layers = [f"embedding {TOKENS} 4", "mean", "linear 3"]
        digests = {
            self.run_of(name, data=data, test=data, model=layers, run=task).digest
            for name, data in {
                "label": [{"input_ids": t, "label": k} for t, k in zip(rows(), kinds)],
                "target": [{"input_ids": t, "target": k} for t, k in zip(rows(), kinds)],
                "dataset": Dataset(input_ids=rows(), y=kinds),
            }.items()
        }
        self.assertEqual(len(digests), 1)

    def test_of_several_lengths_are_told_to_a_module_that_sees_padding(self) -> None:
        texts = [{"input_ids": t, "label": len(t) % 3} for t in rows()]
        run = self.run_of(model=Bag(), data=texts, test=texts[:6], local={"lr": 0.1})
        self.assertIn("it sees padding as token 0", dict(run.said)["warning"])
        even = [{"input_ids": t[:2], "label": len(t) % 3} for t in rows()]
        run = self.run_of(model=Bag(), data=even, test=even[:6], local={"lr": 0.1})
        self.assertNotIn("padding", dict(run.said).get("warning", ""))

    def test_of_clients(self) -> None:
        texts = rows()
        run = self.run_of(data={"ann": texts[:12], "bob": texts[12:]}, partition=None, cohort=2)
        self.assertEqual(run.rows[0]["clients"], 2)
        who = ["ann"] * 12 + ["bob"] * 8
        again = self.run_of("again", data=texts, client=who, partition=None, cohort=2)
        self.assertEqual(run.digest, again.digest)

    def test_refused(self) -> None:
        prompt = [{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}] * 4
        left = [{"input_ids": [0, 2, 3], "attention_mask": [0, 1, 1]}] * 4
        vectors = [{"input_ids": [1, 2, 3], "labels": [0.5, 1.0]}] * 4
        gaps = [{"input_ids": [1, 2, 3], "label": 1}, {"input_ids": [1, 2, 3]}]
        for data, words in (
            ([[1], [2, 3]], "row 0 has 1 tokens"),
            (prompt, "the labels of row 0 are not its tokens"),
            (left, "row 0 is padded on the left"),
            (vectors, "the labels of row 0 are float64[2] for 3 tokens; a row has one label"),
            (gaps, "row 1 has no 'label', which row 0 has"),
        ):
            with self.assertRaises(macaw.DataError) as caught:
                self.run_of(data=data)
            self.assertIn(words, str(caught.exception))


class Bag(torch.nn.Module):
    """Classifies texts by the mean of their tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(TOKENS, 4), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x).mean(1))


class Dataset:
    """What a Dataset of Hugging Face is to a reader of columns."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns
        self.features = dict.fromkeys(columns)

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: column[key] for name, column in self._columns.items()}


if __name__ == "__main__":
    unittest.main()
