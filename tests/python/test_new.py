"""Projects that `macaw new` writes, and trackers from Python."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

import macaw
from support import BUILD, TestCase, job

PROGRAM = BUILD / "bin" / "macaw"


def macaw_new(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), "new", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


class TestNew(TestCase):
    def test_a_project_tests_itself_and_trains(self) -> None:
        made = macaw_new(self.folder, "heron")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("cd heron && python train.py", made.stdout)
        project = self.folder / "heron"
        for path in project.iterdir():
            self.assertNotIn("{{", path.read_text())
        self.assertLessEqual(len((project / "README.md").read_text().splitlines()), 10)
        tests = python(project, "-m", "unittest")
        self.assertEqual(tests.returncode, 0, tests.stdout + tests.stderr)
        self.assertIn("Ran 4 tests", tests.stderr)  # of train.py and of rule.py
        trained = python(project, "train.py")
        self.assertEqual(trained.returncode, 0, trained.stdout + trained.stderr)
        run = macaw.Run(project / "runs/heron")
        self.assertGreater(run.summary["final"]["test_accuracy"], 0.8)
        config = (run.folder / "config.toml").read_text()
        self.assertIn("my_prox", config)
        self.assertIn(str(project / "rule.py"), config)

    def test_how_to_run_it_is_quoted_for_a_shell(self) -> None:
        made = macaw_new(self.folder, "heron", "--out", "my heron")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("cd 'my heron' && python train.py", made.stdout)

    def test_its_tests_find_a_rule_that_is_wrong(self) -> None:
        self.assertEqual(macaw_new(self.folder, "heron").returncode, 0)
        rule = self.folder / "heron/rule.py"
        text = rule.read_text()
        self.assertEqual(text.count("mu=self.mu"), 1)
        rule.write_text(text.replace("mu=self.mu", "mu=2 * self.mu"))
        tests = python(rule.parent, "-m", "unittest", "test_rule")
        self.assertNotEqual(tests.returncode, 0)
        self.assertIn("FAIL: test_is_fedprox", tests.stderr)

    def test_a_folder_that_exists_is_left_alone(self) -> None:
        (self.folder / "heron").mkdir()
        made = macaw_new(self.folder, "heron")
        self.assertEqual(made.returncode, 2)
        self.assertIn("heron", made.stderr)
        self.assertEqual(list((self.folder / "heron").iterdir()), [])

    def test_bad_names_are_refused(self) -> None:
        cases = [["Heron"], ["../heron"], ["1st"], ["a b"], [""], ["fedavg", "--cpp"]]
        for arguments in [*cases, ["class", "--cpp"], ["test", "--cpp"]]:
            with self.subTest(arguments):
                made = macaw_new(self.folder, *arguments)
                self.assertEqual(made.returncode, 2, made.stdout)
                self.assertEqual(list(self.folder.iterdir()), [])


class TestTrack(TestCase):
    def test_rows_reach_a_table(self) -> None:
        run = macaw.simulate(**job(self.folder, "run", run={"track": ["csv"]}))
        lines = (run.folder / "metrics.csv").read_text().splitlines()
        self.assertEqual(lines[0].split(",")[0], "round")
        self.assertEqual([int(line.split(",")[0]) for line in lines[1:]], [1, 2, 3, 4])

    def test_a_run_that_goes_on_has_each_row_once(self) -> None:
        run = macaw.simulate(**job(self.folder, "run", run={"track": ["csv"]}, rounds=4))
        macaw.resume(run.folder, rounds=9)
        lines = (run.folder / "metrics.csv").read_text().splitlines()
        self.assertEqual([int(line.split(",")[0]) for line in lines[1:]], list(range(1, 10)))

    def test_an_unknown_tracker_is_named(self) -> None:
        with self.assertRaises(macaw.ConfigError) as caught:
            macaw.simulate(**job(self.folder, "run", run={"track": ["excel"]}))
        self.assertEqual(caught.exception.key, "run.track")


if __name__ == "__main__":
    unittest.main()
