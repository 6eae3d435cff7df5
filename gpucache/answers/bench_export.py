"""Bench cases as a file for others: JSON with every sample, Markdown with the report of ``-v``, a plot.

Owns the format of each file suffix, and the layout of a plot, in inches. matplotlib draws cold above warm,
phases stacked, every start a dot. Each case has a separate axis, as programs differ by orders of
magnitude. Phases differ by hatches as well as by colours, so that a plot is readable in greyscale.
matplotlib is in the extra ``plot``, and takes long to import: nothing else loads it.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import catch_warnings, simplefilter

from gpucache.answers.bench import (
    WHOLE,
    ArmResult,
    BenchCase,
    BenchVerdict,
    bench,
    break_even_words,
    cached_words,
    name_of,
    ratio_words,
    remarks,
    summarise_bench,
    verdict_words,
)
from gpucache.answers.console import plain_lines
from gpucache.answers.document import SCHEMA, json_of
from gpucache.units import format_duration, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLOTS = (".png", ".svg", ".pdf")
SUFFIXES = (".json", ".md", *PLOTS)
_WIDTH, _MARGIN, _LEFT, _RIGHT = 10.0, 0.3, 1.1, 7.2
"""In inches: the picture's width, its margin, and where the bars begin and end."""
_LINE, _BAR, _AXIS = 0.19, 0.3, 0.62
"""The heights of a line of text, of a bar with its gap, and of an axis with its label."""
_LINE_CHARS = 122
_FAR = 1.6
"""A start this many times as long as the longest median leaves the axis, so that bars stay readable."""
_SHORT = 0.2
"""A bar shorter than this part of the axis has its longest phases written next to it."""
_MOST_PIXELS = 60_000
INK, PALE, GRID = "#1f2328", "#59636e", "#d8dee4"
_INKS = {BenchVerdict.FASTER: "#1a7f37", BenchVerdict.DEGRADED: "#9a6700", BenchVerdict.FAILED: "#cf222e"}
_STYLE: Any = {
    "text.parse_math": False, "font.size": 9.0, "svg.fonttype": "none", "svg.hashsalt": "gpucache",
    "hatch.linewidth": 0.5, "axes.edgecolor": PALE, "axes.linewidth": 0.6, "xtick.color": PALE,
}  # fmt: skip
_TITLE = "Start-up times with nothing cached and with everything cached"
_HOW = (
    "Bars: the median start, in phases. Whiskers: the fastest to the slowest start. Dots: every start. "
    "Each start is a fresh process."
)


class Look(NamedTuple):
    """How a phase is drawn."""

    colour: str
    hatch: str = ""


# Okabe and Ito's colours, which are distinct in every kind of colour blindness; the long phases are darker.
LOOKS = {
    "process start": Look("#C4C4C4"),
    "context": Look("#56B4E9", "///"),
    "key": Look("#F0E442"),
    "lookup": Look("#CC79A7", "xxx"),
    "compile": Look("#D55E00", "..."),
    "load": Look("#009E73", "\\\\\\\\"),
    "kernels": Look("#E69F00", "|||"),
    "first launch": Look("#0072B2"),
    WHOLE: Look("#5B7C99"),
}


def export(suffix: str, cases: Sequence[BenchCase], fingerprint: Mapping[str, object]) -> bytes:
    """The content of a file with one of ``SUFFIXES``; another suffix raises ValueError.

    The fingerprint describes the machine and its software, as JSON values. Its ``command``, a
    sentence or a list of words, is shown as the way to reproduce the figures. Raises ImportError for a plot
    without matplotlib.
    """
    match suffix.lower():
        case ".json":
            return _json(cases, fingerprint).encode()
        case ".md":
            return "\n".join(_markdown(cases, fingerprint)).encode("utf-8", "backslashreplace")
        case drawn if drawn in PLOTS:
            return plot(cases, _command(fingerprint), drawn.removeprefix("."))
    raise ValueError(f"{suffix!r} is not one of {', '.join(SUFFIXES)}")


def _json(cases: Sequence[BenchCase], fingerprint: Mapping[str, object]) -> str:
    counts: dict[str, object] = json_of(summarise_bench(cases))
    whole = {
        "schema": SCHEMA,
        "command": "bench",
        "fingerprint": dict(fingerprint),
        "outcomes": json_of(cases),
        "summary": {name: counts[name] for name in counts if "below" not in name},
    }
    return json.dumps(whole, indent=2) + "\n"


def _command(fingerprint: Mapping[str, object]) -> str:
    command = fingerprint.get("command", "")
    return shlex.join(map(str, command)) if isinstance(command, list | tuple) else str(command)


def _markdown(cases: Sequence[BenchCase], fingerprint: Mapping[str, object]) -> Iterator[str]:
    yield from ("# Start-up times: nothing cached against everything cached", "")
    yield from _fenced("\n".join(plain_lines(bench(cases, whole=True))), "text")
    if command := _command(fingerprint):
        yield from ("", "Reproduce it with:", "", *_fenced(command, "sh"))
    yield from ("", "<details>", "<summary>Environment</summary>", "")
    yield from _fenced(json.dumps(dict(fingerprint), indent=2, ensure_ascii=False), "json")
    yield from ("", "</details>", "")


def _fenced(text: str, language: str) -> tuple[str, str, str]:
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{language}", text, fence


def can_plot() -> bool:
    try:
        import matplotlib.figure  # noqa: F401 - it is tried
    except ImportError:
        return False
    return True


def plot(cases: Sequence[BenchCase], footer: str = "", form: str = "svg") -> bytes:
    """The picture of all cases as png, svg or pdf; the footer says how the figures were taken.

    Raises ImportError without matplotlib.
    """
    told = " ".join(f"{name_of(case)}: {'; '.join([verdict_words(case), *remarks(case)])}." for case in cases)
    return rendered(lambda: draw(cases, footer), form, _TITLE, _clean(told))


def rendered(draw: "Callable[[], Figure]", form: str, title: str, words: str) -> bytes:
    """A figure as png, svg or pdf, with its title and its content in words. Raises ImportError."""
    from matplotlib import rc_context

    out = BytesIO()
    about = {"Title": title, "Subject" if form == "pdf" else "Description": words}
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    with rc_context(_STYLE), catch_warnings():
        simplefilter("ignore")  # about letters that no font has
        figure = draw()
        dpi = min(150, _MOST_PIXELS / figure.get_figheight())
        figure.savefig(out, format=form, dpi=dpi, metadata={**about, **undated})
    return out.getvalue()


def draw(cases: Sequence[BenchCase], footer: str = "") -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    used = {phase for case in cases for one in case.starts for phase, _ in one.parts}
    shown_as = {phase: look for phase, look in LOOKS.items() if phase in used}
    columns = 5
    texts = [list(_lines(case)) for case in cases]
    legend = _LINE * 1.3 * -(-len(shown_as) // columns)
    end = wrap(_clean(footer), _LINE_CHARS, max_lines=2, placeholder=" …")
    heights = [_height(case, lines) for case, lines in zip(cases, texts, strict=True)]
    whole = 2 * _MARGIN + 3 * _LINE + legend + sum(heights) + _LINE * len(end)
    figure = Figure((_WIDTH, whole), facecolor="white")

    def write(text: str, down: float, **style: Any) -> None:
        figure.text(_MARGIN / _WIDTH, 1 - down / whole, text, va="top", **{"color": INK, **style})

    write(_TITLE, _MARGIN, size=13, weight="bold")
    write(_HOW, _MARGIN + 1.5 * _LINE, size=8.5, color=PALE)
    down = _MARGIN + 2.6 * _LINE
    keys = [Patch(label=phase, **_filled(look)) for phase, look in shown_as.items()]
    if keys:
        figure.legend(
            handles=keys, ncols=columns, loc="upper left", frameon=False, borderpad=0, borderaxespad=0,
            bbox_to_anchor=(_MARGIN / _WIDTH, 1 - down / whole), handleheight=1.1,
        )  # fmt: skip
    down += legend
    for case, lines, height in zip(cases, texts, heights, strict=True):
        top = down + 0.8 * _LINE
        for number, (text, style) in enumerate(lines):
            write(text, top + number * _LINE * 1.1, **style)
        if case.starts:
            bottom, tall = down + height - _AXIS, _BAR * len(case.starts)
            place = _LEFT / _WIDTH, 1 - bottom / whole, (_RIGHT - _LEFT) / _WIDTH, tall / whole
            _draw_bars(figure.add_axes(place), case.starts)
        down += height
    for number, line in enumerate(end):
        write(line, down + _LINE * (0.5 + number), size=8, color=PALE, family="monospace")
    return figure


def _clean(text: str) -> str:
    """Text on one line without controls and undecodable bytes, which XML and fonts do not have."""
    return printable(" ".join(text.split()), None)


def _lines(case: BenchCase) -> Iterator[tuple[str, dict[str, Any]]]:
    """The text above a case with its style: its name, its verdict, and the time that the cache saves."""
    name = _clean(name_of(case))
    most = 88
    yield (
        name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 :]}",
        {"weight": "bold", "size": 11},
    )
    ink = {"color": _INKS.get(BenchVerdict(case.verdict), PALE)}
    for line in wrap(_clean(verdict_words(case)), _LINE_CHARS, max_lines=3, placeholder=" …"):
        yield line, ink
    for said in filter(None, (cached_words(case), break_even_words(case))) if case.cold else ():
        yield said, {"color": PALE, "size": 8.5}


def _height(case: BenchCase, lines: Sequence[object]) -> float:
    bars = 0.2 + _BAR * len(case.starts) + _AXIS if case.starts else 0
    return _LINE * (1.2 + 1.1 * len(lines)) + bars


def _filled(look: Look) -> dict[str, Any]:
    return {"facecolor": look.colour, "hatch": look.hatch, "edgecolor": INK, "linewidth": 0.4}


def _draw_bars(axes: "Axes", drawn: Sequence[ArmResult]) -> None:
    """A bar for each arm with its figures on the right, on an axis that leaves out starts far too long."""
    longest = max(max(bar.spread.median_ns for bar in drawn), 1)
    highest = max(bar.spread.high_ns for bar in drawn)
    end_ns = 1.04 * (highest if highest <= _FAR * longest else 1.25 * longest) or 1
    unit, unit_ns = ("s", 1e9) if longest >= 1e9 else ("ms", 1e6)
    axes.set(
        xlim=(0, max(end_ns, 1) / unit_ns),
        ylim=(len(drawn) - 0.5, -0.5),
        xlabel=f"duration of a start ({unit})",
    )
    axes.set_yticks(range(len(drawn)), [bar.arm for bar in drawn])
    axes.tick_params(length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    right = axes.get_yaxis_transform()

    def beside(text: str, row: float, points: float, **style: Any) -> None:
        axes.annotate(
            text, (1, row), (points, 0), xycoords=right, textcoords="offset points", va="center", **style
        )

    for text, points in (("median", 8), ("as fast as cold (95 % interval)", 58)):
        beside(text, -0.85, points, color=PALE, size=7.5)
    for row, bar in enumerate(drawn):
        beside(format_duration(bar.spread.median_ns), row, 8, weight="bold")
        beside(ratio_words(bar.ratio) if bar.ratio else "1x", row, 58)
        start = 0.0
        for phase, duration in bar.parts:
            length = duration / unit_ns
            axes.barh(row, length, 0.68, start, **_filled(LOOKS[phase]))
            start += length
        low, high = (ns / unit_ns for ns in (bar.spread.low_ns, bar.spread.high_ns))
        axes.errorbar((low + high) / 2, row, xerr=(high - low) / 2, color=INK, capsize=3.5, linewidth=1)
        shown = [total / unit_ns for total in bar.totals_ns if total <= end_ns]
        axes.scatter(shown, [row] * len(shown), 11, "white", edgecolors=INK, linewidths=0.6, zorder=3)
        if bar.spread.high_ns > end_ns:
            axes.annotate(
                f"to {format_duration(bar.spread.high_ns)} →",
                (1, row - 0.27),
                xycoords=right,
                ha="right",
                va="center",
                size=7.5,
            )
        elif len(bar.parts) > 1 and bar.spread.median_ns < _SHORT * end_ns:
            first = sorted(bar.phases, key=lambda part: -part[1])[:3]
            words = ", ".join(f"{phase} {format_duration(duration)}" for phase, duration in first)
            axes.annotate(
                words, (high, row), (7, 0), textcoords="offset points", va="center", size=7.5, color=PALE
            )
