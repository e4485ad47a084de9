"""The process that runs a train function: workers.command of a run with ``train=`` or ``loss=``.

    python -c "…; main()" SPEC

SPEC is a JSON file of _train.py. The worker gives rows and weights (docs/guides/own-program.md);
here they become what the function takes, and back.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import pickle
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _client, _modules, _trace, rules
from ._context import Rows, TrainContext
from ._pairs import ADVICE, pairs_all
from ._safetensors import Array
from ._seeding import Seeding
from ._sums import means_in, sums_of_means
from ._weights import array_given

_HIDDEN = (__file__, str(Path(__file__).with_name("_context.py")))


def main() -> None:
    take_gpu: Callable[[], int] = _client.program
    take_gpu()  # before anything looks
    spec = json.loads(Path(sys.argv[1]).read_text())
    sys.path[:] = spec["path"]
    # PyTorch says so, and goes on, where a loss pairs every output with every label.
    warnings.filterwarnings("error", message="Using a target size", category=UserWarning)
    rules.serving = True  # a script that begins a run while it is loaded is told so
    if spec["main"]:
        _load_main(Path(spec["main"]), spec["package"])
    server = _Server(spec)
    serve: Callable[..., None] = _client.serve
    serve(
        server.train,
        evaluate=server.evaluate if spec["evaluate"] else None,
        outputs=server.outputs if spec["module"] and not spec["evaluate"] else None,
        name=server.name(),
        corrections=True,
        fatal=True,
        hidden=_HIDDEN,
    )


def _load_main(file: Path, package: str | None) -> None:
    """Runs the file that stands for ``__main__``, but for its part under ``if __name__ == …``.

    What was pickled there is found again, as in the processes of multiprocessing.
    """
    spec = importlib.util.spec_from_file_location("__macaw_main__", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if package:
        module.__package__ = package
    for name in ("__main__", "__mp_main__", "__macaw_main__"):
        sys.modules[name] = module
    spec.loader.exec_module(module)


def load(home: Mapping[str, Any]) -> Any:
    """The function of a Home (_source.py)."""
    file = Path(home["file"])
    if hashlib.sha256(file.read_bytes()).hexdigest() != home["digest"]:
        raise SystemExit(
            f"RuntimeError: {file} has changed since the run was begun, and a run that goes on "
            "keeps its function: put the file back, or begin the run anew"
        )
    found: Any = importlib.import_module(home["module"])
    there = Path(getattr(found, "__file__", None) or "nowhere").resolve()
    if there != Path(home["file"]):
        raise ImportError(
            f"the module {home['module']} is {there} here, and {home['file']} where the run was "
            "begun"
        )
    for part in home["name"].split("."):
        found = getattr(found, part)
    return found


def _refuse_untrained(
    answer: Any, trained: Mapping[str, Array], weights: Mapping[str, Array]
) -> None:
    """Refuses a function that returns no model and has changed none, in its first turn."""
    returned = answer if not isinstance(answer, tuple) else answer[0]
    given = returned is not None and not (
        isinstance(returned, Mapping) and not set(returned) & set(weights)
    )
    if not given and all(np.array_equal(trained[name], weights[name]) for name in weights):
        raise RuntimeError(
            "the train function returned no model, and the model that it got is as it was given: "
            "train that one, or return the one that it has trained (return model if nothing is "
            "meant to change)"
        )


class _Server:
    """Loads the functions, and the module if there is one."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = spec
        self._seeding = Seeding()
        home = spec["loss"] or spec["train"]
        self._function, self._arguments = load(home), home["arguments"]
        self._evaluate = load(spec["evaluate"]) if spec["evaluate"] else None
        self._has_trained = False
        self._torch: Any = None
        self._device = "cpu"
        self._module: Any = None  # as it was given
        self._evaluated: Any = None  # a copy, for evaluations
        if spec["module"]:
            import torch

            torch.set_num_threads(1)  # a process a slot
            self._torch = torch
            self._device = "cuda" if torch.cuda.is_available() else "cpu"
            self._module = pickle.loads(Path(spec["module"]).read_bytes()).to(self._device)

    def name(self) -> str:
        """What decides the bits of its results."""
        homes = [self._spec["loss"] or self._spec["train"], self._spec["evaluate"]]
        words = [
            f"{home['name']} {json.dumps(home['arguments'], sort_keys=True)} of "
            f"{Path(home['file']).name} {home['digest'][:16]}"
            for home in homes
            if home
        ]
        words += [f"Python {platform.python_version()}", f"NumPy {np.__version__}"]
        if self._torch is not None:
            words += [f"torch {self._torch.__version__}", self._device]
        return ", ".join(words)

    # ---- questions

    def train(self, weights: dict[str, Array], task: Any) -> tuple[Any, int, int, Any]:
        if len(task.y) == 0:
            return None, 0, 0, 0.0
        joins = self._module is not None and any(
            b.is_floating_point() for b in self._module.buffers()
        )
        ctx = TrainContext(task, self._device, self._torch, joins)
        rows = self._rows(task)
        model: Any = {name: array.copy() for name, array in weights.items()}
        if self._module is not None:
            model = self._loaded(self._copied(weights), weights)
            model.train()
            for name, parameter in model.named_parameters():
                if name in weights and name not in ctx.trainable:
                    parameter.requires_grad_(False)
        self._seeding.begin(ctx.seed)
        if self._spec["loss"]:
            answer = self._train_by_loss(model, rows, ctx)
        else:
            answer = self._function(model, rows, ctx, **self._arguments)
        if not ctx.corrected:
            raise RuntimeError(
                "the algorithm corrects the gradients of its clients, and the train function does "
                "not: call ctx.correct(model) between backward() and step(), or use ctx.mu, "
                "ctx.anchor and ctx.v"
            )
        trained, metrics = self._answer(answer, model, weights)
        # A batch that is tried before the run has weights of zero, at which a gradient may vanish;
        # and the steps of loss= are taken here.
        if not (task.trial or self._has_trained or self._spec["loss"]) and ctx.lr != 0:
            _refuse_untrained(answer, trained, weights)
        self._has_trained = not task.trial
        steps = int(metrics.pop("steps", ctx.steps or _nominal_steps(ctx.local, len(task.y))))
        used = int(metrics.pop("rows", len(task.y)))
        planned = _nominal_steps(ctx.local, len(task.y))
        once = task.x.size if task.task == "next-token" else len(task.y)
        _refuse_count("rows", used, once + once * planned * ctx.batch_size // len(task.y))
        if used == 0 and any(not np.array_equal(trained[n], weights[n]) for n in weights):
            raise ValueError(
                'the train function returned {"rows": 0} and a model that has changed: leave it '
                "out, or say how many rows it has taken, which its losses are means of"
            )
        _refuse_count("steps", steps, 1 + planned)
        _refuse_metrics(metrics, task.sums, "the train function")
        if metrics and "loss" not in metrics:
            raise KeyError(
                f"the train function returned {', '.join(metrics)} without a loss, and a run takes "
                'them together: return {"loss": …} beside it, or neither'
            )
        sums = sums_of_means(metrics, task.sums, used, all_of=False)
        return trained, used, steps, sums if metrics else None

    def evaluate(self, weights: dict[str, Array], task: Any) -> dict[str, float]:
        assert self._evaluate is not None
        if self._module is not None:
            model = self._for_evaluation(weights)
        else:
            model = {name: array.copy() for name, array in weights.items()}
        arguments = self._spec["evaluate"]["arguments"]
        self._seeding.begin(task.client)
        metrics = self._evaluate(model, self._rows(task), **arguments)
        if not isinstance(metrics, Mapping) or "loss" not in metrics:
            raise TypeError('the evaluate function must return a dict with "loss", a mean of rows')
        _refuse_metrics(metrics, task.sums, "the evaluate function")
        return sums_of_means(metrics, task.sums, len(task.y), all_of=True)

    def outputs(self, weights: dict[str, Array], task: Any) -> Any:
        module = self._for_evaluation(weights)
        self._seeding.begin(0)  # of a module that draws when it is evaluated, too
        with self._torch.no_grad():
            found = _trace.logits_of(module(self._rows(task).x))
        if found is None:
            raise TypeError("the module returns no tensor and no logits: give evaluate=")
        return found.reshape(-1, 1) if found.dim() == 1 and task.outputs == 1 else found

    # ---- the function's side

    def _train_by_loss(self, module: Any, rows: Rows, ctx: TrainContext) -> dict[str, Any]:
        """Steps as ``[local]`` says, with the caller's loss."""
        optimizer = ctx.optimizer([p for p in module.parameters() if p.requires_grad])
        clip, before = ctx.local["clip_norm"], ctx.local["clip"] == "gradient"
        self._let_norms_meet_one_value(module)
        losses, used = 0.0, 0
        for batch in ctx.batches():
            optimizer.zero_grad()
            outputs, y = module(rows.x[batch]), rows.y[batch]
            if not self._has_trained and used == 0:
                self._refuse_shapes(outputs, y)
            value = self._function(outputs, y, **self._arguments)
            if not self._torch.is_tensor(value) or value.numel() != 1:
                raise TypeError(
                    f"the loss is {type(value).__name__}, and not a tensor of one number: return "
                    "the mean over the batch"
                )
            if not value.requires_grad:
                raise TypeError(
                    f"the loss {self._spec['loss']['name']} returned a number without a gradient: "
                    "compute it from the outputs by operations of PyTorch, without detach(), "
                    "item(), NumPy or torch.no_grad()"
                )
            value.backward()
            if clip > 0 and before:
                self._torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            ctx.correct(module)
            if clip > 0 and not before:
                self._torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
            optimizer.step()
            losses += value.item() * len(batch)
            used += len(batch)
        return {"loss": losses / max(used, 1), "rows": used}

    def _let_norms_meet_one_value(self, module: Any) -> None:
        """Has batch norms take their running statistics where a channel has one value.

        Such a batch has no variance.
        """

        def choose(norm: Any, inputs: tuple[Any, ...]) -> None:
            norm.training = inputs[0].numel() > inputs[0].shape[1]

        for norm in module.modules():
            kind = self._torch.nn.modules.batchnorm._BatchNorm
            if isinstance(norm, kind) and norm.training and norm.track_running_stats:
                norm.register_forward_pre_hook(choose)

    def _refuse_shapes(self, outputs: Any, y: Any) -> None:
        """Refuses a loss that pairs every output of a batch with every y, or that has no y."""
        torch = self._torch
        if torch.is_tensor(outputs) and outputs.ndim == 3 and y.ndim == 1:
            raise RuntimeError(
                f"the loss: the model has outputs at each position, {list(outputs.shape)}, and y "
                "is the token after the last one alone; train by a function of your own, train=f, "
                "which has the tokens, rows.x, and how many of each row count, rows.lengths"
            )
        if not torch.is_tensor(outputs) or outputs.shape != (len(y), 1) or y.ndim != 1:
            return
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # PyTorch's own about the shapes
            if pairs_all(
                lambda o, y: self._function(o, y, **self._arguments),
                not y.is_floating_point(),
                lambda array: torch.from_numpy(array).to(outputs.device),
            ):
                raise RuntimeError(f"the loss: {ADVICE}")

    def _answer(
        self, answer: Any, model: Any, weights: dict[str, Array]
    ) -> tuple[Any, dict[str, Any]]:
        """The trained weights, and metrics, of what the function returned."""
        metrics: Any = {}
        if isinstance(answer, tuple) and len(answer) == 2:
            answer, metrics = answer
        elif isinstance(answer, Mapping) and not set(answer) & set(weights):
            answer, metrics = None, answer
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"the train function returned {type(metrics).__name__} beside the model; return "
                'the model, (model, {"loss": …}), or metrics alone for a model trained in place'
            )
        trained = model if answer is None else answer
        if self._torch is not None and isinstance(trained, self._torch.nn.Module):
            trained = self._tensors_of(trained, weights)
        if not isinstance(trained, Mapping):
            raise TypeError(
                f"the train function returned {type(trained).__name__}; return the model, (model, "
                '{"loss": …}), or nothing for a model that is trained in place'
            )
        missing = sorted(set(weights) - set(trained))
        if missing:
            raise TypeError(f"the train function returned no {', '.join(missing)}")
        if more := sorted(map(str, set(trained) - set(weights) - self._further())):
            raise TypeError(
                f"the train function returned {', '.join(more)}, and the model has "
                f"{', '.join(weights)}: return these alone, and numbers beside them, "
                '(model, {"loss": …})'
            )
        dtype = next(iter(weights.values())).dtype
        whole = self._whole_numbers()
        arrays = {
            name: array_given(name, trained[name], dtype, whole=name in whole) for name in weights
        }
        return arrays, dict(metrics)

    # ---- the module

    def _rows(self, task: Any) -> Rows:
        torch = self._torch
        if torch is None:
            return Rows(task.x, task.y, task.lengths)
        x, y = torch.from_numpy(task.x), torch.from_numpy(task.y)
        lengths = None if task.lengths is None else torch.from_numpy(task.lengths).to(self._device)
        if x.dtype == torch.int32:  # tokens, which an embedding takes as int64
            x = x.long()
        return Rows(x.to(self._device), y.to(self._device), lengths)

    def _copied(self, weights: Mapping[str, Array]) -> Any:
        """As it was given: whatever a function leaves on a copy is gone with it."""
        if next(iter(weights.values())).dtype == np.float64:  # run.dtype
            self._module = self._module.double()
        return _modules.copy_of(self._module)

    def _places(self, module: Any) -> dict[str, Any]:
        return {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def _further(self) -> set[str]:
        """What the module may have beside the tensors of the run: a second name of one, buffers
        that are in no file."""
        module = self._module
        return set() if module is None else {*module.state_dict(), *self._places(module)}

    def _whole_numbers(self) -> set[str]:
        """The tensors of the module that are no floats, such as a counter."""
        places = {} if self._module is None else self._places(self._module)
        return {name for name, tensor in places.items() if not tensor.is_floating_point()}

    def _loaded(self, module: Any, weights: Mapping[str, Array]) -> Any:
        places = self._places(module)
        with self._torch.no_grad():
            for name, array in weights.items():
                places[name].copy_(self._torch.from_numpy(np.array(array)))
        return module

    def _for_evaluation(self, weights: Mapping[str, Array]) -> Any:
        if self._evaluated is None:
            self._evaluated = self._copied(weights)
        self._loaded(self._evaluated, weights).eval()
        return self._evaluated

    def _tensors_of(self, module: Any, weights: Mapping[str, Array]) -> dict[str, Any]:
        places = self._places(module)
        missing = sorted(set(weights) - set(places))
        if missing:
            raise TypeError(
                f"the train function returned a module without {', '.join(missing)}: it must have "
                "the tensors of the one that it got"
            )
        return {name: places[name] for name in weights}


def _nominal_steps(local: Mapping[str, Any], rows: int) -> int:
    size = local["batch_size"] or rows
    return int(local["steps"] or local["epochs"] * -(-rows // size))


def _refuse_metrics(metrics: Mapping[str, Any], names: list[str], whose: str) -> None:
    """Refuses what the run has no sum for, and percentages."""
    known = means_in(names)
    for name, value in metrics.items():
        if name not in known:
            raise KeyError(
                f"{whose} returned the metric {name!r}; a run of this task takes "
                f"{', '.join(known)} from it (metrics= and on_round= add columns of your own)"
            )
        if name == "accuracy" and not 0 <= float(value) <= 1:
            raise ValueError(
                f"{whose} returned {name} {float(value):g}, and a mean over rows is at most 1"
            )


_MOST_PASSES = 1000  # times what [local] says; a server takes no more (server/engine)


def _refuse_count(name: str, count: int, planned: int) -> None:
    if not 0 <= count <= _MOST_PASSES * planned:
        raise ValueError(
            f'the train function returned {{"{name}": {count}}}: leave it out, or say how many '
            f"{name} it has taken; a run takes at most {_MOST_PASSES} times what [local] asks for"
        )
