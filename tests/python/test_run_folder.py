"""A run object whose folder has been replaced, removed or moved since."""

from __future__ import annotations

import os
import shutil
import subprocess
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import macaw
from support import TestCase

READS: dict[str, Callable[[macaw.Run], Any]] = {
    "summary": lambda run: run.summary,
    "digest": lambda run: run.digest,
    "rows": lambda run: run.rows,
    "metrics": lambda run: run.metrics,
    "contributions": lambda run: run.contributions,
    "normalisation": lambda run: run.normalisation,
    "is_normalised": lambda run: run.is_normalised,
    "model": lambda run: run.model(),
    "best model": lambda run: run.model(best=True),
    "models": lambda run: run.models(),
    "a table": lambda run: macaw.to_latex({"one": [run]}, ["test_accuracy"]),
    "a comparison": lambda run: macaw.to_latex([run], ["test_accuracy"]),
    "resume": lambda run: macaw.resume(run, rounds=9),
}


class ARun(TestCase):
    def refused(self, run: macaw.Run, words: str) -> None:
        for name, read in READS.items():
            with self.subTest(name), self.assertRaises(macaw.Error) as caught:
                read(run)
            self.assertIn(str(run.folder), str(caught.exception), name)
            self.assertRegex(str(caught.exception), words, name)

    def test_that_was_replaced_does_not_show_the_other(self) -> None:
        job = self.job("run", overwrite=True, rounds=2)
        first = macaw.simulate(**job)
        digest, model = first.digest, first.model()
        kept = {name: array.copy() for name, array in model.items()}
        second = macaw.simulate(**(job | {"rounds": 3}))
        self.refused(first, "holds another run by now.*out=")
        self.assertIn("holds another run", repr(first))
        for name, array in model.items():
            self.assertEqual(array.tolist(), kept[name].tolist(), "what was read stays")
        self.assertNotEqual(second.digest, digest)
        self.assertEqual(len(second.rows), 3)
        self.assertEqual(macaw.Run(first.folder).digest, second.digest)

    def test_that_would_replace_what_it_must_not_is_refused(self) -> None:
        job = self.job("run", overwrite=True, rounds=1)
        own = self.folder / "run" / "models" / "my.pt"
        own.parent.mkdir(parents=True)
        own.write_text("mine")
        with self.assertRaisesRegex(macaw.Error, "holds no run, but has models.*give another out="):
            macaw.simulate(**job)
        self.assertEqual(own.read_text(), "mine")
        shutil.rmtree(own.parent.parent)
        model = macaw.simulate(**job).folder / "model.safetensors"
        with self.assertRaisesRegex(macaw.Error, "which overwrite=True would remove"):
            macaw.simulate(**job, init=model)
        self.assertTrue(model.exists())

    def test_of_a_stream_that_was_replaced(self) -> None:
        job = self.job("run", overwrite=True, rounds=2)
        with macaw.stream(**job) as stream:
            for _ in stream:
                pass
        macaw.simulate(**job)
        with self.assertRaisesRegex(macaw.Error, "holds another run"):
            _ = stream.run.digest

    def test_that_was_resumed_is_the_same_run(self) -> None:
        run = macaw.simulate(**self.job("run", rounds=2))
        macaw.resume(run, rounds=3)
        self.assertEqual(len(run.rows), 3)

    def test_that_was_removed_or_moved(self) -> None:
        run = macaw.simulate(**self.job("run", rounds=2))
        digest = run.digest
        shutil.move(run.folder, self.folder / "moved")
        self.refused(run, "has no run any more")
        self.assertIn("has no run any more", repr(run))
        moved = macaw.Run(self.folder / "moved")
        self.assertEqual(moved.digest, digest)
        (moved.folder / "metrics.jsonl").unlink()
        with self.assertRaisesRegex(macaw.Error, r"has no metrics\.jsonl"):
            _ = moved.rows

    def test_that_was_replaced_is_not_logged_into(self) -> None:
        opened: list[macaw.OpenRun] = []
        macaw.simulate(**self.job("run", on_round=opened.append, rounds=2))
        macaw.simulate(**self.job("run", on_round=lambda run: None, overwrite=True, rounds=2))
        with self.assertRaisesRegex(macaw.Error, "holds another run"):
            opened[0].log({"drift": 1.0})


class Rows(TestCase):
    def test_of_a_crash_lack_the_torn_one(self) -> None:
        run = macaw.simulate(**self.job("run", evaluation={"leave_one_out": 2}))
        whole, parts = run.rows, run.contributions
        for name in ("metrics.jsonl", "contributions.jsonl"):
            for torn in (b'{"round": 5, "tes', b'{"round": 5, "name": "\xc3', b'{"round"', b"5"):
                with (run.folder / name).open("ab") as file:
                    size = file.tell()
                    file.write(torn)
                self.assertEqual(run.rows, whole, torn)
                self.assertEqual(run.contributions, parts, torn)
                self.assertEqual(len(run.metrics["round"]), 4)
                os.truncate(run.folder / name, size)

    def test_that_are_damaged_before_the_last_are_an_error(self) -> None:
        run = macaw.simulate(**self.job("run"))
        file = run.folder / "metrics.jsonl"
        lines = file.read_text().splitlines()
        file.write_text("\n".join([lines[0], lines[1][:9], *lines[2:], ""]))
        with self.assertRaisesRegex(macaw.Error, "metrics.jsonl is damaged: line 2"):
            _ = run.rows

    def test_of_contributions_have_names_or_say_why_not(self) -> None:
        run = macaw.simulate(**self.job("run", evaluation={"leave_one_out": 2}))
        false = subprocess.CompletedProcess([], 2, "", "error: the disk is away\n")
        with (
            mock.patch("macaw._run.subprocess.run", return_value=false),
            self.assertRaisesRegex(macaw.Error, "contribution.*the disk is away"),
        ):
            _ = run.contributions


if __name__ == "__main__":
    unittest.main()
