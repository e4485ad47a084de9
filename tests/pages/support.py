"""Pages in a browser of 1280 and of 400 pixels, over the programs of the build (MACAW_BUILD)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

import browser

BUILD = Path(os.environ.get("MACAW_BUILD", "build"))
SOURCE = Path(__file__).parent.parent.parent
WIDTHS = (1280, 400)

FAULTS = (Path(__file__).parent / "faults.js").read_text()  # lists them


def macaw(*arguments: str | Path, program: str = "macaw") -> str:
    """Runs a program of the build and returns what it printed."""
    command = [BUILD / "bin" / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(
            f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


class PageTest(unittest.TestCase):
    """Tests with one browser, and a folder for each class, in which its run's file lies."""

    RUN: str  # the configuration
    browser: browser.Browser
    folder: Path
    config: Path

    @classmethod
    def setUpClass(cls) -> None:
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(cls.RUN)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    def check(self, what: str) -> None:
        """The page that is open has no fault, and its scripts have not failed."""
        faults = self.browser.said + self.browser.run(FAULTS)
        if faults:
            self.fail(f"{what}:\n" + "\n".join(faults))

    def in_each_width(self, page: str | Path) -> Iterator[int]:
        """Opens the page in each width and checks it; yields the width; checks it unfolded."""
        for width in WIDTHS:
            self.browser.open(page, width)
            self.check(f"at {width} px")
            yield width
            self.browser.unfold()
            self.check(f"at {width} px, unfolded")


def main() -> None:
    if browser.program() is None:
        print("skipped: no Chromium here (Debian: chromium-headless-shell)")
        sys.exit(77)
    unittest.main(verbosity=2)
