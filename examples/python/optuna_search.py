"""Optuna chooses the configurations: pip install optuna beside macaw.

A trial is a run whose test loss is reported round by round, so that Optuna can end a hopeless one.
"""

import optuna

import macaw


def objective(trial: optuna.Trial) -> float:
    stream = macaw.stream(
        "logistic",
        "synthetic",
        data_options=dict(synthetic=dict(clients=200, max_size=200)),
        cohort=20,
        rounds=30,
        seed=1,
        algorithm=macaw.FedProx(mu=trial.suggest_float("mu", 1e-3, 1, log=True)),
        local=dict(lr=trial.suggest_float("lr", 1e-3, 1, log=True)),
        name=f"trial-{trial.number}",
    )
    loss = float("inf")
    for row in stream:
        loss = row.get("test_loss", loss)
        trial.report(loss, row["round"])
        if trial.should_prune():
            stream.close()
            raise optuna.TrialPruned()
    return loss


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
study.optimize(objective, n_trials=20, catch=(macaw.RunError,))  # a diverged run is a failed trial
print(study.best_value, study.best_params)
