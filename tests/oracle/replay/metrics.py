"""The metrics of rows, of clients and of groups of them, by their definitions, from a model's outputs."""
import math
from fnmatch import fnmatchcase

import numpy as np

from network import losses

CELLS, FINE, OCTAVES = 128, 16, 16  # of log-odds, by which Macaw counts for the AUC (training/README.md): cells a unit
                                    # up to ±16; beyond, and within 1 of the centre, as many an octave
HIGHER_IS_WORSE = {"loss", "ece", "mae", "perplexity"}
TOP = 5
LOST = 1e-5  # of labels' deviation ÷ mean: there R² is undefined
BINS, UNITS = 15, 2 ** 24  # of a confidence, for the calibration error


def predictions(outputs):
    return (outputs[:, 0] > 0).astype(int) if outputs.shape[1] == 1 else outputs.argmax(axis=1)


def margin(outputs):
    """How near the nearest row is to another prediction."""
    if outputs.shape[1] == 1:
        return np.abs(outputs).min()
    best = np.sort(outputs, axis=1)
    return (best[:, -1] - best[:, -2]).min()


def log_odds(outputs):
    """log(p / (1 − p)): of class 1 of two, else of each class."""
    if outputs.shape[1] == 1:
        return outputs
    others = np.array([np.logaddexp.reduce(np.delete(outputs, c, axis=1), axis=1) for c in range(outputs.shape[1])])
    return outputs - others.T


def lower_edge(size):
    """Of the cell of a size from 1 on, of which each octave has the same number."""
    mantissa, exponent = np.frexp(size)
    return (1 + np.floor((2 * mantissa - 1) * CELLS) / CELLS) * 2.0 ** (exponent - 1)


def cells(scores, centre):
    """A number for each score's cell, in their order. `centre`: the score of a model that knows nothing."""
    distance, unit = scores - centre, 2.0 ** -OCTAVES
    size = np.abs(distance) / unit
    size = np.where(distance < 0, np.nextafter(size, 0), size)  # cells hold their lower ends
    near = np.copysign(unit * lower_edge(np.maximum(size, 1)), distance)
    beyond = np.copysign(lower_edge(np.clip(np.abs(scores) / FINE, 1, 2.0 ** OCTAVES * (1 - 1e-9))) + 1, scores)
    linear = np.floor(scores * CELLS) / CELLS + np.where(distance < 0, 0, 1 / CELLS)
    inner = (scores >= -FINE) & (scores < FINE)
    return np.where((distance >= -1) & (distance < 1), centre + near, np.where(inner, linear, FINE * beyond))


def divided(numerator, denominator):
    """NaN where a class has no rows."""
    numerator, denominator = np.asarray(numerator, float), np.asarray(denominator, float)
    return np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0)


def mean_of_defined(values):
    return np.nanmean(values) if np.isfinite(values).any() else np.nan


def curves(outputs, y):
    """Of each one that has an AUC: its scores, their cells, and which rows are positive."""
    scores, classes = log_odds(outputs), max(outputs.shape[1], 2)
    counted = cells(scores, -math.log(classes - 1))
    return [(scores[:, c], counted[:, c], y == (1 if scores.shape[1] == 1 else c)) for c in range(scores.shape[1])]


def area(scores, positive):
    """The share of pairs of a positive and a negative row in which the positive one's score is larger; a tie: half."""
    if positive.all() or not positive.any():
        return np.nan
    apart = scores[positive][:, None] - scores[~positive][None]
    return (apart > 0).mean() + (apart == 0).mean() / 2


def area_bound(scores, cell, positive, slack):
    """How far the AUC of cells may be from the one of scores: half the share of pairs in one cell, and the pairs that a
    rounding of the scores by up to `slack` may turn round."""
    if positive.all() or not positive.any():
        return np.nan
    apart = np.abs(scores[positive][:, None] - scores[~positive][None])
    together = (cell[positive][:, None] == cell[~positive][None]) & (apart > 0)
    return together.mean() / 2 + (apart <= slack if slack else apart < 0).mean()


def calibration_error(outputs, y):
    """Guo et al. 2017, eq. 3, of confidences that are rounded as Macaw rounds them."""
    z = np.hstack([np.zeros_like(outputs), outputs]) if outputs.shape[1] == 1 else outputs
    confidence = np.exp(z.max(axis=1) - np.logaddexp.reduce(z, axis=1))
    confidence = np.round(confidence * UNITS) / UNITS
    bins = np.ceil(confidence * BINS).astype(int) - 1
    right = predictions(outputs) == y
    return sum(abs(right[bins == m].sum() - confidence[bins == m].sum()) for m in range(BINS)) / len(y)


def by_class(outputs, y, classes):
    """Confusion matrix (a row a label), recall, precision, F1, AUC of cells."""
    matrix = np.zeros((classes, classes), int)
    np.add.at(matrix, (y, predictions(outputs)), 1)
    correct, rows, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    return {"confusion": matrix, "recall": divided(correct, rows), "precision": divided(correct, predicted),
            "f1": divided(2 * correct, rows + predicted),
            "auc": np.array([area(cell, positive) for _, cell, positive in curves(outputs, y)])}


def of_rows(outputs, y, classes):
    each = by_class(outputs, y, classes)
    binary = outputs.shape[1] == 1
    top = {"top5": among_the_top(outputs, y).mean()} if classes > TOP else {}
    found = top | {"loss": losses(outputs, y).mean(), "accuracy": (predictions(outputs) == y).mean(),
             "balanced_accuracy": mean_of_defined(each["recall"]), "auc": mean_of_defined(each["auc"]),
             "ece": calibration_error(outputs, y)}
    if binary:
        return found | {name: each[name][1] for name in ("precision", "recall", "f1")}
    return found | {"f1": mean_of_defined(each["f1"])}


def among_the_top(outputs, y):
    """Which rows' labels are among the five largest outputs; of equal ones the first is the larger."""
    order = np.argsort(-outputs, axis=1, kind="stable")
    return (order[:, :TOP] == y[:, None]).any(axis=1)


def of_numbers(outputs, y):
    """Of a regression. R² is by the mean of these rows' labels."""
    off, spread = outputs[:, 0] - y, y - y.mean()
    defined = y.std() > LOST * abs(y.mean())
    return {"loss": (off ** 2).mean(), "mae": np.abs(off).mean(),
            "r2": 1 - (off ** 2).sum() / (spread ** 2).sum() if defined else np.nan}


def of_tokens(outputs, y):
    loss = losses(outputs, y).mean()
    return {"loss": loss, "accuracy": (predictions(outputs) == y).mean(), "perplexity": np.exp(loss)}


def auc_of_scores(outputs, y, slack):
    """The AUC without cells, and how far Macaw's may be from it."""
    areas = np.array([area(scores, positive) for scores, _, positive in curves(outputs, y)])
    bounds = np.array([area_bound(*curve, slack) for curve in curves(outputs, y)])
    return mean_of_defined(areas), mean_of_defined(bounds)


def over_clients(values, higher_is_worse):
    """Statistics over the clients for which a metric is defined."""
    values = np.sort(values[np.isfinite(values)])
    worst = (values[::-1] if higher_is_worse else values)[:max(1, len(values) // 10)]
    gini = np.abs(values[:, None] - values[None]).mean() / (2 * values.mean()) if values.mean() else 0.0
    return {"mean": values.mean(), "std": values.std(), "gini": gini, "worst10": worst.mean(),
            "p10": np.quantile(values, 0.1), "p50": np.quantile(values, 0.5), "p90": np.quantile(values, 0.9)}


def together(measured, outputs, labels):
    """The metrics of all these clients' rows."""
    return measured(np.concatenate(outputs), np.concatenate(labels))


def columns_of_clients(prefix, outputs, labels, measured):
    """The metrics of all rows together, and the statistics over the clients that have some."""
    pooled = together(measured, outputs, labels)
    columns = {prefix + name: value for name, value in pooled.items()}
    each = [measured(o, y) for o, y in zip(outputs, labels) if len(y)]
    columns |= {prefix + "clients": len(each), prefix + "missing": 0}  # no client is given up here
    for name in pooled:
        statistics = over_clients(np.array([client[name] for client in each]), name in HIGHER_IS_WORSE)
        columns |= {f"{prefix}{name}_{statistic}": value for statistic, value in statistics.items()}
    return columns


def columns_of_groups(prefix, entries, outputs, labels, measured):
    """By evaluation.groups: a client's group is that of the first entry "NAME=PATTERN" that its number matches."""
    entries = [entry.split("=") for entry in entries]
    of = [next((name for name, pattern in entries if fnmatchcase(str(k), pattern)), None) for k in range(len(labels))]
    columns, found = {}, {}
    names = together(measured, outputs, labels)
    for group in dict.fromkeys(name for name, _ in entries):
        own = [k for k in range(len(labels)) if of[k] == group and len(labels[k])]
        found[group] = dict.fromkeys(names, np.nan)
        if own:
            found[group] = together(measured, [outputs[k] for k in own], [labels[k] for k in own])
        columns |= {f"{prefix}group_{group}_{name}": value for name, value in found[group].items()}
        columns[f"{prefix}group_{group}_clients"] = len(own)
    for name in names:
        values = sorted(value for group in found.values() if np.isfinite(value := group[name])) or [np.nan]
        columns[f"{prefix}worst_group_{name}"] = values[-1 if name in HIGHER_IS_WORSE else 0]
        columns[f"{prefix}group_gap_{name}"] = values[-1] - values[0]
    return columns


def objective(problem, model, decay):
    """Over everybody's training rows: metrics, and with the ℓ2 term what is minimised; then the outputs and labels."""
    x, y = problem.of(np.concatenate(problem.train))
    outputs = problem.network.outputs_of(model, x)
    found = problem.measured(outputs, y)
    count = problem.network.parameters
    penalty = decay / 2 * (model[:count][problem.network.free[:count]] ** 2).sum()  # of what is trained
    columns = {f"clients_train_{name}": value for name, value in found.items()}
    columns |= {"clients_train_missing": 0, "l2_penalty": penalty, "train_objective": found["loss"] + penalty}
    return columns, (outputs, y)
