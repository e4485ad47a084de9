"""Which architectures of Hugging Face and torchvision train as they are, and on what path.

    PYTHONPATH=build/python python bench/architectures.py [--only TEXT] [--write]

Needs PyTorch of the version that `macaw doctor` names, torchvision and transformers; `./dev build`
makes build/python. Each model is built from a configuration of its own library, in a tiny size, and
given to macaw.simulate as it is: two rounds of two clients. A row: what the module became, what
was compared with the module in its own PyTorch before the run, or the sentence of the refusal.
"""

import argparse
import pathlib
import tempfile
import time
import warnings

import frame
import numpy as np
import torch
import torchvision
import transformers

import macaw

RESULTS = frame.ROOT / "bench/results/architectures.md"
CLASSES = 3
TOKENS = 40


def images(size: int):
    rng = np.random.default_rng(1)
    y = np.arange(24) % CLASSES
    return rng.normal(size=(24, 3, size, size)).astype(np.float32), y


def texts(length: int = 12):
    rng = np.random.default_rng(1)
    return rng.integers(1, TOKENS, (24, length)).astype(np.int32), np.arange(24) % CLASSES


def lines(length: int = 12):
    rng = np.random.default_rng(1)
    rows = rng.integers(1, TOKENS, (24, length + 1)).astype(np.int32)
    return rows[:, :-1], rows[:, -1]


def hugging(kind: str, model: str, data, **config):
    made = getattr(transformers, kind)(**config)
    return lambda: getattr(transformers, model)(made), data


TINY = dict(vocab_size=TOKENS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=32)  # fmt: skip
LLAMA = dict(TINY, num_key_value_heads=2, tie_word_embeddings=False)
V = torchvision.models
MODELS = {
    "torchvision ResNet-18": (lambda: V.resnet18(num_classes=CLASSES), images(32)),
    "torchvision MobileNetV3 small": (
        lambda: V.mobilenet_v3_small(num_classes=CLASSES), images(32)),
    "torchvision EfficientNet-B0": (lambda: V.efficientnet_b0(num_classes=CLASSES), images(32)),
    "torchvision ConvNeXt tiny": (lambda: V.convnext_tiny(num_classes=CLASSES), images(32)),
    "torchvision DenseNet-121": (lambda: V.densenet121(num_classes=CLASSES), images(32)),
    "torchvision VisionTransformer": (
        lambda: V.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=CLASSES), images(32)),
    "torchvision Swin tiny": (lambda: V.swin_t(num_classes=CLASSES), images(32)),
    "HF BertForSequenceClassification": hugging(
        "BertConfig", "BertForSequenceClassification", texts(), **TINY, num_labels=CLASSES),
    "HF DistilBertForSequenceClassification": hugging(
        "DistilBertConfig", "DistilBertForSequenceClassification", texts(), vocab_size=TOKENS,
        dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=32,
        num_labels=CLASSES),
    "HF GPT2LMHeadModel": hugging(
        "GPT2Config", "GPT2LMHeadModel", lines(), vocab_size=TOKENS, n_embd=32, n_layer=2,
        n_head=2, n_positions=32),
    "HF LlamaForCausalLM": hugging("LlamaConfig", "LlamaForCausalLM", lines(), **LLAMA),
    "HF Qwen2ForCausalLM": hugging("Qwen2Config", "Qwen2ForCausalLM", lines(), **LLAMA),
    "HF ViTForImageClassification": hugging(
        "ViTConfig", "ViTForImageClassification", images(32), hidden_size=32,
        num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32,
        patch_size=8, num_labels=CLASSES),
    "HF MambaForCausalLM": hugging(
        "MambaConfig", "MambaForCausalLM", lines(), vocab_size=TOKENS, hidden_size=32,
        num_hidden_layers=2, state_size=4),
}  # fmt: skip


def tried(make, data, folder: pathlib.Path, **more) -> list[str]:
    """What became of it, seconds, and the change of the training loss."""
    torch.manual_seed(0)
    module = make()
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    began = time.monotonic()
    try:
        run = macaw.simulate(
            module, data, cohort=2, rounds=2, out=folder / "run", cache=folder / "cache",
            partition=dict(clients=4), local=dict(batch_size=4), progress=False, **more,
        )  # fmt: skip
    except macaw.Error as error:
        return [f"{count:,}", f"refused: {' '.join(str(error).split())}", "–", "–"]
    said = next(text for what, text in run.said if what == "model")
    check = next(text for what, text in run.said if what == "check")
    how = said.partition(", with its weights")[0].split()[1:]
    compared = check.partition(" equal the module's")[0]
    return [f"{count:,}", " ".join(how), compared, f"{time.monotonic() - began:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, (make, data) in MODELS.items():
        if options.only.lower() not in name.lower():
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append([name, *tried(make, data, pathlib.Path(folder))])
        print("  ".join(rows[-1]), flush=True)
    versions = f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, "
    versions += f"transformers {transformers.__version__}"
    table = frame.table(["model", "trained numbers", "became", "equal to the module", "s"], rows)
    text = f"{frame.heading()}; {versions}\n\n{table}"
    print(text)
    if options.write:
        frame.write(RESULTS, "architectures", text)


if __name__ == "__main__":
    main()
