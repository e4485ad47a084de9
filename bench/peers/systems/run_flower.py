"""Flower: its FedAvg over its simulation engine (Ray actors, as many as workers).

The nodes are Flower's own choice; the message names the client whose rows the node trains on, so
that the cohorts are everybody's.
"""

import logging
import os
import sys

os.environ["BENCH_TASK"] = sys.argv[1]  # the actors inherit it
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0")

import torch  # noqa: E402: after the switches
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.serverapp.strategy.strategy_utils import sample_nodes  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

from flower_rows import resident  # noqa: E402
from shared import Clock  # noqa: E402

client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message, context):
    task, net, features, labels = resident()
    client = message.content["config"]["client"]
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), task.lr)
    for first, end in task.batches(client):
        optimizer.zero_grad()
        cross_entropy(net(features[first:end]), labels[first:end]).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": task.size(client)}),
    }
    return Message(RecordDict(content), reply_to=message)


class GivenCohorts(FedAvg):
    """FedAvg, except that each message also says whose rows to train on."""

    def __init__(self, cohorts, clients):
        super().__init__(fraction_train=len(cohorts[0]) / clients, fraction_evaluate=0.0)
        self._cohorts = cohorts

    def configure_train(self, server_round, arrays, config, grid):
        cohort = self._cohorts[server_round - 1]
        nodes, _ = sample_nodes(grid, self.min_available_nodes, len(cohort))
        for node, client in zip(nodes, cohort):
            settings = ConfigRecord({"server-round": server_round, "client": client})
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: settings})
            yield Message(content, message_type=MessageType.TRAIN, dst_node_id=node)


@server_app.main()
def serve(grid, context):
    task, net, *_ = resident()
    clock = Clock(task)

    def after_round(server_round, arrays):
        # Called once before the first round, with number 0, and after each.
        if server_round == 0:
            clock.begin()
        else:
            clock.round_done(lambda: [v.numpy() for v in arrays.to_torch_state_dict().values()])

    GivenCohorts(task.cohorts, task.clients).start(
        grid=grid,
        initial_arrays=ArrayRecord(net.state_dict()),
        num_rounds=task.rounds,
        evaluate_fn=after_round,
    )


def main():
    task, *_ = resident()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=task.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {
                "num_cpus": task.workers,
                "include_dashboard": False,
                "log_to_driver": False,
            },
        },
    )


main()
