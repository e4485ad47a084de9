"""Whether a run has ended with the models and metrics of the formulas, and whether something else would have, too."""
import json

import numpy as np

import metrics
from attacks import Attack
from cases import COHORT, DECAY, FINE_TUNE_LR, HOSTILE, LR, ROUNDS, RULES, WITHOUT_EPOCHS
from local_work import Local
from personal import Personal, fine_tuned
from problem import BATCH, CLIENTS

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}  # of models, and of losses
EXACT, ROUNDED = TOLERANCE.values()              # what is counted is exact in both
CALIBRATED = 1e-6                                # some units of 2⁻²⁴
OBJECTIVE = {"l2_penalty", "train_objective"}
SUMMED = OBJECTIVE | {"rule_inertia"}            # of numbers that are rounded


def repeated(case, problem, turns, hostile=(), attack=None, parameters=None):
    """The rule after these rounds, in double; `attack` and `parameters` instead of the case's."""
    attack = case.attack if attack is None else attack
    problem = problem.attacked(attack, hostile)
    around = Attack(hostile=hostile, **attack) if attack else None
    rule = (case.by or RULES[case.rule])(problem, Local(LR, case.momentum, DECAY), **(parameters or case.parameters))
    for clients in turns:
        rule.round(clients, around)
    return rule


def apart(one, other):
    """The largest difference between two rules' models, those of clients among them."""
    return max([np.abs(one.result() - other.result()).max()] +
               [np.abs(one.state[k] - other.state[k]).max() for k in one.state])


def another(key, value):
    """A parameter's value that must lead elsewhere; None: this one is not tried."""
    if isinstance(value, str) or key in ("head_epochs", "clusters"):  # the trace has the head's batches; starts
        return None
    if isinstance(value, bool):
        return not value
    return {"option": 3 - value}.get(key, value + 1) if isinstance(value, int) else 0.5 * value + 0.02


def same_batches(stages, others):
    return len(stages) == len(others) and all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b)) for a, b in zip(stages, others))


class Comparison:
    """Of a run with its replay. `off` says what is wrong, `facts` how much was looked at."""

    def __init__(self, case, dtype, problem, run, starts=None):
        self.case, self.dtype, self.problem, self.run, self.starts = case, dtype, problem, run, starts
        self.facts, self.off = 0, []
        self.rule = repeated(case, problem, run.turns, run.hostile)
        self.common, self.group = run.model, getattr(self.rule, "group", None)
        self.kept = run.states(self.rule.kept) if isinstance(self.rule, Personal) else {}
        self.several = run.models() if starts else []

    def that(self, fact, words):
        self.facts += 1
        if not fact:
            self.off.append(words)

    def near(self, name, found, expected, tolerance):
        """What is not defined is null, and NaN here."""
        found = np.asarray(found, float)
        same = (np.abs(found - expected) <= tolerance) | (np.isnan(found) & np.isnan(expected))
        self.that(same.all(), f"{name} is {found}, not {expected} (± {tolerance:g})")

    def own(self, client):
        """The model with which the client's rows are tested, from the run's files."""
        if self.starts:
            return self.several[self.choice(client)]
        return self.rule.tested(client, self.kept[client], self.common) if client in self.kept else self.common

    def choice(self, client):
        """Which of the run's models has the least loss on the client's training rows."""
        losses = [self.problem.loss(model, client) for model in self.several]
        return losses.index(min(losses))

    def trace(self):
        """Each row is in as many batches as there are epochs."""
        turns, case = self.run.turns, self.case
        cohort = case.settings.get("cohort.size", COHORT)
        rounds = case.settings.get("run.rounds", ROUNDS)
        self.that(len(turns) == rounds and all(len(clients) == cohort for clients in turns), "rounds are missing")
        epochs = {"gd": [1], "ditto": [2, 2], "fedrep": [case.parameters.get("head_epochs"), 2]}.get(case.rule, [2])
        train = self.problem.together().train if case.rule == "pooled" else self.problem.train
        for k, stages in [turn for clients in turns for turn in clients.items()]:
            seen = [np.bincount(np.concatenate(batches), minlength=len(train[k])) for batches in stages]
            self.that(len(seen) in (0, len(epochs)) and all((rows == e).all() for rows, e in zip(seen, epochs)),
                      f"client {k} has seen its rows {seen} times")
        ragged = any(len({len(batch) for batch in stages[0]}) > 1
                     for clients in turns for stages in clients.values() if stages)
        self.that(ragged or case.rule in WITHOUT_EPOCHS, "no batch is ragged")

    def models(self):
        """Returns the largest difference, and how far the models have moved."""
        start, pairs = self.problem.start, []
        if self.starts:
            pairs = list(zip(self.several, self.rule.models, self.starts))
            for j, start in enumerate(self.starts):
                self.near(f"the start of model {j}", start, self.rule.start(j), TOLERANCE[self.dtype])
            self.near("model.safetensors", self.common, self.several[0], 0)
        elif self.case.rule == "local":
            self.near("the initial model", self.common, start, 0)
        else:
            pairs.append((self.common, self.rule.result(), start))
        if self.kept:
            group = self.group
            self.that(set(self.kept) == set(self.rule.state), "other clients have a state")
            pairs += [(kept[group], self.rule.state[k][group], start[group]) for k, kept in self.kept.items()]
            apart_from_common = max(np.abs(kept - self.common)[group].max() for kept in self.kept.values())
            self.that(apart_from_common > 0.05, "no client has a model of its own")
        error = max(np.abs(found - expected).max() for found, expected, _ in pairs)
        moved = min(np.abs(found - begin).max() for found, _, begin in pairs)
        self.that(error <= TOLERANCE[self.dtype], f"the models differ by {error:.1e}")
        self.that(moved > 0.05, f"a model has moved by {moved:.2g} only")
        return error, moved

    def outputs_of_clients(self):
        """By the columns' beginning, the outputs of each client's test rows, and their labels. Hostile clients are not
        tested."""
        clients = [k for k in range(CLIENTS) if k not in self.run.hostile]
        rows = [self.problem.of(self.problem.client_test[k]) for k in clients]

        def at(models):
            return [self.problem.network.outputs_of(model, x) for model, (x, _) in zip(models, rows)]

        outputs = {"clients_test_": at([self.own(k) for k in clients])}
        if self.kept and self.case.rule != "local":
            outputs["clients_test_global_"] = at([self.common] * len(clients))
        if steps := self.case.settings.get("evaluation.fine_tune.steps"):
            local = Local(FINE_TUNE_LR, self.case.momentum, DECAY)
            outputs["clients_test_tuned_"] = at([fine_tuned(self.problem, self.own(k), k, local, steps, BATCH)
                                                 for k in clients])
        return outputs, [y for _, y in rows]

    def metrics(self):
        """All columns of the evaluation, from the models that the run has written."""
        if self.problem.model == "autoencoder":
            return self.reconstruction()
        problem, expected, pooled = self.problem, {}, {}
        outputs, labels = self.outputs_of_clients()
        for prefix, of_clients in outputs.items():
            expected |= metrics.columns_of_clients(prefix, of_clients, labels, problem.measured)
            pooled[prefix] = np.concatenate(of_clients), np.concatenate(labels)
        if groups := problem.settings().get("evaluation.groups"):
            expected |= metrics.columns_of_groups("clients_test_", groups, outputs["clients_test_"], labels,
                                                  problem.measured)
        if self.case.rule != "local" and not self.starts:
            x, y = problem.of(problem.test)
            pooled["test_"] = problem.network.outputs_of(self.common, x), y
            expected |= {f"test_{name}": value for name, value in problem.measured(*pooled["test_"]).items()}
        if self.case.attack.get("kind") == "backdoor":
            target = self.case.attack["target"]
            others = problem.test[problem.y[problem.test] != target]
            misled = problem.network.outputs_of(self.common, problem.stamped(others, target).x[others])
            expected["backdoor_success"] = (misled.argmax(axis=1) == target).mean()
            self.that(len(others) < len(problem.test), "no test row has the target class")
        trained = problem.attacked(self.case.attack, self.run.hostile)
        if self.starts:
            of_models, pooled["clients_train_"] = self.by_model(outputs, labels)
            expected |= of_models
        elif self.case.rule != "local":
            objective, pooled["clients_train_"] = metrics.objective(trained, self.common, DECAY)
            expected |= objective
        self.of_each_client(outputs["clients_test_"], labels)
        expected |= self.rule.columns
        columns = {name for name in self.run.metrics
                   if name.startswith(("test_", "clients_", "backdoor_")) or name in OBJECTIVE | self.rule.columns.keys()}
        self.that(columns == set(expected), f"in one list of columns alone: {sorted(columns ^ set(expected))}")
        if self.case.rule == "local":
            distances = [np.linalg.norm(self.kept[k] - problem.start) for k in self.run.turns[-1]]
            self.near("rule_distance", self.run.metrics["rule_distance"], np.mean(distances), TOLERANCE[self.dtype])
        if self.case.rule == "apfl":
            self.near("rule_alpha", self.run.metrics["rule_alpha"],
                      np.mean([self.rule.alpha[k] for k in self.run.turns[-1]]), TOLERANCE[self.dtype])
        if self.dtype == "float32" and min(metrics.margin(outputs) for outputs, _ in pooled.values()) < ROUNDED:
            return  # a row may be predicted otherwise
        for name, value in expected.items():
            counted = "loss" not in name and name not in SUMMED
            if "_ece" in name:  # a confidence may be rounded to the next unit; float32: be in the next bin
                if self.dtype == "float64":
                    self.near(name, self.run.metrics.get(name), value, CALIBRATED)
            elif self.dtype == "float64" or "_auc" not in name:  # else a score may be in the next cell
                unit = max(1, abs(value)) if "_r2" in name else 1
                self.near(name, self.run.metrics.get(name), value, unit * (EXACT if counted else TOLERANCE[self.dtype]))
        if "confusion" not in problem.settings().get("evaluation.metrics", ["confusion"]):
            return
        for prefix, (outputs, y) in pooled.items():
            self.classes(prefix, outputs, y)

    def of_each_client(self, outputs, labels):
        """clients_evaluated.json: clients with test rows, in order, and what every run of the task measures."""
        found = json.loads((self.run.folder / "clients_evaluated.json").read_text())["clients_test"]
        clients = [k for k in range(CLIENTS) if k not in self.run.hostile]
        tested = [(k, o, y) for k, o, y in zip(clients, outputs, labels) if len(y)]
        self.that(found["client"] == [k for k, _, _ in tested], f"{found['client']} are evaluated")
        self.that(found["rows"] == [len(y) for _, _, y in tested], f"of {found['rows']} rows")
        each = [self.problem.measured(o, y) for _, o, y in tested]
        for name in {"loss", "accuracy", "mae", "precision", "recall"} & each[0].keys():
            if self.dtype == "float64":
                self.near(f"each client's {name}", found[name], np.array([client[name] for client in each]), EXACT)
        if self.starts:
            self.that(found["model"] == [self.choice(k) for k, _, _ in tested], f"at the models {found['model']}")

    def reconstruction(self):
        """The mean squared errors of a feature, and that of the round's training rows."""
        problem, last = self.problem, self.run.turns[-1]
        rows = {"test_loss": problem.test, "clients_test_loss": np.concatenate(problem.client_test),
                "clients_train_loss": np.concatenate(problem.train),
                "rule_error": np.concatenate([problem.train[k] for k in last])}
        for name, of in rows.items():
            off = problem.network.outputs_of(self.common, problem.x[of]) - problem.x[of]
            self.near(name, self.run.metrics[name], (off ** 2).mean(), TOLERANCE[self.dtype])
        self.near("rule_rows", self.run.metrics["rule_rows"], len(rows["rule_error"]), 0)

    def contributions(self):
        """In a round that leaves each client out once, the test metrics without it."""
        if not (every := self.case.settings.get("evaluation.leave_one_out")):
            return
        last, problem = self.run.turns[every - 1], self.problem
        line = self.run.contributions()[every]
        self.that(line["client"] == sorted(last), f"{line['client']} are left out, not {sorted(last)}")
        y, differ = problem.y[problem.test], 0.0
        for i, k in enumerate(line["client"]):
            others = {client: stages for client, stages in last.items() if client != k}
            rule = repeated(self.case, problem, self.run.turns[:every - 1] + [others], self.run.hostile)
            outputs = problem.network.outputs_of(rule.result(), problem.x[problem.test])
            found = metrics.of_rows(outputs, y, problem.classes)
            loss = TOLERANCE[self.dtype]
            self.near(f"test_loss without {k}", line["test_loss"][i], found["loss"], loss)
            self.near(f"delta_test_loss of {k}", line["delta_test_loss"][i],
                      self.run.metrics["test_loss"] - found["loss"], loss)
            if self.dtype == "float64" or metrics.margin(outputs) >= ROUNDED:
                self.near(f"test_accuracy without {k}", line["test_accuracy"][i], found["accuracy"], EXACT)
            differ = max(differ, abs(line["delta_test_loss"][i]))
        self.that(differ > 1e-3, f"no client makes a difference of more than {differ:.1e}")

    def by_model(self, outputs, labels):
        """The columns of a rule with several models: the objective, each client's rows at its model; and the test rows of
        the clients that chose each."""
        problem, choices = self.problem, [self.choice(k) for k in range(CLIENTS)]
        train = [problem.network.outputs_of(self.own(k), problem.batch(k)[0]) for k in range(CLIENTS)]
        rows = np.concatenate(train), np.concatenate([problem.batch(k)[1] for k in range(CLIENTS)])
        of_all = problem.measured(*rows)
        columns = {f"clients_train_{name}": value for name, value in of_all.items()}
        columns["clients_train_missing"] = 0
        for j in range(len(self.starts)):
            of_model = [k for k in range(CLIENTS) if choices[k] == j and len(labels[k])]
            columns[f"clients_test_model{j}_clients"] = len(of_model)
            found = dict.fromkeys(of_all, np.nan)
            if of_model:
                found = metrics.together(problem.measured, [outputs["clients_test_"][k] for k in of_model],
                                         [labels[k] for k in of_model])
            columns |= {f"clients_test_model{j}_{name}": value for name, value in found.items()}
        self.that(len(set(choices)) > 1, "all clients choose one model")
        return columns, rows

    def classes(self, prefix, outputs, y):
        """The confusion matrix and each class's metrics; and the AUC of the scores themselves."""
        found = self.run.confusion()[prefix.rstrip("_")]
        self.that(found["rows"] == found["counted"] == len(y), f"{prefix}: rows of the confusion matrix")
        for name, value in metrics.by_class(outputs, y, self.problem.classes).items():
            if name != "auc" or self.dtype == "float64":
                self.near(f"{prefix} {name} by class", found[name], value, EXACT)
        auc, bound = metrics.auc_of_scores(outputs, y, 0 if self.dtype == "float64" else ROUNDED)
        self.near(f"{prefix}auc, of scores", self.run.metrics[f"{prefix}auc"], auc, bound + EXACT)
        self.that(bound < 0.01, f"{prefix}auc may be wrong by {bound}")

    def parameters(self):
        """A replay with another parameter must end elsewhere."""
        self.that(not self.run.hostile, "hostile clients without an attack")
        for key, value in self.case.parameters.items() if self.case.by is None else ():
            other = another(key, value)
            if other is None:
                continue
            changed = self.case.parameters | {key: other}
            moved = apart(self.rule, repeated(self.case, self.problem, self.run.turns, parameters=changed))
            self.that(moved > 1e-6, f"{key} = {other} ends only {moved:.1e} from {key} = {value}")

    def attack(self, honest_turns):
        """So must one without the attack, or with another; `honest_turns` are those of a run without it."""
        hostile, attack = self.run.hostile, self.case.attack
        self.that(len(hostile) == int(HOSTILE * CLIENTS), f"{sorted(hostile)} are hostile")
        self.that(self.run.metrics["rule_attackers"] == len(hostile & set(self.run.turns[-1])), "rule_attackers")
        idle = hostile if attack["kind"] == "free-rider" else ()
        for turns, honest in zip(self.run.turns, honest_turns):
            self.that(all(same_batches(stages, [] if k in idle else honest[k]) for k, stages in turns.items()),
                      "an attack changes the batches")
        others = {"alie": [{"z": 0.3}], "free-rider": [], "mimic": [], "min-max": [{"kind": "min-sum"}],
                  "min-sum": [{"kind": "min-max"}]}.get(attack["kind"], [{"scale": 0.8}])
        for other in [{}] + [attack | change for change in others]:
            moved = apart(self.rule, repeated(self.case, self.problem, honest_turns, hostile, other))
            self.that(moved > 1e-3, f"{attack} ends only {moved:.1e} from {other}")
