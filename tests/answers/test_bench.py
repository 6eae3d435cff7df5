"""The bars of bench on a terminal have the right lengths, whatever it can show."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from gpucache.answers import bench_text as bench
from gpucache.answers.bench import BenchCase, BenchVerdict, Phase, Spread
from gpucache.answers.console import write
from tests.answers.cases import CASES, COMMAND, FAILED, PROGRAM

# Lines of characters that represent phases; "sum" is not a phase, and no line begins with it.
BAR = re.compile(r"(cold|warm|as-is|pyopencl) +([^ 0-9a-z]+) [\d.]+ m?s")


def _text(*cases: BenchCase, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    write(Console(width=width, color_system=None, file=file, highlight=False), bench.bench(cases, whole=True))
    file.flush()
    text = raw.getvalue().decode(encoding)
    assert [line for line in text.splitlines() if len(line) > width] == []
    return text


def _bars(text: str) -> dict[str, str]:
    return {match[1]: match[2] for line in text.splitlines() if (match := BAR.match(line))}


@pytest.mark.parametrize("width", [40, 120, 240])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    """No line is wider than the terminal, and every sentence of a case is printed."""
    told = "".join(_text(*CASES, width=width).split())
    for sentence in (*PROGRAM.notes, *COMMAND.notes, CASES[2].reason, CASES[2].program):
        assert "".join(sentence.split()) in told


@pytest.mark.parametrize(("verdict", "colour"), [("degraded", "\x1b[33m"), ("failed", "\x1b[31m")])
def test_doubt_and_failure_are_coloured(verdict: str, colour: str) -> None:
    """On a terminal doubt is yellow and failure red."""
    file = io.StringIO()
    console = Console(
        width=80, color_system="standard", force_terminal=True, no_color=False, highlight=False, file=file
    )
    write(console, bench.bench([replace(PROGRAM, verdict=BenchVerdict(verdict), reason="why")], whole=True))
    assert f"{colour}{verdict}: why" in file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_bars_fill_the_width_and_keep_their_proportions(width: int) -> None:
    """The longest bar reaches the edge; each other is as long as its median, to a character."""
    text = _text(PROGRAM, width=width)
    drawn = _bars(text)
    assert list(drawn) == ["cold", "warm", "as-is", "pyopencl"]
    longest = next(line for line in text.splitlines() if line.startswith("cold") and "█" in line)
    assert len(longest) == width
    assert PROGRAM.cold and PROGRAM.warm
    cells = len(drawn["cold"])
    for arm, spread in (("warm", PROGRAM.warm), ("pyopencl", PROGRAM.arms[1].spread)):
        assert abs(len(drawn[arm]) - cells * spread.median_ns / PROGRAM.cold.median_ns) <= 1


def test_bars_do_not_grow_without_end() -> None:
    """Through a pipe, where lines may be long, bars stay short enough to read."""
    lines = _text(PROGRAM, width=240).splitlines()
    assert max(len(line) for line in lines if BAR.match(line)) == bench.WIDEST


def test_phases_are_shaded_in_proportion() -> None:
    """Within a bar each phase has its share, in the order of a start."""
    cold = _bars(_text(PROGRAM))["cold"]
    assert abs(cold.count("█") / len(cold) - 1890 / 2800) < 0.03
    assert cold == "".join(sorted(cold, key="░▒█▄".index))


def test_bars_are_letters_where_blocks_cannot_be_written() -> None:
    """An ASCII terminal gets letters, and nothing fails."""
    text = _text(PROGRAM, encoding="ascii")
    assert "#####" in text and "# compile" in text


def test_a_command_has_one_shade() -> None:
    """Starts without phases still have two bars; a case that could not be started has none."""
    drawn = _bars(_text(COMMAND))
    assert set(drawn["cold"]) == set(drawn["warm"]) == {"▇"}
    assert not _bars(_text(FAILED))


def test_the_shortest_bar_is_seen() -> None:
    """A warm start of next to nothing is still a mark, and durations of zero break nothing."""
    case = replace(PROGRAM, warm=Spread(1000, 1000, 1000, 5), arms=())
    assert len(_bars(_text(case))["warm"]) == 1
    nothing, phases = Spread(0, 0, 0, 5), (Phase("a", 0, 0), Phase("b", 0, 0))
    assert "0.0 ms" in _text(replace(PROGRAM, cold=nothing, warm=nothing, arms=(), samples=(), phases=phases))
