"""Which PyTorch the LibTorch back end of this package needs, and which one is installed."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from . import _version
from .errors import MissingBackendError

BACK_END = "libmacaw_torch.so"


def check() -> None:
    """Refuses another PyTorch than the back end's, before it is given a module.

    C++ has no stable interface between versions: of 2.8 and 2.15 the back end of 2.11 misses three
    or four functions, and cannot be loaded. In the source tree it has a LibTorch of its own.
    """
    if (Path(__file__).parent / "lib" / "macaw" / BACK_END).exists() and installed() != needed():
        raise MissingBackendError(advice())


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
    return (
        f"{takes}, and {has} is installed: pip install torch=={needed()}; or, in the source tree, "
        f"./dev wheel --torch {has} makes a package for {has}; or train by a function of your own "
        "(train=fn), which takes any PyTorch"
    )
