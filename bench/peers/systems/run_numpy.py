"""NumPy, the gradient of softmax regression by hand: one process, job "logistic" only."""

import sys

import numpy as np

from shared import Clock, Task


def train(weight, bias, features, labels, lr):
    """One step, in place: W ← W − η xᵀ(p − e_y)/m, with p the softmax of xW + b."""
    scores = features @ weight
    scores += bias
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(labels)), labels] -= 1
    scores *= lr / np.float32(len(labels))
    weight -= features.T @ scores
    bias -= scores.sum(axis=0)


def main():
    task = Task(sys.argv[1])
    features, labels, lr = np.asarray(task.features), task.labels, np.float32(task.lr)
    weight, bias = task.initial.values()
    weight = np.ascontiguousarray(weight.T)
    clock = Clock(task)
    clock.begin()
    for cohort in task.cohorts:
        rows = sum(map(task.size, cohort))
        weight_mean, bias_mean = np.zeros_like(weight), np.zeros_like(bias)
        for client in cohort:
            w, b = weight.copy(), bias.copy()
            for first, end in task.batches(client):
                train(w, b, features[first:end], labels[first:end], lr)
            share = np.float32(task.size(client) / rows)
            weight_mean += share * w
            bias_mean += share * b
        weight, bias = weight_mean, bias_mean
        clock.round_done(lambda: (weight.T, bias))


main()
