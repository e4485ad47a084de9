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
        modules = BUILD / "lib/macaw"
        has = {part: (modules / f"libmacaw_{part}.so").exists() for part in ("torch", "cuda")}
        gpu = ["--gpu"] if has["cuda"] else []
        subprocess.run(
            ["/usr/bin/python3", SOURCE / "python/wheel.py", BUILD, made, *gpu], check=True
        )
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
        if has["cuda"]:
            self.assertIn("gpu-py3", wheel.name)
            (file,) = place.glob("lib/*/site-packages/macaw/lib/macaw/libmacaw_cuda.so")
            found = subprocess.run(["ldd", file], check=True, capture_output=True, text=True)
            self.assertNotIn("not found", found.stdout)
            table = subprocess.check_output(["readelf", "-d", file], text=True)
            self.assertIn("$ORIGIN/../../../nvidia/nccl/lib", table)
            said = subprocess.run(
                [place / "bin/macaw", "doctor"], env={"HOME": str(self.folder)},
                cwd=self.folder, check=False, capture_output=True, text=True,
            )  # fmt: skip
            self.assertRegex(said.stdout, "back end +cuda: (?!not|there)")
            file.unlink()
        without = WITHOUT_TORCH.replace('"torch"', '"cuda"')
        said = subprocess.run(
            [place / "bin/python", "-c", without], env={"HOME": str(self.folder)},
            cwd=self.folder, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.assertIn("`./dev wheel --gpu` makes a package that has it", said.stdout)
        if not has["torch"]:
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
