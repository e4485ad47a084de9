"""A rule in Python beside the built-in: milliseconds a round, and microseconds a client.

    ./dev bench python_rule [--rounds N] [--repeat N]

FedProx as examples/rules/py_fedprox.py and as the built-in, on two slots, without evaluation: LeNet-5
on MNIST, 100 clients a round, and softmax regression, whose rounds are hardly anything but the rule.
Microseconds a client: the difference of the two times, over the clients, times the slots. Both end
with the same model.
"""

import os
import pathlib
import statistics
import sys
import tempfile

import frame

JOBS = {"lenet5": 1, "logistic": 10}  # how many times --rounds
RULE = frame.ROOT / "examples/rules/py_fedprox.py"
SLOTS, COHORT = 2, 100
SETTINGS = [f"cohort.size={COHORT}", "local.epochs=1", "evaluation.every=0", "workers.processes=1",
            f"workers.slots={SLOTS}"]  # fmt: skip


def main() -> None:
    told = frame.parser(__doc__, rounds=30).parse_args()
    os.environ.setdefault("MACAW_PYTHON", sys.executable)
    print(frame.heading() + "\n")
    with tempfile.TemporaryDirectory() as folder:
        for model, times in JOBS.items():
            job = [*SETTINGS, f"model.name={model}", f"run.rounds={told.rounds * times}"]
            rules = {
                "fedprox": ["algorithm.name=fedprox", "algorithm.fedprox.mu=0.1"],
                "py_fedprox": [f'plugins=["{RULE}"]', "algorithm.name=py_fedprox",
                               "algorithm.py_fedprox.mu=0.1"],
            }  # fmt: skip

            def measure(rule: str, job=job, rules=rules) -> frame.Run:
                config, out = frame.ROOT / "examples/mnist10k.toml", pathlib.Path(folder) / rule
                return frame.simulate(told.macaw, config, out, job + rules[rule])

            runs = frame.in_turn(list(rules), told.repeat, measure)
            frame.same(run.digest for both in runs.values() for run in both)
            found = {
                f"{model}, {rule}": [1e3 / run.summary["rounds_per_second"] for run in both]
                for rule, both in runs.items()
            }
            print(frame.beside(found, "ms a round"))
            ours, python = (statistics.median(values) for values in found.values())
            print(f"{1e3 * (python - ours) / COHORT * SLOTS:.0f} µs a client\n")


if __name__ == "__main__":
    main()
