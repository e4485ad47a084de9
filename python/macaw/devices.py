"""Tables of devices and of their presence, from published records of phones.

    from macaw import devices
    devices.from_fedscale("client_device_capacity", "devices.csv")
    devices.presence_from_fedscale("client_behave_trace", "presence.csv")
    devices.presence_from_flash("state_traces.json", "presence.csv")

``devices.file`` and ``devices.presence`` of a configuration name such tables. A record is a pickle
or a JSON file. Of a pickle only numbers, texts, lists and dicts are read; nothing in it is run.
"""

from __future__ import annotations

import csv
import json
import math
import pickle
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ._names import checked
from ._paths import Path_, path_of
from .errors import DataError

# Training passes forward and backward: FedScale counts three times the latency of inference.
_PASSES = 3
# FedScale's sizes are kbits of 1024 bits, so its kbit/s are 128 bytes a second.
_KB_PER_KBIT = 0.128


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it has an object of {module}.{name}")


def _record(path: Path_) -> Mapping[Any, Any]:
    file = path_of(path, "path")
    try:
        with file.open("rb") as stream:
            text = file.suffix == ".json"
            found = json.load(stream) if text else _PlainUnpickler(stream).load()
    except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise DataError(f"{file}: {error}") from None
    if not isinstance(found, Mapping):
        raise DataError(f"{file}: expected a dict of devices, found {type(found).__name__}")
    return found


def _positive(value: Any, what: str) -> float:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise DataError(f"{what} must be a number > 0, found {value!r}")
    return float(value)


def _write(out: Path_, header: list[str], rows: Iterable[list[Any]]) -> int:
    """Writes the table, and returns its number of devices."""
    devices = set()
    with path_of(out, "out").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        for row in rows:
            devices.add(row[0])
            writer.writerow(row)
    return len(devices)


@checked
def from_fedscale(capacity: Path_, out: Path_) -> int:
    """FedScale's ``client_device_capacity``: a dict of {"computation": ms of inference a sample,
    "communication": kbit/s}. Returns the number of devices.

    As in FedScale, a sample trains for three times its latency, and both directions have one rate.
    """
    rows = []
    for name, device in _record(capacity).items():
        where = f"{capacity}: device {name!r}: "
        if not isinstance(device, Mapping):
            raise DataError(f"{where}expected a dict, found {type(device).__name__}")
        latency = _positive(device.get("computation"), f"{where}computation")
        rate = _positive(device.get("communication"), f"{where}communication") * _KB_PER_KBIT
        rows.append([name, 1000 / (_PASSES * latency), rate, rate])
    return _write(out, ["device", "samples_per_s", "down_kB_s", "up_kB_s"], rows)


def _intervals(device: Mapping[Any, Any], where: str) -> Iterator[tuple[float, float, float]]:
    period = _positive(device.get("finish_time"), f"{where}finish_time")
    active, inactive = device.get("active"), device.get("inactive")
    if not isinstance(active, list) or not isinstance(inactive, list):
        raise DataError(f"{where}active and inactive must be lists")
    for on, off in zip(active, inactive):
        if 0 <= on < min(off, period):
            yield on, min(off, period), period


_PRESENCE = ["device", "on_s", "off_s", "period_s"]


@checked
def presence_from_fedscale(availability: Path_, out: Path_) -> int:
    """FedScale's ``client_behave_trace``: a dict of {"active": [s, …], "inactive": [s, …],
    "finish_time": s}, which begins again after finish_time. Returns the number of devices.

    A device that is never active is left out.
    """
    rows = []
    for name, device in _record(availability).items():
        where = f"{availability}: device {name!r}: "
        if not isinstance(device, Mapping):
            raise DataError(f"{where}expected a dict, found {type(device).__name__}")
        rows += [[name, *interval] for interval in _intervals(device, where)]
    return _write(out, _PRESENCE, rows)


def _ready(messages: str, where: str) -> Iterator[tuple[float, float, float]]:
    """When a phone is locked, charged and in a wireless network, from FLASH's list of events."""
    changes = {
        "battery_charged_on": ("charged", True), "battery_charged_off": ("charged", False),
        "screen_lock": ("locked", True), "screen_unlock": ("locked", False),
        "wifi": ("wifi", True), "unknown": ("wifi", False), "2g": ("wifi", False),
        "3g": ("wifi", False), "4g": ("wifi", False), "5g": ("wifi", False),
    }  # fmt: skip
    state = dict(charged=False, locked=False, wifi=False)
    found: list[tuple[float, float]] = []
    begin: datetime | None = None
    on: float | None = None
    now = 0.0
    for line in filter(None, map(str.strip, messages.split("\n"))):
        try:
            time, event = (part.strip() for part in line.split("\t"))
            moment = datetime.strptime(time, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            raise DataError(f"{where}{line!r} is no time and event") from None
        begin = begin or moment
        now = max(now, (moment - begin).total_seconds())
        if event.lower() in changes:
            what, value = changes[event.lower()]
            state[what] = value
        if all(state.values()) and on is None:
            on = now
        elif not all(state.values()) and on is not None:
            found.append((on, now))
            on = None
    if on is not None:
        found.append((on, now))
    for first, end in found:
        if first < end:
            yield first, end, now


@checked
def presence_from_flash(traces: Path_, out: Path_) -> int:
    """FLASH's state traces: a dict of {"messages": "2020-01-29 19:03:24\\tscreen_lock\\n…"}.
    Returns the number of devices.

    As in FLASH, a phone is there while it is locked, charged and in a wireless network, and a
    record begins again at its end. Phones that are never there are left out, and so are records
    that cannot be read.
    """
    rows = []
    for name, phone in _record(traces).items():
        messages = phone.get("messages") if isinstance(phone, Mapping) else None
        try:
            rows += [[name, *interval] for interval in _ready(str(messages or ""), "")]
        except DataError:
            continue  # FLASH leaves them out, too: its records have gaps
    return _write(out, _PRESENCE, rows)
