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
import warnings

import frame
import torch
import torchvision
import transformers
from tiny_models import CLASSES, HUGGING, hugging, images, tried

RESULTS = frame.ROOT / "bench/results/architectures.md"
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
    **{f"HF {model}": hugging(model) for model in HUGGING if hasattr(transformers, model)},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    frame.refuse_part(parser, options, {"--only": bool(options.only)})
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
