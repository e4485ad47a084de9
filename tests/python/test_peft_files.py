"""[model] adapters beside the package peft, by files that each reads of the other.

| what | test |
|---|---|
| a run's start in peft's own loop, on both back ends | Files.test_train_in_peft_as_in_a_run |
| what a run trained, loaded into peft | Files.test_of_a_run_load_into_peft |
| what peft trained, as the start of a run | Files.test_of_peft_start_a_run |
"""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
from safetensors.torch import load_file, save_file

import macaw
from support import TestCase, rows

RANKS, ALPHAS = {"0": 2, "2": 3}, {"0": 6, "2": 6}
PREFIX = "base_model.model."
RATE, BATCH, EPOCHS, ROUNDS = 0.2, 5, 2, 2


def options(start: str) -> dict[str, Any]:
    lines = [f"lora {RANKS[n]} alpha {ALPHAS[n]} start {start} {n}.*" for n in RANKS]
    return {"adapters": lines, "trained": ["4.*"]}


def net(seed: int = 0) -> Any:
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def trained(name: str) -> bool:
    return "lora_" in name or name.startswith("4.")


def in_peft(*files: Path) -> Any:
    """The module of peft with the tensors of a run's files."""
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    module = net(seed=9)
    module.load_state_dict({name: t for name, t in tensors.items() if "lora_" not in name})
    config = peft.LoraConfig(
        r=RANKS["0"], lora_alpha=ALPHAS["0"], target_modules=list(RANKS), modules_to_save=["4"],
        rank_pattern={"2": RANKS["2"]}, alpha_pattern={"2": ALPHAS["2"]},
    )  # fmt: skip
    model = peft.get_peft_model(module, config)
    adapters = {PREFIX + name: tensor for name, tensor in tensors.items() if trained(name)}
    found = peft.set_peft_model_state_dict(model, adapters)
    if found.unexpected_keys:
        raise AssertionError(found.unexpected_keys)
    return model


def of_peft(model: Any, folder: Path) -> Any:
    """What peft saves, under the names of a run."""
    model.save_pretrained(folder)
    saved = load_file(folder / "adapter_model.safetensors")
    return {name.removeprefix(PREFIX): tensor for name, tensor in saved.items()}


def loss_of(model: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))


def train_by_hand(model: Any, x: Any, y: Any) -> None:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for _ in range(ROUNDS * EPOCHS):
        for begin in range(0, len(x), BATCH):
            optimizer.zero_grad()
            loss_of(model, x[begin : begin + BATCH], y[begin : begin + BATCH]).backward()
            optimizer.step()


def outputs_of(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(torch.from_numpy(rows(6, 3)[0])).numpy()


class Files(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ignore_warnings()

    def run_of(self, name: str, start: str = "zero", **changes: Any) -> macaw.Run:
        job = {
            "model": net(),
            "model_options": options(start),
            "data": rows(20),
            "test": rows(6, 3),
            "partition": macaw.iid(clients=1),
            "cohort": 1,
            "rounds": ROUNDS,
            "local": {"lr": RATE, "batch_size": BATCH, "epochs": EPOCHS, "shuffle": False},
            "out": self.folder / name,
            "cache": self.folder / "cache",
            "overwrite": True,
        }
        try:
            return macaw.simulate(**{**job, **changes})
        except macaw.MissingBackendError as error:
            raise unittest.SkipTest(str(error)) from error

    def assert_near(self, found: Any, expected: Any) -> None:
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            np.testing.assert_allclose(found[name], tensor, rtol=0, atol=1e-6, err_msg=name)

    def test_train_in_peft_as_in_a_run(self) -> None:
        x, y = rows(20)
        for start in ("zero", "pissa"):
            begun = self.run_of(f"{start}-0", start, rounds=0).folder / "model.safetensors"
            model = in_peft(begun)
            np.testing.assert_allclose(outputs_of(model), outputs_of(net()), atol=1e-5)
            train_by_hand(model.train(), x, y)
            expected = of_peft(model, self.folder / start)
            before = load_file(begun)
            self.assertEqual(sorted(expected), sorted(filter(trained, before)))
            for name, tensor in expected.items():
                moved = (tensor - before[name]).abs().max().item()
                self.assertGreater(moved, 1e-4, name)
            for backend in ("fused", "torch"):
                with self.subTest(start=start, backend=backend):
                    run = self.run_of(f"{start}-{backend}", start, workers={"backend": backend})
                    self.assert_near(load_file(run.folder / "trained.safetensors"), expected)
                    self.assertEqual(run.summary["profile"]["trainer"], backend)
                    with torch.no_grad():
                        loss = loss_of(model.eval(), *rows(6, 3)).item()
                    self.assertAlmostEqual(run.rows[-1]["test_loss"], loss, 5)

    def test_of_a_run_load_into_peft(self) -> None:
        for backend in ("fused", "torch"):
            with self.subTest(backend):
                run = self.run_of(backend, workers={"backend": backend})
                files = [run.folder / f"{name}.safetensors" for name in ("base", "trained")]
                model = in_peft(*files)
                mine = outputs_of(run.module())  # of W + (α/r)·B·A
                self.assertGreater(np.abs(mine - outputs_of(net())).max(), 0.1)
                np.testing.assert_allclose(outputs_of(model), mine, rtol=0, atol=2e-6)
                merged = outputs_of(model.merge_and_unload())
                np.testing.assert_allclose(merged, mine, rtol=0, atol=2e-6)
                saved = of_peft(in_peft(*files), self.folder / f"{backend}-again")
                for name, tensor in load_file(files[1]).items():
                    self.assertTrue(torch.equal(saved[name], tensor), name)

    def test_of_peft_start_a_run(self) -> None:
        model = in_peft(self.run_of("begun", rounds=0).folder / "model.safetensors")
        train_by_hand(model.train(), *rows(20))
        tensors = {**net().state_dict(), **of_peft(model, self.folder / "peft")}
        save_file(tensors, self.folder / "from-peft.safetensors")
        layers = ["linear 8", "relu", "linear 8", "relu", "linear 3"]
        run = self.run_of("run", model=layers, init=self.folder / "from-peft.safetensors", rounds=0)
        for name, tensor in macaw.Run(run.folder).model().items():
            np.testing.assert_array_equal(tensor, tensors[name].numpy(), name)
        module = net()
        module.load_state_dict(macaw.Run(run.folder).model(module))
        np.testing.assert_allclose(outputs_of(module), outputs_of(model), rtol=0, atol=2e-6)


if __name__ == "__main__":
    unittest.main()
