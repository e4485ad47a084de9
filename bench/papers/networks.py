"""One network for clients that differ, and narrow ones for clients that are weak."""

from papers.claim import Claim, Metric, Scenario
from papers.metrics import curvature, final, mean, until

HALF = """
[data]
source = "idx"
path = "{images}/t10k-images-idx3-ubyte.gz"
test_fraction = 0.5
"""
SKEWED = Scenario(
    name="skewed",
    about="""5,000 of MNIST's test images, 10 clients with a few digits each (Dirichlet 0.1 by class),
        all of them in each of 20 rounds; 3 epochs in batches of 50 at 0.1, hidden layers of 64 and
        32. Accuracy on the other 5,000 images. Curvature: the largest eigenvalue of the loss's
        Hessian, on 2,000 images.""",
    config=HALF
    + """
[run]
rounds = 20
checkpoint_every = 1000
[partition]
scheme = "dirichlet-class"
concentration = 0.1
clients = 10
min_size = 20
[model]
layers = ["flatten", "linear 64", "relu", "linear 32", "relu", "linear 10"]
[cohort]
size = 10
[local]
epochs = 3
batch_size = 50
lr = 0.1
[evaluation]
every = 1
""",
    ways={
        "fedavg": ["algorithm.name=fedavg"],
        "fedsam": ["algorithm.name=fedsam", "algorithm.fedsam.rho=0.05"],
        "moon": ["algorithm.name=moon", "algorithm.moon.mu=1"],
        "feddyn": [
            "algorithm.name=feddyn", "algorithm.feddyn.alpha=0.01",
            "algorithm.feddyn.weighted=true",
        ],
        "scaffold": ["algorithm.name=scaffold", "algorithm.scaffold.weighted=true"],
    },
    metrics={
        "accuracy": Metric("test accuracy, %", True, final("test_accuracy"), 100),
        "curvature": Metric("curvature", False, curvature, ratio=True),
        "rounds": Metric(
            "rounds to 85 %", False, until("test_accuracy", above=0.85), ratio=True
        ),
    },
)  # fmt: skip
MIXED = ["algorithm.name=heterofl", 'algorithm.heterofl.rates="1 0.25 0.0625"']
WIDTHS = Scenario(
    name="widths",
    about="""The same images in equal shares for 20 clients, 10 in each of 30 rounds; two epochs in
        batches of 10 at 0.01 with momentum 0.9, a hidden layer of 128, of which clients train all, a quarter or a
        sixteenth. Accuracy on the other 5,000 images, of the whole network or of its narrowest
        part.""",
    config=HALF
    + """
[run]
rounds = 30
checkpoint_every = 1000
[partition]
scheme = "iid"
clients = 20
[model]
layers = ["flatten", "linear 128", "relu", "linear 10"]
[cohort]
size = 10
weight = "uniform"
[local]
epochs = 2
batch_size = 10
lr = 0.01
momentum = 0.9
clip_norm = 1
[evaluation]
every = 0
""",
    ways={
        "fedavg": ["algorithm.name=fedavg"],
        "mixed": MIXED,
        "mixed, narrowest": [*MIXED, "algorithm.heterofl.evaluate=0.0625"],
        "narrowest alone": [
            "algorithm.name=heterofl", 'algorithm.heterofl.rates="0.0625"',
            "algorithm.heterofl.scaler=false",
        ],
    },
    metrics={
        "accuracy": Metric("test accuracy, %", True, final("test_accuracy"), 100),
        "bytes": Metric("kB up a client", False, mean("bytes_up"), 1e-3, ratio=True),
    },
)  # fmt: skip
FEDSAM, MOON, HETEROFL = "Qu et al. 2022", "Li et al. 2021", "Diao et al. 2021"
FEDDYN, SCAFFOLD = "Acar et al. 2021", "Karimireddy et al. 2020"
CLAIMS = [
    Claim("fedsam", FEDSAM, "algorithm 1", "more accurate than FedAvg where labels are skewed",
          SKEWED, "fedsam", "accuracy"),
    Claim("fedsam", FEDSAM, "algorithm 1", "its minima are flatter", SKEWED, "fedsam", "curvature"),
    Claim("moon", MOON, "table 1", "more accurate than FedAvg", SKEWED, "moon", "accuracy"),
    Claim("feddyn", FEDDYN, "table 1", "fewer rounds to an accuracy", SKEWED, "feddyn", "rounds"),
    Claim("scaffold", SCAFFOLD, "table 3", "fewer rounds to an accuracy", SKEWED, "scaffold",
          "rounds"),
    Claim("heterofl", HETEROFL, "table 2", "the whole model is nearly as accurate as one that all "
          "train whole", WIDTHS, "mixed", "accuracy", least=-2),
    Claim("heterofl", HETEROFL, "table 2", "its narrowest part is better than a model that is narrow "
          "everywhere", WIDTHS, "mixed, narrowest", "accuracy", "narrowest alone"),
    Claim("heterofl", HETEROFL, "table 2", "clients send less than half", WIDTHS, "mixed", "bytes",
          least=2),
]  # fmt: skip
