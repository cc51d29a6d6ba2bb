"""Charts as inline SVG: lines over logarithmic axes. Colours and sizes come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

#: Units of the drawing; the page scales it to its width.
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 28, 10, 40
#: Colours defined by the style sheet; more lines than that share them with another dash.
COLOURS = 8


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    :param name: what the legend calls it.
    :param points: pairs of x and y.
    """

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """One axis.

    :param title: what it shows, with the unit.
    :param low: first value.
    :param high: last value.
    :param ticks: values that are labelled, and their labels.
    :param scale: turns a value into a distance; logarithms for a logarithmic axis.
    """

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    scale: Callable[[float], float] = float

    def place(self, value: float) -> float:
        """Where a value lies between the ends, from 0 to 1."""
        low, high = self.scale(self.low), self.scale(self.high)
        return (self.scale(value) - low) / (high - low) if high > low else 0.5


def logarithmic(title: str, values: Sequence[float], label: Callable[[float], str]) -> Axis:
    """A logarithmic axis over values above 0, from a power of ten to a power of ten."""
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values) * 1.0001))
    ticks = []
    value = low
    while value <= high * 1.0001:
        ticks.append((value, label(value)))
        value *= 10
    return Axis(title, low, high, ticks, math.log10)


def linear(title: str, values: Sequence[float], label: Callable[[float], str]) -> Axis:
    """A linear axis from 0."""
    high = max(values) or 1.0
    step = 10 ** math.floor(math.log10(high / 2))
    while high / step > 6:
        step *= 2
    count = math.ceil(high / step)
    return Axis(title, 0.0, count * step, [(i * step, label(i * step)) for i in range(count + 1)])


def lines(title: str, x: Axis, y: Axis, drawn: Sequence[Line]) -> str:
    """A chart with its legend, as HTML."""
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(px: float, py: float) -> tuple[float, float]:
        return LEFT + x.place(px) * (right - LEFT), bottom - y.place(py) * (bottom - TOP)

    for value, label in y.ticks:
        _, height = at(x.low, value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{height:.1f}" x2="{right}" y2="{height:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{height + 4:.1f}">{escape(label)}</text>')
    for value, label in x.ticks:
        place, _ = at(value, y.low)
        parts.append(f'<line class="grid" x1="{place:.1f}" y1="{TOP}" x2="{place:.1f}" y2="{bottom}"/>')
        parts.append(f'<text class="tick middle" x="{place:.1f}" y="{bottom + 16}">{escape(label)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text class="axis middle" x="{middle}" y="{HEIGHT - 6}">{escape(x.title)}</text>')
    upright = f"translate(12 {(TOP + bottom) / 2}) rotate(-90)"
    parts.append(f'<text class="axis middle" transform="{upright}">{escape(y.title)}</text>')
    for number, line in enumerate(drawn):
        points = " ".join("{:.1f},{:.1f}".format(*at(px, py)) for px, py in line.points)
        parts.append(
            f'<polyline class="{_style(number)}" points="{points}"><title>{escape(line.name)}</title></polyline>'
        )
        parts.extend(
            '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="2.5"/>'.format(_style(number), *at(px, py))
            for px, py in line.points
            if len(line.points) <= 12
        )
    parts.append("</svg>")
    legend = "".join(
        f'<li><i class="{_style(i)}"></i>{escape(line.name)}</li>' for i, line in enumerate(drawn)
    )
    return f'<figure><figcaption>{escape(title)}</figcaption>{"".join(parts)}<ul class="legend">{legend}</ul></figure>'


def _style(number: int) -> str:
    """The class of a line's colour and dash."""
    return f"c{number % COLOURS}" + (" dashed" if number >= COLOURS else "")
