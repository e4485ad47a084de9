"""A bare PyTorch loop: one replica a worker, a fused update, parameters in shared memory.

With several workers each is a process with its part of the cohort (longest first); two barriers a
round.
"""

import sys

import torch
import torch.multiprocessing as multiprocessing
from torch.nn.functional import cross_entropy

from nets import network, tensors
from shared import Clock, Task


def views(flat, like):
    """The parts of a flat vector, each with the shape of a parameter."""
    return [part.view(p.shape) for part, p in zip(flat.split([p.numel() for p in like]), like)]


def train(net, parameters, batches, features, labels, lr):
    for first, end in batches:
        loss = cross_entropy(net(features[first:end]), labels[first:end])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-lr)


def work(path, rank, model, sums, barrier):
    """The rounds as worker `rank` sees them; worker 0 also averages and keeps the time."""
    torch.set_num_threads(1)
    task = Task(path)
    net = network(task)
    features, labels = tensors(task)
    parameters = list(net.parameters())
    values = [p.data for p in parameters]
    start, mine = views(model, parameters), views(sums[rank], parameters)
    clock = Clock(task)
    barrier.wait()
    clock.begin()
    for cohort in task.cohorts:
        rows = sum(map(task.size, cohort))
        sums[rank].zero_()
        for client in task.parts(cohort, task.workers)[rank]:
            torch._foreach_copy_(values, start)
            train(net, parameters, task.batches(client), features, labels, task.lr)
            torch._foreach_add_(mine, values, alpha=task.size(client) / rows)
        barrier.wait()
        if rank == 0:
            torch.sum(sums, dim=0, out=model)
            clock.round_done(lambda: [model.numpy()])
        barrier.wait()


def main():
    path = sys.argv[1]
    task = Task(path)
    spawn = multiprocessing.get_context("spawn")
    model = torch.cat(
        [torch.from_numpy(a).flatten() for a in task.initial.values()]
    ).share_memory_()
    sums = torch.zeros(task.workers, model.numel()).share_memory_()
    barrier = spawn.Barrier(task.workers)
    others = [
        spawn.Process(target=work, args=(path, rank, model, sums, barrier), daemon=True)
        for rank in range(1, task.workers)
    ]
    for process in others:
        process.start()
    work(path, 0, model, sums, barrier)
    for process in others:
        process.join()


if __name__ == "__main__":
    main()
