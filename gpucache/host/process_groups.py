"""Process groups that the kernel kills when this process ends, however it ends.

A group is a child and what that starts in turn, such as the linker that a compiler runs. ``PR_SET_PDEATHSIG``
reaches the child alone. So the child holds the reading end of a pipe whose writing end this process
holds. When the writing end is closed, which a kill does as well, Linux sends SIGKILL to the whole group:
``F_SETOWN`` and ``F_SETSIG`` of fcntl(2) ask for that. A process that leaves the group, as a daemon does, is
not reached. Other systems have no such signal. Must not know what runs in a group.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

if sys.platform == "linux":
    import fcntl


@contextmanager
def exit_pipe() -> Iterator[int | None]:
    """The reading end of a pipe that closes when this process ends; None if the system has no such thing.

    Pass it to children, then to ``kill_on_exit``.
    """
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


def kill_on_exit(held: int, group: int) -> None:
    """Have a group killed when the process that made the pipe ends. That process must still be running.

    One pipe serves one group: the last that was given.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(held, fcntl.F_SETOWN, -group)
            fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(held, fcntl.F_SETFL, fcntl.fcntl(held, fcntl.F_GETFL) | os.O_ASYNC)


def kill_own_group_on_exit(held: int) -> None:
    """In a child: have its own group killed, by a pipe that other children hold as well.

    The descriptor is replaced by one of this child's own, which the processes it starts inherit.
    """
    with suppress(OSError):  # without /proc there is none
        own = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK)
        os.dup2(own, held, inheritable=True)
        os.close(own)
        kill_on_exit(held, os.getpgrp())


def kill_group(leader: int) -> None:
    """Kill a group, if it has not ended. Its leader must be a child that nobody has waited for."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)
