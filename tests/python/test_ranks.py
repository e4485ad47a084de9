"""Clients that several processes train: DDP, FSDP, and a process that dies."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import torch
import trainer_programs as programs
from trainer_case import TrainerCase

import macaw
from macaw._divided import is_possible
from support import SOURCE


def processes_of(word: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and "trainer_programs" in text:
            found.append(text)
    return found


def as_tensors(run: macaw.Run) -> dict[str, Any]:
    return {name: torch.tensor(array) for name, array in run.model().items()}


class AnExample(TrainerCase):
    """examples/process: a loop of one's own."""

    def setUp(self) -> None:
        super().setUp()
        self.one = self.run_of_example("train.py")

    def run_of_example(self, *command: str) -> macaw.Run:
        folder = SOURCE / "examples/process"
        return macaw.simulate(
            "logistic", folder / "rows.json", data_options={"source": "declared"}, cohort=2,
            rounds=2, local={"batch_size": 7, "momentum": 0.5}, evaluation={"clients": True},
            workers={"backend": "process", "command": [sys.executable, *command], "slots": 1,
                     "folder": folder},
            out=self.folder / "-".join(command), cache=self.folder / "cache",
        )  # fmt: skip

    def assert_same_as_one(self, *command: str) -> None:
        run = self.run_of_example(*command)
        self.assert_near(run.model(), as_tensors(self.one))
        for column in ("steps", "train_loss", "train_accuracy", "clients_test_loss"):
            self.assertAlmostEqual(run.rows[-1][column], self.one.rows[-1][column], 5, column)

    def test_trains_one_model_by_ddp(self) -> None:
        self.assert_same_as_one("ranks.py", "2")

    @unittest.skipUnless(is_possible(), "FSDP: PyTorch 2.6 or later")
    def test_trains_one_model_by_fsdp(self) -> None:
        self.assert_same_as_one("ranks.py", "2", "--fsdp")


class Ranks(TrainerCase):
    def test_of_a_trainer_train_one_model(self) -> None:
        for kind in ("hugging", "lightning"):
            with self.subTest(kind):
                run = self.run_of(kind, "ranks=2")
                self.assertEqual(run.rows[0]["left_out"], 0)
                # Ranks have every second batch or row: other orders, and as many steps.
                self.assertEqual(run.rows[0]["steps"], 6)
                alone = self.run_of(kind, out=self.folder / "alone")
                self.assertAlmostEqual(run.rows[-1]["train_loss"], alone.rows[-1]["train_loss"], 1)

    def test_evaluate_all_rows(self) -> None:
        """Each rank has half of them, and logs their mean."""
        run = self.run_of("lightning", "ranks=2", rounds=1)
        model = programs.net()
        model.load_state_dict(run.model())
        x, y = programs.vectors("a", "test").tensors
        loss = torch.nn.functional.cross_entropy(model(x), y).item()
        self.assertAlmostEqual(run.rows[-1]["clients_test_loss"], loss, 5)

    def test_may_leave_a_metric_to_one_of_them(self) -> None:
        run = self.run_of("lightning", "ranks=2", "alone", rounds=1)
        self.assertEqual(run.rows[0]["clients_test_accuracy"], 0.25)

    def test_see_the_gpus_of_their_slot(self) -> None:
        code = (
            "import os, threading, macaw; rank = macaw.program({ranks}); "
            "print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ.get('RANK'), flush=True); "
            "rank or [t.join() for t in threading.enumerate() if t.daemon]"  # until others ended
        )
        for ranks, slot, expected in (
            (1, 0, ["4 None"]),
            (1, 5, ["5 None"]),
            (2, 1, ["6,7 0", "6,7 1"]),
            (2, 2, ["4,5 0", "4,5 1"]),
        ):
            program = subprocess.run(
                [sys.executable, "-c", code.format(ranks=ranks)],
                env={**os.environ, "MACAW_SLOT": str(slot), "CUDA_VISIBLE_DEVICES": "4,5,6,7"},
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(sorted(program.stdout.split("\n"))[1:], expected)

    def test_start_again_when_one_dies(self) -> None:
        """The new program evaluates before it trains, and its ranks train together all the same."""
        for kind in ("lightning", "hugging"):
            with self.subTest(kind):
                mark = f"mark={self.folder.name}"
                run = self.run_of(kind, "ranks=2", "data", "fail=2", mark, rounds=3)
                self.assertEqual([row["left_out"] for row in run.rows], [0, 1, 0])
                self.assertEqual(processes_of(mark), [], "the other ranks have ended")
        # Of Hugging Face alone: Lightning's ranks draw other orders of the rows in each round.
        whole = self.run_of("hugging", "ranks=2", "data", rounds=2, out=self.folder / "whole")
        self.assert_near(run.model(), as_tensors(whole))


@unittest.skipUnless(is_possible(), "FSDP: PyTorch 2.6 or later")
class Fsdp(TrainerCase):
    """A patched trainer's FSDP, beside its DDP: the same batches, and sums of the same numbers.

    Where a Trainer wants a GPU for FSDP, trainer_programs.py tells it that this is one. It
    fails where the trainer has not divided its model.
    """

    def both(self, kind: str, fsdp: int, *options: str, **changes: Any) -> tuple[Any, Any]:
        ddp = self.run_of(kind, "ranks=2", *options, out=self.folder / "ddp", **changes)
        run = self.run_of(kind, "ranks=2", f"fsdp={fsdp}", *options, **changes)
        self.assert_near(run.model(), as_tensors(ddp))
        for column in ("steps", "examples", "train_loss", "clients_test_loss"):
            self.assertAlmostEqual(run.rows[-1][column], ddp.rows[-1][column], 5, column)
        return run, ddp

    # accelerate's FSDP1 wants a GPU in more places than can be told of one here.
    KINDS = (("lightning", 1), ("lightning", 2), ("hugging", 2))

    def test_trains_as_ddp_does(self) -> None:
        for kind, fsdp in self.KINDS:
            with self.subTest(kind, fsdp=fsdp):
                run, _ = self.both(kind, fsdp)
                self.assertEqual([row["left_out"] for row in run.rows], [0, 0])

    def test_trains_several_clients_by_a_rule_with_corrections(self) -> None:
        for kind, fsdp in self.KINDS:
            with self.subTest(kind, fsdp=fsdp):
                more = {"clients": "ab", "rounds": 3}
                self.both(kind, fsdp, "data", algorithm=macaw.SCAFFOLD(), **more)
        self.both("lightning", 2, algorithm=macaw.FedProx(mu=0.5))

    def test_trains_adapters_alone(self) -> None:
        run, _ = self.both("hugging", 2, "peft")
        whole = sum(tensor.numel() for tensor in run.model().values())
        self.assertLess(run.rows[0]["bytes_up"], 4 * whole / 4)

    def test_starts_again_when_a_rank_dies(self) -> None:
        for kind in ("lightning", "hugging"):
            with self.subTest(kind):
                mark = f"mark={self.folder.name}"
                run = self.run_of(kind, "ranks=2", "fsdp=2", "data", "fail=2", mark, rounds=3)
                self.assertEqual([row["left_out"] for row in run.rows], [0, 1, 0])
                self.assertEqual(processes_of(mark), [], "the other ranks have ended")
                log = (self.folder / "run/logs/worker-0.log").read_text()
                self.assertIn("rank 1 ended with code 3", log)


if __name__ == "__main__":
    unittest.main()
