"""Plots as small SVG texts: lines over a number, and bars in groups. The same values give the same text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

# Okabe and Ito's colours, told apart by everybody
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 30, 64, 52
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """From values to pixels, with the values at which there is a tick."""

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]
    log: bool = False

    def at(self, value: float) -> float:
        low, high, x = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (x - low) / ((high - low) or 1) * (self.end - self.start), 1)


def lines(
    title: str, x: str, y: str, series: Mapping[str, Points], *, log: bool = False, log_y: bool = False,
    marks: bool = True, sub: str = "",
) -> str:  # fmt: skip
    """Lines over a number; `log`: which is on a logarithmic axis, with a tick at every value there is.

    `log_y`: so are the values, which are above nought, with a tick at each power of ten.
    """
    xs = sorted({p[0] for points in series.values() for p in points})
    across = Axis(xs[0], xs[-1], LEFT, WIDTH - RIGHT, xs if log else nice_ticks(xs[0], xs[-1]), log)
    values = [p[1] for points in series.values() for p in points]
    up = _up_log(values) if log_y else _up(values)
    parts = [_text(across.at(t), HEIGHT - BOTTOM + 18, number(t), "middle") for t in across.ticks]
    for colour, points in zip(COLOURS, series.values(), strict=False):
        places = [(across.at(a), up.at(b)) for a, b in points]
        path = " ".join(f"{a:g},{b:g}" for a, b in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if marks:
            parts += [f'<circle cx="{a:g}" cy="{b:g}" r="3.2" fill="{colour}"/>' for a, b in places]
    return _whole(title, sub, x, y, up, list(series) if len(series) > 1 else [], parts)


def bars(
    title: str, y: str, groups: Mapping[str, Mapping[str, float]], *, sub: str = "", slanted: bool = False, x: str = ""
) -> str:
    """Bars side by side in groups; a name has the same colour in every group."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    up = _up(value for group in groups.values() for value in group.values())
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    width = min(room * 0.8 / len(names), 60)
    below = 70 if slanted else 0
    parts = []
    for i, (label, group) in enumerate(groups.items()):
        middle = LEFT + room * (i + 0.5)
        turn = f'transform="rotate(-32 {middle:.1f} {HEIGHT - BOTTOM + 16})"' if slanted else ""
        parts.append(_text(round(middle, 1), HEIGHT - BOTTOM + 18, label, "end" if slanted else "middle", turn))
        left = middle - width * len(group) / 2
        for j, (name, value) in enumerate(group.items()):
            top, colour = up.at(value), COLOURS[names.index(name) % len(COLOURS)]
            parts.append(
                f'<rect x="{left + j * width:.1f}" y="{top:g}" width="{width * 0.92:.1f}" '
                f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{colour}"/>'
            )
            parts.append(_text(round(left + (j + 0.46) * width, 1), top - 4, number(value), "middle", 'font-size="10"'))
    return _whole(title, sub, x, y, up, names if len(names) > 1 else [], parts, below)


def number(value: float) -> str:
    """
    >>> number(20000), number(0.25), number(1234567), number(3.0), number(0.0612)
    ('20,000', '0.25', '1.23 M', '3', '0.061')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.3g}"


def nice_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """
    >>> nice_ticks(0, 0.93), nice_ticks(1, 220)
    ([0.0, 0.2, 0.4, 0.6, 0.8], [50, 100, 150, 200])
    """
    rough = (high - low) / wanted or 1
    power = 10 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough)
    return [round(i * step, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _up(values: object) -> Axis:
    high = max(values) * 1.05 or 1  # type: ignore[call-overload]
    return Axis(0, high, HEIGHT - BOTTOM, TOP, nice_ticks(0, high))


def _up_log(values: Sequence[float]) -> Axis:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    return Axis(10.0**low, 10.0**high, HEIGHT - BOTTOM, TOP, [10.0**i for i in range(low, high + 1)], log=True)


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more and " " + more}>{escape(text)}</text>'


def _whole(
    title: str, sub: str, x: str, y: str, up: Axis, names: Sequence[str], parts: Sequence[str], below: int = 0
) -> str:
    """A plot with its title, its legend, and the grid behind it."""
    grid = []
    for tick in up.ticks:
        grid.append(f'<path d="M{LEFT} {up.at(tick):g}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        grid.append(_text(LEFT - 8, up.at(tick) + 4, number(tick), "end"))
    legend, right = [], LEFT
    for colour, name in zip(COLOURS, names, strict=False):
        legend.append(
            f'<rect x="{right}" y="42" width="12" height="12" fill="{colour}"/>' + _text(right + 17, 52, name)
        )
        right += 34 + round(6.4 * len(name))
    base = HEIGHT - BOTTOM
    labels = [
        _text(LEFT, 22, title, more='font-size="15" font-weight="bold"'),
        _text(WIDTH - RIGHT, 22, sub, "end", 'fill="#666"') if sub else "",
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT + below - 12, x, "middle") if x else "",
        _text(14, (TOP + base) / 2, y, "middle", f'transform="rotate(-90 14 {(TOP + base) / 2:g})"'),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + below}" width="{WIDTH}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#222">'
    )
    ground = f'<rect width="{WIDTH}" height="{HEIGHT + below}" fill="#fff"/>'
    axis = f'<path d="M{LEFT} {base}H{WIDTH - RIGHT}" stroke="#222"/>'
    return "\n".join([head, ground, *filter(None, labels), *legend, *grid, axis, *parts, "</svg>", ""])
