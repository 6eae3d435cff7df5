"""Process groups that the kernel kills when this process ends, however it ends.

A group is a child and its descendants, such as the linker that a compiler runs. ``PR_SET_PDEATHSIG``
reaches the child alone. So the child keeps the reading end of a pipe whose writing end this process
keeps. When the writing end is closed, which a kill does as well, Linux sends SIGKILL to the whole group:
``F_SETOWN`` and ``F_SETSIG`` of fcntl(2) ask for that. A process that leaves the group, as a daemon does, is
not reached. Other systems have no such signal. The child asks for the signal before it runs its program: if
this process is killed while it starts a child, that ends, too. Must not know the programs of a group.

Also runs a user's command once in its own group, timed from outside: its output is hashed and not shown, its
failure is reported, and none of its processes runs on after its time limit or after this process.
"""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO

from gpucache.errors import CommandError
from gpucache.host.interrupts import held

if sys.platform == "linux":
    import fcntl


_BETWEEN_S = 0.1


def start_group(
    argv: Sequence[str],
    ends: ExitStack,
    *,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    env: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a child in a new session, whose group is killed when this process or the block ends.

    Raises OSError and ValueError.
    """
    line = ends.enter_context(exit_pipe())
    # The child has a copy of the pipe's writing end until it runs its program, so the signal cannot
    # arrive before the child has asked for it.
    arm = None if line is None else partial(_kill_on_exit, line)
    child = subprocess.Popen(
        list(argv),
        env=env,
        stdin=stdin,
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
    if sys.platform != "linux":
        return
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


_TAIL_BYTES = 2000
_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run of a command."""

    duration_ns: int
    error: str
    """How it failed, with its last lines on stderr; empty if it did not."""
    output: str
    """SHA-256 of its standard output."""
    cpu_ns: int = 0
    """User CPU time of the command and of the children that it waited for; 0 on Windows."""


def run_command(argv: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> CommandRun:
    """Run a command to its end; raises CommandError if it cannot be started."""
    import tempfile  # of which the server of a command needs nothing

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        used_s, started = os.times().children_user, time.perf_counter_ns()
        with ExitStack() as ends:
            with held():  # an interrupt waits until ``ends`` knows the process to end
                process = _start(argv, environ, out, err, ends)
            try:
                code: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            duration_ns = time.perf_counter_ns() - started
        cpu_ns = round((os.times().children_user - used_s) * 1e9)
        out.seek(0)
        digest = hashlib.file_digest(out, "sha256").hexdigest()
        return CommandRun(duration_ns, _error(code, timeout_s, err), digest, cpu_ns)


def run_prepare(command: str, environ: Mapping[str, str], timeout_s: float) -> str:
    """Run a shell command before a start; returns how it failed, or an empty text."""
    run = run_command(("sh", "-c", command), environ, timeout_s)
    return f"the preparation {shlex.quote(command)} failed: {run.error}" if run.error else ""


def _start(
    argv: Sequence[str], environ: Mapping[str, str], out: IO[bytes], err: IO[bytes], ends: ExitStack
) -> "subprocess.Popen[bytes]":
    try:
        process = start_group(argv, ends, stdout=out, stderr=err, env=dict(environ))
    except (OSError, ValueError) as error:
        raise CommandError.of(argv[0], error) from None
    ends.callback(_end, process)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the rest of its group: every process that it started and did not detach."""
    with held():
        if sys.platform == "win32":
            process.kill()
        else:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _error(code: int | None, timeout_s: float, err: IO[bytes]) -> str:
    if code == 0:
        return ""
    if code is None:
        return f"it did not end within {timeout_s:g} s"
    what = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    size = err.seek(0, os.SEEK_END)
    err.seek(max(0, size - _TAIL_BYTES))
    last = err.read().decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
    return ": ".join(filter(None, (what, "\n".join(last))))
