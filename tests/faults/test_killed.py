"""Killing any writer at any moment loses at most the entry being written, and blocks no process."""

import sys
from pathlib import Path

import pytest

from tests.faults.conftest import said
from tests.trials import tell, trials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(sys.platform != "linux", reason="counts system calls as Linux does"),
]


def test_a_process_killed_at_any_system_call_loses_its_own_entry_at_most(place: Path) -> None:
    """No entry is damaged or lost, no lock is held, leftovers are swept, and the next run succeeds."""
    told = said("killed_process", "calls", place, trials(5, 1))
    tell(
        "kill -9 before each system call of 13 operations",
        sum(told["trials"].values()),
        len(told["problems"]),
    )
    assert told["problems"] == []
    assert len(told["trials"]) == 13


def test_writers_killed_at_random_moments_spoil_nothing_for_others(place: Path) -> None:
    """Others go on reading: every entry is sound or missing, and no lock outlives its holder."""
    told = said("killed_process", "moments", place, trials(200, 10_000), 1)
    tell("kill -9 of one of 4 writers at random moments", told["trials"]["kills"], len(told["problems"]))
    tell("reads by 2 readers meanwhile", told["trials"]["reads"], len(told["problems"]))
    assert told["problems"] == []
    assert told["trials"]["reads"] > 0
