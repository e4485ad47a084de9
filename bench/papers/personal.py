"""Models of the clients' own beside FedAvg's common one, for clients that differ by their labels, and
by how they see things."""

from papers import planted
from papers.claim import Claim, Metric, Scenario
from papers.metrics import final, recovered

CONFIG = """
[run]
rounds = 30
checkpoint_every = 1000
[model]
layers = ["flatten", "linear 32", "relu", "linear 10"]
[cohort]
size = 10
[local]
steps = 20
batch_size = 20
lr = 0.1
[evaluation]
every = 0
clients = true
[data]
test_fraction = 0
client_test_fraction = 0.3
"""
RATE = 0.1  # of the step that adapts Per-FedAvg's model, and beside it FedAvg's, to a client
TUNED = ["evaluation.fine_tune.steps=1", f"evaluation.fine_tune.lr={RATE}"]
WAYS = {
    "fedavg": ["algorithm.name=fedavg", *TUNED],
    "ditto": ["algorithm.name=ditto", "algorithm.ditto.lambda=0.1"],
    "fedper": ["algorithm.name=fedper"],
    "fedrep": ["algorithm.name=fedrep", "algorithm.fedrep.head_epochs=2"],
    "apfl": ["algorithm.name=apfl", "algorithm.apfl.alpha=0.5"],
    "pfedme": [
        "algorithm.name=pfedme", "algorithm.pfedme.lambda=15", "algorithm.pfedme.personal_lr=0.05",
        "algorithm.pfedme.personal_steps=5", "local.lr=0.05",
    ],
    "perfedavg": [
        "algorithm.name=perfedavg", f"algorithm.perfedavg.alpha={RATE}", "local.steps=40", *TUNED,
    ],
}  # fmt: skip
METRICS = {
    "accuracy": Metric("accuracy, %", True, final("clients_test_accuracy"), 100),
    "tuned": Metric("accuracy after a step, %", True, final("clients_test_tuned_accuracy"), 100),
    "spread": Metric(
        "deviation of clients' accuracies, %", False, final("clients_test_accuracy_std"), 100
    ),
}
ABOUT = """20 clients, 10 in each of 30 rounds, 20 steps of 20 rows at 0.1, a hidden layer of 32.
    Accuracy on the clients' own test rows (30 %), each at the model that the rule gives it.
    Per-FedAvg takes 40 batches for its 20 steps, and pFedMe's w moves at 0.05."""
LABELS = Scenario(
    name="labels",
    about=f"MNIST's 10,000 test images, two digits a client. {ABOUT}",
    config=CONFIG
    + """source = "idx"
path = "{images}/t10k-images-idx3-ubyte.gz"
[partition]
scheme = "k-classes"
classes_per_client = 2
clients = 20
""",
    ways=WAYS,
    metrics=METRICS,
)
TURNED = Scenario(
    name="turned",
    about=f"""200 of these images a client, which clients of four kinds see turned by 0, 90, 180 and
        270 degrees. {ABOUT} IFCA has four models, and all clients in each round.""",
    config=CONFIG + 'source = "npz"\n',
    ways=WAYS
    | {"local": ["algorithm.name=local"]}
    | {"ifca": ["algorithm.name=ifca", "algorithm.ifca.clusters=4", "cohort.size=20"]},
    metrics=METRICS | {"division": Metric("adjusted Rand index", True, recovered, digits=2)},
    drawn=planted.turned,
)
DITTO, APFL = "Li et al. 2021", "Deng et al. 2020"
PFEDME, PERFEDAVG = "T. Dinh et al. 2020", "Fallah et al. 2020"
FEDPER, FEDREP, IFCA = "Arivazhagan et al. 2019", "Collins et al. 2021", "Ghosh et al. 2020"
BETTER = "personal models are more accurate than the common one"


def of_both() -> list[Claim]:
    found = []
    for scenario in (LABELS, TURNED):
        found += [
            Claim("pfedme", PFEDME, "table 1", BETTER, scenario, "pfedme", "accuracy"),
            Claim("apfl", APFL, "algorithm 1, MNIST", BETTER, scenario, "apfl", "accuracy"),
            Claim("perfedavg", PERFEDAVG, "table 1", "after one step on a client's rows its model is "
                  "better than FedAvg's", scenario, "perfedavg", "tuned"),
            Claim("fedper", FEDPER, "algorithms 1 and 2", BETTER, scenario, "fedper", "accuracy"),
            Claim("fedrep", FEDREP, "table 1", BETTER, scenario, "fedrep", "accuracy"),
            Claim("ditto", DITTO, "algorithm 1", BETTER, scenario, "ditto", "accuracy"),
            Claim("ditto", DITTO, "algorithm 1", "clients' accuracies are more even", scenario,
                  "ditto", "spread"),
        ]  # fmt: skip
    return found


CLAIMS = [
    *of_both(),
    Claim("ifca", IFCA, "theorem 1", "clients of a kind come to the same model", TURNED, "ifca",
          "division", baseline=0.0, least=0.9),
    Claim("ifca", IFCA, "table 1", "its models are more accurate than one for all", TURNED, "ifca",
          "accuracy"),
    Claim("ifca", IFCA, "table 1", "and than training alone", TURNED, "ifca", "accuracy", "local"),
]  # fmt: skip
