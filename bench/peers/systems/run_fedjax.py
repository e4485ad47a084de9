"""FedJAX's own federated averaging, jit back end; XLA may use every core.

Two things are not as shipped. jax dropped `tree_map`, which FedJAX 0.0.17 calls: it is put back.
And FedJAX's training batches fill the last one by wrapping round to the first rows, which is
other work than everybody else's: here they are its own padded batches, and the loss leaves the
padding out.
"""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np

if "tree_map" not in dir(jax):
    jax.tree_map = jax.tree_util.tree_map
import fedjax  # noqa: E402: after the repair

from shared import Clock, Task  # noqa: E402

MASK = fedjax.EXAMPLE_MASK_KEY


class StoredOrder(fedjax.ClientDataset):
    """Training batches in stored order, the last one padded and masked."""

    def shuffle_repeat_batch(self, hparams=None, **kwargs):
        return self.padded_batch(batch_size=hparams.batch_size)


@dataclasses.dataclass(frozen=True)
class Conv:
    """ReLU follows; then 2 × 2 maxima if `pool`."""

    pad: int
    pool: bool


@dataclasses.dataclass(frozen=True)
class Dense:
    """`side` > 0: the input is an image of that height and width, flattened."""

    side: int = 0
    relu: bool = True


LAYERS = {
    "logistic": (Dense(relu=False),),
    "lenet5": (Conv(2, True), Conv(0, True), Dense(side=5), Dense(), Dense(relu=False)),
    "simple_cnn": (Conv(0, False), Conv(0, True), Dense(side=12), Dense(relu=False)),
    "pfl_cnn": (Conv(0, False), Conv(0, True), Dense(side=14), Dense(relu=False)),
}


def to_jax(layer, weight):
    """PyTorch's layout to the one XLA's processor kernels want: images as NHWC, kernels as HWIO."""
    if isinstance(layer, Conv):
        return weight.transpose(2, 3, 1, 0)
    if not layer.side:
        return weight.T
    square = weight.reshape(len(weight), -1, layer.side, layer.side)
    return square.transpose(2, 3, 1, 0).reshape(-1, len(weight))


def to_torch(layer, weight):
    """The inverse of to_jax."""
    weight = np.asarray(weight)
    if isinstance(layer, Conv):
        return weight.transpose(3, 2, 0, 1)
    if not layer.side:
        return weight.T
    square = weight.reshape(layer.side, layer.side, -1, weight.shape[1])
    return square.transpose(3, 2, 0, 1).reshape(weight.shape[1], -1)


def largest_of_four(x):
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


def outputs(layers, params, x):
    for layer, (weight, bias) in zip(layers, params):
        if isinstance(layer, Conv):
            pads = [(layer.pad, layer.pad)] * 2
            x = jax.lax.conv_general_dilated(
                x, weight, (1, 1), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + bias)
            x = largest_of_four(x) if layer.pool else x
        else:
            x = x.reshape(len(x), -1) @ weight + bias
            x = jax.nn.relu(x) if layer.relu else x
    return x


def main():
    task = Task(sys.argv[1])
    layers = LAYERS[task.job]
    arrays = list(task.initial.values())
    params = [
        (jnp.asarray(to_jax(layer, weight)), jnp.asarray(bias))
        for layer, weight, bias in zip(layers, arrays[0::2], arrays[1::2])
    ]

    def loss(params, batch, _):
        chances = jax.nn.log_softmax(outputs(layers, params, batch["x"]))
        each = -jnp.take_along_axis(chances, batch["y"][:, None], axis=1)[:, 0]
        return jnp.sum(each * batch[MASK]) / jnp.sum(batch[MASK])

    def weights(params):
        for layer, (weight, bias) in zip(layers, params):
            yield to_torch(layer, weight)
            yield bias

    features = task.features
    if features.ndim == 4:  # from NCHW to NHWC
        features = np.ascontiguousarray(np.moveaxis(features, 1, -1))
    labels = task.labels.astype(np.int32)
    rows = [slice(a, b) for a, b in zip(task.offsets, task.offsets[1:])]
    clients = [StoredOrder({"x": features[r], "y": labels[r]}) for r in rows]
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.jit(jax.grad(loss)),
        fedjax.optimizers.sgd(task.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch),
    )
    fedjax.set_for_each_client_backend("jit")
    state, key = algorithm.init(params), jax.random.PRNGKey(0)
    clock = Clock(task)
    clock.begin()
    for number, cohort in enumerate(task.cohorts):
        keys = jax.random.split(jax.random.fold_in(key, number), len(cohort))
        state, _ = algorithm.apply(state, [(c, clients[c], k) for c, k in zip(cohort, keys)])
        jax.block_until_ready(state.params)
        clock.round_done(lambda: weights(state.params))


main()
