"""bench/claims.py: its claims are whole, its verdicts follow from the runs, and its metrics are right."""

import contextlib
import dataclasses
import io
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import torch

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MACAW_BUILD", SOURCE / "build"))
MACAW = BUILD / "bin/macaw"
sys.path.insert(0, str(SOURCE / "bench"))
import claims  # noqa: E402
import record  # noqa: E402
from papers import metrics, planted  # noqa: E402
from papers.claim import Claim, Metric, Scenario  # noqa: E402

# Rules of which the table says whether they do what their papers claim.
HELD_TO_THEIR_PAPERS = {
    "afl", "apfl", "ditto", "feddyn", "fedexp", "fednova", "fedper", "fedrep", "fedsam",
    "geometric_median", "heterofl", "ifca", "moon", "perfedavg", "pfedme", "qfedavg", "scaffold",
    "term",
}  # fmt: skip
TOY = Scenario(
    "toy",
    "A toy.",
    """
[run]
rounds = 2
[data]
source = "synthetic"
[data.synthetic]
clients = 4
max_size = 60
[model]
name = "logistic"
[cohort]
size = 2
""",
    {"fedavg": ["algorithm.name=fedavg"], "fedprox": ["algorithm.name=fedprox"]},
    {
        "accuracy": Metric("accuracy, %", True, metrics.final("test_accuracy"), 100),
        "loss": Metric("loss", False, metrics.final("test_loss"), digits=2, ratio=True),
    },
)
MORE = Claim("fedprox", "A 2020", "table 1", "more accurate", TOY, "fedprox", "accuracy")
LOWER = Claim("fedprox", "A 2020", "table 2", "less than half the loss", TOY, "fedprox", "loss",
              least=2)  # fmt: skip
BEYOND_CHANCE = Claim("fedprox", "A 2020", "table 3", "accurate", TOY, "fedprox", "accuracy",
                      baseline=0.0, least=20)  # fmt: skip


class Claims(unittest.TestCase):
    def test_every_claim_is_whole(self):
        for claim in claims.CLAIMS:
            with self.subTest(claim.name):
                self.assertTrue((SOURCE / f"docs/rules/{claim.rule}.md").exists())
                self.assertRegex(claim.paper, r"^[A-Z].* (et al\. )?20\d\d$")
                self.assertRegex(
                    claim.place, r"^(table|figure|theorem|equation|algorithms?|section) [0-9IV]"
                )
                self.assertLessEqual(set(claim.ways), set(claim.scenario.ways))
                self.assertIn(claim.metric, claim.scenario.metrics)
                # The way is the rule's, and what it is compared with is another one.
                ways = claim.scenario.ways
                self.assertIn(f"algorithm.name={claim.rule}", ways[claim.way])
                self.assertNotEqual(claim.way, claim.baseline)
                if isinstance(claim.baseline, str):
                    self.assertNotEqual(ways[claim.way], ways[claim.baseline])
                if claim.measure.ratio:
                    self.assertGreater(claim.threshold, 0)
        names = [claim.name for claim in claims.CLAIMS]
        self.assertEqual(len(names), len(set(names)))

    def test_papers_are_those_of_the_rules_pages(self):
        for claim in claims.CLAIMS:
            page = (SOURCE / f"docs/rules/{claim.rule}.md").read_text()
            self.assertIn(f"*{claim.paper[:-5]}, {claim.paper[-4:]}, ", page, claim.name)

    def test_the_rules_that_are_promised_are_there(self):
        self.assertEqual({claim.rule for claim in claims.CLAIMS}, HELD_TO_THEIR_PAPERS)

    def test_every_way_and_metric_is_of_a_claim(self):
        for scenario in claims.scenarios_of(claims.CLAIMS):
            mine = [claim for claim in claims.CLAIMS if claim.scenario is scenario]
            ways = {way for claim in mine for way in claim.ways}
            self.assertEqual(ways, set(scenario.ways), scenario.name)
            self.assertEqual({claim.metric for claim in mine}, set(scenario.metrics), scenario.name)

    def test_a_scenario_has_one_name(self):
        for claim in claims.CLAIMS:
            named = {c.scenario.name: c.scenario for c in claims.CLAIMS}
            self.assertIs(named[claim.scenario.name], claim.scenario)

    @unittest.skipUnless(MACAW.exists(), "the programs are not built")
    def test_the_program_takes_all_settings(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for scenario in claims.scenarios_of(claims.CLAIMS):
                drawn = scenario.drawn(1, claims.IMAGES, folder) if scenario.drawn else []
                config = folder / "config.toml"
                config.write_text(scenario.config.replace("{images}", str(claims.IMAGES)))
                for way, settings in scenario.ways.items():
                    words = [w for s in [*settings, *drawn] for w in ("--set", s)]
                    command = [MACAW, "simulate", config, "--check", "--quiet", *words]
                    done = subprocess.run(command, capture_output=True, text=True)
                    # 5: a back end that is not built
                    self.assertIn(done.returncode, (0, 5), f"{scenario.name}, {way}: {done.stderr}")


class Verdicts(unittest.TestCase):
    def said(self, claim, mine, others):
        return claims.verdict(claim, mine, others)[1]

    def test_the_whole_interval_has_to_be_above_what_is_asked_for(self):
        # Differences 1, 2, 3 points: mean 2, half of the interval 4.303 · 1/√3 = 2.48.
        mine, others = [0.51, 0.52, 0.53], [0.5, 0.5, 0.5]
        self.assertEqual(claims.verdict(MORE, mine, others), ("+2.0 (-0.5 to +4.5)", "not shown"))
        near = dataclasses.replace(MORE, least=-0.4)
        self.assertEqual(self.said(near, mine, others), "not shown")
        self.assertEqual(self.said(dataclasses.replace(MORE, least=-0.6), mine, others), "shown")
        self.assertEqual(self.said(MORE, [0.519, 0.52, 0.521], others), "shown")
        self.assertEqual(self.said(MORE, others, [0.519, 0.52, 0.521]), "not shown")

    def test_seeds_are_compared_with_themselves(self):
        mine, others = [0.3, 0.5, 0.7], [0.29, 0.49, 0.69]
        self.assertEqual(self.said(MORE, mine, others), "shown")
        self.assertEqual(self.said(MORE, mine, others[::-1]), "not shown")

    def test_a_quotient_is_compared_with_a_factor(self):
        self.assertEqual(claims.verdict(LOWER, [0.1, 0.1], [0.3, 0.3]),
                         ("× 3 (3 to 3)", "shown"))  # fmt: skip
        self.assertEqual(self.said(LOWER, [0.1, 0.1], [0.19, 0.19]), "not shown")
        self.assertEqual(self.said(LOWER, [0.3, 0.3], [0.1, 0.1]), "not shown")
        self.assertEqual(self.said(LOWER, [0.1, 0.1], [0.21, 0.9]), "not shown")

    def test_one_seed_shows_nothing(self):
        self.assertEqual(claims.verdict(MORE, [0.9], [0.1]), ("+80.0", "one seed"))

    def test_a_run_that_diverged_shows_nothing(self):
        self.assertEqual(claims.verdict(MORE, [0.9, math.nan], [0.1, 0.1]), ("–", "not shown"))
        self.assertEqual(claims.verdict(MORE, [0.9, 0.9], [0.1, math.nan]), ("–", "not shown"))


class Measures(unittest.TestCase):
    def test_newton_finds_where_the_gradient_is_zero(self):
        draw = np.random.default_rng(1)
        x, y = draw.normal(size=(60, 4)), draw.integers(2, size=60)  # the third class has no rows
        w = torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
        rows = torch.tensor(np.hstack([x, np.ones((60, 1))]))
        optimizer = torch.optim.LBFGS([w], max_iter=500, tolerance_grad=1e-12, tolerance_change=0)

        def loss():
            optimizer.zero_grad()
            value = torch.nn.functional.cross_entropy(rows @ w.T, torch.tensor(y))
            value = value + 0.05 / 2 * (w**2).sum()
            value.backward()
            return value

        optimizer.step(loss)
        found = metrics.least_objective(x, y, 3, 0.05)
        self.assertAlmostEqual(found, loss().item(), places=12)
        self.assertLess(found, math.log(3) - 0.01)
        self.assertGreater(found, metrics.least_objective(x, y, 2, 0.05) + 0.01)

    def test_the_gradient_of_a_network_is_pytorchs(self):
        net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4),
                                  torch.nn.ReLU(), torch.nn.Linear(4, 3)).double()  # fmt: skip
        x, y = torch.randn(20, 6).double(), torch.randint(3, (20,))
        torch.nn.functional.cross_entropy(net(x), y).backward()
        tensors = list(net.parameters())
        w = torch.cat([t.detach().ravel() for t in tensors]).numpy()
        found = metrics.network_gradient(w, [t.shape for t in tensors], x.numpy(), y.numpy())
        np.testing.assert_allclose(found, torch.cat([t.grad.ravel() for t in tensors]), atol=1e-12)

    def test_the_power_method_finds_the_largest_eigenvalue(self):
        draw = np.random.default_rng(2)
        turn, _ = np.linalg.qr(draw.normal(size=(8, 8)))
        bowl = turn @ np.diag([7.0, 3, 2, 1, 0.5, 0.2, 0.1, -1]) @ turn.T
        found = metrics.largest_eigenvalue(lambda w: bowl @ w, draw.normal(size=8))
        self.assertAlmostEqual(found, 7, places=1)

    def test_the_rand_index_is_hubert_and_arabies(self):
        self.assertEqual(metrics.rand_index([0, 0, 1, 1], [5, 5, 2, 2]), 1)
        self.assertEqual(metrics.rand_index([0, 0, 0, 0], [0, 0, 1, 1]), 0)
        # sklearn.metrics.adjusted_rand_score([0, 0, 1, 2], [0, 0, 1, 1])
        self.assertAlmostEqual(metrics.rand_index([0, 0, 1, 2], [0, 0, 1, 1]), 4 / 7)
        self.assertAlmostEqual(metrics.rand_index([0, 1, 0, 1], [0, 0, 1, 1]), -0.5)

    def test_what_is_planted_follows_from_the_seed(self):
        with tempfile.TemporaryDirectory() as name:
            digests = []
            for place, seed in (("a", 1), ("b", 1), ("c", 2)):
                folder = Path(name) / place
                folder.mkdir()
                for drawn in (planted.turned, planted.domains, planted.interpolated):
                    settings = drawn(seed, claims.IMAGES, folder)
                    digests.append((place, record.digest_of_files(settings, folder)))
            self.assertEqual([d for p, d in digests if p == "a"],
                             [d for p, d in digests if p == "b"])  # fmt: skip
            for (_, one), (_, other) in zip(digests[:3], digests[6:]):
                self.assertNotEqual(one, other)

    def test_kinds_see_the_same_images_turned(self):
        x, _ = planted.images(claims.IMAGES)
        with tempfile.TemporaryDirectory() as name:
            planted.turned(3, claims.IMAGES, Path(name))
            found = np.load(Path(name) / "turned.npz")
            known = {image.tobytes() for image in x}
            for client in range(planted.CLIENTS):
                mine = found["x"][found["client"] == client]
                self.assertEqual(len(mine), planted.ROWS)
                back = [np.rot90(image, -planted.kind_of(client)) for image in mine]
                self.assertTrue(all(image.tobytes() in known for image in back))


class Table(unittest.TestCase):
    """`./dev bench claims` with a toy, and a record and a page of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "page.md").write_text("# Page\nwords\n<!-- claims -->\nold\n\n## Next\nkept\n")
        self.record = record.Record(self.folder / "claims.jsonl", claims.Measured)
        for name, value in (("CLAIMS", [MORE, LOWER, BEYOND_CHANCE]), ("RECORD", self.record.file),
                            ("PAGE", self.folder / "page.md")):  # fmt: skip
            patch = mock.patch.object(claims, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def call(self, *words, macaw=MACAW):
        """Its code, what it printed and what it said."""
        out, said, code = io.StringIO(), io.StringIO(), 0
        argv = ["claims", *words, "--macaw", str(macaw), "--runs", f"{self.folder}/runs"]
        with (
            mock.patch.object(sys, "argv", argv),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            try:
                claims.main()
            except SystemExit as error:
                code = error.code
        return code, out.getvalue(), said.getvalue()

    def add(self, way, seed, accuracy, loss=0.5):
        cell = f"toy, {way}"
        entry = claims.Measured(
            cell=cell, seed=seed, settings=claims.cells_of(claims.CLAIMS).settings[cell],
            drawn=None, best=None, last=None, tail=None, minutes=0.5, model="m", macaw="macaw",
            profile=None, data="d", processor="P", day="2026-01-02",
            figures={"accuracy": accuracy, "loss": loss},
        )  # fmt: skip
        self.record.add(entry)
        return entry

    def rows(self, text):
        cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
        return {row[1].split(" (")[0]: row for row in cells[2:]}

    def table_only(self, *words):
        code, out, said = self.call("--table-only", *words, macaw="/there/is/none")
        self.assertEqual(code, 0, said)
        return self.rows(out), said

    def test_a_row_is_of_the_seeds_that_both_ways_have(self):
        for seed, accuracy in ((1, 0.5), (2, 0.51), (3, 0.9)):
            self.add("fedavg", seed, accuracy)
        rows, said = self.table_only()
        self.assertEqual(rows, {})
        self.assertIn("no runs yet of 'fedprox, more accurate, toy'", said)
        for seed, accuracy in ((1, 0.6), (2, 0.61), (4, 0.1)):
            self.add("fedprox", seed, accuracy)
        row = self.table_only()[0]["more accurate"]
        self.assertEqual(row, [
            "[fedprox](rules/fedprox.md)", "more accurate (A 2020, table 1)", "toy", "accuracy, %",
            "fedprox: 60.5 ± 0.7", "fedavg: 50.5 ± 0.7", "+10.0 (+10.0 to +10.0)", "2", "shown",
        ])  # fmt: skip

    def test_what_is_asked_for_stands_in_the_row(self):
        for seed in (1, 2):
            self.add("fedavg", seed, 0.5, loss=1.5)
            self.add("fedprox", seed, 0.1, loss=0.5)
        rows, _ = self.table_only()
        self.assertEqual(rows["less than half the loss; asked: × 2"][6:], ["× 3 (3 to 3)", "2", "shown"])
        row = rows["accurate; asked: +20.0"]
        self.assertEqual(row[5:], ["0.0 (by chance)", "+10.0 (+10.0 to +10.0)", "2", "not shown"])
        self.assertEqual(rows["more accurate"][-1], "not shown")

    def test_is_written_in_place_of_the_old_table(self):
        for seed in (1, 2):
            self.add("fedavg", seed, 0.5)
            self.add("fedprox", seed, 0.6)
        rows, _ = self.table_only("--write", "--only", "more accurate")
        page = (self.folder / "page.md").read_text()
        self.assertTrue(page.startswith("# Page\nwords\n<!-- claims -->\n`./dev bench claims --seeds 2"))
        self.assertTrue(page.endswith("- **toy**: A toy.\n\n## Next\nkept\n"), page)
        self.assertNotIn("old", page)
        self.assertEqual(self.rows(page), rows)
        self.assertEqual(len(rows), 3)  # a page has all claims, whatever --only says
        self.assertIn("2 of 3 claims are shown", page)
        self.assertEqual(set(self.table_only("--only", "more accurate")[0]), {"more accurate"})

    def test_other_metrics_make_another_cell(self):
        self.add("fedavg", 1, 0.5)
        self.add("fedprox", 1, 0.5)
        other = dataclasses.replace(TOY, metrics={"accuracy": TOY.metrics["accuracy"]})
        with mock.patch.object(claims, "CLAIMS", [dataclasses.replace(MORE, scenario=other)]):
            _, said = self.table_only()
        self.assertIn("which has other settings now", said)

    def test_another_version_of_a_metric_makes_another_cell(self):
        self.add("fedavg", 1, 0.5)
        self.add("fedprox", 1, 0.5)
        self.assertEqual(self.table_only()[1].count("not used"), 0)
        counted = dataclasses.replace(TOY.metrics["accuracy"], version=2)
        other = dataclasses.replace(TOY, metrics={**TOY.metrics, "accuracy": counted})
        with mock.patch.object(claims, "CLAIMS", [dataclasses.replace(MORE, scenario=other)]):
            self.assertIn("which has other settings now", self.table_only()[1])

    def test_tries_are_neither_compared_nor_written(self):
        for word in ("--again", "--check", "--write"):
            code, _, said = self.call("--rounds", "1", word)
            self.assertEqual((code, "--rounds is for tries" in said), (2, True))
        self.assertEqual(self.call("--only", "no such claim")[0], 2)

    @unittest.skipUnless(MACAW.exists(), "the programs are not built")
    def test_runs_are_recorded_once_and_are_the_same_again(self):
        code, out, said = self.call("--seeds", "2")
        self.assertEqual(code, 0, said)
        entries = self.record.entries()
        self.assertEqual(len(entries), 4)
        self.assertEqual(self.rows(out)["more accurate"][7], "2")
        one = entries["toy, fedavg", 1]
        self.assertTrue(0 < one.figures["accuracy"] < 1 and one.figures["loss"] > 0)
        self.assertNotEqual(one.model, entries["toy, fedavg", 2].model)
        self.assertEqual(self.call("--seeds", "2", macaw="/there/is/none")[:2], (0, out))
        code, _, said = self.call("--seeds", "2", "--check")
        self.assertEqual((code, said.count("the same model")), (0, 4), said)
        self.record.add(dataclasses.replace(one, model="another"))
        code, _, said = self.call("--seeds", "2", "--check")
        self.assertIn("the same settings, data and arithmetic have given another model", str(code))
        self.call("--rounds", "1", "--seeds", "3")
        self.assertEqual(len(self.record.entries()), 4)


class Repository(unittest.TestCase):
    def test_the_page_has_the_table_of_its_entries(self):
        out, said = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["claims", "--table-only"]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(said),
        ):
            claims.main()
        self.assertEqual(said.getvalue(), "")
        self.assertIn(out.getvalue().strip(), (SOURCE / "docs/claims.md").read_text())


if __name__ == "__main__":
    unittest.main()
