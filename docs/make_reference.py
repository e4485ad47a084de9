#!/usr/bin/env python3
"""Writes the reference, as pages of Markdown, of what the built programs say of themselves.

    make_reference.py BUILD FOLDER      (NumPy; PYTHONPATH=BUILD/python)

Keys, rules, models and partitions come from `macaw keys --json` and its like, commands from their
`--help`, columns from runs of a second each, the package of Python and the exceptions from their
docstrings, the interfaces of C++ from their headers.
"""

from __future__ import annotations

import fnmatch
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("macaw", "macaw-server", "macaw-worker")
HEADERS = (
    "algorithms/api/algorithm.h", "algorithms/api/description.h", "algorithms/api/workspace.h",
    "algorithms/api/vector_math.h", "training/api/stage.h", "training/api/trainer.h",
    "training/api/backend.h", "sdk/plugin.h", "sdk/testing/round_loop.h",
)  # fmt: skip
# Runs whose rows have, all together, every kind of column: arguments of `macaw simulate`.
SMALL = ("--rounds", "2", "--set", "cohort.size=5", "--set", "evaluation.every=1")
OF_CLIENTS = (
    "evaluation.clients=true", "data.client_test_fraction=0.3", "data.val_fraction=0.2",
    'evaluation.splits=["test","validation","train"]', "evaluation.fine_tune.steps=2",
)  # fmt: skip
RUNS = (
    ("csv", ('evaluation.metrics=["balanced_accuracy","f1","auc","ece"]',
             "data.central_val_fraction=0.1", *OF_CLIENTS)),
    ("csv", ("algorithm.name=ditto", *OF_CLIENTS)),
    ("csv", ("algorithm.name=ifca", "evaluation.groups=[\"short=???\",\"long=*\"]", *OF_CLIENTS)),
    ("csv", ("data.heldout_clients=0.3", "data.heldout_tuning=0.5", "evaluation.heldout=true",
             "evaluation.fine_tune.steps=2")),
    ("csv", ("data.concept_shift=label-permutation", "data.concept_shift_groups=2",
             *OF_CLIENTS[:2])),
    ("synthetic", ("local.weight_decay=0.01", 'evaluation.splits=["train"]')),
    ("csv", ("attack.kind=alie", "attack.fraction=0.4")),
    ("csv", ("attack.kind=backdoor", "attack.fraction=0.4", "attack.trigger=1",
             "data.input_shape=[1,2,3]")),
    ("csv", ('update.codec=["topk 0.1"]', 'broadcast.codec=["bits 8"]')),
    ("csv", ("privacy.mechanism=gaussian", "privacy.clip=1", "privacy.noise=1",
             "privacy.delta=0.01", "cohort.sampling=poisson", "cohort.weight=uniform")),
)  # fmt: skip


class Programs:
    def __init__(self, build: Path) -> None:
        self.folder = build / "bin"

    def say(self, *command: str, cwd: Path | None = None) -> str:
        """What a program prints."""
        done = subprocess.run(
            [str(self.folder / command[0]), *command[1:]],
            capture_output=True, text=True, cwd=cwd, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}"
            sys.exit(f"{' '.join(command)} ends with {done.returncode}:\n{said}")
        return done.stdout


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def code(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`" if value is not None else ""


def keys_page(described: dict[str, Any]) -> str:
    tables: dict[str, list[dict[str, Any]]] = {}
    for key in described["keys"]:
        tables.setdefault(key["key"].split(".")[0] if "." in key["key"] else "", []).append(key)
    text = (
        "# Keys\n\nEvery key of a configuration, as `macaw keys --json` describes it. In a file "
        "`[local] lr = 0.1`, on the command line `--set local.lr=0.1`, in Python "
        "`local=dict(lr=0.1)`. The keys of rules are on their [pages](../rules/README.md).\n"
    )
    for table, keys in tables.items():
        text += f"\n## {table or 'At the top'}\n"
        text += "| key | default | meaning | takes |\n|---|---|---|---|\n"
        for key in keys:
            help_text = cell(key["help"])
            if key["needs"]:
                help_text += f" *Needs {cell(key['needs'])}.*"
            default = code(key.get("default"))
            text += f"| `{key['key']}` | {default} | {help_text} | {cell(key['expected'])} |\n"
    return text


def subcommands(help_text: str) -> list[str]:
    """Names under "Subcommands:"."""
    match = re.search(r"^Subcommands:\n((?:  .*\n|\n)+)", help_text, re.M)
    return re.findall(r"^  (\w[\w-]*)", match[1], re.M) if match else []


def commands(programs: Programs, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    said = programs.say(*words, "--help")
    yield " ".join(words), said
    for name in subcommands(said):
        yield from commands(programs, (*words, name))


def commands_page(programs: Programs) -> str:
    text = "# Commands\n\nWhat each command's `--help` says.\n"
    for program in PROGRAMS:
        for name, said in commands(programs, (program,)):
            text += f"\n## {name}\n```text\n{said.rstrip()}\n```\n"
    header = (ROOT / "cli/process/exit.h").read_text()
    text += "\n## Exit codes\n| code | of |\n|---|---|\n"
    codes = re.findall(
        r"^constexpr int kExit(\w+) = (\d+);((?: *//.*\n(?: +//.*\n)*)?)", header, re.M
    )
    if not codes:
        sys.exit("make_reference.py: cli/process/exit.h has no line `constexpr int kExit… = …;`")
    for name, number, words in codes:
        meaning = " ".join(re.sub(r"\s*//\s*", " ", words).split())
        plain = re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()
        text += f"| {number} | {plain}{': ' + meaning if meaning else ''} |\n"
    return text


def described_columns(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Patterns of columns, and what the program says of them."""
    found = [
        (re.sub(r"STATISTIC|[A-Z]{2,}|N", lambda m: m[0] if m[0] == "STATISTIC" else "*",
                column["columns"]), column["help"])
        for column in described["columns"]
    ]  # fmt: skip

    # Several patterns may match. A pattern of the name's end comes first, then the longest one.
    def named(pattern: str) -> int:
        return len(re.sub(r"\*|_STATISTIC", "", pattern))

    return sorted(found, key=lambda entry: (not entry[0].startswith("*"), -named(entry[0])))


def columns(programs: Programs) -> list[str]:
    found: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (example, settings) in enumerate(RUNS):
            arguments = [part for setting in settings for part in ("--set", setting)]
            programs.say(
                "macaw", "simulate", str(ROOT / f"examples/{example}.toml"), "--quiet", *SMALL,
                *arguments, "--out", f"{folder}/{number}", cwd=Path(folder),
            )  # fmt: skip
            for line in (Path(folder) / str(number) / "metrics.jsonl").read_text().splitlines():
                found.update(dict.fromkeys(json.loads(line)))
    return list(found)


def columns_page(programs: Programs, described: dict[str, Any]) -> str:
    patterns = described_columns(described)
    statistics = {each["name"]: each["help"] for each in described["statistics"]}
    text = (
        "# Columns\n\nThe columns of `metrics.jsonl` in runs that use every kind of evaluation. "
        "What they mean together is in [Runs and their results](../guides/runs.md).\n\n"
        "| column | is |\n|---|---|\n"
    )
    unknown = []
    rows: dict[str, str] = {}
    for name in columns(programs):
        base, _, last = name.rpartition("_")
        # Statistics over clients are one entry.
        entry = f"{base}_STATISTIC" if last in statistics else name
        meaning = next((of for pattern, of in patterns if fnmatch.fnmatch(entry, pattern)), None)
        if meaning is None:
            unknown.append(name)
        else:
            rows.setdefault(f"`{entry}`", meaning)
    if unknown:
        sys.exit(f"server/columns.cc describes none of the columns {', '.join(unknown)}")
    text += "".join(f"| {name} | {meaning} |\n" for name, meaning in rows.items())
    text += "\nSTATISTIC, over clients:\n\n| name | is |\n|---|---|\n"
    return text + "".join(f"| `{name}` | {help} |\n" for name, help in statistics.items())


def lists_page(programs: Programs) -> str:
    text = "# Models, layers, partitions\n"
    for title, command in (("Models and layers", "models"), ("Partitions", "partitions")):
        said = programs.say("macaw", command).rstrip()
        text += f"\n## {title}\n`macaw {command}`\n```text\n{said}\n```\n"
    return text


def docstring(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def signature(thing: Any) -> str:
    try:
        return re.sub(r"'([\w.\[\], |]+)'", r"\1", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return ""


def python_page() -> str:
    import macaw

    text = "# The package of Python\n\nMade from its docstrings. "
    text += "Rules have their [pages](../rules/README.md).\n"
    for name in macaw.__all__:
        thing = getattr(macaw, name)
        own = name not in macaw.algorithms.__all__ and not name.startswith("__")
        if not own or inspect.ismodule(thing) or not docstring(thing):
            continue
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue
        text += f"\n## macaw.{name}\n```text\n{name}{signature(thing)}\n\n{docstring(thing)}\n```\n"
        if not inspect.isclass(thing):
            continue
        for member, value in vars(thing).items():
            public = not member.startswith("_") and (callable(value) or isinstance(value, property))
            if public and docstring(value):
                shown = "" if isinstance(value, property) else signature(value)
                text += f"\n### {name}.{member}\n"
                text += f"```text\n{member}{shown}\n\n{docstring(value)}\n```\n"
    return text


def errors_page() -> str:
    import macaw.errors

    text = "# Exceptions\n\n" + docstring(macaw.errors).replace("``", "`")
    text += "\n\n| exception | is a | when |\n|---|---|---|\n"
    for name, thing in vars(macaw.errors).items():
        if inspect.isclass(thing) and issubclass(thing, Exception):
            bases = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
            when = cell(docstring(thing)).replace("``", "`")
            text += f"| `macaw.errors.{name}` | {bases} | {when} |\n"
    return text


def headers_page() -> str:
    text = "# Interfaces of C++\n\n"
    text += "The headers that a rule, a plug-in or a back end is written with.\n"
    for name in HEADERS:
        header = (ROOT / name).read_text().removeprefix("#pragma once\n").strip()
        text += f"\n## {name}\n```cpp\n{header}\n```\n"
    return text


def main() -> None:
    build, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{build / 'bin'}:{os.environ['PATH']}"
    programs = Programs(build)
    described = json.loads(programs.say("macaw", "keys", "--json"))
    pages = {
        "keys": keys_page(described),
        "columns": columns_page(programs, described),
        "commands": commands_page(programs),
        "lists": lists_page(programs),
        "python": python_page(),
        "errors": errors_page(),
        "cpp": headers_page(),
    }
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
        print(f"{folder / name}.md: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
