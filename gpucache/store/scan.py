"""Scans ``entries/`` of a root, one file at a time: heads only, constant memory.

Links are reported, never followed; files that vanish meanwhile are skipped. Every file is reported once:
by a scan, or, if it is a stray, among the leftovers. A stray does not have the name of an entry for its
directory, so it is not ours, whatever it contains. Must not change anything, or know programs or targets.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder, give_back
from gpucache.host import os_errors
from gpucache.model import CacheKey, Entry, EntryHead
from gpucache.store import layout
from gpucache.store.format import MAGIC, EntryFormatError, misplaced, read_head, read_whole
from gpucache.store.interface import ALL, Damage, FileIdentity, ScannedEntry, Share
from gpucache.store.root_folder import RootFolder
from gpucache.store.trust import UntrustedFileError, open_trusted

Unread = Callable[[Path, str], object]
"""Receives a directory that could not be listed, and a sentence that says why."""

T = TypeVar("T")


def _ignored(_: Path, __: str) -> None: ...


def scan(
    root: RootFolder,
    read: Callable[[Folder, str], T | None],
    unread: Unread = _ignored,
    share: Share = ALL,
) -> Iterator[T]:
    """The results of ``read`` for every entry of a share, sound or not, except None.

    Raises CacheUnusableError if the root or ``entries/`` cannot be read. A directory of entries that cannot
    be listed is passed to ``unread`` and skipped.
    """
    for folder, name, stray in walk(root, unread, share):
        if not stray and (found := read(folder, name)) is not None:
            yield found


def by_head(folder: Folder, name: str) -> ScannedEntry | None:
    """An entry with its head; None if it is gone."""
    try:
        with open_trusted(folder, name) as (fd, status):
            try:
                header, head = read_head(fd, status.st_size)
            except EntryFormatError as error:
                return _damaged(folder, name, status, error)
            if layout.entry_name(header.key) != name:
                return _damaged(folder, name, status, misplaced(header))
            return _seen(folder, name, status, head)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unread(folder, name, error)


def by_name(folder: Folder, name: str) -> ScannedEntry | None:
    """Like ``by_head``, but a regular file with the name of an entry is not read and has no head."""
    with suppress(FileNotFoundError):
        status = folder.lstat(name)
        return _seen(folder, name, status, None) if stat.S_ISREG(status.st_mode) else by_head(folder, name)
    return None


def by_content(folder: Folder, name: str) -> tuple[ScannedEntry, Entry | None] | None:
    """Like ``by_head``, with the whole entry, read once; None in its place if it is not sound."""
    try:
        with open_trusted(folder, name) as (fd, status):
            whole = read_whole(fd, status.st_size, CacheKey(name.removesuffix(layout.ENTRY_SUFFIX)))
            return _seen(folder, name, status, whole.head), whole
    except (OSError, MemoryError, EntryFormatError):
        scanned = by_head(folder, name)
        return scanned and (scanned, None)


def look_at(root: RootFolder, key: CacheKey) -> ScannedEntry | None:
    """The entry of one key as a scan sees it; None if it does not exist. Raises nothing."""
    with suppress(OSError, CacheUnusableError), root.open(*layout.entry_folder(key)) as folder:
        return by_head(folder, layout.entry_name(key))
    return None


def walk(
    root: RootFolder, unread: Unread = _ignored, share: Share = ALL
) -> Iterator[tuple[Folder, str, bool]]:
    """Every name below ``entries/`` with its open directory, and whether it is a stray."""
    number, shares = share
    with ExitStack() as stack:
        try:
            entries = stack.enter_context(root.open(*layout.ENTRIES))
            listed = [one for one in entries.entries() if sum(os.fsencode(one.name)) % shares == number]
        except FileNotFoundError:
            return
        except OSError as error:
            raise CacheUnusableError(_unlisted(root.path.joinpath(*layout.ENTRIES), error)) from error
        for found in listed:
            try:
                folder = entries.folder(found.name) if found.is_dir(follow_symlinks=False) else None
            except OSError as error:
                if layout.is_prefix(found.name) and not isinstance(error, FileNotFoundError):
                    unread(entries.path / found.name, _unlisted(entries.path / found.name, error))
                    continue
                folder = None
            if folder is None:
                in_the_way = found.is_symlink() and layout.is_prefix(found.name)
                yield entries, found.name, not in_the_way
                continue
            with folder:
                names: list[str] = []
                try:  # listed first, as files may be removed during the walk
                    for inner in folder.entries():
                        names.append(inner.name)
                except OSError as error:
                    unread(folder.path, _unlisted(folder.path, error))
                for name in names:
                    yield folder, name, not layout.fits(found.name, name)


def _unlisted(place: Path, error: OSError) -> str:
    return f"{place} cannot be read: {os_errors.reason(error)}; {os_errors.remedy(error)}"


def place_of(root: RootFolder, scanned: ScannedEntry) -> tuple[str, ...]:
    """The directory of a scanned file, as parts below the root.

    Raises FileNotFoundError for a path outside ``entries/``.
    """
    try:
        parts = scanned.folder.relative_to(root.path.joinpath(*layout.ENTRIES)).parts
    except ValueError as error:
        raise FileNotFoundError(f"{scanned.path} is not in the cache at {root.path}") from error
    return (*layout.ENTRIES, *parts)


def allocated_bytes(root: RootFolder) -> int:
    """The allocated bytes of everything below ``entries/``; raises CacheUnusableError."""
    total = 0
    for folder, name, _ in walk(root):
        with suppress(OSError):
            total += allocated(folder.lstat(name))
    return total


def allocated(status: os.stat_result) -> int:
    """The allocated bytes of a file or directory; its size on a platform without blocks."""
    return int(getattr(status, "st_blocks", -(-status.st_size // 512))) * 512


def is_marked(root: RootFolder) -> bool:
    """Whether a root contains something that only gpucache makes: tag, history or entry. Raises nothing."""
    with suppress(OSError, CacheUnusableError), root.open() as top:
        fd = top.open_file(layout.TAG_NAME)
        try:
            if os.read(fd, len(layout.TAG_TEXT)) == layout.TAG_TEXT:
                return True
        finally:
            give_back(fd)
    with suppress(OSError, CacheUnusableError), root.open(*layout.PROGRAMS) as programs:
        if any(layout.is_beside(layout.PROGRAMS, found.name) for found in programs.entries()):
            return True
    with suppress(OSError, CacheUnusableError):
        return any(not stray and _begins_as_ours(folder, name) for folder, name, stray in walk(root))
    return False


def identity_of(status: os.stat_result) -> FileIdentity:
    """The identity of the file with this status."""
    return FileIdentity(status.st_ino, status.st_size, status.st_mtime_ns)


def _begins_as_ours(folder: Folder, name: str) -> bool:
    """Whether the content of a file is that of an entry."""
    with suppress(OSError), open_trusted(folder, name) as (fd, _):
        return os.read(fd, len(MAGIC)) == MAGIC
    return False


def _unread(folder: Folder, name: str, error: OSError) -> ScannedEntry | None:
    """An entry that could not be read, because it is not trusted or because reading failed."""
    try:
        status = folder.lstat(name)
    except OSError:
        return None
    if isinstance(error, UntrustedFileError):
        return _damaged(folder, name, status, EntryFormatError(Damage.UNTRUSTED, os_errors.reason(error)))
    told = f"it cannot be read: {os_errors.reason(error)}; {os_errors.remedy(error)}"
    found = _damaged(folder, name, status, EntryFormatError(Damage.UNTRUSTED, told))
    return found._replace(unread=not isinstance(error, PermissionError))


def _seen(folder: Folder, name: str, status: os.stat_result, head: EntryHead | None) -> ScannedEntry:
    return ScannedEntry(folder.path, name, identity_of(status), allocated(status), head)


def _damaged(folder: Folder, name: str, status: os.stat_result, error: EntryFormatError) -> ScannedEntry:
    seen = _seen(folder, name, status, None)
    return seen._replace(damage=error.damage, damage_detail=error.detail)
