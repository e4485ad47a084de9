"""Figures and tables of runs: names by what differs, seeds together, files, LaTeX."""

from __future__ import annotations

import builtins
import json
import re
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import _figures, _groups
from support import TestCase, needs


def made(folder: Path, name: str, values: list[float | None], **about: Any) -> macaw.Run:
    """A run's folder as a run leaves it, with a test accuracy a round."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.toml").write_text("")
    speed = about.get("speed", 1)
    lines = [{"round": i + 1, "test_accuracy": v, "sent": 100 * (i + 1) * speed,
              "bytes_up": 1e6 * speed, "bytes_down": 2e6, "virtual_seconds": 60 * (i + 1) * speed}
             for i, v in enumerate(values)]  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = {
        "name": "run", "algorithm": about.get("algorithm", "fedavg"), "seed": about.get("seed", 0),
        "settings": about.get("settings", {}), "end": "finished", "rounds": len(values),
        "seconds": 1.0, "final": {"test_accuracy": values[-1], "test_loss": 1 - (values[-1] or 0)},
        "bests": {"test_accuracy": {"value": max(v or 0 for v in values), "round": 1}},
        "rounds_to": {}, **({"inputs": about["inputs"]} if "inputs" in about else {}),
    }  # fmt: skip
    (run / "summary.json").write_text(json.dumps(summary))
    return macaw.Run(run)


class Runs(TestCase):
    def made(self, name: str, values: list[float | None], **about: Any) -> macaw.Run:
        return made(self.folder, name, values, **about)

    def two_rules(self) -> list[macaw.Run]:
        """FedAvg and FedProx, two seeds each, in an order that is not theirs."""
        prox = {"algorithm": "fedprox", "settings": {"local.lr": 0.3, "algorithm.fedprox.mu": 0.5}}
        avg = {"settings": {"local.lr": 0.3}}
        return [
            self.made("a", [0.1, 0.5, 0.7], seed=1, **avg),
            self.made("x", [0.2, 0.4, 0.9], seed=2, **prox),
            self.made("b", [0.3, 0.5, 0.9], seed=2, **avg),
            self.made("y", [0.2, 0.6, 0.5], seed=1, **prox),
        ]


class Groups(Runs):
    def test_are_configurations_and_named_by_what_differs(self) -> None:
        groups = _groups.groups_of(self.two_rules())
        self.assertEqual([g.name for g in groups], ["fedavg", "fedprox, mu 0.5"])
        self.assertEqual(
            [[r.folder.name for r in g.runs] for g in groups], [["a", "b"], ["x", "y"]]
        )
        self.assertIsNone(groups[0].differs["algorithm.fedprox.mu"])  # FedAvg has none

    def test_have_the_default_where_a_run_says_nothing(self) -> None:
        slow = self.made("slow", [0.1], settings={"local.lr": 0.3})
        usual = self.made("usual", [0.1])
        names = [group.name for group in _groups.groups_of([slow, usual])]
        self.assertEqual(names, ["lr 0.3", "lr 0.1"])

    def test_say_more_of_keys_that_share_their_last_part(self) -> None:
        runs = [
            self.made("a", [0.1], settings={"local.lr": 0.3, "server.lr": 1.0}),
            self.made("b", [0.1], settings={"local.lr": 0.2, "server.lr": 2.0}),
        ]
        names = [group.name for group in _groups.groups_of(runs)]
        self.assertEqual(names, ["local lr 0.3, server lr 1", "local lr 0.2, server lr 2"])

    def test_with_a_fixed_seed_are_one_for_all_seeds_of_the_run(self) -> None:
        # The run whose own seed is the fixed one has no such setting.
        of = {1: {}, 2: {"data.seed": 1}, 3: {"data.seed": 1}}
        fixed = [self.made(f"fixed {i}", [0.1], seed=i, settings=of[i]) for i in (1, 2, 3)]
        (group,) = _groups.groups_of(fixed)
        self.assertEqual(len(group.runs), 3)
        prox = [self.made(f"prox {i}", [0.1], seed=i, algorithm="fedprox", settings=of[i])
                for i in (2, 1)]  # fmt: skip
        names = [(g.name, len(g.runs)) for g in _groups.groups_of([*fixed, *prox])]
        self.assertEqual(names, [("fedavg", 3), ("fedprox", 2)])
        other = self.made("other", [0.1], seed=5, settings={"data.seed": 7})
        names = [(g.name, len(g.runs)) for g in _groups.groups_of([*fixed, other])]
        self.assertEqual(names, [("seed 1", 3), ("seed 7", 1)])

    def test_with_files_of_one_name_and_other_contents_are_two(self) -> None:
        path = {"data.path": "x.csv"}
        one = [self.made(f"one {i}", [0.1], seed=i, settings=path,
                         inputs={"data.path": "0123456789abcdef"}) for i in (1, 2)]  # fmt: skip
        other = self.made("other", [0.1], seed=1, settings=path,
                          inputs={"data.path": "fedcba9876543210"})  # fmt: skip
        names = [(g.name, len(g.runs)) for g in _groups.groups_of([*one, other])]
        self.assertEqual(names, [("path x.csv (01234567)", 2), ("path x.csv (fedcba98)", 1)])
        older = self.made("older", [0.1], seed=3, settings=path)
        names = [len(g.runs) for g in _groups.groups_of([*one, other, older])]
        self.assertEqual(names, [4])

    def test_are_found_in_folders_and_keep_names_of_ones_own(self) -> None:
        one, other = self.made("one", [0.1]), self.made("other", [0.2], seed=3)
        (group,) = _groups.groups_of([one.folder, str(other.folder)])
        self.assertEqual(len(group.runs), 2)
        named = _groups.groups_of({"mine": [one, other], "theirs": other})
        self.assertEqual([(g.name, len(g.runs)) for g in named], [("mine", 2), ("theirs", 1)])
        (self.folder / "sweep/runs").mkdir(parents=True)
        (self.folder / "sweep/sweep.json").write_text("{}")
        inside = [self.made(f"sweep/runs/00{i}", [0.1], seed=i) for i in (1, 2)]
        (group,) = _groups.groups_of(self.folder / "sweep")
        self.assertEqual([r.folder for r in group.runs], [r.folder for r in inside])
        for wrong in ([], 3):
            with self.assertRaises(macaw.ArgumentError):
                _groups.groups_of(wrong)

    def test_take_a_run_that_goes_on_by_its_folder(self) -> None:
        runs = [self.made("done", [0.1]), self.made("open", [0.1])]
        (runs[1].folder / "summary.json").unlink()
        self.assertEqual([g.name for g in _groups.groups_of(runs)], ["fedavg", "open"])

    def test_take_a_run_that_got_more_rounds_by_its_folder(self) -> None:
        runs = [self.made("done", [0.1]), self.made("open", [0.1], seed=1)]
        with (runs[1].folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"round": 2, "test_accuracy": 0.9}) + "\n")
        self.assertEqual([g.name for g in _groups.groups_of(runs)], ["fedavg", "open"])
        (self.folder / "sweep.json").write_text('{"runs": ""}')
        (group,) = _groups.groups_of(self.folder)
        self.assertEqual([run.folder.name for run in group.runs], ["done"])


@needs("matplotlib")
class Figures(Runs):
    def test_have_the_mean_and_the_deviation_of_the_seeds(self) -> None:
        plot = macaw.plot(self.two_rules())
        lines = plot.axes[0].get_lines()
        self.assertEqual([line.get_label() for line in lines], ["fedavg", "fedprox, mu 0.5"])
        np.testing.assert_allclose(lines[0].get_ydata(), [0.2, 0.5, 0.8])
        np.testing.assert_array_equal(lines[0].get_xdata(), [1, 2, 3])
        band = plot.axes[0].collections[0].get_paths()[0].vertices
        deviation = np.std([0.7, 0.9], ddof=1)
        at_3 = band[band[:, 0] == 3][:, 1]
        self.assertAlmostEqual(at_3.max(), 0.8 + deviation)
        self.assertAlmostEqual(at_3.min(), 0.8 - deviation)
        self.assertEqual(plot.axes[0].get_legend().get_title().get_text(), "mean of 2 seeds")

    def test_have_a_legend_that_covers_no_curve(self) -> None:
        def legend_of(count: int) -> tuple[Any, Any]:
            runs = [self.made(f"{count}-{i}", [0.1, 0.2], settings={"local.lr": 1.0 + i})
                    for i in range(count)]  # fmt: skip
            plot = macaw.plot(runs, ["test_accuracy", "sent"])
            plot.save(self.folder / "drawn.png")
            (place,) = [axes for axes in plot.axes if axes.get_legend() is not None]
            return plot, place

        plot, place = legend_of(3)
        self.assertIs(place, plot.axes[0])
        for count in (6, 24):
            plot, place = legend_of(count)
            beside = place.get_legend().get_window_extent()
            self.assertEqual(len(place.get_legend().get_texts()), count)
            for axes in plot.axes:
                self.assertLess(axes.get_window_extent().x1, beside.x0)
            self.assertLessEqual(beside.x1, plot.figure.bbox.x1)
            styles = {(x.get_color(), x.get_linestyle()) for x in place.get_lines()}
            self.assertEqual(len(styles), count)

    def test_have_whole_rounds(self) -> None:
        run = self.made("run", [0.1, 0.2, 0.3])
        for axes in (macaw.plot(run).axes[0], run.plot().axes[0]):
            ticks = axes.xaxis.get_major_locator().tick_values(1, 3)
            np.testing.assert_array_equal(ticks, np.round(ticks))

    def test_cover_the_rounds_that_all_seeds_have(self) -> None:
        runs = [
            self.made("long", [0.1, None, 0.3, 0.4], seed=1),
            self.made("short", [0.3, 0.3, 0.5], seed=2),
        ]
        (line,) = macaw.plot(runs).axes[0].get_lines()
        np.testing.assert_array_equal(line.get_xdata(), [1, 3])
        np.testing.assert_allclose(line.get_ydata(), [0.2, 0.4])

    def test_interpolate_across_another_column(self) -> None:
        runs = [
            self.made("fast", [0.0, 1.0], seed=1),
            self.made("slow", [0.0, 1.0], seed=2, speed=1.5),
        ]
        (line,) = macaw.plot(runs, x="sent").axes[0].get_lines()
        at, mean = line.get_xdata(), line.get_ydata()
        self.assertEqual((at[0], at[-1]), (150, 200))
        self.assertAlmostEqual(mean[0], (0.5 + 0) / 2)
        self.assertAlmostEqual(mean[-1], (1 + 1 / 3) / 2)

    def test_have_sums_across_of_virtual_time_and_bytes(self) -> None:
        run = self.made("run", [0.1, 0.2, 0.3])
        axes = macaw.plot(run, x="virtual_seconds").axes[0]
        (line,) = axes.get_lines()
        np.testing.assert_allclose(line.get_xdata(), [1, 3, 6])  # 60, 120 and 180 s
        self.assertEqual(axes.get_xlabel(), "virtual time (minutes)")
        axes = macaw.plot(run, x="bytes").axes[0]
        (line,) = axes.get_lines()
        np.testing.assert_allclose(line.get_xdata(), [3, 6, 9])
        self.assertEqual(axes.get_xlabel(), "MB up and down")
        long = self.made("long", [0.1, 0.2, 0.3], speed=30, settings={"local.lr": 0.3})
        axes = macaw.plot([run, long], x="virtual_seconds").axes[0]
        self.assertEqual(axes.get_xlabel(), "virtual time (hours)")
        self.assertAlmostEqual(float(axes.get_lines()[1].get_xdata()[-1]), 3)
        plain = self.made("plain", [0.1])
        (plain.folder / "metrics.jsonl").write_text('{"round": 1, "test_accuracy": 0.5}\n')
        with self.assertRaisesRegex(macaw.ArgumentError, "^x: plain has no column virtual_seconds"):
            macaw.plot(plain, x="virtual_seconds")

    def test_are_written_in_the_format_of_the_name(self) -> None:
        runs = self.two_rules()
        plot = macaw.plot(runs, title="Two rules")
        for name, begins in [("a.svg", b"<?xml"), ("b.pdf", b"%PDF"), ("c.png", b"\x89PNG")]:
            written = plot.save(self.folder / "figures" / name).read_bytes()
            self.assertTrue(written.startswith(begins), name)
        text = (self.folder / "figures/a.svg").read_text()
        self.assertIn("fedprox, mu 0.5", text)  # text, and no outlines of it
        again = macaw.plot(runs, title="Two rules").save(self.folder / "again.svg").read_text()
        self.assertEqual(again, text)
        with self.assertRaisesRegex(macaw.ArgumentError, "names no format"):
            plot.save(self.folder / "figure")
        self.assertTrue(plot._repr_png_().startswith(b"\x89PNG"))

    def test_refuse_a_column_that_a_run_does_not_have(self) -> None:
        run = self.made("run", [0.1, 0.2])
        for draw in (lambda: macaw.plot(run, "test_acc"), lambda: run.plot("test_acc")):
            with self.assertRaises(macaw.ArgumentError) as caught:
                draw()
            self.assertEqual(caught.exception.nearest, "test_accuracy")
            self.assertIn("sent", str(caught.exception))  # what there is
        with self.assertRaisesRegex(macaw.ArgumentError, "^x: run has no column rond"):
            macaw.plot(run, x="rond")

    def test_of_clients_are_of_test_rows(self) -> None:
        run = macaw.simulate(**self.job("run", data_options={"client_test_fraction": 0.4},
                                        evaluation={"clients": True}))  # fmt: skip
        values = _figures.of_clients(run)
        row = run.rows[-1]
        self.assertEqual(len(values), row["clients_test_clients"])
        self.assertAlmostEqual(values.mean(), row["clients_test_accuracy_mean"])
        for kind in ("cdf", "histogram"):
            plot = macaw.plot_clients(run, kind=kind)
            plot.save(self.folder / f"{kind}.pdf")
        self.assertIn(f"{len(values)} clients", plot.axes[0].get_legend().get_texts()[0].get_text())
        losses = _figures.of_clients(run, "test_loss")
        self.assertAlmostEqual(losses.mean(), row["clients_test_loss_mean"])
        with self.assertRaisesRegex(macaw.ArgumentError, "clients_test_accuracy"):
            macaw.plot_clients(run, "val_accuracy")
        with self.assertRaisesRegex(macaw.ArgumentError, "cdf"):
            macaw.plot_clients(run, kind="pdf")  # type: ignore[arg-type]
        with self.assertRaisesRegex(macaw.Error, r"evaluation=dict\(clients=True\)"):
            macaw.plot_clients(self.made("plain", [0.1]))

    def test_of_a_sweep_are_of_its_metric(self) -> None:
        given = self.job("s", local={"lr": macaw.grid([0.01, 0.3])}, rounds=3)
        del given["seed"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sweep = macaw.sweep(**given, seeds=[1, 2], progress=False)
        for plot in (sweep.plot(), macaw.plot(sweep), macaw.plot(sweep.folder)):
            labels = {line.get_label() for line in plot.axes[0].get_lines()}
            self.assertEqual(labels, {"lr 0.01", "lr 0.3"})
        latex = sweep.to_latex()
        self.assertIn(r"lr & test accuracy \\", latex)
        self.assertEqual(latex.count(r"\mathbf"), 1)
        self.assertLess(latex.index("0.3 &"), latex.index("0.01 &"))  # the best first
        best = sweep.rows[0]
        self.assertIn(f"{best['test_accuracy']:.2f}"[:4], latex)


class Without(Runs):
    def test_matplotlib_an_error_says_what_to_install(self) -> None:
        real = builtins.__import__

        def without(name: str, *rest: Any) -> Any:
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return real(name, *rest)

        run = self.made("run", [0.1])
        with mock.patch("builtins.__import__", without):
            for draw in (macaw.plot, macaw.Run.plot):
                with self.assertRaisesRegex(ImportError, "pip install matplotlib"):
                    draw(run)


class Latex(Runs):
    def test_has_what_differs_and_the_best_in_bold(self) -> None:
        latex = macaw.to_latex(self.two_rules(), ["test_accuracy", "test_loss"], digits=2)
        rows = [line for line in latex.splitlines() if "&" in line]
        self.assertEqual(rows, [
            r"algorithm & mu & test accuracy & test loss \\",
            r"fedavg &  & $\mathbf{0.80} \pm 0.14$ & $\mathbf{0.20} \pm 0.14$ \\",
            r"fedprox & 0.5 & $0.70 \pm 0.28$ & $0.30 \pm 0.28$ \\",
        ])  # fmt: skip
        self.assertIn(r"\begin{tabular}{lrrr}", latex)
        self.assertNotIn("0.3 &", latex)  # local.lr is the same in all

    def test_has_its_columns_in_one_order(self) -> None:
        runs = self.two_rules()
        for run in runs:
            about = json.loads((run.folder / "summary.json").read_text())
            lr = 0.1 if about["algorithm"] == "fedavg" else 0.3
            about["settings"] = {"local.lr": lr, **about["settings"]}
            about["settings"]["local.lr"] = lr
            (run.folder / "summary.json").write_text(json.dumps(about))
        for order in (runs, runs[::-1]):
            head = macaw.to_latex(order, "test_accuracy").splitlines()[3]
            self.assertEqual(head, r"algorithm & mu & lr & test accuracy \\")

    def test_shows_two_digits_of_the_deviation(self) -> None:
        runs = [self.made("a", [0.91234], seed=1), self.made("b", [0.91784], seed=2)]
        self.assertIn(r"$0.9151 \pm 0.0039$", macaw.to_latex(runs))
        self.assertIn("$0.9123$", macaw.to_latex(runs[0]))

    def test_says_how_many_runs_where_they_differ_and_escapes(self) -> None:
        runs = {"50 % & _": [self.made("a", [0.1], seed=1), self.made("b", [0.2], seed=2)],
                "two": self.made("c", [0.4])}  # fmt: skip
        latex = macaw.to_latex(runs, "best_test_accuracy")
        self.assertIn(r"name & runs & best test accuracy \\", latex)
        self.assertIn(r"50 \% \& \_ & 2 &", latex)

    def test_has_no_value_where_a_seed_has_none(self) -> None:
        runs = [self.made("a", [0.1], seed=1), self.made("b", [None], seed=2),
                self.made("c", [0.2], settings={"local.lr": 0.5})]  # fmt: skip
        latex = macaw.to_latex(runs, "test_accuracy")
        self.assertIn(r"0.1 & 2 &  \\", latex)
        with self.assertRaisesRegex(macaw.ArgumentError, "best_test_accuracy"):
            macaw.to_latex(runs, "accuracy")

    def test_is_what_latex_reads(self) -> None:
        latex = macaw.to_latex(self.two_rules())
        body = re.sub(r"^%.*\n", "", latex)
        columns = len(re.search(r"\{([lr]+)\}", body)[1])  # type: ignore[index]
        for line in body.splitlines():
            if line.endswith(r"\\"):
                self.assertEqual(line.count("&"), columns - 1)


if __name__ == "__main__":
    unittest.main()
