"""Files for TensorBoard, in tensorboard/ of the run's folder, by the package ``tensorboard``."""

from __future__ import annotations

import math
from typing import Any

from ._track_run import NO_ROUND, Facts, Row, text_of


class TensorBoardTracker:
    """An event a row: a tag is a column's name, a step a round, the time that of the round's end.

    The configuration is a text. TensorBoard keeps values as float32. Each process that delivers
    writes a file of its own, which TensorBoard reads as one with the earlier ones.
    """

    package = "tensorboard"

    def __init__(self) -> None:
        self._writer: Any = None

    def open(self, facts: Facts) -> int:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = facts.folder / "tensorboard"
        files = sorted(folder.glob("*tfevents*"))
        last = max(map(_last_step, files), default=NO_ROUND)
        self._writer = EventFileWriter(str(folder))
        if last == NO_ROUND:
            self._writer.add_event(_configuration(facts))
        return last

    def deliver(self, rows: list[Row]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for row in rows:
            values = [
                Summary.Value(tag=name, simple_value=_narrow(value))
                for name, value in row.values.items()
            ]
            summary = Summary(value=values)
            self._writer.add_event(Event(wall_time=row.time, step=row.round, summary=summary))
        self._writer.flush()

    def close(self, _end: str, /) -> None:
        self._writer.close()


def _last_step(file: Any) -> int:
    """The last row in an event file. The reader ends before a record that a crash has torn."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    steps = [
        event.step
        for event in LegacyEventFileLoader(str(file)).Load()
        if any(value.WhichOneof("value") == "simple_value" for value in event.summary.value)
    ]
    return max(steps, default=NO_ROUND)


def _configuration(facts: Facts) -> Any:
    """A text in Markdown: an indented block."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    lines = [f"    {key} = {text_of(value)}\n" for key, value in facts.settings.items()]
    value = Summary.Value(
        tag="configuration/text_summary",
        metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
        tensor=TensorProto(
            dtype=DT_STRING, tensor_shape=TensorShapeProto(), string_val=["".join(lines).encode()]
        ),
    )
    return Event(wall_time=facts.began, summary=Summary(value=[value]))


def _narrow(value: float) -> float:
    """What is too large for float32 becomes infinite, as it does in TensorFlow."""
    return math.copysign(math.inf, value) if abs(value) > 3.4028235e38 else value
