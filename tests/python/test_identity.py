"""What a run says of train= and loss=: the same wherever and whenever it is begun."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import own_functions as own
from test_figures import made

import macaw
from macaw import _identity, _source
from support import TestCase, needs


class Functions(TestCase):
    def loaded(self, folder: str, text: str) -> types.ModuleType:
        """A module of this text, in a file of its own."""
        file = self.folder / folder / "functions_of_the_test.py"
        file.parent.mkdir()
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        self.addCleanup(sys.modules.pop, file.stem, None)
        spec.loader.exec_module(module)
        return module

    def identity(self, function: Any, module: Any = None, role: str = "train") -> str:
        homes = _source.homes_of({role: function}, [], self.folder)
        return _identity.identity_of(homes, module)

    def test_are_the_same_wherever_their_file_lies(self) -> None:
        text = "STEP = 1\ndef f(model, rows, ctx):\n    return STEP\n"
        first = self.identity(self.loaded("a", text).f)
        self.assertRegex(first, "^[0-9a-f]{16}$")
        started = "\nif __name__ == '__main__':\n    print('lr = 0.1')\n"
        self.assertEqual(self.identity(self.loaded("b", text + started).f), first)
        other = self.loaded("c", text.replace("STEP = 1", "STEP = 2"))
        self.assertNotEqual(self.identity(other.f), first)

    def test_are_of_lines_as_python_counts_them(self) -> None:
        text = 'WORD = "a\u2028b\x85c\x1cd"\n\x0c\ndef f(model, rows, ctx):\n    return 1\n'
        started = "if __name__ == '__main__':\n    print(1)\n    print(2)\n"
        first = self.identity(self.loaded("a", text + started + "LAST = 1\n").f)
        self.assertEqual(self.identity(self.loaded("b", text + "LAST = 1\n").f), first)
        self.assertNotEqual(self.identity(self.loaded("c", text + "LAST = 2\n").f), first)

    def test_are_of_files_in_any_encoding_and_of_what_is_no_python(self) -> None:
        file = self.folder / "one.py"
        file.write_bytes("# coding: latin-1\nWORD = 'é'\n".encode("latin-1"))
        self.assertIn("é", _identity._text_of(file))
        digests = set()
        for content in (b"# coding: none\n", b"WORD = '\xff'\n", b"def f(:\n", b"a\0"):
            file.write_bytes(content)
            digests.add(_identity._text_of(file))
        self.assertEqual({len(each) for each in digests}, {64})
        self.assertEqual(len(digests), 4)

    def test_differ_by_name_arguments_and_role(self) -> None:
        functions = [
            own.cross_entropy, own.squares, functools.partial(own.cross_entropy, factor=2.0),
            functools.partial(own.cross_entropy, factor=3.0),
        ]  # fmt: skip
        found = {self.identity(function, role="loss") for function in functions}
        found.add(self.identity(own.cross_entropy, role="train"))
        self.assertEqual(len(found), 5)

    @needs("torch")
    def test_differ_by_what_the_module_is_and_not_by_its_weights(self) -> None:
        from torch import nn

        def net(activation: Any) -> Any:
            return nn.Sequential(nn.Linear(8, 3), activation)

        first = self.identity(own.train_module, net(nn.ReLU()))
        self.assertEqual(self.identity(own.train_module, net(nn.ReLU())), first)
        self.assertNotEqual(self.identity(own.train_module, net(nn.Tanh())), first)


class Groups(TestCase):
    def run_by(self, name: str, function: str, digest: str | None, seed: int = 0) -> macaw.Run:
        """A run's folder whose config names a file of a loss; "": it is gone. None: no loss."""
        inputs = {} if digest is None else {"workers.command": digest}
        run = made(self.folder, name, [0.5, 0.6], seed=seed, inputs=inputs)
        if digest is not None:
            spec = Path(self.folder / f"{name}.json")
            if function:
                spec.write_text(json.dumps({"loss": {"name": function, "arguments": {}}}))
            command = json.dumps(["python", "-c", "from macaw._train_program", str(spec)])
            (run.folder / "config.toml").write_text(f"[workers]\ncommand = {command}\n")
        return run

    def names(self, runs: list[macaw.Run]) -> dict[str, int]:
        from macaw import _groups

        return {group.name: len(group.runs) for group in _groups.groups_of(runs)}

    def test_are_named_by_the_functions_that_differ(self) -> None:
        runs = [self.run_by("a0", "one", "1" * 16), self.run_by("a1", "one", "1" * 16, seed=1),
                self.run_by("b", "other", "2" * 16), self.run_by("c", "", None)]  # fmt: skip
        self.assertEqual(self.names(runs), {"loss one": 2, "loss other": 1, "fedavg": 1})
        self.assertEqual(self.names(runs[:2]), {"fedavg": 2})

    def test_have_digests_where_functions_of_one_name_differ_or_are_gone(self) -> None:
        runs = [self.run_by("a", "one", "1" * 16), self.run_by("b", "one", "2" * 16),
                self.run_by("c", "", "3" * 16)]  # fmt: skip
        self.assertEqual(
            self.names(runs),
            {"loss one (11111111)": 1, "loss one (22222222)": 1, "function 33333333": 1},
        )
