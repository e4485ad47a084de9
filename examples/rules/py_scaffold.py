"""SCAFFOLD (Karimireddy et al., ICML 2020, algorithm 1) in Python: the same bits as the built-in.

plugins = ["rules/py_scaffold.py"]; algorithm.name = "py_scaffold"
"""

from macaw.rules import Gradient, Result, Rule, Schema, State, Train, Up, parameter


class PyScaffold(Rule):
    """Control variates take the clients' drift out of their steps."""

    paper = "Karimireddy et al., 2020, SCAFFOLD: Stochastic Controlled Averaging"
    totals = ("clients",)  # what schema() divides by
    option: int = parameter(2, "c_i from 1: a full gradient at x; 2: the steps taken", 1, 2)
    server_lr: float = parameter(1.0, "η_g: the model moves by η_g times the mean", minimum=0)

    def check(self, setup):
        super().check(setup)
        if setup.local.optimizer != "sgd":
            raise ValueError('the rule counts SGD steps; use local.optimizer = "sgd"')

    def schema(self, setup):
        return Schema(
            down=["model", "control"],
            up=[Up("delta", "mean"), Up("control_change", "sum", divisor=setup.clients)],
            state=[State("control", summed=True)],  # in the server's control
        )

    def passes(self, setup):
        return 1, 1 if self.option == 1 else 0

    def prepare(self, ctx):
        # local step: y <- y - eta (g - c_i + c)
        steps = Train(ctx.model, v=[(ctx.down["control"], 1), (ctx.state["control"], -1)])
        return [steps, Gradient(ctx.model)] if self.option == 1 else [steps]

    def conclude(self, ctx, outcomes):
        steps, c, c_i = outcomes[0], ctx.down["control"], ctx.state["control"]
        delta = steps.end - ctx.model
        if self.option == 1:  # (i): the gradient at x
            control = outcomes[1].end.copy()
        elif steps.rate_sum == 0:  # no steps, or a rate of 0
            control = c_i.copy()
        else:  # (ii): c_i - c + (x - y_i) / (K eta), where momentum makes K the norm of a
            travelled = steps.rate_sum * (steps.a_norm1 / steps.steps)
            control = c_i - c
            control += (-1 / travelled) * delta
        control[ctx.layout.parameters :] = 0  # statistics have no gradient
        up = {"delta": delta, "control_change": control - c_i}
        return Result(up, state={"control": control})

    def apply(self, ctx, aggregate):
        ctx.move_model(aggregate["delta"].value, self.server_lr)
        ctx.vectors["control"] += aggregate["control_change"].value

    def forget_states(self, ctx):
        ctx.vectors["control"][:] = 0
