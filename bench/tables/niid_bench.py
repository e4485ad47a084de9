"""What the tables after NIID-Bench share: its simple-cnn, and its ten parties' local work.

Li et al. 2022, *Federated Learning on Non-IID Data Silos*.
"""

CLIENTS = 10
# Behind a table's [run] and [data].
SETTINGS = """\
[model]
layers = ["conv 6 5", "relu", "maxpool 2", "conv 16 5", "relu", "maxpool 2", "flatten",
          "linear 120", "relu", "linear 84", "relu", "linear 10"]
[cohort]
size = 10
[local]
epochs = 10
batch_size = 64
lr = 0.01
momentum = 0.9
weight_decay = 1e-5
"""
FEDAVG = ["algorithm.name=fedavg"]
SCAFFOLD = ["algorithm.name=scaffold", "algorithm.scaffold.weighted=true"]
FEDNOVA = ["algorithm.name=fednova"]
