"""How a worker process starts, and which processes end with it.

Owns three things: no worker is started if none can start; a file of the current directory is never imported
in place of one of Python's own; every process that a worker started ends with it. Must not know items.
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import reduction, resource_tracker
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any

from gpucache.errors import WorkersError
from gpucache.host.process_groups import kill_group

if sys.platform != "win32":
    from multiprocessing.popen_spawn_posix import Popen

_START_S = 60.0
# -P: nothing is imported from the current directory.
_TRY = ("-P", "-c", "import multiprocessing.connection, pickle, struct")
PROCESSES = "raise the limit of processes (ulimit -u) or end some"
_REMEDIES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the machine",
    errno.EAGAIN: PROCESSES,
    errno.ENOMEM: "free some memory",
    errno.ENOSPC: "make room for files in the temporary folder (TMPDIR) and in /dev/shm",
    errno.ENOENT: "set TMPDIR to a folder that exists and can be written",
}
_REMEDY = (
    "check that this user can run Python and write to the temporary folder (TMPDIR) and /dev/shm, "
    "and the limits of processes and memory (ulimit -a)"
)


@cache
def require_start() -> None:
    """Start Python as a worker would be started, once in this process; raises WorkersError if that fails.

    Without this each worker would leave a traceback on the terminal.
    """
    try:
        done = subprocess.run(
            [sys.executable, *_TRY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_START_S,
        )
    except OSError as error:
        raise unstartable(error) from None
    except subprocess.TimeoutExpired:
        raise unstartable(f"Python did not start within {_START_S:g} s") from None
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        raise unstartable(last or f"Python ended with status {done.returncode}")
    if os.name == "posix":
        _start_silent_tracker()


def _start_silent_tracker() -> None:
    """Start multiprocessing's tracker, which cleans up after killed processes, without its warnings.

    It ignores the signals that end a process, except that of a closed terminal, which this blocks.
    """
    try:
        with _variable("PYTHONWARNINGS", "ignore"), deaf_children("SIGHUP"):
            resource_tracker.ensure_running()
    except OSError as error:
        raise unstartable(error) from None


def unstartable(why: BaseException | str) -> WorkersError:
    """The error for workers that cannot be started, with the remedy."""
    number = why.errno if isinstance(why, OSError) else None
    return WorkersError(f"no worker process can be started ({why}); {_REMEDIES.get(number or 0, _REMEDY)}")


@contextmanager
def startable() -> Iterator[None]:
    """Workers that are started meanwhile import nothing from the current directory.

    A umask that takes permissions from the owner is changed, as they could not use their directories.
    Raises WorkersError if none can be started.
    """
    mask = os.umask(0)
    os.umask(mask & 0o077)
    try:
        with _variable("PYTHONSAFEPATH", "1"):
            require_start()
            yield
    finally:
        os.umask(mask)


@contextmanager
def deaf_children(name: str) -> Iterator[None]:
    """Processes and threads that are started meanwhile have a signal blocked, for their whole life."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {getattr(signal, name)})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


class Inherited:
    """Passes a descriptor to a worker: pickled, it becomes the number of the worker's copy."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any]]:
        return _number, (reduction.DupFd(self.descriptor),)


def _number(passed: Any) -> int:
    return int(passed.detach())


if sys.platform != "win32":

    class _Group(Popen):
        """A worker's process, whose children end with it."""

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            # Until its parent has waited for it, no other group can have its number.
            if self.returncode is None and hasattr(os, "waitid"):
                with suppress(OSError):
                    if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | (flag & os.WNOHANG)):
                        kill_group(self.pid)
            return super().poll(flag)

        def terminate(self) -> None:
            if self.returncode is None:
                kill_group(self.pid)
            super().terminate()


class WorkerProcess(SpawnProcess):
    """A process that is spawned, and everything that it starts."""

    if sys.platform != "win32":

        @staticmethod
        def _Popen(process_obj: BaseProcess) -> _Group:  # noqa: N802 - multiprocessing's name
            return _Group(process_obj)
