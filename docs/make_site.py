#!/usr/bin/env python3
"""Makes the site of the repository's pages: `./dev docs`.

    make_site.py REFERENCE WORK SITE       (mkdocs-material of docs.lock)

Pages keep their places, so that their links hold; what a page links to besides pages is copied
along. REFERENCE is the folder of make_reference.py. A broken link or anchor ends it with 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from check_links import ROOT, blocks, files

LINK = r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)"


def notebook_page(path: Path) -> str:
    """A notebook as a page: text, and its code in blocks."""
    text = ""
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        prose = cell["cell_type"] == "markdown"
        text += f"{source}\n\n" if prose else f"```python\n{source}\n```\n\n"
    return text


def stage(work: Path, reference: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    linked = set()
    for name in files():
        if not name.endswith(".md") or name.startswith(".github/"):
            continue
        text = (ROOT / name).read_text().replace("tutorial.ipynb)", "tutorial.md)")
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
        for target in re.findall(LINK, blocks(text)):
            if not re.match(r"[a-z]+:", target):
                linked.add((ROOT / name).parent.joinpath(target).resolve().relative_to(ROOT))
    for path in linked:
        if (ROOT / path).is_file() and not (work / path).exists():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, work / path)
    (work / "docs/tutorial.md").write_text(notebook_page(ROOT / "docs/tutorial.ipynb"))
    shutil.copytree(reference, work / "docs/reference")


def main() -> int:
    reference, work, site = (Path(argument).resolve() for argument in sys.argv[1:4])
    stage(work, reference)
    config = (ROOT / "docs/mkdocs.yml").read_text() + f"docs_dir: {work}\nsite_dir: {site}\n"
    (work.parent / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.call([*command, "--config-file", work.parent / "mkdocs.yml"], env=quiet)


if __name__ == "__main__":
    sys.exit(main())
