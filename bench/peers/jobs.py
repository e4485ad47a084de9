"""The jobs that every system does. Plain data: any interpreter may import this."""

import dataclasses

CLIENTS = 1000
LR = 0.01  # at 0.1 Synthetic(1,1) amplifies rounding: the same sum in two orders ends 8 % apart


@dataclasses.dataclass(frozen=True)
class Job:
    """One epoch of one model on one data set; batches in stored order, the last one is kept."""

    name: str  # Macaw's name of the model
    title: str
    data: str  # "synthetic" or "images", see inputs.py
    batch: int
    cohort: int  # clients a round
    timed: int  # rounds that count in a repetition, for a system of ordinary speed


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
JOBS = {job.name: job for job in (LOGISTIC, LENET5, SIMPLE_CNN)}
