"""Killing any writer at any moment loses at most what it was writing, and blocks nobody."""

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

_PROCESS = Path(__file__).with_name("killed_process.py")
_MEMORY = Path("/dev/shm")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(sys.platform != "linux", reason="counts system calls as Linux does"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory, where there is one: what a dead process leaves does not depend on the disk."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def _said(*words: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, _PROCESS, *map(str, words)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=4 * PATIENCE_S,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_process_killed_at_any_system_call_loses_its_own_entry_at_most(place: Path) -> None:
    """No entry is damaged or lost, no lock is held, what is left is swept, and the next run succeeds."""
    said = _said("calls", place, trials(5, 1))
    tell(
        "kill -9 before each system call of 13 operations",
        sum(said["trials"].values()),
        len(said["problems"]),
    )
    assert said["problems"] == []
    assert len(said["trials"]) == 13


def test_writers_killed_at_random_moments_spoil_nothing_for_others(place: Path) -> None:
    """Others go on reading: every entry is sound or not there, and no lock outlives its holder."""
    said = _said("moments", place, trials(200, 10_000), 1)
    tell("kill -9 of one of 4 writers at random moments", said["trials"]["kills"], len(said["problems"]))
    tell("reads by 2 readers meanwhile", said["trials"]["reads"], len(said["problems"]))
    assert said["problems"] == []
    assert said["trials"]["reads"] > 0
