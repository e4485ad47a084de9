"""What each of Flower's actors holds.

A module of its own: the script itself is `__main__`, which actors cannot import.
"""

import functools
import os

import torch

from nets import network, tensors
from shared import Task


@functools.lru_cache(maxsize=1)
def resident():
    """Task, model, features and labels: once a process, over the mapped file."""
    torch.set_num_threads(1)
    task = Task(os.environ["BENCH_TASK"])
    return task, network(task), *tensors(task)
