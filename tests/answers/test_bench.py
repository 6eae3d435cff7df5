"""Bench and warming by a command on a terminal: nothing is lost, and bars have the lengths they should."""

import io
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from rich.console import Console

from gpucache.answers import bench_text as bench
from gpucache.answers.bench import (
    BenchCase,
    BenchVerdict,
    BreakEven,
    Phase,
    Ratio,
    SettleRun,
    SettleSummary,
    Spread,
)
from gpucache.answers.console import write
from gpucache.answers.grid import Block
from gpucache.answers.growth import Growth

MS, SECOND = 10**6, 10**9
POCL, SYCL = Growth("pocl", 12, 1_258_291, ("KA/f", "LB/g")), Growth("sycl", 1, 40_960, ("x.bin",))
# Lines of characters that stand for phases; "sum" is no phase and no line begins with it.
BAR = re.compile(r"(cold|warm|as-is|pyopencl) +([^ 0-9a-z]+) [\d.]+ m?s")


def _text(blocks: Iterable[Block], width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    console = Console(width=width, color_system=None, file=file, highlight=False)
    write(console, blocks)
    file.flush()
    text = raw.getvalue().decode(encoding)
    assert [line for line in text.splitlines() if len(line) > width] == []
    return text


def _joined(text: str) -> str:
    return " ".join(text.split())


def _bars(text: str) -> dict[str, str]:
    return {match[1]: match[2] for line in text.splitlines() if (match := BAR.match(line))}


def test_the_overview_has_each_case_with_its_interval(cases: list[BenchCase]) -> None:
    """With room, a case is one line: its names, medians, ratio with interval, and verdict."""
    table, *_ = bench.bench(cases)
    lines = _text([table], width=220).splitlines()
    headings = ["program", "target", "cold", "warm", "ratio", "surely within", "cached part", "its ratio"]
    assert re.split("  +", lines[0].rstrip()) == [*headings, "verdict"]
    assert re.fullmatch(
        r"fft\.cl +opencl:pocl/cpu +2\.81 s +129 ms +21\.9x +18\.2x to 23\.0x +2\.78 s -> 95 ms"
        r" +29\.1x +faster *",
        lines[2],
    )
    assert re.match(r"python -m solver --grid 512 .* faster", lines[5])
    assert re.search(r" - +- +- +failed", lines[-1])


def test_few_pairs_have_no_interval(program: BenchCase) -> None:
    """What the ratio surely lies within cannot be told of a case that decides nothing."""
    assert program.cold is not None
    case = replace(program, verdict=BenchVerdict.UNDECIDED, cold=replace(program.cold, runs=4))
    row = _text(bench.bench([replace(case, arms=())]), 200).splitlines()[2]
    assert re.search(r" 21\.9x +2\.78 s -> 95 ms +29\.1x +undecided *$", row)


def test_a_peer_has_a_row_of_its_own_below_its_program(program: BenchCase) -> None:
    """What was timed beside the cold and the warm starts is in the table, with its own ratio."""
    lines = _text(bench.bench([program]), 120).splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["fft.cl", "as-is", "pyopencl"]
    assert re.match(r"  pyopencl +982 ms +2\.9x +2\.6x to 3\.0x", lines[5])


def test_without_v_a_case_is_its_row_and_what_speaks_against_it(cases: list[BenchCase]) -> None:
    """The table comes to 80 columns, phases and spreads wait for -v, and reasons and caveats do not."""
    text = _text(bench.bench(cases))
    said = _joined(text)
    assert "phase " not in text and "highest" not in text and not _bars(text)
    assert "pyopencl: its binary lacks the launches" in said
    assert "degraded: the noise is larger than the effect: the ratio is between 0.74 and 1.62" in said
    assert "failed: a cold start failed" in said
    assert "the first start of all" not in said
    assert text.endswith("\n-v shows the phases, the spread and more of each\n")


def test_a_caveat_of_several_cases_is_said_once(program: BenchCase, command: BenchCase) -> None:
    """What holds for all cases names none of them, and what holds for some names those."""
    plain = replace(program, arms=())
    every = [replace(plain, program=name, caveats=("it was not loaded",)) for name in ("a.cl", "b.cl")]
    assert "\nit was not loaded\n" in _text(bench.bench(every))
    said = _joined(_text(bench.bench([*every, command])))
    assert said.count("it was not loaded") == 1
    assert "a.cl on opencl:pocl/cpu, b.cl on opencl:pocl/cpu: it was not loaded" in said


def test_long_targets_stand_above_the_figures(program: BenchCase) -> None:
    """In 80 columns a long target is said above its row, and every figure keeps to its line."""
    target = "opencl:pocl-3.1-debian/pthread-skylake-avx512-intel-xeon-processor"
    lines = _text(bench.bench([replace(program, target=target)])).splitlines()
    assert lines[0] == f"target: {target}"
    assert re.split("  +", lines[3].rstrip()) == [
        "fft.cl", "2.81 s", "129 ms", "21.9x", "2.78 s -> 95 ms", "29.1x", "faster"
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 120, 240])
def test_everything_is_said_at_every_width(cases: list[BenchCase], width: int) -> None:
    """No line is wider than the terminal, and every figure and sentence of a case is there."""
    said = _joined(_text(bench.bench(cases, whole=True), width)).replace(" ", "")
    for part in (
        "faster: 21.9x (18.2x to 23.0x)",
        "all but the process and the context): 2.78 s -> 95 ms, 29.1x (29.1x to 29.1x)",
        "warming cost 5.20 s; each start saves 2.67 s: it pays after 2 starts",
        "pyopencl: its binary lacks the launches",
        "the first start of all took 3.91 s",
        "a cold start writes 12 entries (1.2 MiB) into pocl and 1 entry (40.0 KiB) into sycl",
        "degraded: the noise is larger than the effect",
        "blocked-matrix-multiplication-with-a-long-name.cl",
    ):
        assert part.replace(" ", "") in said, part


def test_phases_stand_cold_beside_warm(program: BenchCase) -> None:
    """Each phase has its cold and warm median; one that an arm does not have is a dash; the sum is last."""
    text = _text(bench.bench([program], whole=True))
    assert re.search(r"^compile +1\.89 s +- *$", text, re.MULTILINE)
    assert re.search(r"^load +- +52 ms *$", text, re.MULTILINE)
    assert re.search(r"^total +2\.81 s +129 ms *$", text, re.MULTILINE)


def test_every_arm_has_spread_and_ratio(program: BenchCase) -> None:
    """The user's own caches and peers stand below cold and warm, each with its ratio to cold."""
    text = _text(bench.bench([program], whole=True))
    assert re.search(r"^cold +2\.81 s +2\.69 s +5\.04 s +10 +1x *$", text, re.MULTILINE)
    assert re.search(r"^as-is +129 ms +123 ms +230 ms +10 +21\.8x \(18\.1x to 22\.8x\)", text, re.MULTILINE)
    assert re.search(r"^pyopencl +982 ms .* 2\.9x \(2\.6x to 3\.0x\)", text, re.MULTILINE)


def test_outliers_are_counted(program: BenchCase) -> None:
    """Starts far from the others are told of by arm, and an arm without any is not."""
    far, none = Spread(9, 8, 99, 10, outliers=2), Spread(5, 4, 6, 10)
    case = replace(program, arms=(), cold=far, warm=none)
    assert "\n2 of 10 cold starts lie far from the others" in _text(bench.bench([case], whole=True))
    case = replace(case, cold=none, warm=replace(far, outliers=1))
    assert "\n1 of 10 warm starts lies far from the others" in _text(bench.bench([case], whole=True))


@pytest.mark.parametrize(
    ("verdict", "reason", "said"),
    [
        (BenchVerdict.FASTER, "", "faster: 1.50x (0.98x to 2.25x)"),
        (BenchVerdict.NO_DIFFERENCE, "", "no difference: 1.50x (0.98x to 2.25x)"),
        (BenchVerdict.DEGRADED, "the machine was loaded", "degraded: the machine was loaded"),
        (BenchVerdict.FAILED, "no compiler", "failed: no compiler"),
    ],
)
def test_verdicts(program: BenchCase, verdict: BenchVerdict, reason: str, said: str) -> None:
    """A verdict rests on its ratio, or on its reason."""
    case = replace(program, verdict=verdict, reason=reason, ratio=Ratio(1.5, 0.98, 2.25))
    assert f"\n{said}\n" in _text(bench.bench([case], whole=True))


@pytest.mark.parametrize(("verdict", "colour"), [("degraded", "\x1b[33m"), ("failed", "\x1b[31m")])
def test_doubt_and_failure_are_coloured(program: BenchCase, verdict: str, colour: str) -> None:
    """On a terminal doubt is yellow and failure red."""
    file = io.StringIO()
    console = Console(
        width=80, color_system="standard", force_terminal=True, no_color=False, highlight=False, file=file
    )
    write(console, bench.bench([replace(program, verdict=BenchVerdict(verdict), reason="why")], whole=True))
    assert f"{colour}{verdict}: why" in file.getvalue()


def test_a_compilers_colours_do_not_reach_the_terminal(failed: BenchCase) -> None:
    """Escape sequences of a compiler's message are left out, its words and lines are kept."""
    text = _text(bench.bench([failed], whole=True))
    assert "\x1b" not in text and "more\n1 error" in text


@pytest.mark.parametrize("width", [80, 120])
def test_bars_fill_the_width_and_keep_their_proportions(program: BenchCase, width: int) -> None:
    """The longest bar reaches the edge; each other is as long as its median, to a character."""
    text = _text(bench.bench([program], whole=True), width)
    drawn = _bars(text)
    assert list(drawn) == ["cold", "warm", "as-is", "pyopencl"]
    longest = next(line for line in text.splitlines() if line.startswith("cold") and "█" in line)
    assert len(longest) == width
    assert program.cold and program.warm
    cells = len(drawn["cold"])
    for arm, spread in (("warm", program.warm), ("pyopencl", program.arms[1].spread)):
        assert abs(len(drawn[arm]) - cells * spread.median_ns / program.cold.median_ns) <= 1


def test_bars_do_not_grow_without_end(program: BenchCase) -> None:
    """Through a pipe, where lines may be long, bars stay as long as can be taken in."""
    lines = _text(bench.bench([program], whole=True), width=240).splitlines()
    assert max(len(line) for line in lines if BAR.match(line)) == bench.WIDEST


def test_phases_are_shaded_in_proportion_and_explained(program: BenchCase) -> None:
    """Within a bar each phase has its share; the legend names what is seen, and what is too short."""
    text = _text(bench.bench([program], whole=True))
    cold = _bars(text)["cold"]
    assert abs(cold.count("█") / len(cold) - 1890 / 2800) < 0.03
    assert cold == "".join(sorted(cold, key="░▒█▄".index)), "phases are in the order of a start"
    assert "░ process start  █ compile  ▓ load  ▄ first launch\n" in text
    assert "too short to be drawn: context, key, lookup, kernels\n" in text


def test_bars_are_letters_where_blocks_cannot_be_written(program: BenchCase) -> None:
    """A terminal of ASCII alone gets letters, and nothing fails."""
    plain = list(bench.bench([program], whole=True))
    text = _text(plain, encoding="ascii")
    assert "#####" in text and "# compile" in text


def test_a_command_has_one_shade_and_no_legend(command: BenchCase) -> None:
    """Of starts without phases there is no table of phases and nothing to explain, but still two bars."""
    text = _text(bench.bench([command], whole=True))
    drawn = _bars(text)
    assert set(drawn["cold"]) == set(drawn["warm"]) == {"▇"}
    assert "phase" not in text and "whole start" not in text and "too short" not in text


def test_the_shortest_bar_is_seen(program: BenchCase) -> None:
    """A warm start of next to nothing is still a mark."""
    case = replace(program, warm=Spread(1000, 1000, 1000, 5), arms=())
    assert len(_bars(_text(bench.bench([case], whole=True)))["warm"]) == 1


def test_nothing_timed_in_no_time(program: BenchCase) -> None:
    """Durations of zero, as a coarse clock gives them, break nothing."""
    nothing = Spread(0, 0, 0, 5)
    case = replace(
        program, cold=nothing, warm=nothing, arms=(), samples=(), phases=(Phase("a", 0, 0), Phase("b", 0, 0))
    )
    assert "0.0 ms" in _text(bench.bench([case], whole=True))


@pytest.mark.parametrize(
    ("even", "ratio"),
    [
        (BreakEven(SECOND, SECOND, 1), Ratio(1.1, 0.9, 1.3)),
        (BreakEven(0, SECOND, 0), Ratio(4, 3, 5)),
        (None, Ratio(4, 3, 5)),
    ],
)
def test_what_saves_nothing_does_not_pay(program: BenchCase, even: BreakEven | None, ratio: Ratio) -> None:
    """Where the interval holds 1, or nothing was warmed, there is no word of when it pays."""
    assert "it pays" not in _text(bench.bench([replace(program, break_even=even, ratio=ratio)], whole=True))


def test_redirects_are_shown_when_asked_for(command: BenchCase) -> None:
    """Which variables moved caches is told with -v alone."""
    assert "POCL_CACHE_DIR" not in _text(bench.bench([command]))
    text = _text(bench.bench([command], whole=True))
    assert "  POCL_CACHE_DIR=DIR/pocl\n  SYCL_CACHE_DIR=DIR/sycl\n" in text


def test_a_failed_case_has_no_figures(failed: BenchCase) -> None:
    """Of what could not be started there is the reason, and neither tables nor bars."""
    text = _text(bench.bench([failed], whole=True))
    assert "failed: a cold start failed" in text and not _bars(text) and "median" not in text


def test_settling_says_what_each_run_added_and_how_it_ended() -> None:
    """One line for each run, then the run after which all was warm, then all that was added."""
    runs = [
        SettleRun(1, 4200 * MS, (POCL, SYCL)),
        SettleRun(2, 2 * SECOND, (Growth("pocl", 1, 10),)),
        SettleRun(3, SECOND),
    ]
    summary = SettleSummary(3, True, "", (Growth("pocl", 13, 1_258_301), SYCL), notes=("jax was not moved",))
    lines = _text(bench.settle(runs, summary), 160).splitlines()
    assert lines[:3] == [
        "run 1: 12 entries (1.2 MiB) into pocl and 1 entry (40.0 KiB) into sycl; 4.20 s",
        "run 2: 1 entry (10 B) into pocl; 2.00 s",
        "run 3: nothing new; 1.00 s",
    ]
    assert lines[4].startswith(
        "warm after run 2; nothing new was written in run 3; 13 entries (1.2 MiB) into"
    )
    assert lines[5:] == ["jax was not moved"]


def test_what_was_warm_before_is_said_to_be() -> None:
    """Where the first run adds nothing, nothing had to be warmed, or what was missed is told."""
    runs = [SettleRun(1, SECOND)]
    text = _joined(_text(bench.settle(runs, SettleSummary(1, True, "", ()))))
    assert "nothing new was written in run 1: it was warm already" in text
    missed = SettleSummary(1, True, "", (), missed=("nothing was warmed",))
    text = _joined(_text(bench.settle(runs, missed)))
    assert "warm already" not in text and text.endswith("written in run 1 nothing was warmed")


def test_what_never_settles_is_named() -> None:
    """Of runs without an end the last additions are named, and how many are not."""
    summary = SettleSummary(10, False, "", (POCL,), restless=(POCL, SYCL))
    text = _joined(_text(bench.settle([], summary)))
    assert "it never settled: run 10 still added 12 entries (1.2 MiB) into pocl and 1 entry" in text
    assert text.endswith("into sycl: KA/f, LB/g and 10 more; x.bin")


def test_a_failed_run_ends_it_with_its_words_once() -> None:
    """The run that failed is told of, and the words of the failure stand at the end, once."""
    error = "it ended with status 3: \x1b[31mno device\x1b[0m"
    runs = [SettleRun(1, SECOND, (POCL,)), SettleRun(2, SECOND, error=error)]
    text = _text(bench.settle(runs, SettleSummary(2, False, error, (POCL,))))
    assert "run 2: failed after 1.00 s\n" in text
    assert text.count("no device") == 1 and "it failed in run 2: it ended with status 3: no device" in text


def test_the_environment_can_be_pasted() -> None:
    """What makes programs use what was warmed is given as lines for a shell, quoted where needed."""
    environment = (("POCL_CACHE_DIR", "/srv/my caches/pocl"), ("SYCL_CACHE_PERSISTENT", "1"))
    text = _text(bench.settle([], SettleSummary(2, True, "", (), environment=environment)))
    assert "export POCL_CACHE_DIR='/srv/my caches/pocl'\nexport SYCL_CACHE_PERSISTENT=1\n" in text
