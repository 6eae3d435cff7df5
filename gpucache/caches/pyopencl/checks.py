"""What can be wrong with an entry, the lock or the folder, each with what comes of it. Changes nothing.

What PyOpenCL does with damage was tried on 2026.1: a missing or empty ``info`` is a warning and a rebuild;
any other damage is an exception in the caching, and its handler asks for a variable that is usually not
set (``os.environ["PYOPENCL_CACHE_FAILURE_FATAL"]``), so that the program ends with a KeyError. The files
are written in place under the lock: what is wrong while it is held may be half written.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpucache import payload
from gpucache.caches import files, strangers
from gpucache.caches.pyopencl import entries, headers, locking, names, sources
from gpucache.caches.pyopencl.entries import Seen
from gpucache.caches.pyopencl.headers import Compared, State
from gpucache.caches.pyopencl.pickled import EndedError, Info
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.outcomes import CacheEntry, Checked, Finding, FindingKind
from gpucache.payload import PayloadKind
from gpucache.units import format_age, format_size

DIES = "every program that builds it dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL', until it is removed"
_NAMES_LOOKED_AT = 100_000
_SHOWN = 4
_ADMINISTRATOR = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong, or worth knowing, with an entry."""

    kind: FindingKind
    detail: str
    mended: bool = True
    """Whether removing the entry mends it."""
    served: bool = False
    """Whether PyOpenCL serves the entry all the same."""


def check(root: Folder, entry: CacheEntry, seen: Seen, clock: locking.Clock = time.time_ns) -> Checked:
    """An entry checked whole; what changes meanwhile, or may be half written, is a note."""
    try:
        with root.folder(seen.key) as inner:
            found, notes = problems(inner), tuple(_notes(inner))
            changed = bool(found) and entries.identities(inner) != seen.identities
    except FileNotFoundError:
        return _untold(entry, "it was removed while it was being checked")
    except OSError as error:
        return _untold(entry, f"it cannot be read ({error.strerror})")
    if changed:
        return _untold(entry, "it changed while it was being checked; check again")
    if any(problem.mended for problem in found) and _busy(root, clock):
        found = [problem for problem in found if not problem.mended]
        half = f"it may be half written, as PyOpenCL's lock {root.path / names.LOCK} is held; check again"
        notes = (*notes, half)
    told = tuple(f"{entry.key[:12]}: {note}" for note in notes)
    return Checked(entry.key, tuple(_finding(entry, problem) for problem in found), told)


def problems(inner: Folder) -> list[Problem]:
    """Everything about an entry's folder; raises OSError."""
    found = [*_foreign(inner), *_trust(inner)]
    if any(problem.kind is FindingKind.UNTRUSTED for problem in found):
        return found
    present = {one.name for one in islice(inner.entries(), _NAMES_LOOKED_AT)} & set(names.PARTS)
    if not present:
        detail = "it is empty, as a rebuild of it did not finish; PyOpenCL builds it at the next use"
        return [*found, Problem(FindingKind.ORPHAN, detail)]
    info = _info(inner, present)
    if isinstance(info, Problem):
        return [*found, info]
    return [*found, *_source(present), *_binary(inner, present), *stale(info)]


def stale(info: Info) -> list[Problem]:
    """What became of the headers an entry was made with, as far as PyOpenCL will act on it."""
    compared = headers.compare_all(info.dependencies)
    return [Problem(FindingKind.STALE, detail, mended) for detail, mended in map(_header, compared) if detail]


def leftovers(
    root: Folder, *, clock: locking.Clock = time.time_ns, python: str, own_python: str
) -> Iterator[Checked]:
    """The lock, a folder of another Python, and what lies among the entries; raises OSError."""
    age = locking.age_ns(root, clock)
    if age is not None:
        yield _lock(root.path / names.LOCK, age, strange=locking.is_strange(root.lstat(names.LOCK)))
    if python and python != own_python:
        yield _other_python(root.path, python, own_python)
    for one in islice(root.entries(), _NAMES_LOOKED_AT):
        with suppress(OSError):
            if python and not one.is_dir(follow_symlinks=False) and names.is_key(one.name):
                yield _in_the_way(Path(root.path, one.name))
            elif python and one.name != names.LOCK and not names.is_key(one.name):
                yield _stray(Path(root.path, one.name))


def beside(root: Path) -> Iterator[Checked]:
    """What lies beside entries, or beside the folders of versions. Raises nothing."""
    if names.python_of(root.name):
        return  # there each is told by itself
    with suppress(OSError, ValueError), files.open_folder(root) as folder:
        found = (one.name for one in folder.entries() if one.name != names.LOCK)
        rest = (name for name in found if not (names.is_key(name) or names.python_of(name)))
        if told := strangers.listed(rest):
            detail = f"it holds {told} as well, none of PyOpenCL's; keep it elsewhere"
            yield _loose(root, FindingKind.LEFTOVER, detail)


def foreign(root: Path) -> Checked:
    """A folder that is none of PyOpenCL's, in which nothing is judged."""
    detail = f"{root} is no cache of PyOpenCL, so nothing in it is looked at; name the folder of one"
    return _loose(root, FindingKind.UNSUPPORTED, detail)


def unread(root: Path, why: str) -> Checked:
    """A folder that may not be read."""
    return _loose(root, FindingKind.UNTRUSTED, why)


def _foreign(inner: Folder) -> list[Problem]:
    found = []
    for one in islice(inner.entries(), _NAMES_LOOKED_AT):
        if one.name not in names.PARTS:
            dies = f"; once it has to be rebuilt, {DIES}" if one.is_dir(follow_symlinks=False) else ""
            detail = f"{names.shown(one.name)} is none of PyOpenCL's{dies}; remove it"
            found.append(Problem(FindingKind.LEFTOVER, detail, mended=False, served=True))
    return found


def _trust(inner: Folder) -> list[Problem]:
    """Whom the folder and its files belong to: PyOpenCL unpickles ``info``, which can run anything."""
    found = [_distrust("its folder", inner.status())]
    for name in names.PARTS:
        with suppress(FileNotFoundError):
            found.append(_distrust(name, inner.lstat(name)))
    return [Problem(FindingKind.UNTRUSTED, detail) for detail in found if detail]


def _distrust(what: str, status: os.stat_result) -> str:
    """Why a file is not to be believed. A group that may write, as umask 002 gives, is the root's affair."""
    if stat.S_ISLNK(status.st_mode):
        return f"{what} is a link, which gpucache does not follow though PyOpenCL does"
    if sys.platform == "win32":
        return ""
    if status.st_uid not in (_ADMINISTRATOR, os.geteuid()):
        return f"{what} belongs to uid {status.st_uid}, and PyOpenCL runs what info says"
    if status.st_mode & stat.S_IWOTH:
        return f"anybody may write to {what}, and PyOpenCL runs what info says"
    return ""


def _source(present: set[str]) -> list[Problem]:
    if names.SOURCE in present:
        return []
    detail = f"{names.SOURCE} is missing; PyOpenCL serves the entry all the same, but nobody can say of what"
    return [Problem(FindingKind.ORPHAN, detail, served=True)]


def _binary(inner: Folder, present: set[str]) -> list[Problem]:
    if names.BINARY not in present:
        return [Problem(FindingKind.TRUNCATED, f"binary is missing: {DIES}")]
    if _is_large(inner):
        return []
    try:
        data = entries.read_binary(inner)
    except FormatError as error:
        return [Problem(FindingKind.CORRUPT, f"{error}: {DIES}")]
    if not data:
        return [Problem(FindingKind.TRUNCATED, f"binary is empty: {DIES}")]
    info = payload.describe(data)
    if info.problem:
        return [Problem(FindingKind.CORRUPT, f"binary is broken, {info.problem}: {DIES}")]
    if info.kind is PayloadKind.UNKNOWN:
        # A platform that is not known here may write such a one, so it is nothing to be removed.
        detail = (
            f"binary begins with {data[:8].hex(' ')}, as that of no platform known here; "
            f"where that is damage, {DIES}, and evicting the entry mends it"
        )
        return [Problem(FindingKind.UNSUPPORTED, detail, mended=False, served=True)]
    return []


def _info(inner: Folder, present: set[str]) -> Info | Problem:
    """What the entry says of its build; without that PyOpenCL never comes to the binary."""
    if names.INFO not in present:
        detail = "info is missing, as its writing did not finish; PyOpenCL warns and builds it again"
        return Problem(FindingKind.ORPHAN, detail)
    try:
        if inner.lstat(names.INFO).st_size == 0:
            return Problem(FindingKind.TRUNCATED, "info is empty; PyOpenCL warns and builds it again")
        return entries.info_of(inner)
    except EndedError as error:
        return Problem(FindingKind.TRUNCATED, f"{error}: {DIES}")
    except FormatError as error:
        return Problem(FindingKind.CORRUPT, f"{error}; gpucache does not load it, PyOpenCL would")


def _header(compared: Compared) -> tuple[str, bool]:
    """What is worth knowing of a header, and whether removing the entry mends it; nothing if unchanged."""
    path, state = compared.path, compared.state
    if state in (State.SAME, State.UNREAD):
        return "", False
    if state is State.NOT_TEXT:
        return (
            f"{path} was touched and is not UTF-8, which PyOpenCL's comparison does not survive: {DIES}",
            True,
        )
    if state is State.MISSING:
        return f"{path} is no longer there; PyOpenCL builds it again at the next use", False
    return f"{path} was {state.value}; PyOpenCL builds it again at the next use", False


def _is_large(inner: Folder) -> bool:
    with suppress(FileNotFoundError):
        return inner.lstat(names.BINARY).st_size > entries.CHECKED_BINARY_BYTES
    return False


def _notes(inner: Folder) -> Iterator[str]:
    if _is_large(inner):
        yield f"its binary is larger than {format_size(entries.CHECKED_BINARY_BYTES)} and was not looked into"
    with suppress(OSError, FormatError):
        passed_over = sources.unfollowed(entries.read_source(inner))
        if passed_over:
            shown = ", ".join(passed_over[:_SHOWN]) + (" and more" if len(passed_over) > _SHOWN else "")
            yield (
                f"PyOpenCL keeps no record of {shown}, included by a macro or with a comment behind it: "
                "it serves the old binary when that changes"
            )


def _busy(root: Folder, clock: locking.Clock) -> bool:
    with suppress(OSError):
        age = locking.age_ns(root, clock)
        return age is not None and age <= locking.STALE_NS
    return False


def _lock(path: Path, age_ns: int, *, strange: bool) -> Checked:
    age = format_age(age_ns)
    if strange:
        detail = (
            f"{path} is not PyOpenCL's lock, which is an empty file, but every program that builds waits "
            "60 s for it and then dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL'; move it elsewhere"
        )
        return _loose(path, FindingKind.MISPLACED, detail)
    detail = (
        f"the lock {path} was taken {age} ago, and a program holds it or was killed with it: others wait up "
        f"to 60 s for it; where it stays, run 'gpucache verify --cache {names.NAME} --repair' in two minutes"
    )
    if age_ns > locking.STALE_NS:
        detail = (
            f"the lock {path} was left behind {age} ago by a program that was killed: every program that "
            "builds waits 60 s for it and then dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL'; run "
            f"'gpucache verify --cache {names.NAME} --repair'"
        )
        return _loose(path, FindingKind.MISPLACED, detail)
    return _loose(path, FindingKind.LOCKED, detail)


def _other_python(path: Path, python: str, own_python: str) -> Checked:
    detail = (
        f"only programs of Python {python} use it, and this is {own_python}: after an upgrade nothing does; "
        f"unless a Python of that version is in use, run 'gpucache evict --cache pyopencl:{path} --all'"
    )
    return _loose(path, FindingKind.ORPHAN, detail)


def _in_the_way(path: Path) -> Checked:
    if path.is_symlink():
        return _loose(path, FindingKind.UNTRUSTED, "it is a link, which gpucache does not follow")
    return _loose(path, FindingKind.CORRUPT, f"it is no folder but has an entry's name; move it away: {DIES}")


def _stray(path: Path) -> Checked:
    return _loose(path, FindingKind.LEFTOVER, "it is none of PyOpenCL's; keep it elsewhere")


def _loose(path: Path, kind: FindingKind, detail: str) -> Checked:
    return Checked(str(path), (Finding(names.NAME, names.shown(path.name), kind, detail),), counts=False)


def _untold(entry: CacheEntry, why: str) -> Checked:
    return Checked(entry.key, notes=(f"{entry.key[:12]}: {why}",), counts=False)


def _finding(entry: CacheEntry, problem: Problem) -> Finding:
    return Finding(entry.cache, entry.key, problem.kind, problem.detail, entry.program, entry.target)
