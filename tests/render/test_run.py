"""The line at the end of ``gpucache run``, and the reasons before it."""

import pytest

from gpucache.outcomes import Ended, Intercepted, RunResult, summarise_run
from gpucache.render.run import reasons, summary_line

HIT = Intercepted("scale", "opencl:intel/cpu", RunResult.HIT, "0" * 64, 4_000_000, 2_000_000_000)
KEPT = Intercepted("blur", "opencl:intel/cpu", RunResult.KEPT, "1" * 64, 96_000_000, reason="never built")
NOTED = Intercepted("sort", "opencl:pocl/cpu", RunResult.NOTED, "2" * 64, 100_000_000, reason="never built")
LEFT = Intercepted("fft", "opencl:intel/cpu", RunResult.LEFT, reason="the disk is full")
FAILED = Intercepted("bad", "opencl:intel/cpu", RunResult.FAILED, reason="never built")
PASSED = Intercepted("", "", RunResult.PASSED, reason="clCompileProgram is not served")


@pytest.mark.parametrize(
    ("outcomes", "learned", "line"),
    [
        ([], 0, "no OpenCL or NVRTC build was asked for here"),
        ([KEPT], 0, "1 build: 0 hits, 1 miss; 96 ms in builds"),
        (
            [HIT, KEPT],
            0,
            "2 builds: 1 hit, 1 miss; 100 ms in builds; the hits took 2.00 s to build",
        ),
        (
            [NOTED],
            0,
            "1 build: 0 hits, 1 miss; 100 ms in builds; 'gpucache warm --misses' builds 1 for the next run",
        ),
        ([NOTED], 1, "1 build: 0 hits, 1 miss; 100 ms in builds; 1 of 1 built for the next run"),
        (
            [FAILED, PASSED],
            0,
            "1 build: 0 hits, 1 miss; 0.0 ms in builds; 1 did not compile; 1 not served",
        ),
    ],
)
def test_a_run_is_told_in_one_line(outcomes: list[Intercepted], learned: int, line: str) -> None:
    """What is nothing is not told."""
    assert summary_line(summarise_run("app", Ended(0), outcomes, learned)) == line


def test_a_reason_is_told_once() -> None:
    """What was kept or noted needs none."""
    told = list(reasons([HIT, KEPT, NOTED, LEFT, LEFT, PASSED], whole=False))
    assert told == ["not kept: the disk is full", "not served: clCompileProgram is not served"]


def test_of_many_reasons_a_few_are_told() -> None:
    """The others are there for whoever asks."""
    outcomes = [Intercepted("p", "t", RunResult.LEFT, reason=f"reason {number}") for number in range(5)]
    assert list(reasons(outcomes, whole=False))[3:] == ["2 more reasons; -v tells them"]


def test_every_miss_is_told_who_asks_for_all() -> None:
    """Also those that were kept, with why they were not there."""
    assert list(reasons([HIT, KEPT, PASSED], whole=True)) == [
        "blur for opencl:intel/cpu: kept: never built",
        "a call: passed: clCompileProgram is not served",
    ]
