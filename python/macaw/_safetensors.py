"""Files of tensors: the safetensors format, with NumPy alone.

A file is the length of a header (8 bytes, little-endian), the header (JSON), and the tensors one
after another. Models and prepared data are such files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import CacheError

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
    """Writes these bytes into a file that is named by them. Others never see half a file."""
    pieces = list(pieces)
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    path = folder / f"{digest.hexdigest()}{suffix}"
    try:
        if not path.exists():
            _write(path, pieces)
    except OSError as error:
        raise CacheError(
            f"the cache {folder} cannot be written: {error.strerror or error}; give another folder "
            "with cache=…, or set XDG_CACHE_HOME",
            key="cache",
        ) from error
    return path


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def metadata(path: Path) -> dict[str, str]:
    about: dict[str, str] = _header(path)[0].get("__metadata__", {})
    return about


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What is in a file, and the header's length."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), length


def copy(source: Path, target: Path) -> None:
    """Others never see half of the copy."""
    if target.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    os.close(descriptor)
    try:
        shutil.copyfile(source, name)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def read(path: Path) -> dict[str, Array]:
    """The tensors of a file, mapped and not read. They cannot be changed."""
    header, length = _header(path)
    data = np.memmap(path, np.uint8, mode="r", offset=8 + length)
    tensors: dict[str, Array] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = data[begin:end].view(np.ndarray).view(_TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
