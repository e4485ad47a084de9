"""Figures and a table for a paper: two rules, three seeds, rows standardised by training rows.

The figures need matplotlib.
"""

from pathlib import Path

import numpy as np

import macaw

rng = np.random.default_rng(1)
x = rng.normal(5, rng.uniform(0.1, 50, 32), (6_000, 32)).astype(np.float32)
y = np.argmax(np.tanh((x - 5) / x.std(0) @ rng.normal(size=(32, 16))) @ rng.normal(size=(16, 5)), 1)
test_x, test_y = x[5_000:], y[5_000:]

sweep = macaw.sweep(
    model=["linear 64", "tanh", "linear 5"],
    data=(x[:5_000], y[:5_000]),
    test=(test_x, test_y),
    normalise="train",
    partition=macaw.dirichlet(0.1, clients=100, seed=1),
    algorithm=macaw.grid([macaw.FedAvg(), macaw.FedProx(mu=macaw.grid([0.1, 1]))]),
    cohort=10,
    rounds=60,
    local=dict(epochs=5, batch_size=20, lr=0.1),
    evaluation=dict(clients=True),
    data_options=dict(client_test_fraction=0.2, seed=1),
    seeds=[1, 2, 3],
    out="sweeps/paper",
)
figures = Path("sweeps/paper/figures")
macaw.plot(sweep, ["test_accuracy", "train_loss"]).save(figures / "curves.pdf")
macaw.plot_clients(sweep, kind="cdf").save(figures / "clients.svg")
(figures / "table.tex").write_text(sweep.to_latex())
print(sweep.to_latex())
