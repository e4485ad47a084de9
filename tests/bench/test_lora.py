"""bench/lora.py: a table of recorded runs, at the rates that their validation losses choose."""

import contextlib
import dataclasses
import gzip
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MACAW_BUILD", SOURCE / "build"))
sys.path.insert(0, str(SOURCE / "bench"))
import lora  # noqa: E402
import record  # noqa: E402

WAYS = [
    lora.Way("full", {}, (0.1, 0.3)),
    lora.Way("lora 4", lora.lora(4), (0.3, 1.0)),
]


class Table(unittest.TestCase):
    """`./dev bench lora` with two ways, few rounds, and a record and a page of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.page = self.folder / "lora.md"
        self.page.write_text("# Page\nwords\n<!-- lora -->\nold\n")
        self.record = record.Record(self.folder / "lora.jsonl", lora.Learned)
        play = self.folder / "play.txt.gz"
        play.write_bytes(gzip.compress(lora.made_up_play().encode()))
        for name, value in (("WAYS", WAYS), ("ROUNDS", 2), ("BASE_ROUNDS", 1), ("PLAY", play),
                            ("RECORD", self.record.file), ("RESULTS", self.page)):  # fmt: skip
            patch = mock.patch.object(lora, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def call(self, *words, macaw=BUILD / "bin/macaw"):
        """Its code, what it printed and what it said."""
        out, said, code = io.StringIO(), io.StringIO(), 0
        argv = ["lora", *words, "--macaw", str(macaw), "--runs", f"{self.folder}/runs"]
        with (
            mock.patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            try:
                lora.main()
            except SystemExit as error:
                code = error.code
        return code, out.getvalue(), said.getvalue()

    def add(self, cell, seed=1, **changes):
        settings = lora.Bench(mock.Mock(quick=False, rounds=lora.ROUNDS, speakers=None)).cells
        known = dict(settings=settings.settings.get(cell, ""), drawn=None, best=None, last=0.5,
                     tail=None, minutes=None, model="m", macaw="macaw", profile=None, data="d",
                     processor="P", day="2026-01-02", base="b", loss=1.5, validation=2.0,
                     sent=1000.0, curve=[[1, 10_000, 0.4], [2, 20_000, 0.5]])  # fmt: skip
        entry = lora.Learned(cell=cell, seed=seed, **{**known, **changes})
        self.record.add(entry)
        return entry

    def rows(self, text):
        cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
        return {row[0]: row[1:] for row in cells[2:]}

    def table_only(self, *words):
        code, out, said = self.call("--table-only", *words, macaw="/there/is/none")
        self.assertEqual(code, 0, said)
        return self.rows(out), said

    def test_entries_keep_their_curves(self):
        entry = self.add("full, lr 0.1", curve=[[1, 3, 0.1 + 0.2]])
        self.assertEqual(self.record.entries()[entry.name], entry)

    def test_a_way_is_shown_at_the_rate_of_the_lowest_validation_loss(self):
        self.add("full, lr 0.1", validation=2.0, last=0.9)
        rows, said = self.table_only()
        self.assertEqual(rows, {})
        self.assertIn("'full' is not in the table before its runs at 0.3", said)
        self.add("full, lr 0.3", validation=1.0, last=0.25)
        self.assertEqual(self.table_only()[0]["full"][:4], ["0.3", "1", "1.0", "25.0"])
        self.add("full, lr 0.3", validation=None, last=None, loss=None, curve=[])  # has diverged
        self.assertEqual(self.table_only()[0]["full"][:4], ["0.1", "1", "1.0", "90.0"])

    def test_a_figure_carried_over_from_a_page_is_at_the_rate_chosen_there(self):
        self.add("full, lr 0.3", validation=None, model=None)
        self.add("full, lr 0.1", validation=0.5)
        self.assertEqual(self.table_only()[0]["full"][0], "0.3")

    def test_equal_bytes_are_those_of_lora_4_with_the_seed(self):
        for rate in (0.3, 1.0):
            self.add(f"lora 4, lr {rate:g}", validation=rate)
        self.add("lora 4, lr 0.3", 2, curve=[[2, 30_000, 0.3]])
        curve = [[1, 20_000, 0.4], [2, 25_000, 0.45], [3, 30_000, 0.46], [4, 31_000, 0.503]]
        for seed in (1, 2, 3):  # at most 20, 30 and, as `lora 4` has no third seed, 25 kB
            self.add("full, lr 0.1", seed, curve=curve, last=0.503)
        self.add("full, lr 0.3", validation=3.0)
        rows, _ = self.table_only()
        self.assertEqual(rows["full"], ["0.1", "3", "1.0", "50.3 ± 0.0", "1.500 ± 0.000",
                                        "43.7 ± 3.2", "2", "0.0"])  # fmt: skip
        self.assertEqual(rows["lora 4"][4:], ["1.500 ± 0.000", "40.0 ± 14.1", "2", "–"])
        self.add("full, lr 0.1", 1, curve=curve[1:], last=0.503)  # more than all of `lora 4`
        self.assertEqual(self.table_only()[0]["full"][5:7], ["–", "–"])

    def test_megabytes_are_those_until_half_a_percent_below_full(self):
        self.add("full, lr 0.1", curve=[[1, 3_000_000, 0.494], [2, 4_000_000, 0.496]], last=0.5)
        self.add("full, lr 0.3", validation=3.0)
        self.assertEqual(self.table_only()[0]["full"][-1], "4.0")

    def test_is_written_in_place_of_the_old_table(self):
        for rate in (0.1, 0.3):
            self.add(f"full, lr {rate}", day="2026-03-04" if rate == 0.1 else "2026-01-02")
        self.add("full, lr 0.2")
        rows, said = self.table_only("--write")
        self.assertIn("seed 1 of 'full, lr 0.2', which is no cell any more", said)
        page = self.page.read_text()
        self.assertTrue(
            page.startswith("# Page\nwords\n<!-- lora -->\n`./dev bench lora --seeds 1")
        )
        self.assertEqual((self.rows(page), "old" in page), (rows, False))
        self.assertIn("2026-01-02 to 2026-03-04, P, beside", page)

    def test_tries_are_neither_compared_nor_written(self):
        for words in (["--quick"], ["--rounds", "7"], ["--speakers", "play.txt"]):
            for word in ("--again", "--check", "--table-only", "--write"):
                code, _, said = self.call(*words, word)
                self.assertEqual((code, "leave no entries" in said), (2, True))

    @unittest.skipUnless((BUILD / "bin/macaw").exists(), "the programs are not built")
    def test_runs_are_recorded_once_and_are_the_same_again(self):
        code, out, said = self.call("--seeds", "2", "--write")
        self.assertEqual(code, 0, said)
        entries = self.record.entries()
        self.assertEqual(len(entries), 6)  # a rate of each way has a second seed
        self.assertEqual({row[1] for row in self.rows(out).values()}, {"2"})
        one = entries["full, lr 0.1", 1]
        self.assertEqual([turn for turn, *_ in one.curve][-1], 2)
        self.assertGreater(one.sent, 10 * entries["lora 4, lr 0.3", 1].sent)
        self.assertEqual(one.curve[-1][2], one.last)
        # Neither the runs nor the program are needed for them any more.
        self.assertEqual(self.call("--seeds", "2", macaw="/there/is/none")[:2], (0, out))
        # They are the same, until one is not.
        code, _, said = self.call("--seeds", "2", "--check")
        self.assertEqual((code, said.count("the same model")), (0, 6), said)
        self.record.add(dataclasses.replace(one, model="another", base="another"))
        code, _, said = self.call("--seeds", "1", "--check", "--only", "full")
        self.assertEqual(code, 0, said)
        self.assertIn("another model, of another base", said)
        self.record.add(dataclasses.replace(one, model="another"))
        code, _, said = self.call("--seeds", "1", "--check", "--only", "full")
        self.assertIn("the same settings, data and arithmetic have given another model", str(code))
        # --again makes each rate again, and puts the new entries in place of them.
        self.record.add(dataclasses.replace(one, model=None, validation=None))
        self.call("--seeds", "2", "--again", "--only", "full")
        self.assertEqual(self.record.entries()[one.name].model, one.model)
        self.assertEqual(len(self.record.entries()), 6)

    @unittest.skipUnless((BUILD / "bin/macaw").exists(), "the programs are not built")
    def test_a_try_leaves_no_entry(self):
        code, out, said = self.call("--quick")
        self.assertEqual(code, 0, said)
        self.assertEqual((list(self.rows(out)), self.record.entries()), (["full", "lora 4"], {}))


class Repository(unittest.TestCase):
    def test_the_page_has_the_table_of_its_entries(self):
        out = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["lora", "--table-only"]),
            contextlib.redirect_stdout(out),
        ):
            lora.main()
        self.assertIn(out.getvalue().strip(), (SOURCE / "bench/results/lora.md").read_text())


if __name__ == "__main__":
    unittest.main()
