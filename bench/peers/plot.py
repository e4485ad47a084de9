"""Horizontal bars on a logarithmic axis, as SVG text. No library."""

import dataclasses
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW, HEAD, FOOT = 760, 110, 90, 22, 34, 34
COLOURS = {"macaw": "#1f5fa8", "framework": "#c77d2e", "loop": "#8a8a8a"}
WORDS = {"macaw": "Macaw", "framework": "federated framework", "loop": "loop written for the job"}


@dataclasses.dataclass(frozen=True)
class Bar:
    label: str
    value: float
    kind: str


@dataclasses.dataclass(frozen=True)
class Chart:
    title: str
    bars: list


def kind(system: str, framework: bool) -> str:
    return "macaw" if system.startswith("macaw") else "framework" if framework else "loop"


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}">{escape(words)}</text>'


def draw(chart: Chart, top: float) -> list:
    """One chart whose upper edge is at `top`; its axis runs over whole powers of ten."""
    values = [bar.value for bar in chart.bars]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    bottom = top + HEAD + ROW * len(chart.bars)
    parts = [text(8, top + 20, chart.title, 14)]
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top + HEAD}" y2="{bottom}" stroke="#dddddd"/>'
        )
        parts.append(
            text(
                at,
                bottom + 16,
                f"{10.0**power:,g}" if power < 0 else f"{10**power:,}",
                11,
                "middle",
            )
        )
    for row, bar in enumerate(chart.bars):
        y = top + HEAD + ROW * row
        end = max(x(bar.value), LEFT + 1)
        parts.append(text(LEFT - 6, y + 15, bar.label, 12, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y + 3}" width="{end - LEFT:.1f}" height="{ROW - 6}" '
            f'fill="{COLOURS[bar.kind]}"/>'
        )
        value = f"{bar.value:,.0f}" if bar.value >= 100 else f"{bar.value:.3g}"
        parts.append(text(end + 5, y + 15, value, 12))
    return parts


def svg(charts: list, caption: str) -> str:
    """All charts that have bars, one below the other, with a legend."""
    parts, top = [text(8, 18, caption, 13)], 30.0
    for place, (name, colour) in enumerate(COLOURS.items()):
        parts.append(
            f'<rect x="{330 + 130 * place}" y="8" width="12" height="12" fill="{colour}"/>'
        )
        parts.append(text(346 + 130 * place, 18, WORDS[name], 11))
    for chart in charts:
        if not chart.bars:
            continue
        parts += draw(chart, top)
        top += HEAD + ROW * len(chart.bars) + FOOT
    size = f'width="{WIDTH}" height="{top:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, ground, *parts, "</svg>"]) + "\n"
