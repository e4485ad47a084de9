"""The client of train.py, whose model several processes train together: DistributedDataParallel, or
FSDP with --fsdp (PyTorch 2.6 or later). In node.toml: command = ["python3", "ranks.py", "2"]

The worker starts this program once; program(ranks=…) starts it again for the other ranks. Rank 0
speaks with the worker, and serve() calls train and evaluate in all of them.
"""
import sys

import train as alone  # its rows, its batches; and the path of macaw_client

import macaw_client

rank = macaw_client.program(ranks=int(sys.argv[1]))  # before anything looks at a GPU

import torch  # noqa: E402
import torch.distributed as group  # noqa: E402
from torch import nn  # noqa: E402

world = int(sys.argv[1])
group.init_process_group("gloo",  # "nccl" where each rank has a GPU
                         store=macaw_client.ranks_store(), rank=rank, world_size=world)
net = nn.Sequential(nn.Linear(60, 10))  # what a run knows of it: "0.weight", "0.bias"
fsdp = "--fsdp" in sys.argv
if fsdp:
    from torch.distributed.checkpoint import state_dict as states
    from torch.distributed.fsdp import fully_shard

    # Each rank keeps its part of each tensor, also after an evaluation, which has no backward pass.
    model = fully_shard(net, reshard_after_forward=True)
else:
    model = nn.parallel.DistributedDataParallel(net)


def load(weights):
    if fsdp and rank > 0:
        weights = {}  # rank 0 alone was given the numbers, and hands them out
    whole = {name: torch.from_numpy(array.copy()) for name, array in weights.items()}
    if fsdp:
        options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        states.set_model_state_dict(model, whole, options=options)
    else:
        net.load_state_dict(whole)


def tensors():
    if fsdp:  # whole in rank 0, and nothing in the others
        options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
        return states.get_model_state_dict(model, options=options)
    return net.state_dict()


def train(weights, task):
    load(weights)
    local = task.local
    optimizer = torch.optim.SGD(model.parameters(), lr=local["lr"], momentum=local["momentum"],
                                weight_decay=local["weight_decay"])
    x, y = alone.rows_of(task.name, "train")
    sums, steps = torch.zeros(3), 0
    for batch in alone.batches(len(x), local, task.random()):  # the same ones in each rank
        part = batch[rank::world]
        outputs = model(x[part])
        loss = nn.functional.cross_entropy(outputs, y[part], reduction="sum")
        optimizer.zero_grad()
        (loss * world / len(batch)).backward()  # ranks' gradients are averaged: the batch's mean
        optimizer.step()
        steps += 1
        sums += torch.tensor([len(part), loss.item(), (outputs.argmax(1) == y[part]).sum()])
    group.all_reduce(sums)  # rows, losses and hits of all ranks
    rows, losses, correct = sums.tolist()
    return tensors(), rows, steps, {"loss": losses, "correct": correct}


def evaluate(weights, task):
    load(weights)
    x, y = (t[task.begin:task.end] for t in alone.rows_of(task.name, task.split))
    with torch.no_grad():
        outputs = model(x)  # in all ranks: the weights of FSDP lie in all of them
    losses = nn.functional.cross_entropy(outputs, y, reduction="sum")
    return {"examples": len(x), "loss": losses.item(),
            "correct": (outputs.argmax(1) == y).sum().item()}


macaw_client.serve(train, evaluate, name=f"examples/process ranks 1, torch {torch.__version__}",
                   sharded=fsdp)  # no copy of the whole model in the other ranks
