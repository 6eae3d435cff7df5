"""Pushes and pulls that are killed, and many at once: readers see whole entries or none, and all arrive."""

import os
import sys
from pathlib import Path

import pytest

from tests.faults.conftest import said
from tests.trials import tell, trials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="counts calls of Linux on x86-64"
    ),
]


def test_a_push_or_pull_that_is_killed_is_ended_by_the_next_one(place: Path) -> None:
    """Killed before a writing call: no half entry, no lost one, and leftovers are removed after an hour."""
    systems = trials((), ("gpucache", "triton", "cupy", "jax", "warp", "pyopencl", "taichi", "opencv"))
    told = said("moving_process", "calls", place, trials(9, 1), *systems)
    count = sum(told["trials"].values())
    tell("kill -9 before each writing call of push and pull", count, len(told["problems"]))
    assert told["problems"] == []
    assert len(told["trials"]) == 2 * (len(systems) or 3)


def test_pushes_and_pulls_at_once_lose_nothing(place: Path) -> None:
    """Catalogues are merged all the time, and a reader reads the cache being filled."""
    told = said("moving_process", "together", place, trials(30, 150), trials(1, 20))
    tell("entries pushed and pulled by 8 processes at once", told["trials"]["entries"], len(told["problems"]))
    assert told["problems"] == []


def test_pulls_into_a_cache_that_others_change_go_on(place: Path) -> None:
    """Two pulls next to removals, damage and repairs of the same entries; the next pull restores all."""
    told = said("moving_process", "contested", place, trials(20, 100), trials(4, 200))
    tell(
        "entries pulled while evict, damage and repair change them",
        told["trials"]["entries"],
        len(told["problems"]),
    )
    assert told["problems"] == []
