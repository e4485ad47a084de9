"""What is repeated: every built-in rule, every attack, and what else decides a model."""
from dataclasses import dataclass, field, replace

import elastic
import personal
import robust
import rules
import statistics_rules
from problem import BATCH, CLIENTS, SEED
from uneven import MODELS as UNEVEN

ROUNDS, COHORT, HOSTILE = 5, 8, 0.25
LR, DECAY, FINE_TUNE_LR = 0.2, 1e-3, 0.07
BASE = {
    "run.rounds": ROUNDS, "run.seed": SEED, "cohort.size": COHORT, "local.epochs": 2, "local.batch_size": BATCH,
    "local.lr": LR, "local.weight_decay": DECAY, "evaluation.every": 0, "evaluation.clients": True,
    "evaluation.splits": ["train", "test"], "evaluation.metrics": ["balanced_accuracy", "f1", "auc", "ece", "confusion"],
}
SUMS = {"daef", "kmeans", "ridge"}
WITHOUT_EPOCHS = SUMS | {"gd"}
RULES = {
    "afl": rules.Afl, "apfl": personal.APFL, "centered_clipping": robust.CenteredClipping, "ditto": personal.Ditto, "fedadagrad": rules.FedAdagrad,
    "fedadam": rules.FedAdam, "fedavg": rules.FedAvg, "fedavgm": rules.FedAvgM, "fedbn": personal.FedBN,
    "feddyn": rules.FedDyn, "fedexp": rules.FedExP, "fednova": rules.FedNova, "fedper": personal.FedPer, "fedprox": rules.FedProx, "fedrep": personal.FedRep,
    "fedsam": rules.FedSAM, "fedyogi": rules.FedYogi, "fltrust": robust.FLTrust, "gd": rules.GradientDescent, "geometric_median": robust.GeometricMedian,
    "daef": statistics_rules.Daef, "heterofl": elastic.HeteroFL, "kmeans": statistics_rules.KMeans, "ridge": statistics_rules.Ridge,
    "ifca": rules.Ifca,
    "krum": robust.Krum, "local": personal.Alone, "median": robust.Median, "mime": rules.Mime,
    "mimelite": rules.MimeLite, "moon": rules.Moon, "norm_bound": robust.NormBound, "perfedavg": rules.PerFedAvg, "pfedme": personal.PFedMe,
    "pooled": personal.Pooled, "qfedavg": rules.QFedAvg, "scaffold": rules.Scaffold, "term": rules.Term,
    "trimmed_mean": robust.TrimmedMean,
}


@dataclass
class Case:
    label: str
    rule: str
    parameters: dict = field(default_factory=dict)  # of the rule
    momentum: float = 0.0
    model: str = "softmax"
    attack: dict = field(default_factory=dict)      # kind, scale, z
    settings: dict = field(default_factory=dict)    # other keys of the configuration
    by: type = None                                 # what repeats it; default: RULES[rule]

    def dtypes(self):
        """LibTorch trains batch norm in both types, so float32 is for the other models, where a rule has one. What is
        measured is the same in both."""
        if self.model in UNEVEN:
            return ["float64"]
        others = any(case.rule == self.rule and case.model != "norm" for case in CASES)
        float64_alone = self.model == "norm" and others and self.label != NORM_IN_FLOAT32
        return ["float64"] if float64_alone else ["float64", "float32"]

    def configuration(self, dtype):
        keys = BASE | {"run.dtype": dtype, "algorithm.name": self.rule, "local.momentum": self.momentum}
        if self.rule in WITHOUT_EPOCHS:  # it takes all rows once, and refuses what says otherwise
            del keys["local.epochs"], keys["local.batch_size"]
        if self.rule in SUMS:  # it takes no step
            del keys["local.lr"]
        if self.rule == "local":  # the server's model does not move
            keys["evaluation.splits"] = ["test"]
        if self.model in UNEVEN:  # its problem says them
            del keys["evaluation.metrics"]
        keys |= {f"algorithm.{self.rule}.{key}": value for key, value in self.parameters.items()}
        if self.attack:
            keys |= {"attack.fraction": HOSTILE} | {f"attack.{key}": value for key, value in self.attack.items()}
        return keys | self.settings

    def without_attack(self):
        return replace(self, label=f"without {self.label}", attack={})


def attacked(rule, kind, parameters=None, model="softmax", label="", momentum=0.0, **attack):
    return Case(f"{rule} under {kind}{label}", rule, parameters or {}, momentum, model, {"kind": kind, **attack})


MIME = {"beta1": 0.8, "beta2": 0.95, "epsilon": 0.1}
ADAPTIVE = {"server_lr": 0.3, "beta1": 0.7, "beta2": 0.9, "tau": 0.05}
NORM_IN_FLOAT32 = "fedavg, batch norm"
SEVEN = {"cohort.size": 7}
FINE_TUNE = {"evaluation.fine_tune.steps": 7, "evaluation.fine_tune.lr": FINE_TUNE_LR, "local.shuffle": False}
LEFT_OUT = {"evaluation.leave_one_out": ROUNDS}  # each client of the last round, once

CASES = [
    Case("fedavg", "fedavg", {"server_lr": 0.8}, 0.9),
    Case("fedavg, hidden layer", "fedavg", {}, 0.5, "hidden"),
    Case("fedavg, two classes", "fedavg", {}, 0.5, "binary"),
    Case("fedavg, batch norm", "fedavg", {"server_lr": 0.7}, 0.5, "norm"),
    Case("fedavg, clipped", "fedavg", {"update_clip": 0.6}, 0.5, "norm"),
    Case("fedavg, fine-tuned", "fedavg", {}, 0.5, settings=FINE_TUNE),
    Case("fedavg, adapters", "fedavg", {}, 0.5, "adapted"),
    Case("fedavg, adapters, clipped", "fedavg", {"update_clip": 0.4}, 0.0, "adapted"),
    Case("fedavg, adapters, A frozen", "fedavg", {"server_lr": 0.9}, 0.5, "half adapted"),
    Case("fedavg, left out", "fedavg", {"server_lr": 0.8}, 0.5, "norm", settings=LEFT_OUT),
    Case("fedavg under sign-flip, left out", "fedavg", {}, 0.0, "softmax", {"kind": "sign-flip"}, LEFT_OUT),
    Case("scaffold, left out", "scaffold", {"option": 2}, settings=LEFT_OUT),
    Case("fedadam, left out", "fedadam", ADAPTIVE, 0.5, settings=LEFT_OUT),
    Case("fedexp, left out", "fedexp", {"epsilon": 0.01}, 0.5, settings=LEFT_OUT),
    Case("median, left out", "median", {}, 0.5, settings=LEFT_OUT),
    Case("krum, left out", "krum", {"f": 1, "m": 1}, 0.5, settings=LEFT_OUT),
    Case("fedavg, adapters, left out", "fedavg", {}, 0.5, "adapted", settings=LEFT_OUT),
    Case("fedavg, eight classes", "fedavg", {}, 0.5, "many", settings=FINE_TUNE),
    Case("fedavg, two classes, ties", "fedavg", {}, 0.5, "even"),
    Case("fedavg, regression", "fedavg", {"server_lr": 0.8}, 0.5, "numbers"),
    Case("fedavg, texts", "fedavg", {}, 0.5, "tokens", settings={"cohort.size": CLIENTS}),
    Case("ditto, regression", "ditto", {"lambda": 0.6}, 0.0, "numbers"),
    Case("ditto, texts", "ditto", {"lambda": 0.6}, 0.5, "tokens"),
    Case("fedprox", "fedprox", {"mu": 0.7}, 0.5),
    Case("scaffold I", "scaffold", {"option": 1}, 0.5, "norm"),
    Case("scaffold II", "scaffold", {"option": 2}),
    Case("scaffold II, momentum", "scaffold", {"option": 2, "server_lr": 0.9}, 0.5),
    Case("scaffold II, weighted", "scaffold", {"option": 2, "weighted": True}, 0.0, "norm"),
    Case("scaffold II, adapters", "scaffold", {"option": 2}, 0.0, "adapted"),
    Case("fednova", "fednova", {}, 0.9),
    Case("fednova, proximal", "fednova", {"mu": 0.6}, 0.4, "norm"),
    Case("fednova, steps", "fednova", {"mu": 0.6, "tau_eff": "steps"}, 0.4),
    Case("fednova, server momentum", "fednova", {"server_momentum": 0.6, "server_lr": 0.8}, 0.4),
    Case("feddyn", "feddyn", {"alpha": 0.3}),
    Case("feddyn, weighted", "feddyn", {"alpha": 0.3, "weighted": True}, 0.5, "norm"),
    Case("feddyn, its mean", "feddyn", {"alpha": 0.3, "evaluate": "mean"}),
    Case("mime, sgd", "mime", {"base": "sgd"}),
    Case("mime, momentum", "mime", {"base": "momentum", "beta1": 0.8}),
    Case("mime, adam", "mime", {"base": "adam", **MIME}, 0.0, "norm"),
    Case("mimelite, momentum", "mimelite", {"base": "momentum", "beta1": 0.9}, 0.0, "norm"),
    Case("mimelite, adam", "mimelite", {"base": "adam", **MIME}),
    Case("fedavgm", "fedavgm", {"beta": 0.6, "server_lr": 0.7}, 0.5),
    Case("fedadagrad", "fedadagrad", {"server_lr": 0.3, "beta1": 0.4, "tau": 0.05}),
    Case("fedadam", "fedadam", ADAPTIVE, 0.5, "norm"),
    Case("fedadam, adapters", "fedadam", ADAPTIVE, 0.0, "adapted"),
    Case("fedadam, corrected", "fedadam", {**ADAPTIVE, "v_init": 0.0, "bias_correction": True}),
    Case("fedyogi", "fedyogi", {**ADAPTIVE, "v_init": 0.01}),
    Case("gd", "gd", {"server_lr": 3.0}, 0.0, "norm"),
    Case("qfedavg", "qfedavg", {"q": 1.5, "server_lr": 0.8}, 0.5),
    Case("qfedavg, small q", "qfedavg", {"q": 0.3}, 0.0, "norm"),
    Case("fedexp", "fedexp", {"epsilon": 0.01}, 0.5),
    Case("fedexp, its x", "fedexp", {"epsilon": 0.05, "evaluate": "x"}, 0.0, "norm"),
    Case("term", "term", {"t": 0.9, "server_lr": 0.8}, 0.5),
    Case("term, negative", "term", {"t": -1.2}, 0.0, "norm"),
    Case("afl", "afl", {"mixture_lr": 0.05, "server_lr": 0.9}, 0.5),
    Case("afl, its x", "afl", {"mixture_lr": 0.03, "evaluate": "x"}, 0.0, "norm"),
    Case("ifca", "ifca", {"clusters": 2, "server_lr": 0.9}, 0.5),
    Case("ifca, batch norm", "ifca", {"clusters": 2}, 0.5, "norm"),
    Case("ifca, noise", "ifca", {"clusters": 3, "start": "noise", "spread": 0.3}, 0.5, "norm"),
    Case("ifca, ties", "ifca", {"clusters": 2}, 0.5, "many"),
    Case("fedsam", "fedsam", {"rho": 0.3, "server_lr": 0.9}, 0.5),
    Case("fedsam, batch norm", "fedsam", {"rho": 0.2}, 0.0, "norm"),
    Case("moon", "moon", {"mu": 2.0, "temperature": 0.4, "server_lr": 0.9}, 0.5, "norm"),
    Case("moon, hidden layer", "moon", {"mu": 1.5, "temperature": 0.7}, 0.5, "hidden"),
    Case("perfedavg", "perfedavg", {"alpha": 0.15, "server_lr": 0.9}, settings=FINE_TUNE),
    Case("perfedavg, batch norm", "perfedavg", {"alpha": 0.2}, 0.0, "norm"),
    Case("heterofl", "heterofl", {"rates": "1 0.5 0.25", "server_lr": 0.9, "scaler": True, "mask": True}, 0.5, "hidden"),
    Case("heterofl, batch norm", "heterofl", {"rates": "1 0.5", "shares": "1 2"}, 0.5, "norm"),
    Case("heterofl, a slice alone", "heterofl", {"rates": "1 0.4", "evaluate": 0.4}, 0.5, "hidden"),
    Case("heterofl, batch norm, a slice alone", "heterofl", {"rates": "1 0.8", "evaluate": 0.8}, 0.0, "norm"),
    Case("heterofl, shares in percent", "heterofl", {"rates": "1 0.4", "shares": "43 57"}, 0.0, "hidden"),
    Case("heterofl, no wide client", "heterofl",
         {"rates": "0.7 0.3", "shares": "3 1", "scaler": False, "mask": False, "evaluate": 0.5}, 0.0, "hidden"),
    Case("ridge", "ridge", {"lambda": 0.8}),
    Case("kmeans", "kmeans", {"start": "model"}, settings={"cohort.size": CLIENTS}),
    Case("kmeans, ties and an empty centre", "kmeans", {"start": "model"}, model="centres"),
    Case("kmeans, moments", "kmeans", {}, model="centres", settings={"run.rounds": 1}),
    Case("kmeans, from moments on", "kmeans", {}, model="centres"),
    Case("daef", "daef", {"lambda_hidden": 2.0, "lambda_last": 1.0}, model="autoencoder",
         settings={"evaluation.metrics": []}),
    Case("median, even", "median", {"server_lr": 0.9}, 0.5),
    Case("median, odd", "median", {}, 0.5, "norm", settings=SEVEN),
    Case("trimmed mean", "trimmed_mean", {"beta": 0.2}, 0.5),
    Case("trimmed mean, a quarter", "trimmed_mean", {"beta": 0.25}, 0.5, "norm"),
    Case("krum", "krum", {"f": 1, "m": 1}, 0.5),
    Case("multi-krum", "krum", {"f": 2, "m": 3}, 0.5, "norm", settings=SEVEN),
    Case("geometric median", "geometric_median", {"iterations": 3, "smoothing": 1.5}, 0.5, "norm"),
    Case("geometric median, minimum", "geometric_median", {"iterations": 1000, "smoothing": 1e-9}, 0.5,
         by=robust.Minimiser),
    Case("centered clipping", "centered_clipping", {"radius": 0.5, "iterations": 1}, 0.5),
    Case("centered clipping, thrice", "centered_clipping", {"radius": 0.3, "iterations": 3, "server_lr": 0.9},
         model="norm"),
    Case("geometric median, weighted", "geometric_median", {"iterations": 3, "smoothing": 0.4, "weighted": True}, 0.5),
    Case("norm bound", "norm_bound", {"bound": 0.6}, 0.5, "norm"),
    Case("norm bound, weighted", "norm_bound", {"bound": 0.5, "weighted": True, "server_lr": 0.9}, 0.5),
    Case("fltrust", "fltrust", {"root": 6}, 0.5, "norm", settings={"cohort.size": CLIENTS}),
    Case("median, buckets", "median", {"bucket_size": 2, "server_lr": 0.9}, 0.5, settings=SEVEN),
    Case("trimmed mean, buckets", "trimmed_mean", {"beta": 0.26, "bucket_size": 2}, 0.5, "norm"),
    Case("krum, buckets", "krum", {"f": 1, "m": 2, "bucket_size": 2}, 0.5, "norm", settings={"cohort.size": 11}),
    Case("geometric median, buckets, weighted", "geometric_median",
         {"iterations": 3, "smoothing": 0.4, "weighted": True, "bucket_size": 3}, 0.5, "norm"),
    Case("centered clipping, buckets", "centered_clipping", {"radius": 0.5, "iterations": 2, "bucket_size": 3}, 0.5,
         settings=SEVEN),
    Case("local", "local", {}, 0.5, "hidden"),
    Case("pooled", "pooled", {}, 0.5, settings={"cohort.size": 1, "local.batch_size": 50}),
    Case("ditto", "ditto", {"lambda": 0.6, "server_lr": 0.9}, 0.5, "norm"),
    Case("ditto, adapters", "ditto", {"lambda": 0.6}, 0.0, "adapted"),
    Case("ditto, fine-tuned", "ditto", {"lambda": 0.6}, 0.5, "hidden", settings=FINE_TUNE),
    Case("pfedme", "pfedme", {"lambda": 2.0, "personal_lr": 0.2, "personal_steps": 3, "server_lr": 0.9}, 0.0, "norm"),
    Case("pfedme, hidden layer", "pfedme", {"lambda": 3.0, "personal_lr": 0.1, "personal_steps": 2}, 0.0, "hidden"),
    Case("apfl", "apfl", {"alpha": 0.4, "alpha_lr": 0.1}, 0.0, "norm"),
    Case("apfl, fixed", "apfl", {"alpha": 0.3, "server_lr": 0.9}, 0.0, "hidden"),
    Case("fedrep", "fedrep", {"head_epochs": 3}, 0.5, "norm"),
    Case("fedrep, adapters", "fedrep", {"head_epochs": 2}, 0.5, "adapted"),
    Case("fedper", "fedper", {"server_lr": 0.8}, 0.5, "norm"),
    Case("fedper, fine-tuned", "fedper", {}, 0.5, "hidden", settings=FINE_TUNE),
    Case("fedbn, fine-tuned", "fedbn", {"server_lr": 0.9}, 0.5, "norm", settings=FINE_TUNE),
    attacked("fedavg", "label-flip", momentum=0.5),
    attacked("fedavg", "sign-flip", momentum=0.5),
    attacked("fedavg", "scaling", scale=4.0, model="norm"),
    attacked("fedavg", "free-rider", momentum=0.5),
    attacked("fedavg", "inner-product", momentum=0.5),
    attacked("fedavg", "alie", momentum=0.5),
    attacked("fedavg", "alie", z=1.5, model="norm", label=", z = 1.5"),
    attacked("fedavg", "min-max", momentum=0.5),
    attacked("fedavg", "min-sum", perturbation="unit", model="norm"),
    attacked("fedavg", "mimic", momentum=0.5),
    attacked("fedavg", "backdoor", momentum=0.5, model="image", scale=3.0, target=2, poisoned=1.0, trigger=1),
    attacked("median", "min-max", perturbation="sign", model="norm"),
    attacked("geometric_median", "min-sum", {"iterations": 4, "smoothing": 1e-6, "weighted": True}, momentum=0.5),
    attacked("krum", "mimic", {"f": 2, "m": 3}, model="norm"),
    attacked("scaffold", "min-max", {"option": 2}),
    attacked("norm_bound", "backdoor", {"bound": 0.6}, model="image", target=1, poisoned=1.0, trigger=1),
    attacked("median", "label-flip", momentum=0.5, scale=2.0),
    attacked("trimmed_mean", "sign-flip", {"beta": 0.2}, scale=3.0),
    attacked("krum", "scaling", {"f": 2, "m": 3}, scale=4.0),
    attacked("geometric_median", "free-rider", {"iterations": 4, "smoothing": 1e-6}, model="norm"),
    attacked("centered_clipping", "inner-product", {"radius": 0.5, "iterations": 2}, scale=2.0),
    attacked("median", "alie", model="norm"),
    attacked("krum", "alie", {"f": 2, "m": 3}, z=0.7),
    attacked("trimmed_mean", "sign-flip", {"beta": 0.26, "bucket_size": 2}, scale=3.0, label=", buckets"),
    attacked("scaffold", "sign-flip", {"option": 2}),
    attacked("scaffold", "alie", {"option": 2}, z=1.2),
    attacked("scaffold", "free-rider", {"option": 1}),
    attacked("fednova", "inner-product", {}, momentum=0.4, scale=0.3),
    attacked("fednova", "sign-flip", {}, momentum=0.4),
    attacked("qfedavg", "sign-flip", {"q": 0.5}),
    attacked("ditto", "scaling", {"lambda": 0.6}, model="hidden", scale=3.0),
]
