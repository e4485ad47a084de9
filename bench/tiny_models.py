"""Architectures of Hugging Face in tiny sizes, each from a configuration of its own library.

For bench/architectures.py and tests/python/test_architectures.py, with any version of transformers.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

import macaw

CLASSES = 3
TOKENS = 40
Rows = tuple[np.ndarray, np.ndarray]
Made = tuple[Callable[[], Any], Rows]


def images(size: int) -> Rows:
    rng = np.random.default_rng(1)
    y = np.arange(24) % CLASSES
    return rng.normal(size=(24, 3, size, size)).astype(np.float32), y


def texts(length: int = 12) -> Rows:
    rng = np.random.default_rng(1)
    return rng.integers(1, TOKENS, (24, length)).astype(np.int32), np.arange(24) % CLASSES


def lines(length: int = 12) -> Rows:
    rng = np.random.default_rng(1)
    rows = rng.integers(1, TOKENS, (24, length + 1)).astype(np.int32)
    return rows[:, :-1], rows[:, -1]


SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
TINY = dict(SIZES, vocab_size=TOKENS, intermediate_size=64, max_position_embeddings=32)
LLAMA = dict(TINY, num_key_value_heads=2, tie_word_embeddings=False)
HUGGING: dict[str, tuple[str, Rows, dict[str, Any]]] = {
    "BertForSequenceClassification": ("BertConfig", texts(), dict(TINY, num_labels=CLASSES)),
    "RobertaForSequenceClassification": ("RobertaConfig", texts(), dict(TINY, num_labels=CLASSES)),
    "AlbertForSequenceClassification": (
        "AlbertConfig", texts(), dict(TINY, embedding_size=16, num_labels=CLASSES)),
    "DistilBertForSequenceClassification": (
        "DistilBertConfig", texts(),
        dict(vocab_size=TOKENS, dim=32, n_layers=2, n_heads=2, hidden_dim=64,
             max_position_embeddings=32, num_labels=CLASSES)),
    "GPT2LMHeadModel": (
        "GPT2Config", lines(),
        dict(vocab_size=TOKENS, n_embd=32, n_layer=2, n_head=2, n_positions=32)),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", lines(), TINY),
    "OPTForCausalLM": (
        "OPTConfig", lines(),
        dict(SIZES, vocab_size=TOKENS, ffn_dim=64, max_position_embeddings=32,
             word_embed_proj_dim=32)),
    "BloomForCausalLM": (
        "BloomConfig", lines(), dict(vocab_size=TOKENS, hidden_size=32, n_layer=2, n_head=2)),
    "LlamaForCausalLM": ("LlamaConfig", lines(), LLAMA),
    "MistralForCausalLM": ("MistralConfig", lines(), dict(LLAMA, num_key_value_heads=1)),
    "Qwen2ForCausalLM": ("Qwen2Config", lines(), LLAMA),
    "ViTForImageClassification": (
        "ViTConfig", images(32),
        dict(SIZES, intermediate_size=64, image_size=32, patch_size=8, num_labels=CLASSES)),
    "MambaForCausalLM": (
        "MambaConfig", lines(),
        dict(vocab_size=TOKENS, hidden_size=32, num_hidden_layers=2, state_size=4)),
}  # fmt: skip


def hugging(model: str) -> Made:
    kind, rows, config = HUGGING[model]
    made = getattr(transformers, kind)(**config)
    return lambda: getattr(transformers, model)(made), rows


def tried(make: Callable[[], Any], rows: Rows, folder: pathlib.Path, **more: Any) -> list[str]:
    """Two rounds of two clients: trained numbers, what the module became or the sentence of the
    refusal, what was compared with the module before the run, seconds."""
    torch.manual_seed(0)
    module = make()
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    began = time.monotonic()
    try:
        run = macaw.simulate(
            module, rows, cohort=2, rounds=2, out=folder / "run", cache=folder / "cache",
            partition=dict(clients=4), local=dict(batch_size=4), progress=False, **more,
        )  # fmt: skip
    except macaw.MissingBackendError:
        raise
    except macaw.Error as error:
        return [f"{count:,}", f"refused: {' '.join(str(error).split())}", "–", "–"]
    said = next(text for what, text in run.said if what == "model")
    check = next(text for what, text in run.said if what == "check")
    how = said.partition(", with its weights")[0].split()[1:]
    compared = check.partition(" equal the module's")[0]
    return [f"{count:,}", " ".join(how), compared, f"{time.monotonic() - began:.1f}"]
