"""Figures of runs, by matplotlib: curves with a band over seeds, and how clients fare."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import _groups
from ._groups import Group
from ._safetensors import Array
from .errors import ArgumentError, Error, PackageMissingError

_POINTS = 400  # of a curve whose runs have their values at different places
_BINS = 20
_IN_THE_AXES = 5  # lines of a legend; with more it stands beside them
_IN_A_COLUMN = 16  # lines of a legend that fit beside the axes
# What a run had used up when it had closed a round: sums of columns.
_SUMS = {"virtual_seconds": ("virtual_seconds",), "bytes": ("bytes_up", "bytes_down")}
_LETTER = 0.075  # inches of a letter of a legend, about


class Plot:
    """A figure. ``save("a.pdf")`` writes it in the format of the name: svg, pdf, png."""

    def __init__(self, figure: Any, axes: Sequence[Any]) -> None:
        #: The ``matplotlib.figure.Figure``, for what is to be changed by hand.
        self.figure = figure
        #: Its axes, one for each metric.
        self.axes = list(axes)

    def save(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Writes the figure; options are those of matplotlib's ``savefig``. Text stays text."""
        import matplotlib

        file = Path(path)
        formats = self.figure.canvas.get_supported_filetypes()
        if file.suffix.lstrip(".").lower() not in formats:
            raise ArgumentError(
                f'save: "{file.name}" names no format; it ends with .svg, .pdf, .png, … '
                f"({', '.join(sorted(formats))})",
                key="path",
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        # Letters and no outlines; the same plot has the same bytes.
        words = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "macaw"}
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(
            file.suffix.lower(), {}
        )
        with matplotlib.rc_context(words):
            self.figure.savefig(file, **{"metadata": dated, **options})
        return file

    savefig = save

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def figure(count: int, what: str, width: float = 5.0) -> tuple[Any, list[Any]]:
    """A figure with `count` axes beside each other."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PackageMissingError(
            f"{what} draws with matplotlib: pip install matplotlib"
        ) from error
    made = Figure(figsize=(width * count, 3.5), layout="constrained")
    return made, [made.add_subplot(1, count, place + 1) for place in range(count)]


def plot(
    runs: Any,
    y: str | Sequence[str] = "test_accuracy",
    x: str = "round",
    *,
    title: str | None = None,
) -> Plot:
    """Draws a metric of runs over rounds: a curve for each configuration, a band over its seeds.

    runs: a run, a sweep, the folder of either, or several of these. A curve is named by what
        differs between the configurations, such as "fedprox, mu 0.1"; a dict from names to runs
        gives names of one's own.
    y: a column of ``run.metrics``, or several, each in axes of its own.
    x: the column across; "virtual_seconds" is the virtual time since the run began, and "bytes"
        what clients have sent and fetched since then, both in a unit that fits.

    Runs that differ in their seeds alone are one curve, their mean; the band is one standard
    deviation (n - 1) to each side. It covers the rounds in which all of them have a value, so
    that no point is of fewer seeds than another; across another x, values are interpolated.
    Needs matplotlib. Errors: a column that a run does not have (ArgumentError).
    """
    metrics = [y] if isinstance(y, str) else list(y)
    groups = _groups.groups_of(runs)
    across = [(name, "x") for name in _SUMS.get(x, (x,))]
    for name, key in (*across, *((metric, "y") for metric in metrics)):
        _groups.check_column(name, groups, key)
    unit, label = _unit(groups, x)
    made, axes = figure(len(metrics), "macaw.plot()")
    for place, metric in zip(axes, metrics):
        for number, group in enumerate(groups):
            _curve(place, group, metric, x, unit, _style(number))
        place.set_xlabel(label)
        place.set_ylabel(_words(metric))
        place.grid(alpha=0.3)
        if x == "round":
            whole_ticks(place)
    _legend(made, axes, groups)
    if title:
        made.suptitle(title)
    return Plot(made, axes)


def plot_clients(
    runs: Any,
    y: str = "test_accuracy",
    kind: Literal["cdf", "histogram"] = "cdf",
    *,
    title: str | None = None,
) -> Plot:
    """Draws how clients fare at the newest evaluation: how many have at most which accuracy.

    runs: as for ``macaw.plot``. They ran with ``evaluation=dict(clients=True)``, and clients with
        test rows of their own (``data_options=dict(client_test_fraction=0.2)``). The clients of all
        seeds count together.
    y: "test_accuracy", "test_loss" or "val_accuracy" of the clients that train;
        "heldout_test_accuracy" of those that do not.
    kind: "cdf", the share of clients with at most that value; "histogram", the share in each of 20
        equal steps.
    """
    if kind not in ("cdf", "histogram"):
        raise ArgumentError(f'kind is {kind!r}; it is "cdf" or "histogram"', key="kind")
    groups = _groups.groups_of(runs)
    values = [np.sort(np.concatenate([of_clients(run, y) for run in g.runs])) for g in groups]
    made, axes = figure(1, "macaw.plot_clients()")
    low = 0.0 if "accuracy" in y else min(float(v[0]) for v in values)
    high = 1.0 if "accuracy" in y else max(float(v[-1]) for v in values)
    for number, (group, own) in enumerate(zip(groups, values)):
        label = f"{group.name} ({len(own)} clients)"
        if kind == "cdf":
            axes[0].ecdf(own, label=label, **_style(number))
        else:
            edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
            share = np.full(len(own), 1 / len(own))
            axes[0].hist(own, edges, weights=share, label=label, histtype="step", linewidth=1.5,
                         **_style(number))  # fmt: skip
    axes[0].set_xlabel(f"{_words(y)} of a client")
    axes[0].set_ylabel("share of clients" + (" with at most that" if kind == "cdf" else ""))
    axes[0].grid(alpha=0.3)
    _place_legend(made, axes)
    if title:
        made.suptitle(title)
    return Plot(made, axes)


def of_clients(run: Any, metric: str = "test_accuracy") -> Array:
    """A metric of each client at the run's newest evaluation, by the clients' numbers."""
    file = run._own_folder() / "clients_evaluated.json"
    if not file.exists():
        raise Error(
            f"{run.folder} has no {file.name}: a run writes it with evaluation=dict(clients=True), "
            "where clients have test rows (data_options=dict(client_test_fraction=0.2))"
        )
    found = json.loads(file.read_text())
    name = metric if metric.startswith(("clients_", "heldout_")) else f"clients_{metric}"
    for rows, lists in found.items():
        if rows != "round" and name.removeprefix(f"{rows}_") in lists and name.startswith(rows):
            values = np.array(lists[name.removeprefix(f"{rows}_")], float)
            finite: Array = values[np.isfinite(values)]
            return finite
    there = [
        f"{r}_{m}" for r in found if r != "round" for m in found[r] if m not in ("client", "rows")
    ]
    raise ArgumentError(
        f"y: {run.folder.name} has no {name} of clients; it has {', '.join(sorted(there))}",
        key="y",
    )


def _style(number: int) -> dict[str, str]:
    """Of a curve by its number: ten colours, and then the same ones with another line."""
    lines = ("-", "--", ":", "-.")
    return {"color": f"C{number % 10}", "linestyle": lines[number // 10 % len(lines)]}


def whole_ticks(axes: Any) -> None:
    """Ticks of rounds, of which there are no halves."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _across(columns: dict[str, Array], x: str) -> Array:
    """The places of a run's rounds across a figure."""
    if x not in _SUMS:
        return columns[x].astype(float)
    of_rounds = np.array([columns[name].astype(float) for name in _SUMS[x]])
    sums: Array = np.cumsum(of_rounds.sum(0))
    return sums


def _unit(groups: Sequence[Group], x: str) -> tuple[float, str]:
    """How much of x a unit of the axis is, and the axis' name."""
    if x not in _SUMS:
        return 1, _words(x)
    if x == "bytes":
        return 1e6, "MB up and down"
    ends = [_across(columns, x)[-1:] for group in groups for columns in group.columns]
    most = max((float(end[0]) for end in ends if len(end)), default=0)
    if most < 120:
        return 1, "virtual time (seconds)"
    return (60, "virtual time (minutes)") if most < 7200 else (3600, "virtual time (hours)")


def _curve(
    axes: Any, group: Group, metric: str, x: str, unit: float, style: dict[str, str]
) -> None:
    at, values = _together(group, metric, x)
    at = at / unit if unit != 1 else at
    mean = values.mean(0)
    (line,) = axes.plot(at, mean, label=group.name, linewidth=1.5, **style)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        axes.fill_between(
            at, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.2, linewidth=0
        )


def _together(group: Group, metric: str, x: str) -> tuple[Array, Array]:
    """Places, and the values of each run there: [runs, places]."""
    curves = []
    for columns in group.columns:
        across, value = _across(columns, x), columns[metric].astype(float)
        there = np.isfinite(across) & np.isfinite(value)
        curves.append((across[there], value[there]))
    if x == "round" or len(curves) == 1:
        common = _in_all([at for at, _ in curves])
        return common, np.array([value[np.isin(at, common)] for at, value in curves])
    begin = max((float(at.min()) for at, _ in curves if len(at)), default=0.0)
    end = min((float(at.max()) for at, _ in curves if len(at)), default=0.0)
    places = np.linspace(begin, max(begin, end), _POINTS)
    return places, np.array([np.interp(places, *_ascending(at, value)) for at, value in curves])


def _in_all(places: Sequence[Array]) -> Array:
    common = places[0]
    for other in places[1:]:
        common = np.intersect1d(common, other)
    return common


def _ascending(at: Array, value: Array) -> tuple[Array, Array]:
    order = np.argsort(at, kind="stable")
    return at[order], value[order]


def _legend(made: Any, axes: Sequence[Any], groups: Sequence[Group]) -> None:
    seeds = {len(group.runs) for group in groups}
    if len(groups) == 1 and seeds == {1}:
        return
    title = f"mean of {seeds.pop()} seeds" if len(seeds) == 1 and seeds != {1} else None
    _place_legend(made, axes, title)


def _place_legend(made: Any, axes: Sequence[Any], title: str | None = None) -> None:
    """A legend in the first axes; beside the last ones where it would cover the curves."""
    lines, names = axes[0].get_legend_handles_labels()
    look: dict[str, Any] = {"fontsize": "small", "title": title, "title_fontsize": "small"}
    if len(names) <= _IN_THE_AXES:
        axes[0].legend(lines, names, **look)
        return
    columns = -(-len(names) // _IN_A_COLUMN)
    width, height = made.get_size_inches()
    letters = max(map(len, names)) + 6  # with the line before the name
    made.set_size_inches(width + columns * letters * _LETTER, height)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0}
    axes[-1].legend(lines, names, ncol=columns, **beside, **look)


def _words(column: str) -> str:
    return column.replace("_", " ")
