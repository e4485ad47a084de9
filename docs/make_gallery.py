#!/usr/bin/env python3
"""Runs docs/gallery.md and draws its pictures into docs/gallery/.

    make_gallery.py BUILD      (NumPy and matplotlib; PYTHONPATH=BUILD/python)

Blocks that are marked `<!-- run -->` run in order in a folder of their own, as in
tests/python/test_docs.py. A block after `<!-- picture: NAME -->` draws `figure`, which is kept
under that name. The tests leave these out.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))


def main() -> None:
    build = Path(sys.argv[1]).resolve()
    os.environ["MACAW_BUILD"] = str(build)
    from test_tutorial import run_cell

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "macaw", "font.size": 9, "axes.spines.top": False})
    pictures = ROOT / "docs/gallery"
    pictures.mkdir(exist_ok=True)
    text = (ROOT / "docs/gallery.md").read_text()
    module = types.ModuleType("gallery")
    sys.modules["gallery"] = module
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("examples").symlink_to(ROOT / "examples")
        os.environ["PATH"] = f"{build / 'bin'}:{os.environ['PATH']}"
        os.environ["XDG_CACHE_HOME"] = folder
        marked = r"^<!-- (?:run|picture: (\S+)) -->\n```(\w+)\n(.*?)^```$"
        for match in re.finditer(marked, text, re.M | re.S):
            picture, language, code = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            print(f"gallery.md:{line}", flush=True)
            if language == "bash":
                subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
            else:
                with contextlib.redirect_stdout(io.StringIO()):
                    run_cell(code, f"<gallery.md:{line}>", module)
            if picture:
                module.figure.savefig(pictures / picture, metadata={"Date": None})
        shutil.copyfile("timeline.svg", pictures / "timeline.svg")


if __name__ == "__main__":
    main()
