"""Pushes and pulls that are killed, and many at once: readers see whole entries or none, and all arrive."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.trials import tell, trials

_PROCESS = "tests.faults.moving_process"
_MEMORY = Path("/dev/shm")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="counts calls of Linux on x86-64"
    ),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory, where there is one: what a dead process leaves does not depend on the disk."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def _said(*words: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", _PROCESS, *map(str, words)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=4 * PATIENCE_S,
        cwd=Path(__file__).parents[2],
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_push_or_pull_that_is_killed_is_ended_by_the_next_one(place: Path) -> None:
    """Killed before a writing call: no half entry, no lost one, and nothing left but what an hour removes."""
    systems = trials((), ("gpucache", "triton", "cupy", "jax", "warp", "pyopencl", "taichi", "opencv"))
    said = _said("calls", place, trials(9, 1), *systems)
    count = sum(said["trials"].values())
    tell("kill -9 before each writing call of push and pull", count, len(said["problems"]))
    assert said["problems"] == []
    assert len(said["trials"]) == 2 * (len(systems) or 3)


def test_pushes_and_pulls_at_once_lose_nothing(place: Path) -> None:
    """With catalogues that are put together all the time, and a reader of a cache that is being filled."""
    said = _said("together", place, trials(30, 150), trials(1, 20))
    tell("entries pushed and pulled by 8 processes at once", said["trials"]["entries"], len(said["problems"]))
    assert said["problems"] == []


def test_pulls_into_a_cache_that_others_change_go_on(place: Path) -> None:
    """Two pulls beside removals, damage and repairs of the same entries; the next pull brings all."""
    said = _said("contested", place, trials(20, 100), trials(4, 200))
    tell("entries pulled beside evict, damage and repair", said["trials"]["entries"], len(said["problems"]))
    assert said["problems"] == []
