"""Files of the cache that were damaged are found out, and written again."""

from __future__ import annotations

import functools
import json
import os
import threading
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import own_functions as own

import macaw
from macaw import _files, _safetensors, _train
from support import TestCase, rows


def damages(whole: bytes) -> Iterator[tuple[str, bytes]]:
    yield "a bit", whole[:-400] + bytes([whole[-400] ^ 0x40]) + whole[-399:]
    yield "half", whole[: len(whole) // 2]
    yield "zeros", bytes(len(whole))
    yield "empty", b""
    yield "longer", whole + b"xx"


class ADamagedFile(TestCase):
    def test_of_rows_is_written_again(self) -> None:
        cache = self.folder / "cache"
        path = macaw.prepare(rows(), cache=cache)
        whole = path.read_bytes()
        digest = macaw.simulate(**self.job("good")).digest
        for name, damaged in damages(whole):
            path.write_bytes(damaged)
            with self.assertWarnsRegex(RuntimeWarning, f"{path.name} was damaged"):
                self.assertEqual(macaw.prepare(rows(), cache=cache), path)
            self.assertEqual(path.read_bytes(), whole, name)
            path.write_bytes(damaged)
            with self.assertWarnsRegex(RuntimeWarning, "was damaged, and is written again"):
                run = macaw.simulate(**self.job(name))
            self.assertEqual(run.digest, digest, name)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            macaw.prepare(rows(), cache=cache)

    def test_of_weights_is_written_again(self) -> None:
        weights = {"0.weight": np.ones((3, 8), np.float32), "0.bias": np.ones(3, np.float32)}
        job = {"model": ["linear 3"], "init": weights}
        digest = macaw.simulate(**self.job("good", **job)).digest
        [path] = (self.folder / "cache/models").glob("*.safetensors")
        path.write_bytes(path.read_bytes()[:-4] + bytes(4))
        with self.assertWarnsRegex(RuntimeWarning, f"{path.name} was damaged"):
            self.assertEqual(macaw.simulate(**self.job("again", **job)).digest, digest)

    def test_of_a_histogram_is_written_again(self) -> None:
        matrix = macaw.histogram([[9, 1, 0], [0, 12, 3]]).keys["path"]
        path = matrix.file_in(self.folder)
        whole = path.read_bytes()
        path.write_bytes(bytes(len(whole)))
        self.assertEqual(matrix.file_in(self.folder).read_bytes(), whole)

    def test_is_compared_beyond_the_first_part(self) -> None:
        large = {"x": np.arange(1 << 19, dtype=np.float64)}  # 4 MiB
        path = _safetensors.write_by_content(self.folder, large, {})
        with path.open("r+b") as file:
            file.seek(3 << 20)
            file.write(b"other")
        with self.assertWarnsRegex(RuntimeWarning, "was damaged"):
            _safetensors.write_by_content(self.folder, large, {})
        np.testing.assert_array_equal(_safetensors.read(path)["x"], large["x"])

    def test_that_is_read_is_an_error_that_names_it(self) -> None:
        whole = macaw.prepare(rows(), cache=self.folder / "cache").read_bytes()
        other = _safetensors.write_by_content(self.folder, {"x": np.zeros(3, np.int8)}, {})
        kinds = dict(damages(whole))
        kinds["a kind"] = other.read_bytes().replace(b'"I8"', b'"U2"')
        path = self.folder / "damaged.safetensors"
        for name in ("half", "zeros", "empty", "a kind"):
            path.write_bytes(kinds[name])
            with self.assertRaises(macaw.DataError) as caught:
                _safetensors.read(Path(path))
            self.assertIn(str(path), str(caught.exception), name)


class AFileThatOthersRead(TestCase):
    def spec(self, mark: str = "") -> Path:
        """What the processes of a run with train= load."""
        train = functools.partial(own.ends_once, mark=mark)
        command, _ = _train.command(train, None, None, None, self.folder)
        return Path(command[-1])

    def test_is_left_alone_where_it_holds_these_bytes(self) -> None:
        path = self.spec()
        os.utime(path, ns=(1, 1))
        self.assertEqual(self.spec(), path)
        self.assertEqual(path.stat().st_mtime_ns, 1)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        before = path.open("rb")
        self.addCleanup(before.close)
        self.assertEqual(self.spec().read_bytes(), whole)
        self.assertEqual(before.read(), whole[:-1], "who reads the earlier one goes on with it")
        self.assertEqual([file.name for file in path.parent.iterdir()], [path.name])

    def test_is_whole_while_it_is_written(self) -> None:
        path, over = self.spec(), threading.Event()

        def write() -> None:
            while not over.is_set():
                self.spec()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(2000):
                self.assertIn("train", json.loads(path.read_text()))
        finally:
            over.set()
            writer.join()

    def test_is_not_there_if_writing_it_fails(self) -> None:
        path = self.folder / "file"
        with self.assertRaises(KeyError), _files.replacing(path) as file:
            file.write(b"half")
            raise KeyError
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_may_be_read_by_those_whom_the_umask_lets(self) -> None:
        self.addCleanup(os.umask, os.umask(0o027))
        x, y = rows()
        job = self.job("run", data=(x, y), normalise="train", model=["linear 3"])
        run = macaw.simulate(**job, init={"0.weight": np.zeros((3, 8), np.float32),
                                          "0.bias": np.zeros(3, np.float32)})  # fmt: skip
        kept = [*(self.folder / "cache").rglob("*.*"), run.folder / "normalisation.npz"]
        self.assertGreaterEqual(len(kept), 3)
        copied = self.folder / "copied"
        _safetensors.copy(kept[0], copied)
        for file in (*kept, copied, self.spec()):
            self.assertEqual(file.stat().st_mode & 0o777, 0o640, file.name)


if __name__ == "__main__":
    unittest.main()
