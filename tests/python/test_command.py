"""The commands `macaw`, `macaw-server` and `macaw-worker` of a Python environment."""

from __future__ import annotations

import os
import sys
import unittest
from typing import Any
from unittest import mock

import macaw_command


class ACommand(unittest.TestCase):
    def started(self) -> list[Any]:
        """The program, its arguments and MACAW_PYTHON as it has them."""
        found: list[Any] = []

        def execv(program: Any, arguments: list[str]) -> None:
            found.extend([str(program), arguments, os.environ.get("MACAW_PYTHON")])

        with mock.patch("os.execv", execv), mock.patch.object(sys, "argv", ["macaw", "keys"]):
            macaw_command.macaw()
        return found

    def test_runs_python_of_its_own_environment(self) -> None:
        without = {name: value for name, value in os.environ.items() if name != "MACAW_PYTHON"}
        with mock.patch.dict(os.environ, without, clear=True):
            program, arguments, python = self.started()
        self.assertTrue(program.endswith("macaw/bin/macaw"), program)
        self.assertEqual((arguments, python), (["macaw", "keys"], sys.executable))

    def test_runs_another_python_that_is_named(self) -> None:
        with mock.patch.dict(os.environ, {"MACAW_PYTHON": "/opt/python"}):
            self.assertEqual(self.started()[2], "/opt/python")


if __name__ == "__main__":
    unittest.main()
