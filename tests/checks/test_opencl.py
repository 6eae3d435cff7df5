"""Kernels with checks on real compilers: every kind of failure, every mode, and no work-item left behind."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python
from tests.pocl import need_pocl
from tests.trials import tell, trials

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("opencl_process.py")
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL", "nvidia": "NVIDIA CUDA"}
_MARKS = {"nvidia": [pytest.mark.gpu]}
on_each_platform = pytest.mark.parametrize(
    "platform", [pytest.param(platform, marks=_MARKS.get(platform, ())) for platform in _PLATFORMS]
)

# The sentence of each failure, which one work-item alone has: groups run in any order. The behaviour of the
# others is below.
_FAILURES = {
    "index": "line 20: index 999 is outside of 0 to 255 (kernel gather, work-item 70, 0, 0)",
    "function": "line 5: 255 cannot be doubled below 255 (kernel calls, work-item 255, 0, 0)",
    "types": "line 39: 250 -3 18446744073709551615 -5000000000 7 0.1 1e+30 0.000 "
    "(kernel types, work-item 5, 0, 0)",
    "line": "line 46: the second of a line (kernel many, work-item 0, 0, 0)",
    "bare": "line 52: the check failed (kernel bare, work-item 0, 0, 0)",
    "macro": "line 60 of a header or a macro: a check without a number failed with 1 and 1 "
    "(kernel macro, work-item 0, 0, 0)",
    "first segment": "line 68: item 37 holds -9 (kernel sum, work-item 37, 0, 0)",
    "loop": "line 5: 255 cannot be doubled below 255 (kernel sum, work-item 255, 0, 0)",
    "last items": "line 89: item 3 fails (kernel last, work-item 3, 0, 0)",
    "last segment": "line 79: the sum 6336 is too large (kernel sum, work-item 0, 0, 0)",
}
# The output after a failure before a barrier: no group that failed has written.
_WRITTEN = {
    "first segment": [-1, 64, 64, 64],
    "loop": [64, 64, 64, -1],
    "loop, all": [-1, -1, -1, -1],
    "last items": [1, 1, 1, 0, 1, 2, 1, 1],  # behind which no others are stopped
}


def _environment(vendors: Path, place: Path) -> dict[str, str]:
    own = {"OCL_ICD_VENDORS": vendors, "GPUCACHE_DIR": place / "cache", "POCL_CACHE_DIR": place / "pocl"}
    (place / "pocl").mkdir()
    return {**os.environ, "PYTHONWARNINGS": "ignore", **{name: str(path) for name, path in own.items()}}


def _run(environment: Mapping[str, str], *command: str | Path) -> str:
    return run_python("-P", *command, env=environment)


def _vendors(platform: str, request: pytest.FixtureRequest) -> Path:
    """The directory that names a platform to the OpenCL loader; skips if it is not installed."""
    if platform == "pocl":
        need_pocl()
    vendors: Path = request.getfixturevalue("nvidia_vendors" if platform == "nvidia" else "icd_vendors")
    return vendors


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((platform, mode), marks=_MARKS.get(platform, ()), id=f"{platform}:{mode}")
        for platform in _PLATFORMS
        for mode in ("none", "sync", "async")
    ],
)
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """A mode, and the results of every scenario in it on one platform."""
    platform, mode = request.param
    environment = _environment(_vendors(platform, request), tmp_path_factory.mktemp("checked"))
    return mode, json.loads(_run(environment, _PROCESS, _PLATFORMS[platform], mode))


@pytest.mark.parametrize("scenario", _FAILURES)
def test_the_first_failure_is_told_where_its_mode_looks(
    ran: tuple[str, dict[str, Any]], scenario: str
) -> None:
    """In sync by the launch, in async by the next look, never without checks; and only once."""
    mode, scenarios = ran
    sentence = f"checked.cl, {_FAILURES[scenario]}"
    expected = {"none": [None, None], "sync": [sentence, None], "async": [None, sentence]}
    assert scenarios[scenario][:2] == expected[mode]


@pytest.mark.parametrize("scenario", _WRITTEN)
def test_a_group_that_failed_leaves_at_its_next_sync_point(
    ran: tuple[str, dict[str, Any]], scenario: str
) -> None:
    """Its other work-items neither wait nor write; groups that did not fail end their work."""
    mode, scenarios = ran
    if mode != "none":
        assert scenarios[scenario][2] == _WRITTEN[scenario]


def test_the_context_stays_usable(ran: tuple[str, dict[str, Any]]) -> None:
    """After failures of every kind the same kernels, buffers and queue compute correct results."""
    _, scenarios = ran
    assert scenarios["sound"] == [None, None, [1, 2, 3]]
    assert scenarios["index"][2:] == [None, None, [1, 2, 3]]
    assert scenarios["afterwards"] == [None, None, [64, 64, 64, 64]]
    assert scenarios["plain"] == [None, None, [7, 7]]


def test_code_behind_the_last_sync_point_computes_what_it_should(ran: tuple[str, dict[str, Any]]) -> None:
    """Work-items diverge there, as in a kernel without checks."""
    _, scenarios = ran
    assert scenarios["last items, sound"] == [None, None, [1, 1, 1, 1, 1, 2, 1, 1]]


def test_what_is_launched_after_a_failure_does_nothing_in_async(ran: tuple[str, dict[str, Any]]) -> None:
    """In async, kernels that start before the host looked leave at once, with or without barriers."""
    mode, scenarios = ran
    written = [-1] * 4 if mode == "async" else [64] * 4
    assert scenarios["garbage"][-3] == written
    told = [step for step in scenarios["garbage"] if isinstance(step, str)]
    expected = "checked.cl, line 20: index -1 is outside of 0 to 255 (kernel gather, work-item 0, 0, 0)"
    assert told == ([] if mode == "none" else [expected])


def test_a_kernel_without_checks_that_begins_as_one_with_them_leaves_in_async(
    ran: tuple[str, dict[str, Any]],
) -> None:
    """It has nothing to check, and does nothing with what a kernel that failed left."""
    mode, scenarios = ran
    assert scenarios["unchecked"][0] == ([-1] * 4 if mode == "async" else [3] * 4)


def test_a_kernel_that_cannot_look_is_not_launched_after_a_failure(ran: tuple[str, dict[str, Any]]) -> None:
    """In async the queue looks for it, and raises the failure in its place; the next launch is as ever."""
    mode, scenarios = ran
    failure = "checked.cl, line 20: index -1 is outside of 0 to 255 (kernel gather, work-item 0, 0, 0)"
    first = [failure, [-1, -1]] if mode == "async" else [None, [7, 7]]
    assert scenarios["without a test"] == [*first, None, [7, 7]]


def test_what_cannot_be_meant_is_said(ran: tuple[str, dict[str, Any]]) -> None:
    """An out-of-order queue, a kernel without its program, invalid modes and sources are errors."""
    mode, scenarios = ran
    order, stray, unknown, spirv, message, queue, kernel, few, *_ = scenarios["misuses"]
    assert queue.startswith("TypeError: queue must be a pyopencl.CommandQueue, not <pyopencl.Context")
    assert kernel == "TypeError: kernel must be a pyopencl.Kernel, such as program.name, not 'gather'"
    assert order.startswith("ValueError: checks need a queue that runs in order")
    assert unknown == "ValueError: checks must be one of 'none', 'sync', 'async', not 'all'"
    assert spirv.startswith("ValueError: checks are of a program's source")
    assert message.startswith("SourceError: the check in line 2 cannot be reported: its format has '%s'")
    if mode != "none":
        assert few.endswith("gather takes 3 arguments after GPUCACHE_CHECKED, not 1")
        assert stray.startswith("TypeError: the kernel gather has checks, but its program is unknown")


def test_checks_that_do_not_fit_their_kernel_do_not_compile(ran: tuple[str, dict[str, Any]]) -> None:
    """Checks without their parameters or their last sync point do not compile either: all are named."""
    mode, scenarios = ran
    returns = "gpucache_only_behind_GPUCACHE_BEGIN_else_name_a_sync_point"
    ends = "gpucache_the_last_statement_must_be_GPUCACHE_END_SYNC"
    parameters = "gpucache_record_of_GPUCACHE_CHECKED gpucache_state_of_GPUCACHE_CHECKED"
    *_, first, second, third, fourth = scenarios["misuses"]
    if mode == "none":
        assert {first, second, third, fourth} == {"nothing"}
    else:
        assert parameters in first
        assert (second, third, fourth) == (returns, returns, ends)


_SMALL = """
#include <gpucache/check.h>
kernel void gather(GPUCACHE_CHECKED global const int *where, global int *out, int n)
{
    GPUCACHE_BEGIN;
    int i = where[get_global_id(0)];
    GPUCACHE_CHECK(i < n, "index %d of %d", i, n);
    out[i] = 1;
}
"""
# A process that may neither read the checks of a source nor call the compiler.
_FRESH = """
import sys
import numpy as np
import pyopencl as cl
from gpucache import opencl
from gpucache.checks import calls
from gpucache.opencl import pyopencl_builds
from gpucache.errors import KernelCheckError
def refuse(*_, **__):
    raise SystemExit("a hit did what it must not")
calls._calls = pyopencl_builds.build_plainly = pyopencl_builds.build_as_pyopencl = refuse
device = next(one for one in cl.get_platforms() if one.name.startswith(sys.argv[1])).get_devices()[0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
checked = opencl.CheckedQueue(queue)
program = opencl.build_program(
    context, open(sys.argv[2]).read(), checks="async", name="small.cl", local_sizes=[16]
)
data = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.arange(16, dtype=np.int32))
checked.launch(program.gather, (16,), (16,), data, data, np.int32(15))
try:
    checked.synchronise()
except KernelCheckError as error:
    print(error)
"""


@on_each_platform
def test_a_failure_is_told_from_a_warm_cache(
    platform: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A process without checks and compiles reports message, kernel, work-item and line."""
    environment = _environment(_vendors(platform, request), tmp_path)
    source = tmp_path / "small.cl"
    source.write_text(_SMALL, encoding="utf-8")
    build = ("--checks", "async", "--target", f"opencl:{platform}", "--local-size", "16")
    _run(environment, "-m", "gpucache", "warm", source, *build)
    told = _run(environment, "-c", _FRESH, _PLATFORMS[platform], source)
    assert told == "small.cl, line 7: index 15 of 15 (kernel gather, work-item 15, 0, 0)\n"


@pytest.mark.stress
@pytest.mark.parametrize("mode", ["sync", "async"])
@on_each_platform
def test_random_failures_beside_barriers(
    platform: str, mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Whichever item fails, before any sync point: its group leaves, the others end, and none hangs."""
    vendors = _vendors(platform, request)
    count = trials(50, 5000)
    process = _PROCESS.with_name("barriers_process.py")
    command = (process, _PLATFORMS[platform], mode, str(count))
    wrong = json.loads(_run(_environment(vendors, tmp_path), *command))
    tell(f"random failures beside barriers on {platform} in {mode}", 2 * count, len(wrong))
    assert wrong == []
