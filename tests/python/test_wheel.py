"""The wheel that `./dev wheel` makes, in an environment without a path and without build tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
import unittest

from support import BUILD, SOURCE, TestCase

SCRIPT = """
import macaw
run = macaw.simulate("logistic", "synthetic", cohort=3, rounds=2, out="run")
print(macaw.__file__, run.summary["rounds"])
"""
# LibTorch is that of the environment, which has none.
WITHOUT_TORCH = """
import macaw
try:
    macaw.simulate("logistic", "synthetic", cohort=3, rounds=2, workers=dict(backend="torch"))
except macaw.MissingBackendError as error:
    print(error)
"""


@unittest.skipUnless(shutil.which("patchelf"), "there is no patchelf (./dev wheel gets it)")
class AWheel(TestCase):
    def test_runs_where_it_is_installed(self) -> None:
        made = self.folder / "wheels"
        subprocess.run(["/usr/bin/python3", SOURCE / "python/wheel.py", BUILD, made], check=True)
        (wheel,) = made.glob("macaw-*.whl")
        place = self.folder / "environment"
        venv = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip"]
        subprocess.run([*venv, place], check=True)
        pip = ["/usr/bin/python3", "-m", "pip", "--python", place / "bin/python"]
        subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
        for program in ("macaw", "macaw-server", "macaw-worker"):
            subprocess.run([place / "bin" / program, "--version"], check=True, env={})
        said = subprocess.run(
            [place / "bin/python", "-c", SCRIPT], env={"HOME": str(self.folder)},
            cwd=self.folder, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.assertIn(str(place), said.stdout)
        self.assertTrue(said.stdout.endswith(" 2\n"), said.stdout)
        if not (BUILD / "lib/macaw/libmacaw_torch.so").exists():
            return
        failed = subprocess.run(
            [place / "bin/python", "-c", WITHOUT_TORCH],
            env={"HOME": str(self.folder)},
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        self.assertRegex(failed.stdout, r"needs PyTorch [0-9.]+.*pip install torch==")
