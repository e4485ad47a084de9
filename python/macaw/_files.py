"""Files that other processes read at any time: they see all of one, or the one before."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from .errors import CacheError

Pieces = Iterable["bytes | memoryview"]

_PART = 1 << 20  # bytes of a file that are compared at a time


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which is at the path when all of it is there. Others may read it, as the
    umask says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with aside.open("xb") as file:
            yield file
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write(path: Path, pieces: Pieces) -> None:
    with replacing(path) as file:
        for piece in pieces:
            file.write(piece)


def keep(path: Path, content: bytes) -> Path:
    """Leaves a file of the cache alone that holds these bytes, and writes any other. Its absolute
    path."""
    with cache_errors(path.parent):
        if not path.exists() or not holds(path, [content]):
            write(path, [content])
    return path.resolve()


def holds(path: Path, pieces: Pieces) -> bool:
    """Whether the file has these bytes, and no others."""
    part = np.empty(_PART, np.uint8)
    with path.open("rb", buffering=0) as file:
        for piece in pieces:
            wanted = np.frombuffer(piece, np.uint8)
            at = 0
            while at < len(wanted):
                count = file.readinto(part[: len(wanted) - at].data)
                if not count or not np.array_equal(part[:count], wanted[at : at + count]):
                    return False
                at += count
        return not file.read(1)


@contextlib.contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Errors of the system as those of the cache, which this folder is of."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"the cache {folder} cannot be written: {error.strerror or error}; give another folder "
            "with cache=…, or set XDG_CACHE_HOME",
            key="cache",
        ) from error
