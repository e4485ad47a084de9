#!/usr/bin/env python3
"""Are Macaw's rules, attacks and metrics what their formulas say? A second implementation, in NumPy, repeats them.

Real runs (`macaw simulate --trace`) on data made here: 21 clients with uneven counts of rows, eight a round, two epochs
of mini-batches with a ragged last one, momentum where the rule allows it, weight decay; softmax and logistic
regression, a hidden layer, batch norm. The trace says which rows each batch had and which clients are hostile;
everything else is computed again, in double. The final models, and those that clients keep, must agree to 1e-12 in
float64 and 1e-5 in float32. From these models all columns of the last evaluation are computed again, and the confusion
matrices: to 1e-12, losses in float32 to 1e-5. So are the test metrics without each client (leave_one_out), and what
IFCA and k-means report of a round. What a rule draws on the server (buckets of clients, first models and centres) is
drawn again. Other clients have one row, no test rows, rows whose outputs tie, numbers or texts: for them all metrics
that evaluation.metrics can ask for, those of evaluation.groups, and clients_evaluated.json, in float64. So that nothing
agrees by chance, a replay with another parameter, or without the attack, must end elsewhere. Exits 1 when something is
off. Needs numpy.

  tests/oracle/replay/replay.py [--only scaffold] [--part 1/4]

cases.py: what is repeated · problem.py, uneven.py: rows, clients, models · network.py: outputs and gradients ·
local_work.py: a client's steps · random_stream.py: what is drawn · rules.py, robust.py, personal.py,
statistics_rules.py, elastic.py · attacks.py · metrics.py · run.py: Macaw's side · comparison.py.
"""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are tiny, and cases run side by side

import argparse
import concurrent.futures
import math
import pathlib
import sys
import tempfile
from dataclasses import replace

import numpy as np

from cases import CASES, Case
from comparison import TOLERANCE, Comparison
from problem import CLIENTS, MODELS, Problem
from run import Run, macaw
from uneven import MODELS as UNEVEN
from uneven import Uneven


class Bench:
    def __init__(self, program, folder):
        self.program = program
        self.problems = {model: Problem(folder / model, model) for model in MODELS}
        self.problems |= {model: Uneven(folder / model, model) for model in UNEVEN}
        self.honest = {}  # by rule and model: the batches of a run without an attack

    def run(self, case, dtype):
        name = "".join(c if c.isalnum() else "-" for c in f"{case.label}-{dtype}")
        return Run(self.program, self.problems[case.model], case.configuration(dtype), name)

    def starts(self, case, dtype):
        """The initial models of a rule with several."""
        if case.rule != "ifca":
            return None
        begun = replace(case, label=f"{case.label}, its start", settings=case.settings | {"run.rounds": 0})
        return self.run(begun, dtype).models()

    def run_honestly(self, rule_and_model):
        case = next(case for case in CASES if (case.rule, case.model) == rule_and_model and case.attack)
        self.honest[rule_and_model] = self.run(case.without_attack(), "float32").turns

    def check(self, case_and_dtype):
        """Returns a line to print, and what is off."""
        case, dtype = case_and_dtype
        comparison = Comparison(case, dtype, self.problems[case.model], self.run(case, dtype), self.starts(case, dtype))
        comparison.trace()
        error, moved = comparison.models()
        comparison.metrics()
        comparison.contributions()
        if dtype == "float64" and case.attack:
            comparison.attack(self.honest[case.rule, case.model])
        elif dtype == "float64":
            comparison.parameters()
        return (f"{case.label:34} {dtype}  |difference| {error:.1e} (<= {TOLERANCE[dtype]:g}), moved by {moved:.2f}, "
                f"{comparison.facts} facts"), comparison.off

    def check_noise(self):
        """A free-rider's Gaussian noise is drawn by the run, so its size is looked at: after one round of all clients,
        x is off by the weighted sum of the hostile ones' noise."""
        noise = 0.3
        case = Case("fedavg under free-rider, noise", "fedavg", {}, 0.0, "hidden",
                    {"kind": "free-rider", "noise": noise}, {"run.rounds": 1, "cohort.size": CLIENTS})
        problem, run = self.problems[case.model], self.run(case, "float64")
        comparison = Comparison(case, "float64", problem, run)
        share = problem.n / problem.n.sum()
        sent = (run.model - comparison.rule.result()) / (noise * np.linalg.norm(share[sorted(run.hostile)]))
        # Within four standard errors of a mean and of a deviation.
        comparison.near("the noise's mean", sent.mean(), 0, 4 / math.sqrt(len(sent)))
        comparison.near("the noise's deviation", sent.std(), 1, 4 / math.sqrt(2 * len(sent)))
        return (f"{case.label:34} float64  of {len(sent)} parameters: mean {sent.mean():.2f} and deviation "
                f"{sent.std():.2f} of what the noise must be"), comparison.off


def not_repeated(program):
    """Rules and attacks that Macaw has and no case."""
    names = {line.split()[0] for line in macaw(program, "algorithms").splitlines()}
    keys = macaw(program, "simulate", "--help-config").partition("[attack]")[2]
    kinds = keys.partition('kind = "none"')[2].splitlines()[0].rpartition("(")[2].rstrip(")").split(" | ")
    names |= {kind.strip('"') for kind in kinds} - {"none"}
    return names - {case.rule for case in CASES} - {case.attack.get("kind") for case in CASES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macaw", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[3] / "build/bin/macaw")
    parser.add_argument("--only", default="", help="cases whose label begins with this")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts of the cases")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    if missing := not_repeated(options.macaw):
        sys.exit(f"no case for {', '.join(sorted(missing))}")
    cases = [case for case in CASES if case.label.startswith(options.only)][part - 1::parts]
    if not cases:
        sys.exit(f"no case's label begins with '{options.only}'")
    bad = 0

    def tell(line, off):
        nonlocal bad
        bad += bool(off)
        print(f"{'BAD' if off else 'ok '} {line}", *off[:8], sep="\n      ", flush=True)

    workers = concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count())  # they mostly wait for runs
    with tempfile.TemporaryDirectory() as name, workers as side_by_side:
        bench = Bench(options.macaw, pathlib.Path(name))
        list(side_by_side.map(bench.run_honestly, sorted({(c.rule, c.model) for c in cases if c.attack})))
        for line, off in side_by_side.map(bench.check, [(case, dtype) for case in cases for dtype in case.dtypes()]):
            tell(line, off)
        if not options.only and part == 1:
            tell(*bench.check_noise())
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
