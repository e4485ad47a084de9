"""What is made from the program's description is all of it, and the types hold."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import macaw
from macaw import keys, partitions
from support import BUILD, SOURCE, TestCase, needs

DESCRIBED = json.loads(subprocess.check_output([macaw._program.program(), "keys", "--json"]))


class Keys(TestCase):
    def test_are_all_in_the_types_of_their_tables(self) -> None:
        named = {"algorithm", "cohort", "data", "local", "model", "partition"}
        for key in DESCRIBED["keys"]:
            *tables, name = key["key"].split(".")
            place: Any = keys.Sections
            if tables and tables[0] in named:
                place = getattr(keys, tables.pop(0).capitalize())
            for table in tables:
                hint = place.__annotations__[table]
                place = getattr(keys, getattr(hint, "__forward_arg__", hint))
            self.assertIn(name, place.__annotations__, key["key"])
            if place is not keys.Sections:
                self.assertIn(key["help"][:20], " ".join(place.__doc__.split()), key["key"])

    def test_take_their_words_alone(self) -> None:
        hint = keys.Local.__annotations__["optimizer"]
        words = getattr(hint, "__forward_arg__", hint).replace("'", '"')
        self.assertEqual(words, 'Literal["sgd", "adam", "adamw"]')


class Algorithms(TestCase):
    def test_are_classes_with_the_defaults_of_the_program(self) -> None:
        classes = {
            algorithm.name: algorithm
            for algorithm in map(macaw.__dict__.get, macaw.algorithms.__all__)
            if algorithm is not macaw.algorithms.Algorithm
        }
        self.assertEqual(set(classes), {found["name"] for found in DESCRIBED["algorithms"]})
        for found in DESCRIBED["algorithms"]:
            standard = {key["name"]: key["default"] for key in found["parameters"]}
            self.assertEqual(classes[found["name"]]().parameters(), standard)
            self.assertIn(found["paper"][:30], " ".join(classes[found["name"]].__doc__.split()))

    def test_are_named_as_papers_do(self) -> None:
        for name in (
            "FedAvg",
            "FedAvgM",
            "FedProx",
            "SCAFFOLD",
            "FedBN",
            "QFedAvg",
            "MimeLite",
            "FedExP",
            "TERM",
            "AFL",
            "FedSAM",
            "FedPer",
            "MOON",
            "pFedMe",
            "APFL",
            "PerFedAvg",
            "HeteroFL",
            "KMeans",
            "DAEF",
            "IFCA",
        ):
            self.assertIn(name, macaw.algorithms.__all__)


class Partitions(TestCase):
    def test_have_a_function_for_each_scheme(self) -> None:
        functions = [
            function
            for name, function in inspect.getmembers(partitions, inspect.isfunction)
            if function.__module__ == partitions.__name__ and not name.startswith("_")
        ]
        schemes = {"auto"}  # the default
        schemes |= {macaw.dirichlet(1.0, 1, by=by).scheme for by in ("client", "quantity")}
        for function in functions:
            needed = [
                parameter
                for parameter in inspect.signature(function).parameters.values()
                if parameter.default is parameter.empty
            ]
            schemes.add(function(*[1] * len(needed)).scheme)
        self.assertEqual(schemes, {found["name"] for found in DESCRIBED["partitions"]})

    def test_have_the_keys_of_the_program(self) -> None:
        there = {key["key"] for key in DESCRIBED["keys"]}
        for partition in (
            macaw.dirichlet(0.3, 5, by="client", min_size=1, seed=2),
            macaw.shards(4, 2), macaw.k_classes(4, 2), macaw.lognormal(1.0, 4),
            macaw.power_law(1.0, 4), macaw.from_file("a.json"), macaw.iid(3, seed=1),
            macaw.histogram("a.npy", 3, seed=1),
        ):  # fmt: skip
            self.assertLessEqual({f"partition.{key}" for key in partition.keys}, there)
        self.assertEqual(macaw.dirichlet(0.3, 5, by="client").scheme, "dirichlet-client")


class Command(TestCase):
    def test_is_the_program_of_the_package(self) -> None:
        script = "import macaw_command, sys; sys.argv = ['macaw', '--version']; "
        script += "macaw_command.macaw()"
        said = subprocess.check_output(
            [sys.executable, "-c", script], text=True, cwd=BUILD / "python"
        )
        self.assertEqual(said.strip(), f"macaw {macaw.__version__}")


@needs("mypy")
class Types(TestCase):
    def mypy(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", SOURCE / "pyproject.toml",
             "--cache-dir", self.folder, *arguments],
            capture_output=True, text=True, cwd=BUILD / "python",
        )  # fmt: skip
        return done.stdout

    def test_of_the_package_hold(self) -> None:
        self.assertIn("Success", said := self.mypy("-p", "macaw"), said)

    def test_find_a_wrong_call(self) -> None:
        file = self.folder / "call.py"
        file.write_text(
            "import macaw\n"
            'macaw.simulate("mlp", "synthetic", cohort=3, local=dict(epochs=1, lr=0.1))\n'
            'macaw.simulate("mlp", "synthetic", cohort=3, local=dict(learning_rate=0.1))\n'
            'macaw.simulate("mlp", "synthetic", evaluation=dict(every="often"))\n'
            "macaw.FedProx(nu=0.1)\n"
        )
        wrong = {int(line.split(":")[1]) for line in self.mypy(file).splitlines() if ":" in line}
        self.assertEqual({3, 4, 5}, {line for line in wrong if line}, self.mypy(file))


@needs("ruff")
class Style(TestCase):
    def test_is_clean(self) -> None:
        folders = [SOURCE / "python", SOURCE / "tests/python", SOURCE / "tests/pages"]
        folders.append(SOURCE / "examples/python")
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--no-cache", *folders],
            capture_output=True, text=True, cwd=SOURCE,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
