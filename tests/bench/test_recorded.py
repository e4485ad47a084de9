"""bench/recorded.py: whose entry a run makes, over a program that stands in for macaw."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import frame
import record
import recorded
from papers.claim import Metric

# `macaw simulate`, which says what it was given. A file "cut" beside it ends it early.
STAND_IN = """#!{python}
import hashlib, json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
if "--resume" in words:
    out = pathlib.Path(words[words.index("--resume") + 1])
    given = json.loads((out / "given.json").read_text())
else:
    out = pathlib.Path(words[words.index("--out") + 1])
    given = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set")
    out.mkdir(exist_ok=True)
    (out / "given.json").write_text(json.dumps(given))
    path = given["partition.path"]
    (out / "config.toml").write_text('[partition]\\nscheme = "histogram"\\npath = "%s"\\n' % path)
    if (here / "cut").exists():
        (out / "checkpoints").mkdir()
        sys.exit("cut")
data = pathlib.Path(given["partition.path"]).read_bytes()
size = len(data).to_bytes(8, "little")
inputs = dict([("partition.path", hashlib.blake2b(size + data, digest_size=32).hexdigest()[:16])])
# The model is that of the division.
(out / "summary.json").write_text(json.dumps(dict(
    seconds=60, model_digest=data.decode(), program="macaw-server 9", profile=dict(), inputs=inputs,
    data_digest="data " + (here / "data").read_text(), resumed="--resume" in words)))
"""


class Toy(recorded.Work):
    """A run with a division that a test chooses."""

    division = "A"

    def draw(self):
        (self.folder / "counts.txt").write_text(self.division)
        drawn = ["partition.scheme=histogram", f"partition.path={self.folder / 'counts.txt'}"]
        return drawn, record.digest_of_files(drawn, self.folder)

    def config(self):
        return ""

    def settings(self):
        return []

    def entry(self, run, known):
        return record.Entry(best=0.5, last=0.5, tail=0.5, **known)

    def figure(self, entry):
        return f"{entry.last}"

    def beside(self):
        return ["one", "two"]


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.macaw = self.folder / "macaw"
        self.macaw.write_text(STAND_IN.format(python=sys.executable))
        self.macaw.chmod(0o755)
        (self.folder / "data").write_text("1")
        self.file = record.Record(self.folder / "toy.jsonl", record.Entry)

    def work(self, cell="one", division="A", again=False):
        options = argparse.Namespace(macaw=self.macaw, again=again, check=False)
        cells = recorded.Cells("toy", self.file, dict.fromkeys(("one", "two"), "s" * 32))
        work = Toy(cells, cell, 1, options, self.folder / "runs")
        work.division = division
        return work

    def do(self, *words, **more):
        """The entry, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            found = self.work(*words, **more).do()
        return found, said.getvalue()

    def forget(self):
        self.file.file.unlink()

    def cut(self, **more):
        (self.folder / "cut").touch()
        with self.assertRaisesRegex(RuntimeError, "exit code 1"):
            self.do(**more)
        (self.folder / "cut").unlink()

    def unnamed(self):
        """The run's folder as earlier programs named it."""
        folder = self.work().folder
        [run] = [path for path in folder.glob("run-*") if path.is_dir()]
        run.with_suffix(".json").unlink()
        run.rename(folder / "run")
        return folder / "run"

    def test_a_finished_run_of_another_division_is_not_taken(self):
        self.do()
        self.forget()  # as if the command had ended before it added the entry
        self.assertEqual(self.do(division="B")[0].model, "B")
        self.forget()
        with mock.patch.object(recorded, "simulate", side_effect=AssertionError) as simulate:
            simulate.side_effect = lambda macaw, config, out, settings: frame.Run(out)
            self.assertEqual(self.do(division="A")[0].model, "A")

    def test_a_cut_run_of_another_division_does_not_go_on(self):
        self.cut()
        found, _ = self.do(division="B")
        self.assertEqual(found.model, "B")
        self.forget()
        self.assertEqual(self.do()[0].model, "A")
        summaries = [json.loads(p.read_text()) for p in self.folder.glob("runs/**/summary.json")]
        resumed = {one["model_digest"]: one["resumed"] for one in summaries}
        self.assertEqual(resumed, {"A": True, "B": False})

    def test_a_finished_run_without_a_divisions_name_is_taken_where_it_is_of_it(self):
        self.do()
        self.forget()
        run = self.unnamed()
        self.assertEqual(self.do(division="B")[0].model, "B")
        self.forget()
        self.assertEqual(self.do()[0].model, "A")
        self.assertEqual(len(list(run.parent.glob("run*/summary.json"))), 2)

    def test_a_cut_run_without_a_divisions_name_goes_on_where_it_is_of_it(self):
        self.cut()
        run = self.unnamed()
        self.assertEqual(self.do()[0].model, "A")
        self.assertTrue(json.loads((run / "summary.json").read_text())["resumed"])

    def test_a_cut_run_without_a_divisions_name_is_left_where_the_division_changes(self):
        self.cut()
        run = self.unnamed()
        self.assertEqual(self.do(division="B")[0].model, "B")
        self.assertFalse((run / "summary.json").exists())

    def test_day_and_place_are_those_of_the_run(self):
        with mock.patch.object(frame, "processor", return_value="here"):
            self.do()
        self.forget()
        [summary] = self.folder.glob("runs/**/summary.json")
        os.utime(summary, (1_000_000_000, 1_000_000_000))  # 2001-09-09, wherever it is
        with mock.patch.object(frame, "processor", return_value="elsewhere"):
            found, _ = self.do()
        self.assertEqual((found.processor, found.day[:7]), ("here", "2001-09"))
        self.assertEqual(found.macaw, "macaw-server 9")

    @unittest.skipUnless(shutil.which("git"), "there is no git")
    def test_the_commit_of_the_program_is_named(self):
        commit = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"]
        for words in (["init", "-q"], ["add", "macaw"], commit):
            subprocess.run(["git", "-C", self.folder, *words], check=True, capture_output=True)
        words = ["git", "-C", self.folder, "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.check_output(words, text=True).strip()
        self.assertEqual(self.do()[0].macaw, f"macaw-server 9, {commit}")
        self.macaw.write_text(self.macaw.read_text() + "\n")
        self.assertEqual(recorded.commit_of(self.macaw), f"{commit}-dirty")
        self.assertEqual(recorded.commit_of(Path("/there/is/none")), "")

    def test_an_entry_of_other_data_than_those_beside_it_is_refused(self):
        one, _ = self.do("one")
        (self.folder / "data").write_text("2")
        with self.assertRaisesRegex(RuntimeError, r"seed 1: its data \(data 2\) are not those of "
                                    r"'one' \(data 1, .*so it gets no entry"):  # fmt: skip
            self.do("two")
        self.assertEqual(self.file.entries(), {one.name: one})
        found, said = self.do("two", again=True)
        self.assertIn("make that one --again, too", said)
        self.assertEqual(self.file.entries()[found.name].data, "data 2")
        # Another division has other data, and an entry that has none is not compared.
        self.do("one", division="B")
        self.file.add(dataclasses.replace(one, data=None))
        self.file.add(dataclasses.replace(found, settings="of before"))
        self.assertEqual(self.do("two")[1].count("are not those"), 0)


class Interrupted(unittest.TestCase):
    def test_no_run_begins_after_ctrl_c(self):
        submitted, ended = threading.Event(), threading.Event()
        as_completed = recorded.concurrent.futures.as_completed

        def waits_for(runs):
            submitted.set()
            return as_completed(runs)

        class Pool(ThreadPoolExecutor):
            def shutdown(self, wait=True, *, cancel_futures=False):
                super().shutdown(wait=False, cancel_futures=cancel_futures)
                ended.set()
                super().shutdown(wait=wait)

        begun = []

        class First:
            def do(self):
                begun.append("first")
                submitted.wait(60)
                # Again and again: a signal just before the main thread waits does not wake it.
                for _ in range(1200):
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                    if ended.wait(0.05):
                        break

        class Second:
            def do(self):
                begun.append("second")

        interrupted = []

        def interrupt(*_):
            if not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, interrupt)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with (
            mock.patch.object(recorded.concurrent.futures, "ThreadPoolExecutor", Pool),
            mock.patch.object(recorded.concurrent.futures, "as_completed", waits_for),
            self.assertRaises(KeyboardInterrupt),
        ):
            recorded.do_all([First(), Second(), Second()])
        self.assertEqual(begun, ["first"])

    def test_the_first_error_ends_the_program(self):
        class Broken:
            def do(self):
                raise RuntimeError("it is broken")

        with self.assertRaisesRegex(SystemExit, "it is broken"):
            recorded.do_all([Broken()])


class Metrics(unittest.TestCase):
    def test_a_metrics_version_counts_where_it_is_not_the_first(self):
        first = Metric("accuracy", True, lambda made: 0.0)
        self.assertEqual(first.words("accuracy"), "measure accuracy")
        second = dataclasses.replace(first, version=2)
        self.assertEqual(second.words("accuracy"), "measure accuracy, version 2")


if __name__ == "__main__":
    unittest.main()
