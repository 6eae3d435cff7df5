"""What missed: looked up later, and refused at once where a hit is required."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpucache.store import DirectoryStore

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
    """With --since older ones are left out, and both forms say the same."""
    document = run("inspect", "--misses", "--since", "1h", "--json").document
    assert [row["program"] for row in document["outcomes"]] == ["new.cu"]
    assert document["summary"]["count"] == 1
    assert "old.cu" not in run("inspect", "--misses", "--since", "1h").out
    assert len(run("inspect", "--misses", "--since", "2d", "--json").document["outcomes"]) == 2


def test_the_state_shows_what_processes_counted(run: Run, journal: DirectoryStore) -> None:
    """The last processes stand below the last misses, with their command's name and both counts."""
    assert "now  solver.py: 3 hits, 1 miss" in run("inspect").out
    (row,) = run("inspect", "--json").document["summary"]["processes"]
    assert (row["command"], row["hits"], row["misses"]) == ("solver.py", 3, 1)


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
    """What is in the cache is served as ever."""
    answer = run("warm", mixed.sources / "twice.cu", "--target", nvrtc, "--json")
    assert (answer.code, answer.document["summary"]["hit"]) == (0, 1)
