"""Rules that attend to the clients who are worst off."""

from papers import planted
from papers.claim import Claim, Metric, Scenario
from papers.metrics import final

WAYS = {
    "fedavg": ["algorithm.name=fedavg"],
    "qfedavg": ["algorithm.name=qfedavg", "algorithm.qfedavg.q=1"],
    "term": ["algorithm.name=term", "algorithm.term.t=1"],
}
METRICS = {
    "spread": Metric(
        "deviation of clients' accuracies, %", False, final("clients_test_accuracy_std"), 100
    ),
    "worst": Metric(
        "worst tenth of the clients, %", True, final("clients_test_accuracy_worst10"), 100
    ),
    "mean": Metric("clients' mean accuracy, %", True, final("clients_test_accuracy_mean"), 100),
}
SYNTHETIC = Scenario(
    name="synthetic",
    about="""Synthetic(1, 1), 50 clients, softmax regression, 10 clients drawn in proportion to their rows in
        each of 200 rounds, plain means; an epoch in batches of 10 at 0.01. Accuracy on the clients' own
        test rows (20 %).""",
    config="""
[run]
rounds = 200
checkpoint_every = 1000
[data]
source = "synthetic"
test_fraction = 0.2
[data.synthetic]
clients = 50
alpha = 1.0
beta = 1.0
max_size = 500
[model]
name = "logistic"
[cohort]
size = 10
sampling = "proportional"
weight = "uniform"
[local]
epochs = 1
batch_size = 10
lr = 0.01
[evaluation]
every = 0
clients = true
""",
    ways=WAYS,
    metrics=METRICS,
)
MINORITY = Scenario(
    name="minority",
    about="""200 of MNIST's test images for each of 20 clients, three of which see them turned by 90
        degrees. Softmax regression, all clients in each of 100 rounds, plain means; 10 steps of 20
        rows at 0.05. Accuracy on the clients' own test rows (30 %).""",
    config="""
[run]
rounds = 100
checkpoint_every = 1000
[data]
source = "npz"
test_fraction = 0
client_test_fraction = 0.3
[model]
name = "logistic"
[cohort]
size = 20
weight = "uniform"
[local]
steps = 10
batch_size = 20
lr = 0.05
[evaluation]
every = 0
clients = true
""",
    ways=WAYS,
    metrics=METRICS,
    drawn=planted.minority,
)
DOMAINS = Scenario(
    name="domains",
    about="""MNIST's threes, fives and eights: three clients with a digit each, 600, 400 and 200 rows.
        Softmax regression, one full step a round at 0.1, 1000 rounds. Accuracy of the worst
        client on 200 test rows of its own.""",
    config="""
[run]
rounds = 1000
checkpoint_every = 1000
[data]
source = "idx"
path = "{images}/t10k-images-idx3-ubyte.gz"
[partition]
scheme = "file"
[model]
name = "logistic"
[cohort]
size = 3
[local]
steps = 1
batch_size = 0
lr = 0.1
[evaluation]
every = 0
clients = true
""",
    ways={
        "fedavg": ["algorithm.name=fedavg"],
        "afl": ["algorithm.name=afl", "algorithm.afl.mixture_lr=0.05"],
    },
    metrics={
        "worst": Metric("worst client, %", True, final("clients_test_accuracy_worst10"), 100),
    },
    drawn=planted.domains,
)
QFEDAVG, TERM, AFL = "Li et al. 2020", "Li et al. 2021", "Mohri et al. 2019"
EVEN, WORST = "clients' accuracies are more even", "the worst clients are better off"
MEAN = "the mean accuracy stays"
CLAIMS = [
    claim
    for scenario in (SYNTHETIC, MINORITY)
    for claim in (
        Claim("qfedavg", QFEDAVG, "table 1", EVEN, scenario, "qfedavg", "spread"),
        Claim("qfedavg", QFEDAVG, "table 1", WORST, scenario, "qfedavg", "worst"),
        Claim("qfedavg", QFEDAVG, "table 1", MEAN, scenario, "qfedavg", "mean", least=-3),
        Claim("term", TERM, "equation 2", EVEN, scenario, "term", "spread"),
        Claim("term", TERM, "equation 2", WORST, scenario, "term", "worst"),
    )
] + [Claim("afl", AFL, "figure 3, Fashion MNIST", WORST, DOMAINS, "afl", "worst")]
