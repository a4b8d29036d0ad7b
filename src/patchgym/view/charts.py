"""Charts as SVG: lines with interval bands, and bars. Colours come from the style sheet, so that dark and light hold.

No script and no style attribute, which the pages' policy forbids. Series differ by marker and dash as well as by
colour, and each chart comes with its figures as rows for a table.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from patchgym.view.figures import Spread
from patchgym.view.text import figure, share, visible

_WIDE, _HIGH = 520, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 12, 34
STYLES = 6
"""Colours, each with a marker and a dash of its own; hollow markers make twelve series that look different."""
_TICKS = 4
_SIGN = 6.2  # the width of a sign, about
_LONGEST = 14


class Series(NamedTuple):
    """One line: a value (or None) for every place on the horizontal axis."""

    name: str
    points: Sequence[Spread | None]


class Chart(NamedTuple):
    """A drawing and what it shows."""

    title: str
    svg: Markup
    legend: Sequence[tuple[str, Markup]]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def line_chart(
    title: str, places: Sequence[str], series: Sequence[Series], *, percent: bool = False, note: str = ""
) -> Chart | None:
    """Lines over named places, an interval as a band (of a single point as a bar); None where there is no value."""
    shown = [one for one in series if any(point is not None for point in one.points)]
    if not shown:
        return None
    ends = [end for one in shown for point in one.points if point is not None for end in _ends(point)]
    low, high = (0.0, max(1.0, *ends)) if percent else (min(0.0, *ends), max(ends))
    axis = _Axis(low, high, len(places))
    told = share if percent else _short
    parts = [axis.grid(told), axis.names(places)]
    for number, one in enumerate(shown):
        across = [axis.x(at, number, len(shown)) for at in range(len(places))]
        parts += [_band(axis, one, number, across), _line(axis, one, number, across)]
    rows = [
        [place, *(_told(one.points[at], told) for one in shown)]
        for at, place in enumerate(places)
        if any(one.points[at] is not None for one in shown)
    ]
    legend = [(one.name, _key(number)) for number, one in enumerate(shown)] if len(shown) > 1 else []
    return Chart(title, _svg(title, _summary(shown, places, told), parts), legend, ["", *_names(shown)], rows, note)


def bar_chart(title: str, bars: Sequence[tuple[str, int]], *, note: str = "") -> Chart | None:
    """Counts side by side, each written above its bar; None where all are 0."""
    most = max((count for _, count in bars), default=0)
    if not most:
        return None
    axis = _Axis(0.0, float(most), len(bars))
    wide = 0.7 * (_WIDE - _LEFT - _RIGHT) / len(bars)
    parts = [axis.grid(_short), axis.names([name for name, _ in bars])]
    for at, (_, count) in enumerate(bars):
        x, y = axis.x(at), axis.y(count)
        if count:
            bar = Markup('<rect class="bar" x="{}" y="{}" width="{}" height="{}"/>')
            parts.append(bar.format(_n(x - wide / 2), _n(y), _n(wide), _n(axis.y(0) - y)))
            parts.append(Markup('<text class="on" x="{}" y="{}">{}</text>').format(_n(x), _n(y - 3), count))
    told = ", ".join(f"{name}: {count}" for name, count in bars if count)
    rows = [[name, str(count)] for name, count in bars]
    return Chart(title, _svg(title, told, parts), [], ["", "attempts"], rows, note)


class _Axis:
    """Where values and places lie in the drawing."""

    def __init__(self, low: float, high: float, places: int) -> None:
        self._step = _nice((high - low) / _TICKS if high > low else max(abs(high), 1.0) / _TICKS)
        self._low = math.floor(low / self._step + 1e-9) * self._step
        self._high = max(self._low + self._step, math.ceil(high / self._step - 1e-9) * self._step)
        self._places = places

    def x(self, at: int, number: int = 0, of: int = 1) -> float:
        """Where a place is; the points of several series stand beside each other there."""
        room = (_WIDE - _LEFT - _RIGHT) / max(self._places, 1)
        aside = (number - (of - 1) / 2) * min(9.0, 0.6 * room / of)
        return _LEFT + room * (at + 0.5) + aside

    def y(self, value: float) -> float:
        return _TOP + (_HIGH - _TOP - _BOTTOM) * (1 - (value - self._low) / (self._high - self._low))

    def grid(self, told: Callable[[float], str]) -> Markup:
        count = round((self._high - self._low) / self._step)
        lines = []
        for number in range(count + 1):
            value = self._low + number * self._step
            y = _n(self.y(value))
            line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LEFT, _WIDE - _RIGHT, y, y)
            text = Markup('<text class="tick" x="{}" y="{}">{}</text>')
            lines.append(line + text.format(_LEFT - 6, _n(self.y(value) + 3.5), told(value)))
        return Markup("").join(lines)

    def names(self, places: Sequence[str]) -> Markup:
        longest = min(_LONGEST, max((len(place) for place in places), default=1))
        fits = max(1, int((_WIDE - _LEFT - _RIGHT) / (_SIGN * (longest + 1))))
        every = max(1, -(-len(places) // fits))
        room = max(4, int((_WIDE - _LEFT - _RIGHT) * every / max(len(places), 1) / _SIGN))
        text = Markup('<text class="place" x="{}" y="{}">{}</text>')
        return Markup("").join(
            text.format(_n(self.x(at)), _HIGH - 14, _clipped(place, room))
            for at, place in enumerate(places)
            if at % every == 0
        )


def _band(axis: _Axis, one: Series, number: int, across: Sequence[float]) -> Markup:
    """The intervals: a band through neighbours, and a bar at each point."""
    parts = []
    runs: list[list[tuple[int, Spread]]] = [[]]
    for at, point in enumerate(one.points):
        if point is None or point.low is None or point.high is None:
            runs.append([])
            continue
        runs[-1].append((at, point))
        ends = (_n(across[at]), _n(across[at]), _n(axis.y(point.low)), _n(axis.y(point.high)))
        parts.append(Markup('<line class="error s{}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(number % STYLES, *ends))
    for run in runs:
        if len(run) > 1:
            above = [f"{_n(across[at])},{_n(axis.y(point.high or 0.0))}" for at, point in run]
            below = [f"{_n(across[at])},{_n(axis.y(point.low or 0.0))}" for at, point in reversed(run)]
            polygon = Markup('<polygon class="band s{}" points="{}"/>')
            parts.append(polygon.format(number % STYLES, " ".join(above + below)))
    return Markup("").join(parts)


def _line(axis: _Axis, one: Series, number: int, across: Sequence[float]) -> Markup:
    known = [(at, point) for at, point in enumerate(one.points) if point is not None]
    path = " ".join(f"{_n(across[at])},{_n(axis.y(point.value))}" for at, point in known)
    line = Markup('<polyline class="line s{}" points="{}"/>').format(number % STYLES, path)
    dots = [_marker(number, across[at], axis.y(point.value)) for at, point in known] if len(known) <= 60 else []
    return line + Markup("").join(dots)


def _marker(number: int, x: float, y: float) -> Markup:
    """One of six shapes, filled or hollow."""
    style = number % STYLES
    kind = f"dot s{style}" + (" hollow" if number % (2 * STYLES) >= STYLES else "")
    if style == 0:
        return Markup('<circle class="{}" cx="{}" cy="{}" r="3.2"/>').format(kind, _n(x), _n(y))
    shapes = {
        1: "M-3,-3H3V3H-3Z",
        2: "M0,-4L4,3H-4Z",
        3: "M0,-4.2L4.2,0L0,4.2L-4.2,0Z",
        4: "M-4,-3H4L0,4Z",
        5: "M-1.3,-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4V-1.3H-1.3Z",
    }
    shape = Markup('<path class="{}" transform="translate({},{})" d="{}"/>')
    return shape.format(kind, _n(x), _n(y), shapes[style])


def _key(number: int) -> Markup:
    line = Markup('<polyline class="line s{}" points="0,6 26,6"/>').format(number % STYLES)
    return Markup('<svg class="key" viewBox="0 0 26 12" aria-hidden="true">{}{}</svg>').format(
        line, _marker(number, 13, 6)
    )


def _svg(title: str, summary: str, parts: Sequence[Markup]) -> Markup:
    frame = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return frame.format(_WIDE, _HIGH, visible(f"{title}. {summary}"), Markup("").join(parts))


def _summary(series: Sequence[Series], places: Sequence[str], told: Callable[[float], str]) -> str:
    parts = []
    for one in series:
        known = [(place, point) for place, point in zip(places, one.points, strict=True) if point is not None]
        first, last = known[0], known[-1]
        way = f" to {told(last[1].value)} at {last[0]}" if len(known) > 1 else ""
        parts.append(f"{one.name}: {told(first[1].value)} at {first[0]}{way}")
    return "; ".join(parts)


def _ends(point: Spread) -> list[float]:
    return [end for end in (point.value, point.low, point.high) if end is not None]


def _told(point: Spread | None, told: Callable[[float], str]) -> str:
    if point is None:
        return "–"
    ends = f" ({told(point.low)} to {told(point.high)})" if point.low is not None and point.high is not None else ""
    return told(point.value) + ends


def _names(series: Sequence[Series]) -> list[str]:
    return [visible(one.name) for one in series]


def _nice(step: float) -> float:
    """The next of 1, 2, 2.5 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= step * (1 - 1e-9))


def _short(value: float) -> str:
    if abs(value) >= 10000:
        return f"{value / 1000:.0f}k"
    if value == int(value):
        return str(int(value))
    return figure(value, 1 if abs(value) >= 10 else 2) if abs(value) >= 0.01 else f"{value:.1e}"


def _clipped(text: str, room: int) -> str:
    text = visible(text)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
