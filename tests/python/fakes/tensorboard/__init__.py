"""As much of tensorboard as macaw.track uses: an event file has an event a line, as JSON."""

from __future__ import annotations

import itertools
import json
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_numbers = itertools.count()


class _Message:
    """A message with any fields."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        return self.fields.get(name, [] if name == "value" else _Message())


class _Value(_Message):
    def WhichOneof(self, _name: str) -> str:
        return "simple_value" if "simple_value" in self.fields else "tensor"


class _Summary(_Message):
    Value = _Value


class _Metadata(_Message):
    PluginData = _Message


class _Writer:
    def __init__(self, folder: str) -> None:
        Path(folder).mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{next(_numbers)}"
        self.file = (Path(folder) / name).open("w")

    def add_event(self, event: _Message) -> None:
        self.file.write(json.dumps(event, default=lambda message: _plain(message)) + "\n")

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _plain(message: Any) -> Any:
    return message.decode() if isinstance(message, bytes) else message.fields


class _Loader:
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def Load(self) -> Iterator[_Message]:
        for line in self.path.read_text().splitlines():
            fields = json.loads(line)
            values = [_Value(**value) for value in fields["summary"]["value"]]
            yield _Message(step=fields.get("step", 0), summary=_Summary(value=values))


def _module(name: str, **content: Any) -> None:
    module = types.ModuleType(f"tensorboard.{name}")
    module.__dict__.update(content)
    sys.modules[module.__name__] = module


for _package in ("summary", "summary.writer", "compat", "compat.proto", "backend",
                 "backend.event_processing"):  # fmt: skip
    _module(_package, __path__=[])
_module("summary.writer.event_file_writer", EventFileWriter=_Writer)
_module("backend.event_processing.event_file_loader", LegacyEventFileLoader=_Loader)
_module("compat.proto.event_pb2", Event=_Message)
_module("compat.proto.summary_pb2", Summary=_Summary, SummaryMetadata=_Metadata)
_module("compat.proto.tensor_pb2", TensorProto=_Message)
_module("compat.proto.tensor_shape_pb2", TensorShapeProto=_Message)
_module("compat.proto.types_pb2", DT_STRING=7)
