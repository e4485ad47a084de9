"""Which PyTorch the LibTorch back end of this package needs, and which one is installed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from . import _version
from .errors import Error, MissingBackendError

# What LibTorch says of a script that it does not read.
_NOT_READ = ("does not read it as a scripted module", "Unknown builtin op")
BACK_END = "libmacaw_torch.so"


def check() -> None:
    """Refuses another PyTorch than the back end's, before it is given a module.

    C++ has no stable interface between versions: of 2.8 and 2.15 the back end of 2.11 misses three
    or four functions, and cannot be loaded. In the source tree it has a LibTorch of its own.
    """
    if (Path(__file__).parent / "lib" / "macaw" / BACK_END).exists() and installed() != needed():
        raise MissingBackendError(advice())


def explained(error: Error, script: bool) -> Error:
    """The error; of a script that another LibTorch has read, with both versions and the ways out.

    script: whether the run's model is a script that the installed PyTorch has made.
    """
    made, reads = installed(), needed()
    about = any(words in str(error) for words in _NOT_READ)
    if not script or not about or made is None or not reads or made == reads:
        return error
    error.args = (
        f"{error} (PyTorch {made} has made the script of this module, and LibTorch {reads} reads "
        f"it: one version may write what another does not read. {_ways_out(made)})",
    )
    return error


def _ways_out(made: str) -> str:
    return (
        f"pip install torch=={needed()}; or, in the source tree, ./dev wheel --torch {made} makes "
        f"a package for {made}; or train by a function of your own (train=fn), which takes any "
        "PyTorch"
    )


def needed() -> str:
    """The version that the back end is built with; empty: the package has no such back end."""
    return _version.torch


def installed() -> str | None:
    try:
        return metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def advice() -> str:
    """What is missing, and the commands that add it."""
    if not needed():
        return (
            "this package has no LibTorch back end: `./dev setup torch && ./dev wheel` makes one "
            "that has it"
        )
    has, takes = installed(), f"the LibTorch back end of this package needs PyTorch {needed()}"
    if has is None:
        return f"{takes}, which is not installed: pip install torch=={needed()}"
    if has == needed():
        return f"{takes}, which is installed and does not load"
    return f"{takes}, and {has} is installed: {_ways_out(has)}"
