"""The jobs that every system does. Plain data: any interpreter may import this."""

import dataclasses

CLIENTS = 1000
LR = 0.01  # at 0.1 Synthetic(1,1) amplifies rounding: the same sum in two orders ends 8 % apart


@dataclasses.dataclass(frozen=True)
class Job:
    """One epoch of one model on one data set; batches in stored order, the last one is kept."""

    name: str
    title: str
    data: str  # "synthetic", "images" or "pictures", see inputs.py
    batch: int
    cohort: int  # clients a round
    timed: int  # rounds that count in a repetition, for a system of ordinary speed
    layers: tuple[str, ...] = ()  # none: Macaw has a model of the job's name
    usual: bool = True  # a job when none is named


LOGISTIC = Job(
    "logistic", "softmax regression 60 → 10, Synthetic(1,1)", "synthetic", 10, 100, timed=6
)
LENET5 = Job("lenet5", "LeNet-5, 60 images 28 × 28 a client", "images", 20, 100, timed=4)
SIMPLE_CNN = Job(
    "simple_cnn",
    "two convolutions, 1.2 million weights, the same images",
    "images",
    20,
    20,
    timed=3,
)
PFL_CNN = Job(
    "pfl_cnn",
    "pfl-research's benchmark on CIFAR-10 without dropout: 1.6 million weights, "
    "50 images 32 × 32 × 3 a client",
    "pictures",
    10,
    50,
    timed=3,
    layers=(
        *("conv 32 3", "relu", "conv 64 3", "relu", "maxpool 2", "flatten"),
        *("linear 128", "relu", "linear 10"),
    ),
    usual=False,
)
JOBS = {job.name: job for job in (LOGISTIC, LENET5, SIMPLE_CNN, PFL_CNN)}
