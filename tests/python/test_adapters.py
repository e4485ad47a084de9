"""[model] adapters: low-rank adapters of linear layers, and [model] trained beside them.

What surrounds them, and the test that holds it. Whole runs are in tests/system/adapters_test.cc,
formulas in tests/oracle/replay.

| adapters and … | test |
|---|---|
| back ends: fused, LibTorch | BackEnds |
| the trained head, the frozen base, A frozen | BackEnds.test_move_adapters_and_what_is_named |
| a module of PyTorch: its check, its weights, its state dict | AModule |
| a resume, a run that was killed | ARun.test_goes_on_with_the_same_bytes |
| a base that was trained before, PiSSA | ARun |
| `macaw model merge` | ARun.test_is_merged_into_one_file |
| wrong texts, patterns and modules | Refused |
"""

from __future__ import annotations

import shutil
import subprocess
import unittest
from typing import Any

import numpy as np

import macaw
from macaw import _adapters, _safetensors
from support import TestCase, needs

LAYERS = ["linear 8", "relu", "linear 8", "relu", "linear 3"]
ADAPTERS = ["lora 2 alpha 4 0.*", "lora 3 2.*"]
OPTIONS = {"adapters": ADAPTERS, "trained": ["4.*"]}
MOVES = [
    *("0.lora_A.weight", "0.lora_B.weight", "2.lora_A.weight", "2.lora_B.weight"),
    *("4.bias", "4.weight"),
]


class AdaptersCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ignore_warnings()

    def run_of(self, name: str = "run", options: Any = None, **changes: Any) -> macaw.Run:
        job = self.job(name, model=LAYERS, overwrite=True)
        try:
            return macaw.simulate(**job | {"model_options": options or OPTIONS} | changes)
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error

    def moved(self, run: macaw.Run, start: macaw.Run) -> list[str]:
        before, after = start.model(), run.model()
        self.assertEqual(sorted(before), sorted(after))
        return sorted(n for n in before if not np.array_equal(before[n], after[n]))


class BackEnds(AdaptersCase):
    def test_move_adapters_and_what_is_named(self) -> None:
        start = self.run_of("start", rounds=0)
        for kind in ("fused", "torch"):
            run = self.run_of(kind, workers={"backend": kind})
            self.assertEqual(self.moved(run, start), MOVES, kind)
        self.assertIn("2 adapters", dict(run.said)["model"])
        half = self.run_of("half", {**OPTIONS, "frozen": ["*.lora_A.weight"]})
        self.assertEqual(self.moved(half, start), [name for name in MOVES if "lora_A" not in name])

    def test_agree_with_everything_that_moves_a_weight(self) -> None:
        local = {"lr": 0.2, "momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.3, "epochs": 2}
        job = {"local": local, "algorithm": macaw.FedProx(mu=0.3)}
        fused, torch = (
            self.run_of(kind, workers={"backend": kind}, **job) for kind in ("fused", "torch")
        )
        for name, tensor in fused.model().items():
            np.testing.assert_allclose(torch.model()[name], tensor, atol=2e-6)

    def test_train_the_head_alone_without_adapters(self) -> None:
        start = self.run_of("start", {"trained": ["4.*"]}, rounds=0)
        run = self.run_of("run", {"trained": ["4.*"]})
        self.assertEqual(self.moved(run, start), ["4.bias", "4.weight"])


class ARun(AdaptersCase):
    def test_is_merged_into_one_file(self) -> None:
        run, out = self.run_of(), self.folder / "merged.safetensors"
        program = macaw._program.program()
        loose = self.folder / "loose"
        loose.mkdir()
        for name in ("trained", "base"):
            shutil.copy(run.folder / f"{name}.safetensors", loose)
        for source in ([run.folder], [loose / "trained.safetensors", "--run", run.folder]):
            command = [program, "model", "merge", *source, "--out", out]
            subprocess.run(command, check=True, capture_output=True)
            merged, model = _safetensors.read(out), run.model()
            self.assertEqual(sorted(merged), sorted(n for n in model if ".lora_" not in n))
            for layer, scale in (("0", 2), ("2", 1)):
                a, b = (model[f"{layer}.lora_{side}.weight"].astype(float) for side in "AB")
                weight = model[f"{layer}.weight"] + scale * b @ a
                np.testing.assert_allclose(merged[f"{layer}.weight"], weight, atol=1e-6)
            np.testing.assert_array_equal(merged["4.weight"], model["4.weight"])
        said = subprocess.run(
            [program, "model", "merge", loose / "trained.safetensors", "--out", out],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("--run", said.stderr)

    def test_goes_on_with_the_same_bytes(self) -> None:
        for rule in (macaw.FedAvg(), macaw.SCAFFOLD(), macaw.FedAdam()):
            straight = self.run_of("straight", rounds=4, algorithm=rule)
            first = self.run_of("first", rounds=2, algorithm=rule)
            self.assertEqual(macaw.resume(first.folder, rounds=4).digest, straight.digest)

    def test_begins_as_the_base_whatever_its_adapters_are(self) -> None:
        base = self.run_of("base", {"seed": 5}, rounds=3)
        rows = self.job("x")["data"]
        accuracy = {}
        for name, start in (("zero", "zero"), ("pissa", "pissa")):
            options = {"adapters": [f"lora 2 start {start} *"]}
            run = self.run_of(name, options, init=base.model(), rounds=0)
            model = run.model()
            merged = _adapters.merged(model, options["adapters"])
            for tensor, value in base.model().items():
                np.testing.assert_allclose(merged[tensor], value, atol=1e-6)
                same = np.array_equal(model[tensor], value)
                self.assertEqual(same, start == "zero" or "bias" in tensor, tensor)
            accuracy[name] = outputs(merged, rows[0]).argmax(axis=1)
        np.testing.assert_array_equal(accuracy["zero"], accuracy["pissa"])

    def test_goes_on_from_adapters_that_are_in_its_file(self) -> None:
        run = self.run_of("first")
        again = self.run_of("again", init=run.model(), rounds=0)
        for name, tensor in run.model().items():
            np.testing.assert_array_equal(again.model()[name], tensor)


@needs("torch")
class AModule(AdaptersCase):
    def test_gets_its_adapters_merged(self) -> None:
        import torch
        from torch import nn

        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 3)))
        before = {name: value.clone() for name, value in net.state_dict().items()}
        options = {"adapters": ["lora 2 alpha 6 *"], "trained": ["2.bias"]}
        run = self.run_of(model=net, options=options, init=None)
        self.assertIn("two steps equal the module's own", dict(run.said)["check"])
        net.load_state_dict(run.model())
        raw = macaw.Run(run.folder).model()  # no module is known here: A and B stand beside W
        np.testing.assert_array_equal(raw["0.weight"], before["0.weight"].numpy())
        change = 3 * raw["2.lora_B.weight"] @ raw["2.lora_A.weight"]
        self.assertGreater(np.abs(change).max(), 0.01)
        np.testing.assert_allclose(
            net[2][0].weight.detach().numpy(), before["2.0.weight"].numpy() + change, atol=1e-6
        )
        x, _ = self.job("x")["data"]
        ours = outputs(_adapters.merged(raw, options["adapters"]), x)
        theirs = net(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


class Refused(AdaptersCase):
    def refusal(self, key: str, options: dict[str, Any], **changes: Any) -> str:
        with self.assertRaises(macaw.ConfigError) as caught:
            self.run_of("refused", options, **changes)
        self.assertEqual(caught.exception.key, key)
        self.assertFalse((self.folder / "refused").exists())
        return str(caught.exception)

    def test_is_what_does_not_fit(self) -> None:
        said = self.refusal("model.adapters", {"adapters": ["lora 2 1.*"]})
        self.assertIn("0.weight, 2.weight, 4.weight", said)
        said = self.refusal("model.adapters", {"adapters": ["lora two *"]})
        self.assertIn("lora RANK", said)
        said = self.refusal("model.adapters", {"adapters": ["lora 2 start hdpissa *"]})
        self.assertIn("start pissa", said)
        said = self.refusal("model.trained", {"adapters": ["lora 2 *"], "trained": ["5.*"]})
        self.assertIn("it has 0.weight", said)

    @needs("torch")
    def test_are_keys_that_a_module_says_itself(self) -> None:
        from torch import nn

        net = nn.Sequential(nn.Linear(8, 3))
        said = self.refusal("model.trained", {"trained": ["0.*"]}, model=net)
        self.assertIn("requires_grad_(False)", said)


def outputs(model: Any, x: Any) -> Any:
    """Of linear layers with ReLUs between them."""
    numbers = sorted({int(name.split(".")[0]) for name in model})
    for number in numbers:
        x = x @ model[f"{number}.weight"].T + model[f"{number}.bias"]
        x = np.maximum(x, 0) if number != numbers[-1] else x
    return x


if __name__ == "__main__":
    unittest.main()
