"""Checks in the sources of a batch: joined or not, each reports its failures as when alone."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.store.directory import DirectoryStore
from tests.children import run_python
from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

_PROCESS = Path(__file__).with_name("batch_process.py")
_PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
_HEAD = """#include <gpucache/check.h>

int halve(GPUCACHE_CHECKED int value, int *result)
{
    GPUCACHE_CHECK_INSIDE(value % 2 == 0, "%d is odd", value);
    *result = value / 2;
    return 0;
}
"""
_PLAIN = """#define LIMIT 100
kernel void plain(GPUCACHE_CHECKED global int *data)
{
    GPUCACHE_BEGIN;
    int result;
    GPUCACHE_CALL(halve(GPUCACHE_PASS data[get_global_id(0)], &result));
    GPUCACHE_CHECK(result < LIMIT, "%d is not below %d", result, LIMIT);
    data[get_global_id(0)] = result;
}
"""
_BARRIERS = """#define LIMIT 200
kernel void barriers(GPUCACHE_CHECKED global int *data)
{
    local int shared;
    GPUCACHE_BEGIN_SYNC;
    int result = 0;
    if (get_local_id(0) == 3) {
        GPUCACHE_CALL_SYNC(halved, halve(GPUCACHE_PASS data[get_global_id(0)], &result));
        shared = result;
    }
    GPUCACHE_SYNC(halved);
    GPUCACHE_CHECK_SYNC(end, get_local_id(0) != 3 || shared < LIMIT, "%d is not below %d", shared, LIMIT);
    data[get_global_id(0)] = shared;
    GPUCACHE_END_SYNC(end);
}
"""
# As a program makes one that was read from another file, with a check that has no number.
_MADE = """#define AT(value) GPUCACHE_CHECK((value) < 300, "never read", value)
#line 50 "made.in"
kernel void made(GPUCACHE_CHECKED global int *data)
{
    GPUCACHE_BEGIN;
    GPUCACHE_CHECK(data[get_global_id(0)] % 2 == 0, "%d is odd, too", data[get_global_id(0)]);
    AT(data[get_global_id(0)]);
    data[get_global_id(0)] += 1;
}
"""
_SOURCES = {
    "plain.cl": _HEAD + _PLAIN,
    "barriers.cl": f"/* 2 */\n\n{_HEAD}{_BARRIERS}",
    "made.cl": _HEAD + _MADE,
}


def _told(barriers: str, made: str) -> list[list[str | int]]:
    """The messages of each source: ``barriers`` is the place of the common check, ``made`` its name."""

    def line(place: str, kernel: str, words: str) -> str:
        return f"{place}: {words} (kernel {kernel}, work-item 3, 0, 0)"

    unnumbered = "a check without a number failed with 600"
    return [
        [
            line("plain.cl, line 5", "plain", "7 is odd"),
            line("plain.cl, line 15", "plain", "300 is not below 100"),
            3,
        ],
        [
            line(barriers, "barriers", "7 is odd"),
            line("barriers.cl, line 22", "barriers", "300 is not below 200"),
            3,
        ],
        [
            line("made.in, line 53", "made", "7 is odd, too"),
            line(f"{made}, line 54 of a header or a macro", "made", unnumbered),
            7,
        ],
    ]


@pytest.fixture
def run(tmp_path: Path, opencl_environment: Mapping[str, str]) -> Run:
    """The results of sources in a separate program, with one cache for all of a test."""
    own = {"GPUCACHE_DIR": str(tmp_path / "cache"), "PYTHONWARNINGS": "ignore"}

    def run(platform: str, mode: str, way: str, sources: Mapping[str, str] = _SOURCES, **more: str) -> Any:
        if platform == "pocl":
            need_pocl()
        printed = run_python(
            "-P",
            str(_PROCESS),
            _PLATFORMS[platform],
            mode,
            way,
            stdin=json.dumps(sources),
            env={**opencl_environment, **own, **more},
        )
        return json.loads(printed)

    return run


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("platform", _PLATFORMS)
def test_joined_sources_tell_failures_as_each_does_alone(
    run: Run, platform: str, mode: str, tmp_path: Path, icd_vendors: Path
) -> None:
    """File, line, kernel, work-item and operands are equal, also in a fresh process with only a hit.

    The common beginning of all sources is in the program once, and reported as the first one's. A check
    without a number is reported with the name of the program.
    """
    alone = run(platform, mode, "alone", GPUCACHE_DIR=str(tmp_path / "alone"))
    assert alone["told"] == _told("barriers.cl, line 7", "made.cl")
    joined = run(platform, mode, "batch")
    assert joined == {"apart": [None] * 3, "told": _told("plain.cl, line 5", "plain.cl and 2 more")}
    if platform == "pocl":  # which builds late, and so not in its own program
        environment = {"GPUCACHE_DIR": str(tmp_path / "cache"), "OCL_ICD_VENDORS": str(icd_vendors)}
        command = [sys.executable, "-m", "gpucache", "warm", "--misses"]
        subprocess.run(command, env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
    assert run(platform, mode, "hit", GPUCACHE_REQUIRE="1") == joined
    (entry,) = DirectoryStore(tmp_path / "cache", writable=False).scan()
    assert entry.head is not None
    assert entry.head.checks == mode
    assert [(check.file, check.line, check.function) for check in entry.head.failures] == [
        ("plain.cl", 5, "halve"),
        ("plain.cl", 15, "plain"),
        ("barriers.cl", 22, "barriers"),
        ("made.in", 53, "made"),
    ]


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_without_checks_nothing_is_told(run: Run, platform: str) -> None:
    """The same kernels compute the same, and have no record."""
    joined = run(platform, "none", "batch")
    assert joined == {"apart": [None] * 3, "told": [[3, 300, 3], [3, 300, 3], [8, 601, 7]]}


def test_a_source_with_a_wrong_check_fails_alone(run: Run) -> None:
    """The others of its batch are built one by one, and the reason names its file and line."""
    wrong = _HEAD + _PLAIN.replace('"%d is not', '"%s is not').replace("plain", "wrong")
    answer = run("intel", "sync", "batch", {"plain.cl": _SOURCES["plain.cl"], "wrong.cl": wrong})
    told = (
        "they do not compile as one program (the check in line 15 of wrong.cl cannot be reported: its format"
    )
    assert all(each.startswith(told) for each in answer["apart"])
    assert answer["told"][0] == _told("", "")[0]
    assert answer["told"][1].startswith("the check in line 15 cannot be reported: its format has '%s'")


def test_more_checks_than_one_table_holds_are_built_apart(run: Run) -> None:
    """So each keeps its number, and with it message and file."""
    text = "{}kernel void {}(GPUCACHE_CHECKED global int *data)\n{{\n    GPUCACHE_BEGIN;\n{}}}\n"
    never = f'    if (0) GPUCACHE_CHECK(0, "{"never " * 6000}");\n'
    check = '    GPUCACHE_CHECK(data[get_global_id(0)] < 100, "%d is large", data[get_global_id(0)]);\n'
    sources = {f"{name}.cl": text.format(_HEAD, name, never + check) for name in ("one", "two")}
    answer = run("intel", "async", "batch", sources)
    assert answer["apart"] == ["they have more checks than one failure table can contain"] * 2
    assert [told[1] for told in answer["told"]] == [
        f"{name}.cl, line 13: 600 is large (kernel {name}, work-item 3, 0, 0)" for name in ("one", "two")
    ]
