"""Macaw's programs: where they are, and one run of ``macaw simulate`` as events.

The programs are in ``bin`` of this package. ``macaw simulate --json`` writes one JSON object a
line; cli/simulate/output.h lists the events.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from . import _libtorch
from ._names import in_python
from .errors import ConfigError, Error, MissingBackendError, RunError, TrainError

Event = dict[str, Any]

_USAGE, _MISSING_BACKEND = 2, 5  # exit codes (cli/process/exit.h)

# What the programs say where they are installed, and what adds the back end to this package.
_GPU_PACKAGE = "install the package macaw-backend-cuda"
_GPU_WHEEL = "in the source tree, `./dev wheel --gpu` makes a package that has it"


def program(name: str = "macaw") -> Path:
    """The path of a program of this package."""
    path = Path(__file__).parent / "bin" / name
    if not path.exists():
        raise Error(
            f"{path} is not there: `pip install .` and a wheel put the programs into the package, "
            "and `./dev build` makes a package that runs in place, build/python"
        )
    return path


def environment() -> dict[str, str]:
    """Of a program that this process starts: rules in Python run in the same interpreter."""
    return {"MACAW_PYTHON": sys.executable, **os.environ}


class Simulation:
    """One `macaw simulate` as a process of its own. One thread may use it.

    Its events are read by a thread, so that a slow reader does not hold up the rounds.
    """

    def __init__(
        self, arguments: Sequence[str], words: Mapping[str, str], stepwise: bool = False
    ) -> None:
        """words: what messages have in place of these texts, such as a path of the cache.
        stepwise: the run waits after each round for what say() says."""
        self._words = words
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        # In a session of its own, so that Ctrl-C reaches this process alone, which passes it on.
        # If this process is killed, that one ends when it next writes.
        self._process = subprocess.Popen(
            [program(), "simulate", "--json", *(["--step"] if stepwise else []), *arguments],
            stdin=subprocess.PIPE if stepwise else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment(),
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        )
        self._reader.start()
        self._abandoned = weakref.finalize(self, _interrupt, self._process)
        self._last_words = ""  # once it is closed
        self.go_on: str | None = None
        self.interrupted = False

    def say(self, line: str) -> None:
        """Of a stepwise run: "go ROUND", up to which round to go on, or "stop WHY"."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and events() says how
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def events(self) -> Iterator[Event]:
        """What happens, until the end. An error of the run is raised as an exception."""
        error: Event | None = None
        begun = False
        while (line := self._lines.get()) is not None:
            if not line.endswith(b"\n"):  # the program was killed in it
                continue
            event: Event = json.loads(line)
            if event["event"] == "error":
                error = event
            elif event["event"] == "end":
                self.go_on = event["go_on"] or None
            else:
                begun = begun or event["event"] == "begun"
                yield event
        code = self._process.wait()
        if error is not None:
            raise self._exception(error, begun)
        if code != 0 and not self.interrupted:
            nothing = f"macaw simulate ended with exit code {code} and said nothing"
            raise RunError(self._said_last() or nothing, folder=self.go_on)

    def close(self) -> None:
        """As Ctrl-C in a terminal: drops the open round, keeps the rest, and waits for the end.

        A second Ctrl-C ends the run at once.
        """
        if self._process.poll() is None:
            self.interrupted = True
            _interrupt(self._process)
        try:
            self._reader.join()
        except KeyboardInterrupt:
            _interrupt(self._process)
            self._reader.join()
            raise
        finally:
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):  # a line that it did not take
                    self._process.stdin.close()
            self._abandoned.detach()
            self._last_words = self._said_last()  # events() may be read to its end afterwards
            self._errors.close()

    def _said_last(self) -> str:
        if self._errors.closed:
            return self._last_words
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def _exception(self, event: Event, begun: bool) -> Error:
        # What was given here is in no file: "--set local.lr=0: " before the message would mislead.
        message, place = event["message"], event["place"]
        if place.startswith("--set "):
            message = message.removeprefix(place).removeprefix(": ")
        for text, word in self._words.items():
            message = message.replace(text, word)
        message = in_python(message)
        if (failed := _failed_turn(message, self.go_on)) is not None:
            return failed
        key, nearest = event["key"] or None, event["meant"] or None
        if _libtorch.BACK_END in message:
            return MissingBackendError(f"{_libtorch.advice()} ({message})", key=key)
        if event["code"] == _MISSING_BACKEND:
            if "LibTorch" in message:
                message = f"{_libtorch.advice()} ({message})"
            message = message.replace(_GPU_PACKAGE, _GPU_WHEEL)
            return MissingBackendError(message, key=key)
        if event["code"] == _USAGE and not begun:
            return ConfigError(message, key=key, nearest=nearest)
        return RunError(message, folder=self.go_on, key=key)


# What a worker says of an exception in a process that trains (training/process).
_TURN = re.compile(
    r"(?P<before>a batch of client \d+ was tried before the run and cannot be trained: )?"
    r"(?:client (?P<client>\d+): stage \d+: round (?P<round>\d+)|(?:client \d+: )?(?:stage \d+: )?"
    r"(?P<evaluated>client \d+ cannot be evaluated|the model cannot be evaluated)): "
    r"(?P<what>.*?)(?:; trace: (?P<trace>.*?))?(?:; look at \[model\].*?)?"
    r"(?: \((?P<log>[^()]*\.log)\))?"
)


# The same of one that did not get as far. The lines of its trace are the last one first.
_START = re.compile(
    r"workers\.command \(.*_train_program.*?\) did not start: its program ended: exit code \d+: "
    r"(?P<what>.*?)(?P<trace>(?: \| .*?)?)(?: \((?P<log>[^()]*\.log)\))?"
)


def _failed_turn(message: str, folder: str | None) -> TrainError | None:
    """The exception of a function of the caller's; None: the message is about something else."""
    if (start := _START.fullmatch(message)) is not None:
        lines = [f"  {line}" for line in start["trace"].split(" | ")[:0:-1]]
        log = [f"  (all of it: {start['log']})"] if start["log"] else []
        what = f"the process of the function did not start: {start['what']}"
        trace = "\n".join(lines)
        return TrainError("\n".join([what, *lines, *log]), traceback=trace, folder=folder)
    found = _TURN.fullmatch(message)
    if found is None:
        return None
    client, number = found["client"], found["round"]
    who = found["evaluated"] or f"train, client {client}, round {number}"
    if found["before"] and not found["evaluated"]:
        who = f"train, tried on two rows of client {client} before the run"
    lines = [f"  {line}" for line in (found["trace"] or "").split(" | ") if line]
    log = [f"  (all of it: {found['log']})"] if found["log"] else []
    return TrainError(
        "\n".join([f"{who}: {found['what']}", *lines, *log]),
        client=None if client is None else int(client),
        round=None if number is None else int(number),
        traceback="\n".join(lines),
        folder=folder,
    )


def _read(lines: IO[bytes], into: queue.SimpleQueue[bytes | None]) -> None:
    with lines:
        for line in lines:
            into.put(line)
    into.put(None)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGINT)
