"""How a run's rows come to trackers: with fake packages, with the real ones where they are
installed, and from the programs."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import macaw
from macaw import track
from macaw._track_csv import CsvTracker
from macaw._track_run import NO_ROUND, Rows, RunFolder
from support import BUILD, TestCase

FAKES = Path(__file__).parent / "fakes"
RUN_ID = "00112233445566778899aabbccddeeff" * 2


@contextlib.contextmanager
def fakes(store: Path) -> Iterator[Any]:
    """The fake packages in place of the real ones; gives the module that reads their store."""
    store.mkdir(exist_ok=True)
    names = ("mlflow", "wandb", "tensorboard", "store")
    with mock.patch.dict(sys.modules), mock.patch.dict(os.environ, FAKE_STORE=str(store)):
        for name in list(sys.modules):
            if name.partition(".")[0] in names:
                del sys.modules[name]
        with mock.patch.object(sys, "path", [str(FAKES), *sys.path]):
            importlib.invalidate_caches()
            yield importlib.import_module("store")


class FakeRun:
    """The folder of a run as far as trackers read it. Every third row has an evaluation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.write("config.toml", '[run]\nname = "a run"\n[local]\nlr = 0.1\nnesterov = true\n')
        self.write("run-id", RUN_ID + "\n")
        self.write("metrics.jsonl", "")
        self.write("events.jsonl", "")
        self.write("epoch", "1")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    @staticmethod
    def row(number: int) -> str:
        row: dict[str, Any] = {"round": number, "clients": 100, "train_loss": 1 / number}
        if number % 3 == 0:
            row.update(test_loss=None, test_accuracy=0.5)
        return json.dumps(row) + "\n"

    def add(self, first: int, last: int) -> None:
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.writelines(map(self.row, range(first, last + 1)))

    def cut_after(self, last: int) -> None:
        """As a server does that goes on from a checkpoint behind this round."""
        self.write("metrics.jsonl", "".join(map(self.row, range(1, last + 1))))

    def end(self, how: str, epoch: int = 1) -> None:
        with (self.folder / "events.jsonl").open("a") as file:
            file.write(f'{{"t":1.0,"epoch":{epoch},"event":"run_{how}","rounds":1,"why":""}}\n')

    def rows(self) -> Rows:
        return Rows(RunFolder(self.folder, "no-such-program"))


class Case(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.run_ = FakeRun(self.folder / "run")
        self.store = self.folder / "store"
        retry = mock.patch.multiple(track, RETRY_AFTER=0.001, LOOK_EVERY=0.001)
        retry.start()
        self.addCleanup(retry.stop)

    def deliver(self, to: str, *options: str) -> tuple[int, list[str]]:
        """Delivers what is there. Returns the exit code and what was said."""
        read, write = os.pipe()
        with open(read) as said:  # noqa: PTH123 (a descriptor)
            arguments = [str(self.run_.folder), "--to", to, "--say", str(write)]
            arguments += ["--macaw", "no-such-program", "--at-most", "120"]
            code = 1
            left = mock.patch.object(os, "_exit", side_effect=SystemExit)
            with left, contextlib.suppress(SystemExit):
                code = track.main([*arguments, *options])
            os.close(write)
            return code, said.read().splitlines()

    def process(
        self, to: str, *options: str, path: Path = FAKES
    ) -> subprocess.CompletedProcess[str]:
        """The same in a process of its own, with the packages in a folder."""
        return subprocess.run(
            [sys.executable, "-m", "macaw.track", self.run_.folder, "--to", to, *options],
            env={
                **os.environ,
                "PYTHONPATH": f"{path}:{os.environ['PYTHONPATH']}",
                "FAKE_STORE": str(self.store),
            },
            capture_output=True,
            text=True,
        )

    def delivered(self, to: str, *options: str) -> None:
        self.assertEqual(self.deliver(to, *options), (0, []))


class ReadingRows(Case):
    def test_follows_a_run_that_goes_on(self) -> None:
        rows = self.run_.rows()
        self.assertEqual(rows.after(NO_ROUND, 10), [])
        self.run_.add(1, 3)
        self.assertEqual([row.round for row in rows.after(NO_ROUND, 2)], [1, 2])
        (third,) = rows.after(2, 10)
        self.assertEqual(third.values["train_loss"], 1 / 3)
        self.assertTrue(math.isnan(third.values["test_loss"]))
        self.assertLess(abs(third.time - time.time()), 60)
        self.assertEqual(rows.after(3, 10), [])

    def test_waits_for_the_rest_of_a_line(self) -> None:
        row = self.run_.row(1)
        self.run_.write("metrics.jsonl", row[:20])
        rows = self.run_.rows()
        self.assertEqual(rows.after(NO_ROUND, 10), [])
        self.run_.write("metrics.jsonl", row)
        self.assertEqual(len(rows.after(NO_ROUND, 10)), 1)

    def test_passes_over_rows_that_a_server_writes_again(self) -> None:
        self.run_.add(1, 9)
        rows = self.run_.rows()
        self.assertEqual(len(rows.after(NO_ROUND, 100)), 9)
        self.run_.cut_after(5)
        self.assertEqual(rows.after(9, 100), [])
        self.run_.add(6, 11)
        self.assertEqual([row.round for row in rows.after(9, 100)], [10, 11])

    def test_names_a_damaged_file(self) -> None:
        self.run_.write("metrics.jsonl", '{"round": 1}\nnonsense\n')
        with self.assertRaisesRegex(ValueError, "metrics.jsonl has no row at byte 13"):
            self.run_.rows().after(NO_ROUND, 10)

    def test_takes_the_times_of_old_rows_from_the_log(self) -> None:
        self.run_.add(1, 2)
        records = [
            {"seq": 0, "t": 0.5, "record": "run_opened", "wall_ns": 1_000_000_000_000},
            {"seq": 1, "t": 2.5, "record": "closed", "round": 1, "last": True},
            {"seq": 2, "t": 3.0, "record": "closed", "round": 2, "last": False},
            {"seq": 3, "t": 4.5, "record": "closed", "round": 2, "last": True},
        ]
        program = self.folder / "macaw"
        lines = "\n".join(json.dumps(record, separators=(",", ":")) for record in records)
        program.write_text(f"#!/bin/sh\ncat <<'EOF'\n{lines}\nEOF\n")
        program.chmod(0o755)
        run = RunFolder(self.run_.folder, str(program))
        self.assertEqual([row.time for row in Rows(run).after(NO_ROUND, 9)], [1002.0, 1004.0])
        self.assertEqual(run.facts().began, 1000.0)

    def test_knows_how_the_last_session_ended(self) -> None:
        run = RunFolder(self.run_.folder, "no-such-program")
        self.assertEqual(run.end(), "")
        self.run_.end("interrupted")
        self.assertEqual(run.end(), "interrupted")
        self.run_.write("epoch", "2")  # a second server has begun
        self.assertEqual(run.end(), "")
        self.run_.end("finished", epoch=2)
        self.assertEqual(run.end(), "finished")


class Csv(Case):
    def test_gives_earlier_rows_empty_cells_when_a_column_comes(self) -> None:
        self.run_.add(1, 2)
        self.delivered("csv")
        self.assertEqual(self.run_.text("metrics.csv").split()[0], "round,clients,train_loss")
        self.run_.add(3, 4)
        self.delivered("csv")
        self.assertEqual(
            self.run_.text("metrics.csv"),
            "round,clients,train_loss,test_loss,test_accuracy\n"
            "1,100,1.0,,\n2,100,0.5,,\n3,100,0.3333333333333333,nan,0.5\n4,100,0.25,,\n",
        )

    def test_goes_on_behind_a_line_that_a_crash_has_torn(self) -> None:
        self.run_.add(1, 4)
        self.delivered("csv")
        whole = self.run_.text("metrics.csv")
        for size in range(len(whole)):
            self.run_.write("metrics.csv", whole[:size])
            self.delivered("csv")
            self.assertEqual(self.run_.text("metrics.csv"), whole)

    def test_quotes_names(self) -> None:
        self.run_.write("metrics.jsonl", '{"round":1,"a,\\"b\\"":2}\n{"round":2,"x":3}\n')
        self.delivered("csv")
        self.assertEqual(self.run_.text("metrics.csv"), 'round,"a,""b""",x\n1,2,\n2,,3\n')
        self.delivered("csv")
        self.assertEqual(self.run_.text("metrics.csv"), 'round,"a,""b""",x\n1,2,\n2,,3\n')

    def test_says_that_its_file_was_changed(self) -> None:
        self.run_.add(1, 1)
        self.run_.write("metrics.csv", "round,clients\nsome words\n")
        with self.assertRaisesRegex(ValueError, "metrics.csv was changed"):
            CsvTracker().open(RunFolder(self.run_.folder, "no-such-program").facts())


class Mlflow(Case):
    def steps(self, store: Any, key: str = "train_loss") -> list[int]:
        (run,) = store.load("mlflow.json", None)["runs"]
        return [metric["step"] for metric in run["metrics"] if metric["key"] == key]

    def test_gets_every_value_parameters_and_artifacts(self) -> None:
        self.run_.add(1, 600)  # more than the metrics of one call
        self.run_.write("summary.json", "{}")
        self.run_.end("finished")
        with fakes(self.store) as store:
            self.delivered("mlflow", "--mlflow-uri", "http://there:1", "--mlflow-experiment", "e")
            state = store.load("mlflow.json", None)
            self.assertEqual(self.steps(store), list(range(1, 601)))
        self.assertEqual((state["uri"], state["experiments"]), ("http://there:1", ["e"]))
        (run,) = state["runs"]
        self.assertEqual((run["name"], run["status"]), ("a run", "FINISHED"))
        self.assertEqual(run["tags"]["macaw.run_id"], RUN_ID)
        self.assertEqual(
            run["params"], {"run.name": "a run", "local.lr": "0.1", "local.nesterov": "true"}
        )
        losses = [m["value"] for m in run["metrics"] if m["key"] == "train_loss"]
        self.assertEqual(losses, [1 / number for number in range(1, 601)])
        evaluated = [m["value"] for m in run["metrics"] if m["key"] == "test_loss"]
        self.assertEqual((len(evaluated), all(map(math.isnan, evaluated))), (200, True))
        self.assertEqual(set(run["artifacts"]), {"config.toml", "summary.json"})

    def test_has_no_row_twice_whose_first_column_is_of_few_rows(self) -> None:
        """Such as a_share, of evaluated rows; and where a row has no clients, too."""
        with fakes(self.store) as store:
            for clients in ({"clients": 3}, {}):
                values = [{"round": n, "train_loss": n, **clients} for n in range(1, 10)]
                for value in values[::4]:
                    value["a_share"] = 0.5
                lines = [json.dumps(value) + "\n" for value in values]
                store.save("mlflow.json", {"experiments": [], "runs": []})
                self.run_.write("metrics.jsonl", "".join(lines[:8]))
                self.delivered("mlflow")
                self.run_.write("metrics.jsonl", "".join(lines))
                self.delivered("mlflow")
                self.assertEqual(self.steps(store), list(range(1, 10)))

    def test_goes_on_in_the_same_run(self) -> None:
        with fakes(self.store) as store:
            self.run_.add(1, 9)
            self.run_.end("interrupted")
            self.delivered("mlflow")
            self.assertEqual(store.load("mlflow.json", None)["runs"][0]["status"], "KILLED")
            self.run_.cut_after(5)
            self.run_.add(6, 12)
            self.run_.end("stopped")
            self.delivered("mlflow")
            self.delivered("mlflow")
            self.assertEqual(self.steps(store), list(range(1, 13)))
            self.assertEqual(store.load("mlflow.json", None)["runs"][0]["status"], "FINISHED")

    def test_begins_another_run_when_it_was_deleted_there(self) -> None:
        with fakes(self.store) as store:
            self.run_.add(1, 4)
            self.delivered("mlflow")
            store.save("mlflow.json", {"experiments": ["macaw"], "runs": []})
            self.delivered("mlflow")
            self.assertEqual(self.steps(store), [1, 2, 3, 4])

    def test_has_nothing_twice_after_errors_and_late_answers(self) -> None:
        for late in (False, True):
            with self.subTest(late=late), fakes(self.folder / f"store{late}") as store:
                from mlflow.tracking import MlflowClient  # the fake

                log, failures = MlflowClient.log_batch, iter(range(3))

                def fail(client: Any, *given: Any, _log: Any = log, _late: bool = late,
                         _failures: Any = failures, **named: Any) -> None:  # fmt: skip
                    failing = next(_failures, None) is not None
                    if not failing or _late:
                        _log(client, *given, **named)
                    if failing:
                        raise OSError("the database is locked")

                self.run_.cut_after(500)
                with mock.patch.object(MlflowClient, "log_batch", fail):
                    code, said = self.deliver("mlflow")
                self.assertEqual(code, 0)
                self.assertRegex(said[0], r"mlflow: up to 500 rows must wait: .*is locked")
                self.assertRegex(said[-1], "mlflow: deliveries go on")
                self.assertEqual(self.steps(store), list(range(1, 501)))

    def test_takes_only_names_that_are_allowed(self) -> None:
        self.run_.write("metrics.jsonl", '{"round":1,"rule_é(x)":2}\n')
        with fakes(self.store) as store:
            self.delivered("mlflow")
            self.assertEqual(self.steps(store, "rule___x_"), [1])


class Wandb(Case):
    def test_gets_the_configuration_and_a_step_a_row(self) -> None:
        self.run_.add(1, 3)
        self.run_.end("finished")
        with fakes(self.store) as store:
            self.delivered("wandb", "--wandb-project", "p")
            begun, *logged, ended = store.entries("wandb.jsonl")
        self.assertEqual(
            {key: begun[key] for key in ("project", "id", "name", "mode", "resume", "dir")},
            {
                "project": "p", "id": RUN_ID[:12], "name": "a run", "mode": "offline",
                "resume": "allow", "dir": str(self.run_.folder),
            },
        )  # fmt: skip
        self.assertEqual(begun["config"]["local.lr"], 0.1)
        self.assertEqual([entry["step"] for entry in logged], [1, 2, 3])
        self.assertEqual(logged[1]["values"]["train_loss"], 0.5)
        self.assertEqual(ended, {"call": "finish", "exit_code": 0})

    def test_has_no_row_twice_when_a_run_goes_on(self) -> None:
        with fakes(self.store) as store:
            self.run_.add(1, 4)
            self.run_.end("failed")
            self.delivered("wandb")
            self.run_.add(5, 6)
            self.delivered("wandb")
            logged = [e["step"] for e in store.entries("wandb.jsonl") if e["call"] == "log"]
            self.assertEqual(logged, [1, 2, 3, 4, 5, 6])
            ids = {e["id"] for e in store.entries("wandb.jsonl") if e["call"] == "init"}
            self.assertEqual(len(ids), 1)
            ends = [e["exit_code"] for e in store.entries("wandb.jsonl") if e["call"] == "finish"]
            self.assertEqual(ends[0], 1)

    def test_is_online_where_the_environment_says_so(self) -> None:
        self.run_.add(1, 1)
        with fakes(self.store) as store, mock.patch.dict(os.environ, WANDB_MODE="online"):
            self.delivered("wandb")
            self.assertIsNone(store.entries("wandb.jsonl")[0]["mode"])


class TensorBoard(Case):
    def events(self) -> list[dict[str, Any]]:
        files = sorted((self.run_.folder / "tensorboard").iterdir())
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def test_gets_every_value_and_the_configuration_once(self) -> None:
        with fakes(self.store):
            self.run_.add(1, 3)
            self.delivered("tensorboard")
            self.run_.add(4, 5)
            self.delivered("tensorboard")
        configuration, *rows = self.events()
        (text,) = configuration["summary"]["value"]
        self.assertIn("    local.lr = 0.1\n", text["tensor"]["string_val"][0])
        self.assertEqual([row["step"] for row in rows], [1, 2, 3, 4, 5])
        values = {value["tag"]: value["simple_value"] for value in rows[2]["summary"]["value"]}
        self.assertEqual(values["train_loss"], 1 / 3)
        self.assertTrue(math.isnan(values["test_loss"]))

    def test_has_infinity_where_float32_ends(self) -> None:
        self.run_.write("metrics.jsonl", '{"round":1,"a":-1e300,"b":3e38}\n')
        with fakes(self.store):
            self.delivered("tensorboard")
        values = [value["simple_value"] for value in self.events()[1]["summary"]["value"]]
        self.assertEqual(values, [-math.inf, 3e38])


class Deliveries(Case):
    def test_follow_a_run_until_it_is_over(self) -> None:
        read, write = os.pipe()
        result: list[Any] = []
        thread = threading.Thread(
            target=lambda: result.append(self.deliver("csv", "--until", str(read)))
        )
        thread.start()
        self.run_.add(1, 2)
        while not (self.run_.folder / "metrics.csv").exists():
            time.sleep(0.001)
        self.run_.add(3, 3)
        os.close(write)
        thread.join()
        self.assertEqual(result, [(0, [])])
        self.assertEqual(len(self.run_.text("metrics.csv").splitlines()), 4)

    def test_open_nothing_for_a_run_without_a_round(self) -> None:
        with fakes(self.store) as store:
            self.delivered("csv,mlflow,wandb")
            self.assertFalse((self.run_.folder / "metrics.csv").exists())
            self.assertEqual(store.entries("wandb.jsonl"), [])

    def test_name_a_package_that_is_missing(self) -> None:
        self.run_.add(1, 2)
        with mock.patch.object(track.importlib.util, "find_spec", return_value=None):
            code, said = self.deliver("mlflow,csv")
        self.assertEqual(code, 1)
        self.assertEqual(len(said), 1)
        for words in (sys.executable, "pip install mlflow", f"macaw track {self.run_.folder}"):
            self.assertIn(words, said[0])
        self.assertEqual(len(self.run_.text("metrics.csv").splitlines()), 3)

    def test_exclude_a_second_one_to_the_same_tracker(self) -> None:
        self.run_.add(1, 1)
        held = track._lock(self.run_.folder / "track" / "csv.lock")
        done = self.process("csv", "--at-most", "0.1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "csv.lock is locked")
        self.assertFalse((self.run_.folder / "metrics.csv").exists())
        os.close(held)
        self.delivered("csv")

    def test_say_what_is_left_when_a_tracker_hangs(self) -> None:
        self.run_.add(1, 20)
        hanging = self.folder / "hanging"
        hanging.mkdir()
        (hanging / "wandb.py").write_text("import time\ntime.sleep(600)\n")
        done = self.process("wandb,csv", "--at-most", "10", path=hanging)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr, r"wandb: not delivered: up to 20 rows \(it has not answered in time\)"
        )
        self.assertIn(f"`macaw track {self.run_.folder} --to wandb`", done.stderr)
        self.assertEqual(len(self.run_.text("metrics.csv").splitlines()), 21)

    def test_refuse_an_unknown_tracker(self) -> None:
        code, said = self.deliver("mlfow")
        self.assertEqual(code, 2)
        self.assertRegex(said[0], '"mlfow"; there are csv, mlflow, tensorboard, wandb')


def installed(package: str) -> Any:
    """Skips a test where a package is not installed. It is not imported here: that takes long."""
    found = importlib.util.find_spec(package) is not None
    return (lambda test: test) if found else unittest.skip(f"{package} is not installed")


class RealPackages(Case):
    """What the packages read back is what the run had, also after it went on."""

    def setUp(self) -> None:
        super().setUp()
        self.empty = self.folder / "empty"
        self.empty.mkdir()

    def delivered_in_two_sessions(self, to: str, *options: str) -> dict[tuple[str, int], float]:
        """Returns what is expected."""
        for first, last, how in ((1, 250, "interrupted"), (251, 300, "finished")):
            self.run_.add(first, last)
            self.run_.end(how)
            done = self.process(to, *options, "--at-most", "300", path=self.empty)
            self.assertEqual((done.returncode, done.stderr.count("must wait")), (0, 0), done.stderr)
        return {
            (name, row.round): value
            for row in self.run_.rows().after(NO_ROUND, 1000)
            for name, value in row.values.items()
        }

    def same(
        self, found: list[tuple[tuple[str, int], float]], expected: dict[tuple[str, int], float]
    ) -> None:
        self.assertEqual(len(found), len(expected))  # nothing twice
        for key, value in found:
            np.testing.assert_equal(value, expected[key], str(key))

    @installed("tensorboard")
    def test_tensorboard(self) -> None:
        expected = self.delivered_in_two_sessions("tensorboard")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        sizes = {"scalars": 0, "tensors": 0}
        events = EventAccumulator(str(self.run_.folder / "tensorboard"), size_guidance=sizes)
        events.Reload()
        self.assertEqual(events.Tags()["tensors"], ["configuration/text_summary"])
        found = [
            ((tag, event.step), event.value)
            for tag in events.Tags()["scalars"]
            for event in events.Scalars(tag)
        ]
        self.same(found, {key: float(np.float32(value)) for key, value in expected.items()})

    @installed("mlflow")
    def test_mlflow(self) -> None:
        self.run_.write("summary.json", "{}")
        uri = f"sqlite:///{self.folder}/mlflow.db"
        self.addCleanup(os.chdir, Path.cwd())
        os.chdir(self.folder)  # MLflow keeps artifacts there
        expected = self.delivered_in_two_sessions("mlflow", "--mlflow-uri", uri)
        from mlflow.tracking import MlflowClient

        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("macaw")
        (run,) = client.search_runs([experiment.experiment_id])
        self.assertEqual((run.info.status, run.info.run_name), ("FINISHED", "a run"))
        self.assertEqual(run.data.params["local.lr"], "0.1")
        artifacts = {file.path for file in client.list_artifacts(run.info.run_id)}
        self.assertEqual(artifacts, {"config.toml", "summary.json"})
        found = [
            ((name, metric.step), metric.value)
            for name in run.data.metrics
            for metric in client.get_metric_history(run.info.run_id, name)
        ]
        self.same(found, expected)

    @installed("wandb")
    def test_wandb(self) -> None:
        expected = self.delivered_in_two_sessions("wandb")
        from wandb.proto.wandb_internal_pb2 import Record

        found = []
        for file in self.run_.folder.glob("wandb/offline-run-*/run-*.wandb"):
            self.assertIn(RUN_ID[:12], file.name)
            for record in map(Record.FromString, self.records(file.read_bytes())):
                for item in record.history.item:
                    name = "/".join(item.nested_key) or item.key
                    if name != "round" and not name.startswith("_"):
                        found.append(((name, record.history.step.num), json.loads(item.value_json)))
        self.same(found, expected)

    @staticmethod
    def records(data: bytes) -> Iterator[bytes]:
        """The records of a .wandb file, which is framed as LevelDB's log."""
        at, record = 7, b""
        while at < len(data):
            room = 32768 - at % 32768
            if room < 7:
                at += room
                continue
            _, length, kind = struct.unpack_from("<IHB", data, at)
            record += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):
                yield record
                record = b""


class Programs(TestCase):
    """`run.track` and `macaw track`: the program starts macaw.track."""

    def setUp(self) -> None:
        super().setUp()
        self.store = self.folder / "store"
        self.store.mkdir()
        self.done = macaw.simulate(**self.job("done"))

    def macaw(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PYTHONPATH": str(FAKES),  # without the package macaw: the program has the modules
            "FAKE_STORE": str(self.store),
            "MACAW_PYTHON": sys.executable,
            **environment,
        }
        return subprocess.run(
            [BUILD / "bin/macaw", *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )

    def simulate(self, *trackers: str, **environment: str) -> tuple[macaw.Run, str]:
        config = self.done.folder / "config.toml"
        out = self.folder / "run"
        track = f"run.track={json.dumps(trackers)}"
        done = self.macaw("simulate", config, "--set", track, "--out", out, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return macaw.Run(out), done.stderr

    def csv(self, run: macaw.Run) -> list[str]:
        return (run.folder / "metrics.csv").read_text().splitlines()

    def state(self) -> Any:
        return json.loads((self.store / "mlflow.json").read_text())

    def test_deliver_while_a_run_goes_on(self) -> None:
        run, said = self.simulate("csv", "mlflow", "wandb", "tensorboard")
        self.assertNotRegex(said, "csv|mlflow|wandb|tensorboard")
        self.assertEqual(run.digest, self.done.digest)
        self.assertEqual(len(self.csv(run)), 1 + len(run.rows))
        (tracked,) = self.state()["runs"]
        self.assertEqual(tracked["status"], "FINISHED")
        losses = [m["value"] for m in tracked["metrics"] if m["key"] == "train_loss"]
        self.assertEqual(losses, [row["train_loss"] for row in run.rows])
        self.assertEqual(tracked["params"]["cohort.size"], "5")
        self.assertIn("config.toml", tracked["artifacts"])

    def test_finish_a_run_whose_tracker_has_no_package(self) -> None:
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
        python.chmod(0o755)
        run, said = self.simulate("csv", "mlflow", MACAW_PYTHON=str(python))
        self.assertIn("pip install mlflow", said)
        self.assertIn(f"macaw track {run.folder} --to mlflow", said)
        self.assertEqual(len(self.csv(run)), 1 + len(run.rows))
        later = self.macaw("track", run.folder)
        self.assertEqual((later.returncode, later.stderr), (0, ""))
        (tracked,) = self.state()["runs"]
        steps = [m["step"] for m in tracked["metrics"] if m["key"] == "train_loss"]
        self.assertEqual(steps, [row["round"] for row in run.rows])

    def test_finish_a_run_without_python(self) -> None:
        run, said = self.simulate("csv", MACAW_PYTHON="/no/python")
        self.assertIn("/no/python", said)
        self.assertIn("MACAW_PYTHON", said)
        later = self.macaw("track", run.folder, MACAW_PYTHON="/no/python")
        self.assertEqual(later.returncode, 1)
        self.assertIn("MACAW_PYTHON", later.stderr)

    def test_give_old_rows_the_times_of_the_log(self) -> None:
        self.assertEqual(self.macaw("track", self.done.folder, "--to", "mlflow").returncode, 0)
        log = self.macaw("log", self.done.folder, "--json").stdout.splitlines()
        records = [json.loads(line) for line in log]
        (opened,) = [r for r in records if r["record"] == "run_opened"]
        began = opened["wall_ns"] / 1e9 - opened["t"]
        closed = [began + r["t"] for r in records if r["record"] == "closed" and r["last"]]
        (tracked,) = self.state()["runs"]
        times = [m["timestamp"] for m in tracked["metrics"] if m["key"] == "train_loss"]
        self.assertEqual(times, [int(1000 * at) for at in closed])

    def test_refuse_a_password_in_the_configuration(self) -> None:
        config = self.done.folder / "config.toml"
        sets = ["--set", 'run.track=["mlflow"]', "--set", 'run.mlflow.uri="http://me:secret@host"']
        done = self.macaw("simulate", config, *sets, "--out", self.folder / "refused")
        self.assertEqual(done.returncode, 2)
        self.assertIn("run.mlflow.uri", done.stderr)
        self.assertIn("MLFLOW_TRACKING_PASSWORD", done.stderr)
        self.assertFalse((self.folder / "refused").exists())

    def test_name_what_is_no_run(self) -> None:
        done = self.macaw("track", self.folder, "--to", "csv")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{self.folder} is not the folder of a run", done.stderr)

    def test_refuse_an_address_that_nobody_uses(self) -> None:
        done = self.macaw("track", self.done.folder, "--to", "csv", "--mlflow-uri", "http://host:1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--mlflow-uri has no effect without the tracker mlflow", done.stderr)
        self.assertFalse((self.done.folder / "metrics.csv").exists())
