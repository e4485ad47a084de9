"""`macaw report` of one run, of three and of a sweep, as a browser shows it."""

from __future__ import annotations

import json
from pathlib import Path

from support import PageTest, macaw, main

RUN = """
[run]
name = "tiny"
rounds = 6
seed = 1
client_records = true
[data]
source = "synthetic"
[data.synthetic]
clients = 12
max_size = 60
[model]
name = "logistic"
[cohort]
size = 4
[workers]
processes = 1
slots = 1
[evaluation]
clients = true
"""
SWEEP = """
base = "run.toml"
seeds = [1, 2]
metric = "test_accuracy"
[keys]
algorithm.name = ["fedavg", "fedprox"]
algorithm.fedprox.mu = [0.1, 1.0]
local.lr = [0.01, 0.05]
"""

FEDAVG, FEDPROX, FAST = "fedavg, lr 0.1", "fedprox, mu 0.5, lr 0.1", "fedavg, lr 0.3"

TITLE = "document.querySelector('h1').innerText"
RUNS_HINT = "document.querySelector('#runs .hint').innerText"
# The rows of a table, each a list of its cells' texts.
TABLE = """[...document.querySelectorAll("%s tr")].map((row) =>
  [...row.children].map((cell) => cell.innerText.trim()))"""
# What each plot says of its curves.
# What each plot can have across, and has.
ACROSS = """[...document.querySelectorAll("select[aria-label=Across]")].map((one) =>
  [[...one.options].map((option) => option.text), one.value])"""
CHOOSE = """document.querySelectorAll("select[aria-label=Across]").forEach((one) => {
  one.value = "%s"; one.onchange(); })"""
LABELS = """[...document.querySelectorAll("#plots svg")].map((svg) =>
  [...svg.querySelectorAll("text")].pop().textContent)"""
LEGEND = """[...document.querySelectorAll(".values")].map((one) =>
  [...one.children].slice(1).map((part) => part.innerText.trim()))"""


class Report(PageTest):
    RUN = RUN

    def simulate(self, name: str, *settings: str) -> Path:
        folder = self.folder / name
        arguments = [part for setting in settings for part in ("--set", setting)]
        macaw("simulate", self.config, "--quiet", "--out", folder, *arguments)
        return folder

    def report(self, *runs: Path) -> Path:
        page = self.folder / f"{runs[0].name}.html"
        macaw("report", *runs, "--out", page)
        return page

    def written(self, name: str, rows: list[dict[str, float | None]], seed: int) -> Path:
        """A folder as a run leaves it that ended with the last of these rows."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        summary = {"name": name, "algorithm": "fedavg", "settings": {}, "seed": seed}
        summary |= {"end": "finished", "rounds": int(rows[-1]["round"] or 0)}
        (folder / "config.toml").write_text("[run]\n")
        (folder / "summary.json").write_text(json.dumps(summary))
        return folder

    def test_the_check_finds_what_is_wrong(self) -> None:
        page = self.folder / "wrong.html"
        page.write_text(
            "<!doctype html><body style='margin:0'><div style='width:1300px;height:9px'>wide</div>"
            "<div style='overflow-x:auto;width:100px'><p style='width:300px'>scrolls</p></div>"
            "<svg width=200 height=50><text x=9 y=20>round</text><text x=20 y=22>60</text>"
            "<text x=9 y=45 font-size=30>big</text></svg>"
        )
        self.browser.open(page, 1280)
        with self.assertRaises(AssertionError) as found:
            self.check("")
        said = str(found.exception)
        for fault in ("is 1300 wide", "from 0 to 1300", "not say so", 'on text  "60"', "high"):
            self.assertIn(fault, said)

    def test_one_run(self) -> None:
        page = self.report(self.simulate("one"))
        for width in self.in_each_width(page):
            text = self.browser.text()
            self.assertIn("Accuracy on test rows", text)
            self.assertIn("Training accuracy: each client's on its own rows", text)
            # A histogram is not stretched over the whole page.
            pictures = self.browser.run("document.querySelectorAll('#clients svg.plot').length")
            self.assertEqual(2, pictures, "of test rows and of training rows")
            histogram = "document.querySelector('#clients svg.plot').getBoundingClientRect()"
            self.assertLessEqual(self.browser.run(f"{histogram}.width"), 700)
            head = self.browser.run(TABLE % "#runs")[0]
            for column in ("algorithm", "ended", "rounds", "time", "rounds/s"):
                self.assertIn(column, head)
            hint = self.browser.run(RUNS_HINT)
            if width == 1280:
                self.assertEqual("", hint)
            else:
                self.assertRegex(hint, r"^\d+ more columns, scrolls sideways →$")

    def test_the_statistics_by_client_are_those_of_the_test_rows(self) -> None:
        run = self.simulate("clients")
        final = json.loads((run / "summary.json").read_text())["final"]
        self.browser.open(self.report(run), 1280)
        head, row = self.browser.run(TABLE % "#clients > .table:nth-of-type(1)")
        cells = dict(zip(head, row, strict=True))
        self.assertEqual("6", cells["after round"])
        mean, worst = float(cells["mean"]), float(cells["worst tenth"])
        self.assertAlmostEqual(final["clients_test_accuracy_mean"], mean, places=3)
        self.assertAlmostEqual(final["clients_test_accuracy_worst10"], worst, places=3)
        self.assertNotAlmostEqual(final["train_client_accuracy_mean"], mean, places=3)

    def test_the_axis_of_an_accuracy_ends_at_one(self) -> None:
        self.browser.open(self.report(self.simulate("axis")), 1280)
        for values in ([0.2, 0.99], [1, 1], [0, 0], [0.97, 1]):
            ends = f"Object.values(rangeOf({values}, (v) => v, true))"
            low, high = self.browser.run(ends)
            self.assertGreaterEqual(low, 0)
            self.assertLessEqual(high, 1)
            self.assertLess(low, high)
        self.assertGreater(self.browser.run("rangeOf([0.2, 1], (v) => v, false).high"), 1)

    def test_runs_without_devices_have_rounds_and_bytes_across(self) -> None:
        self.browser.open(self.report(self.simulate("bytes")), 1280)
        self.assertEqual([[["rounds", "MB up and down"], "rounds"]] * 2, self.browser.run(ACROSS))
        self.assertEqual(["round", "round"], self.browser.run(LABELS))

    def test_runs_with_devices_have_virtual_time_across(self) -> None:
        timed = ["devices.family=phones"]
        page = self.report(self.simulate("timed", *timed), self.simulate("plain"))
        self.browser.open(page, 1280)
        self.assertEqual("rounds", self.browser.run(ACROSS)[0][1])
        self.assertNotIn("virtual time", self.browser.run(ACROSS)[0][0])
        self.browser.run("document.querySelectorAll('#runs tbody input')[1].click()")  # hides one
        self.assertIn("virtual time", self.browser.run(ACROSS)[0][0])
        summary = json.loads((self.folder / "timed/summary.json").read_text())
        for width in self.in_each_width(page):
            self.browser.run("document.querySelectorAll('#runs tbody input')[1].click()")
            moved = summary["bytes"]["up"] + summary["bytes"]["down"]
            for axis, label, whole in (
                ("seconds", "virtual time, ", summary["virtual_seconds"]),
                ("bytes", "MB", moved),
            ):
                self.browser.run(CHOOSE % axis)
                self.check(f"over {axis} at {width} px")
                across = f"curvesOf('train_loss', '{axis}')[0].x"
                places = self.browser.run(across)
                self.assertEqual(6, len(places))
                self.assertEqual(sorted(places), places)
                self.assertAlmostEqual(whole, places[-1], delta=1e-4 * whole)
                self.assertIn(label, self.browser.run(LABELS)[0])

    def test_rounds_that_do_not_wait_are_drawn_over_virtual_time(self) -> None:
        timed = ["devices.family=phones"]
        buffered = [*timed, "round.mode=buffered", "cohort.size=2", "round.concurrency=4"]
        runs = [self.simulate("waits", *timed), self.simulate("buffered", *buffered)]
        seeds = [self.simulate("waits2", *timed, "run.seed=2")]
        self.browser.open(self.report(*runs, *seeds), 1280)
        self.assertEqual(["seconds", "seconds"], [one[1] for one in self.browser.run(ACROSS)])
        # The mean of two seeds is over the time that both of them have.
        mean = self.browser.run("curvesOf('train_loss', 'seconds')[0]")
        ends = [self.browser.run(f"runs[{i}].across.seconds.at(-1)") for i in (0, 2)]
        begins = [self.browser.run(f"runs[{i}].across.seconds[0]") for i in (0, 2)]
        self.assertEqual(max(begins), mean["x"][0])
        self.assertAlmostEqual(min(ends), mean["x"][-1])
        self.assertIn("2 seeds", mean["name"])
        self.browser.run(CHOOSE % "rounds")
        self.assertEqual(["round", "round"], self.browser.run(LABELS))

    def test_a_mean_over_seeds_ends_with_the_shortest_run(self) -> None:
        def rows(last: int, loss: float) -> list[dict[str, float | None]]:
            values = {"clients_test_accuracy_mean": 0.5, "clients_test_clients": 4.0}
            shares = ("worst10", "p10", "p50", "p90", "std", "gini")
            values |= {f"clients_test_accuracy_{share}": 0.5 for share in shares}
            return [{"round": k, "loss": loss - k, **values} for k in range(2, last + 1, 2)]

        ends = ((20, 100.0), (20, 102.0), (26, 200.0))
        runs = [self.written(f"end{k}", rows(*end), k) for k, end in enumerate(ends)]
        for _ in self.in_each_width(self.report(*runs)):
            mean = self.browser.run("curvesOf('loss', 'rounds')[0]")
            self.assertEqual(list(range(2, 21, 2)), mean["x"])
            self.assertEqual([134 - x for x in mean["x"]], mean["y"])
            head, row = self.browser.run(TABLE % "#clients > .table:nth-of-type(1)")
            self.assertEqual("20, 26", dict(zip(head, row, strict=True))["after round"])

    def test_a_mean_over_seeds_that_are_thinned_differently_is_smooth(self) -> None:
        def rows(last: int, loss: float) -> list[dict[str, float | None]]:
            return [{"round": k, "loss": loss - k} for k in range(1, last + 1)]

        ends = ((2500, 5000.0), (4500, 7000.0))
        runs = [self.written(f"thin{k}", rows(*end), k) for k, end in enumerate(ends)]
        self.browser.open(self.report(*runs), 1280)
        steps = self.browser.run("runs.map((run) => run.curves.loss.x[1] - run.curves.loss.x[0])")
        self.assertEqual([2, 3], steps)
        mean = self.browser.run("curvesOf('loss', 'rounds')[0]")
        self.assertEqual((3, 2500), (mean["x"][0], mean["x"][-1]))
        for x, y in zip(mean["x"], mean["y"], strict=True):
            self.assertAlmostEqual(6000 - x, y)

    def test_a_diverged_seed_has_no_mean_and_no_result(self) -> None:
        def rows(*losses: float | None) -> list[dict[str, float | None]]:
            nothing = {"train_accuracy": None}
            return [{"round": k, "test_loss": loss, **nothing} for k, loss in enumerate(losses, 1)]

        runs = [self.written("good", rows(3.0, 2.0, 1.0, 0.5), 1)]
        runs += [self.written("bad", rows(5.0, 4.0, None, None), 2)]
        runs += [self.written("worse", rows(None, None, None, None), 3)]
        for _ in self.in_each_width(self.report(*runs[:2])):
            mean = self.browser.run("curvesOf('test_loss', 'rounds')[0]")
            self.assertEqual([1, 2, 3, 4], mean["x"])
            self.assertEqual([4, 3, None, None], mean["y"])
            self.assertEqual(["test_loss"], self.browser.run("metrics"))
            self.assertTrue(self.browser.run(LEGEND)[0][0].endswith("–"))
            head, row = self.browser.run(TABLE % "#runs")
            self.assertEqual("–", dict(zip(head, row, strict=True))["test loss"])
            self.browser.run("document.getElementById('merge').click()")
            self.browser.settle()
            _, good, bad = self.browser.run(TABLE % "#runs")
            self.assertIn("0.5", good)
            self.assertFalse({"4", "5"} & set(bad), bad)
        for _ in self.in_each_width(self.report(runs[2], *runs[:2])):
            mean = self.browser.run("curvesOf('test_loss', 'rounds')[0]")
            self.assertEqual([None] * 4, mean["y"])

    def test_seeds_have_all_their_digits(self) -> None:
        seeds = (2**53 + 1, 2**53 + 2, 2**53 + 3, 2**64 - 1, 7)
        rows: list[dict[str, float | None]] = [{"round": 1, "test_loss": 0.5}]
        runs = [self.written(f"seed{k}", rows, seed) for k, seed in enumerate(seeds)]
        self.browser.open(self.report(*runs), 1280)
        self.check("large seeds")
        head, row = self.browser.run(TABLE % "#runs")
        shown = "7, 9007199254740993 to 9007199254740995, 18446744073709551615"
        self.assertEqual(shown, dict(zip(head, row, strict=True))["seeds"])

    def test_three_runs_are_named_by_what_differs(self) -> None:
        prox = ["algorithm.name=fedprox", "algorithm.fedprox.mu=0.5"]
        runs = [self.simulate("a"), self.simulate("b", *prox), self.simulate("c", "local.lr=0.3")]
        for _ in self.in_each_width(self.report(*runs)):
            self.assertEqual("3 runs", self.browser.run(TITLE))
            for legend in self.browser.run(LEGEND):
                names = [part.rsplit(" ", 1)[0] for part in legend]
                self.assertEqual([FEDAVG, FEDPROX, FAST], names)
            head, *rows = self.browser.run(TABLE % "#settings")
            self.assertEqual(["key", FEDAVG, FEDPROX, FAST], head)
            self.assertIn(["local.lr", "0.1", "0.1", "0.3"], rows)
            self.assertIn(["algorithm.fedprox.mu", "", "0.5", ""], rows)
        self.browser.open(self.report(*runs), 1280)
        self.assertEqual("", self.browser.run(RUNS_HINT))

    def test_equal_curves_are_said_to_lie_on_each_other(self) -> None:
        prox = ["algorithm.name=fedprox", "algorithm.fedprox.mu=0.0"]
        runs = [self.simulate("d"), self.simulate("e", *prox)]
        self.browser.open(self.report(*runs), 1280)
        self.assertIn("the curve of fedavg", self.browser.run(LEGEND)[0][1])

    def test_a_sweep_is_drawn_by_configuration(self) -> None:
        (self.folder / "sweep.toml").write_text(SWEEP)
        sweep = self.folder / "sweep"
        macaw("sweep", self.folder / "sweep.toml", "--out", sweep, "--quiet")
        for width in self.in_each_width(sweep / "report.html"):
            self.assertEqual("6 configurations, 12 runs", self.browser.run(TITLE))
            head, *rows = self.browser.run(TABLE % "#runs")
            self.assertEqual(["configuration", "algorithm", "mu", "lr", "seeds"], head[:5])
            self.assertEqual(6, len(rows))
            rules = (("fedavg", ""), ("fedprox", "0.1"), ("fedprox", "1.0"))
            expected = {(*rule, lr) for rule in rules for lr in ("0.01", "0.05")}
            self.assertEqual(expected, {tuple(row[1:4]) for row in rows})
            self.assertEqual({"1, 2"}, {row[4] for row in rows})
            for legend in self.browser.run(LEGEND):
                self.assertEqual(6, len(legend))
                self.assertTrue(all(", 2 seeds " in part for part in legend), legend)
                name = "fedprox, mu 0.1, lr 0.05, 2 seeds"
                self.assertTrue(any(part.startswith(name) for part in legend), legend)
            text = self.browser.text()
            self.assertNotIn("seed1", text.split("Environment")[0])
            for once in ("every client of the last rounds", "the whole configuration"):
                self.assertEqual(1, text.count(once))
            if width == 1280:
                self.assertEqual("", self.browser.run(RUNS_HINT))
            self.browser.run("document.getElementById('merge').click()")
            self.browser.settle()
            self.assertEqual(13, len(self.browser.run(TABLE % "#runs")))
            self.check("a row and a curve for each run")


if __name__ == "__main__":
    main()
