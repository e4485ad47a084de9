"""bench/gpu: the table of what bench_gpu and torch_steps.py measured, and how busy a GPU was in a measurement."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/gpu"))
import busy  # noqa: E402: after its folder is known
import table  # noqa: E402


def ours(model, clients, rate, core, **more):
    return {"model": model, "batch": 10, "clients": clients, "steps_per_s": rate, "one_core_steps_per_s": core, **more}


def torch(model, way, clients, rate, **more):
    return {"model": model, "batch": 10, "way": way, "clients": clients, "steps_per_s": rate, **more}


OURS = {"training": [ours("cnn", 1, 50.0, 20.0, busy=99.0, sm_activity=1.0), ours("cnn", 512, 9000.0, 20.0, busy=100.0, sm_activity=97.0),
                     ours("resnet18_gn", 1, 2.0, None)],
        "left_out": [{"model": "resnet18_gn", "clients": 128}]}
TORCH = {"training": [torch("cnn", "vmap", 8, 1000.0), torch("cnn", "graph", 1, 800.0), torch("cnn", "eager", 1, 400.0, busy=31.0)],
         "left_out": [{"model": "cnn", "way": "vmap", "clients": 512, "reason": "out of memory"}]}


class Table(unittest.TestCase):
    def test_has_every_figure_once_with_its_ratio_to_eager(self):
        rows = table.merge(OURS, TORCH)
        self.assertEqual([(r["model"], r["way"], r["clients"], r["ratio_to_eager"]) for r in rows], [
            ("cnn", "eager", 1, 1.0), ("cnn", "graph", 1, 2.0), ("cnn", "vmap", 8, 2.5), ("cnn", "core", 1, 0.05),
            ("cnn", "ours", 1, 0.125), ("cnn", "ours", 512, 22.5), ("resnet18_gn", "ours", 1, None)])
        self.assertEqual([r["busy"] for r in rows], [31.0, None, None, None, 99.0, 100.0, None])

    def test_is_markdown(self):
        lines = table.markdown(table.merge(OURS, TORCH)).splitlines()
        self.assertEqual(len(lines), 2 + 7)
        self.assertEqual({line.count("|") for line in lines}, {10})
        self.assertIn("| cnn | 10 | Macaw, GPU | 512 | 9,000 | 111.11 | 100 | 97 | 22.50 |", lines)
        self.assertIn("| resnet18_gn | 10 | Macaw, GPU | 1 | 2 | 500,000.00 | – | – | – |", lines)

    def test_says_what_was_left_out(self):
        text = table.left_out(OURS, TORCH)
        self.assertIn("cnn, PyTorch vmap, 512 at once: out of memory", text)
        self.assertIn("resnet18_gn, Macaw, GPU, 128 at once: no time left", text)

    def test_says_where_each_was_measured(self):
        here = {"machine": {"commit": "0123456789abcdef", "date": "2026-01-02 03:04"}}
        text = table.about({**OURS, **here, "device": {"name": "H100"}}, {**TORCH, **here, "device": "cpu", "torch": "2.11.0"})
        self.assertIn("Macaw (commit 0123456789ab) on H100", text)
        self.assertIn("PyTorch 2.11.0 on cpu", text)
        self.assertNotIn("PyTorch", table.about({**OURS, **here, "device": {"name": "H100"}}, {}))

    def test_works_with_one_report(self):
        self.assertEqual([r["ratio_to_eager"] for r in table.merge(OURS, {})], [None] * 4)
        self.assertEqual(len(table.merge({}, TORCH)), 3)
        self.assertEqual(table.merge({}, {}), [])


class Busy(unittest.TestCase):
    def test_is_the_mean_over_the_second_half_of_a_measurement(self):
        watch = busy.Busy()
        watch.lines = ["10.1 5.0 1.0", "11.1 60.0 20.0", "11.5 80.0 -", "12.5 0.0 0.0"]
        self.assertEqual(watch.means([10, 12]), {"busy": 70.0, "sm_activity": 20.0})
        self.assertEqual(watch.means([20, 30]), {"busy": None, "sm_activity": None})


if __name__ == "__main__":
    unittest.main()
