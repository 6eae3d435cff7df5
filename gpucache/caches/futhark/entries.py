"""Cache files as entries: what a scan reads of each.

Owns the record of a file that later checks and removals rely on. Must not remove anything.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

from gpucache.caches.files import Identity, allocated_bytes, opened, read_part
from gpucache.caches.futhark import header, names
from gpucache.caches.futhark.contents import target_of
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, Problem
from gpucache.payload import describe

NAME = "futhark"
SCANNED_BYTES = 4 * 1024 * 1024
"""What a scan reads of a file: enough to tell what nearly every payload is."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as the scan saw it."""

    folder: Path
    name: str
    identity: Identity
    ours: bool
    """Whether it begins as Futhark's files do; what does not is never removed."""
    readable: bool
    """Whether it is a file that may be read, whatever is in it."""
    key: bytes
    """Empty where the header does not read."""


def folder_of(root: Path) -> Path:
    """The folder that a location is, or is in. Raises nothing."""
    # Path.is_dir raises below a folder that may not be entered.
    return root if os.path.isdir(root) else root.parent  # noqa: PTH112


def unread(root: Path) -> str:
    """That a file or folder which is there may not be read; empty where it may. Raises nothing."""
    folder = folder_of(root)
    rights = os.R_OK | os.X_OK if folder == root else os.X_OK
    if os.path.isdir(folder) and not os.access(folder, rights):  # noqa: PTH112
        return f"{folder} may not be read by this user, so what it holds is not known; name another place"
    return ""


def is_cache_file(folder: Folder, name: str) -> bool:
    """Whether a name is a regular file that begins with the magic. Raises nothing."""
    try:
        return header.is_futhark(read_part(folder, name, 0, len(header.MAGIC)))
    except (OSError, FormatError, ValueError):
        return False


def cache_files(folder: Folder, most: int | None = None) -> Iterator[str]:
    """The names of the cache files directly in a folder, in no order, of at most so many names. OSError.

    One that its writer left empty tells by its name: ``foo.fut.cache``, or the ending of another one there.
    """
    endings, empty = {names.ENDING}, []
    for found in islice(folder.entries(), most):
        if names.is_partial(found.name) or not found.is_file(follow_symlinks=False):
            continue
        if is_cache_file(folder, found.name):
            endings.add(PurePath(found.name).suffix)
            yield found.name
        elif names.source_of(found.name):
            with suppress(FileNotFoundError):
                empty += [found.name] if not folder.lstat(found.name).st_size else []
    yield from (name for name in empty if PurePath(name).suffix in endings)


def look_at(folder: Folder, name: str) -> CacheEntry | None:
    """A file as an entry, whatever is in it; None where there is none."""
    try:
        with opened(folder, name) as (_fd, status):
            start = read_part(folder, name, 0, header.HEADER_BYTES + SCANNED_BYTES)
        return _entry(folder, name, status, start)
    except FileNotFoundError:
        return None
    except (OSError, FormatError) as error:
        return _unreadable(folder, name, error)


def _entry(folder: Folder, name: str, status: os.stat_result, start: bytes) -> CacheEntry:
    head = header.read_header(start)
    damage = header.damage(start, status.st_size)
    key = head.key if head is not None else b""
    seen = Seen(folder.path, name, Identity.of(status), header.is_futhark(start), True, key)
    payload = describe(start[header.HEADER_BYTES :])
    return CacheEntry(
        cache=NAME,
        key=key.hex() or name,
        path=str(folder.path / name),
        size_bytes=allocated_bytes(status),
        created_ns=status.st_mtime_ns,
        last_used_ns=max(status.st_atime_ns, status.st_mtime_ns),
        program=names.program_of(name),
        target=target_of(payload) if head is not None else "",
        artifact_kind=payload.kind.value if head is not None else "",
        unique=True,  # a file belongs to its name: no other one takes its place
        fields=(("key", key.hex()),) if key else (),
        damage=Problem(damage.kind, damage.detail) if damage else None,
        handle=seen,
    )


def _unreadable(folder: Folder, name: str, error: Exception) -> CacheEntry | None:
    """A link, something else than a file, or a file that may not be read."""
    try:
        status = folder.lstat(name)
    except OSError:
        return None
    why = error.strerror or "unknown" if isinstance(error, OSError) else str(error)
    return CacheEntry(
        cache=NAME,
        key=name,
        path=str(folder.path / name),
        size_bytes=allocated_bytes(status) if stat.S_ISREG(status.st_mode) else 0,
        created_ns=status.st_mtime_ns,
        last_used_ns=status.st_mtime_ns,
        program=names.program_of(name),
        unique=True,
        damage=Problem(None, f"it cannot be read: {why}"),
        handle=Seen(folder.path, name, Identity.of(status), ours=False, readable=False, key=b""),
    )
