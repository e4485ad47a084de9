"""Where the fake packages keep what they were told: files in the folder FAKE_STORE."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def place(name: str) -> Path:
    return Path(os.environ["FAKE_STORE"]) / name


def load(name: str, empty: Any) -> Any:
    file = place(name)
    return json.loads(file.read_text()) if file.exists() else empty


def save(name: str, content: Any) -> None:
    place(name).write_text(json.dumps(content))


def append(name: str, /, **entry: Any) -> None:
    with place(name).open("a") as file:
        file.write(json.dumps(entry) + "\n")


def entries(name: str) -> list[dict[str, Any]]:
    file = place(name)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
