"""The compiles on this machine now: entries as programs write them, in all caches that are watched.

The library ``watchfiles`` reports where something was written (inotify on Linux), and the cache itself finds
the entries there: it is scanned again, so that a burst of writes of one entry is one. A place that does not
exist yet is waited for. The writer is named only if a process still has a file of the entry open for writing.
Must not know any system.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.entries import CacheEntry, FindingKind
from gpucache.answers.inspect import Written
from gpucache.caches.interface import Cache
from gpucache.errors import GpucacheError, UsageError

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

GROUPED_MS = 1600
"""How long changes are gathered at most before they are reported."""
QUIET_MS = 50
"""How long nothing has to change before they are reported."""
_MOST_LINKS = 65_536
"""How many open files of other processes are examined at most."""
_HALF = (FindingKind.TRUNCATED, FindingKind.ORPHAN, FindingKind.LOCKED)
Seen = dict[str, tuple[int, int]]
"""Size and time of writing of entries by key."""


class _End(threading.Event):
    """A flag that places have to be looked for again, or that the reader is gone."""

    def __init__(self, unread: Callable[[], bool]) -> None:
        super().__init__()
        self._unread = unread

    def is_set(self) -> bool:
        """Called by the library every time that it looks for changes."""
        return super().is_set() or self._unread()


def watch(
    find: Callable[[], Sequence[Cache]], started: Callable[[int], None], unread: Callable[[], bool]
) -> Iterator[Written]:
    """Every entry that is written from now on, until an interrupt or until it is ``unread``.

    ``find`` gives the caches, existing or not; it is called again when a place has appeared. ``started`` is
    called with their number once no write can be missed. Raises UsageError if the library is missing or the
    system watches no more directories.
    """
    caches = list(find())
    seen = {_place(cache): _look(cache) for cache in caches}
    while True:
        here = [cache for cache in caches if Path(cache.location().root).exists()]
        awaited = {Path(cache.location().root) for cache in caches if cache not in here}
        came = _End(unread)
        with (
            _watcher([cache.location().root for cache in here], recursive=True) as watcher,
            _arrival(awaited, came),
        ):
            for cache in here:  # writes from before the watch began
                yield from _written(cache, seen, ())
            started(len(caches))
            started = _nothing
            while isinstance(changes := watcher.watch(GROUPED_MS, QUIET_MS, 0, came), set):
                paths = [path for _, path in changes]
                for cache in here:
                    touched = [path for path in paths if Path(path).is_relative_to(cache.location().root)]
                    if touched:
                        yield from _written(cache, seen, touched)
        if changes == "signal":
            raise KeyboardInterrupt
        if unread():
            return
        caches = list(find())


def _nothing(_: int) -> None:
    """Does nothing: the number was reported already."""


def _place(cache: Cache) -> str:
    return f"{cache.name}:{cache.location().root}"


def _look(cache: Cache) -> Seen:
    with suppress(GpucacheError):
        return {entry.key: (entry.size_bytes, entry.created_ns) for entry in cache.scan()}
    return {}


def _written(cache: Cache, seen: dict[str, Seen], touched: Collection[str]) -> Iterator[Written]:
    """The entries of a cache that are new or have changed since the last look."""
    before, now = seen.get(_place(cache), {}), Seen()
    found: list[CacheEntry] = []
    with suppress(GpucacheError):
        for entry in cache.scan():
            if entry.damage is not None and entry.damage.kind in _HALF:
                continue  # its writer is not done, and the next change shows whether it is
            now[entry.key] = entry.size_bytes, entry.created_ns
            if before.get(entry.key) != now[entry.key]:
                found.append(entry)
    seen[_place(cache)] = now
    opened = list(_opened(touched)) if found else []
    for entry in found:
        writers = dict.fromkeys(who for path, who in opened if Path(path).is_relative_to(entry.path))
        before_bytes, _ = before.get(entry.key, (None, 0))
        yield Written(entry, cache.location().root, time.time_ns(), tuple(writers), before_bytes)


def _opened(paths: Collection[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """The processes that have some files open for writing; none if the system does not show them."""
    wanted, looked = {os.path.realpath(path): path for path in paths}, 0
    for process in _folders(Path("/proc")):
        if not process.isdigit() or int(process) == os.getpid():
            continue
        for fd in _folders(Path("/proc", process, "fd")):
            looked += 1
            if looked > _MOST_LINKS:
                return
            with suppress(OSError, ValueError):
                path = wanted.get(os.readlink(f"/proc/{process}/fd/{fd}"))  # noqa: PTH115 - no Path for each
                if path is not None and _writes(process, fd):
                    yield path, (process, _command(process))


def _writes(process: str, fd: str) -> bool:
    for line in Path("/proc", process, "fdinfo", fd).read_text("ascii").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _command(process: str) -> str:
    """The program that a process runs, by the name of the process."""
    return Path("/proc", process, "comm").read_text("utf-8", "replace").strip()


def _folders(path: Path) -> Iterable[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - names alone
    except OSError:
        return ()


@contextmanager
def _watcher(roots: Sequence[str], *, recursive: bool) -> Iterator["RustNotify"]:
    """The library's watch over some directories; raises UsageError."""
    try:
        from watchfiles._rust_notify import RustNotify
    except ImportError:
        raise UsageError("--watch needs a library; install it with: pip install watchfiles") from None
    try:
        watcher = RustNotify(list(roots), False, False, 300, recursive, True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"the system does not watch the directories ({error}); it watches a limited number, which "
            "'sysctl fs.inotify.max_user_watches=1048576' raises, or name fewer caches by --cache"
        ) from None
    try:
        yield watcher
    finally:
        watcher.close()


@contextmanager
def _arrival(places: Collection[Path], came: threading.Event) -> Iterator[None]:
    """Set ``came`` once one of some missing places, or a directory above it, exists."""
    if not places:
        yield
        return
    above = {place: next(one for one in place.parents if one.exists()) for place in places}
    end = threading.Event()

    def wait(watcher: "RustNotify") -> None:
        awaited = {path / place.relative_to(path).parts[0] for place, path in above.items()}
        while not any(one.exists() for one in awaited):
            if not isinstance(watcher.watch(GROUPED_MS, QUIET_MS, 0, end), set):
                return
        came.set()

    with _watcher(sorted({str(one) for one in above.values()}), recursive=False) as watcher:
        thread = threading.Thread(target=wait, args=(watcher,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
