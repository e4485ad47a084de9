"""Federated learning: simulate thousands to millions of clients on one machine.

    import macaw
    run = macaw.simulate(model=net, data=(x, y), partition=macaw.dirichlet(0.3, clients=1000),
                         algorithm=macaw.FedProx(mu=0.1), cohort=100, rounds=200,
                         local=dict(epochs=1, batch_size=20, lr=0.1))
    net.load_state_dict(run.model())

The work is done by Macaw's own programs, which are part of the package.
"""

from typing import TYPE_CHECKING

from . import _names, algorithms, devices, errors, partitions, rules
from ._callback import OpenRun
from ._context import Rows, TrainContext
from ._data import prepare
from ._figures import Plot, plot, plot_clients
from ._latex import to_latex
from ._model import model_table
from ._normalise import Normalisation
from ._patch import patch, program, ranks_store
from ._run import Run
from ._simulate import resume, simulate, stream
from ._spaces import choice, grid, integers, log_uniform, uniform
from ._stream import Stream
from ._sweep import sweep
from ._sweep_result import SweepResult
from ._version import version as __version__
from .algorithms import *  # noqa: F403 (a class for each algorithm of the program)
from .errors import (
    ArgumentError,
    CacheError,
    ConfigError,
    DataError,
    Error,
    MissingBackendError,
    ModelError,
    RunError,
    TrainError,
)
from .partitions import (
    Partition,
    dirichlet,
    from_file,
    histogram,
    iid,
    k_classes,
    lognormal,
    natural,
    power_law,
    shards,
    sorted_blocks,
)

__all__ = [
    "ArgumentError",
    "CacheError",
    "ConfigError",
    "DataError",
    "Error",
    "MissingBackendError",
    "ModelError",
    "Normalisation",
    "OpenRun",
    "Partition",
    "Plot",
    "Rows",
    "Run",
    "RunError",
    "Stream",
    "SweepResult",
    "TrainContext",
    "TrainError",
    "__version__",
    "algorithms",
    "choice",
    "devices",
    "dirichlet",
    "errors",
    "from_file",
    "grid",
    "histogram",
    "iid",
    "integers",
    "k_classes",
    "log_uniform",
    "lognormal",
    "model_table",
    "natural",
    "partitions",
    "patch",
    "plot",
    "plot_clients",
    "power_law",
    "prepare",
    "program",
    "ranks_store",
    "resume",
    "rules",
    "shards",
    "simulate",
    "sorted_blocks",
    "stream",
    "sweep",
    "to_latex",
    "uniform",
    *algorithms.__all__,
]


if not TYPE_CHECKING:  # type checkers know the names themselves

    def __getattr__(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        meant = _names.unknown_name(name, __all__)
        question = f"; did you mean macaw.{meant}?" if meant else ""
        raise errors.NameMissingError(f"macaw has no {name}{question}", key=name, nearest=meant)
