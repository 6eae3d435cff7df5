"""Process groups that the kernel ends together with this process, however this process ends.

A group is a child and what it starts in turn, such as the linker that a compiler runs. ``PR_SET_PDEATHSIG``
reaches the child alone. So the child holds the reading end of a pipe of which this process holds the writing
end: when that is closed, also by a kill, Linux sends SIGKILL to the whole group, which ``F_SETOWN`` and
``F_SETSIG`` of fcntl(2) ask for. What leaves the group, as a daemon does, is not reached. Other systems
have no such signal. Must not know what runs in a group.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

if sys.platform == "linux":
    import fcntl


@contextmanager
def tether() -> Iterator[int | None]:
    """A descriptor to be passed to children and ``tied`` to a group; None where that is not to be had."""
    if sys.platform != "linux":
        yield None
        return
    try:
        held, writing = os.pipe()
    except OSError:
        yield None
        return
    try:
        yield held
    finally:
        os.close(held)
        os.close(writing)


def tie(held: int, group: int) -> None:
    """Have a group killed when the process that made the tether is gone; it must not be gone yet.

    One tether holds one group: the last that was tied.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(held, fcntl.F_SETOWN, -group)
            fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(held, fcntl.F_SETFL, fcntl.fcntl(held, fcntl.F_GETFL) | os.O_ASYNC)


def tie_own(held: int) -> None:
    """In a child: have its own group killed, by a tether that other children hold as well.

    The descriptor is replaced by one of this child's own, which what it starts inherits.
    """
    with suppress(OSError):  # without /proc there is none
        own = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK)
        os.dup2(own, held, inheritable=True)
        os.close(own)
        tie(held, os.getpgrp())


def kill_group(leader: int) -> None:
    """Kill a group; nothing where it has ended. Its leader must be a child that nobody has waited for."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)
