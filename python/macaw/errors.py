"""What can go wrong, as exceptions.

Messages are the program's own. ``key`` is the key of the configuration that the error is about,
and ``nearest`` the key or word that was probably meant; both are ``None`` where that is not known.
"""

from __future__ import annotations


class Error(Exception):
    """The base class of every exception of this package."""

    def __init__(self, message: str, *, key: str | None = None, nearest: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.nearest = nearest


class ConfigError(Error, ValueError):
    """A key, a value, or a combination of them is wrong. Nothing was run."""


class ArgumentError(ConfigError, TypeError):
    """An argument that a function or class of this package does not have."""


class NameMissingError(Error, AttributeError):
    """A name that this package does not have."""


class PackageMissingError(Error, ImportError):
    """Something that is not installed, and only this needs it."""


class DataError(Error, ValueError):
    """The data cannot be used: a shape, a type, a value. Nothing was run."""


class CacheError(Error, RuntimeError):
    """The cache, a folder of prepared data and weights, cannot be written."""


class ModelError(Error, ValueError):
    """The model cannot be used, or does not fit to what it is loaded into."""


class MissingBackendError(Error, RuntimeError):
    """The run needs the LibTorch back end, and that is not installed."""


class RunError(Error, RuntimeError):
    """A run has failed. ``folder``: what ``macaw.resume`` can go on with, or ``None``."""

    def __init__(self, message: str, *, folder: str | None = None, key: str | None = None) -> None:
        super().__init__(message, key=key)
        self.folder = folder


class TrainError(RunError):
    """The function of ``train=``, ``loss=`` or ``evaluate=`` has raised.

    client, round: whose turn it was, as numbers of the run; both ``None`` in an evaluation of the
    central rows. traceback: the last frames of the function, a line each; ``RUN/logs`` has all.
    """

    def __init__(
        self,
        message: str,
        *,
        client: int | None = None,
        round: int | None = None,
        traceback: str = "",
        folder: str | None = None,
    ) -> None:
        super().__init__(message, folder=folder)
        self.client, self.round, self.traceback = client, round, traceback
