"""The CUDA driver's compute cache of everything that the driver compiles: opaque, so the whole is one entry.

It caches PTX, NVIDIA's OpenCL programs and, from 12.9 on, NVRTC's. It is below the caches of all frameworks,
so a framework whose cache was emptied may still be served from it. Source of the variables: CUDA Programming
Guide, "CUDA Environment Variables"; how the driver treats values that the guide does not cover is unknown,
and is reported as unknown. The layout that listings show is ``index`` and ``<hex>/<hex>/<14 hex>``, written
in place. Whether that is a rule is not documented, so another name is not reported as wrong; but such a file
may belong to another program, and is a stranger.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import ALL, Kept
from gpucache.answers.verify import Checked
from gpucache.caches import places
from gpucache.caches.files import HERE, Files, NameTally, allocated_bytes, below, open_folder
from gpucache.caches.format import HOUR_NS, SECOND_NS, Format, UnjudgedError
from gpucache.caches.layout import Layout, Whose
from gpucache.caches.systems import CUDA_MAXSIZE, CUDA_MOST_BYTES, CUDA_MOVE, CUDA_PATH, CudaDriverPlaces
from gpucache.errors import FormatError
from gpucache.folders import Folder, is_own
from gpucache.units import format_size

INDEX = "index"
KEY = hashlib.sha256(b"ComputeCache").hexdigest()
BINARY = re.compile(r"[0-9a-fA-F]{1,2}/[0-9a-fA-F]{1,2}/[0-9a-f]{14}")
STRANGERS_COUNTED = 1000
"""The number of foreign files after which the rest of a tree is not walked."""
_FOLDER = re.compile(r"[0-9a-fA-F]{1,2}(?:/[0-9a-fA-F]{1,2})?")
_TEMPORARY = re.compile(r"\.nfs[0-9a-f]+|[0-9a-f]{14}\.(?:tmp|temp)")
_SEARCHED = stat.S_IXGRP | stat.S_IXOTH
_BUSY_NS = 60 * SECOND_NS
_NEARLY_FULL = 0.9
_PROGRAM = "(opaque: the whole cache)"
_FOREIGN = (
    "this is not a cache of the CUDA driver, as it lacks its index and its layout, so nothing in it is "
    "looked at or removed; name the directory of one"
)
_UNPROVEN = (
    "nothing there is named as only the driver names its files: an index and plain numbers are what others "
    "have as well, so nothing is removed; remove it yourself if it is the driver's"
)


def _one() -> NameTally:
    return NameTally(named=1)


@dataclass(slots=True)
class Survey:
    """The tree below a root summed up."""

    path: Path
    files: int = 0
    apparent_bytes: int = 0
    size_bytes: int = 0
    written_ns: int = 0
    used_ns: int = 0
    has_index: bool = False
    documented: int = 0
    """Files whose place and name are exactly as in the listings."""
    telling: int = 0
    """How many of these files have a letter in their name; a plain number may be another program's date."""
    strangers: NameTally = field(default_factory=_one)
    """Everything in the tree, links too, whose name is not one of the driver's."""
    links: NameTally = field(default_factory=_one)
    distrusted: NameTally = field(default_factory=_one)
    unread: NameTally = field(default_factory=_one)

    @property
    def binaries(self) -> int:
        return self.files - self.has_index

    @property
    def foreign(self) -> bool:
        """Whether the directory belongs to another program: it has files, but none in the driver's layout."""
        return bool(self.files and not self.documented and (self.strangers.count or not self.has_index))

    def same(self, other: "Survey") -> bool:
        return (self.files, self.apparent_bytes, self.used_ns) == (
            other.files,
            other.apparent_bytes,
            other.used_ns,
        )

    def add(self, path: str, status: os.stat_result) -> None:
        self.written_ns = min(self.written_ns, status.st_mtime_ns) if self.files else status.st_mtime_ns
        self.used_ns = max(self.used_ns, status.st_mtime_ns) if self.files else status.st_mtime_ns
        self.files += 1
        self.apparent_bytes += status.st_size
        self.size_bytes += allocated_bytes(status)
        if path == INDEX:
            self.has_index = True
            return
        name = path.rpartition("/")[2]
        if BINARY.fullmatch(path):
            self.documented += 1
            self.telling += not name.isdecimal()


class CudaDriver(CudaDriverPlaces, Format):
    """The tree below one root; a driver rebuilds missing entries, but whether it tolerates the loss of single
    files is not documented, so it is emptied whole or not at all, and nothing in it is repaired."""

    layout = Layout(())
    fixes = frozenset()
    opaque = (
        "the inputs of the driver's keys are not documented, and a new driver starts anew; "
        "gpucache.cuda.compile_program keeps a cubin that needs no such cache, and explains its misses"
    )

    @classmethod
    def whose(cls, path: Path) -> Whose:
        with open_folder(path) as folder:
            index = any(
                found.name == INDEX and found.is_file(follow_symlinks=False) for found in folder.entries()
            )
        binary = Layout(BINARY.pattern).whose(path) is Whose.OWN
        own = (index and binary) or (path.name == "ComputeCache" and (index or binary))
        return Whose.OWN if own else Whose.UNKNOWN

    def items(self, prefix: str) -> Iterator[Files]:
        if not KEY.startswith(prefix):
            return
        found = survey(self.root)
        if found.unread.count:
            self.closed_folders[self.root] = (
                f"in {self.root} {found.unread} could not be read; fix their permissions"
            )
        if found.files:
            yield Files(self.root, (), KEY, {HERE: self.root.stat()}, detail=found)

    def entry(self, item: Files) -> CacheEntry:
        found: Survey = item.detail
        entry = super().entry(item)._replace(size_bytes=found.size_bytes, files=found.files)
        return entry._replace(created_ns=found.written_ns, last_used_ns=found.used_ns)

    def trust(self, item: Files) -> Iterator[Problem]:
        """Nothing: a check looks at the whole tree."""
        yield from ()

    def beside(self) -> Iterator[Checked]:
        yield from ()

    def look(self, item: Files) -> CacheEntry:
        found: Survey = item.detail
        fields = {
            "files": str(found.files),
            "bytes": str(found.apparent_bytes),
            "index": "present" if found.has_index else "missing",
            "files of unusual names": str(found.strangers.count),
        }
        return self.entry(item)._replace(
            program=_PROGRAM,
            fields=tuple(fields.items()),
            damage=None if found.foreign else next(_untrusted(found), None),
            stays=self._stays(found),
            indivisible=f"the driver bounds this cache itself: set {CUDA_MAXSIZE}; {ALL} removes it whole",
        )

    def check(self, item: Files) -> Iterator[Problem]:
        found = survey(self.root)
        if not found.files:
            raise FileNotFoundError(str(self.root))
        if found.foreign:
            raise UnjudgedError(f"{self.root}: {_FOREIGN}")
        yield from _untrusted(found)

    def notes(self, item: Files) -> Iterator[str]:
        yield (
            "the driver's format is not documented, so nothing in it can be checked but owners, modes and "
            "sizes"
        )

    def unchanged(self, item: Files) -> bool:
        """Return True: files that programs add do not make the survey wrong."""
        return True

    def payload(self, item: Files) -> bytes:
        raise FormatError(f"{item.path} is opaque: the driver's format is not documented; copy it whole")

    def content(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield "format", "opaque: it is not documented"

    def remove(self, item: Files) -> Kept | None:
        now_ns = self.now_ns()
        found = survey(self.root)
        if why := self._stays(found):
            return Kept(why)
        if not found.same(item.detail):
            return Kept()
        failed = clear(self.root, now_ns)
        if failed.count:
            told = f"{failed.count} of its files could not be removed ({failed.first[0]})"
            return Kept(f"{told}; fix their permissions")
        return None

    def whole(self) -> Iterator[Checked]:
        for problem in _worth_knowing(survey(self.root), self.location.limit_bytes):
            yield self.told(self.root, problem, program=_PROGRAM)

    def _stays(self, found: Survey) -> str:
        """Why the cache must not be emptied, as a clause; else empty."""
        if found.foreign:
            return _FOREIGN
        if found.strangers.count:
            others = f" and {found.strangers.count - 1} more like it" if found.strangers.count > 1 else ""
            return (
                f"{found.strangers.first[0]!r}{others} in {self.root} is not named as the driver names its "
                f"files, so nothing there is removed; move that elsewhere, or set {CUDA_PATH} to a directory "
                "that only the driver uses"
            )
        if not found.telling:
            return _UNPROVEN
        if abs(self.now_ns() - found.used_ns) < _BUSY_NS:
            return "a program is using it: it changed within the last minute; end that, or wait"
        return ""


def _untrusted(found: Survey) -> Iterator[Problem]:
    if found.links.count:
        detail = f"{found.links}: not a regular file, so the driver did not make it; remove such files"
        yield Problem(FindingKind.UNTRUSTED, detail)
    if found.distrusted.count:
        detail = (
            f"{found.distrusted}: not to be believed, and the driver loads it; fix that, or empty the cache"
        )
        yield Problem(FindingKind.UNTRUSTED, detail)


def _worth_knowing(found: Survey, limit_bytes: int | None) -> Iterator[Problem]:
    if found.foreign:
        yield Problem(FindingKind.UNSUPPORTED, _FOREIGN)
        return
    full = limit_bytes is not None and found.apparent_bytes >= _NEARLY_FULL * limit_bytes
    if limit_bytes is not None and found.binaries and full:
        told = f"{format_size(found.apparent_bytes)} of {format_size(limit_bytes)} are used"
        remedy = f"raise {CUDA_MAXSIZE}, at most to {CUDA_MOST_BYTES}"
        if limit_bytes >= CUDA_MOST_BYTES:
            remedy = f"give programs their own caches by {CUDA_PATH}"
        effect = "binaries are evicted for new ones, and their programs compile anew"
        yield Problem(FindingKind.STALE, f"{told}: {effect}", remedy)
    if bool(found.binaries) != found.has_index:
        lacks = "no file 'index'" if found.binaries else "an index and no binaries"
        remedy = "'gpucache evict --cache cuda --all' empties it"
        yield Problem(FindingKind.ORPHAN, f"it has {lacks}, so programs compile anew", remedy)
    if found.unread.count:
        yield Problem(FindingKind.UNSUPPORTED, f"{found.unread}: a directory that was not looked into")


def survey(root: Path) -> Survey:
    """The tree below a root; raises OSError if the root cannot be read."""
    found = Survey(root)
    exposed = {}
    """For each directory, whether other users can reach it: only then do modes matter."""

    def trust(path: str, status: os.stat_result, *, reached: bool) -> None:
        why = places.distrust(status, move=CUDA_MOVE)
        theirs = status.st_uid != 0 and not is_own(status)
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
                found.add(path, seen)
            else:
                found.links.add(path)
                found.strangers.add(path)
            if found.strangers.count >= STRANGERS_COUNTED:
                break  # the top of a machine, or a home: none of it is removed, however much more there is
    return found


def clear(root: Path, began_ns: int) -> NameTally:
    """Remove the driver's own files older than an instant; returns its failures. Raises OSError.

    Newer files belong to a program that started meanwhile. The index goes first, so that such a program
    begins a new one and does not look for binaries that are gone.
    """
    failed = _one()
    with open_folder(root) as folder:
        _remove(folder, INDEX, began_ns, failed)
        _clear(folder, "", began_ns, failed)
    return failed


def _clear(folder: Folder, above: str, began_ns: int, failed: NameTally) -> None:
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
            with suppress(OSError):  # it has files that stay
                folder.rmdir(found.name)


def _remove(folder: Folder, name: str, began_ns: int, failed: NameTally) -> None:
    try:
        status = folder.lstat(name)
        # No clearing takes an hour: a file dated further in the future has a wrong date.
        if stat.S_ISREG(status.st_mode) and not -HOUR_NS < began_ns - status.st_mtime_ns < 0:
            folder.unlink(name)
    except FileNotFoundError:
        return
    except OSError as error:
        failed.add(f"{name} ({error.strerror or 'it cannot be removed'})")


def _is_its_own(path: str) -> bool:
    """Whether a path is that of a file of the driver, or of one that it left unfinished."""
    folder, _, name = path.rpartition("/")
    temporary = _TEMPORARY.fullmatch(name) and (not folder or _FOLDER.fullmatch(folder))
    return path == INDEX or bool(temporary) or BINARY.fullmatch(path) is not None
