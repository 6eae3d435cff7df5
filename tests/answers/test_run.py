"""The line at the end of ``gpucache run``, and the reasons before it."""

from dataclasses import replace

import pytest

from gpucache.answers.run import Ended, Intercepted, RunResult, summarise_run
from gpucache.answers.run_lines import reasons, summary_line

HIT = Intercepted("scale", "opencl:intel/cpu", RunResult.HIT, "0" * 64, 4_000_000, 2_000_000_000)
AHEAD = replace(HIT, target="opencl:pocl/cpu", saved_ns=36_000_000_000, all_kernels=True)
KEPT = Intercepted(
    "blur",
    "opencl:intel/cpu",
    RunResult.KEPT,
    "1" * 64,
    96_000_000,
    reason="never built",
    begun_ns=HIT.build_ns,
)
NOTED = Intercepted("sort", "opencl:pocl/cpu", RunResult.NOTED, "2" * 64, 100_000_000, reason="never built")
LEFT = Intercepted("fft", "opencl:intel/cpu", RunResult.LEFT, reason="the disk is full")
FAILED = Intercepted("bad", "opencl:intel/cpu", RunResult.FAILED, reason="never built")
PASSED = Intercepted("", "", RunResult.PASSED, reason="clCompileProgram is not served")


@pytest.mark.parametrize(
    ("outcomes", "wanted", "learned", "line"),
    [
        (
            [],
            0,
            0,
            "no OpenCL or NVRTC build was seen; where there was one, the command may have an OpenCL loader "
            "of its own that reads no OPENCL_LAYERS, or a static NVRTC",
        ),
        ([KEPT], 0, 0, "1 build: 0 hits, 1 miss; 96 ms in builds"),
        (
            [HIT, KEPT],
            0,
            0,
            "2 builds: 1 hit, 1 miss; 100 ms in builds; the hits took 2.00 s to build",
        ),
        (
            [AHEAD],
            0,
            0,
            "1 build: 1 hit, 0 misses; 4.0 ms in builds; all kernels of the hits were built ahead in 36.00 s",
        ),
        (
            [NOTED],
            1,
            0,
            "1 build: 0 hits, 1 miss; 100 ms in builds; 'gpucache warm --misses' builds 1 for the next run",
        ),
        ([NOTED], 1, 1, "1 build: 0 hits, 1 miss; 100 ms in builds; 1 of 1 built for the next run"),
        ([replace(AHEAD, saved_ns=0)], 1, 1, "1 build: 1 hit, 0 misses; 4.0 ms in builds; "
         "1 of 1 built for the next run"),
        (
            [FAILED, PASSED],
            0,
            0,
            "1 build: 0 hits, 1 miss; 0.0 ms in builds; 1 did not compile; 1 not served",
        ),
    ],
)  # fmt: skip
def test_a_run_is_told_in_one_line(outcomes: list[Intercepted], wanted: int, learned: int, line: str) -> None:
    """What is nothing is not told; what was built ahead is no time that the command would have taken."""
    assert summary_line(summarise_run("app", Ended(0), outcomes, wanted, learned)) == line


@pytest.mark.parametrize(
    ("ended", "binaries", "line"),
    [
        (
            Ended(0, loaded=True),
            0,
            "nothing was built from source; a cache of the program's own may have answered",
        ),
        (
            Ended(0, loaded=True),
            2,
            "nothing was built from source; 2 programs were loaded from binaries, for example from "
            "PyOpenCL's own cache",
        ),
        (
            Ended(0, refused=("app (process 7, user 0)",)),
            0,
            "nothing was built as this user; not answered, because it runs as another user: app (process 7, "
            "user 0)",
        ),
    ],
)
def test_why_nothing_was_seen_is_as_exact_as_can_be(ended: Ended, binaries: int, line: str) -> None:
    """That a loader may have passed our layer by is said only where the layer was not loaded."""
    assert summary_line(summarise_run("app", ended, [], binaries=binaries)) == line


def test_builds_of_parallel_threads_count_once() -> None:
    """What is told is for how long anything was built, however many threads waited at a time."""
    builds = [
        replace(KEPT, begun_ns=begun, build_ns=length) for begun, length in ((5, 10), (0, 8), (6, 3), (30, 1))
    ]
    assert summarise_run("app", Ended(0), builds).build_ns == 16


def test_a_run_within_a_run_says_that_the_outer_one_was_not_asked() -> None:
    """Else its builds would seem to be lost, as the outer run counts none."""
    line = summary_line(summarise_run("app", Ended(0), [KEPT]), inner=True)
    assert line.endswith("; an outer 'gpucache run' was not asked")


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
