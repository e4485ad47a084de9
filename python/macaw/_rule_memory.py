"""The vectors that a rule's process shares with its worker or server, in memory files.

The programs have this file inside (_rules.py).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from macaw._rule_channels import Array
from macaw._rule_schema import shown
from macaw.rules import Layout, RuleError


class Arena:
    """Memory shared with the worker: places for vectors, by kind and number."""

    def __init__(self, file: int, fields: Mapping[str, Any]) -> None:
        self.bytes = mmap.mmap(file, fields["bytes"])
        os.close(file)
        self.views: dict[str, list[Array]] = {}
        self.names: dict[str, list[str]] = fields["names"]
        self.refs: dict[int, list[Any]] = {}
        self.of_model: set[int] = set()  # the views that have the model's tensors
        for kind, places in fields["places"].items():
            self.views[kind] = [self.view(place) for place in places]
            for number, view in enumerate(self.views[kind]):
                self.refs[id(view)] = [kind, number]
                if places[number][3]:
                    self.of_model.add(id(view))
                view.flags.writeable = kind in fields["writable"]
        self.used = 0  # scratch places of this turn
        self.down = self.state = {}  # type: dict[str, Array]
        self.sent: list[int] = []  # channels down of the round

    def view(self, place: Sequence[Any]) -> Array:
        offset, size, dtype, _ = place
        view: Array = np.ndarray((size,), dtype, self.bytes, offset)
        return view

    def layout_of(self, view: Array, model: Layout) -> Layout | None:
        """The model's layout for a view that has its tensors; None for one of numbers."""
        return model if id(view) in self.of_model else None

    def scratch(self) -> Array:
        places = self.views["scratch"]
        if self.used == len(places):
            raise RuleError(f"a turn has more than {len(places)} vectors of its own")
        self.used += 1
        return places[self.used - 1]

    def take(self, value: Any, place: Array, what: str, layout: Layout | None) -> list[Any]:
        """Where the vector lies: where it is already, or copied into `place`."""
        ref = self.refs.get(id(value))
        if ref is None:
            copy_into(value, place, what, layout)
            return self.refs[id(place)]
        there = self.views[ref[0]][ref[1]]
        _check_array(there, place, what)
        return ref


def _check_array(array: Array, place: Array, what: str) -> None:
    if array.shape != place.shape:
        raise RuleError(f"{what} has the shape {array.shape}, and should have {place.shape}")
    if array.dtype != place.dtype:
        raise RuleError(f"{what} is {array.dtype}, and should be {place.dtype}: use "
                        f".astype(np.{place.dtype})")  # fmt: skip


def copy_into(value: Any, place: Array, what: str, layout: Layout | None) -> None:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        if layout is None:
            raise RuleError(f"{what} is a dict, and its channel is {place.size} numbers")
        tensors = layout.tensors(place)
        if value.keys() != tensors.keys():
            raise RuleError(f"{what} has the tensors {sorted(value)}, the model has "
                            f"{sorted(tensors)}")  # fmt: skip
        place[...] = 0
        for name, tensor in tensors.items():
            copy_into(value[name], tensor, f"{what}, tensor {name!r},", None)
        return
    if isinstance(value, (bool, int, float)) and place.size == 1:
        value = np.full(1, value, place.dtype)
    if not isinstance(value, np.ndarray):
        raise RuleError(f"{what} is {shown(value)} instead of an array")
    _check_array(value, place, what)
    place[...] = value
