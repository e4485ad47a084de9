"""FedML's MPI simulator with sequential clients and workload scheduling: FedML Parrot's mode.

usage: mpirun -np WORKERS+1 python -m mpi4py run_fedml.py TASK.json; rank 0 serves. The cohorts
are given in the place where FedML draws its own. Not as shipped: no configuration is fetched from
the vendor, the device is named here, and the test of all clients is off. The scheduler starts
after round 5: warm up with six.
"""

import logging
import os
import sys

import numpy as np
import torch

from nets import network, tensors
from shared import Clock, Task

TASK = Task(sys.argv[1])
CONFIG = """
common_args: {{training_type: simulation, using_mlops: false, random_seed: 0}}
data_args: {{dataset: synthetic, data_cache_dir: ., partition_method: hetero, partition_alpha: 0.5}}
model_args: {{model: given}}
train_args:
  federated_optimizer: FedAvg_seq
  client_id_list: '[]'
  client_num_in_total: {clients}
  client_num_per_round: {cohort}
  comm_round: {rounds}
  epochs: 1
  batch_size: {batch}
  client_optimizer: sgd
  learning_rate: {lr}
  weight_decay: 0.0
validation_args: {{frequency_of_the_test: 1000000000}}
device_args: {{worker_num: {workers}, using_gpu: false, simulation_schedule: LinearFit-DP}}
comm_args: {{backend: MPI, is_mobile: 0}}
tracking_args: {{enable_wandb: false, enable_tracking: false}}
"""


def configure():
    """Writes the configuration where FedML's own argument parser finds it."""
    path = TASK.scratch / f"fedml-{os.getpid()}.yaml"
    path.write_text(
        CONFIG.format(
            clients=TASK.clients,
            cohort=len(TASK.cohorts[0]),
            rounds=TASK.rounds,
            batch=TASK.batch,
            lr=TASK.lr,
            workers=TASK.workers,
        )
    )
    sys.argv[1:] = ["--cf", str(path)]


def keep_time(clock):
    """Rank 0's first message begins the first round; an average taken ends one."""
    from fedml.simulation.mpi.fedavg_seq.FedAVGAggregator import FedAVGAggregator
    from fedml.simulation.mpi.fedavg_seq.FedAvgServerManager import FedAVGServerManager

    send, average = FedAVGServerManager.send_init_msg, FedAVGAggregator.aggregate

    def send_and_begin(self):
        clock.begin()
        return send(self)

    def average_and_tell(self, *args, **kwargs):
        weights = average(self, *args, **kwargs)
        clock.round_done(lambda: [value.numpy() for value in weights.values()])
        return weights

    FedAVGServerManager.send_init_msg = send_and_begin
    FedAVGAggregator.aggregate = average_and_tell
    # It asks for one cohort more than there are rounds, and indexes it as an array.
    FedAVGAggregator.client_sampling = lambda self, number, *_: np.array(
        TASK.cohorts[min(number, TASK.rounds - 1)]
    )
    FedAVGAggregator.test_on_server_for_all_clients = lambda self, number: None


def main():
    torch.set_num_threads(1)
    configure()
    import fedml
    import fedml.core.mlops

    fedml.core.mlops.fetch_config = lambda *_, **__: None
    fedml._global_training_type, fedml._global_comm_backend = "simulation", "MPI"
    settings = fedml.init()
    logging.disable(logging.INFO)
    features, labels = tensors(TASK)
    batches = {
        client: [(features[a:b], labels[a:b]) for a, b in TASK.batches(client)]
        for client in range(TASK.clients)
    }
    sizes = {client: TASK.size(client) for client in range(TASK.clients)}
    unused = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(features[:100], labels[:100]), batch_size=10
    )
    keep_time(Clock(TASK))
    dataset = [len(labels), 100, unused, unused, sizes, batches, batches, 10]
    fedml.FedMLRunner(settings, torch.device("cpu"), dataset, network(TASK)).run()


main()
