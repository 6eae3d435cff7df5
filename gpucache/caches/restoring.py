"""Entries of files from elsewhere, written so that no program ever sees a part of one.

An entry is first written below a staging directory in the root, hence on the same file system, and judged
there by the format as any other. Then its directory is renamed into place if the cache has none of that name;
else its files are linked into place one by one in the owner's order, never over another. Owns the staging
directories: one without a living process is removed at the next start. Must not know any system.
"""

import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from gpucache.answers.entries import Problem
from gpucache.caches.files import Files, free_abandoned, read, take_lock
from gpucache.caches.format import HOUR_NS, Check
from gpucache.caches.portable import PortableEntry, PortableFile, Restored, Start
from gpucache.errors import FormatError
from gpucache.folders import Folder, give, sync_all, write

if TYPE_CHECKING:
    from gpucache.caches.format import Format

STAGING = ".gpucache-pull-"
"""The beginning of the names of staging directories."""
_FOLDER_MODE = 0o755
_OPEN_AT_ONCE = 64
_TRIES = 5
"""How often an entry is moved into a directory that others remove meanwhile."""
_TAKEN = "a program may be writing it at this moment; pull again later"


@contextmanager
def restoring(made: "Format", check: Check) -> Iterator[Start]:
    """Writes entries into the cache of a format, which judges each in the staging directory first.

    The second function brings the files to the disk, with those of all entries that are begun, before it
    moves its own into place: a program must not find an empty one after a power cut. Raises OSError if the
    root cannot be written; the functions also raise FormatError and HeldError.
    """
    make_folder(made.root)
    with staging(made.root) as staged:
        numbers, unsynced = count(), dict[tuple[Folder, str], None]()
        spare = list[Folder]()  # empty directories, each for one entry at a time
        # Files written after this are found when an entry does not come into place.
        there = cache(lambda: {one.key for one in made.items("")})

        def start(entry: PortableEntry) -> Callable[[], Restored]:
            if not spare:
                make_folder(path := staged / str(next(numbers)))
                spare.append(Folder.at(path))
            below = spare.pop()
            try:
                end = _started(made, entry, check, below, there(), unsynced)
            except BaseException:  # such as that somebody removed the directory
                shutil.rmtree(below.path, ignore_errors=True)
                raise

            def cleared() -> Restored:
                try:
                    return end()
                finally:  # a full disk has room for the next one
                    if _emptied(below):
                        spare.append(below)

            return cleared

        yield start


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A private directory in a root, gone afterwards, as are those of dead processes; raises OSError."""
    with Folder.at(root) as folder:
        left = [found.name for found in folder.entries() if found.name.startswith(STAGING)]
    if [name for name in left if _remove_if_dead(root / name)]:
        _free_locks(root)
    while True:
        path = root / f"{STAGING}{os.getpid()}-{os.urandom(4).hex()}"
        path.mkdir(mode=0o700)
        give(path)
        fd = _held(path)
        if fd is not None:
            break
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def _emptied(folder: Folder) -> bool:
    """Whether a directory is empty now; else it is removed as far as possible."""
    try:
        for found in [*folder.entries()]:
            folder.unlink(found.name)
    except OSError:  # a directory in it
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.close()
        return False
    return True


def _inside(folder: Folder, parts: Sequence[str]) -> Folder:
    """A directory below an open one, or that itself, to be closed either way; raises OSError."""
    return folder.folder(*parts) if parts else folder.lent()


def _write_files(below: Folder, files: Sequence[PortableFile]) -> None:
    """Write the files of an entry below a directory; raises OSError, FormatError for modes."""
    for one in files:
        if not one.mode & stat.S_IRUSR:
            raise FormatError(f"its owner may not read {one.name}")
        *parts, last = one.name.split("/")
        if parts:
            make_folder(below.path.joinpath(*parts))
        with _inside(below, parts) as folder:
            fd = folder.open_for_writing(last, os.O_WRONLY | os.O_TRUNC, one.mode)
        try:
            write(fd, one.data)
        finally:
            os.close(fd)


def _sync(files: Sequence[tuple[Folder, str]]) -> None:
    """Let files survive a power cut, as far as they are there; raises OSError."""
    for at in range(0, len(files), _OPEN_AT_ONCE):
        with ExitStack() as opened:
            fds = []
            for below, name in files[at : at + _OPEN_AT_ONCE]:
                with suppress(FileNotFoundError):
                    flags = os.O_RDWR if sys.platform == "win32" else os.O_RDONLY
                    fds.append(below.open_file(*name.split("/"), flags=flags))
                    opened.callback(os.close, fds[-1])
            sync_all(fds)


def make_folder(path: Path) -> None:
    """Create a directory and those above it as their owner would; raises OSError."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=_FOLDER_MODE)
        give(path)


def _started(
    made: "Format",
    entry: PortableEntry,
    check: Check,
    below: Folder,
    there: Container[str],
    unsynced: dict[tuple[Folder, str], None],
) -> Callable[[], Restored]:
    """Stage an entry, unless ``there`` has a sound one; returns the function that publishes it."""
    old, wrong = _judged(made, entry, check) if entry.key in there else (None, None)
    sound = old is not None and wrong is None
    if sound and old is not None and made.holds(old, [one.name for one in entry.files]):
        return lambda: Restored(done=False, present=True)
    item = _staged(made, entry, check, below)
    names = [one.name for one in made.placed(entry, made.root)]
    mine = dict.fromkeys((below, name) for name in names)
    unsynced.update(mine)

    def end() -> Restored:
        if not unsynced.keys().isdisjoint(mine):
            try:
                _sync([*unsynced])
                unsynced.clear()
            finally:  # after an error the others try again
                for one in mine:
                    unsynced.pop(one, None)
        if sound and old is not None:
            made.merge(old, entry)
            return Restored(done=True)
        if old is not None and wrong is not None and not _may_grow(old, wrong):
            kept = None
            with suppress(FileNotFoundError), made.lock(old):  # else it is gone already
                kept = made.discard(old)
            if kept is not None and not kept.gone:
                return Restored(done=False, reason=f"the entry there is damaged and stays: {kept.reason}")
        moved = [name for name in names if name != made.index]
        for _ in range(_TRIES):
            with suppress(FileNotFoundError), made.lock(item._replace(root=made.root)):
                if made.publish(entry, lambda: _publish(below, made.root, moved, alone=len(names) == 1)):
                    return Restored(done=True)
                break
        now, wrong_now = _judged(made, entry, check)
        present = now is not None and wrong_now is None
        return Restored(done=False, present=present, reason="" if present else _TAKEN)

    return end


def _judged(made: "Format", entry: PortableEntry, check: Check) -> tuple[Files | None, Problem | None]:
    """The present entry in an entry's place, and its problems."""
    try:
        old = _item(made, entry)
        return old, None if old is None else check(made, old)
    except FileNotFoundError:  # it is just being removed
        return None, None


def _may_grow(old: Files, wrong: Problem) -> bool:
    """Whether an entry lacks files that a program may be writing now."""
    age_ns = time.time_ns() - max(one.st_mtime_ns for one in old.seen.values())
    return not (wrong.kind and wrong.kind.wrong) and abs(age_ns) < HOUR_NS


def _staged(made: "Format", entry: PortableEntry, check: Check, below: Folder) -> Files:
    """Write an entry below a directory and check it; returns it as it will be in the cache."""
    trial = made.placed(entry, below.path)
    _write_files(below, trial)
    probe = type(made)(made.location._replace(root=str(below.path)), made.now_ns)
    found = list(probe.items(""))
    seen = [(one, name) for one in found for name in one.names if not stat.S_ISDIR(one.seen[name].st_mode)]
    names = {"/".join((*one.parts, name)) for one, name in seen}
    whole = len(found) == 1 and names == {one.name for one in trial} - {made.index}
    if not whole or found[0].key != entry.key:
        raise FormatError(f"it is laid out as no entry of {made.owner}'s cache")
    data = {one.name: one.data for one in trial}
    held = {name: data["/".join((*one.parts, name))] for one, name in seen}
    if wrong := check(probe, found[0]._replace(held=held)):
        raise FormatError(f"it is {wrong.kind}: {wrong.detail}")
    final = made.placed(entry, made.root)
    _write_files(below, [one for one in final if one not in trial])
    return found[0]


def _item(made: "Format", entry: PortableEntry) -> Files | None:
    """The present entry in an entry's place; another directory may have one with its key."""
    key, names = entry.key, [one.name for one in made.placed(entry, made.root)]
    try:
        found = [one for one in made.items(key) if one.key == key and _is_entry(made, one)]
        return next(
            (one for one in found if names[0].startswith("".join(map("{}/".format, one.parts)))), None
        )
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_entry(made: "Format", item: Files) -> bool:
    try:
        return made.look(item) is not None
    except FormatError:  # such as a link in its place
        return True


def _publish(below: Folder, place: Path, names: Sequence[str], *, alone: bool) -> bool:
    """Move files into place in their order; False if other files are there, which another process wrote.

    A file that is an entry ``alone`` has no others to fit.
    """
    linked: list[str] = []
    with Folder.at(place) as root:
        for name in names:
            *folders, last = name.split("/")
            if _moved_with_folder(below, root, folders):
                continue
            # The last one makes the others count, so they must be this entry's before it and after it.
            if not alone and not linked and not all(_same(below, root, one) for one in names):
                return False
            if name == names[-1] and not all(_same(below, root, one) for one in linked):
                return False
            with _inside(below, folders) as source, _inside(root, folders) as into:
                try:
                    source.link(last, into, last)
                except FileExistsError:
                    if not _same(below, root, name):
                        return False
                except OSError:  # a file system without hard links
                    if _exists(into, last):
                        return False
                    source.move(last, into, last)
                linked.append(name)
        if not alone and not all(_same(below, root, one) for one in linked):
            with _inside(root, folders) as into, suppress(FileNotFoundError):
                into.unlink(last)
            return False
    return True


def _same(below: Folder, root: Folder, name: str) -> bool:
    """Whether a file in the cache may be this entry's: its bytes are equal, or one is missing."""
    *folders, last = name.split("/")
    try:
        with _inside(below, folders) as source, _inside(root, folders) as there:
            mine, found = source.lstat(last), there.lstat(last)
            if os.path.samestat(mine, found) or mine.st_size != found.st_size:
                return mine.st_size == found.st_size
            return read(source, last, mine.st_size) == read(there, last, mine.st_size)
    except FileNotFoundError:
        return True
    except FormatError:
        return False


def _moved_with_folder(below: Folder, root: Folder, folders: Sequence[str]) -> bool:
    """Whether a file came into place with its directory, which was renamed for it or an earlier file."""
    for depth, part in enumerate(folders):
        with _inside(below, folders[:depth]) as source, _inside(root, folders[:depth]) as into:
            if not _exists(source, part) or _moved(source, part, into):
                return True
    return False


def _moved(source: Folder, name: str, into: Folder) -> bool:
    """Whether a directory could be renamed into place; not over one of the name that is not empty."""
    try:
        source.move(name, into, name)
    except OSError as error:
        if _exists(into, name):
            return False
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # it was removed just now
            raise FileNotFoundError(name) from None
        raise
    return True


def _exists(folder: Folder, name: str) -> bool:
    try:
        folder.lstat(name)
    except FileNotFoundError:
        return False
    return True


def _held(path: Path) -> int | None:
    """A descriptor of a directory that this process has locked; None if it was taken for a dead one's."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        if _lock(fd) is not False and path.stat().st_ino == os.fstat(fd).st_ino:
            return fd
    os.close(fd)
    return None


def _free_locks(root: Path) -> None:
    """Remove the locks that dead processes held while they brought entries into place."""
    for path, _, names in os.walk(root):
        with suppress(OSError), Folder.at(Path(path), follow=False) as folder:
            for name in names:
                free_abandoned(folder, name)


def _remove_if_dead(path: Path) -> bool:
    """Remove a staging directory without a process; whether it did."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
        try:
            if _lock(fd):
                shutil.rmtree(path, ignore_errors=True)
                return True
        finally:
            os.close(fd)
    return False


def _lock(fd: int) -> bool | None:
    """Whether a directory could be locked; None on a file system without locks."""
    with suppress(OSError):
        return take_lock(fd, 0)
    return None
