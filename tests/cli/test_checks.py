"""Checks on the command line: each mode has its own entries, and a wrong check is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
_CHECKED = """#include <gpucache/check.h>
extern "C" __global__ void scatter(GPUCACHE_CHECKED int *out, int n)
{
    GPUCACHE_BEGIN;
    GPUCACHE_CHECK(threadIdx.x < n, "%d of %d", threadIdx.x, n);
    out[threadIdx.x] = 1;
}
"""
_TARGET = ("--target", "cuda:compute_90")


def test_each_mode_is_an_entry_of_its_own(run: Run, write: Write, nvrtc: str) -> None:
    """The three modes are three entries, which inspect distinguishes; none was built unasked."""
    source = write({"scatter.cu": _CHECKED}) / "scatter.cu"
    for mode in ([], ["--checks", "none"], ["--checks", "sync"], ["--checks", "async"]):
        assert run("warm", source, *_TARGET, *mode).code == 0
    rows = run("--json", "inspect", "--list").document["outcomes"]
    assert sorted(row["variant"] for row in rows) == ["", "checks=async", "checks=sync"]
    assert run("inspect", "--why", source, *_TARGET, "--checks", "sync").code == 0


def test_a_program_that_checks_nothing_costs_nothing(run: Run, write: Write, intel: str, nvrtc: str) -> None:
    """Its binary is the same in every mode, to the last byte."""
    text = " void twice({}float *x) {{ x[0] *= 2; }}\n"
    opencl, cuda = "kernel" + text.format("global "), 'extern "C" __global__' + text.format("")
    folder = write({"twice.cl": opencl, "twice.cu": cuda})
    targets = ("--target", intel, *_TARGET, "--target", "cuda:sm_90")
    for mode in ("none", "sync", "async"):
        assert run("warm", folder, *targets, "--checks", mode).code == 0
    rows = run("--json", "inspect", "twice.cl", "twice.cu").document["outcomes"]
    kept = {(row["target"], row["payload"]["SHA-256"]) for row in rows}
    assert (len(rows), len(kept)) == (9, 3)


def test_inspect_shows_the_failure_table(run: Run, write: Write, nvrtc: str) -> None:
    """Of one entry with checks its mode, and code, file, line, function and format of each check."""
    source = write({"scatter.cu": _CHECKED}) / "scatter.cu"
    assert run("warm", source, *_TARGET, "--checks", "async").code == 0
    (row,) = run("--json", "inspect", "scatter.cu").document["outcomes"]
    place = {"file": None, "line": 5, "function": "scatter"}
    assert (row["checks"], row["failure_table"]) == ("async", [{"code": 0, **place, "message": "%d of %d"}])
    lines = [" ".join(line.split()) for line in run("inspect", row["key"][:12]).out.splitlines()]
    assert {"checks async", "0 5 scatter %d of %d"} <= set(lines)
    assert run("warm", source, "--target", "cuda:sm_90").code == 0
    (none,) = run("--json", "inspect", "scatter.cu", "--target", "cuda:sm_90").document["outcomes"]
    assert (none["checks"], none["failure_table"]) == ("none", [])


def test_why_names_the_mode(run: Run, write: Write, nvrtc: str) -> None:
    """A miss for another mode is a changed key, and the mode is the one field that changed."""
    source = write({"scatter.cu": _CHECKED}) / "scatter.cu"
    assert run("warm", source, *_TARGET, "--checks", "async").code == 0
    answer = run("--json", "inspect", "--why", source, *_TARGET, "--checks", "sync")
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["verdict"]) == (3, "key-changed")
    assert [one["field"] for one in row["differences"]] == ["checks"]


def test_a_manifest_names_the_mode(run: Run, write: Write, nvrtc: str) -> None:
    """The manifest decides unless --checks is given."""
    folder = write(
        {"scatter.cu": _CHECKED, "w.toml": '[[program]]\nsource = "scatter.cu"\nchecks = "async"\n'}
    )
    own = run("--json", "warm", "--manifest", folder / "w.toml", *_TARGET)
    other = run("--json", "warm", "--manifest", folder / "w.toml", *_TARGET, "--checks", "none")
    variants = [row["variant"] for answer in (own, other) for row in answer.document["outcomes"]]
    assert variants == ["checks=async", ""]


def test_a_wrong_check_fails_its_program(run: Run, write: Write, nvrtc: str) -> None:
    """The message has the line and the mistake; without checks the program is built."""
    source = write({"scatter.cu": _CHECKED.replace('"%d of', '"%s of')}) / "scatter.cu"
    assert run("warm", source, *_TARGET).code == 0
    answer = run("--json", "warm", source, *_TARGET, "--checks", "async")
    (row,) = answer.document["outcomes"]
    assert (answer.code, row["result"]) == (3, "failed")
    assert row["reason"].startswith("the check in line 5 cannot be reported: its format has '%s'")


def test_bench_shows_what_checks_cost(run: Run, intel: str) -> None:
    """Every kernel of the suite, the means, and the paper's means next to them."""
    answer = run("bench", "--checks", "--target", intel, "--runs", "1")
    assert answer.code == 0
    for word in (
        "gather",
        "scatter",
        "stencil",
        "reduce",
        "scan",
        "steps",
        "Geometric mean",
        "1.61x to 1.66x",
    ):
        assert word in answer.out
