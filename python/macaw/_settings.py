"""A run's keys: those that are given here, those of its configuration file, and both as TOML."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ConfigError


def value_of(settings: Mapping[str, Any], config: str | os.PathLike[str] | None, key: str) -> Any:
    """A key's value, as it is given or as the file has it. None: neither says it."""
    if key in settings:
        return settings[key]
    if config is None:
        return None
    if sys.version_info >= (3, 11):
        import tomllib

        file = os.fspath(config)
        try:
            table: Any = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            why = f"config: {file} cannot be read: {error.strerror or error}"
            raise ConfigError(why, key="config") from error
        except ValueError as error:  # of TOML, or of UTF-8
            raise ConfigError(f"config: {file} is no TOML: {error}", key="config") from error
    else:
        raise ConfigError(
            f"{key}: Python before 3.11 cannot read it in {os.fspath(config)}: give it as an "
            "argument",
            key=key,
        )
    for part in key.split("."):
        table = table.get(part) if isinstance(table, dict) else None
    return table


def kept_table(text: str, name: str) -> dict[str, Any]:
    """The keys of a table in a run's config.toml, whose values are JSON."""
    found = re.search(rf"^\[{re.escape(name)}\]\n((?:[^\[\n].*\n)*)", text, re.M)
    lines = found.group(1).splitlines() if found else []
    pairs = (line.split(" = ", 1) for line in lines if " = " in line)
    return {key: json.loads(value) for key, value in pairs}


def add(settings: dict[str, Any], table: str, values: Mapping[str, Any]) -> None:
    """Adds the keys of a table. What is None is not given."""
    for name, value in values.items():
        key = f"{table}.{name}" if table else name
        if isinstance(value, Mapping):
            add(settings, key, value)
        elif value is not None:
            settings[key] = value


def to_toml(value: Any) -> str:
    """A value as TOML; paths become absolute."""
    if hasattr(value, "tolist"):  # a number or an array of NumPy: np.float64 is a float, too
        return to_toml(value.tolist())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, os.PathLike):
        return to_toml(os.path.abspath(value))
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise TypeError("it has a whole number of more than 64 bits: the largest is 2**63 - 1")
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        return text if set(text) & set(".en") else f"{text}.0"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(to_toml, value))}]"
    raise TypeError(f"{value!r} is a {type(value).__name__}, which no key takes")


def toml_of(key: str, value: Any, write: Callable[[Any], str] = to_toml) -> str:
    """A key's value as TOML; ConfigError if no key takes it."""
    try:
        return write(value)
    except TypeError as error:
        raise ConfigError(f"{key}: {error}", key=key) from error


def overrides(settings: Mapping[str, Any]) -> list[str]:
    arguments = []
    for key, value in settings.items():
        arguments += ["--set", f"{key}={toml_of(key, value)}"]
    return arguments
