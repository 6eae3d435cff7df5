"""Process groups that the kernel kills when this process ends, however it ends.

A group is a child and its descendants, such as the linker that a compiler runs. ``PR_SET_PDEATHSIG``
reaches the child alone. So the child keeps the reading end of a pipe whose writing end this process
keeps. When the writing end is closed, which a kill does as well, Linux sends SIGKILL to the whole group:
``F_SETOWN`` and ``F_SETSIG`` of fcntl(2) ask for that. A process that leaves the group, as a daemon does, is
not reached. Other systems have no such signal. The child asks for the signal before it runs its program: if
this process is killed while it starts a child, that ends, too. Must not know what runs in a group.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import IO

if sys.platform == "linux":
    import fcntl


_BETWEEN_S = 0.1


def start_group(
    argv: Sequence[str],
    ends: ExitStack,
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    env: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a child in a new session, whose group is killed when this process or the block ends.

    Its standard input is empty. Raises OSError and ValueError.
    """
    line = ends.enter_context(exit_pipe())
    # The child has a copy of the pipe's writing end until it runs its program, so the signal cannot
    # arrive before the child has asked for it.
    arm = None if line is None else partial(_kill_on_exit, line)
    child = subprocess.Popen(
        list(argv),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=() if line is None else (line,),
        preexec_fn=arm,  # three system calls, which wait for no thread
    )
    yield_as_before(child.pid, tries=1)  # the caller may be timing it
    return child


@contextmanager
def exit_pipe() -> Iterator[int | None]:
    """The reading end of a pipe that closes when this process ends; None if the system has no such thing.

    Pass it to children, and in those to ``kill_own_group_on_exit``.
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


def _kill_on_exit(held: int) -> None:
    """In a child: have its own group killed when the process that made the pipe ends."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(held, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(held, fcntl.F_SETFL, fcntl.fcntl(held, fcntl.F_GETFL) | os.O_ASYNC)


def kill_own_group_on_exit(held: int) -> None:
    """In a child: have its own group killed, through a pipe that other children share.

    The descriptor is replaced by a new one for this child, which the processes it starts inherit.
    """
    with suppress(OSError):  # without /proc none exists
        own = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK)
        os.dup2(own, held, inheritable=True)
        os.close(own)
        _kill_on_exit(held)


def yield_as_before(process: int | str = "self", *, tries: int = 20) -> None:
    """Make the session that a process began yield to others according to its niceness.

    Linux can weigh sessions against each other, each by its own niceness, which begins at 0; the niceness of
    its processes then counts only inside it. Users other than root may change one every tenth of a second;
    the call waits for that up to ``tries`` times.
    """
    if sys.platform != "linux":
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0 if process == "self" else int(process))
    if nice <= 0:
        return
    for _ in range(tries):
        try:
            with open(f"/proc/{process}/autogroup", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(str(nice))
        except BlockingIOError:  # another was changed just now
            time.sleep(_BETWEEN_S)
        except OSError:
            return
        else:
            return


def kill_group(leader: int) -> None:
    """Kill a group, if it has not ended. Its leader must be a child that has not been waited for."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)
