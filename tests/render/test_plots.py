"""The picture of a bench: valid, without anything active, and true to the figures."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from gpucache.outcomes.bench import BenchCase, BenchVerdict, Ratio, Spread
from gpucache.render.figures import LOOKS, phase_order
from gpucache.render.plots import WIDTH, plot
from gpucache.render.svg import clean, fitted, lines_of

SVG = "{http://www.w3.org/2000/svg}"
MS = 10**6


def _read(cases: Sequence[BenchCase], footer: str = "") -> Element:
    return ElementTree.fromstring(plot(cases, footer).encode())


def _words(picture: Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def _parts(picture: Element) -> list[Element]:
    """The rectangles that are phases: those with a tip."""
    return [rect for rect in picture.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]


def _tip(part: Element) -> str:
    return part.findtext(f"{SVG}title") or ""


def _length(picture: Element, arm: str) -> float:
    return sum(float(part.get("width", "")) for part in _parts(picture) if _tip(part).startswith(f"{arm}, "))


def test_it_is_a_picture_with_title_and_description(cases: list[BenchCase]) -> None:
    """It is valid XML with a size, a title, and a description that tells every case in words."""
    picture = _read(cases)
    assert picture.tag == f"{SVG}svg" and picture.get("role") == "img"
    assert picture.get("viewBox") == f"0 0 {picture.get('width')} {picture.get('height')}"
    labels = {child.get("id", ""): child.text or "" for child in picture if child.get("id")}
    assert picture.get("aria-labelledby") == " ".join(labels)
    assert labels["title"]
    for part in (
        "fft.cl on opencl:pocl/cpu: faster: 21.9x",
        "warm 129 ms",
        "it pays after 2 starts",
        "failed",
    ):
        assert part in labels["desc"]


def test_nothing_in_it_is_active_or_elsewhere(cases: list[BenchCase]) -> None:
    """There are only shapes and text: no script, style, link, image or foreign content."""
    elements = {element.tag.removeprefix(SVG) for element in _read(cases).iter()}
    assert elements == {"svg", "title", "desc", "rect", "line", "path", "circle", "text"}
    assert "href" not in plot(cases) and "url(" not in plot(cases)


@pytest.mark.parametrize("name", ["<script>x</script>", 'a"b&c', "\x00\x1b[1m\ud800\ufffe\n", "]]>", "&#0;"])
def test_names_are_text(program: BenchCase, name: str) -> None:
    """Whatever a program, target or reason is called, the picture is valid and shows it as text."""
    case = replace(program, program=name, target=name, notes=(name,))
    picture = _read([case, replace(case, verdict=BenchVerdict.FAILED, reason=name, cold=None)], footer=name)
    assert clean(name) in _words(picture)
    assert not list(picture.iter(f"{SVG}script"))


def test_bars_are_as_long_as_their_medians(program: BenchCase) -> None:
    """On one axis, every arm's phases together are in proportion to its median."""
    picture = _read([program])
    assert program.cold and program.warm
    cold = _length(picture, "cold")
    assert _length(picture, "warm") / cold == pytest.approx(
        program.warm.median_ns / program.cold.median_ns, abs=0.001
    )
    peer = program.arms[1].spread.median_ns / program.cold.median_ns
    assert _length(picture, "pyopencl") / cold == pytest.approx(peer, abs=0.001)


def test_phases_are_stacked_in_their_colours(program: BenchCase) -> None:
    """Within a bar each phase begins where the last ended, in the colour that the legend explains."""
    picture = _read([program])
    cold = [part for part in _parts(picture) if _tip(part).startswith("cold, ")]
    assert [_tip(part).split(": ")[0].removeprefix("cold, ") for part in cold] == [
        "process start", "context", "compile", "kernels", "first launch",
    ]  # fmt: skip
    for one, other in pairwise(cold):
        end = float(one.get("x", "")) + float(one.get("width", ""))
        assert float(other.get("x", "")) == pytest.approx(end, abs=0.03)
    assert [part.get("fill") for part in cold] == [
        LOOKS[_tip(part).split(": ")[0].removeprefix("cold, ")].colour for part in cold
    ]
    assert {"compile", "lookup", "first launch"} <= set(_words(picture))


def test_every_start_is_drawn(program: BenchCase) -> None:
    """Each start is a dot; one that is far too long is told of with an arrow, so that bars stay long."""
    picture = _read([program])
    figures = _words(picture)
    assert "to 5.04 s" in figures and len(list(picture.iter(f"{SVG}path"))) == 1
    assert len(list(picture.iter(f"{SVG}circle"))) == len(program.samples) - 1
    assert _length(picture, "cold") > 400


def test_whiskers_reach_from_lowest_to_highest(program: BenchCase) -> None:
    """The line over a bar begins and ends where its fastest and slowest start would end."""
    spread = Spread(1000 * MS, 800 * MS, 1200 * MS, 5)
    case = replace(program, cold=spread, warm=spread, arms=(), samples=())
    picture = _read([case])
    length = _length(picture, "cold")
    whisker = next(
        line
        for line in picture.iter(f"{SVG}line")
        if line.get("y1") == line.get("y2") and line.get("stroke-width")
    )
    low, high = float(whisker.get("x1", "")), float(whisker.get("x2", ""))
    assert high - low == pytest.approx(0.4 * length, abs=0.1)


def test_ratio_interval_and_verdict_are_text(cases: list[BenchCase]) -> None:
    """Beside the bars stand medians and ratios with intervals, and above them the verdict."""
    words = _words(_read(cases))
    for part in ("2.81 s", "129 ms", "21.9x (18.2x to 23.0x)", "2.9x (2.6x to 3.0x)", "3.7x (3.5x to 3.9x)"):
        assert part in words
    assert "degraded: the noise is larger than the effect: the ratio lies between 0.74 and 1.62" in words
    assert any(
        word.endswith("(all but the process and the context): 2.78 s -> 95 ms, 29.1x (29.1x to 29.1x)")
        for word in words
    )
    assert any(word.startswith("failed: a cold start failed: <built-in>") for word in words)


@pytest.mark.parametrize(
    ("longest_ms", "unit"), [(0.02, "ms"), (0.9, "ms"), (35, "ms"), (980, "ms"), (1300, "s"), (90_000, "s")]
)
def test_the_axis_is_round(program: BenchCase, longest_ms: float, unit: str) -> None:
    """From microseconds to minutes an axis has some evenly set round ticks, in one unit."""
    ns = round(longest_ms * MS)
    spread = Spread(ns, ns, ns, 5)
    picture = _read([replace(program, cold=spread, warm=spread, arms=(), samples=(), phases=())])
    zero, *ticks = (text.text for text in picture.iter(f"{SVG}text") if text.get("text-anchor") == "middle")
    values = [float(match[1]) for tick in ticks if (match := re.fullmatch(rf"([\d.]+) {unit}", tick or ""))]
    assert zero == "0" and len(values) == len(ticks) >= 3
    assert values == pytest.approx([values[0] * (number + 1) for number in range(len(values))])
    assert f"{values[0]:e}"[0] in "125" and values[-1] <= longest_ms * (1.05 if unit == "ms" else 0.00105)


@pytest.mark.parametrize("many", [1, 3, 12])
def test_cases_do_not_overlap(cases: list[BenchCase], many: int) -> None:
    """The picture grows with its cases, and everything is inside it, in the order of the cases."""
    named = [replace(cases[number % 4], program=f"p{number}.cl") for number in range(many)]
    picture = _read(named, footer="gpucache bench")
    height = float(picture.get("height", ""))
    below = [(float(text.get("y", "")), text.text or "") for text in picture.iter(f"{SVG}text")]
    assert all(0 < y < height for y, _ in below)
    headings = [y for y, words in below if re.match(r"p\d+\.cl", words)]
    assert len(headings) == many and headings == sorted(headings)
    assert all(other - one > 40 for one, other in pairwise(headings))
    for part in _parts(picture):
        assert 0 <= float(part.get("x", "")) + float(part.get("width", "")) <= WIDTH


def test_long_names_keep_both_ends(degraded: BenchCase) -> None:
    """A heading that does not fit is shortened in the middle of its names, not at their ends."""
    heading = next(word for word in _words(_read([degraded])) if word.startswith("kernels/"))
    assert re.fullmatch(r"kernels/.+….+name\.cl on opencl:.+….+laptop-gpu", heading)


def test_short_bars_have_their_phases_in_words(program: BenchCase) -> None:
    """Beside a bar too short to be read stand its longest phases."""
    assert "load 52 ms, first launch 34 ms, process start 24 ms" in _words(_read([program]))


def test_a_picture_of_nothing(program: BenchCase) -> None:
    """Without cases, or with durations of zero, it is still a picture."""
    nothing = Spread(0, 0, 0, 5)
    case = replace(program, cold=nothing, warm=nothing, ratio=Ratio(1, 1, 1), arms=(), samples=())
    assert len(_parts(_read([case]))) > 0
    assert _parts(_read([])) == []


def test_fitted_text_has_the_width_it_should() -> None:
    """A text is shortened only where it must be, and lines are broken before the last one is shortened."""
    assert fitted("short", 10, 100) == "short"
    assert fitted("a" * 50 + "b" * 50, 10, 56) == "aaaa…bbbb"
    assert lines_of("one two three four", 10, 56, 2) == ["one two", "thre…four"]


def test_phases_are_told_as_measured(program: BenchCase) -> None:
    """Where the medians of phases do not add up to that of the whole, the bar is drawn to the whole, and
    its phases are named with their own medians."""
    assert program.cold
    longer = replace(program, cold=replace(program.cold, median_ns=2 * program.cold.median_ns), arms=())
    picture = _read([longer])
    assert "cold, compile: 1.89 s" in map(_tip, _parts(picture))
    assert program.warm
    ratio = program.warm.median_ns / program.cold.median_ns / 2
    assert _length(picture, "warm") / _length(picture, "cold") == pytest.approx(ratio, abs=0.001)


def test_phases_of_all_arms_are_in_one_order() -> None:
    """A phase that only some arms have stands where it stands among theirs."""
    assert phase_order([["a", "d"], ["a", "b", "d"], ["b", "c", "e"]]) == ["a", "b", "c", "e", "d"]
