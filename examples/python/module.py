"""A PyTorch module and arrays of one's own, 1000 clients, FedProx."""

import torch
from torch import nn

import macaw

x = torch.randn(20_000, 1, 28, 28)
y = (x.flatten(1) @ torch.randn(784, 10)).argmax(1)
net = nn.Sequential(
    nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1176, 10)
)
run = macaw.simulate(
    model=net,
    data=(x, y),
    partition=macaw.dirichlet(0.3, clients=1000),
    algorithm=macaw.FedProx(mu=0.1),
    cohort=100,
    rounds=200,
    local=dict(epochs=1, batch_size=20, lr=0.1),
)
net.load_state_dict(run.model())
print(run)
