"""``gpucache inspect`` at a glance: caches by size, and the stale entries that evict finds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.answers import inspect as text
from tests.children import run_text
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Run

DAY_NS = 86_400 * 10**9
BUILD = """
import sys, pyopencl as cl
(device,) = [one for it in cl.get_platforms() for one in it.get_devices() if "Intel" in it.name][:1]
cl.Program(cl.Context([device]), "__kernel void f(__global int *a) { *a = %s; }" % sys.argv[1]).build()
"""


def _age(folder: Path, days: int) -> None:
    """Let everything in a directory be made and, right afterwards, last used so many days ago."""
    then = time.time_ns() - days * DAY_NS
    for path in (folder, *folder.rglob("*")):
        os.utime(path, ns=(then, then - 1))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, vendors: Path, intel: str) -> Path:
    """The cache directory of a user in which PyOpenCL built two programs for Intel's CPU runtime."""
    folder = tmp_path_factory.mktemp("overview")
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "OCL_ICD_VENDORS": str(vendors)}
    for number in ("1", "2"):
        command = [sys.executable, "-W", "ignore", "-c", BUILD, number]
        subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S, capture_output=True)
    return folder / "pyopencl"


@pytest.fixture
def upgraded(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with the directory of a Python version that no program has any more, which is returned."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("POCL_CACHE_DIR", raising=False)
    shutil.copytree(filled, tmp_path / "pyopencl")
    (own,) = (tmp_path / "pyopencl").iterdir()
    old = tmp_path / "pyopencl" / "pyopencl-compiler-cache-v2-py2.9.1.final.0"
    shutil.copytree(own, old)
    shutil.rmtree(next(one for one in old.iterdir() if one.is_dir()))
    _age(old, 40)
    return old


def test_what_a_python_left_that_is_gone_is_counted_apart(run: Run, upgraded: Path) -> None:
    """The document has its entries and bytes next to those of the cache in use."""
    summary = run("--json", "inspect").document["summary"]
    of = {one["role"]: one for one in summary["caches"] if one["cache"] == "pyopencl"}
    gone, used = of.pop("Python 2.9.1"), next(iter(of.values()))
    assert (gone["stale_entries"], used["stale_entries"]) == (1, 0)
    assert gone["stale_bytes"] == gone["size_bytes"] == summary["total_stale_bytes"] > 0
    assert gone["stale_why"] == ["Python 2.9.1 alone reads it and is not on this machine, unused for 40 d"]
    assert summary["total_bytes"] >= gone["size_bytes"] + used["size_bytes"]


def test_inspect_has_the_command_that_lists_the_same_entries(run: Run, upgraded: Path) -> None:
    """The promised size is what a dry run of that command would free, entry by entry."""
    told = run("--json", "inspect").document["summary"]
    assert f" stale: '{text.EVICT_STALE}'\n" in run("inspect").out
    answer = run("--json", *text.EVICT_STALE.split()[1:])
    assert answer.document["summary"]["would_free_bytes"] == told["total_stale_bytes"]
    assert [row["cache"] for row in answer.document["outcomes"]] == ["pyopencl"]
    (left,) = (one.name for one in upgraded.iterdir() if one.is_dir())
    assert answer.document["outcomes"][0]["key"] == left


def test_without_anything_stale_nothing_is_said_of_it(run: Run, upgraded: Path) -> None:
    """A cache that was used within a month has a reader, wherever that is."""
    _age(upgraded, 2)
    answer = run("inspect")
    assert "stale:" not in answer.out
    assert run("--json", *text.EVICT_STALE.split()[1:]).document["outcomes"] == []


def test_a_reader_that_is_gone_is_named_where_no_use_is_recorded(run: Run, upgraded: Path) -> None:
    """Nothing is stale then, so that no other sentence has it."""
    named = ("inspect", "--cache", f"pyopencl:{upgraded}")
    assert "Python 2.9.1, which" not in run(*named).out
    for path in upgraded.rglob("*"):
        os.utime(path, ns=(path.stat().st_mtime_ns,) * 2)
    assert run("--json", *text.EVICT_STALE.split()[1:]).document["outcomes"] == []
    assert "Python 2.9.1, which" in run(*named).out


def test_verify_tells_of_them_too(run: Run, upgraded: Path) -> None:
    """An entry that evict --stale removes is a stale finding of verify."""
    findings = run("--json", "verify", "--cache", f"pyopencl:{upgraded}").document["outcomes"]
    assert "stale" in {one["kind"] for one in findings}


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of so many columns is a pseudo-terminal")
def test_the_table_fits_80_columns_by_size(run: Run, upgraded: Path, root: Path) -> None:
    """On a terminal places are shortened in their middle; the largest comes first, unused ones separately."""
    script = shutil.which("script")
    if script is None:
        pytest.skip("script(1) makes the terminal, and is not installed")
    root.mkdir(0o700)
    command = f"stty cols 80; {sys.executable} -m gpucache --root {root} inspect"
    done = run_text(
        [script, "-qec", command, os.devnull],
        env={**os.environ, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        check=True,
    )
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in done.stdout.splitlines()]
    table = lines[next(at for at, line in enumerate(lines) if re.match("cache +entries", line)) :]
    assert max(map(len, table)) <= 80
    heading = next(at for at, line in enumerate(table) if line.startswith("Stale caches"))
    used, dead = "\n".join(table[:heading]), "\n".join(table[heading:])
    assert used.index("pyopencl") < used.index("gpucache") and "2.9.1" not in used
    assert "pyopencl (Python 2.9.1)" in dead and "\N{HORIZONTAL ELLIPSIS}" in dead


def test_a_size_over_several_caches_bounds_their_sum(run: Run, upgraded: Path, root: Path) -> None:
    """The dry run lists the removals of each cache, and a real one leaves at most 80 % of the size."""
    root.mkdir(0o700)
    named = ("evict", "--cache", "pyopencl", "--cache", "gpucache")
    everything = run("--json", *named, "--all", "--dry-run").document["summary"]
    limit = everything["would_free_bytes"] - 1
    asked = (*named, "--max-size", f"{limit}B")
    planned = run("--json", *asked, "--dry-run").document
    of_each = run(*asked, "--dry-run").out.rpartition("would stay (")[2]
    assert "pyopencl (Python 2.9.1)" in of_each and "gpucache" in of_each
    answer = run("--json", *asked)
    assert [row["key"] for row in answer.document["outcomes"]] == [row["key"] for row in planned["outcomes"]]
    assert 0 < answer.document["summary"]["kept_bytes"] <= 0.8 * limit
    # The entry unused for forty days is worth the least.
    assert not any(one.is_dir() for one in upgraded.glob("*"))


def test_what_a_start_of_pocl_leaves_is_a_note(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table comes first; empty files of a sound cache are not a warning, but a note below it."""
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "pocl"))
    (tmp_path / "pocl").mkdir()
    for number in range(11):
        (tmp_path / "pocl" / f"tempfile_abcde{chr(ord('a') + number)}").touch()
    _age(tmp_path / "pocl", 1)
    lines = run("inspect").out.splitlines()
    assert lines[0].startswith("cache")
    assert any(line.startswith("note: pocl: ") for line in lines)
