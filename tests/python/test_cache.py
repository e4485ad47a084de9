"""Files of the cache that were damaged are found out, and written again."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import macaw
from macaw import _safetensors
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


if __name__ == "__main__":
    unittest.main()
