"""Files of tensors: the safetensors format, with NumPy alone.

A file is the length of a header (8 bytes, little-endian), the header (JSON), and the tensors one
after another. Models and prepared data are such files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _files
from ._warn import warn
from .errors import DataError

Array = NDArray[Any]

_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int32": "I32", "int64": "I64",
    "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
_TYPES = {name: np.dtype(dtype) for dtype, name in _NAMES.items()}


def write_by_content(
    folder: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str]
) -> Path:
    """Writes a file whose name is the digest of its content, unless it is there already."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    at = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)  # so that the tensors are aligned
    start = len(text).to_bytes(8, "little") + text
    return write_pieces(folder, ".safetensors", [start, *map(_bytes, arrays.values())])


def write_pieces(folder: Path, suffix: str, pieces: Iterable[bytes | memoryview]) -> Path:
    """Writes these bytes into a file that is named by them. Others never see half a file.

    One that is there is compared with them, and written again if it was damaged. Reading it costs a
    quarter of what the digest does.
    """
    pieces = list(pieces)
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    path = folder / f"{digest.hexdigest()}{suffix}"
    with _files.cache_errors(folder):
        if not path.exists():
            _files.write(path, pieces)
        elif not _files.holds(path, pieces):
            warn(
                f"{path} was damaged, and is written again: its bytes were not those of its name. "
                "A run that read it since has used them; look at the disk",
                RuntimeWarning,
            )
            _files.write(path, pieces)
    return path


def metadata(path: Path) -> dict[str, str]:
    about: dict[str, str] = _header(path)[0].get("__metadata__", {})
    return about


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What is in a file, and the header's length."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
        try:
            header = json.loads(file.read(length) if 8 + length <= size else b"")
            ends = [entry["data_offsets"][1] for entry in _entries(header).values()]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(f"{path} is no file of tensors (safetensors), or damaged") from error
    missing = 8 + length + max(ends, default=0) - size
    if missing > 0:
        raise DataError(f"{path} is damaged: {missing} bytes of its tensors are missing")
    return header, length


def _entries(header: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def copy(source: Path, target: Path) -> None:
    """Others never see half of the copy."""
    if target.exists():
        return
    with _files.replacing(target) as file:
        shutil.copyfile(source, file.name)


def read(path: Path) -> dict[str, Array]:
    """The tensors of a file, mapped and not read. They cannot be changed."""
    header, length = _header(path)
    data = np.memmap(path, np.uint8, mode="r", offset=8 + length)
    tensors: dict[str, Array] = {}
    for name, entry in _entries(header).items():
        kind = entry["dtype"]
        if kind not in _TYPES:
            raise DataError(f"{path}: the tensor {name} is {kind}, which is not read here")
        begin, end = entry["data_offsets"]
        flat = data[begin:end].view(np.ndarray).view(_TYPES[kind])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
