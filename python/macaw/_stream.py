"""A run whose rounds are read as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from . import _ending, _kept, _model, _progress
from ._callback import Callbacks, OpenRun
from ._json_rows import Row
from ._privacy import Promise
from ._program import Event, Simulation
from ._run import Run
from ._warn import warn


class Stream:
    """A run whose rounds are read as they come: ``for row in macaw.stream(...)``.

    A loop that ends early, by ``break`` or by an exception, stops the run; what is done is kept,
    and ``macaw.resume(stream.folder)`` goes on with it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        words: Mapping[str, str],
        model: _model.Model | None,
        progress: bool | None,
        said: Sequence[tuple[str, str]] = (),
        callbacks: Callbacks | None = None,
        promise: Promise | None = None,
    ) -> None:
        self._model = model
        self._promise = promise
        self._callbacks = callbacks or None
        self._progress = _progress.make(progress)
        self._said: list[tuple[str, str]] = []
        #: The run's folder.
        self.folder = Path()
        self._run_id: str | None = None
        self.rounds = 0
        self._over = False
        if model is not None and model.said:
            self._say("model", model.said)
        for what, text in said:
            self._say(what, text)
        self._simulation = Simulation(arguments, words, stepwise=self._callbacks is not None)
        self._events = self._simulation.events()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Row]:
        try:
            while (row := self._next()) is not None:
                yield row
        finally:
            self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the run if it goes on."""
        self._progress.close()
        self._simulation.close()
        if self._callbacks is not None and self.folder != Path():
            (self.folder / _kept.ROUND_FILE).unlink(missing_ok=True)

    @property
    def run(self) -> Run:
        """The run, as far as it is. ``run.model()`` is the newest model that it has kept."""
        run = Run(self.folder, model=self._model, said=self._said)
        run._id = self._run_id or run._id
        return run

    def finish(self) -> Run:
        """Reads the rounds that are left, and returns the run."""
        try:
            for _ in self:
                pass
        except KeyboardInterrupt:
            # The program has been told by close(), and has kept what is done.
            hint = f'macaw.resume("{self.folder}") goes on'
            raise KeyboardInterrupt(hint) from None
        return self.run

    def _begin(self) -> None:
        for event in self._events:
            if event["event"] == "begun":
                self.folder, self.rounds = Path(event["folder"]), event["rounds"]
                self._progress.begin(self.rounds)
                if self._callbacks is not None:
                    self._callbacks.save(self.folder)
                return
            self._tell(event)

    def _next(self) -> Row | None:
        for event in self._events:
            if event["event"] == "round":
                row: Row = event["row"]
                self._run_id = self._run_id or _ending.run_id(self.folder)
                if self._callbacks is not None:
                    row = self._between_rounds(row, self._callbacks)
                self._progress.row(row)
                return row
            self._tell(event)
        self._keep_promise()
        return None

    def _keep_promise(self) -> None:
        """Looks at what a run that is over has spent."""
        summary = _ending.summary(self.folder)
        if self._promise is not None and summary is not None and not self._simulation.interrupted:
            spent = summary.get("privacy", {}).get("epsilon")
            self._promise.keep(spent, None, str(self.folder))

    def _between_rounds(self, row: Row, callbacks: Callbacks) -> Row:
        """The run waits while this works, and goes on, or ends, when it is done."""
        run = OpenRun(self.folder, row, self.rounds, self._model, self._said)
        row, why = callbacks.after(run)
        if why is None or run.is_last:
            self._simulation.say(f"go {run.round + 1}")
        else:
            self._simulation.say(f"stop {why}")
        return row

    def _tell(self, event: Event) -> None:
        if event["event"] == "said":
            self._say(event["what"], event["text"])
            if event["what"] == "note" and self._progress.silent:
                warn(event["text"])
        elif event["event"] == "message":
            self._say("message", event["text"])
        elif event["event"] == "result":
            for warning in event["warnings"]:
                self._said.append(("warning", warning))
                warn(warning, RuntimeWarning)

    def _say(self, what: str, text: str) -> None:
        self._said.append((what, text))
        self._progress.say(what, text)
