"""Misses: looked up later, and refused at once if a hit is required."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.model import BuildRequest, CacheKey, Language, Program, Target
from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import MissedRequest

if TYPE_CHECKING:
    from tests.cli.conftest import Filled, Run

HOUR_NS = 3600 * 10**9


@pytest.fixture
def journal(root: Path) -> DirectoryStore:
    """Two misses, one of them of yesterday, and the counts of a process."""
    store = DirectoryStore(root, writable=True)
    now = time.time_ns()
    miss = {"kind": "miss", "target": "cuda:sm_90", "verdict": "never-built", "detail": "words"}
    store.journal({**miss, "program": "old.cu", "when_ns": now - 24 * HOUR_NS})
    store.journal({**miss, "program": "new.cu", "when_ns": now})
    store.journal({"kind": "process", "when_ns": now, "command": "solver.py", "hits": 3, "misses": 1})
    return store


def test_misses_are_listed_newest_first(run: Run, journal: DirectoryStore) -> None:
    """Only misses are listed, each with its age, program, target and verdict."""
    lines = run("inspect", "--misses").out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "Last misses",
        "now new.cu for cuda:sm_90: never-built: words",
        "1 d ago old.cu for cuda:sm_90: never-built: words",
    ]


def test_since_bounds_the_misses(run: Run, journal: DirectoryStore) -> None:
    """With --since older ones are left out, in both forms."""
    document = run("inspect", "--misses", "--since", "1h", "--json").document
    assert [row["program"] for row in document["outcomes"]] == ["new.cu"]
    assert document["summary"]["count"] == 1
    assert "old.cu" not in run("inspect", "--misses", "--since", "1h").out
    assert len(run("inspect", "--misses", "--since", "2d", "--json").document["outcomes"]) == 2


def test_the_state_shows_what_processes_counted(run: Run, journal: DirectoryStore) -> None:
    """The last processes are listed below the last misses, with their command's name and both counts."""
    assert "now  solver.py: 3 hits, 1 miss in 1 start\n" in run("inspect").out
    (row,) = run("inspect", "--json").document["summary"]["processes"]
    assert (row["command"], row["hits"], row["misses"]) == ("solver.py", 3, 1)


def test_a_miss_that_repeats_is_told_once(run: Run, root: Path) -> None:
    """The newest is shown with their number, and ten lines show ten different misses."""
    store = DirectoryStore(root, writable=True)
    now = time.time_ns()
    miss = {"kind": "miss", "target": "cuda:sm_90", "verdict": "key-changed"}
    for hours in range(9, 0, -1):
        told = {"key": "a" * 64, "detail": f"another header (nearest: 0123456789ab, built {hours} h ago)"}
        store.journal({**miss, **told, "program": "again.cu", "when_ns": now - hours * HOUR_NS})
        own = {"program": f"{hours}.cu", "key": f"{hours:064x}", "detail": "another option"}
        store.journal({**miss, **own, "when_ns": now - hours * HOUR_NS})
        stamped = {"program": "stamp.cu", "key": f"{hours + 99:064x}", "detail": "nothing is kept of it"}
        store.journal({**miss, **stamped, "when_ns": now - hours * HOUR_NS})
    lines = run("inspect", "--misses").out.splitlines()[1:]
    assert lines[0] == "   1 h ago  stamp.cu for cuda:sm_90, 9 times: key-changed: nothing is kept of it"
    assert len(lines) == 10 and sum("again.cu for cuda:sm_90, 9 times: " in line for line in lines) == 1
    assert "built 1 h ago" in next(line for line in lines if "again.cu" in line)
    assert len(run("inspect", "--misses", "--json").document["outcomes"]) == 27


def test_the_overview_is_brief_and_misses_is_whole(run: Run, root: Path) -> None:
    """The overview has the first difference; --misses, -v and the document have all."""
    detail = "types.h changed; driver 1 -> 2 (nearest: 3b450d5a60bf, built just now)"
    miss = {"kind": "miss", "program": "k.cu", "target": "cuda:sm_90", "verdict": "key-changed"}
    DirectoryStore(root, writable=True).journal({**miss, "detail": detail, "when_ns": time.time_ns()})
    assert "key-changed: types.h changed; and 1 more\n" in run("inspect").out
    assert all(detail in run("inspect", word).out for word in ("--misses", "-v", "--json"))


def test_noted_builds_are_told_while_they_wait(run: Run, root: Path) -> None:
    """A noted miss that was built since is no longer called noted, whatever its journal line says."""
    store = DirectoryStore(root, writable=True)
    miss = {"kind": "miss", "program": "late.cl", "verdict": "never-built", "detail": "words", "noted": True}
    store.journal({**miss, "when_ns": time.time_ns()})
    program = Program("late.cl", Language.OPENCL_C, b"kernel void f() {}")
    key = CacheKey("a" * 64)
    store.missed.note(MissedRequest(key, time.time_ns(), "app", BuildRequest(program, Target("opencl", "x"))))
    told = "1 build is noted for which programs did not wait: 'gpucache warm --misses' makes them"
    assert told in run("inspect", "--misses").out and told in run("inspect").out
    store.journal({**miss, "verdict": "poisoned", "when_ns": time.time_ns()})
    assert "'gpucache warm --misses --retry' makes them" in run("inspect", "--misses").out
    store.missed.forget(key)
    assert "warm --misses" not in run("inspect", "--misses").out + run("inspect").out


@pytest.fixture
def required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCACHE_REQUIRE", "1")


def test_a_required_hit_that_misses_ends_warm(
    run: Run, required: None, no_workers: None, cache: Path, mixed: Filled, nvrtc: str
) -> None:
    """The first miss is exit 3 with program, verdict and field in one sentence, and nothing is compiled."""
    answer = run("warm", mixed.sources / "twice.cu", "--target", nvrtc, "-D", "NEW")
    assert (answer.code, answer.out) == (3, "")
    (sentence,) = (line for line in answer.err.splitlines() if line.startswith("gpucache: "))
    assert sentence.startswith(
        f"gpucache: twice.cu for {nvrtc} is not in the cache, and GPUCACHE_REQUIRE is set: key-changed: "
    )
    assert "the option -DNEW=1 is new" in sentence


def test_a_required_hit_is_a_hit(
    run: Run, required: None, no_workers: None, cache: Path, mixed: Filled, nvrtc: str
) -> None:
    """The content of the cache is served as usual."""
    answer = run("warm", mixed.sources / "twice.cu", "--target", nvrtc, "--json")
    assert (answer.code, answer.document["summary"]["hit"]) == (0, 1)
