"""Tables of devices from the records that others have published."""

from __future__ import annotations

import csv
import json
import os
import pickle
from pathlib import Path
from typing import Any

import macaw
from macaw import devices
from support import TestCase


class Devices(TestCase):
    def written(self, name: str, record: Any) -> Path:
        file = self.folder / name
        file.write_bytes(
            json.dumps(record).encode() if name.endswith(".json") else pickle.dumps(record)
        )
        return file

    def rows(self) -> list[dict[str, str]]:
        with (self.folder / "out.csv").open(newline="") as stream:
            return list(csv.DictReader(stream))

    @property
    def out(self) -> Path:
        return self.folder / "out.csv"

    def test_capacities_of_fedscale(self) -> None:
        record = {7: {"computation": 10.0, "communication": 1000}, 8: {"computation": 50.0,
                  "communication": 2.5}}  # fmt: skip
        for name in ("capacity", "capacity.json"):
            self.assertEqual(devices.from_fedscale(self.written(name, record), self.out), 2)
            first, second = self.rows()
            self.assertEqual(first["device"], "7")
            self.assertAlmostEqual(float(first["samples_per_s"]), 1000 / 30)
            self.assertAlmostEqual(float(first["down_kB_s"]), 128)
            self.assertEqual(second["up_kB_s"], second["down_kB_s"])

    def test_presence_of_fedscale(self) -> None:
        record = {
            1: {"active": [0, 60], "inactive": [50, 130], "finish_time": 100, "duration": 90},
            2: {"active": [5], "inactive": [5], "finish_time": 100},
        }
        self.assertEqual(devices.presence_from_fedscale(self.written("trace", record), self.out), 1)
        self.assertEqual(
            [[float(value) for value in row.values()] for row in self.rows()],
            [[1, 0, 50, 100], [1, 60, 100, 100]],
        )

    def test_presence_of_flash(self) -> None:
        at = "2020-01-29 19:00:{:02d}\t{}\n".format
        events = ["10%", "wifi", "screen_lock", "battery_charged_on", "screen_on", "4G", "wifi"]
        messages = "".join(at(second, event) for second, event in enumerate(events))
        record = {
            "a": {"messages": messages + at(20, "60%"), "model": "x"},
            "b": {"messages": "yesterday\twifi\n"},
            "c": {"messages": at(1, "wifi") + at(9, "screen_lock")},
        }
        found = devices.presence_from_flash(self.written("states.json", record), self.out)
        self.assertEqual(found, 1)
        self.assertEqual(
            [[float(row[key]) for key in ("on_s", "off_s", "period_s")] for row in self.rows()],
            [[3, 5, 20], [6, 20, 20]],
        )

    def test_a_pickle_runs_nothing(self) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return (os.system, ("touch evil",))

        with self.assertRaisesRegex(macaw.DataError, "system"):
            devices.from_fedscale(self.written("evil", {1: Evil()}), self.out)

    def test_what_is_wrong_is_named(self) -> None:
        for record, words in (
            ([1], "dict of devices"),
            ({"x": 3}, "'x'"),
            ({"x": {"computation": 0, "communication": 1}}, "computation"),
            ({"x": {"computation": 1}}, "communication"),
        ):
            with self.assertRaisesRegex(macaw.DataError, words):
                devices.from_fedscale(self.written("capacity.json", record), self.out)
        with self.assertRaisesRegex(macaw.DataError, "nowhere"):
            devices.from_fedscale("/nowhere/capacity", self.out)
