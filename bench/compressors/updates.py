"""Rules that write down what clients send, and that send it again through a codec.

compressors.py runs them: `record` is FedAvg, `replay` a run of one client.
"""

import json
import pathlib

import numpy as np

from macaw.rules import Metric, Rule, Schema, State, Up


class Record(Rule):
    """FedAvg whose server writes each client's update of two rounds to a folder, and one of
    them with zeros in its second matrix."""

    folder: str = ""
    early: int = 1
    late: int = 60

    def schema(self, setup):  # noqa: ARG002
        return Schema(up=[Up("delta"), Up("own", "collect")])

    def conclude(self, ctx, outcomes):
        delta = outcomes[0].end - ctx.model
        return {"delta": delta, "own": delta}

    def apply(self, ctx, aggregate):
        if ctx.round in (self.early, self.late):
            when = "early" if ctx.round == self.early else "late"
            folder = pathlib.Path(self.folder)
            for client, update in aggregate["own"].collected:
                np.save(folder / f"{when}-{client}.npy", update)
            holed = update.copy()
            [t for t in ctx.tensors(holed).values() if t.ndim > 1][1][:] = 0
            np.save(folder / "zeros-0.npy", holed)
            (folder / "layout.json").write_text(json.dumps(ctx.layout.entries))
        ctx.move_model(aggregate["delta"].value)


class Replay(Rule):
    """Sends a recorded update in every round; the model stays. Reports what came of the codec."""

    file: str = ""

    def schema(self, setup):  # noqa: ARG002
        metrics = [Metric(name, None) for name in ("error", "of_mean", "at_zeros")]
        return Schema(server=[State("sum")], metrics=metrics)

    def prepare(self, ctx):  # noqa: ARG002
        return []

    def conclude(self, ctx, outcomes):  # noqa: ARG002
        return {"delta": np.load(self.file)}

    def apply(self, ctx, aggregate):
        sent, came = np.load(self.file), aggregate["delta"].value
        ctx.vectors["sum"][:] += came
        mean = ctx.vectors["sum"] / np.float32(ctx.round)
        norm = np.linalg.norm(sent)
        ctx.report("error", np.linalg.norm(came - sent) / norm)
        ctx.report("of_mean", np.linalg.norm(mean - sent) / norm)
        ctx.report("at_zeros", np.abs(came[sent == 0]).max(initial=0))
