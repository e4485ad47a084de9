"""The newest model that a run has kept, before it has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from . import _safetensors
from ._safetensors import Array

#: The model of the newest round of a run that waits after each (server/round_model.h).
ROUND_FILE = "model.round.safetensors"
#: The frozen tensors of a run, which its checkpoints lack (server/checkpoint.h).
BASE_FILE = "base.safetensors"


def newest(folder: Path) -> tuple[int, dict[str, Array]] | None:
    """The round, and the tensors by name; None: no checkpoint has been written yet."""
    files = sorted((folder / "checkpoints").glob("round-*.safetensors"), reverse=True)
    found = [*_of_the_round(folder), *(_Checkpoint(file) for file in files)]
    for kept in sorted(found, key=lambda kept: kept.round, reverse=True):
        tensors = kept.tensors()
        if tensors is not None:
            return kept.round, tensors
    return None


class _RoundFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.round = int(_safetensors.metadata(path)["round"])

    def tensors(self) -> dict[str, Array] | None:
        return dict(_safetensors.read(self._path))


class _Checkpoint:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.round = int(path.stem.removeprefix("round-"))

    def tensors(self) -> dict[str, Array] | None:
        """None: another one has replaced the file, or its rule has no common model."""
        try:
            about = json.loads(_safetensors.metadata(self._path)["macaw"])
            vectors = _safetensors.read(self._path)
        except FileNotFoundError:
            return None
        model = about.get("model", "model")  # which vector has the tensors
        if "tensors" not in about or model not in vectors:
            return None
        flat = vectors[model]
        # Frozen tensors are in a file of their own, unless release 0.1.0 wrote the checkpoint.
        found: dict[str, Array] = {}
        if "base" in about:
            base = self._path.parent.parent / BASE_FILE
            found.update(_safetensors.read(base))
        for name, first, shape in about["tensors"]:
            size = 1
            for extent in shape:
                size *= extent
            found[name] = flat[first : first + size].reshape(shape)
        return found


def _of_the_round(folder: Path) -> Iterator[_RoundFile | _Checkpoint]:
    path = folder / ROUND_FILE
    if path.exists():
        yield _RoundFile(path)
