"""The file of a sweep: spaces of objects as tables, and the text that `macaw sweep` reads."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._paths import Path_, path_of
from ._settings import to_toml, toml_of
from ._spaces import Space
from .algorithms import Algorithm
from .errors import ConfigError


class Table(dict[str, Any]):
    """Keys that are set together."""


def tables_of(
    name: str, space: Space, add: Callable[..., None], cache: Path, drawn: bool
) -> dict[str, Space]:
    """A space of objects as one of tables, whose own spaces are values of theirs or keys beside.

    Of ``grid([FedAvg(), FedProx(mu=grid([0.1, 1]))])`` there are three tables. A range, such as
    ``FedProx(mu=log_uniform(0.01, 1))``, becomes the key ``algorithm.fedprox.mu``, which
    configurations of other algorithms leave out.
    """
    tables: list[Table] = []
    beside: dict[str, Space] = {}
    for item in space.values:
        table = _table(name, item, add, cache)
        ranges = {k: v for k, v in table.items() if isinstance(v, Space) and not _listed(v, drawn)}
        for key, value in ranges.items():
            _refuse_twice(name, key, item, space)
            # In quotation marks: TOML has no room below a key that has values.
            beside[json.dumps(f"{name}.{key}")] = value
            del table[key]
        tables += _each(table)
    _leave_out_defaults(tables, space.values)
    return {name: Space(space.kind, tuple(tables)), **beside}


def _leave_out_defaults(tables: Sequence[Table], items: Sequence[Any]) -> None:
    """Drops parameters that are at their default wherever an algorithm has them."""
    for kind in {type(item) for item in items if isinstance(item, Algorithm)}:
        standard = kind()
        for parameter, value in standard.parameters().items():
            key = f"{standard.name}.{parameter}"
            own = [table for table in tables if key in table]
            if all(table[key] == value for table in own):
                for table in own:
                    del table[key]


def plugins_of(varied: Mapping[str, Space]) -> list[str]:
    """Takes the files of rules out of the tables of algorithms: they are a key of their own."""
    tables = [table for space in varied.values() for table in space.values if type(table) is Table]
    return [file for table in tables for file in table.pop("plugins", ())]


def _listed(space: Space, drawn: bool) -> bool:
    """Whether each value of the space is tried."""
    return space.kind == "grid" or (space.kind == "choice" and not drawn)


def _refuse_twice(name: str, key: str, item: Any, space: Space) -> None:
    """A key beside the tables is for all tables that have it, so there may be one of them."""
    alike = [other for other in space.values if type(other) is type(item)]
    if len(alike) > 1 or name == "partition":
        raise ConfigError(
            f"{name}: {type(item).__name__} has a range for {key} inside a grid of several: give "
            "the values, macaw.grid([…]), or a sweep of its own",
            key=f"{name}.{key}",
        )


def _each(table: Table) -> list[Table]:
    """A table for each combination of the values of its spaces."""
    spaces = [key for key, value in table.items() if isinstance(value, Space)]
    return [
        Table({**table, **dict(zip(spaces, values))})
        for values in itertools.product(*(table[key].values for key in spaces))
    ]


def _table(name: str, item: Any, add: Callable[..., None], cache: Path) -> Table:
    settings: dict[str, Any] = {}
    add(settings, item, cache)
    return Table({key.removeprefix(f"{name}."): value for key, value in settings.items()})


def combinations(varied: Mapping[str, Space]) -> list[dict[str, Any]]:
    """The keys of each combination of whole tables that vary."""
    tables = [
        [{f"{name}.{key}": value for key, value in table.items()} for table in space.values]
        for name, space in varied.items()
        if _is_of_tables(space)
    ]
    return [
        {key: value for table in each for key, value in table.items()}
        for each in itertools.product(*tables)
    ]


def _is_of_tables(space: Space) -> bool:
    return all(isinstance(item, Table) for item in space.values)


def text_of(
    top: Mapping[str, Any], settings: Mapping[str, Any], drawn: bool, config: Path_ | None
) -> str:
    """The sweep's own keys, those of its runs, and the values to try.

    top: the sweep's own; None: not given. settings: of the runs; a Space is to be tried. drawn:
    whether combinations are drawn, and not all are tried. config: a file with further keys.
    """
    given = {key: value for key, value in top.items() if value is not None}
    head = "".join(f"{key} = {toml_of(key, value)}\n" for key, value in given.items())
    keys: dict[str, str] = {}
    base: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Space):
            kind = "grid" if value.kind == "choice" and not drawn else value.kind
            keys[key] = toml_of(key, value.values, functools.partial(_space, kind))
        else:
            base[key] = toml_of(key, value)
    if config is not None:
        # A base that is a file takes no further keys; one with a single value does not vary.
        keys.update({key: f"[{value}]" for key, value in base.items()})
        base = {}
    lines = [f"base = {to_toml(path_of(config, 'config'))}"] if config is not None else []
    lines += ["", "[keys]", *(f"{key} = {value}" for key, value in keys.items())]
    if config is None:
        lines += ["", "[base]", *(f"{key} = {value}" for key, value in base.items())]
    return head + "\n".join(lines) + "\n"


def _space(kind: str, of: Sequence[Any]) -> str:
    values = f"[{', '.join(map(_value, of))}]"
    return values if kind == "grid" else f"{{{kind} = {values}}}"


def _value(value: Any) -> str:
    if isinstance(value, Table):
        return f"{{{', '.join(f'{key} = {to_toml(inner)}' for key, inner in value.items())}}}"
    return to_toml(value)
