"""Everything that is wrong with a cuda.core cache, or worth knowing of it. Must not change anything."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from gpucache.caches import files, places, strangers
from gpucache.caches.cuda_core import contents, layout
from gpucache.caches.cuda_core.contents import Problem
from gpucache.caches.cuda_core.entries import UNREACHABLE, Seen
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, Checked, Finding, FindingKind
from gpucache.payload import PayloadKind
from gpucache.units import format_age, format_size

LARGEST_BYTES = 1 << 30
"""The largest binary that is given out."""
CHECKED_BYTES = 256 << 20
"""Of larger files only the beginning is looked at."""
FOREIGN = "cuda.core neither reads nor removes it; keep it elsewhere"
_NOT_TEMPORARY = "it is none of cuda.core's by its name or by what it holds, so it stays; move it elsewhere"
Clock = Callable[[], int]
_SHORTEST_KEY = 32
_BEGINNING_BYTES = 64 << 10
_DIGITS = frozenset("0123456789abcdef")
_NAMES_LOOKED_AT = 1000


def check(folder: Folder, entry: CacheEntry, seen: Seen) -> Checked:
    """A file checked whole: place, owner, mode and what it holds."""
    try:
        problems = list(_problems(folder, seen))
    except FileNotFoundError:
        return Checked(entry.key, notes=("it was removed while it was being checked",), counts=False)
    except FormatError as error:
        problems = [(FindingKind.UNTRUSTED, f"{error}, though cuda.core follows it")]
    except OSError as error:
        problems = [contents.unreadable(error)]
    found = (
        Finding(entry.cache, entry.key, kind, detail, entry.program, entry.target)
        for kind, detail in problems
    )
    return Checked(entry.key, tuple(found), tuple(_notes(entry, seen)))


def leftovers(root: Path, clock: Clock = time.time_ns) -> Iterator[Checked]:
    """What belongs to no entry: files of dead writers, strange files, folders that others may write to."""
    if is_foreign(root):
        detail = f"{root} is no cache of cuda.core, so nothing in it is looked at; name the folder of one"
        yield _checked(root, FindingKind.UNSUPPORTED, detail)
        return
    try:
        files.open_folder(root).close()
    except PermissionError as error:
        yield _unopened(root, error)
        return
    except OSError:
        pass  # told, or absent
    yield from _folder(root, (), _beside)
    yield from _folder(root, (layout.ENTRIES,), _entries)
    yield from _folder(root, (layout.TMP,), lambda folder: _tmp(folder, clock()))


def is_foreign(root: Path) -> bool:
    """Whether a folder holds things and has not the layout of a cache. Raises nothing.

    Other folders have an ``entries`` or a ``tmp`` as well, and what is in those is not to be swept.
    """
    try:
        with Folder.at(root) as folder:
            present = {found.name for found in islice(folder.entries(), _NAMES_LOOKED_AT)}
        if layout.ENTRIES not in present:
            return not present <= {layout.TMP}
        with files.open_folder(root, layout.ENTRIES) as entries:
            groups = [found.name for found in islice(entries.entries(), _NAMES_LOOKED_AT)]
            return bool(groups) and not any(_leads_on(entries, group) for group in groups)
    except (OSError, ValueError):
        return False


def _leads_on(entries: Folder, group: str) -> bool:
    """Whether a folder of entries is one, or holds a file that is named as an entry is."""
    if layout.is_group(group):
        return True
    try:
        with entries.folder(group) as folder:
            names = [found.name for found in islice(folder.entries(), _NAMES_LOOKED_AT)]
    except OSError:
        return False
    return any(len(name) >= _SHORTEST_KEY and set(name.lower()) <= _DIGITS for name in names)


def unread(root: Path) -> str:
    """That a folder which is there may not be read; empty where it may. Raises nothing."""
    there = os.path.isdir(root)  # noqa: PTH112 - Path.is_dir raises below a folder that may not be entered
    if not there or os.access(root, os.R_OK | os.X_OK):
        return ""
    return f"{root} may not be read by this user, so what it holds is not known; {layout.MOVE}"


def is_stale(folder: Folder, name: str, status: os.stat_result, now_ns: int) -> bool:
    """Whether a file in ``tmp`` is what a writer left, which cuda.core removes at its next start."""
    return status.st_mtime_ns < now_ns - layout.STALE_NS and _is_temporary(folder, name, status)


def _is_temporary(folder: Folder, name: str, status: os.stat_result) -> bool:
    """Whether it is called as cuda.core calls its files there, and is empty or begins as a binary."""
    if not layout.is_temporary(name) or not stat.S_ISREG(status.st_mode):
        return False
    try:
        return contents.is_binary(files.read_part(folder, name, 0, _BEGINNING_BYTES))
    except (OSError, FormatError):
        return False


def _problems(folder: Folder, seen: Seen) -> Iterator[Problem]:
    if not seen.reachable:
        yield FindingKind.MISPLACED, UNREACHABLE
    status = folder.lstat(seen.name)
    if not stat.S_ISREG(status.st_mode):
        yield contents.no_file(status)
        return
    if distrust := places.distrust(status, move=layout.MOVE):
        yield FindingKind.UNTRUSTED, distrust
    whole = status.st_size <= CHECKED_BYTES
    data = files.read_part(folder, seen.name, 0, CHECKED_BYTES if whole else _BEGINNING_BYTES)
    problem = contents.tell(data, whole=whole).problem
    if problem is not None:
        yield problem


def _notes(entry: CacheEntry, seen: Seen) -> Iterator[str]:
    if seen.identity.size_bytes > CHECKED_BYTES:
        yield f"it is larger than {format_size(CHECKED_BYTES)}: only its beginning was looked at"
    if entry.artifact_kind == PayloadKind.LTOIR.value:
        yield "LTO-IR does not say how long it is, so whether its end was cut off cannot be told"


def _folder(
    root: Path, parts: tuple[str, ...], look: Callable[[Folder], Iterator[Checked]]
) -> Iterator[Checked]:
    try:
        with files.open_folder(root, *parts) as folder:
            yield from _trusted(folder)
            yield from look(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        yield _unopened(root.joinpath(*parts), error)


def _unopened(path: Path, error: OSError) -> Checked:
    if os.path.islink(path):  # noqa: PTH114 - Path.is_symlink raises below a folder that may not be entered
        detail = f"{path.name} is a link, which cuda.core follows and gpucache does not; name its own place"
        return _checked(path, FindingKind.UNTRUSTED, detail)
    detail = f"{path} cannot be read ({error.strerror}), so what it holds is not known; mend its rights"
    return _checked(path, FindingKind.UNTRUSTED, detail)


def _trusted(folder: Folder) -> Iterator[Checked]:
    distrust = places.distrust(folder.status(), move=layout.MOVE)
    if distrust:
        yield _checked(folder.path, FindingKind.UNTRUSTED, f"of the folder {folder.path.name}: {distrust}")


def _beside(folder: Folder) -> Iterator[Checked]:
    names = (found.name for found in folder.entries() if found.name not in (layout.ENTRIES, layout.TMP))
    if told := strangers.listed(names):
        yield _checked(folder.path, FindingKind.LEFTOVER, f"it holds {told} as well: {FOREIGN}")


def _entries(folder: Folder) -> Iterator[Checked]:
    for found in folder.entries():
        path = folder.path / found.name
        if found.is_symlink():
            detail = "it is a link, which cuda.core follows and gpucache does not; remove it yourself"
            yield _checked(path, FindingKind.UNTRUSTED, detail)
        elif not found.is_dir(follow_symlinks=False):
            yield _in_place_of_group(path)
        else:
            yield from _group(folder, found.name)


def _in_place_of_group(path: Path) -> Checked:
    if layout.is_group(path.name):
        detail = f"it lies where a folder belongs: programs whose keys begin with {path.name} fail; remove it"
        return _checked(path, FindingKind.MISPLACED, detail)
    return _checked(path, FindingKind.LEFTOVER, FOREIGN)


def _group(entries: Folder, name: str) -> Iterator[Checked]:
    try:
        with entries.folder(name) as folder:
            yield from _trusted(folder)
            for found in folder.entries():
                if found.is_dir(follow_symlinks=False):
                    yield _in_place_of_entry(folder, found.name)
    except FileNotFoundError:
        return
    except OSError as error:
        yield _unopened(entries.path / name, error)


def _in_place_of_entry(folder: Folder, name: str) -> Checked:
    path = folder.path / name
    if layout.is_group(folder.path.name) and layout.is_rest(name):
        detail = "a folder lies where an entry belongs: the program with this key fails; remove it"
        return _checked(path, FindingKind.MISPLACED, detail)
    return _checked(path, FindingKind.LEFTOVER, FOREIGN)


def _tmp(folder: Folder, now_ns: int) -> Iterator[Checked]:
    for found in folder.entries():
        try:
            status = folder.lstat(found.name)
        except FileNotFoundError:
            continue  # published since
        path = folder.path / found.name
        if is_stale(folder, found.name, status, now_ns):
            age = format_age(now_ns - status.st_mtime_ns)
            detail = f"left by a writer that was stopped, {format_size(status.st_size)}, {age} old"
            yield _checked(path, FindingKind.LEFTOVER, detail)
        elif not _is_temporary(folder, found.name, status):
            yield _checked(path, FindingKind.LEFTOVER, _NOT_TEMPORARY)


def _checked(path: Path, kind: FindingKind, detail: str) -> Checked:
    return Checked(str(path), (Finding(layout.NAME, path.name, kind, detail),), counts=False)
