"""How many workers this machine has room for: how many at once, with how much memory each, and when.

Owns the reading of cores and free memory, in containers as well, and turns. Turns limit the workers of all
runs of a user on a host, however many are started together, as hundreds of compilers would need more memory
than there is. A turn is a locked file in a directory in shared memory that only this user may enter; the
kernel frees the lock with the process that has it. Processes in another container have their own
turns; other systems have none. Must not know the work of workers.
"""

import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_WORKER_BYTES = 1024**3
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
_LONGEST_WAIT = 10
"""The longest wait while other processes get turns, as a multiple of the wait while none does."""
SHARED = Path("/dev/shm")
"""The directory of the turns, which is this machine's alone even if homes and TMPDIR are not."""
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
    """The bytes for one worker out of three quarters of the free memory; None if that is unknown."""
    free = free_bytes()
    return max(2 * _WORKER_BYTES, free * 3 // 4 // max(1, jobs)) if free < sys.maxsize else None


def cores(proc: Path = PROC, groups: Path = GROUPS) -> int:
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
    """The control groups of this process and those above them, as far as this process can see them."""
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
    """The turns that this process has."""

    def __init__(self, most: int, ends: ExitStack, shared: Path = SHARED) -> None:
        self.count = 0
        self._free = list(range(most))
        self._ends = ends
        self._folder: Path | None = None
        with suppress(OSError):  # then turns cannot be counted, and every one is free
            self._folder = _own_folder(shared)

    def take(self) -> bool:
        """Take one more turn; False if all are taken."""
        for number in self._free:
            try:
                if self._folder is not None:
                    self._ends.callback(os.close, _locked(self._folder / str(number)))
            except BlockingIOError:
                continue
            except OSError:
                pass  # as if there were no directory
            self._free.remove(number)
            self.count += 1
            return True
        return False

    def last_taken_ns(self) -> int:
        """When any process last took a turn; 0 if that is not known."""
        with suppress(OSError):
            if self._folder is not None:
                return max((file.stat().st_mtime_ns for file in self._folder.iterdir()), default=0)
        return 0


@contextmanager
def turns(
    wanted: int, patience_s: float | None, waiting: Callable[[], None], shared: Path = SHARED
) -> Iterator[Turns]:
    """Wait for one turn, then take more while any are free; take all at once if ``patience_s`` is None.

    ``waiting`` is called now and then meanwhile. If no process takes a turn for ``patience_s`` seconds, this
    goes on without one, as the processes that have them may be stopped; so it does after ten times as long.
    """
    with ExitStack() as ends:
        held, pause_s = Turns(max(wanted, turn_count()), ends, shared), _FIRST_PAUSE_S
        if patience_s is None:
            held.count = wanted
            yield held
            return
        now_s, last = time.monotonic(), held.last_taken_ns()
        limit_s, end_s = now_s + patience_s, now_s + _LONGEST_WAIT * patience_s
        while not held.take() and time.monotonic() < min(limit_s, end_s):
            waiting()
            if (taken := held.last_taken_ns()) != last:
                limit_s, last = time.monotonic() + patience_s, taken
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        while 0 < held.count < wanted and held.take():
            pass
        held.count = max(1, held.count)
        yield held


def _own_folder(shared: Path) -> Path:
    """The directory of this user's turns, which is made if it is missing; raises OSError.

    If another user has taken its name, it is the first with another ending that is ours.
    """
    if sys.platform != "linux":
        raise OSError("locks that end with their process are known for Linux only")
    usual = shared / f"gpucache-turns-{os.geteuid()}"
    with suppress(FileExistsError):
        usual.mkdir(mode=stat.S_IRWXU)
    if _is_own(usual):
        return usual
    own = min(filter(_is_own, shared.glob(f"{usual.name}-*")), default=None)
    return own or Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=shared))


def _is_own(folder: Path) -> bool:
    if sys.platform == "win32":
        return False
    with suppress(FileNotFoundError):
        status = folder.lstat()
        return status.st_uid == os.geteuid() and status.st_mode == stat.S_IFDIR | stat.S_IRWXU
    return False


def _locked(file: Path) -> int:
    """A descriptor with the lock of a file; raises BlockingIOError if another has it, and OSError."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR)
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.utime(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
