"""Macaw: a module and arrays of one's own, 1000 clients. Arguments: the folder, rounds."""

import sys

import macaw
import numpy as np
import torch

folder, rounds = sys.argv[1], int(sys.argv[2])
x, y = np.load(folder + "/x.npy"), np.load(folder + "/y.npy")
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
run = macaw.simulate(model=net, data=(x, y), partition=macaw.iid(clients=1000), cohort=100, rounds=rounds,
                     local=dict(epochs=1, batch_size=20, lr=0.1), out=folder + "/run")  # fmt: skip
net.load_state_dict(run.model())
print(run.summary["final"]["test_accuracy"])
