#!/usr/bin/env python3
"""Points on a logarithmic axis, as SVG text. No library.

usage: plot.py TABLE.md PICTURE.svg     draws the first report of a table that report.py wrote

Points and not bars: on a logarithmic axis a bar has no honest length, for there is no zero to begin at.
"""

import dataclasses
import math
import pathlib
import re
import sys
from xml.sax.saxutils import escape

from roster import SYSTEMS

WIDTH, LEFT, RIGHT, ROW, HEAD, FOOT = 760, 110, 90, 22, 34, 34
CAPTION, LEGEND = 30.0, 24.0  # heights
COLOURS = {"macaw": "#1f5fa8", "framework": "#c77d2e", "loop": "#6b6b6b"}
WORDS = {"macaw": "Macaw", "framework": "federated framework", "loop": "loop written for the job"}
LETTER = 6.2  # width of a letter of size 11, a little more than it is


@dataclasses.dataclass(frozen=True)
class Point:
    label: str
    value: float
    kind: str


@dataclasses.dataclass(frozen=True)
class Chart:
    title: str
    points: list


def kind(system: str, framework: bool) -> str:
    return "macaw" if system.startswith("macaw") else "framework" if framework else "loop"


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}">{escape(words)}</text>'


def mark(x: float, y: float, what: str) -> str:
    """Told apart by shape and colour: a disc, a square, a triangle."""
    colour = f'fill="{COLOURS[what]}"'
    if what == "macaw":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" {colour}/>'
    if what == "framework":
        return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {colour}/>'
    corners = f"{x - 6:.1f},{y + 5:.1f} {x + 6:.1f},{y + 5:.1f} {x:.1f},{y - 6:.1f}"
    return f'<polygon points="{corners}" {colour}/>'


def draw(chart: Chart, top: float) -> list:
    """One chart whose upper edge is at `top`; its axis runs over whole powers of ten."""
    values = [point.value for point in chart.points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    bottom = top + HEAD + ROW * len(chart.points)
    parts = [text(8, top + 20, chart.title, 14)]
    for power in range(low, high + 1):
        at, number = x(10.0**power), f"{10.0**power:,g}" if power < 0 else f"{10**power:,}"
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top + HEAD}" y2="{bottom}" stroke="#dddddd"/>'
        )
        parts.append(text(at, bottom + 16, number, 11, "middle"))
    for row, point in enumerate(chart.points):
        y, at = top + HEAD + ROW * (row + 0.5), x(point.value)
        value = f"{point.value:,.0f}" if point.value >= 100 else f"{point.value:.3g}"
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="#bbbbbb" stroke-dasharray="1 4"/>'
        )
        parts.append(text(LEFT - 6, y + 4, point.label, 12, "end"))
        parts.append(mark(at, y, point.kind))
        parts.append(text(at + 11, y + 4, value, 12))
    return parts


def legend(top: float) -> list:
    """The marks in a line of their own, each word behind the one before."""
    parts, x = [], 14.0
    for what, words in WORDS.items():
        parts += [mark(x, top + 10, what), text(x + 11, top + 14, words, 11)]
        x += 11 + LETTER * len(words) + 26
    return parts


def svg(charts: list, caption: str) -> str:
    """All charts that have points, one below the other, with a legend."""
    parts, top = [text(8, 18, caption, 13), *legend(CAPTION)], CAPTION + LEGEND
    for chart in charts:
        if not chart.points:
            continue
        parts += draw(chart, top)
        top += HEAD + ROW * len(chart.points) + FOOT
    size = f'width="{WIDTH}" height="{top:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"


def caption(date: str) -> str:
    return f"local steps per second (logarithmic axis), {date}"


def charts_of(markdown: str) -> list:
    """The charts of a report, from its tables."""
    charts = []
    for line in markdown.splitlines():
        job = re.match(r"\*\*(\w+)\*\*: (.*?)\. Macaw: ", line)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if job:
            charts.append(Chart(f"{job[1]}: {job[2]}", []))
        elif charts and len(cells) > 2 and cells[0] in SYSTEMS:
            system, steps = SYSTEMS[cells[0]], float(cells[2].replace(",", ""))
            charts[-1].points.append(Point(system.name, steps, kind(system.name, system.framework)))
    return charts


if __name__ == "__main__":
    REPORT = pathlib.Path(sys.argv[1]).read_text().split("\n---\n")[0]
    pathlib.Path(sys.argv[2]).write_text(svg(charts_of(REPORT), caption(REPORT.split(",")[0])))
