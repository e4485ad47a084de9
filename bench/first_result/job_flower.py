"""Flower: a module and arrays of one's own, 1000 clients. Arguments: the folder, rounds."""

import sys

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

folder, rounds = sys.argv[1], int(sys.argv[2])
x, y = (torch.from_numpy(np.load(f"{folder}/{name}.npy")) for name in "xy")
x, y, test_x, test_y = x[2000:], y[2000:], x[:2000], y[:2000]
client_app, server_app = ClientApp(), ServerApp()


def module():
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))


@client_app.train()
def train(message, context):
    torch.set_num_threads(1)
    net = module()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    rows = torch.tensor_split(torch.arange(len(x)), 1000)[context.node_config["partition-id"]]
    for batch in torch.split(rows[torch.randperm(len(rows))], 20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(rows)})
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


def evaluate(server_round, arrays):
    net = module()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": (net(test_x).argmax(1) == test_y).float().mean().item()})


@server_app.main()
def serve(grid, context):
    strategy = FedAvg(fraction_train=0.1, fraction_evaluate=0.0)
    arrays = ArrayRecord(module().state_dict())
    result = strategy.start(grid, arrays, num_rounds=rounds, evaluate_fn=evaluate)
    print(result.evaluate_metrics_serverapp[rounds]["accuracy"])


run_simulation(server_app, client_app, num_supernodes=1000)
