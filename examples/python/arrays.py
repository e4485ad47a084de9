"""Arrays of one's own, 1000 clients, FedProx: NumPy is enough."""

import numpy as np

import macaw

rng = np.random.default_rng(1)
x = rng.normal(size=(20_000, 32)).astype(np.float32)
y = np.argmax(np.tanh(x @ rng.normal(size=(32, 64))) @ rng.normal(size=(64, 10)), axis=1)

run = macaw.simulate(
    model=["linear 64", "tanh", "linear 10"],
    data=(x, y),
    partition=macaw.dirichlet(0.3, clients=1000),
    algorithm=macaw.FedProx(mu=0.1),
    cohort=100,
    rounds=200,
    local=dict(epochs=1, batch_size=20, lr=0.1),
)
print(run)
print(run.metrics["test_accuracy"][-1:], run.model()["0.weight"].shape)
