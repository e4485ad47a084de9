"""What sdk/python/macaw_client.py answers, asked as a worker asks it."""

from __future__ import annotations

import array
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Any

from support import needs

SDK = pathlib.Path(__file__).resolve().parents[2] / "sdk" / "python"
HELLO = {
    "macaw": 1,
    "rows": None,
    "sums": ["examples", "loss"],
    "task": "regression",
    "outputs": 1,
    "dtype": "float32",
    "layout": [{"name": "w", "shape": [2], "offset": 0, "buffer": False}],
    "memory": {"bytes": 256, "start": 0, "end": 64, "correction": 128, "anchor": 192},
}
TRAIN = {
    "client": 3,
    "anchor": False,
    "correction": False,
    "in_place": False,
    "trainable": None,
    "local": {"lr": 0.1},
}


class Client:
    """A program whose train function gives back what this expression says."""

    def __init__(
        self, gives: str = "", program: str = "", numbers: tuple[float, ...] = (), **more: str
    ) -> None:
        """program: the whole program instead; numbers: of all vectors; more: its environment."""
        program = textwrap.dedent(
            program
            or f"""
            import math
            import numpy as np
            import macaw_client
            macaw_client.serve(lambda weights, task: {gives})
        """
        )
        ours, theirs = socket.socketpair()
        memory = os.memfd_create("vectors")
        os.truncate(memory, HELLO["memory"]["bytes"])
        for place in ("start", "end", "correction", "anchor"):
            os.pwrite(memory, array.array("f", numbers).tobytes(), HELLO["memory"][place])
        environment = {
            **os.environ,
            "PYTHONPATH": str(SDK),
            "MACAW_CHANNEL": str(theirs.fileno()),
            "MACAW_MEMORY": str(memory),
            **more,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            pass_fds=[theirs.fileno(), memory],
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        os.close(memory)
        self.channel = ours
        ours.settimeout(60)
        self.lines = ours.makefile("r", encoding="utf-8")
        self.say(HELLO)
        self.questions = 0
        assert json.loads(self.lines.readline())["ready"] == 1

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.channel.shutdown(socket.SHUT_RDWR)
        self.lines.close()
        self.channel.close()
        self.process.wait(60)

    def say(self, message: dict) -> None:
        self.channel.sendall((json.dumps(message) + "\n").encode())

    def train(self, **more: Any) -> dict:
        self.questions += 1
        self.say({"id": self.questions, "train": {**TRAIN, **more}})
        answer = json.loads(self.lines.readline())
        self.assert_of_question(answer)
        return answer

    def assert_of_question(self, answer: dict) -> None:
        assert answer.pop("id") == self.questions


class WhatTrainGivesBack(unittest.TestCase):
    def answer_of(self, gives: str) -> dict:
        with Client(gives) as client:
            answers = [client.train() for _ in range(2)]
        self.assertEqual(answers[0], answers[1], "the program goes on")
        return answers[0]

    def test_is_told_to_the_worker(self) -> None:
        rates = '{"rate_sum": np.float32(0.5), "a_norm1": 6}'
        self.assertEqual(
            self.answer_of(f"(None, 600, np.int64(6), np.float64(431.5), {rates})"),
            {"rows": 600, "steps": 6, "sums": {"loss": 431.5}, "rate_sum": 0.5, "a_norm1": 6.0},
        )
        self.assertEqual(
            self.answer_of('(None, 1, 1, math.nan, {"rate_sum": None, "a_norm1": None})'),
            {"rows": 1, "steps": 1, "sums": {"loss": None}, "rate_sum": None, "a_norm1": None},
        )

    def test_with_rates_that_no_steps_have_leaves_the_client_out(self) -> None:
        for rate in ("math.nan", "-0.5", "math.inf"):
            with self.subTest(rate):
                answer = self.answer_of(f'(None, 6, 6, 1.0, {{"rate_sum": {rate}, "a_norm1": 6}})')
                self.assertIn("train returned rate_sum = ", answer["error"]["message"])
                self.assertFalse(answer["error"]["fatal"])

    def test_with_counts_below_zero_leaves_the_client_out(self) -> None:
        for rows, steps, named in ((-1, 6, "rows = -1"), (6, -2, "steps = -2")):
            with self.subTest(named):
                answer = self.answer_of(f"(None, {rows}, {steps}, 1.0)")
                self.assertIn(f"train returned {named}", answer["error"]["message"])


class OtherViewsOfTheWeights(unittest.TestCase):
    """What train gives back may lie in the memory that it has to be written to."""

    def kept(self, of: str) -> dict[str, list[list[float]]]:
        """What the worker finds after train has given back `of`, of a = [[1, 2], [3, 4]] and
        b = [[5, 6], [7, 8]]."""
        program = f"""
            import json
            import sys
            import numpy as np
            import macaw_client
            names = ("a", 0), ("b", 64)
            layout = [{{"name": n, "shape": [2, 2], "offset": at}} for n, at in names]
            memory = macaw_client._Memory.__new__(macaw_client._Memory)
            memory.places, memory.layout = {{"end": 64}}, layout
            memory.dtype, memory.bytes = np.dtype("float32"), bytearray(256)
            w = memory.arrays("end")
            w["a"][...], w["b"][...] = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
            memory.take({of})
            print(json.dumps({{n: v.tolist() for n, v in memory.arrays("end").items()}}))
        """
        said = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, "PYTHONPATH": str(SDK)},
            capture_output=True,
            check=True,
        )
        kept: dict[str, list[list[float]]] = json.loads(said.stdout)
        return kept

    def test_are_written_as_they_were_given_back(self) -> None:
        a, b = [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]
        for of, kept in (
            ("w", (a, b)),
            ('{"a": w["a"].T, "b": w["b"]}', ([[1.0, 3.0], [2.0, 4.0]], b)),
            ('{"a": w["a"][::-1], "b": w["b"]}', ([[3.0, 4.0], [1.0, 2.0]], b)),
            ('{"a": w["b"], "b": w["a"]}', (b, a)),
            ('{"b": w["a"].T, "a": w["b"][:, ::-1]}',
             ([[6.0, 5.0], [8.0, 7.0]], [[1.0, 3.0], [2.0, 4.0]])),
            ('{"a": w["a"] + 1, "b": w["a"]}', ([[2.0, 3.0], [4.0, 5.0]], a)),
        ):  # fmt: skip
            with self.subTest(of):
                self.assertEqual(self.kept(of), {"a": kept[0], "b": kept[1]})


# Each rank says what it was asked. Whatever would make an object of bytes from a rank fails.
RANKS = """
    import json, os, pathlib
    import macaw_client
    rank = macaw_client.program(ranks=2)
    import torch.distributed.distributed_c10d as c10d
    c10d._pickler = c10d._unpickler = None
    def train(weights, task):
        about = {"weights": {n: w.tolist() for n, w in weights.items()}, "client": task.client,
                 "correction": {n: v.tolist() for n, v in task.correction.items()},
                 "trainable": sorted(task.trainable), "local": task.local, "rank": rank,
                 "anchor": {n: v.tolist() for n, v in task.anchor.items()},
                 "types": [type(task.trainable).__name__, str(weights["w"].dtype)]}
        told = pathlib.Path(os.environ["TOLD"])
        (told / f"{task.round}-{rank}").write_text(json.dumps(about))
        store = os.readlink("/proc/self/fd/" + os.environ["MACAW_RANKS_STORE"])
        (told / "store").write_text(store)
        weights["w"] += 1
        c10d.barrier()  # both have told
        return None, 1, 1, {"loss": 0.5}
    macaw_client.serve(train, corrections=True)
"""


class Ranks(unittest.TestCase):
    @needs("torch")
    def test_are_asked_the_same_without_pickles_over_a_file_in_memory(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            told = pathlib.Path(folder)
            with Client(program=RANKS, TOLD=folder) as client:
                for round_ in (1, 2):
                    answer = client.train(
                        round=round_, correction=True, trainable=[True], mu=0.0, odd=float("inf")
                    )
                    self.assertEqual(answer, {"rows": 1, "steps": 1, "sums": {"loss": 0.5}})
                    ranks = [json.loads((told / f"{round_}-{i}").read_text()) for i in (0, 1)]
                    self.assertEqual([rank.pop("rank") for rank in ranks], [0, 1])
                    self.assertEqual(*ranks)
                    self.assertEqual(ranks[0]["types"], ["set", "float32"])
                    self.assertEqual(ranks[0]["correction"], {"w": [0.0, 0.0]})
            self.assertIn("memfd:", (told / "store").read_text())

    @needs("torch")
    def test_of_a_divided_model_get_its_shapes_and_no_numbers(self) -> None:
        program = """
            import json, os, pathlib
            import macaw_client
            rank = macaw_client.program(ranks=2)
            import torch.distributed.distributed_c10d as c10d
            def train(weights, task):
                vectors = [v["w"] for v in (weights, task.correction, task.anchor) if v]
                about = [[x.tolist(), str(x.dtype), x.strides] for x in vectors]
                (pathlib.Path(os.environ["TOLD"]) / str(rank)).write_text(json.dumps(about))
                c10d.barrier()  # both have told
                return None, 1, 1, {"loss": 0.5}
            macaw_client.serve(train, corrections=True, in_place=True, sharded=True)
        """
        with tempfile.TemporaryDirectory() as folder:
            told = [pathlib.Path(folder) / str(rank) for rank in (0, 1)]
            with Client(program=program, numbers=(3, 4), TOLD=folder) as client:
                for mu, corrected, in_place in ((0.0, False, True), (0.5, True, False)):
                    client.train(
                        round=1, correction=corrected, mu=mu, anchor=mu != 0, in_place=in_place
                    )
                    first, other = (json.loads(path.read_text()) for path in told)
                    vectors = 1 if in_place else 3
                    self.assertEqual(first, [[[3.0, 4.0], "float32", [4]]] * vectors)
                    self.assertEqual(other, [[[0.0, 0.0], "float32", [0]]] * vectors, "no memory")


if __name__ == "__main__":
    unittest.main()
