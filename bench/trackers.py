"""Reads a run's trackers back with their own readers, and compares every value with metrics.jsonl.

    python bench/trackers.py RUN [--mlflow http://127.0.0.1:5000]

Needs what it checks: tensorboard, wandb (for its format), mlflow and pandas of PyPI, in a virtual
environment outside of the tree. Prints a line a tracker; exit code 1: a value differs.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

Values = dict[tuple[str, int], list[float]]


def rows_of(run: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def expected(run: Path) -> dict[tuple[str, int], float]:
    return {
        (name, row["round"]): math.nan if value is None else value
        for row in rows_of(run)
        for name, value in row.items()
        if name != "round"
    }


def tensorboard(run: Path) -> Values:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    assert events.Tags()["tensors"] == ["configuration/text_summary"]
    values: Values = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            values.setdefault((tag, event.step), []).append(event.value)
    return values


def csv(run: Path) -> Values:
    import pandas

    table = pandas.read_csv(run / "metrics.csv", keep_default_na=False)
    return {
        (name, int(row["round"])): [float(row[name])]
        for row in table.to_dict("records")
        for name in table.columns
        if name != "round" and row[name] != ""
    }


def wandb_records(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    assert data[:7] == b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    at, record = 7, b""
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        crc, length, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + 7 : at + 7 + length]
        assert zlib.crc32(bytes([kind]) + piece) == crc
        record += piece
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def wandb(run: Path) -> Values:
    from wandb.proto import wandb_internal_pb2

    values: Values = {}
    (file,) = run.glob("wandb/offline-run-*/run-*.wandb")
    for number, data in enumerate(wandb_records(file), 1):
        record = wandb_internal_pb2.Record.FromString(data)
        assert record.num == number
        if record.WhichOneof("record_type") != "history":
            continue
        for item in record.history.item:
            name = item.nested_key[0]
            if name != "round" and not name.startswith("_"):
                key = (name, record.history.step.num)
                values.setdefault(key, []).append(json.loads(item.value_json))
    return values


def mlflow(run: Path, uri: str) -> Values:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    known = json.loads((run / "track/mlflow.json").read_text())
    tracked = client.get_run(known["run_id"])
    names = {name for name, _ in expected(run)}
    assert tracked.data.params["run.rounds"] and set(tracked.data.metrics) == names
    artifacts = [file.path for file in client.list_artifacts(known["run_id"])]
    print(f"  mlflow: {tracked.info.status}, {len(tracked.data.params)} parameters, {artifacts}")
    values: Values = {}
    for name in names:
        for metric in client.get_metric_history(known["run_id"], name):
            values.setdefault((name, metric.step), []).append(metric.value)
    return values


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def as_float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--mlflow", help="the server's address")
    options = parser.parse_args()
    found = {}
    if (options.run / "tensorboard").exists():
        found["tensorboard"] = tensorboard(options.run)
    if (options.run / "metrics.csv").exists():
        found["csv"] = csv(options.run)
    if (options.run / "wandb").exists():
        found["wandb"] = wandb(options.run)
    if options.mlflow:
        found["mlflow"] = mlflow(options.run, options.mlflow)
    wanted = expected(options.run)
    good = bool(found)
    for name, values in found.items():
        exact = as_float32 if name == "tensorboard" else float
        missing = wanted.keys() - values.keys()
        twice = sum(len(read) != 1 for read in values.values())
        wrong = sum(not same(values[key][0], exact(wanted[key])) for key in wanted.keys() & values)
        more = values.keys() - wanted.keys()
        good = good and not (missing or twice or wrong or more)
        print(
            f"{name}: {len(values)} of {len(wanted)} values; {wrong} differ, {twice} twice, "
            f"{len(missing)} missing, {len(more)} too many"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
