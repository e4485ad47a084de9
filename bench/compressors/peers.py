"""The compressors of other systems, on updates in a folder: peers.py FAMILY FOLDER [GRACE].

Prints a JSON list of rows; compressors.py starts it in each family's environment.
"""

import importlib
import importlib.metadata
import json
import os
import pathlib
import sys
import time

import numpy as np
import torch

DRAWS = 100


def size(payload) -> int:
    """Bytes of all arrays in what is sent; names, shapes and types are not counted."""
    if isinstance(payload, torch.Tensor | np.ndarray):
        return payload.nbytes
    if isinstance(payload, dict):
        payload = list(payload.values())
    return sum(map(size, payload)) if isinstance(payload, list | tuple) else 0


class Grace:
    """A compressor of GRACE. Its contexts stay with the sender and are known to the receiver."""

    def __init__(self, name, *arguments, **keywords):
        module = importlib.import_module(f"grace_dl.dist.compressor.{name.lower()}")
        self._inner = getattr(module, f"{name}Compressor")(*arguments, **keywords)

    def pack(self, tensors):
        wire.sent = 0
        self._packed = {n: self._inner.compress(t.clone(), n) for n, t in tensors.items()}
        return [payload for payload, _ in self._packed.values()], wire.sent

    def unpack(self):
        return {n: self._inner.decompress(*packed) for n, packed in self._packed.items()}


class FedMl:
    """A compressor of fedml.utils.compression. Nothing in FedML calls it, so it sends what
    `compress` returns: indices and values, or all numbers."""

    def __init__(self, name, **keywords):
        from fedml.utils.compression import compressors

        self._inner, self._keywords = compressors[name](), keywords

    def pack(self, tensors):
        self._packed, self._tensors = {}, tensors
        for name, tensor in tensors.items():
            flat = tensor.flatten().clone()
            self._inner.update_shapes_dict(flat, name)
            self._packed[name] = self._inner.compress(flat, name, **self._keywords)
        packed = self._packed.values()
        return [p[1:] if isinstance(p, tuple) else p for p in packed], 0

    def unpack(self):
        found = {}
        for name, packed in self._packed.items():
            if isinstance(packed, tuple):
                packed = self._inner.decompress_new(packed[2], packed[1], name)
            found[name] = packed.view(self._tensors[name].shape)
        return found


class NvFlare:
    """NVFlare's pair of filters. Its 8 and 4 bits call .cuda(), which here does nothing. Tensors
    are flat, because bitsandbytes on CPUs decodes blocks that lie in two rows wrongly."""

    def __init__(self, kind):
        from nvflare.apis.dxo import DXO, DataKind
        from nvflare.apis.fl_context import FLContext
        from nvflare.apis.shareable import Shareable
        from nvflare.app_opt.pt.quantization.dequantizer import ModelDequantizer
        from nvflare.app_opt.pt.quantization.quantizer import ModelQuantizer

        self._dxo = lambda tensors: DXO(DataKind.WEIGHT_DIFF, tensors)
        self._context = Shareable(), FLContext()
        self._there, self._back = ModelQuantizer(kind), ModelDequantizer()

    def pack(self, tensors):
        sent = self._dxo({n: t.flatten().clone() for n, t in tensors.items()})
        self._sent = self._there.process_dxo(sent, *self._context)
        return [self._sent.data, self._sent.get_meta_prop("quant_state")], 0

    def unpack(self):
        return dict(self._back.process_dxo(self._sent, *self._context).data)


class Hook:
    """A communication hook of PyTorch's DistributedDataParallel with one process, which
    compresses gradients: those of Σ p·v are v. `pack` does all of its work."""

    def __init__(self, name, rank=0):
        self._name, self._rank, self._model = name, rank, None

    def _register(self, tensors):
        module = Sum(tensors.values())
        self._model = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=100)
        hooks = "torch.distributed.algorithms.ddp_comm_hooks."
        if self._rank:
            hook = importlib.import_module(hooks + "powerSGD_hook")
            state = hook.PowerSGDState(None, self._rank, 2, use_error_feedback=False)
            self._model.register_comm_hook(state, hook.powerSGD_hook)
        else:
            kind = "quantization" if self._name.startswith("quant") else "default"
            hook = importlib.import_module(f"{hooks}{kind}_hooks")
            self._model.register_comm_hook(None, getattr(hook, self._name))

    def pack(self, tensors):
        first = self._model is None
        if first:
            self._register(tensors)
        for _ in range(3 if first and self._rank else 1):  # its first two are not compressed
            wire.sent = 0
            self._model.zero_grad()
            self._model(list(tensors.values())).backward()
        return [], wire.sent

    def unpack(self):
        return {n: p.grad.clone() for n, p in self._model.named_parameters()}


class Sum(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros_like(t) for t in tensors)

    def forward(self, tensors):
        return sum((p * t).sum() for p, t in zip(self.all, tensors))


class Gathered:
    """An all_gather of one process with the result of NCCL, which the quantising hooks expect:
    one tensor with a row for each process. Gloo's is a list."""

    def __init__(self, out, tensor):
        out[0].copy_(tensor)
        self._future = torch.futures.Future()
        self._future.set_result([tensor[None].clone()])

    def get_future(self):
        return self._future


class Wire:
    """Counts the bytes that go into the collective operations of a group of one process."""

    def __init__(self):
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.sent, self._all_reduce = 0, torch.distributed.all_reduce
        torch.distributed.all_reduce = self.all_reduce
        torch.distributed.all_gather = self.all_gather

    def all_reduce(self, tensor, *arguments, **keywords):
        self.sent += tensor.nbytes
        return self._all_reduce(tensor, *arguments, **keywords)

    def all_gather(self, out, tensor, **_):
        self.sent += tensor.nbytes
        return Gathered(out, tensor)


wire = Wire()


# Method, what is set, how one is made, how often one vector is sent.
FAMILIES = {
    "GRACE": [
        ("top-k 1 %", "topk", lambda: Grace("TopK", 0.01), 1),
        ("top-k 1 %", "dgc", lambda: Grace("Dgc", 0.01), 1),
        ("random-k 1 %", "randomk", lambda: Grace("RandomK", 0.01), DRAWS),
        ("QSGD, 7 levels", "qsgd, bucket 512", lambda: Grace("QSGD", 7, 512), DRAWS),
        ("TernGrad", "terngrad (clips at 2.5 σ)", lambda: Grace("TernGrad"), DRAWS),
        ("sign", "efsignsgd, lr 1", lambda: Grace("EFSignSGD", 1), 1),
        ("sign", "onebit", lambda: Grace("OneBit"), 1),
        ("sign", "signsgd", lambda: Grace("SignSGD"), 1),
        ("16 bits", "fp16", lambda: Grace("FP16"), 1),
        ("rank 4", "powersgd, memory", lambda: Grace("PowerSGD", 4, True), 10),
        ("other", "natural", lambda: Grace("Natural"), DRAWS),
    ],
    "PyTorch": [
        ("16 bits", "fp16_compress_hook", lambda: Hook("fp16_compress_hook"), 1),
        ("16 bits", "bf16_compress_hook", lambda: Hook("bf16_compress_hook"), 1),
        ("8 bits", "quantization_pertensor_hook", lambda: Hook("quantization_pertensor_hook"), 1),
        ("8 bits", "quantization_perchannel_hook", lambda: Hook("quantization_perchannel_hook"), 1),
        ("rank 4", "powerSGD_hook", lambda: Hook("powerSGD_hook", 4), 10),
        ("rank 1", "powerSGD_hook", lambda: Hook("powerSGD_hook", 1), 10),
    ],
    "NVFlare": [
        ("16 bits", "float16", lambda: NvFlare("float16"), 1),
        ("8 bits", "blockwise8", lambda: NvFlare("blockwise8"), 1),
        ("8 bits", "adaquant", lambda: NvFlare("adaquant"), 1),
        ("4 bits", "float4", lambda: NvFlare("float4"), 1),
        ("4 bits", "normfloat4", lambda: NvFlare("normfloat4"), 1),
    ],
    "FedML": [
        ("top-k 1 %", "topk", lambda: FedMl("topk", ratio=0.01), 1),
        ("QSGD, 7 levels", "qsgd 3, whole tensors",
         lambda: FedMl("qsgd", quantize_level=3, is_biased=False), DRAWS),
        ("QSGD, 7 levels", "qsgd 3, is_biased (default)",
         lambda: FedMl("qsgd", quantize_level=3), DRAWS),
        ("QSGD, 7 levels", "quantize 3", lambda: FedMl("quantize", quantize_level=3), 1),
    ],
}  # fmt: skip


def updates(folder: pathlib.Path, when: str):
    """Each a dict of tensors by name."""
    layout = json.loads((folder / "layout.json").read_text())
    for file in sorted(folder.glob(f"{when}-*.npy")):
        flat = torch.from_numpy(np.load(file))
        yield {e["name"]: flat[e["offset"] :][: e["size"]].view(e["shape"]) for e in layout}


def flat(tensors) -> torch.Tensor:
    return torch.cat([t.flatten().double() for t in tensors.values()])


def measure(make, draws: int, tensors) -> dict[str, float]:
    method, sent, total, errors, seconds = make(), flat(tensors), 0, [], []
    for draw in range(max(draws, 10)):
        began = time.thread_time()
        payload, reduced = method.pack(tensors)
        seconds.append(time.thread_time() - began)
        if draw >= draws:
            continue  # for the time alone
        came = flat(dict(zip(tensors, method.unpack().values())))
        errors.append(((came - sent).norm() / sent.norm()).item())
        total = total + came
    return {
        "first": errors[0],
        "error": sum(errors) / draws,
        "last": errors[-1],
        "of_mean": ((total / draws - sent).norm() / sent.norm()).item(),
        "at_zeros": torch.cat([came[sent == 0].abs(), torch.zeros(1)]).max().item(),
        "bytes": size(payload) + reduced,
        "seconds": min(seconds),
    }


def main() -> None:
    family, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    sys.path += sys.argv[3:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.Tensor.cuda = lambda tensor, *_: tensor
    rows = []
    for method, setting, make, draws in FAMILIES[family]:
        row = {"method": method, "setting": setting, "draws": draws}
        try:
            for when in ("early", "late", "zeros"):
                row[when] = [measure(make, draws, tensors) for tensors in updates(folder, when)]
        except Exception as error:
            row["why"] = f"{type(error).__name__}: {error}".splitlines()[0]
        rows.append(row)
    print(json.dumps(rows))


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    main()
