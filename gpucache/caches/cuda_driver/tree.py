"""The files below a driver cache's root: walked in constant memory, no links followed, and summed up.

The layout that listings show is ``index`` and ``<hex>/<hex>/<14 hex>``, written in place. Whether that is a
rule is not documented, so another name is not called wrong; but whatever is not named so may be somebody
else's, and is a stranger. Must not remove anything.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpucache.caches import places
from gpucache.caches.cuda_driver.settings import MOVE
from gpucache.caches.files import allocated_bytes, open_folder
from gpucache.folders import Folder

INDEX = "index"
DEEPEST = 8
"""Folders below the root that are walked into; listings show two."""
STRANGERS_COUNTED = 1000
"""Of what is not the driver's; then the rest of a tree is not walked."""
RECENT_NS = 3600 * 10**9
_DOCUMENTED = re.compile(r"[0-9a-fA-F]{1,2}/[0-9a-fA-F]{1,2}/[0-9a-fA-F]{14}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_TEMPORARY = re.compile(r"\.nfs[0-9a-f]+|[0-9a-fA-F]{14}\.(?:tmp|temp)")
_FOLDER = re.compile(r"[0-9a-fA-F]{1,2}(?:/[0-9a-fA-F]{1,2})?")
_SEARCHED = stat.S_IXGRP | stat.S_IXOTH


@dataclass(slots=True)
class Tally:
    """How many files something is true of, and what is said of the first."""

    count: int = 0
    first: str = ""

    def add(self, path: str, why: str = "") -> None:
        """Count a file."""
        if not self.count:
            self.first = f"{path} ({why})" if why else path
        self.count += 1


@dataclass(slots=True)
class Survey:
    """A tree summed up; sizes in bytes, times in nanoseconds since 1970."""

    files: int = 0
    size_bytes: int = 0
    allocated_bytes: int = 0
    oldest_ns: int = 0
    newest_ns: int = 0
    has_index: bool = False
    recent: int = 0
    """Binaries written within the last hour."""
    documented: int = 0
    """Files that lie and are named exactly as in the listings."""
    telling: int = 0
    """Those of them whose name is no mere number, as a date or a count of somebody else's would be."""
    strangers: Tally = field(default_factory=Tally)
    """What lies in the tree and is not named as the driver's own, links among it."""
    oversize: Tally = field(default_factory=Tally)
    empty: Tally = field(default_factory=Tally)
    temporary: Tally = field(default_factory=Tally)
    links: Tally = field(default_factory=Tally)
    distrusted: Tally = field(default_factory=Tally)
    unread: Tally = field(default_factory=Tally)

    @property
    def binaries(self) -> int:
        """Files beside the index."""
        return self.files - self.has_index

    @property
    def foreign(self) -> bool:
        """Whether it is the folder of something else, which holds files and none in the driver's layout."""
        strange = bool(self.strangers.count)
        return bool(self.files) and not self.documented and (not self.has_index or strange)

    @property
    def identity(self) -> tuple[int, int, int]:
        """What tells whether anything changed since."""
        return self.files, self.size_bytes, self.newest_ns


@dataclass(frozen=True, slots=True)
class Node:
    """Something below the root. ``status`` is None for a folder that was not walked into, ``why``."""

    path: str
    depth: int
    status: os.stat_result | None
    exposed: bool = False
    """Whether others can get to it at all."""
    why: str = ""


def is_folder_of_it(path: str) -> bool:
    """Whether a path below the root is that of a folder in which the driver keeps binaries."""
    return _FOLDER.fullmatch(path) is not None


def is_its_own(path: str) -> bool:
    """Whether a path below the root is that of a file of the driver, or of one that it left half made."""
    folder, _, name = path.rpartition("/")
    temporary = _TEMPORARY.fullmatch(name) and (not folder or is_folder_of_it(folder))
    return path == INDEX or bool(temporary) or _DOCUMENTED.fullmatch(path) is not None


def survey(root: Path, now_ns: int, limit_bytes: int | None) -> Survey:
    """The tree below a root; raises OSError where the root does not read."""
    found = Survey()
    with open_folder(root) as folder:
        mode = folder.status().st_mode
        _distrust(found, ".", folder.status(), exposed=bool(mode & _SEARCHED))
        for node in _walk(folder, "", 0, exposed=bool(mode & _SEARCHED)):
            _count(found, node, now_ns, limit_bytes)
            if found.strangers.count >= STRANGERS_COUNTED:
                break  # the top of a machine, or a home: none of it is removed, however much more there is
    return found


def looks_like_one(root: Path, *, most: int = 64) -> bool:
    """Whether a tree has the layout of the listings: an index and a binary, or the name and either.

    Looks at so many names of a folder; raises OSError.
    """
    with open_folder(root) as folder:
        index = _is_file(folder, INDEX)
        hashed = _holds_hashed(folder, 2, most)
    return (index and hashed) or (root.name == "ComputeCache" and (index or hashed))


def _walk(folder: Folder, prefix: str, depth: int, *, exposed: bool) -> Iterator[Node]:
    for found in folder.entries():
        path = f"{prefix}{found.name}"
        try:
            status = folder.lstat(found.name)
        except FileNotFoundError:
            continue
        yield Node(path, depth, status, exposed)
        if stat.S_ISDIR(status.st_mode):
            yield from _walk_into(folder, found.name, path, depth + 1, exposed=exposed)


def _walk_into(outer: Folder, name: str, path: str, depth: int, *, exposed: bool) -> Iterator[Node]:
    if depth > DEEPEST:
        yield Node(path, depth, None, why="it lies too deep")
        return
    try:
        with outer.folder(name) as folder:
            reached = exposed and bool(folder.status().st_mode & _SEARCHED)
            yield from _walk(folder, f"{path}/", depth, exposed=reached)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Node(path, depth, None, why=error.strerror or "it does not open")


def _count(found: Survey, node: Node, now_ns: int, limit_bytes: int | None) -> None:
    status = node.status
    if status is None:
        found.unread.add(node.path, node.why)
        if not is_folder_of_it(node.path):
            found.strangers.add(node.path, node.why)
    elif stat.S_ISREG(status.st_mode):
        _distrust(found, node.path, status, exposed=node.exposed)
        if not is_its_own(node.path):
            found.strangers.add(node.path)
        _sum_up(found, status)
        if node.path == INDEX:
            found.has_index = True
        else:
            _count_binary(found, node, status, now_ns, limit_bytes)
    elif stat.S_ISDIR(status.st_mode):
        _distrust(found, node.path, status, exposed=node.exposed)
    else:
        found.links.add(node.path)
        found.strangers.add(node.path)


def _sum_up(found: Survey, status: os.stat_result) -> None:
    found.oldest_ns = min(found.oldest_ns, status.st_mtime_ns) if found.files else status.st_mtime_ns
    found.newest_ns = max(found.newest_ns, status.st_mtime_ns) if found.files else status.st_mtime_ns
    found.files += 1
    found.size_bytes += status.st_size
    found.allocated_bytes += allocated_bytes(status)


def _count_binary(
    found: Survey, node: Node, status: os.stat_result, now_ns: int, limit_bytes: int | None
) -> None:
    age_ns = now_ns - status.st_mtime_ns
    name = node.path.rpartition("/")[2]
    found.recent += age_ns < RECENT_NS
    if _DOCUMENTED.fullmatch(node.path):
        found.documented += 1
        found.telling += not name.isdecimal()
    if limit_bytes is not None and status.st_size > limit_bytes:
        found.oversize.add(node.path)
    if age_ns < RECENT_NS:
        return  # it may be being written
    if is_its_own(node.path) and _TEMPORARY.fullmatch(name):
        found.temporary.add(node.path)
    elif status.st_size == 0:
        found.empty.add(node.path)


def _distrust(found: Survey, path: str, status: os.stat_result, *, exposed: bool) -> None:
    """Modes count where others get there: folders are made 0700, files with what the umask leaves."""
    why = places.distrust(status, move=MOVE)
    if why and (exposed or not _is_trusted_owner(status)):
        found.distrusted.add(path, why)


def _is_trusted_owner(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


def _is_file(folder: Folder, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(folder.lstat(name).st_mode)
    return False


def _holds_hashed(folder: Folder, levels: int, most: int) -> bool:
    """Whether some file of hexadecimal name lies so many folders of such names down."""
    for _, found in zip(range(most), folder.entries(), strict=False):
        if not _HEX.fullmatch(found.name):
            continue
        if levels == 0:
            if len(found.name) == 14 and found.is_file(follow_symlinks=False):
                return True
        elif found.is_dir(follow_symlinks=False):
            with folder.folder(found.name) as inner:
                if _holds_hashed(inner, levels - 1, most):
                    return True
    return False
