"""Benchmarks that write a page's table: not a part of it, and no figures of other runs."""

import contextlib
import importlib.util
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import attacks
import clock
import heterofl
import personal

SPEC = importlib.util.spec_from_file_location("bench_codecs", clock.frame.ROOT / "bench/codecs.py")
codecs = importlib.util.module_from_spec(SPEC)  # Python has a module of this name
SPEC.loader.exec_module(codecs)

# `macaw simulate` of bench/attacks.py: notes its settings, or fails with the words of a file.
SIMULATE = """#!{python}
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
if (here / "fails").exists():
    sys.exit((here / "fails").read_text())
with open(here / "runs", "a") as file:
    file.write(" ".join(words) + "\\n")
out = pathlib.Path(words[words.index("--out") + 1])
out.mkdir(parents=True)
(out / "summary.json").write_text(json.dumps(dict(model_digest="m")))
scale = [word for word in words if word.startswith("attack.scale=")]
accuracy = float(scale[0].split("=")[1]) / 100 if scale else 0.9
(out / "metrics.jsonl").write_text(json.dumps(dict(test_accuracy=accuracy)) + "\\n")
"""
# `macaw sweep` of bench/personal.py: runs of the rules with the file's seeds, beside earlier ones.
SWEEP = """#!{python}
import json, pathlib, sys, tomllib
file, out = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[4])
told = tomllib.loads(file.read_text())
rules = [rule["name"] for rule in told["keys"]["algorithm"]] + told["baselines"]
lines = ["configuration,algorithm,runs,seeds,failed"]
for rule in rules:
    for seed in told["seeds"]:
        run = out / "runs" / f"{{rule}}-seed{{seed}}"
        run.mkdir(parents=True, exist_ok=True)
        kinds = "clients_test_accuracy", "clients_test_tuned_accuracy"
        final = {{kind + part: seed / 10 for kind in kinds for part in ("", "_worst10")}}
        rounds = told["keys"]["run"]["rounds"][0]
        text = json.dumps(dict(algorithm=rule, rounds=rounds, final=final))
        (run / "summary.json").write_text(text)
    lines.append(f"{{rule}},x,1,{{' '.join(map(str, told['seeds']))}},0")
(out / "table.csv").write_text("\\n".join(lines) + "\\n")
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.macaw = self.folder / "macaw"

    def stand_in(self, text):
        self.macaw.write_text(text.format(python=sys.executable))
        self.macaw.chmod(0o755)

    def call(self, module, *words):
        """The code, what was printed and what was said."""
        out, code = io.StringIO(), 0
        argv = [module.__name__, *words, "--macaw", str(self.macaw)]
        with (
            tempfile.TemporaryFile("w+") as said,  # a file, which programs write into, too
            mock.patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            try:
                module.main()
            except SystemExit as error:
                code = error.code
            said.seek(0)
            return code, out.getvalue(), said.read()


class Parts(Folder):
    """No program is there: what is not refused fails otherwise."""

    def refused(self, module, *words):
        code, _, said = self.call(module, *words, "--write")
        self.assertEqual(code, 2, said)
        [options] = re.findall("--write replaces the whole table and (.*) makes a part of it", said)
        return options

    def test_of_a_table_are_not_written(self):
        self.assertEqual(self.refused(attacks, "--rules", "fedavg"), "--rules")
        self.assertEqual(self.refused(attacks, "--attacks", "alie;mimic, skewed"), "--attacks")
        self.assertEqual(self.refused(attacks, "--rounds", "10", "--rules", "krum"),
                         "--rules and --rounds")  # fmt: skip
        self.assertEqual(self.refused(clock, "--only", "oort"), "--only")
        self.assertEqual(self.refused(codecs, "--only", "bits"), "--only")
        self.assertEqual(self.refused(heterofl, "--only", "alone"), "--only")
        self.assertEqual(self.refused(personal, "labels"), "SCENARIO")
        self.assertEqual(self.refused(personal, "--rounds", "2"), "--rounds")

    def test_the_whole_of_it_is(self):
        for module in (clock, codecs, heterofl):
            with self.assertRaisesRegex(FileNotFoundError, "macaw"):
                self.call(module, "--write")


class Attacks(Folder):
    def setUp(self):
        super().setUp()
        self.stand_in(SIMULATE)

    def table(self, attack="sign-flip"):
        """The only row's cells, and how many runs have been made in all."""
        code, out, said = self.call(attacks, "--rules", "fedavg", "--attacks", attack, "--jobs",
                                    "1", "--out", f"{self.folder}/out")  # fmt: skip
        self.assertEqual(code, 0, f"{code} {said}")
        [row] = [line for line in out.splitlines() if line.startswith("| fedavg")]
        runs = self.folder / "runs"
        return row.strip("| ").split(" | "), len(
            runs.read_text().splitlines()
        ) if runs.exists() else 0

    def test_runs_are_those_of_the_settings_as_they_are(self):
        fractions = len(attacks.FRACTIONS)
        first, made = self.table()
        self.assertEqual((first[2], made), ("*10.0*", fractions))
        self.assertEqual(self.table(), (first, fractions))
        with mock.patch.dict(attacks.ATTACKS, {"sign-flip": ({"scale": 80}, {})}):
            other, made = self.table()
        self.assertEqual((other[2], made), ("80.0", 2 * fractions - 1))  # none is hostile in one
        with mock.patch.object(
            attacks, "CONFIG", attacks.CONFIG.replace("steps = 30", "steps = 3")
        ):
            self.assertEqual(self.table()[1], 3 * fractions - 1)

    def test_a_run_that_lost_all_clients_has_a_dash(self):
        (self.folder / "fails").write_text(
            "macaw: error: round 3: all 20 clients had to be left out; client 7: channel 'delta', "
            "tensor '0.weight' element 0 is inf (out/logs/server.log)"
        )
        self.assertEqual(self.table()[0][1:], ["**–**"] + ["*–*"] * (len(attacks.FRACTIONS) - 1))

    def test_any_other_failure_ends_it(self):
        for words in ("macaw: error: a crash has lost what they tell of",
                      "macaw: error: evaluation.heldout: every client has rows",
                      "macaw: error: client 7: no such file"):  # fmt: skip
            (self.folder / "fails").write_text(words)
            with self.assertRaisesRegex(AssertionError, words):
                self.table()


class Personal(Folder):
    def setUp(self):
        super().setUp()
        self.stand_in(SWEEP)

    def table(self, *words):
        code, out, said = self.call(personal, *words, "--out", f"{self.folder}/out")
        self.assertEqual(code, 0, f"{code} {said}")
        cells = [line.strip("| ").split(" | ") for line in out.splitlines() if line[:1] == "|"]
        return {row[0]: row[1] for row in cells[2:]}

    def test_a_table_is_of_the_seeds_that_were_asked_for(self):
        self.assertEqual(self.table("labels", "--repeat", "3")["ditto"], "20.0 ± 10.0")
        self.assertEqual(self.table("labels", "--repeat", "1")["ditto"], "10.0")

    def play(self, word):
        speech = "\n\n".join(f"{who}:\n" + f"{word} {who} " * 500 for who in ("ONE", "TWO"))
        (self.folder / "play.txt").write_text(speech)
        return self.folder / "play.txt"

    def test_speakers_are_those_of_the_text(self):
        made = [personal.speakers(self.folder, self.play(word)) for word in ("a", "b", "a")]
        self.assertEqual(made[0], made[2])
        self.assertNotEqual(made[0], made[1])
        rows = [(one / "train/data.json").read_text() for one in made]
        self.assertIn("a ONE", rows[0])
        self.assertIn("b ONE", rows[1])

    def test_a_folder_that_is_half_written_is_written_again(self):
        def half(play, folder, **options):
            (folder / "train").mkdir()
            raise KeyboardInterrupt

        play = self.play("a")
        with (
            mock.patch.object(personal, "play_by_speaker", half),
            self.assertRaises(KeyboardInterrupt),
        ):
            personal.speakers(self.folder, play)
        made = personal.speakers(self.folder, play)
        self.assertEqual(
            json.loads((made / "train/data.json").read_text())["users"], ["ONE", "TWO"]
        )
        with mock.patch.object(personal, "play_by_speaker", half):
            self.assertEqual(personal.speakers(self.folder, play), made)

    def test_each_text_has_a_sweep_of_its_own(self):
        for word in ("a", "b"):
            self.table("speakers", "--speakers", str(self.play(word)))
        self.assertEqual(len(list(self.folder.glob("out/full/speakers-*/speakers/table.csv"))), 2)


if __name__ == "__main__":
    unittest.main()
