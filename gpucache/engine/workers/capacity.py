"""How many workers this machine has room for: how many at once, with how much memory each, and when.

Owns the reading of cores and free memory, in containers as well, and turns. Turns limit the workers of all
runs of a user on a host, however many are started together, as hundreds of compilers would need more memory
than there is. A turn is a name in the kernel (an abstract Unix socket), which is freed with the process that
holds it. Processes in another container have names of their own; other systems have no such names. Must not
know what workers do.
"""

import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_WORKER_BYTES = 1024**3
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
# For both versions of control groups: the files of limit and usage, and the label in memory.stat of the part
# of the usage that is cached files.
_MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def worker_count(items: int) -> int:
    """How many workers suit the usable cores, the free memory and the number of items."""
    return max(1, min(items, cores(), free_bytes() // _WORKER_BYTES))


def memory_share(jobs: int) -> int | None:
    """One worker's share, in bytes, of three quarters of the free memory; None if that is not known."""
    free = free_bytes()
    return max(2 * _WORKER_BYTES, free * 3 // 4 // max(1, jobs)) if free < sys.maxsize else None


def cores(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """How many cores this process may use."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups("cpu", proc, groups):
        old = (*_numbers(group / "cpu.cfs_quota_us"), *_numbers(group / "cpu.cfs_period_us"))
        quota, period = _numbers(group / "cpu.max") or old or (0, 0)
        if quota > 0 and period > 0:
            own = min(own, max(1, quota // period))
    return own


def free_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """How much memory is free; ``sys.maxsize`` if that is not known."""
    free = _numbers(proc / "meminfo", "MemAvailable:")
    bytes_ = free[0] * 1024 if free else sys.maxsize
    for group in _groups("memory", proc, groups):
        for limit_name, used_name, files_name in _MEMORY:
            limit, used = _numbers(group / limit_name), _numbers(group / used_name)
            if limit and used:  # cached files are dropped when memory is needed
                files = _numbers(group / "memory.stat", files_name) or (0,)
                bytes_ = min(bytes_, max(0, limit[0] - used[0] + files[0]))
    return bytes_


def _groups(controller: str, proc: Path, groups: Path) -> Iterator[Path]:
    """The control groups of this process and those above them, as far as they can be seen here."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = groups / controller if controllers else groups
        own = top / path.lstrip("/")
        yield own
        yield from (above for above in own.parents if above.is_relative_to(top))


def _numbers(file: Path, label: str = "") -> tuple[int, ...]:
    """The whole numbers in a file's first line, or in its line with a label; none if it has none."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    words = [line.split() for line in text.splitlines()]
    told = next((line[1:2] for line in words if line[0] == label), []) if label else (words or [[]])[0]
    try:
        return tuple(map(int, told))
    except ValueError:  # "max"
        return ()


def turn_count() -> int:
    """How many workers all runs of a user may have: more than cores, as some wait and one may hang."""
    return max(4, 2 * cores())


class Turns:
    """The turns that this process holds."""

    def __init__(self, most: int, ends: ExitStack) -> None:
        self.count = 0
        self._free = list(range(most))
        self._ends = ends

    def take(self) -> bool:
        """Take one more turn; False if all are taken."""
        for number in self._free:
            try:
                self._ends.enter_context(_held(number))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue  # after any other error turns cannot be counted here, and it counts as taken
            self._free.remove(number)
            self.count += 1
            return True
        return False


@contextmanager
def turns(wanted: int, patience_s: float | None, waiting: Callable[[], None]) -> Iterator[Turns]:
    """Wait for a turn, and take as many more as are wanted and free; all at once if ``patience_s`` is None.

    ``waiting`` is called now and then meanwhile. If the same turns are held for ``patience_s`` seconds, this
    goes on without one: the processes that hold them may have been stopped.
    """
    with ExitStack() as ends:
        held, pause_s = Turns(max(wanted, turn_count()), ends), _FIRST_PAUSE_S
        if patience_s is None:
            held.count = wanted
            yield held
            return
        limit_s, holders = time.monotonic() + patience_s, _holders()
        while not held.take() and time.monotonic() < limit_s:
            waiting()
            if (now := _holders()) != holders:
                limit_s, holders = time.monotonic() + patience_s, now
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        while 0 < held.count < wanted and held.take():
            pass
        held.count = max(1, held.count)
        yield held


def _holders() -> frozenset[str]:
    """A line for every turn that is held, with the number of its socket; none if the kernel lists none."""
    try:
        lines = (PROC / "net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line for line in lines if f" @{_name('')}" in line)


def _name(number: int | str) -> str:
    return f"gpucache-worker-{os.getuid()}-{number}"


def _held(number: int) -> socket.socket:
    if sys.platform != "linux":
        raise OSError("no names that go with their process are known here")
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0{_name(number)}")
    except OSError:
        held.close()
        raise
    return held
