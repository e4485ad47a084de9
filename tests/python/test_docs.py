"""The front page and the guides: every block that is marked `<!-- run -->` runs, in order.

A page's blocks share a folder, which has the repository's examples. Blocks of Python share their
variables; the folder of the programs is on the PATH. `<!-- output -->` before a block of text is
what the block before it prints: words are equal, numbers agree within 3 %, and `...` stands for any
text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from test_tutorial import run_cell

from support import BUILD, SOURCE

GUIDES = sorted((SOURCE / "docs").glob("guides/*.md"))
OTHERS = ["README.md", "docs/how-do-i.md", "docs/gallery.md"]
PAGES = [*OTHERS, *(str(page.relative_to(SOURCE)) for page in GUIDES)]
NUMBER = r"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?(?![\w])"


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    output: str | None


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that are marked, with what they are to print."""
    fence = r"```(\w+)\n(.*?)^```$"
    found = []
    for match in re.finditer(rf"^<!-- run -->\n{fence}", text, re.M | re.S):
        after = re.match(rf"\n+<!-- output -->\n{fence}", text[match.end() :], re.M | re.S)
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(line, match[1], match[2], after[2] if after else None))
    return found


def agree(printed: str, expected: str) -> bool:
    """Whether words are equal and numbers close."""
    found, wanted = re.findall(NUMBER, printed), re.findall(NUMBER, expected)
    pattern = re.escape(re.sub(NUMBER, "#", expected.strip())).replace(r"\.\.\.", ".*")
    if not re.fullmatch(pattern, re.sub(NUMBER, "#", printed.strip()), re.S):
        return False
    if "..." in expected:
        return True
    return all(
        abs(float(one) - float(other)) <= 0.03 * abs(float(other))
        for one, other in zip(found, wanted, strict=True)
    )


class Words(unittest.TestCase):
    def test_outputs_agree_by_words_and_nearly_by_numbers(self) -> None:
        self.assertTrue(agree("accuracy 0.901, 20 rounds\n", "accuracy 0.90, 20 rounds"))
        self.assertFalse(agree("accuracy 0.7, 20 rounds\n", "accuracy 0.90, 20 rounds"))
        self.assertFalse(agree("loss 0.9, 20 rounds\n", "accuracy 0.90, 20 rounds"))
        self.assertTrue(agree("a b c", "a ... c"))

    def test_every_mark_is_before_a_block_that_can_run(self) -> None:
        for page in PAGES:
            text = (SOURCE / page).read_text()
            blocks = blocks_of(text)
            self.assertEqual(len(blocks), text.count("<!-- run -->"), page)
            outputs = [block for block in blocks if block.output is not None]
            self.assertEqual(len(outputs), text.count("<!-- output -->"), page)
            for block in blocks:
                self.assertIn(block.language, ("bash", "python"), f"{page}:{block.line}")


class Pages(unittest.TestCase):
    def run_page(self, page: str) -> None:
        blocks = blocks_of((SOURCE / page).read_text())
        self.assertTrue(blocks, f"{page} has nothing that runs")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name in ("examples", "docs"):
            (Path(folder.name) / name).symlink_to(SOURCE / name)
        before = Path.cwd()
        os.chdir(folder.name)
        self.addCleanup(os.chdir, before)
        here = {
            "PATH": f"{BUILD / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": f"{folder.name}/cache",
            "MACAW_PYTHON": sys.executable,
        }
        module = types.ModuleType("page")
        with mock.patch.dict(os.environ, here), mock.patch.dict(sys.modules, page=module):
            for block in blocks:
                place = f"{page}:{block.line}"
                if block.language == "python":
                    said = io.StringIO()
                    with contextlib.redirect_stdout(said):
                        run_cell(block.text, f"<{place}>", module)
                    printed = said.getvalue()
                else:
                    printed = self.run_shell(place, block.text)
                if block.output is not None:
                    printed = printed.replace(str(Path.cwd()), "~/macaw")
                    self.assertTrue(agree(printed, block.output), f"{place} prints\n{printed}")

    def run_shell(self, place: str, text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        said = f"{done.stdout}\n{done.stderr}"
        self.assertEqual(done.returncode, 0, f"{place} ends with {done.returncode}:\n{said}")
        return done.stdout


def add_test(page: str) -> None:
    name = re.sub(r"\W+", "_", page.removesuffix(".md").removeprefix("docs/"))
    setattr(Pages, f"test_{name}_runs", lambda self: self.run_page(page))


for _page in PAGES:
    if "<!-- run -->" in (SOURCE / _page).read_text():
        add_test(_page)

if __name__ == "__main__":
    unittest.main()
