"""Rules in Python: FedProx as a class, from a file and from a cell of a notebook."""

from __future__ import annotations

import inspect
import itertools
import linecache
import math
import os
import sys
import types
import typing
import unittest
from typing import Any
from unittest import mock

import macaw
from macaw import _rule_channels, _rule_stages, rules
from macaw.rules import Rule
from support import SOURCE, TestCase, rows

FILE = SOURCE / "examples/rules/py_fedprox.py"


def module_of(name: str, file: str, text: str) -> types.ModuleType:
    """A module as a notebook has: its source is known to linecache alone."""
    module = types.ModuleType(name)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[name] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return module


class ARule(TestCase):
    def test_of_a_file_is_the_builtin(self) -> None:
        sys.path.insert(0, str(FILE.parent))
        self.addCleanup(sys.path.remove, str(FILE.parent))
        from py_fedprox import PyFedProx  # type: ignore[import-not-found]

        builtin = macaw.simulate(**self.job("builtin", algorithm=macaw.FedProx(mu=0.5)))
        run = macaw.simulate(**self.job("python", algorithm=PyFedProx(mu=0.5)))
        self.assertEqual(run.digest, builtin.digest)

    def test_of_a_cell_is_the_builtin(self) -> None:
        cell = module_of("cell_1", "<ipython-input-1>", FILE.read_text())
        builtin = macaw.simulate(**self.job("builtin", algorithm=macaw.FedProx(mu=0.5)))
        run = macaw.simulate(**self.job("python", algorithm=cell.PyFedProx(mu=0.5)))
        self.assertEqual(run.digest, builtin.digest)
        # A part of the run's fingerprint: it names public modules alone.
        [written] = (self.folder / "cache/rules").iterdir()
        self.assertIn("from macaw.rules import Train as Train", written.read_text())

    def test_of_a_cell_that_uses_what_is_beside_it_is_refused(self) -> None:
        text = FILE.read_text().replace("mu=self.mu", "mu=self.mu * scale")
        cell = module_of("cell_2", "<ipython-input-2>", "scale = object()\n" + text)
        with self.assertRaisesRegex(macaw.ConfigError, "scale"):
            macaw.simulate(**self.job("python", algorithm=cell.PyFedProx(mu=0.5)))

    def test_without_a_source_is_refused(self) -> None:
        with self.assertRaisesRegex(macaw.ConfigError, "Nowhere"):
            macaw.simulate(**self.job("python", algorithm=type("Nowhere", (Rule,), {})()))

    def test_has_no_other_arguments_than_its_parameters(self) -> None:
        class Mine(Rule):
            momentum: float = 0.9

        with self.assertRaises(macaw.ArgumentError) as caught:
            Mine(moment=0.5)  # type: ignore[call-arg]
        self.assertEqual((caught.exception.key, caught.exception.nearest), ("moment", "momentum"))
        self.assertIn("Mine has no argument moment", str(caught.exception))
        self.assertEqual(Mine(momentum=0.5).parameters(), {"momentum": 0.5})
        self.assertEqual(str(inspect.signature(Mine)).replace("'", ""),
                         "(*, momentum: float = 0.9) -> None")  # fmt: skip

    def test_with_a_default_of_another_type_is_told_which_there_are(self) -> None:
        for default in ("[]", "{}", "set()", "parameter([0.5])"):
            text = "from macaw.rules import Rule, parameter\n\nclass Mine(Rule):\n"
            (self.folder / "rule.py").write_text(f"{text}    rates: list = {default}\n")
            job = self.job("run", plugins=[self.folder / "rule.py"], algorithm="mine")
            told = r"Mine\.rates: its default is a (list|dict|set), .*bool, int, float, str.*"
            with self.assertRaisesRegex(macaw.Error, told + r"\(rule.py:3 [^;]*\)$"):
                macaw.simulate(**job)

    def test_that_raises_says_where(self) -> None:
        text = FILE.read_text().replace("mu=self.mu", "mu=1 / 0")
        (self.folder / "rule.py").write_text(text)
        with self.assertRaisesRegex(macaw.RunError, r"ZeroDivisionError.*rule.py:\d+ in prepare"):
            macaw.simulate(**self.job("python", plugins=[self.folder / "rule.py"],
                                      algorithm="py_fedprox"))  # fmt: skip


HEAD = """import numpy as np

from macaw.rules import Down, Metric, Result, Rule, Schema, StageEnd, State, Train, Up


class Mine(Rule):
"""


class AMethod(TestCase):
    """The methods that few rules override, each against what it must come to."""

    def run_of(self, name: str, body: str, **changes: Any) -> macaw.Run:
        """A run with the rule whose class has this body."""
        file = self.folder / f"{name}.py"
        file.write_text(HEAD + body)
        keys = {"plugins": [file], "algorithm": "mine", **changes}
        return macaw.simulate(**self.job(name, **keys))

    def test_proceed_goes_on_where_the_first_stage_ended(self) -> None:
        asked = self.run_of("asked", """
    def proceed(self, ctx, outcomes):
        return [Train(StageEnd(0))] if len(outcomes) == 1 else []

    def conclude(self, ctx, outcomes):
        assert len(outcomes) == 2 and outcomes[1].steps == outcomes[0].steps > 0
        return {"delta": outcomes[1].end - ctx.model}
""")  # fmt: skip
        planned = self.run_of("planned", """
    def prepare(self, ctx):
        return [Train(ctx.model), Train(StageEnd(0))]

    def conclude(self, ctx, outcomes):
        return {"delta": outcomes[1].end - ctx.model}
""")  # fmt: skip
        once = self.run_of("once", "    pass\n")
        self.assertEqual(asked.digest, planned.digest)
        self.assertNotEqual(asked.digest, once.digest)

    def test_collect_gives_apply_every_clients_own(self) -> None:
        median = self.run_of("median", """
    def schema(self, setup):
        return Schema(up=[Up("delta", "collect")])

    def apply(self, ctx, aggregate):
        delta = aggregate["delta"]
        assert delta.value is None and delta.weight == len(delta.collected) == 5
        clients = [client for client, _ in delta.collected]
        assert clients == sorted(set(clients))
        ctx.move_model(np.median([vector for _, vector in delta.collected], axis=0))
""")  # fmt: skip
        builtin = macaw.simulate(**self.job("builtin", algorithm="median"))
        self.assertEqual(median.digest, builtin.digest)

    def test_metrics_are_columns(self) -> None:
        run = self.run_of("metrics", """
    def schema(self, setup):
        return Schema(up=[Up("delta")], metrics=[
            Metric("rows"), Metric("most", "max"), Metric("all", "sum"), Metric("served", None)])

    def conclude(self, ctx, outcomes):
        rows = float(ctx.examples)
        metrics = {"rows": rows, "most": rows, "all": rows}
        return Result({"delta": outcomes[0].end - ctx.model}, metrics=metrics)

    def apply(self, ctx, aggregate):
        ctx.move_model(aggregate["delta"].value)
        ctx.report("served", 10 * ctx.round)
""", local={"epochs": 1})  # fmt: skip
        for row in run.rows:
            self.assertEqual(row["rule_all"], row["examples"])
            self.assertAlmostEqual(row["rule_rows"], row["examples"] / row["clients"], places=6)
            self.assertGreaterEqual(row["rule_most"], row["rule_rows"])
            self.assertLess(row["rule_most"], row["examples"])
        served = [row["rule_served"] for row in run.rows]
        self.assertEqual([b - a for a, b in itertools.pairwise(served)], [10, 10, 10])

    def test_begin_is_asked_once_and_not_when_a_run_goes_on(self) -> None:
        body = """
    def schema(self, setup):
        return Schema(server=[State("kept")], numbers={"lr": 0.0, "calls": 0.0},
                      metrics=[Metric("calls", None), Metric("kept", None)])

    def begin(self, ctx):
        ctx.numbers["lr"] = 0.5
        ctx.numbers["calls"] += 100
        ctx.vectors["kept"][...] = 2

    def apply(self, ctx, aggregate):
        ctx.move_model(aggregate["delta"].value, ctx.numbers["lr"])
        ctx.numbers["calls"] += 1
        ctx.report("calls", ctx.numbers["calls"])
        ctx.report("kept", float(ctx.vectors["kept"].max()))
"""
        body = body.replace("Schema(", 'Schema(up=[Up("delta")], ')
        run = self.run_of("begun", body, rounds=3)
        run = macaw.resume(run.folder, rounds=6)
        self.assertEqual([row["rule_calls"] for row in run.rows], [101, 102, 103, 104, 105, 106])
        self.assertEqual({row["rule_kept"] for row in run.rows}, {2.0})
        halved = macaw.FedAvg(server_lr=0.5)
        builtin = macaw.simulate(**self.job("builtin", algorithm=halved, rounds=6))
        self.assertEqual(run.digest, builtin.digest)

    def test_server_vectors_of_any_size_are_there_when_a_run_goes_on(self) -> None:
        body = """
    def schema(self, setup):
        return Schema(down=["model", Down("sent", size=2)],
                      server=[State("one", size=1), State("three", size=3), State("whole")])

    def apply(self, ctx, aggregate):
        for name, vector in ctx.vectors.items():
            if name != "model":
                vector += 0.25 * ctx.round
        lr = 1 / sum(float(vector[0]) for vector in ctx.vectors.values())
        ctx.move_model(aggregate["delta"].value, lr)
"""
        whole = self.run_of("whole", body, rounds=4)
        begun = self.run_of("begun", body, rounds=2)
        self.assertEqual(macaw.resume(begun.folder, rounds=4).digest, whole.digest)

    def test_apply_may_assign_what_it_changes(self) -> None:
        schema = """
    def schema(self, setup):
        return Schema(server=[State("m"), State("n", size=1)], numbers={"a": 1.0, "b": 2.0})

    def apply(self, ctx, aggregate):
        delta = aggregate["delta"].value
"""
        placed = self.run_of("placed", schema + """
        ctx.vectors["m"][...] = 0.5 * ctx.vectors["m"] + delta
        ctx.vectors["n"][...] += 1
        ctx.model[...] += ctx.vectors["m"] * np.float32(ctx.vectors["n"][0])
        ctx.tensors(ctx.model)["0.bias"][...] = 0
""")  # fmt: skip
        assigned = self.run_of("assigned", schema + """
        before = ctx.model.copy()
        ctx.vectors["m"] = 0.5 * ctx.vectors["m"] + delta
        ctx.vectors |= {"n": float(ctx.vectors["n"][0]) + 1}
        ctx.model = ctx.model + ctx.vectors["m"] * np.float32(ctx.vectors["n"][0])
        ctx.tensors(ctx.model)["0.bias"] = np.zeros_like(ctx.tensors(ctx.model)["0.bias"])
        ctx.model = dict(ctx.tensors(ctx.model))  # of its own tensors
        ctx.model += 0
        assert not np.array_equal(before, ctx.model)
        ctx.vectors = {"m": ctx.vectors["m"]}
""")  # fmt: skip
        self.assertEqual(assigned.digest, placed.digest)
        for change, told in (
            ("ctx.model = ctx.model.astype(np.float64)", "'model' is float64, and should be"),
            ("ctx.model = np.zeros(3, np.float32)", r"'model' has the shape \(3,\)"),
            ('ctx.vectors["k"] = delta', "vector 'k', which is not there; there is: model, m, n"),
            ('ctx.vectors["m"] = 1.0', "'m' is float 1.0 instead of an array"),
            ('ctx.tensors(ctx.model)["0.bias"] = delta', "the tensor '0.bias' has the shape"),
            ('del ctx.vectors["m"]', "takes a server's vector away"),
            ('ctx.numbers = {"a": 1.0}', "ctx.numbers is without 'b'"),
        ):
            with self.assertRaisesRegex(macaw.RunError, f"apply: .*{told}"):
                self.run_of("refused", f"{schema}        {change}\n", overwrite=True)

    def test_conclude_assigns_nothing_to_what_a_client_got(self) -> None:
        for change in (
            'ctx.state["own"] = ctx.model', 'ctx.state = {"own": ctx.model}',
            "ctx.state.update(own=ctx.model)", 'ctx.down["model"] = outcomes[0].end',
            "ctx.model = outcomes[0].end",
        ):  # fmt: skip
            with self.assertRaisesRegex(macaw.Error, "conclude: .*which a client only reads") as c:
                self.run_of("refused", f"""
    def schema(self, setup):
        return Schema(state=["own"])

    def conclude(self, ctx, outcomes):
        {change}
        return Result({{"delta": outcomes[0].end - ctx.model}}, state={{"own": ctx.model}})
""", overwrite=True)  # fmt: skip
            self.assertIn("refused.py:", str(c.exception))
            # Of the batch that is tried before the run: the rule is what is to be changed.
            self.assertNotIn("look at [model]", str(c.exception))

    def test_apply_asks_for_no_phases_without_end(self) -> None:
        body = """
    def apply(self, ctx, aggregate):
        return "next_phase" if ctx.phase < %d else None
"""
        self.assertEqual(self.run_of("most", body % 63, rounds=1).summary["rounds"], 1)
        with self.assertRaisesRegex(macaw.RunError, "another phase of a round that has had 64"):
            self.run_of("endless", body % 1000, rounds=1)
        for phases in ("[64]", "[-1]", "['first']"):
            with self.assertRaisesRegex(macaw.Error, "a phase is a number from 0 to 63"):
                self.run_of("phases", f"""
    def schema(self, setup):
        return Schema(up=[Up("delta", phases={phases})])
""", overwrite=True)  # fmt: skip

    def test_schema_names_each_vector_of_the_server_once(self) -> None:
        with self.assertRaisesRegex(macaw.Error, "schema: the server has two vectors 'model'"):
            self.run_of("twice", """
    def schema(self, setup):
        return Schema(server=["model"])
""")  # fmt: skip

    def test_evaluation_point_is_where_clients_are_evaluated(self) -> None:
        x, y = rows()
        owners = {
            f"owner{n}": {"train": (x[n : n + 20], y[n : n + 20]), "test": (x[-20:], y[-20:])}
            for n in range(0, 200, 20)
        }
        changes: dict[str, Any] = {"data": owners, "partition": None}
        changes["evaluation"] = {"clients": True, "central": False}
        run = self.run_of("zero", """
    def evaluation_point(self, ctx):
        return np.zeros_like(ctx.model)
""", **changes)  # fmt: skip
        # Logits of zero for three classes, whatever the model is.
        self.assertAlmostEqual(run.summary["final"]["clients_test_loss"], math.log(3), places=6)
        plain = self.run_of("plain", "    pass\n", **changes)
        self.assertLess(plain.summary["final"]["clients_test_loss"], math.log(3) - 0.01)
        self.assertEqual(run.digest, plain.digest)  # it changes what is evaluated alone

    def test_a_state_under_privacy_must_not_mirror_what_is_sent(self) -> None:
        body = """
    def schema(self, setup):
        return Schema(state=["own"])

    def conclude(self, ctx, outcomes):
        own = outcomes[0].end
        return Result({"delta": own - ctx.model}, state={"own": own})
"""
        changes: dict[str, Any] = {
            "cohort": {"size": 5, "sampling": "poisson", "weight": "uniform"},
            "privacy": {"mechanism": "gaussian", "clip": 1.0, "noise": 0.1, "delta": 1e-3},
        }
        with self.assertRaisesRegex(macaw.ConfigError, "mine.*has_independent_state"):
            self.run_of("mirror", body, **changes)
        run = self.run_of("own", "    has_independent_state = True\n" + body, **changes)
        self.assertEqual(run.summary["rounds"], 4)

    def test_totals_are_of_the_two_that_there_are(self) -> None:
        self.run_of("none", "    totals = ()\n", rounds=1)
        with self.assertRaisesRegex(macaw.Error, "totals.*total_weight"):
            self.run_of("other", '    totals = ("weight",)\n', rounds=1)

    def test_a_rule_that_sums_states_says_how_it_forgets_them(self) -> None:
        kept = "    def schema(self, setup):\n        return Schema(%s)\n"
        with self.assertRaisesRegex(macaw.Error, "sums what clients keep.*no forget_states"):
            self.run_of("sums", kept % 'state=[State("own", summed=True)]', rounds=1)
        with self.assertRaisesRegex(macaw.Error, "schema: summed is for what clients keep"):
            self.run_of("server", kept % 'server=[State("own", summed=True)]', rounds=1)

    def test_passes_are_two_numbers(self) -> None:
        for said in ("1", "(1, -1)", "(1, 2, 3)", '("one", 2)', "(1, float('inf'))"):
            with self.assertRaisesRegex(macaw.Error, r"passes gives .* instead of two numbers"):
                body = f"    def passes(self, setup):\n        return {said}\n"
                self.run_of("passes", body, rounds=1)


class Names(TestCase):
    def test_of_what_a_rule_says_are_in_one_module(self) -> None:
        """Wherever the classes are written: their hints are looked up in macaw.rules, too."""
        for kind in (rules.Train, rules.Gradient, rules.Loss, rules.Schema, rules.Result):
            self.assertEqual(kind.__module__, "macaw.rules")
            self.assertGreater(len(typing.get_type_hints(kind)), 0)
        self.assertIn(rules.StageEnd, typing.get_args(rules.Point))

    def test_of_all_public_classes_are_in_the_list_of_exports(self) -> None:
        files = (rules, _rule_channels, _rule_stages)
        classes = {
            name
            for file in files
            for name, kind in vars(file).items()
            if isinstance(kind, type) and kind.__module__ in {f.__name__ for f in files}
        }
        public = {name for name in classes if not name.startswith("_")}
        self.assertEqual(public | {"Point", "Stage", "parameter"}, set(rules.__all__))
        for name in public:
            self.assertEqual(getattr(rules, name).__module__, "macaw.rules")


class APython(TestCase):
    def test_without_numpy_is_named(self) -> None:
        bare = self.folder / "bare-python"  # its site-packages are not looked at
        bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
        bare.chmod(0o755)
        with (
            mock.patch.dict(os.environ, MACAW_PYTHON=str(bare)),
            self.assertRaises(macaw.Error) as caught,
        ):
            macaw.simulate(**self.job("run", plugins=[FILE], algorithm="py_fedprox"))
        for word in (str(bare), "numpy", "MACAW_PYTHON"):
            self.assertIn(word, str(caught.exception))
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main()
