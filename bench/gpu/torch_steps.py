#!/usr/bin/env python3
"""Local steps a second of PyTorch, on the jobs that bench_gpu gives Macaw (bench/gpu/clients.cc): equal models, rows, batches and SGD.

    torch_steps.py [--device cuda|cpu] [--jobs A,B] [--ways A,B] [--clients N,N] [--seconds S] [--minutes N] [--out FILE] [--quick]

Needs torch 2 and nothing else. The ways:

  eager       one client after the other, a launch an operation
  eager-bf16  the same under autocast to bfloat16; of models with convolutions
  graph       a whole step (rows, loss, gradient, update) captured once as a CUDA graph, replayed for every step of every client
  vmap        K clients at once: torch.func's vmap over grad, weights with a leading dimension of clients
  vmap-graph  a step of vmap captured as a CUDA graph

In favour of PyTorch: rows lie on the device before the clock starts, the update is one _foreach_add_, nothing waits for the device within a
client, and cuDNN tries its algorithms (benchmark = True). Rows are bytes where data sets have bytes, and the step normalises them. Float32
without TF32, but for eager-bf16. Each client starts from the model and draws an order of its rows. FILE gets JSON, again after each figure.
--clients: the Ks of vmap; where memory runs out, half as many are tried. --minutes: no measurement begins later.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import math
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    try:
        from torch.func import functional_call, grad, vmap
    except ImportError:  # PyTorch 1.13
        from functorch import grad, vmap
        from torch.nn.utils.stateless import functional_call
except ImportError as missing:
    sys.exit(f"torch_steps: {sys.executable} has no PyTorch: {missing}")

LR = 0.01
CLASSES = 10
DIFFERENT = 64  # clients with rows of their own; the others share these
WAYS = ["eager", "eager-bf16", "graph", "vmap", "vmap-graph"]
ONLY_CUDA = ["graph", "vmap-graph"]


def copy_all(to: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(to, values)
        return
    for target, value in zip(to, values):  # PyTorch 1.13
        target.copy_(value)


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    input: tuple[int, ...]
    rows: int
    batch: int
    most_clients: int = 1024

    @property
    def images(self) -> bool:
        return len(self.input) == 3


JOBS = [
    Job("logistic", (60,), 200, 10),
    Job("mlp", (784,), 200, 10),
    Job("lenet5", (1, 28, 28), 200, 20),
    Job("cnn", (1, 28, 28), 200, 20),
    Job("simple_cnn", (3, 32, 32), 200, 10),
    Job("resnet18_gn", (3, 32, 32), 128, 64, 128),
]


class BasicBlock(nn.Module):
    """ResNet's, with group norm of two groups; the names of its tensors are Macaw's."""

    def __init__(self, width_in: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.gn1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.gn2 = nn.GroupNorm(2, width)
        same = width_in == width and stride == 1
        self.downsample = None if same else nn.Sequential(
            nn.Conv2d(width_in, width, 1, stride, bias=False), nn.GroupNorm(2, width))

    def forward(self, x):
        y = self.gn2(self.conv2(torch.relu(self.gn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18_gn() -> list[nn.Module]:
    blocks, before = [], 64
    for width in (64, 128, 256, 512):
        blocks += [BasicBlock(before, width, 1 if width == 64 else 2), BasicBlock(width, width, 1)]
        before = width
    return [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(2, 64), nn.ReLU(), *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)]


def network(job: Job) -> nn.Sequential:
    """The layers of models/named.cc."""
    relu, pool = nn.ReLU, lambda: nn.MaxPool2d(2)
    layers = {
        "logistic": lambda: [nn.Linear(60, CLASSES)],
        "mlp": lambda: [nn.Linear(784, 200), relu(), nn.Linear(200, 200), relu(), nn.Linear(200, CLASSES)],
        "lenet5": lambda: [nn.Conv2d(1, 6, 5, padding=2), relu(), pool(), nn.Conv2d(6, 16, 5), relu(), pool(), nn.Flatten(),
                           nn.Linear(400, 120), relu(), nn.Linear(120, 84), relu(), nn.Linear(84, CLASSES)],
        "cnn": lambda: [nn.Conv2d(1, 32, 5, padding=2), relu(), pool(), nn.Conv2d(32, 64, 5, padding=2), relu(), pool(),
                        nn.Flatten(), nn.Linear(3136, 512), relu(), nn.Linear(512, CLASSES)],
        "simple_cnn": lambda: [nn.Conv2d(3, 32, 3), relu(), nn.Conv2d(32, 64, 3), relu(), pool(), nn.Flatten(),
                               nn.Linear(64 * 14 * 14, 128), relu(), nn.Linear(128, CLASSES)],
        "resnet18_gn": resnet18_gn,
    }
    return nn.Sequential(*layers[job.name]())


class Rows:
    """The rows of all clients on the device, one client after the other. Client c's begin at first[c]."""

    def __init__(self, features, labels, sizes: list[int]):
        self.features, self.labels, self.sizes = features, labels, sizes
        self.first = [sum(sizes[:c]) for c in range(len(sizes))]

    @staticmethod
    def drawn(job: Job, device) -> "Rows":
        generator = torch.Generator().manual_seed(1)
        shape = (DIFFERENT * job.rows, *job.input)
        features = (torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8) if job.images
                    else torch.randn(shape, generator=generator))
        labels = torch.randint(0, CLASSES, (DIFFERENT * job.rows,), generator=generator)
        return Rows(features.to(device), labels.to(device), [job.rows] * DIFFERENT)


def normalised(features, dtype):
    return features.to(dtype) * (1 / 255) if features.dtype == torch.uint8 else features


def captured(step, device):
    """The step as a CUDA graph: a function that replays it. On a cpu, which has no graphs, the step itself, for the test."""
    if device.type != "cuda":
        return step
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(before)
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    before.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    finally:
        torch.cuda.set_stream(before)  # a capture that fails leaves its own
    return graph.replay


class Eager:
    """`train` trains clients from the model, each on the positions of its rows that it is given; `ends` are the weights of the last call."""

    at_once = 1

    def __init__(self, net, rows: Rows, batch: int, device, bf16: bool = False):
        self.net, self.rows, self.batch, self.device, self.bf16 = net, rows, batch, device, bf16
        self.parameters = list(net.parameters())
        self.dtype = self.parameters[0].dtype
        self.values = [p.detach() for p in self.parameters]
        self.start = [v.clone() for v in self.values]

    def train(self, clients: list[int], orders: list) -> None:
        for client, order in zip(clients, orders):
            copy_all(self.values, self.start)
            self.epoch(order + self.rows.first[client])

    def epoch(self, index) -> None:
        features, labels = self.rows.features[index], self.rows.labels[index]
        for at in range(0, len(index), self.batch):
            self.step(features[at:at + self.batch], labels[at:at + self.batch])

    def loss(self, features, labels):
        return cross_entropy(self.net(normalised(features, self.dtype)), labels)

    def step(self, features, labels) -> None:
        if self.bf16:
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                loss = self.loss(features, labels)
        else:
            loss = self.loss(features, labels)
        gradients = torch.autograd.grad(loss, self.parameters)
        torch._foreach_add_(self.values, gradients, alpha=-LR)

    def ends(self) -> list[dict]:
        return [{name: p.detach() for name, p in self.net.named_parameters()}]


class Graph(Eager):
    """A graph for each size of batch."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.graphs: dict = {}

    def train(self, clients: list[int], orders: list) -> None:
        for order in orders:  # before the model is put in place, because a capture takes steps
            for size in {min(self.batch, len(order)), len(order) % self.batch} - {0}:
                self.graph(size)
        super().train(clients, orders)

    def graph(self, size: int):
        if size not in self.graphs:
            index = torch.zeros(size, dtype=torch.int64, device=self.device)
            self.graphs[size] = index, captured(
                lambda: self.step(self.rows.features[index], self.rows.labels[index]), self.device)
        return self.graphs[size]

    def epoch(self, index) -> None:
        for part in index.split(self.batch):
            place, replay = self.graph(len(part))
            place.copy_(part)
            replay()


class Vmap:
    """`at_once` clients side by side. Where they have different numbers of rows, the shorter ones are padded with rows of weight 0."""

    def __init__(self, net, rows: Rows, batch: int, device, at_once: int, graph: bool = False):
        self.net, self.rows, self.batch, self.device, self.at_once, self.graph = net, rows, batch, device, at_once, graph
        self.start = [p.detach() for p in net.parameters()]
        self.names = [name for name, _ in net.named_parameters()]
        self.dtype = self.start[0].dtype
        self.values = [v.expand(at_once, *v.shape).clone() for v in self.start]
        self.mean = vmap(grad(lambda w, x, y: cross_entropy(functional_call(net, w, (x,)), y)))
        self.weighted = vmap(grad(self.weighted_loss))
        self.index = torch.zeros(at_once, batch, dtype=torch.int64, device=device)
        self.replay = None

    def weighted_loss(self, weights, features, labels, of_row):
        return (cross_entropy(functional_call(self.net, weights, (features,)), labels, reduction="none") * of_row).sum()

    def train(self, clients: list[int], orders: list) -> None:
        sizes = [len(order) for order in orders]
        if len(set(sizes)) == 1 and sizes[0] % self.batch == 0:
            first = torch.tensor([self.rows.first[c] for c in clients], device=self.device)
            self.equal(torch.stack(list(orders)) + first[:, None])
        else:
            self.ragged(clients, orders)

    def equal(self, index) -> None:
        """`index`: [clients, rows], the places of their rows."""
        if self.graph and self.replay is None:  # before the model is put in place, because a capture takes steps
            self.replay = captured(self.equal_step, self.device)
        self.to_start()
        for part in index.split(self.batch, dim=1):
            self.index.copy_(part)
            (self.replay or self.equal_step)()

    def equal_step(self) -> None:
        features = normalised(self.rows.features[self.index], self.dtype)
        self.update(self.mean(dict(zip(self.names, self.values)), features, self.rows.labels[self.index]))

    def ragged(self, clients: list[int], orders: list) -> None:
        longest = math.ceil(max(map(len, orders)) / self.batch) * self.batch
        index = torch.zeros(self.at_once, longest, dtype=torch.int64, device=self.device)
        used = torch.zeros(self.at_once, longest, dtype=self.dtype, device=self.device)
        for k, (client, order) in enumerate(zip(clients, orders)):
            index[k, :len(order)] = order + self.rows.first[client]
            used[k, :len(order)] = 1
        self.to_start()
        for part, use in zip(index.split(self.batch, dim=1), used.split(self.batch, dim=1)):
            of_row = use / use.sum(1, keepdim=True).clamp(min=1)
            features = normalised(self.rows.features[part], self.dtype)
            self.update(self.weighted(dict(zip(self.names, self.values)), features, self.rows.labels[part], of_row))

    def to_start(self) -> None:
        for value, start in zip(self.values, self.start):
            value.copy_(start)

    def update(self, gradients: dict) -> None:
        torch._foreach_add_(self.values, [gradients[name] for name in self.names], alpha=-LR)

    def ends(self) -> list[dict]:
        return [{name: v[k] for name, v in zip(self.names, self.values)} for k in range(self.at_once)]


def make(way: str, net, rows: Rows, batch: int, device, at_once: int):
    if way.startswith("vmap"):
        return Vmap(net, rows, batch, device, at_once, way == "vmap-graph")
    if way == "graph":
        return Graph(net, rows, batch, device)
    return Eager(net, rows, batch, device, way == "eager-bf16")


def finish(device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def orders(way, count: int, rows: int, used: int, device):
    """The first `used` positions of a reshuffle for each of `count` clients."""
    if isinstance(way, Vmap):
        return torch.rand(count, rows, device=device).argsort(1)[:, :used]
    return [torch.randperm(rows, device=device)[:used] for _ in range(count)]


def measure(job: Job, name: str, device, at_once: int, seconds: float) -> dict:
    torch.manual_seed(1)
    way = make(name, network(job).to(device), Rows.drawn(job, device), job.batch, device, at_once)
    count = at_once if isinstance(way, Vmap) else 4  # clients a run
    clients = [c % DIFFERENT for c in range(count)]

    def run(used: int) -> float:
        begin = time.perf_counter()
        way.train(clients, orders(way, count, job.rows, used, device))
        finish(device)
        return time.perf_counter() - begin

    # Of each client one step, which chooses algorithms and captures graphs; a second one says how long a run may take.
    run(job.batch)
    one_step = run(job.batch)
    steps = job.rows // job.batch
    if one_step * steps > 10:  # not the whole epoch
        steps = max(1, int(10 / one_step))
    if steps > 1:
        run(steps * job.batch)
    times, began = [], time.time()
    while len(times) < (3 if not times or times[0] < 2 else 2) or sum(times) < seconds:
        times.append(run(steps * job.batch))
    ended = time.time()
    times.sort()
    median = times[len(times) // 2]
    return {"model": job.name, "batch": job.batch, "rows": job.rows, "way": name, "clients": at_once,
            "steps": count * steps, "steps_a_client": steps, "seconds": [median, times[0], times[-1]], "window": [began, ended],
            "steps_per_s": count * steps / median}


def out_of_memory(error) -> bool:
    """A capture that runs out of memory ends with an error of its own, in the context of that one."""
    return error is not None and (
        isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error) or out_of_memory(error.__context__))


class Report:
    def __init__(self, device, out):
        self.out, self.rows, self.left_out = out, [], []
        self.about = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                      "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"}
        print(f"PyTorch {torch.__version__} on {self.about['device']}")
        print(f"{'model':<12} {'way':<11} {'clients':>8} {'steps/s':>12} {'us a step':>12}", flush=True)

    def add(self, row: dict) -> None:
        rate = row["steps_per_s"]
        print(f"{row['model']:<12} {row['way']:<11} {row['clients']:>8} {rate:>12.1f} {1e6 / rate:>12.2f}", flush=True)
        self.rows.append(row)
        self.save()

    def leave_out(self, job: Job, way: str, clients: int, reason: str) -> None:
        print(f"{job.name:<12} {way:<11} {clients:>8} not measured: {reason}", flush=True)
        self.left_out.append({"model": job.name, "way": way, "clients": clients, "reason": reason})
        self.save()

    def save(self) -> None:
        if self.out:
            with open(self.out, "w") as file:
                json.dump({**self.about, "training": self.rows, "left_out": self.left_out}, file, indent=1)


def attempt(job: Job, way: str, device, clients: int, seconds: float, report: Report) -> bool:
    """Whether memory sufficed."""
    try:
        report.add(measure(job, way, device, clients, seconds))
    except (RuntimeError, NotImplementedError) as error:
        reason = "out of memory" if out_of_memory(error) else f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        report.leave_out(job, way, clients, reason)
        return reason != "out of memory"
    finally:
        gc.collect()  # vmap's functions refer to what holds them
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return True


def measure_job(job: Job, arguments, device, deadline: float, report: Report) -> None:
    for way in arguments.ways:
        if way == "eager-bf16" and not job.images:
            continue
        counts = [k for k in arguments.clients if k <= job.most_clients] if way.startswith("vmap") else [1]
        tried = set()
        for clients in counts:
            fits = False
            while not fits and clients >= 1 and clients not in tried:
                tried.add(clients)
                if time.monotonic() > deadline:
                    report.leave_out(job, way, clients, "no time left")
                    break
                fits = attempt(job, way, device, clients, arguments.seconds, report)
                clients //= 2
            if not fits:
                break  # more do not fit either, or there is no time


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--jobs", type=words)
    parser.add_argument("--ways", type=words)
    parser.add_argument("--clients", type=words)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true", help="a few rows and clients, to try the program")
    arguments = parser.parse_args()
    on_cpu = arguments.device == "cpu"
    arguments.ways = arguments.ways or [way for way in WAYS if not (on_cpu and way in ONLY_CUDA)]
    try:
        arguments.clients = [int(k) for k in arguments.clients or (["1", "4"] if arguments.quick else ["8", "128", "512"])]
    except ValueError:
        parser.error("--clients is a list of numbers: 8,128,512")
    if min(arguments.clients) < 1:
        parser.error("--clients: at least 1")
    if arguments.seconds is None:
        arguments.seconds = 0.02 if arguments.quick else 2
    names = [job.name for job in JOBS]
    # Without being asked for, not ResNet on processor cores, where it takes minutes.
    wanted = arguments.jobs or [name for name in names if not (on_cpu and arguments.quick and name == "resnet18_gn")]
    for what, asked, known in (("job", wanted, names), ("way", arguments.ways, WAYS)):
        for unknown in set(asked) - set(known):
            parser.error(f"there is no {what} {unknown!r}; there are {', '.join(known)}")
    arguments.jobs = [job for job in JOBS if job.name in wanted]
    for way in arguments.ways:
        if on_cpu and way in ONLY_CUDA:
            parser.error(f"the way {way!r} needs --device cuda: PyTorch captures no graphs on a cpu")
    if not on_cpu and not torch.cuda.is_available():
        sys.exit("torch_steps: PyTorch finds no CUDA device here; --device cpu tries the program")
    return arguments


def main() -> None:
    arguments = parsed()
    device = torch.device(arguments.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    report = Report(device, arguments.out)
    end = time.monotonic() + 60 * arguments.minutes
    for i, job in enumerate(arguments.jobs):
        if arguments.quick:
            job = dataclasses.replace(job, rows=2 * job.batch)
        now = time.monotonic()
        measure_job(job, arguments, device, now + (end - now) / (len(arguments.jobs) - i), report)
    report.save()


if __name__ == "__main__":
    main()
