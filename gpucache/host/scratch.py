"""Temporary directories of this process, and the removal of directories that killed processes left behind.

A process removes its own directories when it ends. A killed process cannot, so each process removes the
abandoned directories of its user before it makes its first. A process locks its directory, and makes an
empty file in it, the mark, once it has the lock. So a directory with a mark and no lock is abandoned. The
mark goes last: the next sweep finds a directory in which a dying child still writes. Without locks (Windows,
some network file systems) nothing is removed. A directory that a user named, and that was made for a command
that then failed, is removed as well. Must not know the contents of a directory.
"""

# Paths are text: every command that runs makes a directory, and waits for the imports of this module.
# ruff: noqa: PTH102, PTH106, PTH108, PTH118, PTH208

import errno
import os
import stat
import sys

TYPE_CHECKING = False  # the one of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

PREFIX = "gpucache-"
MARK = ".gpucache-scratch"
PLACES = ("/tmp", "/dev/shm")
"""Where temporary directories may go if TMPDIR is unusable."""
_swept: "set[str]" = set()
ENDINGS: "set[Callable[[], object]]" = set()
"""Functions that end the work of other threads, such as children, and remove their directories.

A module adds its own when that work begins. A process that ends may not look for it in the module, which a
thread may still be importing."""


def end_others() -> None:
    """End the work of other threads, as this process is about to end without them; raises nothing."""
    for end in tuple(ENDINGS):
        try:
            end()
        except Exception:
            continue


class scratch:  # noqa: N801 - to its users a context manager like those that are functions
    """An empty directory in TMPDIR or ``parent``, removed afterwards with its contents; raises OSError."""

    def __init__(self, purpose: str, parent: str = "") -> None:
        self._purpose = purpose
        self._parent = parent
        self._place = ""
        self._lock: int | None = None

    @classmethod
    def adopt(cls, place: str, lock: int) -> "scratch":
        """A directory that ``native/run.c`` made in this process, with the descriptor of its lock, or -1."""
        made = cls("")
        made._place = place
        if lock >= 0:
            os.set_inheritable(lock, False)
            made._lock = lock
        return made

    def __enter__(self) -> "Path":
        from pathlib import Path

        return Path(self.make())

    def __exit__(self, *_: object) -> None:
        from gpucache.host.interrupts import held

        with held():
            self.remove()

    def make(self) -> str:
        """Make the directory; returns its path."""
        self._parent = self._parent or temporary()
        sweep(self._parent)
        place = os.path.join(self._parent, f"{PREFIX}{self._purpose}-{os.urandom(6).hex()}")
        os.mkdir(place, 0o700)
        self._place = place
        try:
            self._lock = _lock(place)
            if self._lock is not None:
                _make_mark(os.path.join(place, MARK))
        except BaseException:
            self.remove()
            raise
        return place

    def remove(self) -> None:
        _remove(self._place)
        if self._lock is not None:
            os.close(self._lock)


def temporary() -> str:
    """The directory for temporary ones; /dev/shm if Python finds none. Raises OSError if neither works.

    Python looks for a place where files can be written. A directory with a socket needs less, as with
    ``ulimit -f 0``, and in a container whose file system is read-only only /dev/shm remains.
    """
    import tempfile

    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        for place in (os.environ.get("TMPDIR", ""), *PLACES):
            if place and os.access(place, os.W_OK | os.X_OK):
                return place
    raise OSError(errno.EROFS, "no directory for temporary files is writable", "/dev/shm")


def absent(folder: "Path") -> "tuple[Path, ...]":
    """A directory and its parents that do not exist yet, the deepest first."""
    return tuple(place for place in (folder, *folder.parents) if not os.path.lexists(place))


def remove_empty(folders: "Iterable[Path]") -> None:
    """Remove those directories that are empty, in order; raises nothing."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            continue


def sweep(parent: str) -> None:
    """Remove the leftovers of this user's killed processes below ``parent``; done once in a process."""
    if sys.platform == "win32" or parent in _swept:
        return
    _swept.add(parent)
    for name in _names(parent):
        try:
            if name.startswith(PREFIX):
                _remove_left(os.path.join(parent, name))
        except OSError:
            continue


def _remove_left(place: str) -> None:
    if sys.platform == "win32":
        return
    mark = os.path.join(place, MARK)
    if os.lstat(place).st_uid != os.geteuid() or not stat.S_ISREG(os.lstat(mark).st_mode):
        return
    lock = _lock(place)
    if lock is not None:
        _remove(place)
        os.close(lock)


def _remove(place: str) -> None:
    """Remove a directory as far as possible; a directory that remains keeps its mark."""
    mark = os.path.join(place, MARK)
    for path in [os.path.join(place, name) for name in _names(place) if name != MARK]:
        try:
            os.unlink(path)
        except OSError:
            import shutil  # most directories contain only files
            from contextlib import suppress

            with suppress(RecursionError):  # a thousand directories in each other
                shutil.rmtree(path, ignore_errors=True)
    try:
        os.unlink(mark)
    except OSError:
        mark = ""  # none exists where there are no locks
    try:
        os.rmdir(place)
    except OSError:
        if mark:
            _make_mark(mark)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _make_mark(mark: str) -> None:
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT, 0o600))


def _lock(place: str) -> int | None:
    """A descriptor that locks a directory; None if another process has the lock, or there are no locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
