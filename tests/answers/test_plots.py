"""The plots of bench and inspect: valid and inactive files that show the measured values.

matplotlib is imported by tests alone: an import before the session has its own home writes into the user's.
"""

from dataclasses import replace
from io import BytesIO
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest

from gpucache.answers import inspect_plot
from gpucache.answers.bench import BenchVerdict, Ratio, Spread
from gpucache.answers.bench_export import LOOKS, PLOTS, draw, plot
from gpucache.answers.entries import CacheEntry
from tests.answers.cases import CASES, MS, PROGRAM, compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = [suffix.removeprefix(".") for suffix in PLOTS]
BEGINS = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF-"}


def _texts(figure: "Figure") -> list[str]:
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def _bars(axes: "Axes") -> dict[str, list[Any]]:
    """The parts of each bar from left to right, by its arm."""
    arms = [label.get_text() for label in axes.get_yticklabels()]
    found: dict[str, list[Any]] = {arm: [] for arm in arms}
    parts: list[Any] = list(axes.patches)
    for part in parts:
        found[arms[round(part.get_y() + part.get_height() / 2)]].append(part)
    return found


def _length(axes: "Axes", arm: str) -> float:
    return float(sum(part.get_width() for part in _bars(axes)[arm]))


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_the_same_each_time(form: str) -> None:
    """A file has the form of its ending, and no date."""
    once = plot(CASES, "gpucache bench", form)
    assert once.startswith(BEGINS[form]) and once == plot(CASES, "gpucache bench", form)


def test_an_svg_says_in_words_what_it_shows() -> None:
    """It has text as text, a description, and nothing active or external."""
    content = plot(CASES)
    picture = ElementTree.fromstring(content)
    whole = " ".join(picture.itertext())
    for part in ("fft.cl on opencl:pocl/cpu: faster: 21.9x", "it pays after 2 starts", "129 ms", "pyopencl"):
        assert part in whole
    tags = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert not tags & {"script", "image", "foreignObject", "a"}
    assert b'href="http' not in content


@pytest.mark.parametrize("form", FORMATS)
def test_names_are_text(form: str) -> None:
    """Whatever a program, target or reason is called, a file is made, and an SVG is valid."""
    name = '<script>x</script> a"b&c $x$ \\frac ]]> &#0; 内核 \x00\x1b[1m\ud800\ufffe\n'
    case = replace(PROGRAM, program=name, target=name, notes=(name,))
    content = plot([case, replace(case, verdict=BenchVerdict.FAILED, reason=name, starts=())], name, form)
    if form == "svg":
        assert not list(ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}script"))


def test_bars_are_as_long_as_their_medians() -> None:
    """Every bar is as long as the median of its arm, on an axis that names its unit."""
    (axes,) = draw([PROGRAM]).axes
    assert axes.get_xlabel() == "duration of a start (s)"
    for one in PROGRAM.starts:
        assert _length(axes, one.arm) == pytest.approx(one.spread.median_ns / 1e9)
    cold, warm, *_ = PROGRAM.starts
    longer = replace(cold, spread=replace(cold.spread, median_ns=2 * cold.spread.median_ns))
    (axes,) = draw([replace(PROGRAM, starts=(longer, warm))]).axes
    assert _length(axes, "cold") == pytest.approx(2 * cold.spread.median_ns / 1e9)


def test_phases_are_stacked_and_differ_without_colour() -> None:
    """Each phase begins where the last ended, and the legend shows the colour and hatch of every one."""
    from matplotlib.colors import to_hex

    figure = draw([PROGRAM])
    parts = _bars(figure.axes[0])["cold"]
    phases = ["process start", "context", "compile", "kernels", "first launch"]
    for one, other in pairwise(parts):
        assert other.get_x() == pytest.approx(one.get_x() + one.get_width())
    assert [to_hex(part.get_facecolor()) for part in parts] == [LOOKS[one].colour.lower() for one in phases]
    assert [part.get_hatch() or "" for part in parts] == [LOOKS[one].hatch for one in phases]
    assert {*phases, "load", "lookup"} <= {text.get_text() for text in figure.legends[0].get_texts()}


def test_every_start_is_drawn() -> None:
    """Each start is a dot; one that is far too long is written at the end of the axis."""
    from matplotlib.collections import PathCollection

    figure = draw([PROGRAM])
    (axes,) = figure.axes
    drawn = (one for one in axes.collections if isinstance(one, PathCollection))
    dots = sum(np.shape(one.get_offsets())[0] for one in drawn)
    assert dots == len(PROGRAM.samples) - 1
    assert "to 5.04 s →" in _texts(figure)
    assert _length(axes, "cold") > 0.7 * axes.get_xlim()[1]


def test_figures_are_text() -> None:
    """Medians, ratios, verdicts, the phases of a short bar and the command are written."""
    assert {
        *("2.81 s", "129 ms", "21.9x (18.2x to 23.0x)", "2.9x (2.6x to 3.0x)", "3.7x (3.5x to 3.9x)"),
        "degraded: the noise is larger than the effect: the ratio is between 0.74 and 1.62",
        "warming cost 5.20 s; each start saves 2.67 s: it pays after 2 starts",
        "load 52 ms, first launch 34 ms, process start 24 ms",
        "gpucache bench x.cl",
    } <= {*_texts(draw(CASES, "gpucache bench x.cl"))}


@pytest.mark.parametrize("many", [0, 12])
def test_nothing_overlaps_or_is_cut(many: int) -> None:
    """However many cases there are, no text covers another, and everything is inside the picture."""
    from matplotlib.text import Text

    named = [replace(CASES[number % 4], program=f"p{number} {'long ' * 40}.cl") for number in range(many)]
    figure = draw(named, "gpucache bench " + "--option " * 40)
    figure.savefig(BytesIO(), format="png")
    shown: list[Any] = [text for text in figure.findobj(Text) if text.get_text().strip()]
    boxes = [text.get_window_extent() for text in shown if text.get_visible()]
    assert all(figure.bbox.contains(*box.min) and figure.bbox.contains(*box.max) for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].padded(-1).overlaps(pair[1])]


@pytest.mark.parametrize("longest_ms", [0, 0.02, 0.9, 35, 980, 1300, 90_000])
def test_an_axis_fits_any_duration(longest_ms: float) -> None:
    """From nothing to minutes there is an axis from zero in milliseconds or seconds."""
    ns = round(longest_ms * MS)
    spread = Spread(ns, ns, ns, 5)
    (axes,) = draw([replace(PROGRAM, starts=compared(Ratio(1, 1, 1), spread, spread))]).axes
    assert axes.get_xlabel() == f"duration of a start ({'s' if longest_ms >= 1000 else 'ms'})"
    assert axes.get_xlim()[0] == 0 < axes.get_xlim()[1]


DAY_NS = 86_400 * 10**9
NOW_NS = 20_000 * DAY_NS


def test_a_cache_grows_by_day() -> None:
    """Sizes add up, counts do not; old entries and those in the future have no day of their own."""
    entry = CacheEntry("gpucache", "k", "/k", 100, 0, 0)
    entries = [entry._replace(created_ns=NOW_NS - days * DAY_NS) for days in (-1, 0, 15, 15, 9000)]
    ran = {"kind": "process", "hits": 2, "misses": 1}
    days = (0, 0, 3, 9000)
    records = [{**ran, "when_ns": NOW_NS - day * DAY_NS} for day in days]
    found = inspect_plot.by_day(entries, [*records, {**ran, "when_ns": "soon"}, {"kind": "miss"}], NOW_NS)
    assert len(found.days) == 366 and found.size_bytes[0] == 100
    assert (found.size_bytes[-16:-14], found.size_bytes[-1]) == ([300, 300], 500)
    assert (found.hits[-4:], sum(found.misses)) == ([2, 0, 0, 4], 3)


@pytest.mark.parametrize(("form", "many"), [("svg", 0), ("svg", 3), ("png", 3), ("pdf", 3)])
def test_a_cache_is_drawn(form: str, many: int) -> None:
    """An empty cache is drawn too, in the requested form."""
    entries = [CacheEntry("gpucache", "k", "/k", 1 << 20, NOW_NS - one * DAY_NS, 0) for one in range(many)]
    content = inspect_plot.plot(entries, [], NOW_NS, form)
    assert content.startswith(BEGINS[form])
    if form == "svg":
        told = " ".join(ElementTree.fromstring(content).itertext())
        assert f"Growth: {'3.0 MiB' if many else '0 B'} of entries" in told
