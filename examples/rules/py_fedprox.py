"""FedProx (Li et al., MLSys 2020) in Python: the same bits as the built-in.

plugins = ["rules/py_fedprox.py"]; algorithm.name = "py_fedprox"
"""

from macaw.rules import Rule, Train, parameter


class PyFedProx(Rule):
    """FedAvg with a proximal term that keeps clients near the global model."""

    name = "py_fedprox"
    paper = "Li et al., 2020, Federated Optimization in Heterogeneous Networks"
    mu: float = parameter(0.01, "μ: strength of the pull towards x; 0 is FedAvg", minimum=0)
    server_lr: float = parameter(1.0, "η_g: the model moves by η_g times the mean", minimum=0)

    def prepare(self, ctx):
        return [Train(ctx.model, mu=self.mu)]  # the anchor is the stage's start, x

    def conclude(self, ctx, outcomes):
        return {"delta": outcomes[0].end - ctx.model}

    def apply(self, ctx, aggregate):
        ctx.move_model(aggregate["delta"].value, self.server_lr)
