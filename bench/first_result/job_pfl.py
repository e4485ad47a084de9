"""pfl-research: a module and arrays of one's own, 1000 clients. Arguments: the folder, rounds."""

import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

folder, rounds = sys.argv[1], int(sys.argv[2])
x, y = (torch.from_numpy(np.load(f"{folder}/{name}.npy")) for name in "xy")
x, y, test_x, test_y = x[2000:], y[2000:], x[:2000], y[:2000]
parts = torch.tensor_split(torch.arange(len(x)), 1000)


class Net(torch.nn.Sequential):
    def loss(self, x, y, eval=False):
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x, y, eval=True):
        return {"accuracy": Weighted((self(x).argmax(1) == y).sum().item(), len(y))}


net = Net(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
sampler = get_user_sampler("random", range(1000))
data = FederatedDataset(lambda user: Dataset([x[parts[user]], y[parts[user]]], user_id=user), sampler)
params = NNAlgorithmParams(central_num_iterations=rounds, evaluation_frequency=1,
                           train_cohort_size=100, val_cohort_size=None)  # fmt: skip
backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()])
model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
train = NNTrainHyperParams(local_batch_size=20, local_num_epochs=1, local_learning_rate=0.1)
evaluation = NNEvalHyperParams(local_batch_size=None)
test = CentralEvaluationCallback(Dataset([test_x, test_y]), model_eval_params=evaluation)
FederatedAveraging().run(params, backend, model, train, evaluation, [test])
print((net(test_x).argmax(1) == test_y).float().mean().item())
