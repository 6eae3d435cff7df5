"""What the process says of the whole."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says of the whole."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    FINDINGS = 3
    NOTHING_ATTEMPTED = 4
    CACHE_UNUSABLE = 5
    INTERRUPTED = 130
