"""What the device does in a round: some epochs of SGD on its own images."""

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

from device_flower.task import BATCH, EPOCHS, LR, network, training_rows

app = ClientApp()


@app.train()
def train(message, context):
    torch.set_num_threads(1)
    net = network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = training_rows(context.node_config["data"])
    optimizer = torch.optim.SGD(net.parameters(), LR)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(net(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
    content = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": len(labels), "loss": loss.item()}),
    }
    return Message(RecordDict(content), reply_to=message)
