"""How long a test waits for an event, on a machine that is as loaded as can be."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

PATIENCE_S = 900.0
"""Beyond this something hangs. No test may pass or fail by a duration."""

TIME_OUT_MS = "600000"
"""The longest time that a program below ``run`` can be made to wait for an answer; more is refused."""


def wait_until(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.01)


def tick(folder: Path) -> None:
    """Wait until a change gets a later time than all that is in a directory: file systems' clocks step."""
    newest = max(one.lstat().st_ctime_ns for one in (folder, *folder.rglob("*")))
    with TemporaryDirectory(dir=folder.parent) as place:
        while Path(place).stat().st_ctime_ns <= newest:
            os.utime(place)
