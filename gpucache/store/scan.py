"""Scans ``entries/`` of a root, one file at a time: heads only, constant memory.

Links are reported, never followed; files that vanish meanwhile are skipped. Every file is reported once:
by a scan, or, if it is a stray, among the leftovers. A stray does not have the name of an entry for its
directory, so it is not ours, with any content. Must not change anything, or know programs or targets.

Also owns the files next to the entries: leftovers, their total size, and which of them are removed.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpucache.errors import CacheUnusableError
from gpucache.folders import Folder, give_back
from gpucache.host import os_errors
from gpucache.model import CacheKey, EntryHead, FindingKind, Problem
from gpucache.store import bounded_log, layout, lock
from gpucache.store.description import decode_head, join_head
from gpucache.store.format import (
    MAGIC,
    Claim,
    EntryFormatError,
    false_claims,
    false_labels,
    false_labels_of_ptx,
    misplaced,
    read_head,
    read_whole,
)
from gpucache.store.history import History
from gpucache.store.interface import ALL, FileIdentity, Leftover, ScannedEntry, Share
from gpucache.store.root_folder import UNUSABLE, RootFolder
from gpucache.store.tag import TAG_NAME, TAG_TEXT
from gpucache.store.together import Seen, Together
from gpucache.store.trust import UntrustedFileError, open_trusted
from gpucache.units import format_list

Unread = Callable[[Path, str], object]
"""Receives a directory that could not be listed, and a sentence that says why."""

T = TypeVar("T")


class Swept(NamedTuple):
    """The files that a sweep removed, and their allocated bytes."""

    files: int
    freed_bytes: int


def _ignored(_: Path, __: str) -> None: ...


def scan(
    root: RootFolder,
    read: Callable[[Folder, str], T | None],
    unread: Unread = _ignored,
    share: Share = ALL,
    many: "Callable[[Folder, Sequence[str]], Iterator[T | None] | None] | None" = None,
) -> Iterator[T]:
    """The results of ``read`` for every entry of a share, sound or not, except None; those of ``many`` for a
    whole directory, unless it returns None itself.

    Raises CacheUnusableError if the root or ``entries/`` cannot be read. A directory of entries that cannot
    be listed is passed to ``unread`` and skipped.
    """
    for folder, names, _ in _folders(root, unread, share):
        found = many(folder, names) if many is not None else None
        for one in map(partial(read, folder), names) if found is None else found:
            if one is not None:
                yield one


def by_head(folder: Folder, name: str) -> ScannedEntry | None:
    try:
        with open_trusted(folder, name) as (fd, status):
            try:
                header, head = read_head(fd, status.st_size)
                if layout.entry_name(header.key) != name:
                    raise misplaced(header)
            except EntryFormatError as error:
                return _damaged(folder, name, status, Problem(error.damage, error.detail))
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


Judged = tuple[ScannedEntry, tuple[Claim, ...] | None]
"""An entry with its false claims; None in their place if it is not sound."""


def by_content(folder: Folder, name: str) -> Judged | None:
    """Like ``by_head``, but the whole entry is read, once, and checked."""
    try:
        with open_trusted(folder, name) as (fd, status):
            whole = read_whole(fd, status.st_size, CacheKey(name.removesuffix(layout.ENTRY_SUFFIX)))
            return _seen(folder, name, status, whole.head), tuple(false_claims(whole))
    except (OSError, MemoryError, EntryFormatError):
        scanned = by_head(folder, name)
        return scanned and (scanned, None)


class Many:
    """``by_head`` and ``by_content`` for the entries of one directory after the other."""

    def __init__(self, *, whole: bool = False) -> None:
        self._together = Together(whole=whole)

    def by_head(self, folder: Folder, names: Sequence[str]) -> Iterator[ScannedEntry | None] | None:
        found = self._together.read(folder, names)
        return None if found is None else (_known(folder, one) or by_head(folder, one[0]) for one in found)

    def by_content(self, folder: Folder, names: Sequence[str]) -> Iterator[Judged | None] | None:
        found = self._together.read(folder, names)
        return (
            None if found is None else (_judged(folder, one) or by_content(folder, one[0]) for one in found)
        )


def _known(folder: Folder, seen: Seen) -> ScannedEntry | None:
    name, identity, allocated_bytes, head, parts, *_ = seen
    if not head:
        return None
    try:
        known = join_head(head, parts) if parts[0] else decode_head(head)
    except (ValueError, RecursionError):
        return None
    return ScannedEntry(folder.path, name, identity, allocated_bytes, known)


def _judged(folder: Folder, seen: Seen) -> Judged | None:
    scanned, (*_, payload, digest, ptx) = _known(folder, seen), seen
    if scanned is None or (head := scanned.head) is None or head.payload_sha256 != digest.hex():
        return None
    if architecture := ptx.rstrip(b"\0").decode():
        return scanned, false_labels_of_ptx(architecture, head.language, head.artifact_kind, head.target)
    return scanned, tuple(false_labels(head, payload))


def look_at(root: RootFolder, key: CacheKey) -> ScannedEntry | None:
    """The entry of one key as a scan sees it; None if it does not exist. Raises nothing."""
    with suppress(OSError, CacheUnusableError), root.open(*layout.entry_folder(key)) as folder:
        return by_head(folder, layout.entry_name(key))
    return None


def walk(
    root: RootFolder, unread: Unread = _ignored, share: Share = ALL
) -> Iterator[tuple[Folder, str, bool]]:
    """Every name below ``entries/`` with its open directory, and whether it is a stray."""
    for folder, names, strays in _folders(root, unread, share):
        yield from ((folder, name, False) for name in names)
        yield from ((folder, name, True) for name in strays)


def _folders(root: RootFolder, unread: Unread, share: Share) -> Iterator[tuple[Folder, list[str], list[str]]]:
    """Every directory below ``entries/``, open, with the names of entries in it, and of strays."""
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
                yield entries, [found.name] * in_the_way, [found.name] * (not in_the_way)
                continue
            with folder:
                names: tuple[list[str], list[str]] = [], []
                try:  # listed first, as files may be removed during the walk
                    for name in folder.names():
                        names[not layout.fits(found.name, name)].append(name)
                except OSError as error:
                    unread(folder.path, _unlisted(folder.path, error))
                yield folder, *names


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


def allocated(status: os.stat_result) -> int:
    """The allocated bytes of a file or directory; its size on a platform without blocks."""
    return int(getattr(status, "st_blocks", -(-status.st_size // 512))) * 512


def is_marked(root: RootFolder) -> bool:
    """Whether a root contains something that only gpucache makes: tag, record or entry. Raises nothing."""
    with suppress(OSError, CacheUnusableError), root.open() as top:
        fd = top.open_file(TAG_NAME)
        try:
            if os.read(fd, len(TAG_TEXT)) == TAG_TEXT:
                return True
        finally:
            give_back(fd)
    with suppress(OSError, CacheUnusableError), root.open(*layout.PROGRAMS) as programs:
        if any(layout.is_beside(layout.PROGRAMS, found.name) for found in programs.entries()):
            return True
    logged = any("when_ns" in one for one in bounded_log.log(root).records()[:1])  # others use the name, too
    with suppress(OSError, CacheUnusableError):
        return logged or any(not odd and _begins_as_ours(folder, name) for folder, name, odd in walk(root))
    return logged


def identity_of(status: os.stat_result) -> FileIdentity:
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
    kind, told = FindingKind.UNTRUSTED, os_errors.reason(error)
    if isinstance(error, UntrustedFileError):
        return _damaged(folder, name, status, Problem(kind, told))
    told = f"it cannot be read: {told}; {os_errors.remedy(error)}"
    return _damaged(folder, name, status, Problem(kind if isinstance(error, PermissionError) else None, told))


def _seen(folder: Folder, name: str, status: os.stat_result, head: EntryHead | None) -> ScannedEntry:
    return ScannedEntry(folder.path, name, identity_of(status), allocated(status), head)


def _damaged(folder: Folder, name: str, status: os.stat_result, damage: Problem) -> ScannedEntry:
    return _seen(folder, name, status, None)._replace(damage=damage)


MINIMUM_AGE_NS = 3600 * 10**9
_SHARE = 4
"""The files next to the entries may take a quarter of the limit of the entries."""
_MOVE = "give the cache its own directory"
_NOT_OURS = "not a file of gpucache, so it stays; move it elsewhere"
_LEFT = (layout.BASE, *((layout.VERSION_FOLDER, name) for name in ("tmp", "locks")))
"""Where leftovers are; the last two of older gpucaches, with nothing else in them."""


class _Item(NamedTuple):
    changed_ns: int
    place: tuple[str, ...]
    name: str
    allocated_bytes: int


def leftovers(root: RootFolder, now_ns: int) -> Iterator[Leftover]:
    """Every leftover, one by one; raises CacheUnusableError if ``entries/`` cannot be read."""
    yield from _in_root(root)
    for _, _, leftover in _abandoned(root, now_ns):
        yield leftover
    for folder, name, stray in walk(root):
        if stray:
            with suppress(OSError):
                yield _leftover(folder, name, now_ns, _NOT_OURS)


def remove_leftover(root: RootFolder, leftover: Leftover) -> bool:
    """Remove a leftover that is ours and whose size is unchanged; returns whether it did. Raises nothing."""
    with suppress(*UNUSABLE, ValueError):
        *parts, name = leftover.path.relative_to(root.path).parts
        with root.open(*parts) as folder:
            status = folder.lstat(name)
            same = stat.S_ISREG(status.st_mode) and status.st_size == leftover.size_bytes
            return same and _is_removed(folder, tuple(parts), name)
    return False


def remove_left(root: RootFolder, now_ns: int) -> list[int]:
    """Remove the files that killed processes left; returns their allocated bytes."""
    gone = []
    for folder, place, leftover in _abandoned(root, now_ns):
        with suppress(OSError):
            blocks = allocated(folder.lstat(leftover.path.name))
            if _is_removed(folder, place, leftover.path.name):
                gone.append(blocks)
    return gone


def sweep(root: RootFolder, history: History, max_size_bytes: int | None, why: str, now_ns: int) -> Swept:
    """Remove leftovers, then the oldest other files until they take a quarter of the limit of the entries.

    ``why``, the rule that removed all entries before, is recorded for the histories that are removed.
    """
    gone = remove_left(root, now_ns)
    limit = max_size_bytes or 0  # the log bounds itself, and goes only if it alone is too large
    logs = (layout.LOG_NAME, layout.JOURNAL_NAME)
    # Rows go with their entries, unless one alone is too large.
    every = sorted(one for one in items(root) if not one.name.endswith(".row") or one.allocated_bytes > limit)
    over = sum(item.allocated_bytes for item in every)
    rest = [one for one in every if one.name not in logs or one.allocated_bytes > limit]
    going = []
    for item in rest if max_size_bytes is not None else ():
        if over > limit // _SHARE and not layout.is_left(item.name):
            going.append(item)
            over -= item.allocated_bytes
    # Recorded first, so that a process that is stopped in between leaves no history unaccounted for.
    names = {layout.LOG_NAME: layout.FIRST_HISTORY}
    gone_logs = [item.name for item in going if item.place == layout.PROGRAMS or item.name in names]
    history.note_removed([names.get(name, name) for name in gone_logs], now_ns, why)
    removed = []
    for item in going:
        with suppress(*UNUSABLE), root.open(*item.place) as folder:
            folder.unlink(item.name)
            removed.append(item.allocated_bytes)
    return Swept(len(gone) + len(removed), sum(gone) + sum(removed))


def items(root: RootFolder) -> Iterator[_Item]:
    for place in layout.BESIDE:
        with suppress(*UNUSABLE), root.open(*place) as folder:
            for found in folder.entries():
                if layout.is_beside(place, found.name):
                    with suppress(OSError):
                        status = folder.lstat(found.name)
                        yield _Item(status.st_mtime_ns, place, found.name, allocated(status))


def _abandoned(root: RootFolder, now_ns: int) -> Iterator[tuple[Folder, tuple[str, ...], Leftover]]:
    """The old files of writers and locks, of any owner, except locks that are in use."""
    for place in _LEFT:
        with suppress(*UNUSABLE), root.open(*place) as folder:
            for name in [found.name for found in folder.entries()]:
                with suppress(OSError):
                    ours, is_lock = layout.is_left(name), name.endswith(layout.LOCK_SUFFIX)
                    if not ours and place == layout.BASE:
                        continue
                    detail = "a lock without a process" if is_lock else "left by a writer that was stopped"
                    leftover = _leftover(folder, name, now_ns, detail if ours else _NOT_OURS)
                    unused = not ours or not is_lock or not lock.held(folder, name)
                    if leftover.age_ns > MINIMUM_AGE_NS and unused:
                        yield folder, place, leftover


def _is_removed(folder: Folder, place: tuple[str, ...], name: str) -> bool:
    """Remove what a writer left, or a lock, unless that is in use; raises OSError."""
    if place not in _LEFT or not layout.is_left(name):
        return False
    if name.endswith(layout.LOCK_SUFFIX):
        return lock.remove_unheld(folder, name)
    folder.unlink(name)
    return True


def _in_root(root: RootFolder) -> Iterator[Leftover]:
    """All foreign files directly in the root as one leftover; none in a registry's image, where entries of
    other systems are next to the root."""
    with suppress(*UNUSABLE), root.open() as top:
        with suppress(OSError), top.folder(layout.RECORDS) as records:
            records.lstat(layout.RECORDS_SIGN)
            return
        names = sorted(found.name for found in top.entries())
        strange = [name for name in names if not layout.is_in_root(name)]
        if strange and layout.VERSION_FOLDER in names:
            yield Leftover(top.path, 0, 0, f"it also contains {format_list(strange)}, which stay; {_MOVE}")


def _leftover(folder: Folder, name: str, now_ns: int, detail: str) -> Leftover:
    status = folder.lstat(name)
    # The change time, as a writer sets the modification time to the time of the build.
    return Leftover(folder.path / name, status.st_size, max(0, now_ns - status.st_ctime_ns), detail)
