"""pfl-research: its FederatedAveraging over its SimulatedBackend, weighted by examples.

Several workers: `torchrun --standalone --nproc_per_node=N run_pfl.py TASK.json`; pfl then
balances the cohort over the ranks by the clients' sizes, which it is told.
"""

import os
import sys

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"

import torch  # noqa: E402: after the device is chosen
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.aggregate.weighting import WeightByDatapoints  # noqa: E402
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data import FederatedDataset  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams  # noqa: E402
from pfl.internal.ops.selector import get_framework_module  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from nets import network, tensors  # noqa: E402
from shared import Clock, Task  # noqa: E402

NEVER = 10**9  # rounds between evaluations


class Timing(TrainingProcessCallback):
    """Rank 0 tells the clock."""

    def __init__(self, clock, net):
        self._clock, self._net = clock, net

    def on_train_begin(self, *, model):
        self._clock.begin()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        done = self._clock.round_done(lambda: [p.detach().numpy() for p in self._net.parameters()])
        return done, Metrics()


def with_losses(net):
    """pfl asks the module for its loss, to differentiate, and its metrics, not used here."""
    net.loss = lambda x, y, eval=False: cross_entropy(net(x), y)
    net.metrics = lambda x, y, eval=True: {
        "loss": Weighted(cross_entropy(net(x), y, reduction="sum").item(), len(y))
    }
    return net


def main():
    torch.set_num_threads(1)
    task = Task(sys.argv[1])
    features, labels = tensors(task)
    rows = [slice(a, b) for a, b in zip(task.offsets, task.offsets[1:])]
    net = with_losses(network(task))
    ranks = get_framework_module().distributed

    # This sampler walks its list in order, so the list is the cohorts, one after another.
    in_order = get_user_sampler(
        "minimize_reuse", [client for cohort in task.cohorts for client in cohort]
    )
    data = FederatedDataset(
        lambda client: Dataset([features[rows[client]], labels[rows[client]]], user_id=client),
        in_order,
        {c: task.size(c) for c in range(task.clients)} if ranks.world_size > 1 else None,
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=task.rounds,
            evaluation_frequency=NEVER,
            train_cohort_size=len(task.cohorts[0]),
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0)),
        NNTrainHyperParams(
            local_batch_size=task.batch, local_num_epochs=1, local_learning_rate=task.lr
        ),
        NNEvalHyperParams(local_batch_size=None),
        [Timing(Clock(task), net)] if ranks.global_rank == 0 else [],
    )


main()
