"""Where the rounds end on convex problems whose least value is known, and how fast."""

from papers import planted
from papers.claim import Claim, Metric, Scenario
from papers.metrics import gap, until

DECAY = 0.1
GAP = Metric("objective above its least", False, gap(DECAY), digits=1, exponent=True, ratio=True)
CONVEX = f"""
[data]
source = "synthetic"
test_fraction = 0
[data.synthetic]
clients = 10
alpha = 1.0
beta = 1.0
max_size = 200
[model]
name = "logistic"
[cohort]
size = 10
[evaluation]
every = 0
splits = ["train"]
[local]
weight_decay = {DECAY}
"""
FULL = Scenario(
    name="full batches",
    about=f"""Synthetic(1, 1), 10 clients of at most 200 rows, softmax regression with a decay of {DECAY}, all
        clients in each of 200 rounds; 20 steps of full batches at 0.01. The least value is Newton's,
        of all rows; differences below 1e-7 count as that.""",
    config=CONVEX
    + """lr = 0.01
steps = 20
batch_size = 0
[run]
rounds = 200
checkpoint_every = 1000
""",
    ways={
        "fedavg": ["algorithm.name=fedavg"],
        "scaffold": ["algorithm.name=scaffold", "algorithm.scaffold.weighted=true"],
        "feddyn": [
            "algorithm.name=feddyn", "algorithm.feddyn.weighted=true",
            "algorithm.feddyn.alpha=0.1",
        ],
    },
    metrics={"gap": GAP},
)  # fmt: skip
UNEVEN = Scenario(
    name="uneven steps",
    about="""The same data and model; 2 epochs in batches of 10 at 0.003, so that clients take 10 to 40 steps,
        all clients in each of 200 rounds.""",
    config=CONVEX
    + """lr = 0.003
epochs = 2
batch_size = 10
[run]
rounds = 200
checkpoint_every = 1000
""",
    ways={"fedavg": ["algorithm.name=fedavg"], "fednova": ["algorithm.name=fednova"]},
    metrics={"gap": GAP},
)
EXACT = Scenario(
    name="exact fit",
    about="""Linear regression with 400 weights, 20 clients of 5 rows that one model fits exactly, all of
        them in each of 500 rounds; 40 full steps at 0.5. Rounds until the mean squared error is
        below 0.001 (at first it is about 1); 500 if it never is.""",
    config="""
[run]
rounds = 500
checkpoint_every = 1000
task = "regression"
[data]
source = "npz"
test_fraction = 0
[model]
layers = ["linear 1"]
[cohort]
size = 20
[local]
steps = 40
batch_size = 0
lr = 0.5
[evaluation]
every = 1
splits = ["train"]
""",
    ways={
        "fedavg": ["algorithm.name=fedavg"],
        "fedexp": ["algorithm.name=fedexp", "algorithm.fedexp.epsilon=1e-6"],
    },
    metrics={
        "rounds": Metric(
            "rounds to an error of 0.001", False, until("clients_train_loss", below=1e-3),
            ratio=True,
        ),
    },
    drawn=planted.interpolated,
)  # fmt: skip
CLAIMS = [
    Claim("scaffold", "Karimireddy et al. 2020", "theorem III", "clients that differ do not keep it "
          "from the optimum", FULL, "scaffold", "gap", least=10),
    Claim("feddyn", "Acar et al. 2021", "theorem 1", "ends at the optimum of all clients' objective",
          FULL, "feddyn", "gap", least=10),
    Claim("fednova", "Wang et al. 2020", "theorem 1", "clients that take more steps do not pull the "
          "optimum to them", UNEVEN, "fednova", "gap"),
    Claim("fedexp", "Jhunjhunwala et al. 2023", "section 6", "fewer rounds than FedAvg, where a model "
          "fits all clients", EXACT, "fedexp", "rounds"),
]  # fmt: skip
