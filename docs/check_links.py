#!/usr/bin/env python3
"""Checks what the repository's pages name: links, their anchors, and paths in `code`.

    check_links.py        prints a line for each that does not exist, and ends with 1

A link points to a file of the repository. A path in code is one of the repository
(`server/engine/draw`, with or without its ending), of the page's folder, or the name of a source
that exists somewhere. A benchmark is one that bench/README.md lists.
Files that a run writes and placeholders (`tests/ROOM/UNIT_test.cc`) are not
looked at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = "h|cc|cu|cuh|proto|cmake"  # endings of which a bare name is a file of ours


@cache
def files() -> frozenset[str]:
    """Tracked and new files of the repository; of a tree without git all but what is built."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
        return frozenset(name for name in listed if (ROOT / name).exists())
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return frozenset(
        str(path) for path in paths if not path.parts[0].startswith(("build", ".deps", "runs"))
    )


@cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for name in files() for parent in Path(name).parents)


@cache
def names() -> frozenset[str]:
    return frozenset(Path(name).name for name in files())


def blocks(text: str) -> str:
    """The page without its fenced blocks, whose lines stay empty so that numbers of lines hold."""
    inside, kept = False, []
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
            line = ""
        kept.append("" if inside or line.startswith("    ") else line)
    return "\n".join(kept)


@cache
def anchors(name: str) -> frozenset[str]:
    """What the page's headings are called in links, as GitHub does it."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.*)$", blocks((ROOT / name).read_text()), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = found.get(slug, -1) + 1
        found[slug] = count
        if count:
            found[f"{slug}-{count}"] = 0
    return frozenset(found)


def wrong_links(page: str, text: str) -> Iterator[tuple[int, str]]:
    without_code = re.sub(r"`[^`\n]*`", "", text)
    for number, line in enumerate(without_code.splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            name = page
            if path:
                name = str((ROOT / page).parent.joinpath(path).resolve().relative_to(ROOT))
            if name not in files():
                kind = "a folder: link a file in it" if name in folders() else "not there"
                yield number, f"{target} is {kind}"
            elif anchor and name.endswith(".md") and anchor not in anchors(name):
                yield number, f"{name} has no heading #{anchor}"


def exists(page: str, path: str) -> bool:
    """Whether code that looks like a path names something of the root or of the page's folder."""
    for base in (Path(), Path(page).parent):
        name = str(base / path)
        if name in files() or name in folders():
            return True
        if any(other.startswith((name + ".", name + "_")) for other in files()):
            return True
    return any(other.endswith("/" + path) for other in files())


def wrong_paths(page: str, text: str) -> Iterator[tuple[int, str]]:
    tops = {Path(name).parts[0] for name in files() if "/" in name} - {"docs"}
    for number, line in enumerate(text.splitlines(), 1):
        for code in re.findall(r"`([\w./-]+)`", line):
            path = code.removeprefix("./").rstrip("/")
            placeholder = re.search(r"(^|[/_])[A-Z]{3,}([/_.]|$)", path) or "..." in path
            if placeholder or path.startswith("/"):
                continue
            if re.fullmatch(rf"\w[\w-]*\.({SOURCES})", path) and path not in names():
                yield number, f"`{code}` is no file"
            ours = path.split("/")[0] in tops or re.search(rf"\.({SOURCES})$", path)
            if "/" in path and ours and not exists(page, path):
                yield number, f"`{code}` is not there"


@cache
def benchmarks() -> frozenset[str]:
    table = (ROOT / "bench/README.md").read_text()
    return frozenset(re.findall(r"^\| `([a-z_]+)", table, re.M))


def wrong_benchmarks(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"\./dev bench ([a-z_]+)", line):
            if name not in benchmarks():
                yield number, f"./dev bench {name} is not in bench/README.md"


def main() -> int:
    count = 0
    # A changelog names what was there; notes name the files of others.
    others = ("CHANGELOG.md", "NOTE.md")
    pages = sorted(n for n in files() if n.endswith(".md") and not n.endswith(others))
    for page in pages:
        text = blocks((ROOT / page).read_text())
        wrong = [*wrong_links(page, text), *wrong_paths(page, text), *wrong_benchmarks(text)]
        for number, what in sorted(wrong):
            print(f"{page}:{number}: {what}")
            count += 1
    if not count:
        print(f"{len(pages)} pages: every link and path exists")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
