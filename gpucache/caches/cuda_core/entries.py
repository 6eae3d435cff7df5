"""Files of a cuda.core cache as entries: what a scan reads of each.

Owns the record of a file that later checks and removals rely on. Must not remove anything.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpucache.caches.cuda_core import contents, layout
from gpucache.caches.files import Identity, allocated_bytes, open_folder, read_part
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, FindingKind, Problem

SCANNED_BYTES = 64 * 1024
"""What a scan reads of a file; of a larger one the names of kernels may remain unknown."""
UNREACHABLE = (
    f"its path is not {layout.ENTRIES}/<2 hex>/<62 hex>, so no key leads to it: a program misses and adds "
    "another copy"
)


NOT_ITS_OWN = "cuda.core gives no such name, so it may be somebody else's and stays; move it elsewhere"
UNPROVEN = (
    "neither it nor anything beside it is a CUDA binary, so it may be somebody else's and stays; "
    "remove it yourself if it is cuda.core's"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as the scan saw it."""

    group: str
    name: str
    identity: Identity
    regular: bool
    owned: bool
    """Whether it belongs to who runs this; what does not is not repaired."""
    telling: bool
    """Whether what it holds shows that it is cuda.core's, or it holds nothing that could be lost."""

    @property
    def reachable(self) -> bool:
        """Whether a key leads to it."""
        return layout.is_group(self.group) and layout.is_rest(self.name)


def scan(root: Path, prefix: str = "") -> Iterator[CacheEntry]:
    """Every file that cuda.core counts, or those whose key begins with some digits.

    Raises OSError where the folder of entries does not read.
    """
    with open_folder(root, layout.ENTRIES) as folder:
        for found in folder.entries():
            near = found.name.startswith(prefix) or prefix.startswith(found.name)
            if near and found.is_dir(follow_symlinks=False):
                yield from _scan_group(folder, found.name, prefix)


def _scan_group(entries: Folder, group: str, prefix: str) -> Iterator[CacheEntry]:
    with suppress(OSError), entries.folder(group) as folder:
        for found in folder.entries():
            if f"{group}{found.name}".startswith(prefix) and not found.is_dir(follow_symlinks=False):
                entry = look_at(folder, group, found.name)
                if entry is not None:
                    yield entry


def look_at(folder: Folder, group: str, name: str) -> CacheEntry | None:
    """A file as an entry, whatever is in it; None where there is none."""
    try:
        status = folder.lstat(name)
        regular = stat.S_ISREG(status.st_mode)
        start = read_part(folder, name, 0, SCANNED_BYTES) if regular else b""
        damage = None
    except FileNotFoundError:
        return None
    except FormatError as error:
        regular, start, damage = False, b"", (FindingKind.UNTRUSTED, str(error))
    except OSError as error:
        start, damage = b"", contents.unreadable(error)
    else:
        if not regular:
            damage = contents.no_file(status)
    telling = not regular or contents.is_binary(start)
    seen = Seen(group, name, Identity.of(status), regular, _owned(status), telling)
    return _entry(folder, seen, status, start, damage)


def _entry(
    folder: Folder, seen: Seen, status: os.stat_result, start: bytes, damage: contents.Problem | None
) -> CacheEntry:
    whole = len(start) == status.st_size
    told = contents.tell(start, whole=whole)
    if damage is None:
        damage = told.problem if seen.reachable else (FindingKind.MISPLACED, UNREACHABLE)
    return CacheEntry(
        cache=layout.NAME,
        key=f"{seen.group}{seen.name}",
        path=str(folder.path / seen.name),
        size_bytes=allocated_bytes(status) if seen.regular else 0,
        created_ns=status.st_mtime_ns,
        # cuda.core sets it at every hit, and evicts by it alone.
        last_used_ns=status.st_atime_ns,
        program=told.program,
        target=told.target,
        artifact_kind=told.kind,
        unique=True,  # what else its key was made from is not known
        damage=Problem(*damage) if damage else None,
        stays="" if seen.reachable or _is_a_copy(seen) else NOT_ITS_OWN,
        handle=seen,
    )


def _is_a_copy(seen: Seen) -> bool:
    """Whether it is a binary under the digits of an entry, if not as cuda.core writes them."""
    return seen.telling and layout.is_a_copy(seen.group, seen.name)


def _owned(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
