"""Aggregation that withstands hostile clients."""

from papers.claim import Claim, Metric, Scenario
from papers.metrics import final

# Hostile clients send what makes FedAvg's mean the opposite of the honest one: with a share f of them
# −(2 − f)/f times it, the omniscient corruption of RFA's paper.
OMNISCIENT = ["attack.kind=inner-product", "attack.fraction=0.25", "attack.scale=7"]
FLIPPED = ["attack.kind=sign-flip", "attack.fraction=0.3", "attack.scale=10"]
RFA = ["algorithm.name=geometric_median", "algorithm.geometric_median.weighted=true",
       "algorithm.geometric_median.iterations=10"]  # fmt: skip
FEDAVG = ["algorithm.name=fedavg"]
HOSTILE = Scenario(
    name="hostile",
    about="""5,000 of MNIST's test images, 20 clients with uneven digits (Dirichlet 1 by class), all
        in each of 20 rounds; 15 steps of 20 rows at 0.1, a hidden layer of 32. Accuracy on
        the other 5,000 images; 0 of a model that is no number. Omniscient: 25 % of the clients turn
        FedAvg's step around. Flipped: 30 % send −10 times their update.""",
    config="""
[run]
rounds = 20
checkpoint_every = 1000
[data]
source = "idx"
path = "{images}/t10k-images-idx3-ubyte.gz"
test_fraction = 0.5
[partition]
scheme = "dirichlet-class"
concentration = 1.0
clients = 20
min_size = 20
[model]
layers = ["flatten", "linear 32", "relu", "linear 10"]
[cohort]
size = 20
[local]
steps = 15
batch_size = 20
lr = 0.1
[evaluation]
every = 0
""",
    ways={
        "fedavg": FEDAVG,
        "geometric_median": RFA,
        "fedavg, omniscient": [*FEDAVG, *OMNISCIENT],
        "geometric_median, omniscient": [*RFA, *OMNISCIENT],
        "fedavg, flipped": [*FEDAVG, *FLIPPED],
        "geometric_median, flipped": [*RFA, *FLIPPED],
    },
    metrics={"accuracy": Metric("test accuracy, %", True, final("test_accuracy", 0.0), 100)},
)
PAPER = "Pillutla et al. 2022"
CLAIMS = [
    Claim("geometric_median", PAPER, "algorithm 2", "nearly FedAvg's accuracy without hostile clients",
          HOSTILE, "geometric_median", "accuracy", least=-2),
    Claim("geometric_median", PAPER, "algorithm 2, omniscient corruption",
          "holds with 25 % hostile clients where the mean breaks", HOSTILE,
          "geometric_median, omniscient", "accuracy", "fedavg, omniscient", least=30),
    Claim("geometric_median", PAPER, "algorithm 2", "loses little to them", HOSTILE,
          "geometric_median, omniscient", "accuracy", "fedavg", least=-5),
    Claim("geometric_median", PAPER, "algorithm 2",
          "holds with 30 % hostile clients where the mean breaks", HOSTILE,
          "geometric_median, flipped", "accuracy", "fedavg, flipped", least=30),
]  # fmt: skip
