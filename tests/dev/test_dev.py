"""`dev`: presets and their folders, what clean takes, one at a time, and what apt says."""

from __future__ import annotations

import os
import shutil
import signal
import unittest

from support import Copy, presets, wait_for, write_script


class Presets(Copy):
    def test_each_builds_into_its_folder(self) -> None:
        for preset, folder in presets().items():
            self.dev("build", MACAW_PRESET=preset)
            self.assertEqual(self.calls("--preset")[-1].split()[1:4], [preset, "-B", folder])
            self.assertEqual(self.calls("--build")[-1].split()[1], folder)

    def test_an_unknown_one_is_an_error(self) -> None:
        self.assertIn("MACAW_PRESET=debug", self.dev("build", code=1, MACAW_PRESET="debug"))
        listed = self.dev("help").partition("MACAW_PRESET=")[2].split()[0]
        self.assertEqual(set(listed.split("|")), set(presets()))

    def test_a_folder_keeps_its_own(self) -> None:
        self.dev("build", MACAW_BUILD="out")
        said = self.dev("build", code=1, MACAW_BUILD="out", MACAW_PRESET="debug-asan")
        self.assertIn("MACAW_PRESET=release", said)
        self.assertEqual(len(self.calls("--build")), 1)
        self.dev("build", MACAW_BUILD="other", MACAW_PRESET="debug-asan")
        self.assertIn("debug-asan", self.dev("build", code=1, MACAW_BUILD="other"))
        self.dev("build", MACAW_BUILD="other", MACAW_PRESET="debug-asan")
        self.assertEqual(len(self.calls("--preset")), 2)

    def test_a_folder_without_a_note_is_not_made_again(self) -> None:
        for preset, folder in (("release", "build"), ("debug-asan", "build-asan")):
            self.dev("build", MACAW_PRESET=preset)
            (self.tree / folder / ".preset").unlink()
            self.dev("build", MACAW_PRESET=preset)
            self.dev("build", MACAW_PRESET=preset, MACAW_BUILD=str(self.tree / folder))
        self.assertEqual(len(self.calls("--preset")), 2)
        said = self.dev("build", code=1, MACAW_PRESET="tsan", MACAW_BUILD="build")
        self.assertIn("MACAW_PRESET=release", said)

    def test_a_folder_without_a_note_is_told_by_its_sanitizers(self) -> None:
        self.dev("build")
        (self.tree / "build/.preset").unlink()
        for option, preset in (("address,undefined", "debug-asan"), ("thread", "tsan")):
            with (self.tree / "build/CMakeCache.txt").open("w") as cache:
                cache.write(f"MACAW_SANITIZE:STRING={option}\n")
            said = self.dev("build", code=1)
            self.assertIn(f"build/ was made with MACAW_PRESET={preset}, and this is", said)
            self.dev("build", code=0, MACAW_PRESET=preset, MACAW_BUILD="build")
            (self.tree / "build/.preset").unlink()

    def test_the_command_that_is_proposed_removes_the_folder(self) -> None:
        self.dev("build", MACAW_PRESET="tsan")
        (self.tree / "build-tsan/.preset").write_text("release\n")
        said = self.dev("build", code=1, MACAW_PRESET="tsan")
        self.assertIn("MACAW_PRESET=tsan ./dev clean removes it", said)
        cache = self.tree / "build-tsan/CMakeCache.txt"
        cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.folder}\n")
        said = self.dev("build", code=1, MACAW_PRESET="tsan")
        self.assertIn("MACAW_PRESET=tsan ./dev clean removes it", said)
        self.dev("clean", MACAW_PRESET="tsan")
        self.assertFalse(cache.parent.exists())

    def test_cuda_configures_the_release_build_once_more(self) -> None:
        for preset in ("release", "cuda", "cuda", "release"):
            self.dev("build", MACAW_PRESET=preset)
        self.assertEqual([line.split()[1] for line in self.calls("--preset")], ["release", "cuda"])


class Folders(Copy):
    def test_one_below_another_is_made(self) -> None:
        self.dev("build", MACAW_BUILD="out/debug")
        self.assertTrue((self.tree / "out/debug/configure.log").exists())

    def test_clean_takes_a_build_folder_alone(self) -> None:
        kept = self.tree / "photos"
        kept.mkdir()
        (kept / "one").touch()
        self.assertIn("photos/ is not a build", self.dev("clean", code=1, MACAW_BUILD="photos"))
        self.assertTrue((kept / "one").exists())
        (self.tree / "CMakeCache.txt").touch()
        self.assertIn("the sources", self.dev("clean", code=1, MACAW_BUILD="."))
        self.assertTrue((self.tree / "dev").exists())
        self.dev("build")
        self.dev("clean")
        self.assertFalse((self.tree / "build").exists())
        self.dev("clean")

    def test_what_a_package_compiles_for_is_taken_back_where_it_fails(self) -> None:
        said = self.dev("wheel", "--gpu", code=1, BUILDING="exit 1")
        calls = self.calls("-B build -DMACAW_CUDA_ARCHITECTURES=")
        self.assertEqual([call.split("=")[1] for call in calls], ["release", "developer"], said)


class OneAtATime(Copy):
    def test_a_second_one_waits_and_says_so(self) -> None:
        wait = 'until [ -e "$STANDINS/go" ]; do sleep 0.02; done'
        first = self.start("build", BUILDING=wait)
        self.assertTrue(wait_for(lambda: len(self.calls("--build")) == 1), self.said())
        second = self.start("build")
        self.assertTrue(wait_for(lambda: "waiting for it" in self.said()), self.said())
        self.assertEqual(len(self.calls("--build")), 1)
        (self.folder / "go").touch()
        self.assertEqual((first.wait(60), second.wait(60)), (0, 0), self.said())
        self.assertEqual(len(self.calls("--build")), 2)

    def test_what_a_build_leaves_behind_does_not_keep_it(self) -> None:
        stays = 'sleep 600 </dev/null >/dev/null 2>&1 & echo $! >"$STANDINS/left"'
        self.dev("build", BUILDING=stays)
        left = int((self.folder / "left").read_text())
        self.addCleanup(os.kill, left, signal.SIGKILL)
        self.dev("build")

    def test_a_program_that_dev_ends_with_does_not_keep_it(self) -> None:
        text = 'touch "$STANDINS/up"; until [ -e "$STANDINS/go" ]; do sleep 0.02; done'
        write_script(self.tree / "build/bin/macaw", text)
        program = self.start("run", "macaw")
        self.assertTrue(wait_for((self.folder / "up").exists), self.said())
        self.dev("build")
        (self.folder / "go").touch()
        self.assertEqual(program.wait(60), 0)

    def test_one_that_a_build_starts_does_not_wait(self) -> None:
        self.dev("build", BUILDING='[ -n "${2:-}" ] && BUILDING=: ./dev build')
        self.assertEqual(len(self.calls("--build")), 2)

    def test_is_locked_by_a_descriptor_that_may_write(self) -> None:
        """As NFS needs it. The last digit of the flags is 2 where it reads and writes."""
        write_script(self.bin / "flock", "grep -q '^flags:.*2$' /proc/self/fdinfo/9 || exit 65")
        self.assertNotIn("cannot be locked", self.dev("build"))

    def test_without_locks_it_goes_on_and_says_so(self) -> None:
        write_script(self.bin / "flock", "exit 65")
        said = self.dev("build")
        self.assertIn(".deps/lock cannot be locked", said)
        self.assertNotIn("another ./dev", said)

    def test_another_users_folder_is_no_hindrance(self) -> None:
        self.dev("build")
        (self.tree / ".deps/lock").chmod(0o444)
        self.dev("build")
        self.assertNotIn("denied", self.said())


class Packages(Copy):
    def test_lists_that_cannot_be_fetched_are_told(self) -> None:
        # As apt-get does: without the mode, an update that fetched nothing ends with 0.
        apt = """case "$*" in
          *update*Error-Mode=any*) echo "E: Temporary failure resolving deb.example"; exit 100 ;;
          *install*) echo "E: Unable to locate package cmake"; exit 100 ;;
        esac"""
        said = self.dev("setup", code=1, PACKAGES="", APT=apt)
        self.assertIn("Temporary failure resolving", said)
        self.assertIn("Unable to locate package", said)

    def test_a_list_that_is_not_needed_hinders_nothing(self) -> None:
        apt = 'case "$*" in *update*) echo "E: one.example has gone"; exit 100 ;; esac'
        self.assertIn("one.example", self.dev("setup", PACKAGES="", APT=apt))
        self.assertIn("ninja-build", (self.folder / "apt").read_text())

    def test_a_wheel_comes_with_what_makes_an_environment(self) -> None:
        shutil.rmtree(self.tree / ".deps", ignore_errors=True)
        self.dev("wheel", code=1, PACKAGES="", BUILDING="exit 1")
        self.assertIn("python3-venv", (self.folder / "apt").read_text())


if __name__ == "__main__":
    unittest.main()
