"""What packages run on a user's machine, what is installed, and the list of what is in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from support import LIMIT, SOURCE, Copy, write_script


class Scripts(Copy):
    """Maintainer scripts, over a root of their own, where systemd refuses everything."""

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "run/systemd/system").mkdir(parents=True)
        refuses = 'echo "$*" >>"$STANDINS/systemctl"; case $1 in is-*) exit 0 ;; esac; exit 1'
        write_script(self.bin / "systemctl", refuses)
        for name in ("adduser", "install", "getent"):
            write_script(self.bin / name, ":")

    def run_script(self, name: str, argument: str, path: str = "") -> tuple[int, str]:
        text = (SOURCE / "deploy" / name).read_text()
        rooted = re.sub(r"(?<=[ '])/(run|etc|var)/", rf"{self.folder}/\1/", text)
        self.assertNotRegex(rooted, r"(?<=[ '])/(etc|var)/")
        done = subprocess.run(
            ["/bin/sh", "-c", rooted, name, argument],
            env={"PATH": path or f"{self.bin}:{os.environ['PATH']}", "STANDINS": str(self.folder)},
            capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        return done.returncode, done.stderr

    def test_a_service_that_does_not_start_or_stop_is_told_and_fails_nothing(self) -> None:
        for room in ("server", "worker", "backend"):
            code, said = self.run_script(f"{room}/postinst", "configure")
            self.assertEqual(code, 0, said)
            self.assertIn("has not started again", said)
        for room in ("server", "worker"):
            code, said = self.run_script(f"{room}/prerm", "remove")
            self.assertEqual(code, 0, said)
            self.assertIn("has not stopped", said)

    def test_a_back_end_reaches_the_worker(self) -> None:
        self.run_script("backend/postinst", "configure")
        calls = (self.folder / "systemctl").read_text().splitlines()
        for call in ("daemon-reload", "try-restart", "reset-failed", "start"):
            self.assertTrue(any(line.startswith(call) for line in calls), f"{call}: {calls}")
        text = (SOURCE / "deploy/CMakeLists.txt").read_text()
        for name in ("macaw-backend-torch", "macaw-backend-cuda"):
            package = re.search(rf"macaw_package\({name} .*?\)\n\w", text, re.S)
            assert package is not None
            self.assertIn("SCRIPTS backend/postinst", package[0])

    def test_a_purge_does_without_adduser(self) -> None:
        for name in ("rm", "rmdir"):
            write_script(self.folder / "few" / name, ":")
        write_script(self.folder / "few/getent", ":")
        write_script(self.folder / "few/systemctl", "exit 1")
        for room in ("server", "worker"):
            code, said = self.run_script(f"{room}/postrm", "purge", str(self.folder / "few"))
            self.assertEqual(code, 0, said)
        self.assertEqual(self.run_script("backend/postrm", "remove")[0], 0)


class Sdk(unittest.TestCase):
    def test_installed_headers_include_installed_headers(self) -> None:
        text = (SOURCE / "sdk/CMakeLists.txt").read_text()
        listed = re.search(r"^foreach\(room (.*?)\)", text, re.M)
        assert listed is not None
        rooms = listed[1].split()
        for room in rooms:
            for header in (SOURCE / room).rglob("*.h"):
                for included in re.findall(r'^#include "(.*?)"', header.read_text(), re.M):
                    if (SOURCE / included).exists():
                        self.assertIn(included.split("/")[0], rooms, f"{header} has {included}")


class Trials(Copy):
    """Parts of the scripts that try what was made."""

    def bash(self, text: str, code: int) -> str:
        done = subprocess.run(
            ["bash", "-euc", text, "bash", str(self.folder)],
            capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def part(self, script: str, first: str, last: str) -> str:
        text = (SOURCE / script).read_text()
        begin = text.index(first)
        return text[begin : text.index(last, begin) + len(last)]

    def test_two_models_that_are_missing_are_not_the_same(self) -> None:
        compare = self.part("deploy/fleet.sh", "digest() {", "\n") + "home=$1\n"
        compare += self.part("deploy/fleet.sh", "code=0\nfor what", "exit $code\n")
        for name in ("run", "simulated"):
            (self.folder / name).mkdir()
            (self.folder / name / "summary.json").write_text("{}\n")
        self.assertIn("DIFFERENT", self.bash(compare, 1))
        for name in ("run", "simulated"):
            (self.folder / name / "summary.json").write_text('{\n  "model_digest": "ab"\n}\n')
        self.assertIn("same", self.bash(compare, 0))

    def test_a_path_in_a_hook_is_quoted_for_sh(self) -> None:
        quoted = self.part("deploy/container/build.sh", "quoted() {", "\n")
        for path in ("/a b/it's", "/tab\there/c\u00e9", "/plain"):
            (self.folder / "path").write_text(path)
            said = self.bash(quoted + 'sh -c "printf %s $(quoted "$(cat "$1/path")")"', 0)
            self.assertEqual(said, path)

    def test_a_package_that_cannot_be_unpacked_is_an_error(self) -> None:
        unpack = "packages=$1\nset -o pipefail\n"
        unpack += self.part("deploy/try_packages.sh", "say() {", "unpack() {")
        unpack += self.part("deploy/try_packages.sh", "\n  local file pattern", "\n}\n")
        unpack += 'if unpack deb macaw-data-hdf5 "$1"; then echo tried; fi'
        self.assertIn("no package macaw-data-hdf5", self.bash(unpack, 0))
        broken = self.folder / "macaw-data-hdf5_0.1.0_amd64.deb"
        broken.write_text("half a package")
        self.assertIn(str(broken), self.bash(unpack, 1))


class Bill(Copy):
    """deploy/sbom.py, over a build folder whose program loads what `ldd` says here."""

    def setUp(self) -> None:
        super().setUp()
        self.build = self.folder / "build"
        write_script(self.build / "bin/macaw", ":")
        self.loads("libc.so.6 => /usr/lib/libc.so.6 (0x0)")
        owner = """if [ "$1" = -W ]; then echo -n "1.0 amd64 installed"; exit 0; fi
          for path in "$@"; do
            if [ "$path" = /lib/libc.so.6 ]; then echo "libc6:amd64: $path"; fi
          done
          exit 1"""
        write_script(self.bin / "dpkg-query", owner)
        self.script = self.tree / "deploy/sbom.py"
        self.script.parent.mkdir()
        self.script.write_text((SOURCE / "deploy/sbom.py").read_text())

    def loads(self, text: str) -> None:
        write_script(self.bin / "ldd", f"echo '{text}'")

    def bill(self, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, str(self.script), str(self.build), "1.2.3"],
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout + done.stderr

    def cache(self, text: str) -> None:
        (self.build / "CMakeCache.txt").write_text(text + "\n")

    def test_the_wheels_of_the_compiler_are_listed_where_it_built(self) -> None:
        said = self.bill()
        self.assertIn('"libc6"', said)
        self.assertNotIn("nvidia-cuda-nvcc", said)
        self.cache("MACAW_NVCC:FILEPATH=/usr/local/cuda/bin/nvcc")
        self.assertNotIn("nvidia-cuda-nvcc", self.bill())
        self.cache(f"MACAW_NVCC:FILEPATH={self.tree}/.deps/cuda-0123/nvidia/cu13/bin/nvcc")
        self.assertIn("nvidia-cuda-nvcc", self.bill())

    def test_no_programs_are_an_error(self) -> None:
        (self.build / "bin/macaw").unlink()
        self.assertIn("no programs", self.bill(code=1))

    def test_an_object_that_nobody_owns_is_an_error(self) -> None:
        own = self.build / "lib/libmacaw_testing.so"
        self.loads(f"libmacaw_testing.so => {own} (0x0)")
        self.bill()
        self.loads("libown.so => /opt/own/libown.so (0x0)")
        self.assertIn("/opt/own/libown.so", self.bill(code=1))
        self.cache("MACAW_LIBTORCH_ROOT:PATH=/opt/own")
        self.bill()
        # A folder of another tree is no older one of this.
        other = "/opt/other/.deps/libtorch-0123"
        self.loads(f"libtorch_cpu.so => {other}/torch/lib/libtorch_cpu.so (0x0)")
        self.cache(f"MACAW_LIBTORCH_ROOT:PATH={other}")
        self.bill()

    def test_a_library_that_is_missing_is_an_error(self) -> None:
        self.loads("libown.so => not found")
        self.assertIn("libown.so", self.bill(code=1))
        write_script(self.bin / "ldd", "exit 1")
        self.assertIn("ldd", self.bill(code=1))

    def test_a_line_of_a_lock_that_says_nothing_is_an_error(self) -> None:
        lock = self.tree / "deps.lock"
        lock.write_text(lock.read_text() + "torch==2.11.0 --hash=md5:0\n")
        self.assertIn("deps.lock:", self.bill(code=1))


class Locks(Copy):
    """What cmake/ makes of a lock that has changed, in a folder that was configured before."""

    def configure(self, *options: str, code: int = 0, **environment: str) -> str:
        done = subprocess.run(
            ["cmake", "-G", "Ninja", "-S", str(self.tree), "-B", str(self.folder / "b"), *options],
            env={key: value for key, value in os.environ.items() if key != "CUDACXX"} | environment,
            capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, said)
        return said

    def project(self, module: str) -> None:
        text = (SOURCE / "cmake" / module).read_text()
        (self.tree / "cmake" / module).write_text(text)
        (self.tree / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(locks NONE)\n"
            f"include(cmake/{module})\n"
            'message(STATUS "root=${MACAW_LIBTORCH_ROOT}=")\n'
        )

    def libtorch(self, name: str) -> str:
        folder = self.tree / ".deps" / f"libtorch-{name}"
        (folder / "torch/lib").mkdir(parents=True)
        (folder / "torch/lib/libtorch_cpu.so").touch()
        return str(folder)

    def lock_id(self, lock: str) -> str:
        done = subprocess.check_output(["sha256sum", str(self.tree / lock)], text=True)
        return done[:12]

    def test_a_new_pin_is_a_new_libtorch(self) -> None:
        self.project("LibTorch.cmake")
        older = self.libtorch("0123456789ab")
        first = self.libtorch(self.lock_id("deps.lock"))
        # As a cache of before has it, and then as it is kept now.
        self.assertIn(f"root={first}=", self.configure(f"-DMACAW_LIBTORCH_ROOT={older}"))
        self.assertIn(f"root={first}=", self.configure("-DMACAW_LIBTORCH_ROOT="))
        (self.tree / "deps.lock").write_text("# another\n")
        second = self.libtorch(self.lock_id("deps.lock"))
        self.assertIn(f"root={second}=", self.configure())
        given = self.libtorch("2.15.0")
        self.assertIn(f"root={given}=", self.configure(f"-DMACAW_LIBTORCH_ROOT={given}"))
        self.assertIn(f"root={given}=", self.configure())

    def test_a_compiler_of_another_lock_is_looked_for_again(self) -> None:
        self.project("Cuda.cmake")
        older = self.tree / ".deps/cuda-0123456789ab/nvidia/cu13/bin/nvcc"
        found = self.folder / "toolkit/bin/nvcc"
        for path in (older, found):
            write_script(path, "exit 1")
        # Neither works, which is where configuring ends.
        options = ("-DMACAW_CUDA=ON", f"-DMACAW_NVCC={older}")
        said = self.configure(*options, code=1, CUDA_PATH=str(found.parent.parent))
        self.assertIn("MACAW_NVCC is of another cuda.lock", said)
        cache = Path(self.folder / "b/CMakeCache.txt").read_text()
        self.assertIn(f"MACAW_NVCC:FILEPATH={found}", cache)
        self.assertNotIn(str(older), cache)


if __name__ == "__main__":
    unittest.main()
