"""Clients that a function of the caller's trains: train=, loss= and evaluate=.

What surrounds it, and the test that holds it:

| train=fn and … | test |
|---|---|
| any number of slots and processes | TheBytes.test_do_not_depend_on_slots_and_processes |
| a resume, also with a changed file | TheBytes.test_are_those_of…, TheBytes.test_are_not_gone_on… |
| a process that dies | TheBytes.test_are_the_same_without_a_client_whose_process_died |
| a client without rows | AFunction.test_is_not_asked_to_train_no_rows |
| rules that correct gradients, rules with states | Rules |
| evaluation: outputs, fused, a function | Evaluation |
| a sweep | ASweep |
| a process of multiprocessing | ACell.test_of_a_script_is_found_in_a_process_of… |
| on_round, stop, the last round | test_on_round.py |
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import own_functions as own

import macaw
from support import SOURCE, TestCase, needs, rows


class TrainCase(TestCase):
    def run_of(self, name: str, train: Any = own.softmax_regression, **changes: Any) -> macaw.Run:
        job = self.job(name, model=["linear 3"], train=train, workers={"slots": 1}) | changes
        return macaw.simulate(**job)

    def refusal(self, kind: type[macaw.Error], **changes: Any) -> Any:
        with self.assertRaises(kind) as caught:
            self.run_of("refused", overwrite=True, **changes)
        return caught.exception


class AFunction(TrainCase):
    def test_trains_as_the_fused_kernels_do_where_it_does_the_same(self) -> None:
        local = {"batch_size": 0, "lr": 0.3, "epochs": 3}
        run = self.run_of("own", local=local)
        fused = macaw.simulate(**self.job("fused", model=["linear 3"], local=local))
        for name, tensor in fused.model().items():
            np.testing.assert_allclose(run.model()[name], tensor, atol=1e-6)
        for column in ("train_loss", "test_loss", "test_accuracy"):
            np.testing.assert_allclose(run.metrics[column], fused.metrics[column], atol=1e-6)

    def test_may_train_in_place_and_leave_the_loss_out(self) -> None:
        returned, left = self.run_of("returned"), self.run_of("left", own.in_place)
        self.assertEqual(returned.digest, left.digest)
        self.assertLess(left.rows[-1]["train_loss"], left.rows[0]["train_loss"])

    def test_may_return_metrics_alone(self) -> None:
        train = functools.partial(own.returns, what="a loss alone")
        row = self.run_of("run", train).rows[0]
        self.assertEqual(row["train_loss"], 2)
        self.assertIsNone(row["train_accuracy"], "nobody knows it")

    def test_gets_rows_as_the_model_does(self) -> None:
        x, y = rows()
        bytes_ = np.clip(x * 40 + 128, 0, 255).astype(np.uint8)
        local = {"batch_size": 0, "lr": 0.3}
        for name, more in (("stored", {}), ("noisy", {"client_noise": 0.5, "label_noise": 0.3})):
            job = dict(data=(bytes_, y), data_options=more, local=local)
            run = self.run_of(name, **job)
            fused = macaw.simulate(**self.job(f"{name}-fused", model=["linear 3"], **job))
            for tensor, array in fused.model().items():
                np.testing.assert_allclose(run.model()[tensor], array, atol=1e-6)

    def test_is_not_asked_to_train_no_rows(self) -> None:
        x, y = rows(60)
        data = {"a": {"train": (x[:20], y[:20])}, "b": {"train": (x[20:40], y[20:40])},
                "none": {"test": (x[40:], y[40:])}}  # fmt: skip
        run = self.run_of("run", data=data, test=rows(20), partition=None, cohort=2)
        self.assertEqual(run.rows[-1]["clients"], 2)

    def test_that_trains_a_copy_and_returns_nothing_is_told_so(self) -> None:
        error = self.refusal(macaw.Error, train=own.trains_a_copy)
        self.assertIn("returned no model, and the model that it got is as it was given", str(error))
        kept = self.run_of("kept", train=own.keeps, init="zero")
        self.assertEqual(float(np.abs(kept.model()["0.bias"]).max()), 0.0)

    def test_in_place_may_change_nothing_at_the_zeros_that_it_is_tried_at(self) -> None:
        run = self.run_of("run", own.decays, model=["linear 3"], rounds=1)
        started = self.run_of("start", own.keeps, model=["linear 3"], rounds=1)
        expected = started.model()["0.weight"] * np.float32(0.9)
        np.testing.assert_allclose(run.model()["0.weight"], expected, rtol=1e-6)

    def test_that_fails_ends_the_run_with_its_words(self) -> None:
        error = self.refusal(macaw.TrainError, train=own.fails)
        self.assertEqual(error.round, 2)
        self.assertIn(f"client {error.client}", str(error))
        self.assertIn("ValueError: the rows of", str(error))
        self.assertIn("own_functions.py", error.traceback)
        self.assertIn("raise ValueError", error.traceback)

    def test_that_diverges_at_a_client_leaves_it_out_of_the_round(self) -> None:
        for loss in ("1e300", "inf", "nan"):
            train = functools.partial(own.diverges, loss=loss)
            run = self.run_of("run", train, cohort=20, overwrite=True)
            self.assertEqual([row["left_out"] for row in run.rows], [0, 1, 0, 0], loss)
            self.assertEqual(run.rows[1]["train_loss"], 1, loss)

    def test_that_fails_at_once_is_said_before_the_run(self) -> None:
        error = self.refusal(macaw.TrainError, train=own.ignores_corrections,
                             algorithm=macaw.FedProx(mu=0.1))  # fmt: skip
        self.assertIn("before the run", str(error))
        self.assertIn("ctx.correct(model)", str(error))

    def test_that_returns_something_else_is_told_what(self) -> None:
        for what, word in (
            ("a word", "returned str"), ("no bias", "no 0.bias"),
            ("another shape", "[2, 8]"), ("an unknown metric", "'auc'"),
            ("three things", "returned tuple"), ("too many rows", '"rows": 1000000000'),
            ("too many steps", '"steps": 10000000'), ("steps below 0", '"steps": -1'),
            ("a percentage", "accuracy 88"),
            ("one tensor more", "returned 1.weight, and the model has"),
            ("a metric among tensors", "returned loss, and the model has"),
            ("no rows", '"rows": 0} and a model that has changed'),
            ("an accuracy alone", "returned accuracy without a loss"),
            ("batches twice", "batches of a turn once, and they are taken"),
        ):  # fmt: skip
            train = functools.partial(own.returns, what=what)
            self.assertIn(word, str(self.refusal(macaw.TrainError, train=train)), what)

    def test_is_told_of_keys_that_it_has_to_apply_itself(self) -> None:
        local = {"clip_norm": 0.1, "label_smoothing": 0.1, "class_weights": [1, 2, 3], "lr": 0.1}
        run = self.run_of("run", local=local)
        self.assertIn(
            ("note", "local.clip_norm, local.class_weights, local.label_smoothing: the function's "
             "own to apply, from ctx.local"),
            run.said,
        )  # fmt: skip
        self.assertNotIn("note", dict(self.run_of("plain", local={"lr": 0.1}).said))

    def test_is_not_given_keys_that_would_change_nothing(self) -> None:
        for key, value in (("micro_batch", 3), ("precision", "bf16"), ("checkpoint", True)):
            error = self.refusal(macaw.ConfigError, local={key: value})
            self.assertEqual(error.key, f"local.{key}")

    def test_with_a_rule_that_does_not_only_train_is_refused_before_the_run(self) -> None:
        for rule, what in (
            (macaw.IFCA(clusters=2), "ifca also asks for the loss"),
            (macaw.QFedAvg(), "loss"),
            (macaw.TERM(), "loss"),
            (macaw.SCAFFOLD(option=1), "gradient"),
        ):
            error = self.refusal(macaw.ConfigError, algorithm=rule)
            self.assertEqual(error.key, "workers.backend")
            self.assertIn(what, str(error))
            self.assertIn("leave train= and loss= out", str(error))
        self.run_of("one", algorithm=macaw.IFCA(clusters=1), rounds=1)  # FedAvg

    def test_that_no_process_could_load_is_refused(self) -> None:
        secret = 3

        def inner(model: Any, rows: Any, ctx: Any) -> Any:
            return secret

        for train, word in (
            (lambda model, rows, ctx: model, "lambda"),
            (inner, "secret"),
            (np.add, "ufunc"),
            (functools.partial(own.fails, 3), "by position"),
            (functools.partial(own.fails, in_round=object()), "in_round"),
        ):
            error = self.refusal(macaw.ConfigError, train=train)
            self.assertIn(word, str(error))
            self.assertEqual(error.key, "train")
        for changes, key in (
            ({"loss": own.cross_entropy}, "loss"),
            ({"train": None, "loss": own.cross_entropy}, "loss"),
            ({"train": None, "evaluate": own.half_right}, "evaluate"),
            ({"workers": {"backend": "torch"}}, "workers.backend"),
            ({"workers": {"command": ["python3"]}}, "workers.command"),
        ):
            self.assertEqual(self.refusal(macaw.ConfigError, **changes).key, key)


class TheBytes(TrainCase):
    def test_do_not_depend_on_slots_and_processes(self) -> None:
        digests, losses = set(), set()
        for number, workers in enumerate(
            ({"slots": 1}, {"slots": 3}, {"slots": 1, "processes": 2})
        ):
            run = self.run_of(f"run-{number}", own.draws, workers=workers)
            digests.add(run.digest)
            losses.add(json.dumps([row["test_loss"] for row in run.rows]))
        self.assertEqual((len(digests), len(losses)), (1, 1))
        self.assertNotEqual(self.run_of("seed", own.draws, seed=8).digest, digests.pop())

    def test_are_those_of_a_run_that_was_interrupted(self) -> None:
        whole = self.run_of("whole", own.draws, rounds=30)
        # With on_round= the run waits for its reader, and is not over when the loop ends.
        job = self.job("part", model=["linear 3"], train=own.draws, rounds=30,
                       on_round=lambda run: None, run={"checkpoint_every": 1},
                       workers={"slots": 1})  # fmt: skip
        with macaw.stream(**job) as stream:
            for row in stream:
                if row["round"] == 3:
                    break
        run = macaw.resume(stream.folder, workers={"slots": 2})
        self.assertEqual(run.digest, whole.digest)
        self.assertEqual([r["test_loss"] for r in run.rows], [r["test_loss"] for r in whole.rows])

    def test_are_not_gone_on_with_when_the_function_has_changed(self) -> None:
        script = self.folder / "mine.py"
        script.write_text(textwrap.dedent("""
            import sys, macaw
            from support import job
            from pathlib import Path
            def train(model, rows, ctx):
                model["0.bias"] += 0.5
                return {"loss": 1.0}
            if __name__ == "__main__":
                macaw.simulate(**job(Path(sys.argv[1]), "run", model=["linear 3"], train=train,
                                     workers={"slots": 1}))
        """))
        command = [sys.executable, script, self.folder]
        env = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
        subprocess.run(command, check=True, env=env, capture_output=True)
        script.write_text(script.read_text().replace("+= 0.5", "+= 0.25"))
        with self.assertRaisesRegex(macaw.TrainError, "mine.py has changed since the run"):
            macaw.resume(self.folder / "run", rounds=8)
        script.write_text(script.read_text().replace("+= 0.25", "+= 0.5"))
        self.assertEqual(macaw.resume(self.folder / "run", rounds=8).summary["rounds"], 8)

    def test_are_the_same_without_a_client_whose_process_died(self) -> None:
        """The client is left out of its round, and the process is started again."""
        train = functools.partial(own.ends_once, mark=str(self.folder / "mark"))
        run = self.run_of("run", train)
        self.assertEqual([row["left_out"] for row in run.rows], [0, 1, 0, 0])


class Rules(TrainCase):
    def test_that_correct_gradients_are_those_of_the_fused_kernels(self) -> None:
        local = {"batch_size": 0, "lr": 0.3, "epochs": 3}
        for rule in (macaw.FedProx(mu=1.0), macaw.SCAFFOLD(option=2), macaw.FedDyn(alpha=0.1),
                     macaw.Ditto(lambda_=0.5), macaw.FedNova(), macaw.FedAdam()):  # fmt: skip
            name = type(rule).__name__
            run = self.run_of(name, algorithm=rule, local=local)
            job = self.job(f"{name}-fused", model=["linear 3"], algorithm=rule, local=local)
            fused = macaw.simulate(**job)
            for tensor, array in fused.model().items():
                np.testing.assert_allclose(run.model()[tensor], array, atol=1e-5, err_msg=name)
            self.assertEqual("state_digest" in run.summary, "state_digest" in fused.summary, name)

    def test_that_look_at_gradients_are_refused(self) -> None:
        with self.assertRaisesRegex(macaw.Error, "gradient over all rows"):
            self.run_of("run", algorithm=macaw.SCAFFOLD(option=1))

    def test_private_updates_are_clipped_as_others(self) -> None:
        cohort = dict(size=5, sampling="poisson", weight="uniform")
        privacy = dict(mechanism="gaussian", clip=0.1, noise=0.5)
        run = self.run_of("run", cohort=cohort, privacy=privacy)
        self.assertGreater(run.rows[-1]["rule_epsilon"], 0)


class Evaluation(TrainCase):
    def test_by_the_fused_kernels_has_their_columns(self) -> None:
        options = {"metrics": ["f1"], "clients": True}
        run = self.run_of("run", evaluation=options, data_options={"client_test_fraction": 0.2})
        self.assertLessEqual(0, run.rows[-1]["test_f1"])
        self.assertLessEqual(0, run.rows[-1]["clients_test_accuracy"])

    def test_by_a_function_has_what_it_returns(self) -> None:
        run = self.run_of("run", evaluate=own.half_right)
        self.assertEqual((run.rows[-1]["test_loss"], run.rows[-1]["test_accuracy"]), (0.25, 0.5))

    def test_by_a_function_may_say_that_the_model_has_diverged(self) -> None:
        for loss in ("1e300", "inf", "nan"):
            evaluate = functools.partial(own.far_off, loss=loss)
            row = self.run_of("run", evaluate=evaluate, overwrite=True).rows[-1]
            self.assertIsNone(row["test_loss"], loss)
            self.assertEqual(row["test_accuracy"], 0.5)


@needs("torch")
class AModule(TrainCase):
    def net(self, outputs: int = 3, **more: Any) -> Any:
        import torch
        from torch import nn

        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 8, **more), nn.ReLU(), nn.Linear(8, outputs))

    def test_is_evaluated_by_its_outputs(self) -> None:
        x, y = rows()
        run = self.run_of(
            "run", own.keeps, model=self.net(1), data=(x, (y > 0).astype(int)),
            run={"task": "binary"}, evaluation={"metrics": ["auc"]},
        )  # fmt: skip
        self.assertLessEqual({"test_precision", "test_recall", "test_auc"}, set(run.rows[-1]))
        targets = self.run_of("targets", own.keeps, model=self.net(1),
                              data=(x, y.astype(np.float32)), partition=macaw.iid(20))  # fmt: skip
        self.assertGreater(targets.rows[-1]["test_mae"], 0)

    def test_has_a_loss_with_a_gradient(self) -> None:
        error = self.refusal(macaw.TrainError, train=None, model=self.net(), loss=own.detached)
        self.assertIn("the loss detached returned a number without a gradient", str(error))

    def test_by_other_losses_is_another_configuration(self) -> None:
        def run_by(name: str, loss: Any, **more: Any) -> macaw.Run:
            return self.run_of(name, None, model=self.net(), loss=loss, **more)

        first = run_by("first", own.cross_entropy)
        seed = run_by("seed", own.cross_entropy, seed=5)
        twice = run_by("twice", functools.partial(own.cross_entropy, factor=2.0))
        identities = [run.summary["inputs"]["workers.command"] for run in (first, seed, twice)]
        self.assertEqual(identities[0], identities[1])
        self.assertNotEqual(identities[0], identities[2])
        table = macaw.to_latex([first, seed, twice], "test_loss")
        self.assertRegex(table, r"(?s)loss.*cross\\_entropy &.*cross\\_entropy\(factor=2.0\) &")

    def test_is_trained_by_hand_as_by_a_loss(self) -> None:
        by_hand = self.run_of("hand", own.train_module, model=self.net())
        by_loss = self.run_of("loss", None, model=self.net(), loss=own.cross_entropy)
        self.assertEqual(by_hand.digest, by_loss.digest)

    def test_has_the_numbers_of_the_fused_kernels(self) -> None:
        local = {"batch_size": 0, "lr": 0.3, "epochs": 3, "momentum": 0.9, "weight_decay": 0.01}
        for rule in (macaw.FedAvg(), macaw.FedProx(mu=1.0), macaw.SCAFFOLD(option=2)):
            name = type(rule).__name__
            local["momentum"] = 0.0 if name == "SCAFFOLD" else 0.9
            run = self.run_of(name, None, model=self.net(), loss=own.cross_entropy, local=local,
                              algorithm=rule)  # fmt: skip
            fused = macaw.simulate(**self.job(f"{name}-fused", model=self.net(), local=local,
                                              algorithm=rule))  # fmt: skip
            for tensor, array in fused.model().items():
                np.testing.assert_allclose(run.model()[tensor], array, atol=2e-5, err_msg=name)
            for column in ("test_loss", "test_accuracy"):
                np.testing.assert_allclose(run.metrics[column], fused.metrics[column], atol=1e-5)

    def test_by_a_loss_refuses_keys_that_would_change_nothing(self) -> None:
        from torch import nn

        for key, value in (("label_smoothing", 0.1), ("class_weights", [1, 2, 3])):
            file = self.folder / "run.toml"
            file.write_text(f"[local]\n{key} = {value}\n")
            given = [{"local": {key: value}}]
            if sys.version_info >= (3, 11):
                given.append({"config": file})
            for changes in given:
                error = self.refusal(macaw.ConfigError, train=None, model=self.net(),
                                     loss=own.cross_entropy, **changes)  # fmt: skip
                self.assertEqual(error.key, f"local.{key}")
        net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        changes = {"local": {"micro_batch": 3}}, {"model_options": {"buffers": "server"}}
        for change, key in zip(changes, ("local.micro_batch", "model.buffers")):
            error = self.refusal(macaw.ConfigError, train=None, model=net,
                                 loss=own.cross_entropy, **change)  # fmt: skip
            self.assertEqual(error.key, key)

    def test_with_batch_norm_has_batches_and_clients_of_one_row(self) -> None:
        from torch import nn

        x, y = rows(18)
        data = {"nine": {"train": (x[:9], y[:9])}, "one": {"train": (x[9:10], y[9:10])},
                "eight": {"train": (x[10:], y[10:])}}  # fmt: skip
        net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        job = dict(model=net, data=data, partition=None, cohort=3, test=rows(20),
                   local={"batch_size": 4, "lr": 0.3, "epochs": 2, "shuffle": False})  # fmt: skip
        fused = macaw.simulate(**self.job("fused", **job))
        by_loss = self.run_of("loss", None, loss=own.cross_entropy, **job)
        for tensor, array in fused.model().items():
            np.testing.assert_allclose(by_loss.model()[tensor], array, atol=2e-5, err_msg=tensor)
        data.pop("one")  # by hand such a batch is the function's to handle
        by_hand = self.run_of("hand", own.train_module, **job | {"cohort": 2})
        again = self.run_of("again", None, loss=own.cross_entropy, **job | {"cohort": 2})
        self.assertEqual(by_hand.digest, again.digest)

    def test_gets_a_fresh_copy_each_turn(self) -> None:
        self.run_of("run", own.leaves_traces, model=self.net())

    def test_keeps_what_is_frozen_and_takes_what_no_other_run_takes(self) -> None:
        import torch
        from torch import nn

        net = nn.Sequential(self.net(), nn.BatchNorm1d(3, momentum=None), nn.Dropout1d(0.2))
        net[0][0].weight.requires_grad_(False)
        before = net[0][0].weight.clone()
        run = self.run_of("run", own.train_module, model=net)
        net.load_state_dict(run.model())
        self.assertTrue(torch.equal(net[0][0].weight, before))
        self.assertFalse(torch.equal(net[1].running_mean, torch.zeros(3)))
        again = self.run_of("again", own.train_module, model=net, workers={"slots": 2})
        self.assertNotIn("0.0.weight", macaw._safetensors.read(again.folder / "model.safetensors"))

    def test_may_be_made_by_a_function(self) -> None:
        runs = [self.run_of(f"run-{seed}", None, model=self.net, loss=own.cross_entropy, seed=seed)
                for seed in (1, 2)]  # fmt: skip
        self.assertNotEqual(runs[0].digest, runs[1].digest)

    def test_of_float64_is_trained_as_such(self) -> None:
        run = self.run_of("run", own.train_module, model=self.net().double())
        kinds = {str(value.dtype) for value in run.model().values()}
        self.assertEqual(kinds, {"torch.float64"})

    def test_of_one_output_has_a_loss_that_does_not_pair_everything(self) -> None:
        x, _ = rows()
        job = dict(model=self.net(1), data=(x, x[:, 0]), partition=macaw.iid(20))
        error = self.refusal(macaw.TrainError, train=None, loss=own.pairs_all, **job)
        self.assertIn("it pairs every output with every y", str(error))
        error = self.refusal(macaw.TrainError, train=own.trains_pairs, **job)
        self.assertIn("Using a target size", str(error))
        run = self.run_of("right", None, loss=own.squares, **job)
        self.assertLess(run.rows[-1]["train_loss"], run.rows[0]["train_loss"])

    def test_with_outputs_at_each_position_has_no_loss_of_its_own(self) -> None:
        from torch import nn

        tokens = np.arange(600).reshape(100, 6).astype(np.int32) % 9
        net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
        error = self.refusal(macaw.TrainError, train=None, loss=own.cross_entropy, model=net,
                             data=(tokens, tokens[:, 0].astype(np.int64)))  # fmt: skip
        self.assertIn("the model has outputs at each position, [2, 6, 9]", str(error))

    def test_with_wrong_outputs_is_refused_before_the_run(self) -> None:
        error = self.refusal(macaw.TrainError, train=own.train_module, model=self.net(5))
        self.assertIn("outputs have shape", str(error))


class ASweep(TrainCase):
    def test_tries_functions(self) -> None:
        job = self.job("sweep", model=["linear 3"], workers={"slots": 1})
        del job["seed"]
        job["train"] = macaw.grid([
            own.softmax_regression, functools.partial(own.returns, what="a loss alone"),
        ])  # fmt: skip
        sweep = macaw.sweep(**job, seeds=[1, 2], jobs=1)
        self.assertEqual({row["train"] for row in sweep.rows},
                         {"softmax_regression", "returns(what='a loss alone')"})  # fmt: skip
        self.assertEqual(sweep.best["train"], "softmax_regression")

    def test_has_no_rounds_to_look_at(self) -> None:
        for role in ("on_round", "metrics"):
            with self.assertRaises(macaw.ConfigError) as caught:
                macaw.sweep(["linear 3"], rows(), out=self.folder / "s", **{role: print})
            self.assertEqual(caught.exception.key, role)


CELLS = '''
import linecache, sys, types, macaw
from support import job
from pathlib import Path
main = sys.modules["__main__"]
if hasattr(main, "__file__"): del main.__file__
def cell(number, text):  # as IPython runs one
    name = f"<cell {number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), vars(main))
cell(1, "import numpy as np\\nfrom math import sqrt\\nSTEP = 0.5\\n")
cell(2, "def step(model):\\n    model['0.bias'] += np.float32(STEP * sqrt(4.0))\\n")
cell(3, "def train(model, rows, ctx):\\n    x, y = rows\\n    step(model)\\n"
     "    return {'loss': 1.0}\\n")
x = y = object()  # the function has its own
arguments = job(Path(sys.argv[1]), "run", model=["linear 3"], train=main.train)
print(macaw.simulate(**arguments, init="zero").model()["0.bias"][0])
cell(4, "thing = object()\\ndef bad(model, rows, ctx):\\n    return thing\\n")
try: macaw.simulate(**{**arguments, "train": main.bad})
except macaw.ConfigError as error: print(error)
cell(5, Path(sys.argv[2]).read_text())
arguments = job(Path(sys.argv[1]), "rule", model=["linear 3"], algorithm=main.PyFedProx(mu=0.5))
print(macaw.simulate(**arguments).digest)
'''


class ACell(TestCase):
    def run_script(self, text: str, *more: str) -> list[str]:
        env = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", text, self.folder, *more], env=env, text=True,
                              capture_output=True)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_of_a_notebook_goes_with_what_it_uses(self) -> None:
        rule = SOURCE / "examples/rules/py_fedprox.py"
        said = self.run_script(CELLS, str(rule))
        self.assertEqual(float(said[0]), 4.0)
        self.assertIn("bad uses thing, a object", said[1])
        self.assertEqual(len(said[2]), 64)  # a rule of a cell has run

    def test_of_a_script_without_a_main_part_is_told_so(self) -> None:
        script = self.folder / "script.py"
        script.write_text(textwrap.dedent("""
            import sys, macaw
            from support import job
            from pathlib import Path
            def train(model, rows, ctx): return {"loss": 1.0}
            macaw.simulate(**job(Path(sys.argv[1]), "run", model=["linear 3"], train=train))
        """))
        env = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, script, self.folder], env=env, text=True,
                              capture_output=True)  # fmt: skip
        self.assertIn('if __name__ == "__main__"', done.stderr)

    def test_of_a_script_is_found_in_a_process_of_multiprocessing(self) -> None:
        script = self.folder / "script.py"
        script.write_text(textwrap.dedent("""
            import multiprocessing, sys, macaw
            from support import job
            from pathlib import Path
            def train(model, rows, ctx):
                model["0.bias"] += 1
                return {"loss": 1.0}
            def start(how):
                arguments = job(Path(sys.argv[1]), how, model=["linear 3"], train=train)
                return macaw.simulate(**arguments).digest
            if __name__ == "__main__":
                digests = [start("parent")]
                for how in "fork", "spawn":
                    with multiprocessing.get_context(how).Pool(1) as pool:
                        digests += pool.map(start, [how])
                print(*digests)
        """))
        env = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, script, self.folder], env=env, text=True,
                              capture_output=True)  # fmt: skip
        digests = done.stdout.split()
        self.assertEqual((len(digests), len(set(digests))), (3, 1), done.stderr)


class GPUs(TestCase):
    def test_are_shared_out_by_slot(self) -> None:
        script = "import os, sys; sys.argv = ['x', os.devnull]; from macaw import _train_program\n"
        script += "try: _train_program.main()\nexcept ValueError: pass  # of an empty SPEC\n"
        script += "print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
        for slot, given, seen in ((0, "4,6", "4"), (1, "4,6", "6"), (2, "4,6", "4"), (1, "", "")):
            env = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
            env |= {"MACAW_SLOT": str(slot), "CUDA_VISIBLE_DEVICES": given}
            said = subprocess.check_output([sys.executable, "-c", script], env=env, text=True)
            self.assertEqual(said.strip(), seen)
