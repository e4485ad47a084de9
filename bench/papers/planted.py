"""Data whose truth is known: what the scenarios plant, drawn with NumPy from a run's seed."""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Callable

import numpy as np

CLIENTS, KINDS, ROWS = 20, 4, 200  # of `turned` and `minority`


def images(folder: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """The 10,000 test images of MNIST, uint8 [rows, 28, 28], and their digits."""
    with gzip.open(folder / "t10k-images-idx3-ubyte.gz") as file:
        x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / "t10k-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)
    return x, y.astype(np.int64)


def kind_of(client: int) -> int:
    """How many quarters the images of the client of `turned` are turned."""
    return client % KINDS


def turned(seed: int, folder: pathlib.Path, out: pathlib.Path) -> list[str]:
    """Clients of four kinds, who see all digits turned by 0, 90, 180 and 270 degrees."""
    return seen_turned(seed, folder, out / "turned.npz", kind_of)


def minority(seed: int, folder: pathlib.Path, out: pathlib.Path) -> list[str]:
    """Three clients of twenty see all digits turned by 90 degrees."""
    return seen_turned(
        seed, folder, out / "minority.npz", lambda client: int(client >= CLIENTS - 3)
    )


def seen_turned(
    seed: int, folder: pathlib.Path, file: pathlib.Path, quarters: Callable[[int], int]
) -> list[str]:
    """Equal shares of images, which each client sees turned by so many quarters."""
    x, y = images(folder)
    rows = np.random.default_rng(seed).permutation(len(y))[: CLIENTS * ROWS].reshape(CLIENTS, ROWS)
    seen = np.concatenate(
        [np.rot90(x[mine], quarters(client), axes=(1, 2)) for client, mine in enumerate(rows)]
    )
    whose = np.repeat(np.arange(CLIENTS), ROWS)
    np.savez(file, x=np.ascontiguousarray(seen), y=y[rows.ravel()], client=whose)
    return [f"data.path={file}"]


def domains(seed: int, folder: pathlib.Path, out: pathlib.Path) -> list[str]:
    """Three clients with one digit each, digits that look alike, 200 to 600 rows and 200 to test."""
    _, y = images(folder)
    draw = np.random.default_rng(seed)
    division, tested = {}, {}
    for digit, rows in ((3, 600), (5, 400), (8, 200)):
        mine = draw.permutation(np.flatnonzero(y == digit)).tolist()
        division[f"digit {digit}"], tested[f"digit {digit}"] = mine[200:][:rows], mine[:200]
    file = out / "domains.json"
    file.write_text(json.dumps({**division, "test": [], "client_test": tested}))
    return [f"partition.path={file}"]


def interpolated(
    seed: int, _: pathlib.Path, out: pathlib.Path, *, clients: int = 20, rows: int = 5,
    width: int = 400,
) -> list[str]:  # fmt: skip
    """Linear regression with fewer rows than weights, so that a model fits all clients exactly."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((clients * rows, width)) / np.sqrt(width)
    y = x @ draw.standard_normal(width)
    whose = np.repeat(np.arange(clients), rows)
    file = out / "interpolated.npz"
    np.savez(file, x=x.astype(np.float32), y=y.astype(np.float32), client=whose)
    return [f"data.path={file}"]
