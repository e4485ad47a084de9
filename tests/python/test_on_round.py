"""What a caller does between two rounds: on_round=, metrics=, and the models that a run keeps."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import own_functions as own

import macaw
from macaw import _own_rows
from macaw._program import program
from support import TestCase, needs, rows


def server_of(folder: Path) -> int:
    """The process id of the server of the run in this folder."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if words[0].endswith(b"/macaw-server") and os.fsencode(folder) in b" ".join(words):
            return int(place.parent.name)
    raise AssertionError(f"{folder} has no server")


class OnRound(TestCase):
    def test_is_called_after_each_round_with_its_row_and_model(self) -> None:
        plain = macaw.simulate(**self.job("plain", evaluation={"every": 3}))
        seen: list[Any] = []

        def look(run: macaw.OpenRun) -> None:
            seen.append((run.round, run.is_last, run.row, run.model()))
            self.assertEqual([row["round"] for row in run.rows], list(range(1, run.round + 1)))
            time.sleep(0.05)  # a round that did not wait would be done by now
            self.assertEqual(len(run.rows), run.round)

        run = macaw.simulate(**self.job("run", evaluation={"every": 3}, on_round=look))
        self.assertEqual(run.digest, plain.digest)
        self.assertEqual([(r, last) for r, last, _, _ in seen],
                         [(1, False), (2, False), (3, False), (4, True)])  # fmt: skip
        for number, (_, _, row, _) in enumerate(seen):
            self.assertEqual(row["train_loss"], plain.rows[number]["train_loss"])
            self.assertEqual("test_loss" in row, number in (2, 3))
        for name, tensor in seen[3][3].items():
            np.testing.assert_array_equal(tensor, run.model()[name])
        self.assertFalse(np.array_equal(seen[0][3]["0.weight"], seen[1][3]["0.weight"]))
        self.assertFalse((run.folder / "model.round.safetensors").exists())

    def test_adds_columns(self) -> None:
        def log(run: macaw.OpenRun) -> None:
            run.log({"square": run.round**2, "nothing": float("nan")})
            if run.round == 2:
                run.log({"square": np.float32(5)})

        with macaw.stream(**self.job("run", on_round=log)) as stream:
            streamed = list(stream)
        self.assertEqual([row["square"] for row in streamed], [1, 5, 9, 16])
        self.assertEqual(list(stream.run.metrics["square"]), [1, 5, 9, 16])
        self.assertIsNone(stream.run.rows[0]["nothing"])
        self.assertNotIn("square", (stream.folder / "metrics.jsonl").read_text())

    def test_that_logs_what_no_column_holds_is_refused(self) -> None:
        for values, word in (({"train_loss": 1}, "train_loss"), ({"a": "b"}, "str"),
                             ({"big": 10**400}, "big is a whole number beyond")):  # fmt: skip
            with self.assertRaisesRegex(macaw.ArgumentError, word):
                job = self.job("run", overwrite=True)
                macaw.simulate(**job, on_round=lambda run, values=values: run.log(values))

    def test_logs_no_column_that_a_run_writes_itself(self) -> None:
        said = json.loads(subprocess.check_output([program(), "keys", "--json"]))
        metrics = [c["columns"][2:] for c in said["columns"] if c["columns"].startswith("*_")]
        for column in said["columns"]:
            name = re.sub("N(?=_)", "3", column["columns"].replace("STATISTIC", "p10"))
            name = re.sub("[A-Z]+", "mine", name)
            names = [name.replace("*", metric) for metric in ("loss", "accuracy", *metrics)]
            if name.startswith("*_"):
                names = [f"{split}{name[1:]}" for split in ("train", "test", "val")]
            for each in names:
                with self.assertRaisesRegex(macaw.ArgumentError, f"{each} is a column that a run"):
                    _own_rows.refuse_name(each, "run.log")
        for free in ("mine", "train_time", "my_f1", "test_of_mine", "rounds"):
            _own_rows.refuse_name(free, "run.log")

    def test_stops_the_run_in_order(self) -> None:
        whole = macaw.simulate(**self.job("whole"))
        for name, stop, why in (
            ("word", lambda run: run.round < 2, "on_round returned False"),
            ("numpy", lambda run: np.bool_(run.round < 2), "on_round returned False"),
            ("why", lambda run: run.round < 2 or run.stop("good\nenough"), "good enough"),
        ):
            run = macaw.simulate(**self.job(name, on_round=stop))
            self.assertEqual((run.summary["end"], run.summary["rounds"]), ("stopped", 2))
            self.assertEqual((run.summary["reason"], run.summary["stopped_by"]), (why, "caller"))
            self.assertEqual(macaw.resume(run.folder).digest, whole.digest)

    def test_may_stop_after_the_last_round_which_is_its_end(self) -> None:
        run = macaw.simulate(**self.job("run", on_round=lambda run: not run.is_last))
        self.assertEqual((run.summary["end"], run.summary["rounds"]), ("finished", 4))

    def test_ends_with_its_server_and_can_go_on(self) -> None:
        whole = macaw.simulate(**self.job("whole"))

        def kill(run: macaw.OpenRun) -> None:
            if run.round == 2:
                os.kill(server_of(run.folder), signal.SIGKILL)

        # Without on_round= such a server is started again.
        job = self.job("run", on_round=kill, server={"durability": "commit"})
        with self.assertRaisesRegex(macaw.Error, "macaw-server: killed by signal 9"):
            macaw.simulate(**job)
        rest = macaw.resume(self.folder / "run", on_round=lambda run: None)
        self.assertEqual(rest.digest, whole.digest)

    def test_a_line_that_the_run_does_not_take_hides_no_error(self) -> None:
        simulation = macaw._program.Simulation([str(self.folder / "none.toml")], {}, stepwise=True)
        with self.assertRaisesRegex(macaw.Error, "none.toml"):
            list(simulation.events())
        simulation.say("go 1")
        simulation.close()

    def test_that_raises_interrupts_the_run(self) -> None:
        whole = macaw.simulate(**self.job("whole"))

        def fail(run: macaw.OpenRun) -> None:
            1 / (run.round - 3)

        with self.assertRaises(ZeroDivisionError):
            macaw.simulate(**self.job("run", on_round=fail))
        run = macaw.Run(self.folder / "run")
        self.assertEqual((run.summary["end"], run.summary["rounds"]), ("interrupted", 3))
        self.assertEqual(macaw.resume(run.folder).digest, whole.digest)

    def test_that_raised_is_called_for_that_round_again(self) -> None:
        told: list[tuple[int, float]] = []

        def log(run: macaw.OpenRun) -> None:
            told.append((run.round, float(run.model()["0.bias"].sum())))
            run.log({"own": run.round})

        def fail(run: macaw.OpenRun) -> None:
            1 / (run.round - 3)
            log(run)

        macaw.simulate(**self.job("whole", on_round=log))
        whole, told = told, []
        with self.assertRaises(ZeroDivisionError):
            macaw.simulate(**self.job("run", on_round=fail))
        run = macaw.resume(self.folder / "run", on_round=log)
        self.assertEqual(told, whole)
        self.assertEqual([row["own"] for row in run.rows], [1, 2, 3, 4])
        macaw.resume(run.folder, rounds=5, on_round=log)
        self.assertEqual([number for number, _ in told], [1, 2, 3, 4, 5])

    def test_that_raised_after_it_logged_logs_that_round_anew(self) -> None:
        def log(run: macaw.OpenRun) -> None:
            run.log({"own": run.round})

        def fail(run: macaw.OpenRun) -> None:
            run.log({"own": -run.round, "other": 1})
            1 / (run.round - 3)

        with self.assertRaises(ZeroDivisionError):
            macaw.simulate(**self.job("run", on_round=fail))
        with self.assertRaises(ZeroDivisionError):  # again
            macaw.resume(self.folder / "run", on_round=fail)
        run = macaw.resume(self.folder / "run", on_round=log)
        self.assertEqual([row["own"] for row in run.rows], [-1, -2, 3, 4])
        self.assertEqual([row.get("other") for row in run.rows], [1, 1, None, None])
        lines = (run.folder / "metrics.own.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["round"] for line in lines], [1, 2, 3, 4])

    def test_may_end_a_run_that_it_interrupted(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            macaw.simulate(**self.job("run", on_round=lambda run: 1 / (run.round - 2)))
        with self.assertWarnsRegex(UserWarning, "was to end .* enough; another resume goes on"):
            run = macaw.resume(self.folder / "run", on_round=lambda run: run.stop("enough"))
        self.assertEqual(len(run.rows), 2)
        rest = macaw.resume(run.folder, on_round=lambda run: None)
        self.assertEqual(len(rest.rows), 4)

    def test_goes_on_with_a_run(self) -> None:
        whole = macaw.simulate(**self.job("whole", rounds=6))
        first = macaw.simulate(**self.job("run", on_round=lambda run: run.log({"own": run.round})))
        seen = []
        run = macaw.resume(first.folder, rounds=6, on_round=lambda run: seen.append(run.round))
        self.assertEqual(seen, [5, 6])
        self.assertEqual(run.digest, whole.digest)
        own_column = [row.get("own") for row in run.rows]
        self.assertEqual(own_column, [1, 2, 3, 4, None, None])
        again = macaw.resume(first.folder, rounds=8, on_round=lambda run: run.round < 7)
        self.assertEqual((again.summary["end"], again.summary["rounds"]), ("stopped", 7))

    def test_that_a_resume_leaves_out_is_told_of(self) -> None:
        def log(run: macaw.OpenRun) -> None:
            run.log({"own": run.round})

        first = macaw.simulate(**self.job("run", on_round=log))
        whole = macaw.simulate(**self.job("whole", rounds=6))
        with self.assertWarnsRegex(UserWarning, "had on_round=log .* the model is the same"):
            run = macaw.resume(first.folder, rounds=6)
        self.assertEqual(run.digest, whole.digest)
        self.assertTrue(any("on_round=log" in text for what, text in run.said if what == "note"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            macaw.resume(first.folder, rounds=8, on_round=log)

    def test_works_with_rules_that_keep_states_and_with_a_stop_rule(self) -> None:
        for rule in (macaw.SCAFFOLD(), macaw.Ditto()):
            name = type(rule).__name__
            plain = macaw.simulate(**self.job(f"{name}-plain", algorithm=rule))
            run = macaw.simulate(**self.job(name, algorithm=rule, on_round=lambda run: None))
            self.assertEqual(run.digest, plain.digest)
            self.assertEqual(run.summary["state_digest"], plain.summary["state_digest"])
            stopped = macaw.simulate(**self.job(f"{name}-stop", algorithm=rule,
                                                on_round=lambda run: run.round < 2))  # fmt: skip
            self.assertEqual(stopped.summary["rounds"], 2)
            self.assertIn("state_digest", stopped.summary)
        seen = []
        stop = {"metric": "test_accuracy", "at_least": 0.0}
        run = macaw.simulate(**self.job("rule", run={"stop": stop},
                                        on_round=lambda run: seen.append(run.round)))  # fmt: skip
        self.assertEqual((run.summary["end"], seen), ("stopped", [1]))
        self.assertEqual(run.summary["stopped_by"], "rule")

    def test_sees_a_trained_function(self) -> None:
        job = dict(model=["linear 3"], train=own.softmax_regression, workers={"slots": 1})
        plain = macaw.simulate(**self.job("plain", **job))
        biases = []
        look = self.job("run", **job, on_round=lambda run: biases.append(run.model()["0.bias"]))
        run = macaw.simulate(**look)
        self.assertEqual(run.digest, plain.digest)
        np.testing.assert_array_equal(biases[-1], run.model()["0.bias"])

    def test_whose_python_is_killed_leaves_a_run_to_go_on_with(self) -> None:
        script = textwrap.dedent("""
            import sys, time, macaw
            from support import job
            from pathlib import Path
            def wait(run):
                if run.round == 2:
                    print("waits", flush=True)
                    time.sleep(60)
            macaw.simulate(**job(Path(sys.argv[1]), "run", on_round=wait))
        """)
        with subprocess.Popen(
            [sys.executable, "-c", script, self.folder],
            text=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent,
        ) as process:  # fmt: skip
            self.assertEqual(process.stdout.readline().strip(), "waits")
            process.kill()
        with (self.folder / "run/.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until its processes have ended
        self.assertEqual(macaw.Run(self.folder / "run").summary["end"], "interrupted")
        whole = macaw.simulate(**self.job("whole"))
        rest = macaw.resume(self.folder / "run", on_round=lambda run: None)
        self.assertEqual(rest.digest, whole.digest)

    def test_is_a_function(self) -> None:
        with self.assertRaises(macaw.ConfigError) as caught:
            macaw.simulate(**self.job("run", on_round=3))
        self.assertEqual(caught.exception.key, "on_round")


class ARunningStream(TestCase):
    def test_has_the_newest_model_that_was_kept(self) -> None:
        models = {}
        # With on_round= the run waits for its reader.
        job = self.job("run", rounds=30, run={"checkpoint_every": 1}, on_round=lambda run: None)
        with macaw.stream(**job) as stream:
            for row in stream:
                if row["round"] in (2, 20):
                    models[row["round"]] = stream.run.model()["0.weight"]
        final = stream.run.model()["0.weight"]
        self.assertEqual(models[2].shape, final.shape)
        self.assertFalse(np.array_equal(models[2], models[20]))

    def test_without_a_checkpoint_says_how_to_get_one(self) -> None:
        job = self.job("run", rounds=10**6, run={"checkpoint_every": 10**6})
        with macaw.stream(**job) as stream:
            row = iter(stream)
            next(row)
            with self.assertRaisesRegex(macaw.Error, "checkpoint_every"):
                stream.run.model()

    def test_a_checkpoint_has_the_bytes_of_the_model(self) -> None:
        run = macaw.simulate(**self.job("run"))
        final = run.model()
        (run.folder / "model.safetensors").unlink()
        for name, tensor in run.model().items():
            np.testing.assert_array_equal(tensor, final[name])


@needs("torch")
class OwnMetrics(TestCase):
    def net(self, outputs: int = 3) -> Any:
        import torch
        from torch import nn

        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(8, outputs))

    @staticmethod
    def accuracy(y: Any, scores: Any) -> Any:
        return (scores.argmax(1) == y).mean()

    def test_are_of_the_rows_that_the_run_tests(self) -> None:
        x, y = rows()
        bytes_ = np.clip(x * 40 + 128, 0, 255).astype(np.uint8)
        for name, more in (
            ("cut", {}), ("given", {"test": rows(50, seed=2)}),
            ("bytes", {"data": (bytes_, y),
                       "data_options": {"normalise": {"mean": [0.5], "std": [0.2]}}}),
            ("clients", {"data": {"a": (x[:300], y[:300]), "b": (x[300:], y[300:])}, "cohort": 2,
                         "partition": None, "test": rows(50, seed=2)}),
            ("cut-clients", {"data": {"a": (x[:300], y[:300]), "b": (x[300:], y[300:])},
                             "cohort": 2, "partition": None,
                             "data_options": {"test_fraction": 0.1}}),
        ):  # fmt: skip
            job = self.job(name, model=self.net(), metrics={"own": self.accuracy}, **more)
            run = macaw.simulate(**job)
            np.testing.assert_allclose(run.metrics["own"], run.metrics["test_accuracy"], atol=1e-6)

    def test_of_a_rule_without_a_common_model_are_missed(self) -> None:
        job = self.job("run", model=self.net(), metrics={"own": self.accuracy},
                       algorithm=macaw.IFCA(clusters=2))  # fmt: skip
        with self.assertWarnsRegex(UserWarning, r"no column \(own\)"):
            self.assertNotIn("own", macaw.simulate(**job).rows[-1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            macaw.simulate(**self.job("usual", model=self.net(), metrics={"own": self.accuracy}))

    def test_of_a_round_whose_function_raised_are_taken_again(self) -> None:
        def fail(run: macaw.OpenRun) -> None:
            1 / (run.round - 2)

        job = self.job("run", model=self.net(), metrics={"own": self.accuracy}, on_round=fail)
        with self.assertRaises(ZeroDivisionError):
            macaw.simulate(**job)
        given: dict[str, Any] = {"model": self.net(), "metrics": {"own": self.accuracy}}
        run = macaw.resume(self.folder / "run", on_round=lambda run: None, **given)
        np.testing.assert_allclose(run.metrics["own"], run.metrics["test_accuracy"], atol=1e-6)

    def test_stand_in_rounds_that_are_evaluated(self) -> None:
        seen = []
        job = self.job("run", model=self.net(), metrics={"own": self.accuracy},
                       evaluation={"every": 2},
                       on_round=lambda run: seen.append(run.row.get("own")))  # fmt: skip
        run = macaw.simulate(**job)
        self.assertEqual([value is None for value in seen], [True, False, True, False])
        self.assertEqual(np.isnan(run.metrics["own"]).tolist(), [True, False, True, False])

    def test_that_end_together_are_told_of_in_the_plural(self) -> None:
        text = json.dumps({"on_round": None, "metrics": ["f1", "own"], "told": 2})
        (self.folder / "callbacks.json").write_text(text)
        note = macaw._callback.left_out(self.folder, None, None)[0]
        self.assertRegex(note, "f1, own end here, .*goes on with them$")

    def test_of_a_stop_between_evaluations_say_of_which_round_they_are(self) -> None:
        job = self.job("run", evaluation={"every": 2}, rounds=4,
                       on_round=lambda run: run.round < 3)  # fmt: skip
        run = macaw.simulate(**job)
        self.assertRegex(repr(run), r"stopped, 3 rounds, test_accuracy [\d.]+ \(round 2\), .*")
        self.assertRegex(repr(run), r"train_loss [\d.]+>")
        whole = macaw.simulate(**self.job("whole", evaluation={"every": 2}, rounds=3))
        self.assertNotIn("(round", repr(whole))
        self.assertEqual(run.digest, whole.digest)

    def test_that_cannot_be_are_refused(self) -> None:
        for changes in (
            {"metrics": ["f1"]}, {"metrics": {"f1": "f1"}},
            {"metrics": {"own": self.accuracy}, "model": ["linear 3"]},
        ):  # fmt: skip
            with self.assertRaises(macaw.ConfigError) as caught:
                macaw.simulate(**(self.job("run", model=self.net()) | changes))
            self.assertEqual(caught.exception.key, "metrics")

        def fail(y: Any, scores: Any) -> Any:
            raise ValueError("one class")

        def pairs(y: Any, scores: Any) -> Any:
            return np.abs(y - scores).mean()

        x, _ = rows()
        with self.assertRaisesRegex(macaw.ConfigError, "own: it pairs every output with every y"):
            macaw.simulate(**self.job("pairs", model=self.net(1), data=(x, x[:, 0]),
                                      partition=macaw.iid(20), metrics={"own": pairs}))  # fmt: skip

        def off(y: Any, scores: Any) -> Any:
            return scores.max(axis=7)  # an exception that does not say its arguments

        with self.assertRaisesRegex(ValueError, "metrics: own, round 1: one class"):
            macaw.simulate(**self.job("run", model=self.net(), metrics={"own": fail}))
        with self.assertRaisesRegex(macaw.RunError, "metrics: own, round 1: axis 7"):
            macaw.simulate(**self.job("off", model=self.net(), metrics={"own": off}))
        x, y = rows()
        owners = {"data": {"a": (x[:300], y[:300]), "b": (x[300:], y[300:])}, "cohort": 2}
        with self.assertRaisesRegex(macaw.ConfigError, "the run has no central test rows"):
            macaw.simulate(**self.job("none", model=self.net(), metrics={"own": self.accuracy},
                                      partition=None, **owners))  # fmt: skip

    def test_that_a_resume_leaves_out_are_told_of(self) -> None:
        run = macaw.simulate(**self.job("run", model=self.net(), metrics={"own": self.accuracy}))
        other = {"other": self.accuracy}
        for metrics, model in ((None, None), (other, self.net())):
            said = "own ends here, and the model is the same.*goes on with it$"
            with self.assertWarnsRegex(UserWarning, said):
                rounds = run.summary["rounds"] + 1
                run = macaw.resume(run, rounds=rounds, metrics=metrics, model=model)
        self.assertEqual([row.get("own") is None for row in run.rows], [False] * 4 + [True] * 2)
        self.assertIsNotNone(run.rows[-1]["other"])
        with self.assertRaisesRegex(macaw.ConfigError, "model=net"):
            macaw.resume(run, rounds=8, metrics=other)
