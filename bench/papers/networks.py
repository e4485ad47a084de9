"""One network for clients that differ, and narrow ones for clients that are weak."""

from papers.claim import Claim, Metric, Scenario
from papers.metrics import curvature, final, mean, until

HALF = """
[data]
source = "idx"
path = "{images}/t10k-images-idx3-ubyte.gz"
test_fraction = 0.5
"""


def images_by_class(rounds: int, concentration: float, epochs: int) -> str:
    """Ten clients, to which a Dirichlet distribution gives their digits."""
    return (
        HALF
        + f"""
[run]
rounds = {rounds}
checkpoint_every = 1000
[partition]
scheme = "dirichlet-class"
concentration = {concentration}
clients = 10
min_size = 20
[model]
layers = ["flatten", "linear 64", "relu", "linear 32", "relu", "linear 10"]
[cohort]
size = 10
[local]
epochs = {epochs}
batch_size = 50
lr = 0.1
[evaluation]
every = 1
"""
    )


FEDAVG = ["algorithm.name=fedavg"]
SAM = ["algorithm.name=fedsam", "algorithm.fedsam.rho=0.05"]
CONTRAST = ["algorithm.name=moon", "algorithm.moon.mu=1"]
ACCURACY = Metric("test accuracy, %", True, final("test_accuracy"), 100)
SKEWED = Scenario(
    name="skewed",
    about="""5,000 of MNIST's test images, 10 clients with a few digits each (Dirichlet 0.1 by class),
        all of them in each of 20 rounds; 3 epochs in batches of 50 at 0.1, hidden layers of 64 and
        32. Accuracy on the other 5,000 images. Curvature: the largest eigenvalue of the loss's
        Hessian, on 2,000 images.""",
    config=images_by_class(rounds=20, concentration=0.1, epochs=3),
    ways={
        "fedavg": FEDAVG,
        "fedsam": SAM,
        "moon": CONTRAST,
        "feddyn": [
            "algorithm.name=feddyn", "algorithm.feddyn.alpha=0.01",
            "algorithm.feddyn.weighted=true",
        ],
        "scaffold": ["algorithm.name=scaffold", "algorithm.scaffold.weighted=true"],
    },
    metrics={
        "accuracy": ACCURACY,
        "curvature": Metric("curvature", False, curvature, ratio=True),
        "rounds": Metric(
            "rounds to 85 %", False, until("test_accuracy", above=0.85), ratio=True
        ),
    },
)  # fmt: skip
MILDER = Scenario(
    name="milder",
    about="""The same images and network; most clients have most digits (Dirichlet 0.5 by class), and 10
        epochs a round.""",
    config=images_by_class(rounds=20, concentration=0.5, epochs=10),
    ways={"fedavg": FEDAVG, "fedsam": SAM, "moon": CONTRAST},
    metrics={"accuracy": ACCURACY},
)
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
        "fedavg": FEDAVG,
        "mixed": MIXED,
        "mixed, narrowest": [*MIXED, "algorithm.heterofl.evaluate=0.0625"],
        "narrowest alone": [
            "algorithm.name=heterofl", 'algorithm.heterofl.rates="0.0625"',
            "algorithm.heterofl.scaler=false",
        ],
    },
    metrics={
        "accuracy": ACCURACY,
        "bytes": Metric("kB up a client", False, mean("bytes_up"), 1e-3, ratio=True),
    },
)  # fmt: skip
FEDSAM, MOON, HETEROFL = "Qu et al. 2022", "Li et al. 2021", "Diao et al. 2021"
FEDDYN, SCAFFOLD = "Acar et al. 2021", "Karimireddy et al. 2020"
CLAIMS = [
    *(
        claim
        for scenario in (SKEWED, MILDER)
        for claim in (
            Claim("fedsam", FEDSAM, "algorithm 1", "more accurate than FedAvg where labels are "
                  "skewed", scenario, "fedsam", "accuracy"),
            Claim("moon", MOON, "table 1", "more accurate than FedAvg", scenario, "moon",
                  "accuracy"),
        )
    ),
    Claim("fedsam", FEDSAM, "algorithm 1", "its minima are flatter", SKEWED, "fedsam", "curvature"),
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
