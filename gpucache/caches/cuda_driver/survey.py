"""The files below a driver cache's root: summed up in constant memory, and removed.

The layout that listings show is ``index`` and ``<hex>/<hex>/<14 hex>``, written in place. Whether that is a
rule is not documented, so another name is not called wrong; but whatever is not named so may be somebody
else's, and is a stranger. Must not decide whether to remove anything.
"""

import hashlib
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.files import allocated_bytes, below, open_folder
from gpucache.caches.format import HOUR_NS
from gpucache.caches.systems import CUDA_MOVE
from gpucache.caches.tally import Tally
from gpucache.folders import Folder

INDEX = "index"
KEY = hashlib.sha256(b"ComputeCache").hexdigest()
"""Of the one entry, wherever it lies."""
BINARY = re.compile(r"[0-9a-fA-F]{1,2}/[0-9a-fA-F]{1,2}/[0-9a-f]{14}")
STRANGERS_COUNTED = 1000
"""Of what is not the driver's; then the rest of a tree is not walked."""
_FOLDER = re.compile(r"[0-9a-fA-F]{1,2}(?:/[0-9a-fA-F]{1,2})?")
_TEMPORARY = re.compile(r"\.nfs[0-9a-f]+|[0-9a-f]{14}\.(?:tmp|temp)")
_SEARCHED = stat.S_IXGRP | stat.S_IXOTH


def _one() -> Tally:
    return Tally(named=1)


@dataclass(slots=True)
class Survey:
    """The tree below a root summed up: an ``Item`` of ``gpucache.caches.format``."""

    path: Path
    files: int = 0
    apparent_bytes: int = 0
    size_bytes: int = 0
    written_ns: int = 0
    """Of the oldest file."""
    newest_ns: int = 0
    has_index: bool = False
    recent: int = 0
    """Binaries written within the last hour."""
    documented: int = 0
    """Files that lie and are named exactly as in the listings."""
    telling: int = 0
    """How many of them have a letter in their name; a mere number may be a date or a count of somebody's."""
    strangers: Tally = field(default_factory=_one)
    """What lies in the tree and is not named as the driver's own, links among it."""
    oversize: Tally = field(default_factory=_one)
    empty: Tally = field(default_factory=_one)
    temporary: Tally = field(default_factory=_one)
    links: Tally = field(default_factory=_one)
    distrusted: Tally = field(default_factory=_one)
    unread: Tally = field(default_factory=_one)
    key: str = KEY
    owned: bool = True

    @property
    def binaries(self) -> int:
        """Files beside the index."""
        return self.files - self.has_index

    @property
    def foreign(self) -> bool:
        """Whether it is the folder of something else, which holds files and none in the driver's layout."""
        return bool(self.files and not self.documented and (self.strangers.count or not self.has_index))

    def same(self, other: "Survey") -> bool:
        """Whether nothing changed between two looks."""
        return (self.files, self.apparent_bytes, self.newest_ns) == (
            other.files,
            other.apparent_bytes,
            other.newest_ns,
        )

    def add(self, path: str, status: os.stat_result, now_ns: int, limit_bytes: int | None) -> None:
        """Count a regular file."""
        self.written_ns = min(self.written_ns, status.st_mtime_ns) if self.files else status.st_mtime_ns
        self.newest_ns = max(self.newest_ns, status.st_mtime_ns) if self.files else status.st_mtime_ns
        self.files += 1
        self.apparent_bytes += status.st_size
        self.size_bytes += allocated_bytes(status)
        if path == INDEX:
            self.has_index = True
            return
        name = path.rpartition("/")[2]
        young = now_ns - status.st_mtime_ns < HOUR_NS  # it may be being written
        self.recent += young
        if BINARY.fullmatch(path):
            self.documented += 1
            self.telling += not name.isdecimal()
        if limit_bytes is not None and status.st_size > limit_bytes:
            self.oversize.add(path)
        if not young and _is_its_own(path) and _TEMPORARY.fullmatch(name):
            self.temporary.add(path)
        elif not young and status.st_size == 0:
            self.empty.add(path)


def survey(root: Path, now_ns: int, limit_bytes: int | None) -> Survey:
    """The tree below a root; raises OSError where the root does not read."""
    found = Survey(root)
    exposed = {}
    """By folder whether others can get to it at all: modes count where they do."""

    def trust(path: str, status: os.stat_result, *, reached: bool) -> None:
        why = places.distrust(status, move=CUDA_MOVE)
        theirs = hasattr(os, "geteuid") and status.st_uid not in (0, os.geteuid())
        if why and (reached or theirs):
            found.distrusted.add(f"{path} ({why})")

    with open_folder(root) as folder:
        status = folder.status()
        exposed[""] = bool(status.st_mode & _SEARCHED)
        trust(".", status, reached=exposed[""])
        for path, seen, why in below(folder):
            above = exposed[path.rpartition("/")[0]]
            if seen is None:
                found.unread.add(f"{path} ({why})")
                if not _FOLDER.fullmatch(path):
                    found.strangers.add(path)
            elif stat.S_ISDIR(seen.st_mode):
                trust(path, seen, reached=above)
                exposed[path] = above and bool(seen.st_mode & _SEARCHED)
            elif stat.S_ISREG(seen.st_mode):
                trust(path, seen, reached=above)
                if not _is_its_own(path):
                    found.strangers.add(path)
                found.add(path, seen, now_ns, limit_bytes)
            else:
                found.links.add(path)
                found.strangers.add(path)
            if found.strangers.count >= STRANGERS_COUNTED:
                break  # the top of a machine, or a home: none of it is removed, however much more there is
    return found


def clear(root: Path, began_ns: int) -> Tally:
    """Remove the driver's own files that are older than an instant: those that could not be. Raises OSError.

    What was written since is of a program that started meanwhile. The index goes first, so that such a
    program begins a new one and is not led to binaries that are gone.
    """
    failed = _one()
    with open_folder(root) as folder:
        _remove(folder, INDEX, began_ns, failed)
        _clear(folder, "", began_ns, failed)
    return failed


def _clear(folder: Folder, above: str, began_ns: int, failed: Tally) -> None:
    for found in folder.entries():
        path = above + found.name
        if not found.is_dir(follow_symlinks=False):
            if _is_its_own(path):
                _remove(folder, found.name, began_ns, failed)
        elif _FOLDER.fullmatch(path):
            try:
                with folder.folder(found.name) as inner:
                    _clear(inner, f"{path}/", began_ns, failed)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed.add(f"{path} ({error.strerror or 'it does not open'})")
                continue
            with suppress(OSError):  # it holds what stays
                folder.rmdir(found.name)


def _remove(folder: Folder, name: str, began_ns: int, failed: Tally) -> None:
    try:
        status = folder.lstat(name)
        # No clearing takes an hour: a file from further ahead has a wrong date.
        if stat.S_ISREG(status.st_mode) and not -HOUR_NS < began_ns - status.st_mtime_ns < 0:
            folder.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.add(f"{name} ({error.strerror or 'it cannot be removed'})")


def _is_its_own(path: str) -> bool:
    """Whether a path is that of a file of the driver, or of one that it left half made."""
    folder, _, name = path.rpartition("/")
    temporary = _TEMPORARY.fullmatch(name) and (not folder or _FOLDER.fullmatch(folder))
    return path == INDEX or bool(temporary) or BINARY.fullmatch(path) is not None
