"""bench/published.py: tables of recorded runs, which are not made again, and are the same again."""

import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MACAW_BUILD", SOURCE / "build"))
sys.path.insert(0, str(SOURCE / "bench"))
import published  # noqa: E402
import record  # noqa: E402
import recorded  # noqa: E402
from tables.table import Cell, Published, Table  # noqa: E402

CONFIG = """
[run]
rounds = 3
[data]
source = "idx"
path = "{data}/train-images-idx3-ubyte.gz"
test_path = "{data}/t10k-images-idx3-ubyte.gz"
[model]
name = "logistic"
[cohort]
size = 2
"""


def drawn(cell, seed, data, folder):
    del cell, data
    (folder / "counts.txt").write_text("\n".join(["9 " * 10] * (3 + seed)))
    return ["partition.scheme=histogram", f"partition.path={folder / 'counts.txt'}"]


def table(rate="0.1"):
    cells = [
        Cell("IID", "FedAvg", [f"local.lr={rate}"], Published(50.0, 1.0, seeds=3)),
        Cell("IID", "FedProx", ["algorithm.name=fedprox"], None),
    ]
    return Table("toy", "Toy", "About it.", "images", CONFIG, cells, "tail", drawn)


def entry(cell="IID, FedAvg", seed=1, **changes):
    known = dict(settings=published.cells_of(table()).settings["IID, FedAvg"], drawn=None, best=0.5,
                 last=0.25, tail=0.125, minutes=1.5, model="m", macaw="macaw", profile=None,
                 data="d", processor="P", day="2026-01-02")  # fmt: skip
    return record.Entry(cell=cell, seed=seed, **{**known, **changes})


def add(file, seed):
    record.Record(file, record.Entry).add(entry(seed=seed))


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Recorded(Folder):
    def test_entries_come_back_to_the_last_digit(self):
        first = entry(best=0.1 + 0.2, profile={"trainer": "fused"})
        file = record.Record(self.folder / "new/toy.jsonl", record.Entry)
        file.add(first)
        file.add(entry(seed=2))
        self.assertEqual(file.entries()[first.name], first)
        newer = entry(last=0.75)
        file.add(newer)
        self.assertEqual(list(file.entries().values()), [newer, entry(seed=2)])

    def test_several_processes_lose_none(self):
        file = self.folder / "toy.jsonl"
        with multiprocessing.get_context("fork").Pool(8) as pool:
            pool.starmap(add, [(file, seed) for seed in range(60)])
        self.assertEqual(
            [seed for _, seed in record.Record(file, record.Entry).entries()], list(range(60))
        )
        self.assertEqual([path.name for path in self.folder.iterdir()], ["toy.jsonl"])

    def test_a_damaged_line_is_named(self):
        file = self.folder / "toy.jsonl"
        add(file, 1)
        for line in ("{", '{"cell": "a"}', "3"):
            file.write_text(file.read_text().splitlines()[0] + f"\n{line}\n")
            with self.assertRaisesRegex(SystemExit, "toy.jsonl, line 2"):
                record.Record(file, record.Entry).entries()

    def test_settings_are_what_counts_of_a_cell(self):
        was = record.digest_of_settings(CONFIG, ["a=1", "b=2"])
        self.assertEqual(record.digest_of_settings("# words\n" + CONFIG, ["b=2", "a=1"]), was)
        self.assertNotEqual(record.digest_of_settings(CONFIG, ["a=1", "b=3"]), was)
        other = CONFIG.replace("rounds = 3", "rounds = 4")
        self.assertNotEqual(record.digest_of_settings(other, ["a=1", "b=2"]), was)

    def test_drawn_files_count_by_their_bytes(self):
        digests = []
        for place, text in (("a", "1"), ("b", "1"), ("c", "2")):
            (self.folder / place).mkdir()
            (self.folder / place / "x").write_text(text)
            words = [f"k={self.folder / place / 'x'}", "s=histogram"]
            digests.append(record.digest_of_files(words, self.folder / place))
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])


class Page(Folder):
    """`./dev bench published`, with a table of two cells and a page of its own."""

    def setUp(self):
        super().setUp()
        (self.folder / "page.md").write_text("# Page\n<!-- toy -->\nold\n\n## Next\nkept\n")
        self.file = record.Record(self.folder / "toy.jsonl", record.Entry)

    def call(self, *words, rate="0.1", macaw=BUILD / "bin/macaw"):
        """Its code, what it printed and what it said."""
        out, said, code = io.StringIO(), io.StringIO(), 0
        argv = ["published", "toy", *words, "--macaw", str(macaw), "--runs", f"{self.folder}/runs",
                "--images", str(SOURCE / "examples/data/mnist")]  # fmt: skip
        with contextlib.ExitStack() as stack:
            for name, value in (("TABLES", {"toy": table(rate)}), ("RECORDS", self.folder),
                                ("RESULTS", self.folder / "page.md")):  # fmt: skip
                stack.enter_context(mock.patch.object(published, name, value))
            stack.enter_context(mock.patch.object(sys, "argv", argv))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(said))
            try:
                published.main()
            except SystemExit as error:
                code = error.code
        return code, out.getvalue(), said.getvalue()

    def test_is_made_of_entries_alone(self):
        self.file.add(entry())
        self.file.add(entry(seed=2, tail=0.375, day="2026-03-04", processor="Q"))
        code, out, said = self.call("--table-only", "--write")
        self.assertEqual((code, said), (0, ""))
        self.assertIn("| IID | FedAvg | 50.00 (± 1.00) | 25.00 ± ", out)
        self.assertIn("2026-01-02 to 2026-03-04, a core of P, Q a run, beside other work\n", out)
        self.assertNotIn("FedProx", out)
        self.assertNotIn(str(self.folder), out)
        page = (self.folder / "page.md").read_text()
        self.assertIn("| IID | FedAvg |", page)
        self.assertTrue(page.endswith("\n\n## Next\nkept\n"))
        self.assertNotIn("old", page)

    def test_says_that_some_rows_have_fewer_seeds_than_the_command(self):
        self.file.add(entry())
        self.file.add(entry(seed=2))
        prox = published.cells_of(table()).settings["IID, FedProx"]
        self.file.add(entry(cell="IID, FedProx", settings=prox))
        _, out, _ = self.call("--table-only")
        self.assertIn("--seeds 2 --write`; ", out)
        self.assertIn("; a row with fewer than 2 seeds has not had all its runs yet\n", out)

    def test_equal_is_of_the_numbers_and_not_of_their_roundings(self):
        # A difference of 0.004 rounds to 0.00, and half of its interval is smaller.
        ours = [50.0039, 50.004, 50.0041]
        text, equal = published.difference(ours, Published(50.0, 0.0001, seeds=3))
        self.assertEqual((text, equal), ("+0.00 ± 0.00", "no"))
        # 0.346 is within 0.3487, which 0.35 would not be.
        ours = [50.346 - 0.1404, 50.346, 50.346 + 0.1404]
        text, equal = published.difference(ours, Published(50.0, 0.0, seeds=3))
        self.assertEqual((text, equal), ("+0.35 ± 0.35", "yes"))
        self.assertEqual(published.difference([50.3] * 3, Published(50.3, 0.0, seeds=3))[1], "yes")
        self.assertEqual(published.difference([50.301] * 3, Published(50.3, 0.0, seeds=3))[1], "no")

    def test_names_entries_of_cells_that_have_changed(self):
        self.file.add(entry())
        self.file.add(entry(cell="IID, FedNova"))
        _, out, said = self.call("--table-only", rate="0.2")
        self.assertEqual(out, "")
        self.assertIn("seed 1 of 'IID, FedAvg', which has other settings now", said)
        self.assertIn("seed 1 of 'IID, FedNova', which is no cell any more", said)

    @unittest.skipUnless((BUILD / "bin/macaw").exists(), "the programs are not built")
    def test_runs_are_recorded_once_and_are_the_same_again(self):
        code, out, said = self.call("--seeds", "1")
        self.assertEqual(code, 0, said)
        entries = self.file.entries()
        self.assertEqual(len(entries), 2)
        one = entries["IID, FedAvg", 1]
        [path] = self.folder.glob("runs/toy/IID__FedAvg/1-*/run-*/summary.json")
        self.assertEqual(path.parent.name, f"run-{one.drawn[:12]}")
        summary = json.loads(path.read_text())
        commit = recorded.commit_of(BUILD / "bin/macaw")
        self.assertEqual((one.model, one.last, one.macaw),
                         (summary["model_digest"], summary["final"]["test_accuracy"],
                          ", ".join([summary["program"], *filter(None, [commit])])))  # fmt: skip
        # Neither the runs nor the program are needed for them any more.
        again = self.call("--seeds", "1", macaw="/there/is/none")
        self.assertEqual(again[:2], (0, out))
        # They are the same, until one is not.
        code, _, said = self.call("--seeds", "2", "--check")
        self.assertEqual((code, said.count("the same model")), (0, 2), said)
        self.file.add(dataclasses.replace(one, model="another"))
        code, _, said = self.call("--check", "--only", "FedAvg")
        self.assertIn("the same settings, data and arithmetic have given another model", str(code))
        self.assertIn("ANOTHER MODEL", said)
        self.file.add(dataclasses.replace(one, model="another", profile={"trainer": "else"}))
        code, _, said = self.call("--check", "--only", "FedAvg")
        self.assertEqual(code, 0, said)
        self.assertIn("another model, of another arithmetic", said)
        # --again puts the new entry in place of it; a changed cell is run.
        self.call("--again", "--seeds", "1", "--only", "FedAvg")
        self.assertEqual(self.file.entries()[one.name].model, one.model)
        self.call("--seeds", "1", "--only", "FedAvg", rate="0.2")
        self.assertNotEqual(self.file.entries()[one.name].settings, one.settings)
        self.assertNotEqual(self.file.entries()[one.name].model, one.model)

    @unittest.skipUnless((BUILD / "bin/macaw").exists(), "the programs are not built")
    def test_another_division_is_run_again(self):
        self.file.add(entry(drawn="of another day"))
        code, _, said = self.call("--seeds", "1", "--only", "FedAvg")
        self.assertEqual(code, 0, said)
        self.assertIn("drawn in another way", said)
        self.assertNotEqual(self.file.entries()["IID, FedAvg", 1].model, "m")

    @unittest.skipUnless((BUILD / "bin/macaw").exists(), "the programs are not built")
    def test_a_try_leaves_no_entry(self):
        code, out, said = self.call("--rounds", "1", "--seeds", "1", "--only", "FedAvg")
        self.assertEqual((code, out), (0, ""), said)
        self.assertEqual(self.file.entries(), {})
        self.assertIn("toy: IID, FedAvg, seed 1: ", said)


class Repository(unittest.TestCase):
    def test_entries_are_of_cells_as_they_are(self):
        for one in published.TABLES.values():
            cells = published.cells_of(one)
            self.assertEqual(cells.current(), cells.record.entries(), one.name)


if __name__ == "__main__":
    unittest.main()
