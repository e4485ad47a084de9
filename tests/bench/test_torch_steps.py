"""bench/gpu/torch_steps.py trains what Macaw trains: the same jobs, and from equal weights, rows and orders the same weights.

In float32, rounding decides now and then which pixel of a max pool wins or whether a ReLU is on, and then two right programs differ by
1e-4 of what was learned. So the ways of PyTorch are compared with each other in double precision.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch

SOURCE = Path(__file__).resolve().parents[2]
REFERENCE = Path(os.environ["MACAW_BUILD"]) / "bin/bench_gpu_reference"
sys.path.insert(0, str(SOURCE / "bench/gpu"))
import torch_steps as steps  # noqa: E402: after its folder is known

CPU = torch.device("cpu")
TYPES = {"F32": np.float32, "U8": np.uint8, "I32": np.int32}


def read(path):
    """(tensors by name, metadata) of a safetensors file."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8:8 + length]), raw[8 + length:]
    about = header.pop("__metadata__")
    return {name: torch.from_numpy(np.frombuffer(body[slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"]).copy())
            for name, t in header.items()}, about


def part(tensors, prefix):
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def difference(end, other, start):
    """The norm of what two ends differ by, as a share of what was learned."""
    apart = sum(((end[name] - other[name]).double() ** 2).sum() for name in start)
    learned = sum(((other[name] - start[name]).double() ** 2).sum() for name in start)
    return float((apart / learned) ** 0.5)


class Case:
    """A job with the weights, rows and ends of a few clients of Macaw's; they have different numbers of rows."""

    def __init__(self, job, folder):
        self.job = job
        self.tensors, self.about = read(folder / f"{job.name}.safetensors")
        self.start = part(self.tensors, "start/")
        self.clients = [part(self.tensors, f"client{c}/") for c in range(len({
            name.split("/")[0] for name in self.tensors if name.startswith("client")}))]
        self.sizes = [len(client["labels"]) for client in self.clients]
        self.batch = int(self.about["batch_here"])

    def way(self, name, at_once=1, dtype=torch.float64):
        net = steps.network(self.job)
        net.load_state_dict(self.start)
        features = torch.cat([client["features"] for client in self.clients])
        labels = torch.cat([client["labels"] for client in self.clients]).long()
        rows = steps.Rows(features if self.job.images else features.to(dtype), labels, self.sizes)
        return steps.make(name, net.to(dtype), rows, self.batch, CPU, at_once)

    def one_by_one(self, name, orders, dtype=torch.float64):
        way, ends = self.way(name, dtype=dtype), []
        for client, order in enumerate(orders):
            way.train([client], [order])
            ends += [{key: value.clone() for key, value in way.ends()[0].items()}]
        return ends

    def at_once(self, name, orders):
        way = self.way(name, len(orders))
        way.train(list(range(len(orders))), orders)
        return way.ends()


class TorchSteps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(1)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([REFERENCE, cls.folder.name], check=True)
        cls.cases = [Case(job, Path(cls.folder.name)) for job in steps.JOBS]

    def assert_same(self, case, ends, others, most):
        for client, (end, other) in enumerate(zip(ends, others, strict=True)):
            apart = difference(end, other, case.start)
            self.assertLess(apart, most, f"{case.job.name}, client {client}")

    def test_has_the_jobs_of_bench_gpu(self):
        files = {path.stem for path in Path(self.folder.name).iterdir()}
        self.assertEqual(files, {job.name for job in steps.JOBS})
        for case in self.cases:
            job, about = case.job, case.about
            self.assertEqual([job.rows, job.batch, job.most_clients],
                             [int(about[key]) for key in ("rows", "batch", "most_clients")])
            self.assertEqual(job.input, tuple(map(int, about["input"].split())))
            self.assertEqual(steps.LR, float(about["lr"]))
            shapes = {name: p.shape for name, p in steps.network(job).named_parameters()}
            self.assertEqual(shapes, {name: t.shape for name, t in case.start.items()})
            drawn = steps.Rows.drawn(job, CPU)
            self.assertEqual(drawn.features.dtype, case.clients[0]["features"].dtype)

    def test_eager_ends_with_macaws_weights(self):
        for case in self.cases:
            self.assertGreater(len(set(case.sizes)), 1)
            orders = [torch.arange(size) for size in case.sizes]
            macaw = [part(client, "end/") for client in case.clients]
            double, single = case.one_by_one("eager", orders), case.one_by_one("eager", orders, torch.float32)
            # Double precision lacks the rounding of the weights, float32 may choose other pixels: the closer one counts.
            apart = sorted(min(difference(macaw[c], ends[c], case.start) for ends in (double, single)) for c in range(len(macaw)))
            print(f"{case.job.name}: {', '.join(f'{a:.1e}' for a in apart)} of what was learned")
            self.assertLess(apart[-2], 1e-5, case.job.name)  # another pixel in Macaw: at most one client
            self.assertLess(apart[-1], 1e-3, case.job.name)
            self.assert_same(case, single, double, 1e-3)
            if case.job.name == "resnet18_gn" and not hasattr(torch, "func"):
                continue  # PyTorch 1.13 has no group norm in bfloat16
            # Autocast is rougher than all that, and still the same training.
            rough = difference(case.one_by_one("eager-bf16", orders, torch.float32)[0], double[0], case.start)
            self.assertTrue(1e-3 < rough < 0.3, rough)

    def test_other_orders_end_elsewhere(self):
        case = self.cases[0]
        ends = case.one_by_one("eager", [torch.arange(size).flip(0) for size in case.sizes])
        self.assertGreater(difference(ends[0], part(case.clients[0], "end/"), case.start), 1e-3)

    def test_vmap_trains_clients_of_different_sizes_as_eager_does(self):
        for case in self.cases:
            orders = [torch.randperm(size) for size in case.sizes]
            self.assert_same(case, case.at_once("vmap", orders), case.one_by_one("eager", orders), 1e-10)

    def test_vmap_trains_equal_clients_as_eager_does(self):
        for case in self.cases:
            orders = [torch.randperm(size)[:case.batch] for size in case.sizes]
            eager = case.one_by_one("eager", orders)
            self.assert_same(case, case.at_once("vmap", orders), eager, 1e-10)
            self.assert_same(case, case.at_once("vmap-graph", orders), eager, 1e-10)

    def test_a_graphs_step_is_eagers(self):
        """Without the capture, which needs a GPU."""
        for case in self.cases:
            orders = [torch.randperm(size) for size in case.sizes]
            self.assert_same(case, case.one_by_one("graph", orders), case.one_by_one("eager", orders), 1e-10)

    def test_every_call_starts_from_the_model(self):
        case = self.cases[1]
        orders = [torch.randperm(size) for size in case.sizes]
        for name in ("eager", "graph", "vmap"):
            way = case.way(name, len(orders) if name == "vmap" else 1)
            clients = list(range(way.at_once))
            way.train(clients, orders[:way.at_once])
            first = {key: value.clone() for key, value in way.ends()[0].items()}
            way.train(clients, orders[:way.at_once])
            self.assertTrue(all(torch.equal(first[key], value) for key, value in way.ends()[0].items()), name)


class Program(unittest.TestCase):
    def start(self, *arguments):
        return subprocess.run([sys.executable, SOURCE / "bench/gpu/torch_steps.py", *arguments], capture_output=True, text=True)

    def test_measures_each_way_on_a_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "steps.json"
            done = self.start("--device", "cpu", "--quick", "--jobs", "logistic,lenet5", "--clients", "1,2", "--out", str(file))
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(file.read_text())
        figures = [(row["model"], row["way"], row["clients"]) for row in report["training"]]
        self.assertEqual(figures, [
            ("logistic", "eager", 1), ("logistic", "vmap", 1), ("logistic", "vmap", 2),
            ("lenet5", "eager", 1), ("lenet5", "eager-bf16", 1), ("lenet5", "vmap", 1), ("lenet5", "vmap", 2)])
        for row in report["training"]:
            self.assertAlmostEqual(row["steps_per_s"], row["steps"] / row["seconds"][0])
            self.assertLess(row["window"][0], row["window"][1])

    def test_refuses_graphs_on_a_cpu_and_what_it_does_not_know(self):
        for arguments, word in ((["--ways", "graph"], "graph"), (["--jobs", "vgg"], "vgg"), (["--clients", "x"], "--clients")):
            done = self.start("--device", "cpu", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_leaves_out_what_there_is_no_time_for(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "steps.json"
            self.start("--device", "cpu", "--quick", "--jobs", "logistic", "--minutes", "0", "--out", str(file))
            report = json.loads(file.read_text())
        self.assertEqual(report["training"], [])
        self.assertEqual({row["way"] for row in report["left_out"]}, {"eager", "vmap"})


if __name__ == "__main__":
    unittest.main()
