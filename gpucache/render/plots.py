"""Bench cases as an SVG picture: cold above warm, phases stacked, every start and its spread drawn.

Owns the layout. The picture holds no script, no style sheet and no reference to anything else. Each case
has an axis of its own, as programs differ by orders of magnitude.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpucache.outcomes.bench import BenchCase, BenchVerdict
from gpucache.render.figures import (
    Bar,
    Look,
    bars,
    break_even_words,
    cached_words,
    case_phases,
    looks,
    name_of,
    ratio_words,
    remarks,
    verdict_words,
)
from gpucache.render.svg import clean, element, fitted, lines_of, nested, width_of
from gpucache.units import format_duration

WIDTH = 960
_MARGIN = 28
_INNER = WIDTH - 2 * _MARGIN
_LEFT = 118
"""Where bars begin."""
_RIGHT = 704
"""Where the axis ends; figures stand behind it."""
_BAR = 20
_STEP = 27
_SHORT = 150
"""A bar shorter than this has its longest phases written beside it."""
_FAR = 1.6
"""A start this many times as long as the longest median leaves the axis, so that bars stay readable."""
_INK, _PALE, _GRID = "#1f2328", "#59636e", "#d8dee4"
_INKS = {
    BenchVerdict.FASTER: "#1a7f37",
    BenchVerdict.NO_DIFFERENCE: _PALE,
    BenchVerdict.UNDECIDED: _PALE,
    BenchVerdict.DEGRADED: "#9a6700",
    BenchVerdict.FAILED: "#cf222e",
}
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
_TITLE = "Start-up times with nothing cached and with everything cached"
_HOW = (
    "Bars: median start, in phases. Whiskers: lowest to highest start; dots: every start. "
    "x: how many times as fast as cold, median of the pairs with its 95 % interval."
)


def plot(cases: Sequence[BenchCase], footer: str = "") -> str:
    """The picture of all cases, as an XML document; the footer names where the figures are from."""
    shown_as = looks(case_phases(cases))
    parts: list[str] = []
    top = _MARGIN + 20.0
    parts.append(_text(_TITLE, _MARGIN, top, 19, font_weight="600"))
    for line in lines_of(_HOW, 12, _INNER, 3):
        top += 18
        parts.append(_text(line, _MARGIN, top, 12, fill=_PALE))
    top = _legend(parts, shown_as, top + 12)
    for case in cases:
        top = _case(parts, case, shown_as, top + 20)
    top += 8
    for line in lines_of(clean(footer), 11, _INNER, 2) if footer else ():
        top += 18
        parts.append(_text(line, _MARGIN, top, 11, fill=_PALE))
    return _picture(parts, cases, round(top + _MARGIN))


def _picture(parts: list[str], cases: Sequence[BenchCase], height: int) -> str:
    told = " ".join(f"{name_of(case)}: {_told(case)}." for case in cases)
    body = [
        element("title", _TITLE, id="title"),
        element("desc", told or "No case was timed.", id="desc"),
        element("rect", width=WIDTH, height=height, fill="#ffffff"),
        *parts,
    ]
    picture = nested(
        "svg",
        body,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=str(WIDTH),
        height=str(height),
        role="img",
        aria_labelledby="title desc",
        font_family=_FONT,
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{picture}\n'


def _told(case: BenchCase) -> str:
    """A case in words, for readers who do not see the bars."""
    medians = (f"{bar.arm} {format_duration(bar.spread.median_ns)}" for bar in bars(case))
    return "; ".join([verdict_words(case), *medians, *remarks(case)])


def _text(text: str, x: float, y: float, size: float, fill: str = _INK, **more: str) -> str:
    return element("text", text, x=x, y=y, font_size=size, fill=fill, **more)


def _legend(parts: list[str], shown_as: Mapping[str, Look], top: float) -> float:
    """Draw what colours stand for, over as many lines as needed, and give back where the last one ends."""
    x = float(_MARGIN)
    for number, (phase, look) in enumerate(shown_as.items()):
        wide = 18 + width_of(phase, 12) + 18
        if not number or x + wide > WIDTH - _MARGIN:
            x, top = float(_MARGIN), top + (12 if not number else 20)
        parts.append(element("rect", x=x, y=top - 10, width=12, height=12, fill=look.colour))
        parts.append(_text(phase, x + 18, top, 12))
        x += wide
    return top


def _case(parts: list[str], case: BenchCase, shown_as: Mapping[str, Look], top: float) -> float:
    """Draw one case from ``top`` on, and give back where it ends."""
    parts.append(element("line", x1=_MARGIN, y1=top, x2=WIDTH - _MARGIN, y2=top, stroke=_GRID))
    top += 24
    parts.append(_text(_heading(case), _MARGIN, top, 15, font_weight="600"))
    for line in lines_of(clean(verdict_words(case)), 12.5, _INNER, 3):
        top += 19
        parts.append(_text(line, _MARGIN, top, 12.5, fill=_INKS[BenchVerdict(case.verdict)]))
    drawn = bars(case)
    if not drawn:
        return top
    for said in filter(None, (cached_words(case), break_even_words(case))):
        top += 18
        parts.append(_text(said, _MARGIN, top, 12, fill=_PALE))
    top += 14
    axis = _Axis.of(drawn)
    parts.extend(_ticks(axis, top, top + _STEP * len(drawn)))
    for bar in drawn:
        parts.extend(_arm(bar, axis, shown_as, top))
        top += _STEP
    return top + 20


def _heading(case: BenchCase) -> str:
    if not case.target:
        return fitted(clean(case.program), 16, _INNER)
    target = fitted(clean(case.target), 16, _INNER * 0.45)
    joint = f" on {target}"
    return fitted(clean(case.program), 16, _INNER - width_of(joint, 16)) + joint


@dataclass(frozen=True, slots=True)
class _Axis:
    """From 0 to ``end_ns``, drawn between two places."""

    end_ns: float
    step_ns: float

    @classmethod
    def of(cls, drawn: Sequence[Bar]) -> "_Axis":
        """An axis that holds every start, but for those that are far too long."""
        longest = max(max(bar.spread.median_ns for bar in drawn), 1)
        highest = max(longest, *(bar.spread.high_ns for bar in drawn))
        end_ns = highest if highest <= _FAR * longest else 1.25 * longest
        return cls(end_ns * 1.02, _step(end_ns))

    def x(self, duration_ns: float) -> float:
        """Where a duration ends; at the end of the axis where it is longer."""
        return _LEFT + (_RIGHT - _LEFT) * min(duration_ns / self.end_ns, 1)


def _step(end_ns: float) -> float:
    """A round distance that makes four to nine ticks."""
    power = 10.0 ** math.floor(math.log10(end_ns / 5))
    return power * next(factor for factor in (1, 2, 5, 10) if end_ns / (power * factor) < 8)


def _ticks(axis: _Axis, top: float, bottom: float) -> Iterator[str]:
    unit, unit_ns = ("s", 1e9) if axis.end_ns >= 1e9 else ("ms", 1e6)
    for number in range(int(axis.end_ns / axis.step_ns) + 1):
        value_ns = number * axis.step_ns
        x = axis.x(value_ns)
        yield element("line", x1=x, y1=top - 3, x2=x, y2=bottom + 2, stroke=_GRID)
        label = f"{round(value_ns / unit_ns, 6):g} {unit}" if number else "0"
        yield _text(label, x, bottom + 16, 11, fill=_PALE, text_anchor="middle")


def _arm(bar: Bar, axis: _Axis, shown_as: Mapping[str, Look], top: float) -> Iterator[str]:
    middle = top + _BAR / 2
    yield _text(bar.arm, _LEFT - 8, middle + 4.5, 12.5, text_anchor="end")
    start = 0.0
    for phase, duration in bar.parts:
        x, end = axis.x(start), axis.x(start + duration * bar.scale)
        tip = element("title", f"{bar.arm}, {phase}: {format_duration(duration)}")
        # A white edge keeps neighbours apart without their colours; a thin phase has no room for it.
        edge = {"stroke": "#ffffff", "stroke_width": "0.8"} if end - x > 3 else {}
        place = {"x": f"{x:.2f}", "y": f"{top:.2f}", "width": f"{end - x:.2f}", "height": str(_BAR)}
        yield nested("rect", [tip], fill=shown_as[phase].colour, **place, **edge)
        start += duration * bar.scale
    yield from _whisker(bar, axis, middle)
    yield from _longest(bar, axis, middle)
    figures = format_duration(bar.spread.median_ns)
    yield _text(figures, _RIGHT + 10, middle + 4.5, 12.5, font_weight="600")
    if bar.ratio:
        yield _text(ratio_words(bar.ratio), _RIGHT + 72, middle + 4.5, 12)


def _longest(bar: Bar, axis: _Axis, middle: float) -> Iterator[str]:
    """The longest phases in words, where the bar is so short that they cannot be told apart."""
    x = axis.x(bar.spread.high_ns) + 10
    if len(bar.parts) < 2 or axis.x(bar.spread.median_ns) - _LEFT > _SHORT:
        return
    longest = sorted(bar.parts, key=lambda part: part[1], reverse=True)[:3]
    words = ", ".join(f"{phase} {format_duration(duration)}" for phase, duration in longest)
    if x + width_of(words, 11) < _RIGHT:
        yield _text(words, x, middle + 4, 11, fill=_PALE)


def _whisker(bar: Bar, axis: _Axis, middle: float) -> Iterator[str]:
    """Lowest to highest start, with an arrow where that leaves the axis, and every start as a dot."""
    low, high = axis.x(bar.spread.low_ns), axis.x(bar.spread.high_ns)
    style: dict[str, str | float] = {"stroke": _INK, "stroke_width": 1.2}
    yield element("line", x1=low, y1=middle, x2=high, y2=middle, **style)
    yield element("line", x1=low, y1=middle - 5, x2=low, y2=middle + 5, **style)
    if bar.spread.high_ns > axis.end_ns:
        arrow = f"M{high - 6:.2f} {middle - 5:.2f}L{high:.2f} {middle:.2f}L{high - 6:.2f} {middle + 5:.2f}"
        yield element("path", d=arrow, fill="none", **style)
        note = f"to {format_duration(bar.spread.high_ns)}"
        yield _text(note, high - 10, middle - 4, 11, text_anchor="end")
    else:
        yield element("line", x1=high, y1=middle - 5, x2=high, y2=middle + 5, **style)
    for total in bar.totals_ns:
        if total <= axis.end_ns:
            dot: dict[str, str | float] = {"r": 2.2, "fill": "#ffffff", "stroke": _INK, "stroke_width": 0.7}
            yield element("circle", cx=axis.x(total), cy=middle, **dot)
