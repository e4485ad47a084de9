"""A copy of `dev` in a folder of its own, with stand-ins for the programs that it starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
LIMIT = 60  # seconds, for what takes less than one

# Notes its arguments in `calls`. Configuring leaves what a build folder has; a build does what
# BUILDING says.
CMAKE = r"""
echo "$*" >>"$STANDINS/calls"
case $1 in
  --preset)
    mkdir -p "$4"
    { echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD"; echo "MACAW_TORCH:BOOL=${5#*=}"
      if [ "$2" = cuda ]; then echo MACAW_CUDA:STRING=ON; fi; } >"$4/CMakeCache.txt"
    touch "$4/build.ninja" ;;
  --build) eval "${BUILDING:-:}" ;;
esac
"""
STANDINS = {
    "cmake": CMAKE,
    "dpkg-query": "echo ${PACKAGES-installed}",
    "sudo": 'exec "$@"',
    "apt-get": 'echo "$*" >>"$STANDINS/apt"; eval "${APT:-:}"',
}


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def wait_for(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Copy(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        for name in ("dev", "deps.lock", "cuda.lock", "CMakePresets.json"):
            shutil.copy(SOURCE / name, self.tree / name)
        write_script(self.tree / "cmake/arm64_sysroot.sh", 'mkdir -p "$1"')
        self.bin = self.folder / "bin"
        for name, text in STANDINS.items():
            write_script(self.bin / name, text)

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MACAW_", "CUDA"))}
        environment |= {"PATH": f"{self.bin}:{environment['PATH']}", "STANDINS": str(self.folder)}
        with (self.folder / "said").open("a") as said:
            process = subprocess.Popen(
                ["./dev", *arguments],
                cwd=self.tree,
                env=environment | settings,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def dev(self, *arguments: str, code: int = 0, **settings: str) -> str:
        """What a call says that ends with this code."""
        before = len(self.said())
        process = self.start(*arguments, **settings)
        process.wait(timeout=LIMIT)
        said = self.said()[before:]
        self.assertEqual(process.returncode, code, said)
        return said

    def said(self) -> str:
        path = self.folder / "said"
        return path.read_text() if path.exists() else ""

    def calls(self, word: str) -> list[str]:
        """The calls of cmake that begin so."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(word)]


def presets() -> dict[str, str]:
    """The folder of each preset in CMakePresets.json."""
    listed = json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]
    by_name = {preset["name"]: preset for preset in listed}
    folders = {}
    for name, preset in by_name.items():
        folder = preset.get("binaryDir") or by_name[preset["inherits"]]["binaryDir"]
        folders[name] = folder.removeprefix("${sourceDir}/")
    return folders
