"""[model] frozen: tensors that nobody trains and no client sends.

What surrounds it, and the test that holds it (rules: tests/algorithms/frozen_test.cc):

| frozen tensors and … | test |
|---|---|
| back ends: fused, LibTorch, a function of one's own | BackEnds |
| decay, clipping, momentum, a prox term | BackEnds.test_agree_with_everything_that_moves_a_weight |
| rules with states, personal models, server optimizers | Rules.test_leave_them_as_they_are |
| noise and clipping of privacy, hostile clients | Rules.test_of_privacy_and_attackers_leave_them |
| processes and slots | Rules.test_have_the_same_bytes_in_two_processes |
| a resume | ARun.test_goes_on_with_the_same_bytes |
| a run that was killed | ARun.test_has_them_in_its_checkpoints |
| files of a run | ARun.test_has_them_once_and_what_was_trained_apart |
| `macaw model` | ARun.test_is_written_as_one_file |
| what is sent, devices that start again, devices of 0.1.0 | tests/worker/frozen_run_test.cc |
| initial weights: drawn, of a file, zero | ARun.test_keeps_them_whatever_they_start_from |
| running statistics | ARun.test_keeps_statistics_that_are_named |
| wrong patterns | Patterns |
| modules with requires_grad_(False) | test_modules.py |
"""

from __future__ import annotations

import json
import subprocess
import unittest
from typing import Any

import numpy as np
import own_functions as own

import macaw
from macaw import _safetensors
from support import TestCase, needs

LAYERS = ["linear 8", "relu", "linear 8", "relu", "linear 3"]


class FrozenCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        # What runs of four rounds are told: of the rate, of hostile clients, of epsilon.
        self.ignore_warnings()

    def run_of(self, name: str = "run", frozen: Any = ("0.*",), **changes: Any) -> macaw.Run:
        options = {"frozen": list(frozen)} if frozen else {}
        job = self.job(name, model=LAYERS, model_options=options, overwrite=True) | changes
        try:
            return macaw.simulate(**job)
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error

    def start(self, **changes: Any) -> dict[str, Any]:
        """The first model of such runs."""
        return self.run_of("start", frozen=(), rounds=0, **changes).model()

    def moved(self, run: macaw.Run, start: dict[str, Any]) -> list[str]:
        model = run.model()
        return [name for name in start if not np.array_equal(model[name], start[name])]


class BackEnds(FrozenCase):
    MOVES = ["2.weight", "2.bias", "4.weight", "4.bias"]

    def test_leave_them_as_they_are(self) -> None:
        start = self.start()
        for kind in ("fused", "torch"):
            run = self.run_of(kind, workers={"backend": kind})
            self.assertEqual(self.moved(run, start), self.MOVES, kind)
        self.assertIn("72 frozen", dict(run.said)["model"])

    def test_agree_with_everything_that_moves_a_weight(self) -> None:
        local = {"lr": 0.2, "momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.3, "epochs": 2}
        job = {"local": local, "algorithm": macaw.FedProx(mu=0.3), "frozen": ("2.weight", "4.b*")}
        runs = [self.run_of(kind, workers={"backend": kind}, **job) for kind in ("fused", "torch")]
        self.assertEqual(
            self.moved(runs[0], self.start()), ["0.weight", "0.bias", "2.bias", "4.weight"]
        )
        for name, tensor in runs[0].model().items():
            np.testing.assert_allclose(runs[1].model()[name], tensor, atol=2e-6)

    def test_put_back_what_a_function_has_moved(self) -> None:
        job = {"model": ["linear 3"], "frozen": ("0.bias",), "workers": {"slots": 1}}
        run = self.run_of(train=own.softmax_regression, **job)
        start = self.start(model=["linear 3"])
        self.assertEqual(self.moved(run, start), ["0.weight"])


class Rules(FrozenCase):
    def test_leave_them_as_they_are(self) -> None:
        start = self.start()
        for rule in (
            macaw.SCAFFOLD(), macaw.FedDyn(), macaw.Ditto(), macaw.FedAdam(), macaw.FedNova(),
            macaw.FedAvgM(), macaw.Median(),
        ):  # fmt: skip
            run = self.run_of(algorithm=rule)
            self.assertEqual(self.moved(run, start), BackEnds.MOVES, str(rule))
        personal = self.run_of(algorithm=macaw.FedRep())  # the head, 4.*, stays with the clients
        self.assertEqual(self.moved(personal, start), ["2.weight", "2.bias"])

    def test_with_hooks_leave_them_as_they_are(self) -> None:
        self.assertEqual(
            self.moved(self.run_of(algorithm=macaw.Mime()), self.start()), BackEnds.MOVES
        )

    def test_of_privacy_and_attackers_leave_them(self) -> None:
        start = self.start()
        private = self.run_of(
            privacy={"mechanism": "gaussian", "clip": 0.5, "noise": 1.0},
            cohort={"size": 5, "sampling": "poisson", "weight": "uniform"},
        )
        self.assertEqual(self.moved(private, start), BackEnds.MOVES)
        attacked = self.run_of(attack={"kind": "free-rider", "fraction": 0.3, "noise": 0.1})
        self.assertEqual(self.moved(attacked, start), BackEnds.MOVES)

    def test_have_the_same_bytes_in_two_processes(self) -> None:
        rule = {"algorithm": macaw.SCAFFOLD()}
        one = self.run_of("one", **rule, workers={"processes": 1, "slots": 1})
        two = self.run_of("two", **rule, workers={"processes": 2, "slots": 1})
        self.assertEqual(one.digest, two.digest)
        other = self.run_of("other", frozen=("0.bias",), **rule)
        self.assertNotEqual(other.digest, one.digest)


class ARun(FrozenCase):
    def test_goes_on_with_the_same_bytes(self) -> None:
        for rule in (macaw.FedAdam(), macaw.SCAFFOLD()):
            straight = self.run_of("straight", rounds=4, algorithm=rule)
            first = self.run_of("first", rounds=2, algorithm=rule)
            self.assertEqual(macaw.resume(first.folder, rounds=4).digest, straight.digest)

    def test_has_them_in_its_checkpoints(self) -> None:
        run = self.run_of()
        final = run.model()
        (run.folder / "model.safetensors").unlink()
        kept = run.model()
        self.assertEqual(sorted(kept), sorted(final))
        for name, tensor in kept.items():
            np.testing.assert_array_equal(tensor, final[name])

    def test_has_them_once_and_what_was_trained_apart(self) -> None:
        run = self.run_of()
        parts = {
            name: _safetensors.read(run.folder / f"{name}.safetensors")
            for name in ("base", "trained", "model")
        }
        self.assertEqual(sorted(parts["base"]), ["0.bias", "0.weight"])
        self.assertEqual(sorted(parts["trained"]), sorted(BackEnds.MOVES))
        for name, tensor in (parts["base"] | parts["trained"]).items():
            np.testing.assert_array_equal(tensor, parts["model"][name])
        for path in (run.folder / "checkpoints").iterdir():
            about = json.loads(_safetensors.metadata(path)["macaw"])
            self.assertEqual([name for name, *_ in about["tensors"]], BackEnds.MOVES)
        # A device fetches the base once, and in each round what is trained.
        self.assertGreater(run.summary["bytes"]["base"], 72 * 4)
        self.assertNotIn("base", self.run_of("none", frozen=()).summary["bytes"])

    def test_is_written_as_one_file(self) -> None:
        run = self.run_of()
        program = macaw._program.program()
        for name, source in {
            "ended": run.folder,
            "parts": run.folder / "trained.safetensors",
        }.items():
            out = self.folder / f"{name}.safetensors"
            command = [program, "model", "merge", source, "--out", out]
            subprocess.run(command, check=True, capture_output=True)
            merged = _safetensors.read(out)
            self.assertEqual(sorted(merged), sorted(run.model()))
            for tensor, values in run.model().items():
                np.testing.assert_array_equal(merged[tensor], values)
        shown = subprocess.run(
            [program, "model", "show", run.folder], check=True, capture_output=True, text=True
        ).stdout
        self.assertRegex(shown, r"0\.weight .* base\n")
        self.assertRegex(shown, r"2\.weight .* trained\n")
        self.assertIn(", 72 in the base)", shown)

    def test_keeps_them_whatever_they_start_from(self) -> None:
        given = {name: tensor + 1 for name, tensor in self.start().items()}
        self.assertEqual(self.moved(self.run_of(init=given), given), BackEnds.MOVES)
        zero = self.run_of(init="zero", frozen=("4.weight",)).model()
        self.assertEqual(np.abs(zero["4.weight"]).max(), 0)
        self.assertGreater(np.abs(zero["4.bias"]).max(), 0)

    def test_keeps_statistics_that_are_named(self) -> None:
        job = {"model": ["linear 8", "batchnorm", "linear 3"], "partition": macaw.iid(5)}
        run = self.run_of(frozen=("1.running_*", "1.bias"), **job)
        moved = ["0.weight", "0.bias", "1.weight", "2.weight", "2.bias"]
        self.assertEqual(self.moved(run, self.start(**job)), moved)


class Patterns(FrozenCase):
    def refused(self, *frozen: str, **changes: Any) -> macaw.ConfigError:
        with self.assertRaises(macaw.ConfigError) as caught:
            self.run_of(frozen=frozen, **changes)
        self.assertEqual(caught.exception.key, "model.frozen")
        self.assertFalse((self.folder / "run").exists())
        return caught.exception

    def test_that_match_nothing_are_refused_with_the_names(self) -> None:
        said = str(self.refused("0.*", "1.*"))
        self.assertIn('"1.*" is no tensor of the model; it has 0.weight, 0.bias, 2.weight', said)

    def test_that_leave_nothing_are_refused(self) -> None:
        self.assertIn("nothing to train", str(self.refused("*")))

    @needs("torch")
    def test_beside_a_module_are_refused(self) -> None:
        from torch import nn

        said = str(self.refused("0.*", model=nn.Sequential(nn.Linear(8, 3))))
        self.assertIn("requires_grad_(False)", said)


if __name__ == "__main__":
    unittest.main()
