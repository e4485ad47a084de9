"""Flower's FedAvg, one node a round."""

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from device_flower.task import network

app = ServerApp()


@app.main()
def serve(grid, context):
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=1, min_evaluate_nodes=0, min_available_nodes=1
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        num_rounds=context.run_config["rounds"],
    )
