"""How far a run is: a bar of tqdm, or a line of our own."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from ._json_rows import Row


class Progress(Protocol):
    silent: bool  # whether nobody sees what is said

    def begin(self, rounds: int) -> None: ...
    def row(self, row: Row) -> None: ...
    def say(self, what: str, text: str) -> None: ...
    def close(self) -> None: ...


def make(wanted: bool | None) -> Progress:
    """wanted: None shows it to people only, in a terminal or a notebook."""
    if wanted is None:
        wanted = sys.stderr.isatty() or in_notebook()
    if not wanted:
        return _Nothing()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line()
    return _Bar(tqdm)


def _numbers(row: Row) -> dict[str, str]:
    names = {"train_loss": "loss", "test_accuracy": "accuracy"}
    return {short: f"{row[name]:.4f}" for name, short in names.items() if name in row}


class _Nothing:
    silent = True

    def begin(self, rounds: int) -> None:
        pass

    def row(self, row: Row) -> None:
        pass

    def say(self, what: str, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class _Bar:
    silent = False

    def __init__(self, tqdm: Any) -> None:
        self._tqdm, self._bar = tqdm, None
        self._shown: dict[str, str] = {}

    def begin(self, rounds: int) -> None:
        self._bar = self._tqdm(total=rounds, unit="round", dynamic_ncols=True)

    def row(self, row: Row) -> None:
        bar: Any = self._bar
        self._shown.update(_numbers(row))  # not every round is evaluated
        bar.set_postfix(self._shown, refresh=False)
        bar.update(row["round"] - bar.n)

    def say(self, what: str, text: str) -> None:
        self._tqdm.write(f"{what:<10} {text}", file=sys.stderr)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Line:
    silent = False

    def __init__(self) -> None:
        self._rounds = 0
        self._drawn = False
        self._shown: dict[str, str] = {}

    def begin(self, rounds: int) -> None:
        self._rounds = rounds

    def row(self, row: Row) -> None:
        self._shown.update(_numbers(row))
        numbers = "".join(f"  {name} {value}" for name, value in self._shown.items())
        sys.stderr.write(f"\rround {row['round']}/{self._rounds}{numbers}\x1b[K")
        sys.stderr.flush()
        self._drawn = True

    def say(self, what: str, text: str) -> None:
        self.close()
        print(f"{what:<10} {text}", file=sys.stderr)

    def close(self) -> None:
        if self._drawn:
            sys.stderr.write("\n")
        self._drawn = False


def in_notebook() -> bool:
    return "ipykernel" in sys.modules
