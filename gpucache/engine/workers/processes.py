"""How a worker process starts, and how its end is noticed.

Owns four things: no worker is started if none can start; a file of the current directory is never imported in
place of one of Python's own; everything that a worker started ends with it; and two ends are noticed that the
pool (pebble) does not see: a worker dies before the pool has read which item it took, or its compiler calls
``exit(0)``. Must not know what items are.
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context, reduction, resource_tracker
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gpucache.errors import WorkersError
from gpucache.host.process_groups import kill_group

if sys.platform != "win32":
    from multiprocessing.popen_spawn_posix import Popen

_START_S = 60.0
# -P: nothing is imported from the current directory.
_TRY = ("-P", "-c", "import multiprocessing.synchronize")
# No process has this status: it means one that ended with 0 in the middle of an item.
_SILENT = 256
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

    Without this the pool would try again and again, each time with a traceback on the terminal.
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
    """Start multiprocessing's tracker, which removes what killed processes leave, without its warnings.

    It ignores the signals that end a process, except the one of a closed terminal, which is blocked here.
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

    A umask that takes permissions from the owner is changed, as they could not open the pool's semaphores.
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


@contextmanager
def at_item(place: Path, index: int) -> Iterator[None]:
    """In a worker: keep a file that names this process and its item, as long as it works on it."""
    mark = _mark(place, os.getpid())
    with suppress(OSError):  # without the mark some ends go unnoticed, but the item is worked on
        mark.write_text(str(index), encoding="ascii")
    try:
        yield
    finally:
        with suppress(OSError):
            mark.unlink()


def _mark(place: Path, pid: int | None) -> Path:
    return place / f"at-{pid}"


class Inherited:
    """Passes a descriptor to a worker: pickled, it becomes the number of the worker's copy."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., int], tuple[Any]]:
        return _number, (reduction.DupFd(self.descriptor),)


def _number(passed: Any) -> int:
    return int(passed.detach())


class Spawning:
    """The multiprocessing context of a pool: ``spawn``, with processes whose every end is noticed."""

    def __init__(self, place: Path, has_begun: Callable[[int], bool]) -> None:
        self.place = place
        self.has_begun = has_begun
        """Whether the pool knows that an item was taken."""
        self.over = False
        """Whether the pool is being ended, so that a dead process counts as dead."""
        self._spawn = get_context("spawn")

    def Process(self, **arguments: Any) -> "_Worker":  # noqa: N802 - multiprocessing's name
        """A process that has not been started."""
        worker = _Worker(**arguments)
        worker.spawning = self
        return worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spawn, name)


if sys.platform != "win32":

    class _Group(Popen):
        """A worker's process, whose children end with it."""

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            # Until somebody has waited for it, no other group can have its number.
            if self.returncode is None and hasattr(os, "waitid"):
                with suppress(OSError):
                    if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | (flag & os.WNOHANG)):
                        kill_group(self.pid)
            return super().poll(flag)

        def terminate(self) -> None:
            if self.returncode is None:
                kill_group(self.pid)
            super().terminate()


class _Worker(SpawnProcess):
    """A worker as the process of the pool sees it."""

    spawning: Spawning | None = None

    if sys.platform != "win32":

        @staticmethod
        def _Popen(process_obj: BaseProcess) -> _Group:  # noqa: N802 - multiprocessing's name
            return _Group(process_obj)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "spawning"}

    def is_alive(self) -> bool:
        """Whether it lives, or died of an item before the pool has read that it took this item.

        The pool asks this and reads its pipe in two threads, and would lose such an item.
        """
        if super().is_alive():
            return True
        index, spawning = self._item(), self.spawning
        return index is not None and spawning is not None and not (spawning.over or spawning.has_begun(index))

    @property
    def exitcode(self) -> int | None:
        """The status; a special one for 0 in the middle of an item, which the pool takes for success."""
        status = super().exitcode
        return _SILENT if status == 0 and self._item() is not None else status

    def _item(self) -> int | None:
        if self.spawning is None:
            return None
        try:
            return int(_mark(self.spawning.place, self.pid).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
