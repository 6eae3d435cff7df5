"""How long a test waits for an event, on a machine that is as loaded as can be."""

import time
from collections.abc import Callable

PATIENCE_S = 900.0
"""Beyond this something hangs. No test may pass or fail by a duration."""

TIME_OUT_MS = "600000"
"""The longest time that a program below ``run`` can be made to wait for an answer; more is refused."""


def wait_until(reached: Callable[[], bool]) -> None:
    """Wait until another process has done something."""
    limit = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < limit, "it never happened"
        time.sleep(0.01)
