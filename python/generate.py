#!/usr/bin/env python3
"""Writes the modules that follow from the program: keys.py, algorithms.py, _run_columns.py and
_version.py.

    generate.py FOLDER TORCH PROGRAM...

TORCH is the version of PyTorch that the LibTorch back end is built with; empty: there is none.
PROGRAM keys --json describes the keys (cli/config/describe.h). The build calls this.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

_TYPES = {
    "boolean": "bool",
    "integer": "int",
    "number": "float",
    "string": "str",
    "list of strings": "Sequence[str]",
    "list of integers": "Sequence[int]",
    "list of numbers": "Sequence[float]",
}
_HEAD = '"""{}\n\nMade from `macaw keys --json` by python/generate.py.\n"""\n\n'
# The tables for which simulate() has an argument of its own.
_OWN = {"algorithm", "cohort", "data", "local", "model", "partition"}

# Keys that the package of Python makes others of.
_OF_PYTHON = [
    {
        "key": "privacy.epsilon",
        "types": ["number"],
        "choices": [],
        "path": False,
        "help": "what the run may spend: privacy.noise is found for it, and privacy.delta is "
        "a tenth of 1 / clients by default; needs privacy.clip; from Python alone",
        "expected": "a number > 0",
        "needs": "",
    }
]

Key = dict[str, Any]


def camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split("[._]", name))


def docstring(text: str, indent: str) -> str:
    """As a docstring, with lines of at most 100 columns."""
    lines: list[str] = []
    for line in text.replace("\\", "\\\\").splitlines():
        start = re.match(r" *", line)
        assert start is not None
        room = 100 - len(indent) - 3
        rest = start.group() + ("    " if ": " in line[:40] else "")
        lines += textwrap.wrap(line, room, subsequent_indent=rest) or [""]
    body = f"\n{indent}".join(lines).replace(f"\n{indent}\n", "\n\n")
    return f'{indent}"""{body}{chr(10) + indent if len(lines) > 1 else ""}"""\n'


def type_of(key: Key) -> str:
    """The type of a key's values, with its words where it takes nothing else."""
    types = [_TYPES[name] for name in key["types"]]
    words = [word for word in key["choices"] if f'"{word}"' in key["expected"]]
    open_words = key["path"] or " or " in key["expected"]
    if "str" in types and words and not open_words:
        literal = f"Literal[{', '.join(json.dumps(word) for word in words)}]"
        types[types.index("str")] = literal
    if key["path"]:
        types = [name.replace("str", "Path") for name in types]
    return " | ".join(types)


def about(key: Key) -> str:
    default = f"; default: {json.dumps(key['default'])}" if "default" in key else ""
    return f"{key['help']} ({key['expected']}{default}){needs(key)}"


def needs(key: Key) -> str:
    return f"; needs {key['needs']}" if key["needs"] else ""


def keys_module(keys: list[Key]) -> str:
    tables: dict[str, dict[str, str]] = {}
    notes: dict[str, list[str]] = {}
    for key in keys:
        *path, name = key["key"].split(".")
        table = ".".join(path)
        tables.setdefault(table, {})[name] = type_of(key)
        notes.setdefault(table, []).append(f"{name}: {about(key)}")
        for depth in range(len(path) - 1, 0, -1):
            inner, outer = path[depth], ".".join(path[:depth])
            tables.setdefault(outer, {}).setdefault(inner, camel(".".join(path[: depth + 1])))
            notes.setdefault(outer, [])
    text = _HEAD.format("The tables of a configuration, as types of dicts.")
    text += (
        "from __future__ import annotations\n\nimport os\nfrom collections.abc import Sequence\n"
        "from typing import Literal, TypedDict\n\nPath = str | os.PathLike[str]\n"
    )
    top = tables.pop("", {})
    for table in sorted(tables, key=lambda name: (-name.count("."), name)):
        text += f"\n\nclass {camel(table)}(TypedDict, total=False):\n"
        text += docstring(f"[{table}]\n\n" + "\n".join(notes[table]), "    ")
        text += "\n" + "".join(f"    {name}: {of}\n" for name, of in tables[table].items())
    text += "\n\nclass Sections(TypedDict, total=False):\n"
    text += docstring("Every table for which simulate() has no argument of its own.", "    ")
    text += "\n" + "".join(f"    {name}: {of}\n" for name, of in top.items())
    for table in tables:
        if "." not in table and table not in _OWN:
            text += f"    {table}: {camel(table)}\n"
    return text


def class_name(algorithm: Key, names: list[str]) -> str:
    """How papers write it: FedProx, SCAFFOLD, FedAvgM."""
    name = algorithm["name"]
    for word in re.findall(r"\w+", f"{algorithm['summary']} {algorithm['paper']}"):
        if word.lower() == name and word != name:
            return str(word)
    for part in sorted(names, key=len, reverse=True):
        if part != name and len(part) > 3 and name.startswith(part):
            return _spelled(part) + camel(name.removeprefix(part))
        if part != name and len(part) > 3 and name.endswith(part):
            return camel(name.removesuffix(part)) + _spelled(part)
    return _spelled(name)


def _spelled(name: str) -> str:
    if name.startswith("fed"):
        return "Fed" + camel(name.removeprefix("fed"))
    return name.upper() if len(name) < 3 else camel(name)


def algorithm_class(algorithm: Key, name: str) -> str:
    note = f"{algorithm['summary'][:1].upper()}{algorithm['summary'][1:]}.\n\n"
    note += f"{algorithm['paper']}.\n\n"
    if algorithm["formula"]:
        note += "".join(f"    {line}\n" for line in algorithm["formula"].splitlines()) + "\n"
    if algorithm["remarks"]:
        note += f"{algorithm['remarks']}\n\n"
    fields = ""
    for key in algorithm["parameters"]:
        own = key["name"] + ("_" if keyword.iskeyword(key["name"]) else "")
        words = ", ".join(json.dumps(word) for word in key["choices"])
        kind = f"Literal[{words}]" if words else _TYPES[key["type"]]
        note += f"{own}: {key['help']} ({key['expected']}){needs(key)}\n"
        standard = key["default"]
        value = json.dumps(standard) if isinstance(standard, str) else repr(standard)
        fields += f"    {own}: {kind} = {value}\n"
    text = f"\n\n@dataclass(frozen=True)\nclass {name}(Algorithm):\n"
    text += docstring(note.rstrip(), "    ")
    return f'{text}\n    name: ClassVar[str] = "{algorithm["name"]}"\n{fields}'


_ALGORITHM = '''
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from ._names import refuse_unknown


@dataclass(frozen=True)
class Algorithm:
    """A rule and its parameters. They are checked when a run begins."""

    name: ClassVar[str]

    def __new__(cls, *_: Any, **given: Any) -> Algorithm:
        refuse_unknown(cls.__name__, [field.name for field in fields(cls)], given)
        return super().__new__(cls)

    def parameters(self) -> dict[str, Any]:
        """The parameters by the names that a configuration has."""
        return {field.name.removesuffix("_"): getattr(self, field.name) for field in fields(self)}
'''


def algorithms_module(algorithms: list[Key]) -> str:
    names = [algorithm["name"] for algorithm in algorithms]
    classes = {class_name(algorithm, names): algorithm for algorithm in algorithms}
    text = _HEAD.format("The algorithms, as classes.").rstrip("\n") + "\n" + _ALGORITHM
    for name, algorithm in classes.items():
        text += algorithm_class(algorithm, name)
    listed = "".join(f'    "{name}",\n' for name in sorted(["Algorithm", *classes]))
    return f"{text}\n\n__all__ = [\n{listed}]\n"


def columns_module(columns: list[dict[str, str]]) -> str:
    """Names are as they are; in patterns, which are for families, * stands for a metric."""
    names = [column["columns"] for column in columns]
    whole = [name for name in names if re.fullmatch("[a-z0-9_]+", name)]
    metrics = ["loss", "accuracy", *(name[2:] for name in names if name.startswith("*_"))]
    text = _HEAD.format("The columns of a run's rows (server/columns.h).").rstrip("\n") + "\n"
    for name, about, values in (
        ("COLUMNS", "Those that are no family.", whole),
        ("METRICS", "The ends of families, such as that of test_loss.", metrics),
    ):
        listed = "".join(f'    "{value}",\n' for value in values)
        text += f"\n#: {about}\n{name} = (\n{listed})\n"
    return text


def main() -> None:
    folder, torch = Path(sys.argv[1]), sys.argv[2]
    described = json.loads(subprocess.check_output([*sys.argv[3:], "keys", "--json"]))
    version = described["version"]
    modules = {
        "keys.py": keys_module([*described["keys"], *_OF_PYTHON]),
        "algorithms.py": algorithms_module(described["algorithms"]),
        "_run_columns.py": columns_module(described["columns"]),
        "_version.py": (
            f'"""Of the programs, and of the PyTorch that their LibTorch back end needs."""\n'
            f'\nversion = "{version}"\ntorch = "{torch}"\n'
        ),
    }
    for name, text in modules.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
